"""Writes docs/run/efficacy.md from docs/data/efficacy.json; with `--measure` measures first, in
some two minutes.

    python -m scripts.efficacy --measure --corpora DIR     # DIR holds nl2bash.jsonl, tldr.jsonl,
    dcg.jsonl, atomic.jsonl python -m scripts.efficacy                             # the page alone
    python -m scripts.efficacy --check

The data holds counts, ids of our own cases and hashes of files, and no text of any corpus. Labels
are in tests/fixtures/control/labels.json, by the SHA-256 of the command, and say how they were set:
the rates are counted under each way.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from protocol.records import PASSED
from scripts.efficacy_page import CASES, CORPORA, HELD, OFFICE, SEEN, SQL, page
from settings.config import Config
from sluice.eval import disguises
from sluice.eval import run as running
from sluice.eval.dataset import Case, CaseCall, Dataset, read
from sluice.eval.judges import JudgeMode
from sluice.eval.play import CaseOutcome
from sluice.eval.summary import summarize

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "efficacy.json", ROOT / "docs" / "run" / "efficacy.md"
CONTROL = ROOT / "tests" / "fixtures" / "control"
LABELS = CONTROL / "labels.json"
FILES = {
    HELD: "blind/held/*.jsonl",
    SEEN: "blind/seen/*.jsonl",
    CASES: "toolcalls.json",
    OFFICE: "office.jsonl",
}
HARMFUL = ("atomic",)
"""Corpora whose cases are harmful unless a label says otherwise; of the others they are harmless,
of dcg what it expects."""
STAGES = ("own", "first", "patterns", "all")
"""Ways to label a corpus: as it is, by the first patterns, by the patterns as they are now, by
these and by hand."""
JUDGED, OFFICE_JUDGED = "coding-agent-judged", "office-judged"
DIALECTS = ("coding-agent", JUDGED, "strict", "cloud", "database-readonly", "database-write")
"""Presets that are told which dialect of SQL the database speaks."""
PRESETS = (
    "coding-agent",
    JUDGED,
    "strict",
    "cloud",
    "database-readonly",
    "database-write",
    "observe",
)
RUNS: tuple[tuple[str, str], ...] = (
    (HELD, "coding-agent"),
    (SEEN, "coding-agent"),
    *((CASES, name) for name in ("demo", *PRESETS)),
    *((SQL, name) for name in PRESETS),
    *((name, preset) for name in CORPORA for preset in ("coding-agent", JUDGED)),
    ("nl2bash", "demo"),
    (OFFICE, "office"),
    (OFFICE, OFFICE_JUDGED),
)
Pair = tuple[Case, CaseOutcome]


class Label(NamedTuple):
    """A label of a command in a corpus. `by`: `first` or `widened` patterns, or `hand`; `before`:
    what it was until the patterns were widened, empty for the corpus's own label."""

    label: str
    why: str
    by: str
    before: str = ""

    def at(self, stage: str, own: str) -> str:
        """The label under a way to label; `own` is the corpus's."""
        if stage == "own":
            return own
        if self.by == "hand" and stage != "all":
            return own
        if self.by == "widened" and stage == "first":
            return self.before or own
        return self.label


def sha256(text: str) -> str:
    """The name of a command in labels and data."""
    return hashlib.sha256(text.encode()).hexdigest()


def labels() -> dict[str, Label]:
    """Labels by the hash of the command."""
    return {
        name: Label(*fields) for name, fields in json.loads(LABELS.read_text())["labels"].items()
    }


def corpus(path: Path) -> Iterator[tuple[Case, Label]]:
    """The cases of a corpus, each a call of `bash` under the corpus's own label, and the published
    one."""
    known = labels()
    seen: set[str] = set()
    for line in path.read_text().splitlines():
        item = json.loads(line)
        text = item["text"]
        name = sha256(text)
        if not text.strip() or name in seen:
            continue
        seen.add(name)
        own = {"deny": "harmful", "allow": "benign"}.get(
            item.get("expected", ""), "harmful" if path.stem in HARMFUL else "benign"
        )
        case = Case(
            id=name[:16],
            label=own,  # type: ignore[arg-type]
            calls=(CaseCall("bash", json.dumps({"command": text})),),
            category=path.stem,
        )
        yield case, known.get(name, Label(own, "", "own"))


def statements(path: Path) -> Iterator[Case]:
    """The statements of SQL, each a call of `query`; the category is the dialect, and harm is what
    writes."""
    for line in path.read_text().splitlines():
        item = json.loads(line)
        label = "harmful" if item["label"] == "write" else "benign"
        yield Case(
            id=item["id"],
            label=label,  # type: ignore[arg-type]
            calls=(CaseCall("query", json.dumps({"sql": item["sql"]})),),
            category=item["dialect"],
        )


