"""`sluice explain`: how a call was read, step by step, without a server."""

import json
from typing import Any

import pytest

from settings.config import Config
from sluice.check import explain
from sluice.errors import SettingsError

_CONFIG = Config.model_validate(
    {
        "policies": {
            "p": [
                {
                    "use": "tool_rules",
                    "project": "/srv/app",
                    "deny": [{"name": "deletes", "does": {"effects": ["delete"]}}],
                    "ask": [{"name": "fetches", "does": {"effects": ["network"]}}],
                    "allow": [{"name": "shell", "tool": "Bash"}],
                }
            ]
        }
    }
)


def run(command: str | None = None, **options: Any) -> None:
    usual = {"tool": "Bash", "options": (), "file": None, "as_json": False}
    unset = dict.fromkeys(("arguments", "preset", "policy"))
    explain.run(command, **{**unset, **usual, **options})


def test_each_step_is_there() -> None:
    command = json.dumps({"command": "sudo rm -r /etc/x && curl https://x.example; eval $A"})
    steps = explain.explain(_CONFIG, "p", "Bash", command)
    assert steps["arguments"][0].startswith("command is text for a shell: sudo rm")
    assert steps["commands"][0] == "rm -r /etc/x, under sudo"
    assert [line.partition(":")[0] for line in steps["effects"]] == [
        "delete, system (wide)",
        "network, other",
    ]
    assert steps["not known"]
    assert [line.partition(":")[0] for line in steps["rules that match"]] == [
        "tool_rules, deny 'deletes'",
        "tool_rules, ask 'fetches'",
        "tool_rules, deny 'unsure'",
        "tool_rules, allow 'shell'",
    ]


def test_it_prints_lines_and_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    run("rm -rf ~/x\x1b[2J", preset="coding-agent", options=["project=/srv/app"])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "deny 'deletes': would delete all of ~/x" in " ".join(out.split())
    run(None, tool="write_file", arguments='{"path": "/etc/passwd", "content": "x"}', as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["steps"]["effects"][0].startswith("write, system: would write to /etc/passwd")
    assert shown["outcome"]["outcome"] == "block"


def test_what_is_long_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    run("; ".join(f"rm ~/{number}/{'x' * 300}" for number in range(80)), preset="coding-agent")
    assert len(capsys.readouterr().out) < 60_000


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": "ls", "arguments": "{}"},
        {"arguments": "["},
        {"arguments": '{"a": 1, "a": 2}'},
        {"command": "ls", "tool": ""},
        {"command": "ls", "policy": "nowhere"},
        {"command": "ls", "options": ["a=b"]},
        {"command": "ls", "preset": "coding-agent", "options": ["project"]},
    ],
)
def test_wrong_use_says_what_is_wrong(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        run(**options)


@pytest.mark.parametrize(
    "options", [{"preset": "nope"}, {"preset": "cloud:a=b"}, {"options": ["projct=x"]}]
)
def test_policies_that_cannot_be_loaded_are_mistakes(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        run("ls", **{"preset": "coding-agent", **options})
