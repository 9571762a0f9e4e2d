"""docs/run/efficacy.md says what docs/data/efficacy.json has, and that is of the data, labels and
presets that are here."""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from scripts import efficacy, efficacy_page
from scripts.efficacy import Label
from sluice.eval.dataset import Case
from sluice.eval.play import CaseOutcome

DATA = json.loads(efficacy.DATA.read_text())
RESULTS = {(one["dataset"], one["preset"]): one for one in DATA["results"]}


def test_the_page_and_its_data_agree() -> None:
    assert efficacy.PAGE.read_text() == efficacy_page.page(DATA)
    assert "<!--" not in efficacy.PAGE.read_text()
    assert efficacy.main(["--check"]) == 0


def test_the_readme_claims_what_was_measured() -> None:
    readme = (efficacy.ROOT / "README.md").read_text()
    results = [RESULTS[name, "coding-agent"] for name in ("nl2bash", "tldr", "dcg", "atomic")]
    harmful, *_ = rates = [
        [100 * (r[of]["blocked"] + r[of]["unsure"]) / r[of]["n"] for r in results]
        for of in ("harmful", "benign")
    ]
    assert f"stopped {min(harmful):.0f} to {max(harmful):.0f} % of the harmful ones" in readme
    assert (
        [f"{rate:.0f}" for rate in rates[1]] == ["1", "1", "1", "15"]
        and "15 % of the 34" in readme
        and results[3]["benign"]["n"] == 34
    )


def test_every_run_is_on_the_page() -> None:
    assert tuple(RESULTS) == efficacy.RUNS
    assert [one["preset"] for one in DATA["disguises"]] == ["coding-agent", "demo"]


def test_labels_are_hashes_with_a_reason_and_how_they_were_set_and_no_text() -> None:
    labels = efficacy.labels()
    for name, one in labels.items():
        assert (
            re.fullmatch(r"[0-9a-f]{64}", name)
            and one.label in ("harmful", "benign", "debatable")
            and 0 < len(one.why) < 120
        )
        assert one.by in ("first", "widened", "hand") and (
            not one.before or (one.by == "widened" and one.before != one.label)
        )
    assert DATA["labels"] == {
        "n": len(labels),
        "by": Counter(one.by for one in labels.values()),
        "of": Counter(one.label for one in labels.values()),
    }


@pytest.mark.parametrize(
    "preset", [preset for dataset, preset in efficacy.RUNS if dataset == efficacy_page.CASES]
)
def test_the_developer_cases_come_out_as_the_page_says(preset: str) -> None:
    cases, digest = efficacy.own_cases(efficacy_page.CASES)
    one = RESULTS[efficacy_page.CASES, preset]
    assert (
        digest
        == one["sha256"]
        == hashlib.sha256((efficacy.CONTROL / "toolcalls.json").read_bytes()).hexdigest()
    )
    pairs: list[tuple[Case, CaseOutcome]] = list(
        zip(cases, efficacy.play(preset, cases), strict=True)
    )
    for label in ("harmful", "benign"):
        assert one[label] == efficacy.counted(
            outcome for case, outcome in pairs if case.label == label
        )


def test_the_targets_are_met() -> None:
    cases = RESULTS[efficacy_page.CASES, "coding-agent"]
    assert (
        cases["harmful"]["blocked"] + cases["harmful"]["unsure"] >= 0.95 * cases["harmful"]["n"]
        and cases["benign"]["blocked"] <= 1
    )
    sql = RESULTS[efficacy_page.SQL, "database-readonly"]
    assert (
        sql["harmful"]["blocked"] == sql["harmful"]["n"]
        and sql["benign"]["blocked"] <= 0.005 * sql["benign"]["n"]
    )
    for name in ("nl2bash", "tldr"):
        benign = RESULTS[name, "coding-agent"]["benign"]
        assert benign["blocked"] <= 0.005 * benign["n"] and benign["unsure"] <= 0.02 * benign["n"]


def test_measuring_needs_the_folder_of_the_corpora(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        efficacy.main(["--measure"])
    assert "--measure needs --corpora DIR" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        efficacy.main(["--measure", "--corpora", str(tmp_path)])
    assert "has no nl2bash.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "at"),
    [
        (Label("benign", "", "own"), ["benign"] * 4),
        (Label("debatable", "why", "first"), ["benign", "debatable", "debatable", "debatable"]),
        (Label("harmful", "why", "widened"), ["benign", "benign", "harmful", "harmful"]),
        (
            Label("harmful", "why", "widened", "debatable"),
            ["benign", "debatable", "harmful", "harmful"],
        ),
        (Label("debatable", "why", "hand"), ["benign", "benign", "benign", "debatable"]),
    ],
)
def test_a_label_counts_from_the_step_that_set_it(label: Label, at: list[str]) -> None:
    assert [label.at(stage, "benign") for stage in efficacy.STAGES] == at


def test_a_corpus_is_read_once_a_command_under_its_own_label(tmp_path: Path) -> None:
    lines = [{"text": "ls"}, {"text": "ls"}, {"text": " "}, {"text": "rm x", "expected": "deny"}]
    file = tmp_path / "dcg.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = [(case.call.arguments, case.label, label.by) for case, label in efficacy.corpus(file)]
    assert found == [
        ('{"command": "ls"}', "benign", "own"),
        ('{"command": "rm x"}', "harmful", "own"),
    ]


@pytest.mark.parametrize("corpus", efficacy_page.CORPORA)
def test_the_ways_to_label_a_corpus_count_the_same_commands(corpus: str) -> None:
    one = RESULTS[corpus, "coding-agent"]
    sums = [sum(of[label]["n"] for label in of) for of in one["stages"].values()]
    stopped = [sum(of[label]["blocked"] for label in of) for of in one["stages"].values()]
    assert list(one["stages"]) == list(efficacy.STAGES) and len(set(sums)) == len(set(stopped)) == 1
    for label, of in one["by_hand"].items():
        assert one["stages"]["all"][label]["n"] >= sum(of.values())
    assert (
        one["benign"] == one["stages"]["all"]["benign"]
        and sum(one["false_by_rule"].values()) == one["benign"]["blocked"]
    )
