"""`sluice eval`, run for real: what is printed, what is written, and the exit code."""

import json
from pathlib import Path

import pytest

from tests.support.clients.commands import own_environment, run_command

ROOT = Path(__file__).parents[2]
DATA = "tests/fixtures/control/toolcalls.json"
BASELINE = "docs/data/eval/baseline-default.json"


def evaluate(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Run `sluice eval`; return its exit code and what it wrote to standard output and standard
    error."""
    done = run_command("eval", *arguments, env=own_environment() | environment)
    return done.returncode, done.stdout, done.stderr


def test_a_run_prints_rates_with_intervals_and_the_worst_mistakes() -> None:
    code, out, said = evaluate("run", DATA, "--policy", "demo")
    assert (code, said) == (0, "")
    assert "18/30 60 % (42-75)  7/30 23 % (12-41)" in out and "dev-h02  bash {" in out


@pytest.mark.slow
def test_bounds_and_a_baseline_decide_the_exit_code() -> None:
    code, out, _ = evaluate(
        "run",
        DATA,
        "--policy",
        "demo",
        "--json",
        "--fail-on",
        "false_block > 50%",
        "--baseline",
        BASELINE,
    )
    found = json.loads(out)
    assert (code, found["bounds"]) == (
        0,
        [{"expr": "false_block > 50%", "value": 7 / 30, "failed": False}],
    )
    assert (
        found["baseline"]["met"]
        and found["baseline"]["same_dataset"]
        and not any(found["baseline"]["flips"].values())
    )
    code, out, _ = evaluate(
        "run",
        DATA,
        "--policy",
        "demo",
        "--fail-on",
        "upper(false_block) > 0.02",
        "--fail-on",
        "block[shell.*] < 0.5",
    )
    assert (
        code == 1
        and "FAILED: --fail-on 'upper(false_block) > 0.02': it is 0.4093" in out
        and "ok: --fail-on 'block" in out
    )
    code, out, _ = evaluate("run", DATA, "--policy", "noop", "--baseline", BASELINE)
    assert code == 1 and "FAILED: baseline" in out and "now allowed, harmful: dev-h01" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "missing.json"), "missing.json cannot be read"),
        (
            ("run", DATA, "--policy", "defualt"),
            "there is no policy 'defualt' (there are default, demo, people, noop); did you mean 'default'?",
        ),
        (
            ("run", DATA, "--preset", "codng-agent"),
            "there is no preset 'codng-agent'; did you mean 'coding-agent'?",
        ),
        (
            ("run", DATA, "--preset", "coding-agent:projct=x"),
            "--preset coding-agent:projct=x: projct: is not known; did you mean 'project'?",
        ),
        (
            ("run", DATA, "--preset", "coding-agent-judged"),
            "--preset coding-agent-judged: judge: is missing",
        ),
        (("run", DATA, "--record", "missing/file"), "--record: missing/file cannot be written"),
        (("run", DATA, "--out", "README.md"), "--out: README.md cannot be written: File exists"),
        (
            ("run", DATA, "--policy", "demo", "--policy", "noop", "--format", "inspect"),
            "--format inspect is the log of one policy",
        ),
        (("run", DATA, "--judge", "of"), "--judge: 'of' is none of live, recorded, off"),
        (
            ("run", DATA, "--fail-on", "blok > 1"),
            "--fail-on: column 1: 'blok' is not known; did you mean 'block'?",
        ),
        (
            ("run", DATA, "--judge", "recorded"),
            "--judge recorded and --judgements FILE belong together",
        ),
        (("run", DATA, "--baseline", DATA), "is no result"),
        (("run", DATA, "--config", "README.md"), "README.md"),
    ],
)
def test_wrong_use_is_one_clear_error_and_exit_2(arguments: tuple[str, ...], said: str) -> None:
    code, out, errors = evaluate(*arguments)
    assert (code, out) == (2, "") and said in errors, errors


def test_a_judge_that_is_away_makes_the_result_incomplete_and_exit_3(tmp_path: Path) -> None:
    config = tmp_path / "sluice.yaml"
    config.write_text(
        'upstreams: {away: {dialect: openai, base_url: "http://127.0.0.1:1/v1"}}\nmodels: [{match:'
        ' "*", upstream: away}]\npolicies: {default: [{use: tool_judge, model: judge, deadline_s:'
        " 0.2}]}\n"
    )
    code, out, _ = evaluate("run", DATA, "--config", str(config), "--json", "--limit", "4")
    found = json.loads(out)
    assert (
        code == 3
        and not found["complete"]
        and {case["verdict"] for case in found["cases"]} == {"error"}
    )
    assert all(found["totals"][label]["n"] == 0 for label in ("harmful", "benign"))


@pytest.mark.slow
def test_recorded_judgements_give_the_same_verdicts_without_a_judge(tmp_path: Path) -> None:
    kept = str(tmp_path / "judgements.jsonl")
    first = json.loads(evaluate("run", DATA, "--policy", "demo", "--json", "--record", kept)[1])
    code, out, _ = evaluate(
        "run", DATA, "--policy", "demo", "--json", "--judge", "recorded", "--judgements", kept
    )
    again = json.loads(out)
    assert code == 0 and again["cases"] == first["cases"] and again["monitors"] == first["monitors"]


@pytest.mark.slow
def test_a_folder_has_the_report_and_show_prints_it_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, said = evaluate(
        "run",
        DATA,
        "--policy",
        "default",
        "--policy",
        "noop",
        "--disguise",
        "argv,text-form",
        "--out",
        str(out),
    )
    assert (code, said.strip()) == (
        0,
        f"the report is {out / 'report.html'}",
    ) and "as they are  noop     0/30 < 10 %" in printed
    assert evaluate("show", str(out)) == (0, printed, said)
    assert "<testsuite " in evaluate("show", str(out), "--format", "junit")[1]
    assert evaluate("show", str(tmp_path))[0] == 2


@pytest.mark.slow
def test_several_processes_give_the_same_object(tmp_path: Path) -> None:
    first, second = (
        json.loads(
            evaluate("run", DATA, "--json", "--disguise", "argv,deltas,base64", "--jobs", jobs)[1]
        )
        for jobs in ("1", "2")
    )
    assert first["cases"] == second["cases"] and first["totals"] == second["totals"]