def play(preset: str, cases: Sequence[Case], **options: Any) -> list[CaseOutcome]:
    """Play cases through a preset, or the policy `demo`; no judge is asked but the built-in one, in
    `demo`."""
    judge: JudgeMode = "off"
    config, name = Config(), preset
    if preset in config.policies:
        judge = "live"
    else:
        if preset in (JUDGED, OFFICE_JUDGED):
            # some model must be named, and is not asked
            options = {"judge": "demo-judge", **options}
        use = {"use": "preset", "name": "office" if preset == OFFICE_JUDGED else preset, **options}
        config, name = Config.model_validate({"policies": {"measured": [use]}}), "measured"
    return running.run(
        config, name, (), cases, running.PlayPlan(judge=judge), lambda _: None
    ).outcomes


def play_statements(preset: str, cases: Sequence[Case]) -> list[CaseOutcome]:
    """Play statements of SQL, those of each dialect through the preset for that dialect where it
    has the option."""
    if preset not in DIALECTS:
        return play(preset, cases)
    found: dict[str, CaseOutcome] = {}
    for dialect in sorted({case.category for case in cases}):
        of = [case for case in cases if case.category == dialect]
        found |= {outcome.id: outcome for outcome in play(preset, of, dialect=dialect)}
    return [found[case.id] for case in cases]


def own_cases(name: str) -> tuple[Sequence[Case], str]:
    """The cases of a dataset of this repository, and the SHA-256 of its file."""
    if name in FILES:
        files = [file for file in sorted(CONTROL.glob(FILES[name])) if file.stem != "sql"]
        found = read(files)
        return found.cases, found.sha256
    file = CONTROL / "sql.jsonl"
    return tuple(statements(file)), hashlib.sha256(file.read_bytes()).hexdigest()


# --- measuring ---


def measure(corpora: Path) -> dict[str, Any]:
    """Play all datasets through the presets, and say on standard error what is done."""
    began = time.monotonic()
    results = []
    for number, (name, preset) in enumerate(RUNS, 1):
        results.append(
            _of_corpus(name, preset, corpora) if name in CORPORA else _of_own(name, preset)
        )
        sys.stderr.write(
            f"{time.monotonic() - began:4.0f} s  {number} of {len(RUNS) + 2}: {name}, {preset}\n"
        )
    forms = []
    for number, preset in enumerate(("coding-agent", "demo"), len(RUNS) + 1):
        forms.append(_disguised(preset))
        sys.stderr.write(
            f"{time.monotonic() - began:4.0f} s  {number} of {len(RUNS) + 2}: disguises, {preset}\n"
        )
    known = labels().values()
    return {
        "labels": {
            "n": len(known),
            "by": dict(Counter(one.by for one in known)),
            "of": dict(Counter(one.label for one in known)),
        },
        "machine": results[0]["machine"],
        "results": results,
        "disguises": forms,
        "lines": _of_several_lines(corpora),
    }


def _of_several_lines(corpora: Path) -> dict[str, Any]:
    """What deciding about commands of several lines takes."""
    cases = [
        case
        for name in ("atomic", "dcg")
        for case, _ in corpus(corpora / f"{name}.jsonl")
        if "\n" in json.loads(case.call.arguments)["command"].strip()
    ]
    pairs = list(zip(cases, play("coding-agent", cases), strict=True))
    return {"n": len(cases), "latency_us": _summary(pairs, "coding-agent")["latency_us"]}


def counted(outcomes: Iterable[CaseOutcome]) -> dict[str, int]:
    """Count verdicts: `asked` is a call that a judge would decide about."""
    found = Counter(outcome.verdict for outcome in outcomes)
    return {
        "n": found.total(),
        "blocked": found["block"],
        "unsure": found["unsure"],
        "asked": found["ask"],
    }


def _summary(pairs: Sequence[Pair], preset: str) -> dict[str, Any]:
    """The result as `sluice eval` has it: its latency is what the page prints."""
    cases = tuple(case for case, _ in pairs)
    judge = "live" if preset == "demo" else "off"
    made: dict[str, Any] = summarize(
        Dataset(cases=cases, files=(), sha256=""),
        pairs,
        policy=preset,
        revision="",
        mode="pure",
        judge=judge,
        seed=0,
        seconds=0,
        prices={},
        settings={},
    )
    return made


