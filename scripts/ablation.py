"""Counts, for each module and table row that reads shell texts, the decisions that change without
it.

    python -m scripts.ablation                  # the labelled calls of this repository
    python -m scripts.ablation --corpora DIR    # and the labelled commands of the corpora there

A module without effect: what others call of it returns nothing. A row without effect: its commands
do nothing, or are not in the table. What changes no decision says in its docstring which attack it
is for, and a test has that attack.
"""

import argparse
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from policy.effects import shell
from scripts import efficacy
from scripts.efficacy_page import CASES, CORPORA, OFFICE
from settings.config import Config
from sluice.eval import judges as judging
from sluice.eval.dataset import Case, read
from sluice.eval.play import play
from sluice.eval.run import PlayPlan, series_of

PRESETS = ("coding-agent", "strict")
_PLAN = PlayPlan(judge="off")
TABLES = (
    ("effects_of", "HANDLERS"),
    ("builtins", "BUILTINS"),
    ("dispatching", "SPECIAL"),
    ("decoding", "_PROGRAMS"),
    ("wrapper_table", "WRAPS"),
    ("programs", "LANGUAGES"),
    ("command_traits", "PRINTERS"),
)
"""Tables by the name of a command, with what each says of it."""


class Seen(dict[str, Any]):
    """A table that notes which of its rows are looked up."""

    keys_seen: set[str]

    def get(self, key: str, default: Any = None) -> Any:
        """As a dictionary does."""
        self.keys_seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.keys_seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.keys_seen.add(str(key))
        return super().__contains__(key)


class Bench:
    """The labelled calls, and what each preset decides about them."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.series = [
            series_of(
                Config.model_validate({"policies": {"p": [{"use": "preset", "name": name}]}}),
                "p",
                (),
            )
            for name in PRESETS
        ]
        self.judges = judging.Judges("off", self.series[0].config, recorded=None, keeps=False)
        self.usual = [self.decisions(case) for case in cases]

    def decisions(self, case: Case) -> list[tuple[str, str]]:
        """The verdict and rule of each preset; nothing that was read before is remembered."""
        for function in REMEMBERED:
            function.cache_clear()
        plays = [
            play(series, case, client=_PLAN.client, upstream=_PLAN.upstream, wire=_PLAN.wire)
            for series in self.series
        ]
        outcomes = [judging.finish(playing, self.judges, 0) for playing in plays]
        return [(outcome.verdict, outcome.rule or outcome.reason) for outcome in outcomes]

    def changed(self, numbers: Sequence[int]) -> list[str]:
        """The calls among these about which something else is decided now."""
        return [
            self.cases[n].id
            for n in numbers
            if [verdict for verdict, _ in self.decisions(self.cases[n])]
            != [verdict for verdict, _ in self.usual[n]]
        ]


def modules() -> dict[str, Any]:
    """The modules that read shell texts, by the last part of their name."""
    found = pkgutil.walk_packages(shell.__path__, f"{shell.__name__}.")
    return {
        info.name.rpartition(".")[2]: importlib.import_module(info.name)
        for info in found
        if not info.ispkg
    }


MODULES = modules()
REMEMBERED = [
    function
    for name, module in list(sys.modules.items())
    if name in ("policy.effects.touch", "policy.effects.shell.reading")
    for function in vars(module).values()
    if hasattr(function, "cache_clear") and function.__module__ == name
]


def users(function: object) -> Iterator[tuple[dict[str, Any], str]]:
    """Where a value stands under a name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("policy."):
            for key, value in list(vars(module).items()):
                if value is function:
                    yield vars(module), key


@contextmanager
def in_place_of(values: Sequence[tuple[object, object]]) -> Iterator[None]:
    """Put others in place of values, wherever they stand under a name."""
    places = [(names, key, old, new) for old, new in values for names, key in list(users(old))]
    for names, key, _, new in places:
        names[key] = new
    try:
        yield
    finally:
        for names, key, old, _ in places:
            names[key] = old


def without_effect(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What does nothing in place of a function, by what it returns; None where nobody can say."""
    returned = inspect.signature(function).return_annotation
    if returned is None or type(None) in get_args(returned):
        return lambda *_, **__: None
    if returned is bool:
        return lambda *_, **__: False
    origin = getattr(returned, "__origin__", None)
    if origin in (list, tuple):
        return lambda *_, **__: origin()
    if "call" in inspect.signature(function).parameters and returned is MODULES["state"].Invocation:
        return lambda machine, call, *_: call
    return None


def of_modules(bench: Bench) -> Iterator[tuple[str, int, list[str]]]:
    """Each module: how many calls reach it, and those that are decided otherwise without it."""
    everything = range(len(bench.cases))
    for name, module in MODULES.items():
        functions = [
            (value, nothing)
            for key, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not key.startswith("_")
            and (nothing := without_effect(value)) is not None
        ]
        if functions:
            with in_place_of(functions):
                yield name, len(everything), bench.changed(everything)


def of_rows(bench: Bench) -> Iterator[tuple[str, int, list[str]]]:
    """Each row of the tables, with the names that it is for."""
    for module_name, table_name in TABLES:
        table = getattr(MODULES[module_name], table_name)
        rows: dict[int, list[str]] = {}
        for name, value in table.items():
            rows.setdefault(id(value), []).append(name)
        seen = Seen(table)
        reached: dict[str, list[int]] = {}
        with in_place_of([(table, seen)]):
            for number, case in enumerate(bench.cases):
                seen.keys_seen = set()
                bench.decisions(case)
                for name in seen.keys_seen:
                    reached.setdefault(name, []).append(number)
        for names in rows.values():
            numbers = sorted({number for name in names for number in reached.get(name, ())})
            kept = {name: value for name, value in table.items() if name not in names}
            if table_name == "HANDLERS":
                kept |= dict.fromkeys(names, lambda *_: None)
            with in_place_of([(table, kept)]):
                yield f"{table_name}: {' '.join(names)[:80]}", len(numbers), bench.changed(numbers)


def cases_of(corpora: Path | None) -> list[Case]:
    """The labelled calls: of this repository, of blind tests, and of corpora if there are any."""
    blind = sorted((efficacy.CONTROL / "blind").rglob("*.jsonl"))
    cases = [*efficacy.own_cases(CASES)[0], *efficacy.own_cases(OFFICE)[0]]
    cases += [case for file in blind if file.stem != "sql" for case in read([file]).cases]
    known = efficacy.labels()
    for name in CORPORA if corpora is not None else ():
        found = efficacy.corpus(Path(corpora or "") / f"{name}.jsonl")
        cases += [case for case, label in found if label in known.values()]
    return cases


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, from what changes least."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpora", type=Path)
    asked = parser.parse_args(arguments)
    bench = Bench(cases_of(asked.corpora))
    sys.stdout.write(f"{len(bench.cases)} labelled calls, presets {', '.join(PRESETS)}\n")
    for title, parts in (("module", of_modules), ("row", of_rows)):
        found = sorted(parts(bench), key=lambda part: (len(part[2]), part[1]))
        sys.stdout.write(f"\nchanged  reached  {title}\n")
        for name, reached, changed in found:
            few = f"  ({', '.join(changed)})" if 0 < len(changed) <= 3 else ""
            sys.stdout.write(f"{len(changed):7}  {reached:7}  {name}{few}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
