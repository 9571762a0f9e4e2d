"""`sluice check` and the start of single processes, run for real: what is printed, and the exit
code."""

import json
from pathlib import Path

import pytest

from protocol.dialects.table import DIALECTS
from tests.support.clients.commands import own_environment, run_command
from tests.support.json_values import Json

GOOD = """\
upstreams:
  mine: {dialect: openai, base_url: "http://127.0.0.1:1/v1"}
models:
  - {match: "gpt-*", upstream: mine}
policies:
  default:
    - {use: tool_rules, deny: [{tool: bash, argument_matches: "rm -rf"}]}
    - {use: tool_judge, model: gpt-judge}
  noop: [{use: noop}]
"""
BASH = ("--try-call", "bash", '{"command": "rm -rf /"}')


def sluice(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it wrote to standard output and standard
    error."""
    done = run_command(*arguments, env=own_environment() | environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def good(tmp_path: Path) -> str:
    """A configuration with nothing wrong in it."""
    (tmp_path / "sluice.yaml").write_text(GOOD)
    return str(tmp_path / "sluice.yaml")


@pytest.mark.slow
def test_a_good_file_is_summed_up(good: str) -> None:
    summary = (
        f"{good}: ok; 1 upstream, 1 route, 0 keys; policies: default (tool_rules, tool_judge), noop"
        " (noop)\n"
    )
    assert sluice("check", good) == (0, summary, "")
    assert sluice("check", SLUICE_CONFIG=good) == (0, summary, "")


def test_mistakes_are_a_line_each_and_exit_1(good: str) -> None:
    Path(good).write_text(
        GOOD.replace("gpt-judge", "claude").replace("argument_matches", "argument_match")
        + "limit: {}\n"
    )
    code, out, _ = sluice("check", good)
    assert code == 1 and out.splitlines() == [
        (
            f"error: {good} line 7: policies.default.0.deny.0.argument_match: is not known; did you"
            " mean 'argument_matches'?"
        ),
        f"error: {good} line 10: limit: is not known; did you mean 'limits'?",
        f"{good}: 2 errors; it would not start",
    ]


def test_warnings_are_shown_and_exit_0(good: str) -> None:
    Path(good).write_text(GOOD.replace("gpt-judge", "claude"))
    code, out, _ = sluice("check", good, "--json")
    found: Json = json.loads(out)
    assert code == 0 and found["ok"] and found["file"] == good
    [warning] = found["findings"]
    assert (warning["level"], warning["line"], warning["place"]) == (
        "warning",
        8,
        "policies.default.1.model",
    )


def test_what_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    code, out, _ = sluice("check", str(tmp_path / "none.yaml"))
    assert code == 1 and out.startswith(
        f"error: {tmp_path}/none.yaml: cannot be read: No such file or directory\n"
    )
    (tmp_path / "open.yaml").write_text("a: [\n")
    code, out, _ = sluice("check", str(tmp_path / "open.yaml"))
    assert code == 1 and out.startswith(f"error: {tmp_path}/open.yaml line 2: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--port", "abc"), "'--port': must be a whole number"),
        (("up", "--port", "70000"), "'--port': must be at most 65535"),
        (("worker", "judge", "--concurrency", "0"), "'--concurrency': must be at least 1"),
    ],
)
def test_a_wrong_option_is_said_in_plain_words(arguments: tuple[str, ...], said: str) -> None:
    code, _, err = sluice(*arguments)
    assert code == 2 and said in err and "nput should" not in err and "Value error" not in err


def test_help_names_the_variable_of_the_file() -> None:
    code, out, _ = sluice("check", "--help")
    assert code == 0 and "SLUICE_CONFIG" in out and "[[" not in out


def test_a_trial_has_its_fields_as_json(good: str) -> None:
    tried = json.loads(sluice("check", good, *BASH, "--json")[1])["tried"]
    assert (tried["outcome"], tried["policy"], tried["arguments"]) == ("block", "tool_rules", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--try-call", "bash", "ls"),
            "a trial takes a tool's name and its arguments, a JSON object such as",
        ),
        (
            ("--try-call", "bash", "[1]"),
            "a trial takes a tool's name and its arguments, a JSON object such as",
        ),
        (
            ("--try-text", "x", "--policy", "defualt"),
            "--policy: there is no policy 'defualt' (there are default, noop); did you mean",
        ),
        (
            ("--policy", "defualt"),
            "--policy: there is no policy 'defualt' (there are default, noop); did you mean",
        ),
        (("--try-call", "", "{}"), "the tool's name is empty"),
        (
            (*BASH, "--try-text", "x"),
            "--try-call and --try-text are two trials: give one at a time",
        ),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(
    good: str, arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = sluice("check", good, *arguments)
    assert code == 2 and err.startswith(f"sluice: {said}") and err.count("\n") == 1


def test_what_a_policy_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from policy.base import ALLOW, Policy\nprint('loaded')\n\n\nclass Mine(Policy):\n    def"
        " on_tool_call(self, call):\n        print('asked')\n        return ALLOW\n"
    )
    (tmp_path / "sluice.yaml").write_text("policies: {default: [{use: 'mine:Mine'}]}\n")
    code, out, err = sluice("check", str(tmp_path / "sluice.yaml"), *BASH, "--json")
    assert (
        (code, json.loads(out)["tried"]["outcome"]) == (0, "allow")
        and "loaded" in err
        and "asked" in err
    )


def test_nothing_of_a_mistake_drives_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise RuntimeError('\\x1b[31mred')\n")
    (tmp_path / "sluice.yaml").write_text("policies: {default: [{use: 'mine:Mine'}]}\n")
    code, out, err = sluice("check", str(tmp_path / "sluice.yaml"))
    assert code == 1 and "\\x1b[31mred" in out and "\x1b" not in out + err


def test_nothing_of_a_trial_drives_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "sluice.yaml").write_text(
        'policies: {default: [{use: tool_rules, deny: [{message: "\\e[31mno"}]}]}\n'
    )
    code, out, _ = sluice("check", str(tmp_path / "sluice.yaml"), "--try-call", "x", "{}")
    assert code == 0 and "\x1b" not in out and "\\x1b[31mno" in out


@pytest.mark.parametrize(
    "role", [("gateway",), ("worker", "audit"), ("worker", "policy"), ("worker", "judge")]
)
def test_every_process_checks_the_file_before_it_does_anything(
    role: tuple[str, ...], good: str
) -> None:
    Path(good).write_text(GOOD.replace("dialect: openai", "dialect: openia") + "limit: {}\n")
    code, _, err = sluice(*role, SLUICE_CONFIG=good)
    assert code == 2 and err.splitlines() == [
        f"sluice: {good}: 2 mistakes",
        (
            f"  line 2: upstreams.mine.dialect: must be {' or '.join(map(repr, DIALECTS))}; did you"
            " mean 'openai'?"
        ),
        "  line 10: limit: is not known; did you mean 'limits'?",
    ]


@pytest.mark.parametrize("role", [("gateway",), ("worker", "judge")])
def test_who_sends_requests_does_not_start_without_a_key_file(
    role: tuple[str, ...], good: str, redis_url: str, database_url: str
) -> None:
    Path(good).write_text(GOOD.replace('/v1"}', '/v1", api_key_file: /nowhere/key}'))
    code, _, err = sluice(
        *role, SLUICE_CONFIG=good, SLUICE_REDIS_URL=redis_url, SLUICE_DATABASE_URL=database_url
    )
    said = (
        f"sluice: {good}: upstreams.mine.api_key_file: /nowhere/key cannot be read here: No such"
        " file or directory"
    )
    assert (code, err.splitlines()[-1]) == (2, said)
