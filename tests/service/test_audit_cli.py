"""`sluice audit` and `sluice keys` against a real PostgreSQL."""

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.keys import KeyStore
from db.write.insert import AuditInserter
from protocol.records import BlockRecord, EndRecord, EventRecord, Record
from scripts import screens
from sluice import VERSION, audit_cli, keys_cli
from sluice.tables import printable
from tests.support.checks.record import (
    NOW,
    call_id,
    call_record,
    fresh_database,
    judgement_record,
    release_record,
    rows,
    tool_call_record,
    whole_call,
)

ABSENT = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with fresh_database(database_url) as fresh:
        monkeypatch.setenv("SLUICE_DATABASE_URL", fresh)
        yield fresh


@pytest.fixture
def call(url: str) -> str:
    call = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(whole_call(call), {call: b"{}"})

    asyncio.run(insert())
    return call


def audit(*arguments: str) -> Any:
    return CliRunner().invoke(audit_cli.app, list(arguments), env={"COLUMNS": "220"})


def keys(*arguments: str) -> Any:
    return CliRunner().invoke(keys_cli.app, list(arguments), env={"COLUMNS": "220"})


@pytest.mark.parametrize("command", ["calls", "tool-calls", "judge-blocks"])
def test_lists_are_tables_for_people_and_json_for_programs(call: str, command: str) -> None:
    told = json.loads(audit(command, "--json", "--session", "s-1", "--limit", "5").stdout)
    assert (told["items"][0]["call_id"], told["next_cursor"]) == (call, None)
    assert json.loads(audit(command, "--json", "--session", "other").stdout)["items"] == []
    shown = audit(command)
    assert shown.exit_code == 0
    assert call[:8] in shown.stdout


def on_a_terminal(*arguments: str, columns: int = 80, **env: str) -> Any:
    env |= {"_SLUICE_TERMINAL": "1", "NO_COLOR": "1", "COLUMNS": str(columns), "TERM": "xterm"}
    return CliRunner().invoke(audit_cli.app, list(arguments), env=env)


def lines_of(told: Any) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", told.stdout).splitlines()


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_shows_what_an_auditor_asks_first(call: str, columns: int) -> None:
    lines = lines_of(on_a_terminal("tool-calls", columns=columns))
    assert max(map(len, lines)) <= columns
    for word in (call[:13], "dev", "bash", "block", "dang", "rm -rf /tmp/build"):
        assert word in lines[2], (word, lines)
    assert ("session" in lines[0].split()) == (columns == 140)
    assert "tool_judge" in lines[2] or columns == 80


def test_nothing_found_is_said(url: str) -> None:
    assert lines_of(on_a_terminal("calls", "--key", "nobody")) == ["nothing matches"]
    told = audit("calls", "--key", "nobody")
    assert told.exit_code == 0 and len(told.stdout.splitlines()) == 1 and "nothing matches" in told.stderr


def test_calls_are_chosen_by_state_and_time(call: str) -> None:
    def found(*arguments: str) -> list[str]:
        return [item["call_id"] for item in json.loads(audit("calls", "--json", *arguments).stdout)["items"]]

    assert found("--state", "ended", "--since", "1h") == found("--since", "yesterday") == [call]
    assert found("--state", "FAILED") == found("--until", "1h") == []
    assert "--state" in audit("calls", "--state", "gone").stderr
    told = audit("calls", "--since", "soon").stderr
    assert "--since" in told and "yesterday" in told


def test_tool_calls_are_counted(call: str) -> None:
    told = json.loads(audit("counts", "--json", "--by", "key,verdict").stdout)
    assert told["items"] == [{"key": "dev", "verdict": "block", "tool_calls": 1, "calls": 1}]
    assert audit("counts").stdout.splitlines()[0].split("\t") == ["day", "key", "verdict", "tool_calls", "calls"]
    assert lines_of(on_a_terminal("counts", "--by", "name"))[1].split() == ["bash", "1", "1"]
    assert "--by" in audit("counts", "--by", "colour").stderr