def _result(name: str, preset: str, digest: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    summary = _summary(pairs, preset)
    return {
        "dataset": name,
        "preset": preset,
        "sha256": digest,
        "latency_us": summary["latency_us"],
        "machine": summary["machine"],
    }


def _of_own(name: str, preset: str) -> dict[str, Any]:
    cases, digest = own_cases(name)
    outcomes = play_statements(preset, cases) if name == SQL else play(preset, cases)
    pairs = list(zip(cases, outcomes, strict=True))
    made = _result(name, preset, digest, pairs)
    for label in ("harmful", "benign"):
        made[label] = counted(outcome for case, outcome in pairs if case.label == label)
    if name == HELD:
        # nobody learns from these: counts alone
        return made
    if name != OFFICE:
        made["categories"] = {
            category: {
                label: counted(
                    outcome
                    for case, outcome in pairs
                    if (case.category, case.label) == (category, label)
                )
                for label in ("harmful", "benign")
            }
            for category in sorted({case.category for case in cases})
        }
    made["mistakes"] = [
        [case.id, case.category, outcome.rule or outcome.reason]
        for case, outcome in pairs
        if (
            outcome.verdict in PASSED
            if case.label == "harmful"
            else outcome.verdict in ("block", "unsure")
        )
    ]
    return made


def _of_corpus(name: str, preset: str, corpora: Path) -> dict[str, Any]:
    file = corpora / f"{name}.jsonl"
    labelled = list(corpus(file))
    outcomes = play(preset, [case for case, _ in labelled])
    pairs = [(case, outcome) for (case, _), outcome in zip(labelled, outcomes, strict=True)]
    made = _result(name, preset, hashlib.sha256(file.read_bytes()).hexdigest(), pairs)
    hand = [
        (label.label, o.verdict)
        for (_, label), o in zip(labelled, outcomes, strict=True)
        if label.by == "hand"
    ]
    made["by_hand"] = {
        label: {
            "stopped": sum(
                verdict in ("block", "unsure") for set_to, verdict in hand if set_to == label
            ),
            "passes": sum(
                verdict not in ("block", "unsure") for set_to, verdict in hand if set_to == label
            ),
        }
        for label in ("harmful", "debatable", "benign")
    }
    made["stages"] = {
        stage: {
            wanted: counted(
                o
                for (case, label), o in zip(labelled, outcomes, strict=True)
                if label.at(stage, case.label) == wanted
            )
            for wanted in ("harmful", "benign", "debatable")
        }
        for stage in STAGES
    }
    made |= {label: made["stages"]["all"][label] for label in ("harmful", "benign")}
    benign = [
        o
        for (case, label), o in zip(labelled, outcomes, strict=True)
        if label.at("all", case.label) == "benign"
    ]
    made["false_by_rule"] = dict(
        Counter(o.rule for o in benign if o.verdict == "block").most_common()
    )
    return made


def _disguised(preset: str) -> dict[str, Any]:
    """The developer cases of shell commands in every disguise, as `sluice eval run --disguise all`
    plays them."""
    whole = read([CONTROL / "toolcalls.json"])
    shell = tuple(case for case in whole.cases if case.call.tool == "bash")
    data = disguises.disguised(
        msgspec.structs.replace(whole, cases=shell), disguises.chosen(disguises.ALL)
    )
    pairs = list(zip(data.cases, play(preset, data.cases), strict=True))
    summary = _summary([pair for pair in pairs if pair[0].disguise], preset)

    missed = [
        case.id
        for case, outcome in pairs
        if case.disguise and case.label == "harmful" and outcome.verdict in PASSED
    ]

    def short(of: dict[str, Any]) -> dict[str, Any]:
        return {
            label: {
                key: of[label][key] for key in ("n", "parents", "blocked", "unsure", "interval")
            }
            for label in ("harmful", "benign")
        }

    return {
        "preset": preset,
        "totals": short(summary["totals"]),
        "by": {name: short(of) for name, of in summary["disguises"].items()},
        "latency_us": summary["latency_us"],
        "misses": missed,
    }


def _written(value: Any, depth: int = 0) -> str:
    """As JSON in which what fits a line stands in one, so that a difference can be read."""
    whole = json.dumps(value)
    if len(whole) + depth <= 140 or not isinstance(value, dict | list):
        return whole
    keyed = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    items = [
        ("" if key is None else f"{json.dumps(key)}: ") + _written(one, depth + 1)
        for key, one in keyed
    ]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return (
        begin + ",".join(f"\n{' ' * (depth + 1)}{item}" for item in items) + f"\n{' ' * depth}{end}"
    )


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure if that is asked for; write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    if asked.measure:
        if asked.corpora is None or not asked.corpora.is_dir():
            parser.error(
                "--measure needs --corpora DIR, the folder with the corpora (docs/run/efficacy.md says"
                " where they are to be had)"
            )
        if missing := [name for name in CORPORA if not (asked.corpora / f"{name}.jsonl").is_file()]:
            parser.error(
                f"--corpora: {asked.corpora} has no {missing[0]}.jsonl (docs/run/efficacy.md says where"
                " it is to be had)"
            )
        DATA.write_text(_written(measure(asked.corpora)) + "\n")
    text = page(json.loads(DATA.read_text()))
    if not asked.check:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        sys.stdout.write(
            "docs/run/efficacy.md is not what docs/data/efficacy.json says: run python -m"
            " scripts.efficacy\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
