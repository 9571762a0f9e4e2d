"""`sluice audit` and `sluice keys` against a real PostgreSQL."""

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.keys import KeyStore
from db.write.insert import AuditInserter
from protocol.records import EndRecord, EventRecord, Record
from sluice import keys_cli
from sluice.audit import audit_cli
from sluice.tables import printable
from tests.support.checks.record import (
    call_id,
    call_record,
    now_ms,
    release_record,
    tool_call_record,
)
from tests.support.clients.commands import audit, insert_all
from tests.support.json_values import as_json

ABSENT = "postgresql://nobody@127.0.0.1:1/none"


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


def test_nothing_found_is_said(url: str) -> None:
    assert lines_of(on_a_terminal("calls", "--key", "nobody")) == ["nothing matches"]
    told = audit("calls", "--key", "nobody")
    assert (
        told.exit_code == 0
        and len(told.stdout.splitlines()) == 1
        and "nothing matches" in told.stderr
    )


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
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "a.txt\n\x1b[2Jb.txt"},
        {"role": "user", "content": "now delete them " + "all " * 2000 + "at once"},
    ],
}
GOT = [
    {
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": "Let me do "},
                "finish_reason": None,
            }
        ],
        "id": "x",
        "model": "m",
    },
    {
        "choices": [
            {"index": 0, "delta": {"content": "that.\n\nNot allowed."}, "finish_reason": "stop"}
        ],
        "id": "x",
        "model": "m",
    },
]


@pytest.mark.parametrize("columns", [80, 140])
def test_show_tells_a_call_as_a_conversation(url: str, columns: int) -> None:
    call = call_id()
    payload = (
        b"".join(b"data: " + as_json(one) + b"\n\n" for one in GOT)
        + b": keepalive\n\ndata: [DONE]\n\n"
    )

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            records: list[Record] = [
                call_record(call),
                tool_call_record(call),
                release_record(call, payload, number=0, seq=1),
            ]
            assert not await inserter.insert(records, {call: as_json(ASKED)})

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
    assert (
        "assistant Let me do that. Not allowed. end" in said
        and "block: by tool_judge, dangerous command" in said
    )
    assert "\\x1b[2Jb.txt" in told.stdout and "--full shows all" in said and "at once" not in said
    assert (
        said.index("what the client sent")
        < said.index("what the client got")
        < said.index("what was decided")
    )
    assert "at once" in on_a_terminal("show", call, "--full").stdout


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_show_tells_an_error_in_words(url: str, dialect: str, stream: bool) -> None:
    call = call_id()
    body = {"error": {"type": "api_error", "message": "the upstream failed"}, "type": "error"}
    end = EndRecord(
        call_id=call, at=now_ms(), state="FAILED", reason="api_error", status=500, relayed=1
    )
    insert_all(
        url,
        call_record(call, dialect=dialect, stream=stream),
        release_record(call, as_json(body), number=0, seq=0),
        end,
    )
    assert (
        "error        500 api_error: the upstream failed" in audit("show", call).stdout.splitlines()
    )


def test_days_are_those_of_the_readers_time_zone(url: str) -> None:
    at = int(datetime.now(UTC).replace(hour=20, minute=0).timestamp() * 1000) - 86_400_000
    call = call_id(at)
    insert_all(url, call_record(call), tool_call_record(call))
    day = datetime.fromtimestamp(at / 1000, UTC).date()
    heading, line = lines_of(on_a_terminal("counts", "--by", "day", TZ="Asia/Kolkata"))
    assert heading.startswith("day (Asia/Kolkata)") and line.startswith(
        str(day + timedelta(days=1))
    )
    assert lines_of(on_a_terminal("counts", "--by", "day", TZ="Nowhere/City"))[0].startswith(
        "day (UTC)"
    )
    assert audit("counts", "--by", "day").stdout.splitlines()[1].startswith(str(day))
    assert (
        "nothing matches in the 7 days before 10d"
        in on_a_terminal("counts", "--until", "10d").stdout
    )


def test_beginnings_are_taken_where_only_a_tool_call_is_on_record_and_of_the_ids_of_keys(
    url: str,
) -> None:
    lost, ours, theirs = call_id(), call_id(), call_id()
    insert_all(
        url,
        tool_call_record(lost),
        call_record(ours, key_id="0123456789abcdef"),
        call_record(theirs, key_id="0123ffffffffffff"),
    )
    assert lost in audit("show", lost[:23]).stdout
    assert [
        item["call_id"]
        for item in json.loads(audit("calls", "--json", "--key-id", "01234").stdout)["items"]
    ] == [ours]
    told = audit("calls", "--key-id", "0123")
    assert told.exit_code == 2 and "0123456789abcdef, 0123ffffffffffff" in told.stderr
    assert json.loads(audit("calls", "--json", "--key-id", "beef").stdout)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("calls", "--state", "endet"), "ENDED"),
        (("tool-calls", "--verdict", "blok"), "block"),
        (("counts", "--by", "dya"), "day"),
    ],
)
def test_values_that_are_misspelt_are_answered_with_what_may_be_meant(
    url: str, arguments: tuple[str, ...], meant: str
) -> None:
    told = audit(*arguments)
    assert told.exit_code == 2 and f"did you mean '{meant}'" in told.stderr


def test_verdicts_are_taken_in_any_case(call: str) -> None:
    assert len(json.loads(audit("tool-calls", "--json", "--verdict", "BLOCK").stdout)["items"]) == 1


