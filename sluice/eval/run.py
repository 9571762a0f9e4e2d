"""One run: the series of policies, the cases that are chosen, and playing them, in this process or
in several."""

import asyncio
import gc
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from policy.effects import touch
from protocol.dialects.table import DEFAULT
from protocol.errors import PolicyFailed
from protocol.request import DialectName
from settings.config import Config
from settings.config_faults import did_you_mean
from sluice.check import policy_check
from sluice.check.presets_cli import step_of
from sluice.check.sessions import Series, loaded
from sluice.config_mistakes import Finding, Mistakes
from sluice.errors import SettingsError, StartError
from sluice.eval import case_bytes
from sluice.eval import judges as judging
from sluice.eval.dataset import Case, Dataset
from sluice.eval.play import CaseOutcome, play

Progress = Callable[[int], None]
"""Told how many more cases are done."""
_TOLD = 32
_CHUNK = 256
_MANY = 3_000
_MOST_JOBS = 8
CONCURRENT = 8
"""Questions that judge models are asked at once."""


class PlayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How cases are played; the same for each series."""

    client: DialectName = DEFAULT.name
    upstream: DialectName = DEFAULT.name
    wire: str = case_bytes.WHOLE
    judge: judging.JudgeMode = "live"
    judgements: str = ""
    """The file of recorded judgements."""
    keeps: bool = False
    """Are judgements kept, to be written?"""
    repeat: int = 1
    jobs: int = 0
    """Processes; 0: as `_jobs` chooses."""


def chosen(dataset: Dataset, *, split: str, limit: int, seed: int) -> Dataset:
    """Return the cases of one split, and at most `limit` of them, drawn by the seed and in their
    order. Raises SettingsError."""
    cases = dataset.cases
    if split:
        cases = tuple(case for case in cases if case.split == split)
        if not cases:
            there = sorted({case.split for case in dataset.cases if case.split})
            available = (
                f"the data has {', '.join(there)}"
                if there
                else "no case of the data has the key `split`"
            )
            raise SettingsError(
                f"--split: there is no case of the split {split!r}:"
                f" {available}{did_you_mean(split, there)}"
            )
    if limit and limit < len(cases):
        indexes = sorted(random.Random(seed).sample(range(len(cases)), limit))
        cases = tuple(cases[at] for at in indexes)
    return msgspec.structs.replace(dataset, cases=cases)


def with_presets(config: Config, presets: Sequence[str]) -> Config:
    """Return the configuration with a series for each preset, under what was asked for: NAME, or
    NAME:OPTION=VALUE,OPTION=VALUE.

    Raises SettingsError for presets and options that there are not.
    """
    if not presets:
        return config
    made = {}
    for text in presets:
        name, _, options = text.partition(":")
        made[text] = (step_of(name, options.split(",") if options else (), "--preset"),)
        if mistakes := policy_check.preset_mistakes(made[text][0]):
            raise Mistakes(f"--preset {text}", mistakes)
    return config.model_copy(update={"policies": {**config.policies, **made}})


def series_of(config: Config, name: str, search_path: Sequence[str]) -> Series:
    """Load a series. Raises SettingsError where there is none of that name, or it cannot be
    loaded."""
    if name not in config.policies:
        known = config.policies
        raise SettingsError(
            f"--policy: there is no policy {name!r} (there are"
            f" {', '.join(known)}){did_you_mean(name, known)}"
        )
    try:
        policies, revision = loaded(config, name, search_path)
    except PolicyFailed as error:
        raise Mistakes(
            "the policies", [Finding("error", ("policies", name), error.message)]
        ) from None
    return Series(name, policies, revision, config)


class Played(msgspec.Struct, frozen=True):
    """The outcome of a series: an outcome for each case and round, in order; seconds in total;
    recorded judgements."""

    outcomes: list[CaseOutcome]
    seconds: float
    judgements: list[judging.Recorded]


def run(
    config: Config,
    name: str,
    search_path: Sequence[str],
    cases: Sequence[Case],
    plan: PlayPlan,
    progress: Progress,
) -> Played:
    """Play all cases through one series. Raises SettingsError."""
    series = series_of(config, name, search_path)
    rounds = [(case, repeat) for repeat in range(plan.repeat) for case in cases]
    _warm_up(series, cases[0], plan)
    began = time.perf_counter()
    with _uncollected():
        if (jobs := plan.jobs or _jobs(series, plan, len(rounds))) > 1 and len(rounds) > 1:
            outcomes, judgements = _in_processes(
                config,
                name,
                search_path,
                rounds,
                msgspec.structs.replace(plan, jobs=jobs),
                progress,
            )
        else:
            outcomes, judgements = _here(series, rounds, plan, progress)
    return Played(outcomes, time.perf_counter() - began, judgements)


def _jobs(series: Series, plan: PlayPlan, count: int) -> int:
    """A process a core, where starting them (0.5 s) costs less than they spare. Judges that answer
    now are waited for together, in one."""
    waits = plan.judge == "live" and any(policy.asks for policy in series.policies)
    return min(os.cpu_count() or 1, _MOST_JOBS) if count > _MANY and not waits else 1


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for cycles only now and then, among what is new: sessions make few, and looking for them
    took a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _warm_up(series: Series, case: Case, plan: PlayPlan) -> None:
    """Play a case once for nothing: the first one loads codecs, patterns and parsers, which is no
    time of deciding."""
    touch.warm()
    playing = play(series, case, client=plan.client, upstream=plan.upstream, wire=plan.wire)
    judging.finish(playing, judging.Judges("off", series.config), 0)


def _here(
    series: Series, rounds: Sequence[tuple[Case, int]], plan: PlayPlan, progress: Progress
) -> tuple[list[CaseOutcome], list[judging.Recorded]]:
    path = Path(plan.judgements) if plan.judgements else None
    judges = judging.Judges(plan.judge, series.config, recorded=path, keeps=plan.keeps)
    if plan.judge == "live" and any(policy.asks for policy in series.policies):
        return asyncio.run(_waiting(series, rounds, plan, judges, progress)), judges.recorded
    return list(_at_once(series, rounds, plan, judges, progress)), judges.recorded


def _at_once(
    series: Series,
    rounds: Iterable[tuple[Case, int]],
    plan: PlayPlan,
    judges: judging.Judges,
    progress: Progress,
) -> Iterator[CaseOutcome]:
    last = 0
    for number, (case, repeat) in enumerate(rounds, 1):
        playing = play(
            series, case, client=plan.client, upstream=plan.upstream, wire=plan.wire, repeat=repeat
        )
        yield judging.finish(playing, judges, repeat)
        if number % _TOLD == 0:
            progress(_TOLD)
            gc.collect(0)
        last = number % _TOLD
    progress(last)


async def _waiting(
    series: Series,
    rounds: Sequence[tuple[Case, int]],
    plan: PlayPlan,
    judges: judging.Judges,
    progress: Progress,
) -> list[CaseOutcome]:
    """Play with judges that may have to be waited for: some cases at once, each place one after the
    other."""
    outcomes: list[CaseOutcome | None] = [None] * len(rounds)
    left = iter(enumerate(rounds))

    async def place() -> None:
        for at, (case, repeat) in left:
            playing = play(
                series,
                case,
                client=plan.client,
                upstream=plan.upstream,
                wire=plan.wire,
                repeat=repeat,
            )
            outcomes[at] = await judging.finish_later(playing, judges, repeat)
            progress(1)
            if at % _TOLD == 0:
                gc.collect(0)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(CONCURRENT):
                group.create_task(place(), name=f"place {number}")
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        await judges.close()
    return [outcome for outcome in outcomes if outcome is not None]


# --- several processes ---


def _in_processes(
    config: Config,
    name: str,
    search_path: Sequence[str],
    rounds: Sequence[tuple[Case, int]],
    plan: PlayPlan,
    progress: Progress,
) -> tuple[list[CaseOutcome], list[judging.Recorded]]:
    parts = [rounds[at : at + _CHUNK] for at in range(0, len(rounds), _CHUNK)]
    outcomes, judgements = list[CaseOutcome](), list[judging.Recorded]()
    # not forked: the progress bar has a thread
    spawned = multiprocessing.get_context("spawn")
    arguments = (config.model_dump_json(exclude_unset=True), name, tuple(search_path), plan)
    try:
        with ProcessPoolExecutor(
            plan.jobs, mp_context=spawned, initializer=_begin, initargs=arguments
        ) as pool:
            for done in pool.map(_part, parts):
                progress(len(done[0]))
                outcomes += done[0]
                judgements += done[1]
    except BrokenProcessPool:
        raise StartError(
            "a process of --jobs ended in the middle: run with --jobs 1 to see why"
        ) from None
    return outcomes, judgements


_mine: dict[str, Any] = {}
"""In a process of `--jobs`: the series and the plan that it plays with."""


def _begin(config: str, name: str, search_path: tuple[str, ...], plan: PlayPlan) -> None:
    series = series_of(Config.model_validate_json(config), name, search_path)
    touch.warm()
    _mine.update(series=series, plan=plan)


def _part(
    rounds: Sequence[tuple[Case, int]],
) -> tuple[list[CaseOutcome], list[judging.Recorded]]:
    with _uncollected():
        return _here(_mine["series"], rounds, _mine["plan"], lambda _: None)
