"""`sluice eval run`: from arguments to a written result and an exit code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import typer

from protocol.dialects.table import CLIENTS, DEFAULT
from settings.config import Config
from settings.config_faults import did_you_mean
from sluice.check import check
from sluice.config_file import Document
from sluice.config_file import read as read_config
from sluice.errors import SettingsError
from sluice.eval import bounds, case_bytes, dataset, disguises, folder, judges, live, run
from sluice.eval.play import CaseOutcome
from sluice.eval.summary import summarize
from sluice.progress import progress
from sluice.settings import load_settings

OK, FAILED, INCOMPLETE = 0, 1, 3


class EvalArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command."""

    data: tuple[Path, ...]
    policies: tuple[str, ...]
    presets: tuple[str, ...]
    config: Path | None
    judge: str
    judgements: Path | None
    record: Path | None
    disguise: str
    split: str
    limit: int
    repeat: int
    seed: int
    jobs: int
    dialect: str
    upstream: str
    wire: str
    fail_on: tuple[str, ...]
    baseline: Path | None
    out: Path | None
    form: str
    mode: str = "pure"
    url: str = ""
    key: str = ""
    scripts: Path | None = None


def run_all(asked: EvalArguments) -> tuple[list[dict[str, Any]], dataset.Dataset]:
    """Measure every series that was asked for; returns the results and the cases. Raises
    SettingsError."""
    parsed = [bounds.parse(text) for text in asked.fail_on]
    plan = _plan(asked)
    before = folder.read(asked.baseline, "--baseline") if asked.baseline is not None else None
    names = [*asked.policies, *asked.presets] or ["default"]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise SettingsError(f"{twice!r} is asked for twice")
    _look_ahead(asked, names)
    play, config = _player(asked, plan, names)
    wanted = disguises.chosen(asked.disguise) if asked.disguise else []
    data = run.chosen(
        dataset.read(asked.data), split=asked.split, limit=asked.limit, seed=asked.seed
    )
    data = disguises.disguised(data, wanted)
    results, judgements = [], list[judges.Recorded]()
    with progress("calls", lambda: len(names) * len(data.cases) * plan.repeat) as step:
        for name in names:
            played, revision = play(name, data.cases, step)
            judgements += played.judgements
            results.append(
                summarize(
                    data,
                    list(zip(data.cases * plan.repeat, played.outcomes, strict=True)),
                    policy=name,
                    revision=revision,
                    mode=asked.mode,
                    judge=asked.judge,
                    seed=asked.seed,
                    seconds=played.seconds,
                    prices=prices(config, played.outcomes),
                    settings=_settings(asked),
                )
            )
    if asked.record is not None:
        judges.write(asked.record, judgements)
    for result in results:
        if before is not None:
            result["baseline"] = bounds.compare(
                result, _of_policy(before, result["policy"]), str(asked.baseline)
            )
        result["bounds"] = [bounds.check(bound, result)._asdict() for bound in parsed]
    return results, data


def _look_ahead(asked: EvalArguments, names: Sequence[str]) -> None:
    """Refuse what could not be printed or written, before all is measured for nothing. Raises
    SettingsError."""
    folder.check_form(asked.form, len(names))
    if asked.out is not None:
        folder.make(asked.out)
    if asked.record is not None:
        judges.open_file(asked.record)


_Player = Callable[[str, Sequence[dataset.Case], run.Progress], tuple[run.Played, str]]
"""Plays cases under the policy of a name; returns what came of them, and its revision."""


def _player(
    asked: EvalArguments, plan: run.PlayPlan, names: Sequence[str]
) -> tuple[_Player, Config]:
    """What plays the cases, here or through a running Sluice, and the configuration that says what
    judges cost."""
    config, search_path = _config(asked)
    if asked.mode == "live":
        return _live(asked, plan), config
    # all of them, before the first is measured
    revisions = {name: run.series_of(config, name, search_path).revision for name in names}

    def play(
        name: str, cases: Sequence[dataset.Case], progress: run.Progress
    ) -> tuple[run.Played, str]:
        return run.run(config, name, search_path, cases, plan, progress), revisions[name]

    return play, config


def _live(asked: EvalArguments, plan: run.PlayPlan) -> _Player:
    if not asked.url or not asked.key or asked.scripts is None:
        raise SettingsError(
            "--mode live needs --url, --key and --scripts: the folder of the gateway's"
            " SLUICE_SCRIPTS_DIR"
        )
    if (
        asked.presets
        or asked.judge != "live"
        or asked.record is not None
        or plan.client != plan.upstream
    ):
        raise SettingsError(
            "--mode live plays policies of the running Sluice, with its judges: without --preset,"
            " --judge, --record or to-..."
        )
    place = live.LiveTarget(asked.url.rstrip("/"), asked.key, asked.scripts)
    return lambda name, cases, progress: live.run(place, name, cases, plan, progress)


