"""`sluice audit` and `sluice keys` against a real PostgreSQL."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from db.insert import AuditInserter
from db.keys import KeyStore
from sluice import audit_cli, keys_cli
from sluice.audit_cli import printable
from tests.support.record import call_id, call_record, fresh_database, release_record, tool_call_record, whole_call

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


def test_a_narrow_terminal_shows_whole_ids_and_says_what_it_leaves_out(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    told = CliRunner().invoke(audit_cli.app, ["tool-calls"], env={"COLUMNS": "80"})
    assert call in told.stdout and "block" in told.stdout
    assert max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", told.stdout).splitlines()) <= 80
    assert "no room here for: " in told.stderr and "released" in told.stderr


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
    assert "this request is refused" not in audit("show", call).stdout


def test_export_goes_to_a_file_or_to_standard_output(call: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in audit("export").stdout.splitlines()]
    assert (lines[0]["type"], lines[-1]) == ("call", {"type": "export_end", "calls": 1, "lines": 10})
    output = tmp_path / "record.jsonl"
    told = audit("export", "--output", str(output), "--json")
    assert json.loads(told.stdout) == {"path": str(output), "calls": 1, "lines": 10}
    assert [json.loads(line) for line in output.read_text().splitlines()] == lines
    assert "1 calls in 11 lines" in audit("export", "--output", str(output), "--name", "bash").stderr
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
    assert "run by" not in audit("tool-calls").stdout
    assert "run by" not in audit("show", call).stdout
    searched = call_id()

    async def insert() -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert([call_record(searched), tool_call_record(searched, name="web_search", executor="provider")], {})

    asyncio.run(insert())
    for shown in (audit("tool-calls").stdout, audit("show", searched).stdout):
        assert "run by" in shown
        assert "provider" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("calls", "--verdict", "maybe"), 2, "--verdict"),
        (("calls", "--limit", "0"), 2, "--limit"),
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
