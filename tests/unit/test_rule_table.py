"""The language in which tables say what commands do."""

import pytest

from policy.effects.places import NOWHERE
from policy.effects.shell.command import Command
from policy.effects.shell.commands.args import args_of
from policy.effects.shell.commands.findings import Findings
from policy.effects.shell.commands.rule_table import rows
from policy.effects.shell.run.resolving import resolve


def added(rules: str, text: str) -> list[str]:
    """The effects that a row of `x` adds for a command."""
    command: Command = resolve(text).commands[0]
    findings = Findings(command, NOWHERE, origin=lambda word: [])
    rows(f"x : -v\n{rules}")["x"](command, args_of(command), findings)
    return [
        f"{e.kind} {e.scope} {e.target}{'*' if e.wide else ''}".strip() for e in findings.effects
    ]


@pytest.mark.parametrize(
    ("rules", "text", "effects"),
    [
        ("    -f -> delete unknown {}", "x -f a b", ["delete unknown a b"]),
        ("    -f -> delete unknown {}", "x a b", []),
        ("    !-f -> delete unknown {2-} wide", "x a b c", ["delete unknown b c*"]),
        ("    -v=o.e -> write temp {line}", "x -v one", ["write temp -v one"]),
        (
            "    + 1=a -> read project a\n    -> read home b",
            "x a",
            ["read project a", "read home b"],
        ),
        ("    1=a -> read project a\n    -> read home b", "x a", ["read project a"]),
        ("    w2=a text~b root -> process system", "x -f a b", []),
        ("    -> delete @operands=system wide:-r", "x -r a /etc/x", ["delete system /etc/x*"]),
        (
            "    -> deletes ./a ; host 1",
            "x h.example",
            ["delete project ./a", "network other h.example"],
        ),
    ],
)
def test_rules_add_effects(rules: str, text: str, effects: list[str]) -> None:
    assert added(rules, text) == effects


@pytest.mark.parametrize(
    "rule", ["    -> eats 1", "    third -> delete unknown", "    = -> reads 1"]
)
def test_a_rule_that_says_nothing_known_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"eats|third|="):
        added(rule, "x a")
