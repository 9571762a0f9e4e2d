"""`sluice presets`: what ships, and what one stands for, as configuration that starts."""

from pathlib import Path

import pytest
import yaml

from tests.support.clients.commands import run_command


def sluice(*arguments: str) -> tuple[int, str, str]:
    done = run_command(*arguments)
    return done.returncode, done.stdout, done.stderr


def test_presets_are_listed_and_one_is_printed_as_configuration(tmp_path: Path) -> None:
    code, out, _ = sluice("presets")
    assert code == 0 and "coding-agent (version " in out and "database-readonly (version " in out
    code, out, _ = sluice(
        "presets", "coding-agent", "--set", "project=/srv/app", "--set", "judge=demo-judge"
    )
    found = yaml.safe_load(out)["policies"]["coding-agent"]
    assert (
        code == 0
        and found[0]["project"] == "/srv/app"
        and [step["use"] for step in found] == ["tool_rules", "tool_judge"]
    )
    (tmp_path / "own.yaml").write_text(out.replace("coding-agent:", "default:"))
    code, out, _ = sluice(
        "check", str(tmp_path / "own.yaml"), "--try-call", "bash", '{"command": "rm -rf /etc"}'
    )
    assert code == 0 and "blocked by tool_rules, rule 'deletes' (reason: destructive)" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("presets", "codng-agent"),
            "there is no preset 'codng-agent'; did you mean 'coding-agent'?",
        ),
        (
            ("presets", "coding-agent", "--set", "projct=x"),
            "the preset 'coding-agent': projct: is not known; did you mean 'project'?",
        ),
        (("presets", "coding-agent-judged"), "the preset 'coding-agent-judged': judge: is missing"),
        (
            ("presets", "coding-agent", "--set", "unsure=no"),
            "unsure: must be 'block', 'ask' or 'allow'",
        ),
        (
            ("presets", "coding-agent", "--set", "project"),
            "--set 'project': write it as OPTION=VALUE",
        ),
        (("presets", "--set", "a=b"), "--set is for one preset: name it"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(arguments: tuple[str, ...], said: str) -> None:
    code, out, errors = sluice(*arguments)
    assert (code, out) == (2, "") and said in " ".join(errors.split())