def prices(config: Config, outcomes: Iterable[CaseOutcome]) -> dict[str, tuple[float, float]]:
    """What the judges that were asked cost, as far as the configuration says."""
    routes = {
        name: config.route_of(name)
        for name in {judgement.name for outcome in outcomes for judgement in outcome.asked}
    }
    return {
        name: (route.price.input, route.price.output)
        for name, route in routes.items()
        if route is not None and route.price is not None
    }


def _plan(asked: EvalArguments) -> run.PlayPlan:
    _among("--mode", asked.mode, ("pure", "live"))
    _among("--judge", asked.judge, judges.MODES)
    client, upstream = (
        asked.dialect or DEFAULT.name,
        asked.upstream or asked.dialect or DEFAULT.name,
    )
    _among("--dialect", client, CLIENTS)
    _among("--upstream", upstream, CLIENTS)
    _among("--wire", asked.wire, case_bytes.WIRES)
    _among("--format", asked.form, folder.FORMATS)
    if (asked.judge == "recorded") != (asked.judgements is not None):
        raise SettingsError(
            "--judge recorded and --judgements FILE belong together: `--record FILE` writes such a"
            " file"
        )
    if asked.record is not None and asked.judge != "live":
        raise SettingsError(
            "--record keeps what judges answer, and with --judge off or recorded none is asked"
        )
    return run.PlayPlan(
        client=client,
        upstream=upstream,
        wire=asked.wire,
        judge=cast("judges.JudgeMode", asked.judge),
        judgements=str(asked.judgements or ""),
        keeps=asked.record is not None,
        repeat=asked.repeat,
        jobs=asked.jobs,
    )


def _among(option: str, word: str, known: Sequence[str] | Mapping[str, object]) -> None:
    if word not in known:
        raise SettingsError(
            f"{option}: {word!r} is none of {', '.join(known)}{did_you_mean(word, known)}"
        )


def _config(asked: EvalArguments) -> tuple[Config, tuple[str, ...]]:
    settings = load_settings(config=asked.config)
    document = (
        Document("", config=Config()) if settings.config is None else read_config(settings.config)
    )
    check.refuse(document, settings.search_path)
    assert document.config is not None
    return run.with_presets(document.config, asked.presets), settings.search_path


def _settings(asked: EvalArguments) -> dict[str, Any]:
    """What the figures depend on besides policies and data."""
    client = asked.dialect or DEFAULT.name
    return {
        "dialect": client,
        "upstream": asked.upstream or client,
        "wire": asked.wire,
        "repeat": asked.repeat,
        "limit": asked.limit or None,
        "split": asked.split or None,
        "disguise": asked.disguise or None,
    }


def _of_policy(before: dict[str, Any], policy: str) -> dict[str, Any]:
    """Of a baseline of several series the one of this name, else the first."""
    return next(
        (series for series in before.get("others", ()) if series.get("policy") == policy), before
    )


def evaluate(asked: EvalArguments) -> int:
    """Measure, print, write; return the exit code. Raises SettingsError."""
    results, data = run_all(asked)
    shown = folder.rendered(results, data, asked.form)
    if asked.out is not None:
        folder.write(asked.out, results, data)
    typer.echo(shown, nl=False)
    if asked.out is not None and asked.form == "table":
        typer.echo(f"the report is {asked.out / folder.PAGE}", err=True)
    return exit_code(results)


def show(path: Path, form: str) -> None:
    """Print a result of before. Raises SettingsError."""
    _among("--format", form, [name for name in folder.FORMATS if name != "inspect"])
    stored = folder.read(path, "DIR")
    typer.echo(folder.rendered(folder.series_of(stored), None, form), nl=False)
    if form == "table" and (page := path / folder.PAGE).exists():
        typer.echo(f"the report is {page}", err=True)


def exit_code(results: Sequence[Mapping[str, Any]]) -> int:
    """3 where no judge answered for some cases; 1 where a bound or the baseline is not met."""
    if not all(result["complete"] for result in results):
        return INCOMPLETE
    failed = any(bound["failed"] for result in results for bound in result["bounds"])
    worse = any(not result["baseline"]["met"] for result in results if "baseline" in result)
    return FAILED if failed or worse else OK