def test_the_beginning_of_a_call_id_is_enough(call: str, url: str) -> None:
    for command in (("show",), ("calls", "--call-id"), ("export", "--call-id")):
        assert call in audit(*command, call[:13], "--json" if command[0] != "export" else "--session=s-1").stdout
    assert "too short" in audit("show", call[:7]).stderr
    told = audit("show", "ffffffff-ffff")
    assert told.exit_code == 1 and "no call on record begins with" in told.stderr
    other = call[:-1] + ("0" if call[-1] != "0" else "1")

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([call_record(other)], {})

    asyncio.run(insert())
    told = audit("show", call[:35])
    assert told.exit_code == 2 and call in told.stderr and other in told.stderr


def test_the_next_page_is_told(call: str, url: str) -> None:
    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([call_record(call_id())], {})

    asyncio.run(insert())
    first = audit("calls", "--limit", "1")
    assert "more: --cursor" in first.stderr
    cursor = json.loads(audit("calls", "--limit", "1", "--json").stdout)["next_cursor"]
    assert json.loads(audit("calls", "--limit", "1", "--json", "--cursor", cursor).stdout)["next_cursor"] is None


def test_show_tells_one_call(call: str) -> None:
    told = json.loads(audit("show", call, "--chunks", "--json").stdout)
    assert (told["state"], [c["seq"] for c in told["chunk_items"]]) == ("ENDED", [1, 2, 3])
    shown = audit("show", call, "--chunks").stdout
    for word in ("bash", "rm -rf", "demo-judge", "takeover", "ENDED"):
        assert word in shown
    assert "takeover" in audit("show", call, "--raw").stdout


ASKED = {
    "model": "gpt-x",
    "stream": True,
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "You look after a server."},
        {"role": "user", "content": "list the files"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a.txt\n\x1b[2Jb.txt"},
        {"role": "user", "content": "now delete them " + "all " * 2000 + "at once"},
    ],
}
GOT = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Let me do "}, "finish_reason": None}], "id": "x", "model": "m"},
    {"choices": [{"index": 0, "delta": {"content": "that.\n\nNot allowed."}, "finish_reason": "stop"}], "id": "x", "model": "m"},
]


@pytest.mark.parametrize("columns", [80, 140])
def test_show_tells_a_call_as_a_conversation(url: str, columns: int) -> None:
    call = call_id()
    payload = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in GOT) + b": keepalive\n\ndata: [DONE]\n\n"

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            records: list[Record] = [call_record(call), tool_call_record(call), release_record(call, payload, number=0, seq=1)]
            assert not await inserter.insert(records, {call: json.dumps(ASKED).encode()})

    asyncio.run(insert())
    told = on_a_terminal("show", call[:13], columns=columns)
    lines = lines_of(told)
    assert max(map(len, lines)) <= columns
    spoken = [(line[:11].strip(), line[13:]) for line in lines]
    for one in (
        ("system", "You look after a server."),
        ("user", "list the files"),
        ("tool call", 'bash {"command": "ls"}'),
        ("tool result", "a.txt"),
    ):
        assert one in spoken, (one, lines)
    said = " ".join(told.stdout.split())
    assert "assistant Let me do that. Not allowed. end" in said and "block: by tool_judge, dangerous command" in said
    assert "\\x1b[2Jb.txt" in told.stdout and "--full shows all" in said and "at once" not in said
    assert said.index("what the client sent") < said.index("what the client got") < said.index("what was decided")
    assert "at once" in on_a_terminal("show", call, "--full").stdout


def test_show_tells_why_text_is_not_whole_and_who_replaced_it(url: str) -> None:
    cut, replaced = call_id(), call_id()
    insert_all(
        url, call_record(cut), BlockRecord(call_id=cut, block=0, at=NOW, kind="text", verdict="withheld", reason="unfinished", policy=""),
        call_record(replaced), BlockRecord(call_id=replaced, block=0, at=NOW, kind="text", verdict="replace", reason="", policy=""),
    )  # fmt: skip
    for call, said in ((cut, "its end never came; what came before it was sent"), (replaced, "replace: by the series default")):
        shown = audit("show", call).stdout
        assert shown.index("what the client got") < shown.index("what was decided") < shown.index(said), shown


