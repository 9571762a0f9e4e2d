"""The API of the record over HTTP: roles, pages, cursors, and what is wrong with a request."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

import db.read.counts
import db.read.lists
import db.read.queries
from db.access_log import MAX_CALLS, PageRead, note
from db.engine import open_engine, reading
from db.filters import parse_filters
from db.read.queries import AuditReader
from pages.audit.api import MOST_EXPORTING, MOST_EXPORTING_OF_ONE, AuditApi
from protocol.records import BlockRecord
from settings.config import Key
from tests.support.checks.reading import DAY_MS, end_record, given, insert, tool_names
from tests.support.checks.record import (
    call_id,
    call_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.waiting import wait_until


async def test_the_beginning_of_a_call_id_is_enough(url: str, client: httpx2.AsyncClient) -> None:
    one, other = "01990000-0001-7000-8000-000000000001", "01990000-0001-7000-8000-000000000002"
    lone = "01a90000-0001-7000-8000-000000000003"
    await insert(
        url,
        call_record(one),
        call_record(other),
        tool_call_record(one),
        end_record(lone, "FAILED"),
        bodies={},
    )
    for prefix in (lone[:8], lone[:13], lone.replace("-", "")[:20].upper(), lone[:-1]):
        assert (await client.get(f"/audit/calls/{prefix}")).json()["call_id"] == lone
    assert (await client.get(f"/audit/calls/{one[:-1]}1/chunks")).status_code == 200
    assert len((await client.get(f"/audit/tool-calls?call_id={one}")).json()["items"]) == 1
    for path in (
        f"/audit/calls/{one[:13]}",
        f"/audit/calls/{one[:9]}/chunks",
        f"/audit/calls?call_id={one[:8]}",
        f"/audit/export?call_id={one[:30]}",
    ):
        error = (await client.get(path)).json()["error"]
        assert (
            (error["code"], error["param"]) == ("ambiguous_call_id", "call_id")
            and one in error["message"]
            and other in error["message"]
        )


async def test_tool_calls_are_counted(url: str, client: httpx2.AsyncClient) -> None:
    now, before = call_id(), call_id(now_ms() - 2 * DAY_MS)
    await insert(
        url,
        call_record(now, key="kim"),
        call_record(before, key="lee\x00"),
        call_record(old := call_id(now_ms() - 30 * DAY_MS)),
        *(tool_call_record(now, block=n, verdict="allow", name="ls") for n in (1, 2)),
        tool_call_record(now, block=3),
        tool_call_record(before),
        tool_call_record(old),
        BlockRecord(
            call_id=now,
            block=2,
            at=now_ms(),
            kind="tool_use",
            verdict="block",
            reason="audit_unavailable",
            policy="",
        ),
    )
    told = (await client.get("/audit/counts")).json()
    days = [str(datetime.fromtimestamp((now_ms() - n * DAY_MS) / 1000, UTC).date()) for n in (2, 0)]
    assert [tuple(item.values()) for item in told["items"]] == [
        (days[0], "lee\x00", "block", 1, 1),
        (days[1], "kim", "allow", 1, 1),
        (days[1], "kim", "block", 2, 1),
    ]
    assert (told["by"], told["truncated"], told["until"]) == (
        ["day", "key", "verdict"],
        False,
        None,
    ) and told["since"] < days[0]
    told = (await client.get("/audit/counts?by=name&verdict=block&since=2000-01-01")).json()
    assert [tuple(item.values()) for item in told["items"]] == [("bash", 3, 3), ("ls", 1, 1)]
    for by in ("key_id", "session", "model", "policy", "reason"):
        assert (
            sum(
                item["tool_calls"]
                for item in (
                    await client.get(f"/audit/counts?by={by}&key=kim&policy=default")
                ).json()["items"]
            )
            == 3
        )


async def test_counts_say_when_there_are_more(
    url: str, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db.read.counts, "MAX_COUNTS", 2)
    monkeypatch.setattr(db.read.queries, "MAX_COUNTS", 2)
    call = call_id()
    await insert(
        url, call_record(call), *(tool_call_record(call, block=n, name=f"t{n}") for n in range(3))
    )
    told = (await client.get("/audit/counts?by=name")).json()
    assert ([item["name"] for item in told["items"]], told["truncated"]) == (["t0", "t1"], True)


def authenticate(headers: Iterable[tuple[bytes, bytes]]) -> Key | None:
    given_keys = {
        value.removeprefix(b"Bearer ")
        for name, value in headers
        if name in (b"authorization", b"x-api-key")
    }
    known = {
        b"aud": Key(name="a", sha256="0" * 64, roles=("auditor",)),
        b"cli": Key(name="c", sha256="1" * 64),
    }
    return next((known[text] for text in given_keys if text in known), None)


AUDITOR = {"x-api-key": "aud"}


@pytest.fixture
async def client(reader: AuditReader) -> AsyncIterator[httpx2.AsyncClient]:
    audit = AuditApi(reader, authenticate)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=audit.app), base_url="http://audit", headers=AUDITOR
    ) as opened:
        yield opened
    await audit.close()


ONE = "/audit/calls/01990000-0000-7000-8000-00000000abcd"
PATHS = [
    "/audit/calls",
    ONE,
    f"{ONE}/chunks",
    "/audit/calls/01990000",
    "/audit/counts",
    "/audit/usage",
    "/audit/tool-calls",
    "/audit/judge-blocks",
    "/audit/export",
]


@pytest.mark.case("A9", "C6")
@pytest.mark.parametrize("path", PATHS)
async def test_every_path_wants_the_role(client: httpx2.AsyncClient, path: str) -> None:
    for headers, status, code in (
        ({"x-api-key": "wrong"}, 401, "invalid_api_key"),
        ({"x-api-key": "cli"}, 403, "wrong_role"),
    ):
        answer = await client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()["error"]) == {"message", "type", "code", "param"}


async def test_without_an_authenticator_everything_is_refused(reader: AuditReader) -> None:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=AuditApi(reader).app), base_url="http://audit"
    ) as client:
        assert (await client.get("/audit/calls", headers={"x-api-key": "aud"})).status_code == 401


async def test_the_api_answers_pages_calls_chunks_and_export(
    url: str, client: httpx2.AsyncClient
) -> None:
    call = call_id()
    await insert(url, *whole_call(call, session="a\x00b"))
    await insert(url, tool_call_record(call, block=3, arguments=b"\xed\xa0\x80 \x00"))
    for path in ("/audit/calls", "/audit/tool-calls?verdict=block&limit=1", "/audit/judge-blocks"):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) == {"items", "next_cursor"}
        assert answer.json()["items"][0]["session"] == "a\x00b"
    assert b"\\ud800 \\u0000" in (await client.get("/audit/tool-calls")).content
    assert (await client.get(f"/audit/calls/{call}")).json()["call_id"] == call
    assert len((await client.get(f"/audit/calls/{call}/chunks?limit=2")).json()["items"]) == 2
    export = await client.get("/audit/export?session=a%00b")
    assert export.headers["content-type"].startswith("application/x-ndjson")
    assert json.loads(export.text.splitlines()[-1]) == {
        "type": "export_end",
        "calls": 1,
        "lines": 10,
    }


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/audit/calls?limit=many", 400, "limit"),
        ("/audit/export?limit=3", 400, "limit"),
        ("/audit/calls?cursor=AAAA", 400, "cursor"),
        ("/audit/calls/none", 404, None),
        (f"/audit/calls/{UUID(int=1)}", 404, None),
        (f"/audit/calls/{UUID(int=1)}/chunks", 404, None),
        ("/audit/calls/x/chunks?name=x", 404, None),
        ("/audit/nothing", 404, None),
        ("/docs", 404, None),
        ("/openapi.json", 404, None),
        ("/audit/calls?since=%27%3B+drop+table+calls", 400, "since"),
        ("/audit/calls?state=GONE", 400, "state"),
        ("/audit/tool-calls?state=FAILED", 400, "state"),
        ("/audit/calls/0199000", 400, "call_id"),
        ("/audit/calls/01990000", 404, "call_id"),
        ("/audit/calls?call_id=0199", 400, "call_id"),
        ("/audit/calls?call_id=01990-000-0", 400, "call_id"),
        ("/audit/counts?by=day,day", 400, "by"),
        ("/audit/counts?by=price", 400, "by"),
        ("/audit/counts?q=x", 400, "q"),
        ("/audit/usage?by=name", 400, "by"),
        ("/audit/usage?session=x", 400, "session"),
        ("/audit/usage?since=2000-01-01", 400, "since"),
    ],
)
async def test_bad_requests_are_told_what_is_wrong(
    client: httpx2.AsyncClient, path: str, status: int, param: str | None
) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)


@pytest.mark.slow
@pytest.mark.case("A6")
async def test_an_altered_cursor_is_refused_or_a_place(
    url: str, client: httpx2.AsyncClient
) -> None:
    for _ in range(3):
        await insert(url, *whole_call(call_id()))
    first = (await client.get("/audit/calls?limit=1")).json()
    cursor = first["next_cursor"]
    for at in range(len(cursor)):
        for letter in "A_z":
            answer = await client.get(
                "/audit/calls",
                params={"limit": 1, "cursor": cursor[:at] + letter + cursor[at + 1 :]},
            )
            assert answer.status_code in (200, 400), (at, letter, answer.text)
            if answer.status_code == 400:
                assert answer.json()["error"]["param"] == "cursor"
            else:
                assert set(answer.json()) == {"items", "next_cursor"}
    for other in (cursor[:-1], cursor * 2, "..", "%00", "'; DROP TABLE calls; --", "A" * 10_000):
        answer = await client.get("/audit/calls", params={"limit": 1, "cursor": other})
        assert answer.status_code == 400, (other, answer.text)
    again = (await client.get("/audit/calls", params={"limit": 1, "cursor": cursor})).json()
    assert again["items"][0]["call_id"] != first["items"][0]["call_id"]


@pytest.mark.slow
async def test_exports_that_are_read_slowly_leave_connections_for_questions(
    url: str, reader: AuditReader
) -> None:
    audit = AuditApi(reader, authenticate, within_s=1.0)
    async with AsyncExitStack() as closing, AsyncExitStack() as held:
        closing.push_async_callback(audit.close)
        for _ in range(MOST_EXPORTING):
            _ = await held.enter_async_context(reading(audit.exporting))
        transport = httpx2.ASGITransport(app=audit.app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://audit", headers=AUDITOR
        ) as client:
            answers = [
                (await client.get(f"/audit/{path}")) for path in ("calls", "export", "counts")
            ]
    assert [answer.status_code for answer in answers] == [200, 503, 200]
    assert answers[1].json()["error"]["code"] == "audit_unavailable"


@pytest.mark.slow
async def test_an_auditor_who_reads_exports_slowly_leaves_a_place_for_another(
    url: str, reader: AuditReader
) -> None:
    await insert(url, call_record(call_id()), bodies={})
    keys = {
        name: Key(name=name, sha256=digit * 64, roles=("auditor",))
        for name, digit in (("slow", "0"), ("other", "1"))
    }
    audit = AuditApi(
        reader, lambda headers: keys[dict(headers)[b"x-api-key"].decode()], within_s=2.0
    )
    statuses = list[int]()

    async def read_slowly() -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/audit/export",
            "raw_path": b"/audit/export",
            "query_string": b"",
            "headers": [(b"x-api-key", b"slow")],
        }

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                if message["status"] == 200:
                    await asyncio.Event().wait()

        await audit.app(scope, receive, send)

    transport = httpx2.ASGITransport(app=audit.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://audit") as client:

        async def export(key: str) -> int:
            return (await client.get("/audit/export", headers={"x-api-key": key})).status_code

        slow = [asyncio.create_task(read_slowly()) for _ in range(2 * MOST_EXPORTING)]
        await wait_until(lambda: statuses.count(200) == MOST_EXPORTING_OF_ONE)
        assert [await export("other") for _ in range(2)] == [200, 200]
        assert await export("slow") == 503
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert await export("slow") == 200, "its places are free again"
    await audit.close()


async def test_who_reads_is_on_record_before_content_is_sent(
    url: str, client: httpx2.AsyncClient
) -> None:
    one, two = sorted((call_id(), call_id()))
    await insert(url, *whole_call(one), *whole_call(two))
    asked = [
        "calls?limit=5",
        "tool-calls",
        f"calls/{one}",
        f"calls/{one}/chunks",
        f"export?call_id={one}",
    ]
    asked += ["counts", "reviews", "debug-logs", "calls/none"]
    for path in asked:
        assert (await client.get(f"/audit/{path}")).status_code in (200, 404)
    found = rows(url, "SELECT path, filters, key, key_id, call_ids, rows FROM reads ORDER BY at")
    both = [UUID(one), UUID(two)]
    shown = [
        ("calls", both, 2),
        ("tool-calls", both, 2),
        (f"calls/{one}", both[:1], 1),
        (f"calls/{one}/chunks", both[:1], 3),
    ]
    shown += [("export", both[:1], 0), ("reviews", [], 0), ("debug-logs", [], 0)]
    assert [
        (path.removeprefix("/audit/"), sorted(calls), number)
        for path, _, _, _, calls, number in found
    ] == shown
    assert found[0][1:3] == ("limit=5", "a") and len(found[0][3]) == 16
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("ALTER TABLE reads RENAME TO away")
    for path in asked[:5]:
        answer = await client.get(f"/audit/{path}")
        assert (
            answer.status_code == 503
            and one not in answer.text
            and "nothing is shown" in answer.text
        )


async def test_an_answer_of_many_calls_names_all_of_them(url: str) -> None:
    calls = [UUID(call_id()) for _ in range(2 * MAX_CALLS + 1)]
    engine = open_engine(url, read_only=False, answer_s=5.0, pool_size=1)
    try:
        await note(
            engine, PageRead("a", "k", "/debug/sessions/a/s", call_ids=calls, rows=len(calls))
        )
        await note(engine, PageRead("a", "k", "/debug/ledger"))
    finally:
        await engine.dispose()
    found = rows(url, "SELECT path, call_ids, rows FROM reads")
    of_calls = [row for row in found if row[1]]
    assert sorted(len(row[1]) for row in of_calls) == [1, MAX_CALLS, MAX_CALLS] and len(found) == 4
    assert {call for row in of_calls for call in row[1]} == set(calls) and {
        row[2] for row in of_calls
    } == {len(calls)}


async def test_items_that_go_before_they_are_read_are_left_out(
    url: str, reader: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [call_id() for _ in range(3)]
    await insert(url, *(record for call in calls for record in whole_call(call)))
    read = db.read.lists.whole_rows

    async def after_days_were_dropped(*args: Any) -> list[Any]:
        rows(url, "DELETE FROM tool_calls WHERE call_id = %s RETURNING 1", calls[1])
        return await read(*args)

    monkeypatch.setattr(db.read.queries, "whole_rows", after_days_were_dropped)
    page = await reader.tool_calls(parse_filters(given(limit=10), of="tool-calls"))
    assert {item["call_id"] for item in page["items"]} == {calls[0], calls[2]}
    monkeypatch.setattr(db.read.queries, "whole_rows", read)
    if page["next_cursor"] is not None:
        assert not await tool_names(reader, limit=10, cursor=page["next_cursor"])
