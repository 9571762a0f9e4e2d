"""The count of decisions that change without a module or a row of a table."""

import json

import pytest

from scripts.ablation import MODULES, Bench, in_place_of, of_rows, without_effect
from sluice.eval.dataset import Case, CaseCall


def case(text: str) -> Case:
    return Case(id=text, label="harmful", calls=(CaseCall("bash", json.dumps({"command": text})),))


@pytest.mark.slow
def test_a_row_counts_the_calls_that_it_stops() -> None:
    bench = Bench([case("wipefs --all /dev/sdc"), case("ls"), case("nohup wipefs -a /dev/sdc")])
    rows = {
        name.partition(" ")[2].split()[0]: (reached, changed)
        for name, reached, changed in of_rows(bench)
    }
    assert rows["mkfs"] == (2, ["wipefs --all /dev/sdc", "nohup wipefs -a /dev/sdc"])
    assert rows["zfs"] == (0, [])
    # the reader is whole again
    assert bench.changed(range(3)) == []


def test_a_module_without_effect_returns_nothing() -> None:
    key_files = MODULES["key_files"]
    bench = Bench([case("unheard-of ~/.ssh/id_rsa")])
    nothing = without_effect(key_files.add_given)
    with in_place_of([(key_files.add_given, nothing)]):
        assert bench.changed([0]) == ["unheard-of ~/.ssh/id_rsa"]
    is_guard = without_effect(MODULES["protective_services"].is_guard)
    assert is_guard is not None and is_guard("auditd") is False