def test_show_tells_what_a_judge_said_against_which_threshold_and_when_it_did_not(url: str) -> None:
    call = call_id()
    away = judgement_record(call, step=1, model="absent", probability=None, explanation="", error="judge_unavailable")
    insert_all(url, call_record(call), tool_call_record(call), judgement_record(call), away)
    lines = audit("show", call).stdout.splitlines()
    assert "judge        demo-judge 0.90 of 0.60: deletes files" in lines and "judge        absent: no answer: judge_unavailable" in lines


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_show_tells_an_error_in_words(url: str, dialect: str, stream: bool) -> None:
    call = call_id()
    body = {"error": {"type": "api_error", "message": "the upstream failed"}, "type": "error"}
    end = EndRecord(call_id=call, at=NOW, state="FAILED", reason="api_error", status=500, relayed=1)
    insert_all(
        url, call_record(call, dialect=dialect, stream=stream), release_record(call, json.dumps(body).encode(), number=0, seq=0), end
    )
    assert "error        500 api_error: the upstream failed" in audit("show", call).stdout.splitlines()


def test_json_of_raw_rows_breaks_between_values(url: str) -> None:
    call = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([call_record(call)], {call: json.dumps(ASKED, separators=(",", ":")).encode()})

    asyncio.run(insert())
    shown = " ".join(on_a_terminal("show", call, "--raw").stdout.split())
    for word in ('"messages":', '"parameters":', '"function":', "tool_call_id"):
        assert word in shown


def test_days_are_those_of_the_readers_time_zone(url: str) -> None:
    at = int(datetime.now(UTC).replace(hour=20, minute=0).timestamp() * 1000) - 86_400_000
    call = call_id(at)
    insert_all(url, call_record(call), tool_call_record(call))
    day = datetime.fromtimestamp(at / 1000, UTC).date()
    heading, line = lines_of(on_a_terminal("counts", "--by", "day", TZ="Asia/Kolkata"))
    assert heading.startswith("day (Asia/Kolkata)") and line.startswith(str(day + timedelta(days=1)))
    assert lines_of(on_a_terminal("counts", "--by", "day", TZ="Nowhere/City"))[0].startswith("day (UTC)")
    assert audit("counts", "--by", "day").stdout.splitlines()[1].startswith(str(day))
    assert "nothing matches in the 7 days before 10d" in on_a_terminal("counts", "--until", "10d").stdout


def test_beginnings_are_taken_where_only_a_tool_call_is_on_record_and_of_the_ids_of_keys(url: str) -> None:
    lost, ours, theirs = call_id(), call_id(), call_id()
    insert_all(url, tool_call_record(lost), call_record(ours, key_id="0123456789abcdef"), call_record(theirs, key_id="0123ffffffffffff"))
    assert lost in audit("show", lost[:23]).stdout
    assert [item["call_id"] for item in json.loads(audit("calls", "--json", "--key-id", "01234").stdout)["items"]] == [ours]
    told = audit("calls", "--key-id", "0123")
    assert told.exit_code == 2 and "0123456789abcdef, 0123ffffffffffff" in told.stderr
    assert json.loads(audit("calls", "--json", "--key-id", "beef").stdout)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(("calls", "--state", "endet"), "ENDED"), (("tool-calls", "--verdict", "blok"), "block"), (("counts", "--by", "dya"), "day")],
)
def test_values_that_are_misspelt_are_answered_with_what_may_be_meant(url: str, arguments: tuple[str, ...], meant: str) -> None:
    told = audit(*arguments)
    assert told.exit_code == 2 and f"did you mean '{meant}'" in told.stderr


def test_verdicts_are_taken_in_any_case(call: str) -> None:
    assert len(json.loads(audit("tool-calls", "--json", "--verdict", "BLOCK").stdout)["items"]) == 1


def test_a_pipe_that_is_closed_early_is_no_failure(url: str) -> None:
    calls = [call_id(NOW - n) for n in range(2_000)]
    insert_all(url, *(record for call in calls for record in (call_record(call), tool_call_record(call, arguments=b"x" * 200))))
    command = [sys.executable, "-m", "sluice.cli", "audit", "tool-calls", "--limit", "1000"]
    env = os.environ | {"SLUICE_DATABASE_URL": url}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("decided_at")
        process.stdout.close()
        assert (process.stderr.read().replace("\n", "").partition("there is more")[0], process.wait(60)) == ("", 0)