@pytest.mark.slow
def test_a_pipe_that_is_closed_early_is_no_failure(url: str) -> None:
    calls = [call_id(now_ms() - n) for n in range(2_000)]
    insert_all(
        url,
        *(
            record
            for call in calls
            for record in (call_record(call), tool_call_record(call, arguments=b"x" * 200))
        ),
    )
    command = [sys.executable, "-m", "sluice.cli", "audit", "tool-calls", "--limit", "1000"]
    env = os.environ | {"SLUICE_DATABASE_URL": url}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("decided_at")
        process.stdout.close()
        assert (
            process.stderr.read().replace("\n", "").partition("there is more")[0],
            process.wait(60),
        ) == ("", 0)


def test_show_tells_what_went_wrong(url: str) -> None:
    call = call_id()
    records: list[Record] = [
        call_record(call),
        EndRecord(
            call_id=call,
            at=now_ms(),
            state="FAILED",
            reason="api_error",
            status=502,
            stop_reason="",
            input_tokens=None,
        ),
        EventRecord(
            call_id=call,
            kind="upstream_refused",
            number=1,
            at=now_ms(),
            detail="http://h:1: Connection \x1b[2J refused",
        ),
        EventRecord(call_id=call, kind="another", number=2, at=now_ms() + 1, detail=""),
        EventRecord(
            call_id=call,
            kind="redacted",
            number=1,
            at=now_ms() + 2,
            detail="owner: asked by the user",
        ),
    ]

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(records, {call: b"{}"})

    asyncio.run(insert())
    shown = audit("show", call).stdout.splitlines()
    at = shown.index("what went wrong")
    assert shown[at + 1 : at + 3] == [
        "it refused the connection (upstream_refused): http://h:1: Connection \\x1b[2J refused",
        "another",
    ]
    # what was done to it later is no cause
    assert [line[:8] for line in shown if "asked by the user" in line] == ["redacted"] and shown[
        2
    ].endswith("by owner: asked by the user")


def test_export_goes_to_a_file_or_to_standard_output(call: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in audit("export").stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]) == (
        "call",
        {"type": "export_end", "calls": 1, "lines": 10},
    )
    output = tmp_path / "record.jsonl"
    told = audit("export", "--output", str(output), "--json")
    assert json.loads(told.stdout) == {"path": str(output), "calls": 1, "lines": 10}
    assert [json.loads(line) for line in output.read_text().splitlines()] == lines
    assert "1 call in 11 lines" in audit("export", "--output", str(output), "--name", "bash").stderr
    assert list(tmp_path.iterdir()) == [output]
    assert audit("export", "--output", str(tmp_path / "none" / "x")).exit_code == 2


def test_export_shows_its_progress_on_a_terminal(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TTY_COMPATIBLE", "_SLUICE_TERMINAL"):
        monkeypatch.setenv(variable, "1")
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
            await inserter.insert(
                [
                    tool_call_record(
                        call_id(), name="\x1b[2Jx", arguments=b"\x00\x1b]0;owned\x07\xed\xa0\x80"
                    )
                ],
                {},
            )

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
            await inserter.insert(
                [
                    call_record(searched),
                    tool_call_record(searched, name="web_search", executor="provider"),
                ],
                {},
            )

    asyncio.run(insert())
    for shown in (
        on_a_terminal("tool-calls").stdout,
        on_a_terminal("show", searched, "--raw").stdout,
    ):
        assert "run by" in shown
        assert "provider" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("calls", "--verdict", "maybe"), 2, "--verdict"),
        *[
            (("calls", "--limit", limit), 2, "--limit: must be a number from 1 to 1000")
            for limit in ("0", "5000", "x", "-1")
        ],
        (("calls", "--order", "up"), 2, "--order: must be asc or desc"),
        (
            ("calls", "--since", "1h", "--until", "2h"),
            2,
            "--until: is not after `since`, so nothing can match",
        ),
        (
            ("counts", "--since", "1h", "--until", "2h"),
            2,
            "--until: is not after `since`, so nothing can match",
        ),
        (("tool-calls", "--cursor", "x"), 2, "--cursor"),
        (("export", "--since", "never"), 2, "--since"),
        (("show", "x"), 1, "not a call id"),
        (("show", "01990000-0000-7000-8000-000000000000"), 1, "no call"),
    ],
)
def test_exit_codes_and_one_clear_sentence(
    url: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
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


def test_a_table_goes_into_a_pipe_as_values_whatever_asks_for_colours(call: str) -> None:
    told = CliRunner().invoke(
        audit_cli.app, ["calls"], env={"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    )
    assert told.stdout.splitlines()[0].split("\t")[:2] == ["created_at", "call_id"]


def test_a_key_may_use_the_server_tools_it_was_made_with_and_no_others(url: str) -> None:
    two = ("--server-tool", "web_search", "--server-tool", "code_execution")
    made = json.loads(keys("create", "--name", "researcher", *two, "--json").stdout)
    assert made["server_tools"] == ["web_search", "code_execution"]
    keys("create", "--name", "plain")
    refused = keys("create", "--name", "x", "--server-tool", "everything")
    assert refused.exit_code == 2
    assert "--server-tool: 'everything' is no family of server tools; there are " in refused.stderr
    listed = {
        k["name"]: k["server_tools"] for k in json.loads(keys("list", "--json").stdout)["items"]
    }
    assert listed == {"researcher": ["web_search", "code_execution"], "plain": []}
    assert "web_search, code_execution" in keys("list").stdout

    async def load() -> dict[str, tuple[str, ...]]:
        store = KeyStore.open(url)
        try:
            return {key.name: key.server_tools for key in await store.load()}
        finally:
            await store.close()

    assert asyncio.run(load()) == {"researcher": ("web_search", "code_execution"), "plain": ()}
