"""Pages of debug logs: lines in lists and on a call's page, what is missing, and switches."""

import asyncio
import re
import time
from html import unescape
from typing import Any
from uuid import UUID

import pytest

from db.debug_switches import DebugSwitches
from db.engine import open_engine
from db.seals.redact import redact
from db.write.debug_logs import DebugLogWriter
from db.write.insert import AuditInserter
from pages.page import Download, Page, SeeOther
from protocol.debug import DebugLine
from protocol.errors import InvalidRequest, NotFound
from streams import layout
from tests.support.checks.record import rows, whole_call
from tests.support.cpu import slowness
from tests.support.servers.asked import pages_of
from tests.support.waiting import watched

EVIL = "<script>alert(1)</script>\u202e"


async def store(url: str, call: str, *given: tuple[str, DebugLine]) -> None:
    writer = DebugLogWriter(url)
    assert await writer.open()
    await writer.store(given)
    await writer.close()


def line(call: str, n: int, kind: str, event: str, **fields: Any) -> DebugLine:
    return DebugLine(call, n, time.time_ns() // 1000 + n, kind, event, **fields)


async def test_a_calls_tab_has_its_lines_what_is_missing_and_where_chunks_part(
    url: str, call: str
) -> None:
    gateway, policy = "gateway g 1a2b", "policy w 3c4d"
    await store(
        url,
        call,
        (gateway, line(call, 1, "transport", "append", seq=1, number=9)),
        (policy, line(call, 2, "transport", "read", seq=1, number=5)),
        (
            policy,
            line(
                call,
                20,
                "policy",
                "called",
                block=1,
                policy="rules",
                hook="on_text",
                detail=f"in 3\nin: {EVIL}".encode(),
            ),
        ),
        (
            policy,
            line(call, 21, "endpoint", "chunks", seq=1, number=5, detail=b"x\n" + b"y" * 5_000),
        ),
    )
    async with pages_of(url, {}) as pages:
        shown = await pages.page(f"/debug/calls/{call}/hooks")
        values = shown.values
        assert [one.get("lost", one.get("event")) for one in values["items"]] == [
            "append",
            1,
            "read",
            17,
            "called",
            "chunks",
        ]
        assert "17 lines lost" in shown.html and "stops at 5" in shown.html and values["lost"] == 18
        places = {row["place"]: (row["upto"], row["parts_at"]) for row in values["totals"]}
        assert (
            places["gateway wrote"] == (9, None)
            and places["worker read"] == (5, 5)
            and places["client was sent"] == (None, None)
        )
        assert (
            "<script>alert" not in shown.html
            and "\u202e" not in shown.html
            and "on_text" in shown.html
        )
        assert "the beginning" in shown.html and shown.html.count("y" * 100) == 11
        # whole behind its link, and never so that a browser could take it for a page
        [whole] = [
            unescape(to)
            for to in re.findall(r'href="([^"]*/hooks/raw[^"]*)">All 5.0 kB<', shown.html)
        ]
        assert await pages.file(whole) == b"x\n" + b"y" * 5_000
        told, _ = await pages.answer(whole)
        assert isinstance(told, Download) and told.media_type.startswith("text/plain")
        assert told.shown is not None and [str(one) for one in told.shown.call_ids] == [call]
        for absent in (
            whole.replace("n=21", "n=22"),
            f"{whole}0",
            whole.partition("?")[0] + "?n=21",
        ):
            with pytest.raises(NotFound):
                await pages.answer(absent)
        missing = "The last lines of the policy worker are missing"
        assert missing in shown.html
        await store(url, call, (policy, line(call, 22, "endpoint", "end", detail=b"1 chunks in")))
        assert missing not in (await pages.page(f"/debug/calls/{call}/hooks")).html
        of_type = await pages.page(f"/debug/calls/{call}/hooks?type=policy")
        assert [one["event"] for one in of_type.values["items"] if "n" in one] == ["called"]
        answer, _ = await pages.answer(f"/debug/calls/{call[:13]}/hooks?type=policy")
        assert (
            isinstance(answer, SeeOther) and answer.to == f"/debug/calls/{call}/hooks?type=policy"
        )
        with pytest.raises(InvalidRequest, match="must be one of"):
            await pages.page(f"/debug/calls/{call}/hooks?type=sql")
        with pytest.raises(NotFound):
            await pages.page(f"/debug/calls/{layout.new_call_id()}/hooks")


async def test_a_call_without_lines_says_why_and_many_lines_have_pages(url: str, call: str) -> None:
    async with pages_of(url, {}) as pages:
        empty = await pages.page(f"/debug/calls/{call}/hooks")
        assert "No debug lines of this call" in empty.html and "x-sluice-debug" in empty.html
        assert "The log was off for this key when the call began" in empty.html
        await store(
            url,
            call,
            *(("policy w 3c4d", line(call, n, "policy", "called")) for n in range(1, 402)),
        )
        last = await pages.page(f"/debug/calls/{call}/hooks?page=3")
        assert [one["n"] for one in last.values["items"]] == [401] and "Page 3 of 3" in last.html
        first = await pages.page(f"/debug/calls/{call}/hooks")
        assert (
            len(first.values["items"]) == 200
            and first.page.shown is not None
            and first.page.shown.rows == 200
        )


@pytest.mark.slow
async def test_many_lines_of_a_call_hold_no_other_reader_up(url: str, call: str) -> None:
    """Of 50,000, which are read at most, the loop did nothing else for 1.3 s."""
    await store(
        url, call, *(("policy w 3c4d", line(call, n, "policy", "called")) for n in range(1, 49_001))
    )
    async with pages_of(url, {}) as pages, watched() as loop:
        answer, _ = await pages.answer(f"/debug/calls/{call}/hooks?page=245")
    assert (
        isinstance(answer, Page)
        and answer.values["items"][-1]["n"] == 49_000
        and answer.values["pager"]["pages"] == 245
    )
    assert loop.longest_s < 0.25 * slowness()


async def test_a_call_whose_lines_went_says_why(url: str) -> None:
    old, redacted = "01990000-0001-7000-8000-00000000abcd", layout.new_call_id()
    async with AuditInserter(url) as inserter:
        for one in (old, redacted):
            assert not await inserter.insert(whole_call(one), {one: b"{}"})
    await asyncio.to_thread(redact, url, UUID(redacted), "asked for")
    async with pages_of(url, {}) as pages:
        assert (
            "Lines are kept for 3 days, and this call is older"
            in (await pages.page(f"/debug/calls/{old}/hooks")).html
        )
        assert "The call was redacted" in (await pages.page(f"/debug/calls/{redacted}/hooks")).html


async def test_lists_of_lines_have_filters_pages_and_types(url: str, call: str) -> None:
    async with pages_of(url, {"debug": {"loggers": ["policy"], "keys": ["dev"]}}) as pages:
        empty = await pages.page("/debug/logs")
        assert (
            "No lines yet" in empty.html
            and "for the keys" in empty.html
            and empty.page.shown is None
        )
        await store(
            url,
            call,
            *(
                (
                    "policy w 3c4d",
                    line(call, n, "policy", "called", detail=b"needle" if n == 7 else b""),
                )
                for n in range(1, 8)
            ),
            ("gateway g 1a2b", line(call, 1, "callback", "head")),
        )
        # of a call of its own, which is older
        other = str(UUID(int=UUID(call).int - (1 << 80)))
        await store(
            url, other, ("policy w 3c4d", line(other, 1, "endpoint", "claim", detail=b"needle"))
        )
        newest = await pages.page("/debug/logs?limit=1")
        assert (
            "needle" not in repr(newest.values["types"])
            and [bool(one["newest"]) for one in newest.values["types"]].count(True) == 3
        )
        assert newest.page.shown is not None and set(newest.page.shown.call_ids) == {
            UUID(call),
            UUID(other),
        }
        shown = await pages.page("/debug/logs?limit=3")
        assert (
            len(shown.values["items"]) == 3 and "newest" in (await pages.page("/debug/logs")).html
        )
        older = await pages.page(shown.values["pager"]["older"])
        assert {one["n"] for one in older.values["items"]}.isdisjoint(
            {one["n"] for one in shown.values["items"] if one["role"] == "policy"}
        )
        of_type = await pages.page("/debug/callback")
        assert [one["event"] for one in of_type.values["items"]] == ["head"]
        assert [
            one["n"] for one in (await pages.page("/debug/policy?q=needle")).values["items"]
        ] == [7]
        assert "Nothing matches" in (await pages.page("/debug/policy?q=nothing")).html
        answer, _ = await pages.answer("/debug/policy?since=-15m")
        assert isinstance(answer, SeeOther) and "since=2" in answer.to
        for query in ("limit=201", "model=x", "cursor=x"):
            with pytest.raises(InvalidRequest):
                await pages.page(f"/debug/logs?{query}")


@pytest.mark.slow
async def test_switches_have_bounds_and_the_newest_of_a_key_counts(url: str) -> None:
    engine = open_engine(url, read_only=False)
    switches = DebugSwitches(engine)
    await switches.add("dev", ["policy"], 15, content=True, by="kim")
    await switches.add("dev", ["policy", "endpoint"], 15, content=False, by="lee")
    [one] = await switches.active()
    assert (one["key"], one["loggers"], one["content"], one["by"]) == (
        "dev",
        ["policy", "endpoint"],
        False,
        "lee",
    )
    for key, loggers, minutes in (
        ("", ["policy"], 5),
        ("x" * 65, ["policy"], 5),
        ("dev", ["sql"], 5),
        ("dev", ["policy"], 61),
    ):
        with pytest.raises(InvalidRequest):
            await switches.add(key, loggers, minutes, content=False, by="kim")
    async with pages_of(url, {}) as pages:
        assert "policy, endpoint" in (await pages.page("/debug/logs")).html
    await switches.add("dev", [], 0, content=False, by="kim")
    assert await switches.active() == []
    for n in range(10):
        await switches.add(f"key-{n}", ["policy"], 5, content=False, by="kim")
    with pytest.raises(InvalidRequest, match="10 keys"):
        await switches.add("another", ["policy"], 5, content=False, by="kim")
    await switches.add("key-3", ["callback"], 5, content=False, by="kim")
    rows(url, "UPDATE debug_switches SET until = now() - interval '1 s' RETURNING 1")
    assert await switches.active() == []
    await engine.dispose()