def test_show_tells_what_the_client_of_a_refused_request_got(url: str) -> None:
    call = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            refusal = release_record(call, b'{"error": "this request is refused"}', number=0, seq=0)
            assert not await inserter.insert([call_record(call), refusal], {call: b"{}"})

    asyncio.run(insert())
    shown = audit("show", call, "--chunks").stdout
    assert "released before the first chunk" in shown and "this request is refused" in shown
    assert shown.index("released before") < shown.rindex("chunks")
    assert "this request is refused" in audit("show", call).stdout
    assert "this request is refused" not in audit("show", call, "--raw").stdout


def test_show_tells_what_went_wrong(url: str) -> None:
    call = call_id()
    records: list[Record] = [
        call_record(call),
        EndRecord(call_id=call, at=NOW, state="FAILED", reason="api_error", status=502, stop_reason="", input_tokens=None),
        EventRecord(call_id=call, kind="upstream_refused", number=1, at=NOW, detail="http://h:1: Connection \x1b[2J refused"),
        EventRecord(call_id=call, kind="another", number=2, at=NOW + 1, detail=""),
        EventRecord(call_id=call, kind="redacted", number=1, at=NOW + 2, detail="owner: asked by the user"),
    ]

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(records, {call: b"{}"})

    asyncio.run(insert())
    shown = audit("show", call).stdout.splitlines()
    at = shown.index("what went wrong")
    assert shown[at + 1 : at + 3] == ["nobody listens there (upstream_refused): http://h:1: Connection \\x1b[2J refused", "another"]
    # what was done to it later is no cause
    assert [line[:8] for line in shown if "asked by the user" in line] == ["redacted"] and shown[2].endswith("by owner: asked by the user")


def test_a_judge_that_did_not_answer_has_no_probability(url: str) -> None:
    call = call_id()
    records: list[Record] = [call_record(call), tool_call_record(call), judgement_record(call, probability=None, explanation="status 404")]

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(records, {call: b"{}"})

    asyncio.run(insert())
    assert "judge demo-judge: status 404" in " ".join(audit("show", call).stdout.split())


def test_export_goes_to_a_file_or_to_standard_output(call: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in audit("export").stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]) == ("call", {"type": "export_end", "calls": 1, "lines": 10})
    output = tmp_path / "record.jsonl"
    told = audit("export", "--output", str(output), "--json")
    assert json.loads(told.stdout) == {"path": str(output), "calls": 1, "lines": 10}
    assert [json.loads(line) for line in output.read_text().splitlines()] == lines
    assert "1 call in 11 lines" in audit("export", "--output", str(output), "--name", "bash").stderr
    assert list(tmp_path.iterdir()) == [output]
    assert audit("export", "--output", str(tmp_path / "none" / "x")).exit_code == 2


def test_export_shows_its_progress_on_a_terminal(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    told = audit("export")
    assert "exporting calls" in told.stderr
    assert "1/1" in told.stderr
    assert len(told.stdout.splitlines()) == 11


def test_a_failed_export_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_DATABASE_URL", ABSENT)
    assert audit("export", "--output", str(tmp_path / "x.jsonl")).exit_code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("A6", "J10")
def test_model_text_cannot_drive_the_terminal(call: str, url: str) -> None:
    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([tool_call_record(call_id(), name="\x1b[2Jx", arguments=b"\x00\x1b]0;owned\x07\xed\xa0\x80")], {})

    asyncio.run(insert())
    shown = audit("tool-calls").stdout
    assert "\\x1b[2Jx" in shown
    assert "\x1b" not in shown
    assert printable("a\u202eb\ud800\n\u00e9") == "a\\u202eb\\ud800\\n\u00e9"


def test_who_runs_a_call_is_told_where_it_is_not_the_client(call: str, url: str) -> None:
    assert "run by" not in on_a_terminal("tool-calls").stdout
    assert "run by" not in on_a_terminal("show", call, "--raw").stdout
    searched = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([call_record(searched), tool_call_record(searched, name="web_search", executor="provider")], {})

    asyncio.run(insert())
    for shown in (on_a_terminal("tool-calls").stdout, on_a_terminal("show", searched, "--raw").stdout):
        assert "run by" in shown
        assert "provider" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("calls", "--verdict", "maybe"), 2, "--verdict"),
        *[(("calls", "--limit", limit), 2, "--limit: must be a number from 1 to 1000") for limit in ("0", "5000", "x", "-1")],
        (("calls", "--order", "up"), 2, "--order: must be asc or desc"),
        (("calls", "--since", "1h", "--until", "2h"), 2, "--until: is not after `since`, so nothing can match"),
        (("counts", "--since", "1h", "--until", "2h"), 2, "--until: is not after `since`, so nothing can match"),
        (("tool-calls", "--cursor", "x"), 2, "--cursor"),
        (("export", "--since", "never"), 2, "--since"),
        (("show", "x"), 1, "not a call id"),
        (("show", call_id()), 1, "no call"),
    ],
)
def test_exit_codes_and_one_clear_sentence(url: str, arguments: tuple[str, ...], code: int, words: str) -> None:
    told = audit(*arguments)
    assert told.exit_code == code
    assert words in told.output
    assert "Traceback" not in told.output


