"""Lists, paging, one call, chunks, export, keys and the audit API on a real PostgreSQL."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from db.filters import parse_filters
from db.keyring import KeyRing
from db.keys import PREFIX, KeyStore, digest
from db.migrations.place import newest
from db.read.export import Progress, export_lines
from db.read.queries import AuditReader
from db.read.views import JUDGED_LOGS, VIEWS
from db.state.polling import Watch, _read_keys
from protocol.errors import AuditUnavailable, InvalidRequest, NotFound
from protocol.records import WHY, BlockRecord, EndRecord, EventRecord, JudgementRecord
from settings.config import SETTINGS, Key
from tests.support.checks.reading import DAY_MS, end_record, given, insert, tool_names
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    control_records,
    judgement_record,
    now_ms,
    release_record,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.json_values import Json

TOOL_CALL_FIELDS = {
    "call_id",
    "tool_call_id",
    "index",
    "choice",
    "name",
    "arguments",
    "released_arguments",
    "executor",
    "form",
    "verdict",
    "reason",
    "policy",
    "rule",
    "why",
    "policy_revision",
    "judge",
    "session",
    "key",
    "key_id",
    "model",
    "upstream",
    "created_at",
    "decided_at",
    "released_at",
    "notice_at",
    "block",
}


def test_views_have_the_columns_that_queries_read(url: str) -> None:
    for name, view in VIEWS.tables.items() - {(view.name, view) for view in JUDGED_LOGS}:
        found = rows(
            url, "SELECT column_name FROM information_schema.columns WHERE table_name = %s", name
        )
        assert {c for (c,) in found} == {c.name for c in view.columns}


async def test_a_tool_call_has_exactly_the_promised_fields(url: str, reader: AuditReader) -> None:
    call = call_id()
    await insert(url, *whole_call(call))
    [item] = (await reader.tool_calls(parse_filters([], of="tool-calls")))["items"]
    assert set(item) == TOOL_CALL_FIELDS
    assert (item["arguments"], item["released_arguments"]) == (
        '{"command": "rm -rf /tmp/build"}',
        None,
    )
    assert set(item["judge"]) == {
        "model",
        "probability",
        "explanation",
        "prompt",
        "reply",
        "latency_ms",
        "attempts",
    }
    assert (item["session"], item["key"], item["policy_revision"]) == ("s-1", "dev", "r1")
    # it was blocked: what went out is the notice in its place
    assert item["released_at"] is None and item["created_at"] <= item["notice_at"]
    assert item["created_at"].endswith("Z")


async def test_a_tool_call_without_a_judgement_has_no_judge(url: str, reader: AuditReader) -> None:
    await insert(url, tool_call_record(call_id(), verdict="allow", released_arguments=b"{}"))
    [item] = (await reader.tool_calls(parse_filters([], of="tool-calls")))["items"]
    assert (item["judge"], item["released_at"], item["session"]) == (None, None, None)


async def test_why_a_call_was_blocked_is_in_lists_and_in_the_call(
    url: str, reader: AuditReader
) -> None:
    call, other = call_id(), call_id()
    why = "would delete all of ~/x, outside the project"
    await insert(
        url,
        *whole_call(call),
        *whole_call(other),
        EventRecord(call_id=call, kind=WHY, number=1, at=now_ms(), detail=why),
        EventRecord(call_id=other, kind=WHY, number=7, at=now_ms(), detail="of no tool call"),
    )
    filters = parse_filters([], of="tool-calls")
    items = (await reader.tool_calls(filters))["items"]
    assert {item["call_id"]: item["why"] for item in items} == {call: why, other: None}
    shown, _ = await reader.lines("tool-calls", filters, first=10)
    assert {item["why"] for item in shown} == {why, None}
    found = await reader.call(UUID(call)) or {}
    assert [item["why"] for item in found["tool_calls"]] == [why]


async def test_the_rule_is_in_every_list_and_in_the_export(url: str, reader: AuditReader) -> None:
    ruled, judged, plain, late = (call_id() for _ in range(4))
    text = BlockRecord(
        call_id=judged,
        block=0,
        at=now_ms(),
        kind="text",
        verdict="block",
        reason="r",
        policy="p",
        rule="w\x00\ud800",
    )
    last = BlockRecord(
        call_id=late,
        block=1,
        at=now_ms(),
        kind="tool_use",
        verdict="block",
        reason="audit_unavailable",
        policy="",
    )
    await insert(
        url,
        call_record(ruled),
        tool_call_record(ruled, rule="no-deletes"),
        call_record(judged),
        judgement_record(judged, block=0, policy="p"),
        text,
        tool_call_record(judged, rule="deny[2]"),
        judgement_record(judged),
        call_record(plain),
        tool_call_record(plain),
        call_record(late),
        tool_call_record(late, verdict="replace", rule="deny[0]"),
        last,
    )
    items = (await reader.tool_calls(parse_filters([], of="tool-calls")))["items"]
    assert {i["call_id"]: i["rule"] for i in items} == {
        ruled: "no-deletes",
        judged: "deny[2]",
        plain: None,
        late: None,
    }
    items = (await reader.judge_blocks(parse_filters([], of="judge-blocks")))["items"]
    assert {(i["kind"], i["rule"]) for i in items} == {
        ("tool_call", "deny[2]"),
        ("text", "w\x00\ud800"),
    }
    found = await reader.call(UUID(judged)) or {}
    assert [[row["rule"] for row in found[part]] for part in ("tool_calls", "blocks")] == [
        ["deny[2]"],
        ["w\x00\ud800"],
    ]
    exported = {(line["type"], line["rule"]) for line in await lines(reader) if "rule" in line}
    assert exported == {
        ("tool_call", "no-deletes"),
        ("tool_call", "deny[2]"),
        ("tool_call", None),
        ("block", "w\x00\ud800"),
        ("block", None),
    }


async def test_a_later_block_of_a_tool_call_is_the_last_word(url: str, reader: AuditReader) -> None:
    call = call_id()
    late = BlockRecord(
        call_id=call,
        block=1,
        at=now_ms(),
        kind="tool_use",
        verdict="block",
        reason="audit_unavailable",
        policy="",
    )
    chunk = chunks_record(call, [b"x"], verdict="hold", block=1)
    await insert(
        url,
        call_record(call),
        tool_call_record(call, verdict="allow", released_arguments=b"{}"),
        late,
        chunk,
    )
    [item] = (await reader.tool_calls(parse_filters(given(verdict="block"), of="tool-calls")))[
        "items"
    ]
    assert (item["verdict"], item["reason"], item["released_arguments"]) == (
        "block",
        "audit_unavailable",
        None,
    )
    page = await reader.calls(parse_filters(given(verdict="block", name="bash"), of="calls"))
    assert [i["tool_calls_blocked"] for i in page["items"]] == [1]
    assert not (await reader.calls(parse_filters(given(verdict="allow"), of="calls")))["items"]
    page = await reader.chunks(UUID(call), parse_filters([], of="chunks")) or {}
    assert [i["verdict"] for i in page["items"]] == ["block"]


async def test_every_filter_chooses(url: str, reader: AuditReader) -> None:
    old, new = call_id(now_ms() - 3 * DAY_MS), call_id()
    await insert(
        url,
        call_record(old, session="s-old", model="m-old", key="k-old", policy="p-old"),
        tool_call_record(
            old,
            name="nul\x00",
            arguments=b'{"path": "/etc/passwd"}',
            verdict="allow",
            reason="fine",
            policy="rules",
        ),
        call_record(new, session="s-new", model="m-new", key="k-new", policy="p-new"),
        tool_call_record(new, name="bash", arguments=b'{"command": "rm\\u0020-rf"}'),
        BlockRecord(
            call_id=new,
            block=0,
            at=now_ms(),
            kind="text",
            verdict="replace",
            reason="",
            policy="text_replace",
        ),
    )
    chosen: dict[str, dict[str, list[object]]] = {
        "old": {
            "call_id": [old],
            "session": ["s-old"],
            "model": ["m-old"],
            "key": ["k-old"],
            "name": ["nul\x00"],
            "verdict": ["allow"],
            "until": ["2000-01-01"],
            "q": ["passwd", "ETC fine", "nul"],
        },
        "new": {
            "call_id": [new],
            "session": ["s-new"],
            "model": ["m-new"],
            "key": ["k-new"],
            "name": ["bash"],
            "verdict": ["block"],
            "since": ["2000-01-01"],
            "q": ["rm -rf", "dangerous bash"],
        },
    }
    middle = datetime.fromtimestamp((now_ms() - DAY_MS) / 1000, UTC).isoformat()
    chosen["old"]["until"] = chosen["new"]["since"] = [middle]
    names = {"old": "nul\x00", "new": "bash"}
    for which, filters in chosen.items():
        for name, values in filters.items():
            for value in values:
                assert await tool_names(reader, **{name: value}) == [names[which]], (name, value)
                page = await reader.calls(parse_filters(given(**{name: value}), of="calls"))
                assert [i["call_id"] for i in page["items"]] == [old if which == "old" else new], (
                    name,
                    value,
                )
    assert (
        await tool_names(reader, policy="rules")
        == await tool_names(reader, policy="p-old")
        == ["nul\x00"]
    )
    assert [
        i["call_id"]
        for i in (await reader.calls(parse_filters(given(policy="p-old"), of="calls")))["items"]
    ] == [old]
    assert [
        i["call_id"]
        for i in (await reader.calls(parse_filters(given(verdict="replace"), of="calls")))["items"]
    ] == [new]
    assert (
        await tool_names(reader, q="nothing") == await tool_names(reader, verdict="withheld") == []
    )
    assert await tool_names(reader, order="asc") == ["nul\x00", "bash"]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_calls_are_chosen_by_their_state(url: str, reader: AuditReader, order: str) -> None:
    calls = [call_id(now_ms() - n * DAY_MS // 4) for n in range(12)]
    ends = [
        end_record(call, "FAILED" if n % 3 else "ENDED") for n, call in enumerate(calls) if n % 4
    ]
    await insert(
        url, *map(call_record, calls), *ends, tool_call_record(calls[0]), tool_call_record(calls[1])
    )
    wanted = {"ACTIVE": calls[::4]} | {
        s: [e.call_id for e in ends if e.state == s] for s in ("ENDED", "FAILED")
    }
    for state, those in wanted.items():
        found, cursor = [], ""
        while True:
            page = await reader.calls(
                parse_filters(
                    given(state=state.lower(), order=order, limit=2, cursor=cursor), of="calls"
                )
            )
            found += [(item["call_id"], item["state"]) for item in page["items"]]
            if not (cursor := page["next_cursor"]):
                break
        assert found == [(call, state) for call in (those if order == "desc" else those[::-1])]
        assert await reader.count_calls(parse_filters(given(state=state), of="calls")) == len(those)
    page = await reader.calls(parse_filters(given(state="ACTIVE", name="bash"), of="calls"))
    assert [item["call_id"] for item in page["items"]] == calls[:1]
    assert not (await reader.calls(parse_filters(given(state="ENDED", name="bash"), of="calls")))[
        "items"
    ]


@pytest.mark.case("A6")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_are_stable_while_rows_come_in(
    url: str, reader: AuditReader, order: str
) -> None:
    calls = [call_id(now_ms() - n * 1000) for n in range(7)]
    await insert(
        url, *(tool_call_record(call, block=block) for call in calls for block in (1, 2, 3))
    )
    seen: list[tuple[str, str]] = []
    cursor = ""
    while True:
        page = await reader.tool_calls(
            parse_filters(given(limit=4, order=order, cursor=cursor), of="tool-calls")
        )
        seen += [(item["call_id"], item["decided_at"]) for item in page["items"]]
        if not (cursor := page["next_cursor"]):
            break
        assert len(page["items"]) == 4
        await insert(
            url,
            tool_call_record(
                call_id(now_ms() - 60_000 if order == "asc" else now_ms() + 60_000), block=9
            ),
        )
    expected = [call for call in sorted(calls, reverse=order == "desc") for _ in range(3)]
    assert [call for call, _ in seen] == expected


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_calls_of_days_without_a_partition_are_listed_in_their_place(
    url: str, reader: AuditReader, order: str
) -> None:
    """Long ago, between two days that have one, and to come: they are in the default partitions."""
    times = [now_ms() - n * DAY_MS for n in (20_000, 400, 399, 10, 2, 1, 0, -1, -2, -900)]
    calls = [call_id(at) for at in times]
    rows(url, "SELECT sluice_ensure_partitions((now() AT TIME ZONE 'UTC')::date - 400, 1)")
    rows(url, "SELECT sluice_ensure_partitions((now() AT TIME ZONE 'UTC')::date - 2, 1)")
    await insert(
        url, *(record for call in calls for record in (call_record(call), tool_call_record(call)))
    )
    for ask, of in ((reader.calls, "calls"), (reader.tool_calls, "tool-calls")):
        seen, cursor = [], ""
        while True:
            page = await ask(
                parse_filters(given(limit=3, order=order, cursor=cursor, key="dev"), of=of)  # type: ignore[arg-type]
            )
            seen += [item["call_id"] for item in page["items"]]
            if not (cursor := page["next_cursor"]):
                break
        assert seen == sorted(calls, reverse=order == "desc")


@pytest.mark.slow
@pytest.mark.case("A6")
async def test_a_page_of_megabytes_ends_early(url: str, reader: AuditReader) -> None:
    await insert(url, *(tool_call_record(call_id(), arguments=b"x" * 6_000_000) for _ in range(5)))
    page = await reader.tool_calls(parse_filters([], of="tool-calls"))
    assert len(page["items"]) == 3
    rest = await reader.tool_calls(
        parse_filters(given(cursor=page["next_cursor"]), of="tool-calls")
    )
    assert (len(rest["items"]), rest["next_cursor"]) == (2, None)


async def test_judge_blocks_are_blocks_by_a_judgement_only(url: str, reader: AuditReader) -> None:
    judged, ruled, allowed, text = (call_id() for _ in range(4))
    quiet: JudgementRecord = judgement_record(allowed, probability=0.1)
    await insert(
        url,
        *whole_call(judged),
        judgement_record(ruled, probability=0.1),
        tool_call_record(ruled, policy="tool_rules"),
        quiet,
        tool_call_record(allowed, verdict="allow"),
        judgement_record(text, block=0, probability=None, error="deadline"),
        call_record(text, session="s-2"),
        BlockRecord(
            call_id=text,
            block=0,
            at=now_ms(),
            kind="text",
            verdict="block",
            reason="judge silent",
            policy="tool_judge",
        ),
    )
    items = (await reader.judge_blocks(parse_filters([], of="judge-blocks")))["items"]
    assert {(i["call_id"], i["kind"]) for i in items} == {(judged, "tool_call"), (text, "text")}
    by_kind = {i["kind"]: i for i in items}
    assert by_kind["tool_call"]["judge"]["threshold"] == 0.6
    assert (by_kind["text"]["judge"]["error"], by_kind["text"]["judge"]["probability"]) == (
        "deadline",
        None,
    )
    for filters in (
        {"q": "silent"},
        {"session": "s-2"},
        {"call_id": text},
        {"policy": "tool_judge", "session": "s-2"},
    ):
        page = await reader.judge_blocks(parse_filters(given(**filters), of="judge-blocks"))
        assert [i["call_id"] for i in page["items"]] == [text]
    first = await reader.judge_blocks(parse_filters(given(limit=1), of="judge-blocks"))
    second = await reader.judge_blocks(
        parse_filters(given(limit=1, cursor=first["next_cursor"]), of="judge-blocks")
    )
    assert {first["items"][0]["kind"], second["items"][0]["kind"]} == {"tool_call", "text"}


async def test_one_call_is_whole(url: str, reader: AuditReader) -> None:
    call = call_id()
    await insert(
        url, *whole_call(call), *control_records(call), bodies={call: b'{"model": "gpt-x"}'}
    )
    found = await reader.call(UUID(call)) or {}
    assert (found["state"], found["status"], found["usage"]["input_tokens"], found["request"]) == (
        "ENDED",
        200,
        3,
        '{"model": "gpt-x"}',
    )
    assert (found["chunks"], found["releases"], found["released_bytes"]) == (3, 1, 3)
    parts = ("tool_calls", "blocks", "judgements", "scores", "decisions", "attempts", "events")
    assert [len(found[part]) for part in parts] == [1] * len(parts)
    assert (
        found["scores"][0]["dims"],
        found["decisions"][0]["audit"],
        found["attempts"][0]["chosen"],
    ) == (
        {"delete": 0.97},
        "suspicion",
        True,
    )
    assert await reader.call(UUID(int=7)) is None


async def test_chunks_show_bytes_verdict_and_release(url: str, reader: AuditReader) -> None:
    call = call_id()
    await insert(
        url,
        call_record(call),
        chunks_record(call, [b"data: a\n\n", b"\xff\x00"]),
        chunks_record(call, [b"tool"], seq=3, verdict="hold", block=1),
        chunks_record(call, [b"text"], seq=4, verdict="hold", block=2),
        release_record(call, b"out \xfe", seq=2),
        tool_call_record(call, verdict="replace"),
    )
    page = await reader.chunks(UUID(call), parse_filters([], of="chunks")) or {}
    first, second, third, fourth = page["items"]
    assert (first["seq"], first["raw"], first["raw_base64"], first["released"]) == (
        1,
        "data: a\n\n",
        None,
        [],
    )
    assert (second["raw"], second["raw_base64"]) == ("\\xff\x00", "/wA=")
    assert [(r["number"], r["payload"], r["payload_base64"]) for r in second["released"]] == [
        (1, "out \\xfe", "b3V0IP4=")
    ]
    assert (third["verdict"], fourth["verdict"]) == ("replace", "hold")
    await insert(
        url, EndRecord(call_id=call, at=now_ms(), state="FAILED", reason="client_gone", status=200)
    )
    page = (
        await reader.chunks(UUID(call), parse_filters(given(verdict="withheld"), of="chunks")) or {}
    )
    assert [i["seq"] for i in page["items"]] == [4]
    assert await reader.chunks(UUID(int=7), parse_filters([], of="chunks")) is None


async def lines(reader: AuditReader, **values: object) -> list[Json]:
    filters = parse_filters(given(**values), of="calls")
    text = b"".join([piece async for piece in export_lines(reader.engine, filters)])
    return [json.loads(line) for line in text.splitlines()]


async def test_the_export_holds_every_row_once_by_call(url: str, reader: AuditReader) -> None:
    calls = sorted(call_id() for _ in range(3))
    for call in calls:
        await insert(
            url,
            *whole_call(call, session=f"s-{calls.index(call)}"),
            *control_records(call),
            bodies={call: b"{}"},
        )
    found = await lines(reader)
    kinds = [
        "call",
        "request",
        "chunk",
        "chunk",
        "chunk",
        "release",
        "block",
        "tool_call",
        "judgement",
    ]
    kinds += ["score", "decision", "attempt", "event"]
    assert [(line.get("call_id"), line["type"]) for line in found[:-1]] == [
        (call, kind) for call in calls for kind in kinds
    ]
    assert found[-1] == {"type": "export_end", "calls": 3, "lines": 39}
    assert {line.get("call_id") for line in (await lines(reader, session="s-1"))[:-1]} == {calls[1]}
    assert {line.get("call_id") for line in (await lines(reader, call_id=calls[2]))[:-1]} == {
        calls[2]
    }
    assert await lines(reader, until="2000-01-01") == [
        {"type": "export_end", "calls": 0, "lines": 0}
    ]
    assert await reader.count_calls(parse_filters(given(q="rm"), of="calls")) == 3


@pytest.mark.slow
@pytest.mark.case("A6")
async def test_the_export_takes_constant_memory(url: str, reader: AuditReader) -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc to see the process's memory")
    rows(
        url,
        "INSERT INTO calls SELECT id, now(), '', '', '', '', '', '', '', '', true, '', '', '',"
        " NULL, '', '' FROM (SELECT ('0190' || lpad(to_hex(n), 28, '0'))::uuid AS id FROM"
        " generate_series(1, 100) n) i",
    )
    raw = "convert_to(repeat('x', 10000), 'UTF8')"
    rows(
        url,
        f"INSERT INTO chunks SELECT call_id, seq, now(), {raw}, 'allow', 0 FROM calls,"
        " generate_series(1, 100) seq",
    )

    def resident() -> int:
        return int(statm.read_text().split()[1]) * 4096

    size = most = before = 0
    async for piece in export_lines(
        reader.engine, parse_filters([], of="calls"), progress := Progress()
    ):
        before = before or resident()
        size += len(piece)
        most = max(most, resident())
    assert (size > 100_000_000, progress.lines) == (True, 10_100)
    assert most - before < 25_000_000


async def test_readers_cannot_write_and_slow_queries_are_named(
    url: str, reader: AuditReader
) -> None:
    await insert(url, *whole_call(call_id()))
    store = KeyStore(reader.engine)
    with pytest.raises(AuditUnavailable):
        await store.create("x")


async def test_a_key_with_a_setting_of_a_later_version_is_refused_and_listed(url: str) -> None:
    store, watch = KeyStore.open(url), Watch(url)
    await store.create("now")
    await store.create("later", calls=3)
    rows(
        url,
        """UPDATE api_keys SET settings = settings || '{"of_tomorrow": 5}' WHERE name = 'later' RETURNING name""",
    )
    assert [key.name for key in await watch.keys()] == ["now"]
    assert [(one.key.name, one.key.calls) for one in await store.list_keys()] == [
        ("now", None),
        ("later", 3),
    ]
    rows(
        url,
        """UPDATE api_keys SET settings = '{"name": "now", "sha256": "00", "calls": 2}' WHERE name = 'later' RETURNING name""",
    )
    assert {key.name: key.calls for key in await watch.keys()} == {
        "now": None,
        "later": 2,
    }, "no setting stands for name or digest"
    # a key of an older version, which could have less, goes on
    rows(
        url,
        """UPDATE api_keys SET settings = '{"keepalive_s": 2}' WHERE name = 'later' RETURNING name""",
    )
    assert {key.name: key.keepalive_s for key in await watch.keys()} == {"now": None, "later": 5}
    for wrong in ('{"keepalive_s": 300}', '{"calls": "seven"}'):
        rows(url, f"UPDATE api_keys SET settings = '{wrong}' WHERE name = 'later' RETURNING name")
        assert [key.name for key in await watch.keys()] == ["now"]
        assert [one.key.name for one in await store.list_keys()] == [
            "now",
            "later",
        ], "listed, so that it can be revoked"
    with pytest.raises(psycopg.errors.CheckViolation):
        rows(url, "UPDATE api_keys SET settings = '[]' RETURNING name")
    await store.revoke("later")
    await store.close()
    await watch.close()


async def test_keys_are_stored_hashed_and_revoked_by_name(url: str, reader: AuditReader) -> None:
    store, watch = KeyStore.open(url), Watch(url)
    text = await store.create(
        "dev",
        roles=("client", "auditor"),
        policies=("default", "strict"),
        server_tools=["mcp"],
        calls=7,
        requests_minute=50,
        tokens_minute=2,
        tokens_day=3,
        tokens_month=4,
        usd_day="0.5",
        usd_month="6",
        session_tokens=7,
        session_usd="8",
        team="red",
        keepalive_s=5,
        hold_s=0,
        project="/srv/app",
        compress="gzip",
    )
    assert text.startswith(PREFIX)
    assert len(text) == len(PREFIX) + 43
    assert text not in str(rows(url, "SELECT * FROM api_keys"))
    [key] = await store.load()
    given = {
        "roles": ("client", "auditor"),
        "policies": ("default", "strict"),
        "server_tools": ("mcp",),
        "calls": 7,
        "requests_minute": 50,
        "tokens_minute": 2,
        "tokens_day": 3,
        "tokens_month": 4,
        "usd_day": "0.5",
        "usd_month": "6",
        "session_tokens": 7,
        "session_usd": "8",
        "team": "red",
        "keepalive_s": 5,
        "hold_s": 0,
        "project": "/srv/app",
        "compress": "gzip",
    }
    assert key == Key.model_validate({"name": "dev", "sha256": digest(text), **given})
    assert given.keys() == SETTINGS.keys(), "every setting goes there and back"
    assert await watch.keys() == [key]
    with pytest.raises(InvalidRequest):
        await store.create("dev")
    for bad in (
        {"name": "no spaces"},
        {"name": "x", "roles": ("root",)},
        {"name": "x", "calls": 0},
        {"name": "x", "project": "app"},
    ):
        with pytest.raises(InvalidRequest):
            await store.create(**bad)
    await store.revoke("dev")
    assert await store.load() == []
    assert [k.revoked_at is None for k in await store.list_keys()] == [False]
    with pytest.raises(NotFound):
        await store.revoke("dev")
    assert await watch.keys() == []
    with pytest.raises(InvalidRequest, match="a revoked key was named 'dev'"):
        await store.create("dev")
    assert await store.create("dev", reuse=True) != text
    [old, new] = await store.list_keys()
    assert (old.key.name, old.key.id == new.key.id) == (new.key.name, False)
    with pytest.raises(InvalidRequest, match="exists"):
        await store.create("dev", reuse=True)
    await store.close()
    await watch.close()


async def test_keys_are_read_again_only_when_one_changed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, watch, reads = KeyStore.open(url), Watch(url), list[int]()
    ring = KeyRing([], watch.keys, watch.keys_of)

    def counted(found: list[Json]) -> list[Key]:
        reads.append(len(found))
        return _read_keys(found)

    monkeypatch.setattr("db.state.polling._read_keys", counted)
    text = await store.create("one")
    for _ in range(5):
        await ring.refresh_once()
    assert reads == [1]
    rows(url, "UPDATE api_keys SET settings = '{\"calls\": 3}' WHERE name = 'one' RETURNING name")
    await ring.refresh_once()
    held = ring.authenticate([(b"x-api-key", text.encode())])
    assert held is not None and held.calls == 3, "also what somebody wrote by hand"
    # made, looked up and revoked between two reads, after which the keys are those of before
    short = await store.create("short")
    ring._waiting[digest(short)] = asyncio.get_running_loop().create_future()
    await ring._look_up_once()
    assert ring.authenticate([(b"x-api-key", short.encode())]) is not None
    await store.revoke("short")
    await ring.refresh_once()
    assert ring.authenticate([(b"x-api-key", short.encode())]) is None
    await store.close()
    await watch.close()


@pytest.mark.slow
async def test_a_connection_that_the_server_ended_is_no_outage_for_who_watches(url: str) -> None:
    store, watch = KeyStore.open(url), Watch(url)
    await store.create("kept")
    assert [key.name for key in await watch.keys()] == ["kept"]
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid != pg_backend_pid()"
    assert rows(url, f"SELECT pg_terminate_backend(pid) {others}")
    assert [key.name for key in await watch.keys()] == ["kept"]
    assert await watch.revision() == newest()
    rows(url, "ALTER TABLE alembic_version RENAME TO elsewhere")
    assert await watch.revision() == "", "never migrated"
    rows(url, "ALTER TABLE elsewhere RENAME TO alembic_version")
    assert await watch.revision() == newest()
    await store.close()
    await watch.close()