def test_an_absent_database_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_DATABASE_URL", ABSENT)
    assert audit("calls").exit_code == 3
    told = keys("list", "--json")
    assert told.exit_code == 3
    assert json.loads(told.stdout)["error"]["code"] == "audit_unavailable"


def test_keys_are_made_listed_and_revoked(url: str) -> None:
    made = json.loads(keys("create", "--name", "ci", "--role", "auditor", "--role", "client", "--policy", "strict", "--json").stdout)
    assert (made["name"], made["roles"], made["policies"]) == ("ci", ["auditor", "client"], ["strict"])
    plain = keys("create", "--name", "dev")
    assert plain.stdout.startswith("sk-sluice-")
    listed = keys("list", "--json").stdout
    assert [(k["name"], k["roles"], k["revoked_at"]) for k in json.loads(listed)["items"]] == [
        ("ci", ["auditor", "client"], None),
        ("dev", ["client"], None),
    ]
    assert made["key"] not in listed
    assert keys("create", "--name", "ci").exit_code == 2
    assert keys("create", "--name", "x", "--role", "root").exit_code == 2
    assert keys("revoke", "dev").stdout == "revoked dev\n"
    assert keys("revoke", "dev", "--json").exit_code == 1
    assert "ci" in keys("list").stdout


def test_a_key_may_use_the_server_tools_it_was_made_with_and_no_others(url: str) -> None:
    two = ("--server-tool", "web_search", "--server-tool", "code_execution")
    made = json.loads(keys("create", "--name", "researcher", *two, "--json").stdout)
    assert made["server_tools"] == ["web_search", "code_execution"]
    keys("create", "--name", "plain")
    refused = keys("create", "--name", "x", "--server-tool", "everything")
    assert refused.exit_code == 2
    assert "--server-tool: 'everything' is no family of server tools; there are " in refused.stderr
    listed = {k["name"]: k["server_tools"] for k in json.loads(keys("list", "--json").stdout)["items"]}
    assert listed == {"researcher": ["web_search", "code_execution"], "plain": []}
    assert "web_search, code_execution" in keys("list").stdout

    async def load() -> dict[str, tuple[str, ...]]:
        store = KeyStore.open(url)
        try:
            return {key.name: key.server_tools for key in await store.load()}
        finally:
            await store.close()

    assert asyncio.run(load()) == {"researcher": ("web_search", "code_execution"), "plain": ()}


def sluice(*arguments: str, url: str = "", stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")} | {"NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "sluice.cli", *arguments]
    return subprocess.run(
        command, env=env | ({"SLUICE_DATABASE_URL": url} if url else {}), input=stdin or "", capture_output=True, text=True, timeout=60
    )  # fmt: skip


def test_redaction_is_done_only_where_somebody_said_yes(call: str, url: str) -> None:
    told = sluice("audit", "redact", call[:13], "--reason", "x", url=url)
    assert told.returncode == 2 and "--yes" in told.stderr and "--dry-run" in told.stderr and call in told.stderr
    told = sluice("audit", "redact", call, "--reason", "x", "--dry-run", "--json", url=url)
    would = json.loads(told.stdout)
    assert (told.returncode, would["call_id"], would["dry_run"]) == (0, call, True) and would["rows"] > 1
    assert "rm -rf" in sluice("audit", "show", call, "--json", url=url).stdout
    told = sluice("audit", "redact", call[:13], "--reason", "x", "--yes", "--json", url=url)
    assert json.loads(told.stdout) == would | {"dry_run": False}
    assert "rm -rf" not in sluice("audit", "show", call, "--json", url=url).stdout
    shown = sluice("audit", "show", call, url=url).stdout
    assert "it was redacted, or lost" in shown and "(redacted)" in shown and re.search(r"^redacted .* by \w+: x$", shown, re.MULTILINE)
    seals = rows(url, "SELECT count(*) FROM seals")
    again = sluice("audit", "redact", call, "--reason", "again", "--yes", url=url)
    assert again.returncode == 0 and "nothing to do" in again.stderr
    assert rows(url, "SELECT count(*) FROM seals") == seals and "again" not in sluice("audit", "show", call, url=url).stdout


def test_on_a_terminal_redaction_and_dropping_ask(call: str, url: str) -> None:
    answered = ask(url, b"n\n", "audit", "redact", call, "--reason", "x")
    assert "Go on?" in answered and "nothing was done" in answered and call in answered
    assert "with the key dev, tools: bash" in answered
    interrupted = ask(url, b"\x04", "audit", "redact", call, "--reason", "x")
    assert "nothing was done" in interrupted and "Aborted" not in interrupted
    assert "rm -rf" in sluice("audit", "show", call, "--json", url=url).stdout
    assert "redacted" in ask(url, b"y\n", "audit", "redact", call, "--reason", "x")
    assert "rm -rf" not in sluice("audit", "show", call, "--json", url=url).stdout
    for before in ("2020-01-01", "1960-01-01", "30d", "yesterday"):
        told = sluice("audit", "drop", "--before", before, "--reason", "x", "--yes", url=url)
        assert told.returncode == 0 and "nothing to do: no call on record began before" in told.stderr
    assert "--before" in sluice("audit", "drop", "--before", "never", "--reason", "x", url=url).stderr
    assert (
        json.loads(sluice("audit", "drop", "--before", "2020-01-01", "--reason", "x", "--dry-run", "--json", url=url).stdout)["calls"] == 0
    )


def ask(url: str, answer: bytes, *arguments: str) -> str:
    """Run a command with a terminal as its standard input, and give it an answer; returns what it says."""
    here, there = pty.openpty()
    try:
        os.write(here, answer)
        env = os.environ | {"SLUICE_DATABASE_URL": url, "NO_COLOR": "1", "TERM": "dumb"}
        command = [sys.executable, "-m", "sluice.cli", *arguments]
        done = subprocess.run(command, env=env, stdin=there, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr
    finally:
        os.close(here)
        os.close(there)


@pytest.mark.parametrize("command", ["calls", "tool-calls"])
def test_follow_shows_what_comes(call: str, url: str, command: str) -> None:
    env = os.environ | {"SLUICE_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    later, ongoing = call_id(), call_id()
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice.cli", "audit", command, "--follow", "--json"], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["call_id"] == call

        async def insert() -> None:
            async with AuditInserter(url) as inserter:
                assert not await inserter.insert([call_record(ongoing), *whole_call(later)], {})

        asyncio.run(insert())
        assert json.loads(process.stdout.readline())["call_id"] == later
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
        assert (rest, process.returncode) == ("", 0)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def following(url: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `sluice audit ... --follow`, and ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **env: str) -> subprocess.Popen[str]:
        environment = os.environ | {"SLUICE_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"} | env
        command = [sys.executable, "-m", "sluice.cli", "audit", *arguments, "--follow"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def insert_all(url: str, *records: Record) -> None:
    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not (await inserter.insert(list(records), {})).refused

    asyncio.run(insert())


def test_follow_keeps_what_it_shows_under_its_headings(url: str, following: Callable[..., subprocess.Popen[str]]) -> None:
    process = following("tool-calls", _SLUICE_TERMINAL="1", COLUMNS="100", TERM="xterm", NO_COLOR="1")
    assert process.stdout is not None and process.stderr is not None
    assert "waiting for tool calls" in process.stderr.readline()
    one, other = call_id(), call_id()
    insert_all(url, call_record(one), tool_call_record(one))
    heading, _, line = (process.stdout.readline() for _ in range(3))
    assert line.index("block") == heading.index("verdict") and one[:13] in line
    insert_all(url, call_record(other), tool_call_record(other, executor="provider", name="web_search"))
    heading, line = (process.stdout.readline() for _ in range(2))
    assert "run by" in heading and line.index("block") == heading.index("verdict") and line.index("provider") == heading.index("run by")
    # both began in one millisecond
    assert other.startswith(line.split()[1]) and not one.startswith(line.split()[1])


def test_follow_takes_a_limit_and_refuses_what_does_not_go_with_it(url: str, following: Callable[..., subprocess.Popen[str]]) -> None:
    old = [call_id(NOW - hours * 3_600_000) for hours in (5, 4, 3)]
    insert_all(url, *(record for call in old for record in (call_record(call), tool_call_record(call))))
    process = following("tool-calls", "--limit", "2", "--since", "1d", "--json")
    assert process.stdout is not None
    assert [json.loads(process.stdout.readline())["call_id"] for _ in range(2)] == old[1:]
    for option in (("--until", "1h"), ("--cursor", "x"), ("--order", "asc")):
        told = audit("calls", "--follow", *option)
        assert told.exit_code == 2 and f"{option[0]}: does not go with --follow" in told.stderr


def test_follow_goes_on_when_the_database_comes_back(url: str, following: Callable[..., subprocess.Popen[str]]) -> None:
    process = following("calls", "--json")
    assert process.stdout is not None and process.stderr is not None
    assert "waiting for calls" in process.stderr.readline()
    rows(url, "ALTER TABLE calls RENAME TO calls_away")
    assert "trying again" in process.stderr.readline()
    rows(url, "ALTER TABLE calls_away RENAME TO calls")
    later = call_id()
    insert_all(url, *whole_call(later))
    assert json.loads(process.stdout.readline())["call_id"] == later


def test_a_table_goes_into_a_pipe_as_values_whatever_asks_for_colours(call: str) -> None:
    told = CliRunner().invoke(audit_cli.app, ["calls"], env={"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"})
    assert told.stdout.splitlines()[0].split("\t")[:2] == ["created_at", "call_id"]


def test_the_command_line_helps() -> None:
    for asked in ("--version", "-V", "version"):
        told = sluice(asked)
        assert (told.returncode, told.stdout) == (0, f"sluice {VERSION}\n")
    for arguments in (("-h",), ("audit", "-h"), ("audit", "calls", "-h"), ("keys", "-h"), ("worker", "-h"), ("worker", "policy", "-h")):
        told = sluice(*arguments)
        assert told.returncode == 0 and "Usage" in told.stdout, told.stderr
    assert "8080" in (up := sluice("up", "-h").stdout) and ".sluice" in up
    assert "local time" in " ".join(sluice("audit", "calls", "-h").stdout.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("audti",), "audit"), (("keyz",), "keys"), (("migrat",), "migrate"), (("audit", "tool-call"), "tool-calls"),
        (("keys", "creat"), "create"), (("versoin",), "version"), (("worker", "polic"), "policy"),
        (("audit", "calls", "--stat", "x"), "--state"),
        (("--versio",), "--version"), (("audit", "redakt"), "redact"),
    ],
)  # fmt: skip
def test_what_is_misspelt_is_answered_with_what_may_be_meant(arguments: tuple[str, ...], meant: str) -> None:
    told = sluice(*arguments)
    assert told.returncode == 2 and re.search(rf"(Did you mean|Possible options).*{meant}", " ".join(told.stderr.split())), told.stderr


def test_the_page_of_screens_is_what_the_commands_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        made = screens.make_page(tmp_path)
    time.tzset()
    assert made == screens.PAGE.read_text(), "make it anew: python -m scripts.screens"
    width = 0
    for line in made.splitlines():
        width = int(line.split()[0]) if line.endswith(" columns:") else width
        assert not width or len(line) <= width or line.startswith(("$", "#")), line


def test_shells_can_complete() -> None:
    for words, completed in (
        ("audit to", ["tool-calls"]), ("audit calls --state E", ["ENDED"]), ("audit tool-calls --verdict b", ["block"]),
    ):  # fmt: skip
        env = os.environ | {"_SLUICE_COMPLETE": "complete_bash", "COMP_WORDS": f"sluice {words}", "COMP_CWORD": str(len(words.split()))}
        told = subprocess.run([sys.executable, "-m", "sluice.cli"], env=env, capture_output=True, text=True, timeout=60)
        assert told.stdout.split() == completed, told.stderr
