"""The live view through the product: a call is followed while it runs, by a bounded number of
viewers, and nothing is left behind."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
import redis

from pages.call.tail import (
    BATCH,
    FEW,
    MANY_BYTES,
    MOST_OF_LOGIN,
    MOST_VIEWERS,
    UNSENT_BYTES,
    LiveTail,
    Viewer,
    next_count,
)
from pages.views.live import PART, parts
from protocol.errors import RateLimited, StreamConnectionLost
from protocol.records import EndRecord, EventRecord, encode_records
from streams import layout
from streams.layout import BLOB, Entry
from tests.support.checks.logins import log_in, rename
from tests.support.checks.record import rows
from tests.support.clients.followed_call import Call
from tests.support.json_values import Json
from tests.support.servers.least import guarded_server, url_of
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

CALL = "01a20a86-69b6-7fcf-abde-7a9c0afc5c00"
Event = tuple[str, str, Json]


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores, base_config() | {"demo": True}) as made:
        made.start("pages")
        yield made


def events(answer: httpx.Response) -> Iterator[Event]:
    """The events of a stream: name, id and data."""
    place = name = ""
    for line in answer.iter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            place = value
        elif field == "event":
            name = value
        elif field == "data":
            yield name, place, json.loads(value)


def ended(call_id: str, reason: str) -> EndRecord:
    return EndRecord(call_id=call_id, at=1, state="ENDED", reason=reason, status=200)


@contextlib.contextmanager
def following(reader: httpx.Client, call_id: str, after: str = "") -> Iterator[httpx.Response]:
    with reader.stream(
        "GET", f"/debug/calls/{call_id}/events{after and f'?after={after}'}"
    ) as answer:
        yield answer


@pytest.mark.slow
def test_a_held_tool_call_is_seen_and_then_its_verdict(product: Product) -> None:
    words: list[str] = []
    texts: dict[int, str] = {}
    kept = ended = got = ""
    with contextlib.closing(log_in(product, KEY)) as reader:
        call = Call(product, "slowly with gap 500 ms delete everything with rm -rf")
        page = reader.get(f"/debug/calls/{call.id}/live")
        assert (
            page.status_code == 200
            and f'data-live="/debug/calls/{call.id}/events"' in page.text
            and "<noscript>" in page.text
        )
        with following(reader, call.id) as answer:
            assert (
                answer.status_code == 200 and answer.headers["content-type"] == "text/event-stream"
            )
            for name, place, data in events(answer):
                for one in data.get("blocks", ()):
                    texts[one["b"]] = texts.get(one["b"], "") + one.get("add", "")
                    words += [one["word"]] if one["b"] == 1 and one["word"] not in words else []
                    got += one.get("got", "")
                # half of the first text is on the screen here
                kept, ended = kept or (place if texts.get(0) else ""), name
        assert ended == "end" and words == ["‖ HELD", "✗ BLOCKED"]
        assert (
            texts == {0: "Let me do that.", 1: '{"command": "rm -rf /"}'}
            and "Sluice blocked" in got
        )
        # later: what a browser did not have, then the end
        with following(reader, call.id, kept) as answer:
            rest = "".join(
                one.get("add", "")
                for _, _, data in events(answer)
                for one in data.get("blocks", ())
                if one["b"] == 0
            )
        assert texts[0].endswith(rest) and len(rest) < len(texts[0])
        wait_for(lambda: "has ended" in reader.get(f"/debug/calls/{call.id}/live").text)
        call.stop()


@pytest.mark.slow
def test_a_login_has_five_live_views_and_nothing_is_left_of_them(
    product: Product, redis_url: str
) -> None:
    call = Call(product, "slowly with gap 20 ms, long 900")
    with (
        contextlib.closing(log_in(product, KEY)) as reader,
        contextlib.ExitStack() as views,
        redis.Redis.from_url(redis_url) as client,
    ):
        # a generator that is let go of closes its answer
        seen = [
            events(views.enter_context(following(reader, call.id))) for _ in range(MOST_OF_LOGIN)
        ]
        assert [next(one)[0] for one in seen] == ["frame"] * MOST_OF_LOGIN
        with following(reader, call.id) as sixth:
            assert sixth.status_code == 429 and "close one" in sixth.read().decode()
        with contextlib.closing(log_in(product, KEY)) as other, following(other, call.id) as answer:
            assert answer.status_code == 200
        assert "pages-tail" in {one["name"] for one in client.client_list()}
        views.close()
        wait_for(
            lambda: (
                not {one["name"] for one in client.client_list()} & {"pages-tail", "pages-heard"}
            )
        )
        with following(reader, call.id) as again:
            assert again.status_code == 200
    call.stop()


@pytest.mark.slow
def test_a_redis_that_says_nothing_is_told_and_nothing_is_missed_by_it(
    product: Product, redis_url: str
) -> None:
    texts, lost, last, out = "", Json(), "", 0
    with (
        contextlib.closing(log_in(product, KEY)) as reader,
        redis.Redis.from_url(redis_url) as client,
    ):
        call = Call(product, "slowly with gap 50 ms, long 150")
        with following(reader, call.id) as answer:
            for name, _, data in events(answer):
                texts += "".join(one.get("add", "") for one in data.get("blocks", ()))
                if name == "frame" and "word20" in texts and not lost:
                    client.execute_command("CLIENT", "PAUSE", 3500)
                    lost = {"since": 0}
                elif name == "lost" and not lost["since"]:
                    lost = data
                    assert reader.get("/debug/calls").status_code == 200, (
                        "the record is there all the same"
                    )
                last = name
                out = next((one["out"] for one in data.get("blocks", ())), out)
        assert (
            last == "end"
            and lost["since"]
            and texts.split()[:150] == [f"word{n}" for n in range(1, 151)]
            and out == len(texts)
        )
        call.stop()


def test_what_nobody_takes_is_a_gap() -> None:
    viewer = Viewer(CALL, "login")
    viewer.put_entry(b"x" * UNSENT_BYTES)
    assert (viewer.is_over, len(viewer.take()[0])) == (False, 1)
    for size in (UNSENT_BYTES, 1):
        viewer.put_entry(b"x" * size)
    assert (viewer.is_over, viewer.take()) == (True, ([], []))


async def test_the_rights_of_pages_are_enough_to_follow_a_call(tmp_path: Path) -> None:
    call_id = layout.new_call_id()
    with guarded_server(tmp_path) as admin, redis.Redis.from_url(admin) as client:
        client.xadd(layout.audit_key(0), {"b": b"x"})
        client.xgroup_create(layout.audit_key(0), layout.AUDIT_GROUP, "$")
        live = LiveTail(url_of("sluice_pages", admin))
        async with live.watch(call_id, "login") as viewer:
            assert (
                await live.start_of(call_id) is None and await live.entries_from(call_id, 1) == []
            )
            assert await live.recorded(viewer) == [] and await live.committed(0) > (0, 0)
            client.publish(layout.chunk_channel(call_id), b"said")
            client.xadd(
                layout.audit_key(0),
                {
                    "b": encode_records(
                        [EventRecord(call_id=call_id, kind="x", number=1, at=1, detail="")]
                    )
                },
            )
            async with asyncio.timeout(5):
                while not (viewer.entries and viewer.records):
                    await viewer.news.wait()
                    viewer.news.clear()
            assert viewer.take()[0] == [b"said"]


def test_what_is_larger_than_all_that_may_wait_is_read_and_no_gap() -> None:
    viewer = Viewer(CALL, "login")
    viewer.put_entry(b"x" * (UNSENT_BYTES + 1))
    assert (viewer.is_over, viewer.missed, viewer.take()) == (False, True, ([], []))


def test_what_others_say_of_a_call_is_not_of_it() -> None:
    viewer = Viewer(CALL, "login")
    other = ended("01a20a86-69b6-7fcf-abde-7a9c0afc5c01", CALL * (UNSENT_BYTES // 18))
    viewer.put_records((1, 0), encode_records([other]))
    assert (viewer.is_over, viewer.missed, viewer.take()) == (False, False, ([], []))
    own = ended(CALL, "complete")
    for n in (1, 20, 1000):
        viewer.put_records((n, 0), encode_records([own] * n))
    assert [len(records) for _, records in viewer.take()[1]] == [1, 20, 1000]


def test_large_entries_are_read_a_few_at_once() -> None:
    small, large = [(b"1-0", [BLOB, b"x"])], [(b"1-0", [BLOB, b"x" * (MANY_BYTES + 1)])]
    assert [next_count(FEW, small), next_count(BATCH, small), next_count(BATCH, large)] == [
        2 * FEW,
        BATCH,
        FEW,
    ]


def test_an_entry_of_many_chunks_is_taken_in_parts() -> None:
    chunks = [b"%d" % n for n in range(2 * PART + 1)]
    found = list(parts(Entry(7, 1, "chunks", chunks)))
    assert [one.seq for one in found] == [7, 7 + PART, 7 + 2 * PART] and [
        raw for one in found for raw in one.chunks
    ] == chunks
    assert [one.next_seq for one in found[:2]] == [one.seq for one in found[1:]]
    assert list(parts(closed := Entry(7, 1, "closed", [], 0, "complete"))) == [closed]


async def test_a_process_has_twenty_viewers(redis_url: str) -> None:
    live = LiveTail(redis_url)
    async with contextlib.AsyncExitStack() as views:
        for n in range(MOST_VIEWERS):
            await views.enter_async_context(live.watch(CALL, f"login {n // MOST_OF_LOGIN}"))
        with pytest.raises(RateLimited, match="20 live views are open"):
            async with live.watch(CALL, "another"):
                pass
    assert live.viewers == []


@pytest.mark.slow
def test_a_call_that_never_was_is_not_followed(product: Product) -> None:
    before = rows(product.database_url, "SELECT count(*) FROM reads")
    with contextlib.closing(log_in(product, KEY)) as reader:
        for path in ("live", "events"):
            assert (
                reader.get(f"/debug/calls/00000000-0000-0000-0000-000000000000/{path}").status_code
                == 404
            )
    assert rows(product.database_url, "SELECT count(*) FROM reads") == before


@pytest.mark.slow
def test_a_call_is_followed_before_it_is_on_record(product: Product) -> None:
    writers = product.of("audit")
    for writer in writers:
        writer.kill(signal.SIGSTOP)
    try:
        call = Call(product, "slowly with gap 50 ms, long 40")
        with contextlib.closing(log_in(product, KEY)) as reader:
            page = reader.get(f"/debug/calls/{call.id}/live")
            assert page.status_code == 200 and "not on record yet" in page.text
            assert f'data-live="/debug/calls/{call.id}/events"' in page.text
            assert reader.get(f"/debug/calls/{call.id}").status_code == 404
            with following(reader, call.id) as answer:
                assert any(
                    "word5" in one.get("add", "")
                    for _, _, data in events(answer)
                    for one in data.get("blocks", ())
                )
    finally:
        for writer in writers:
            writer.kill(signal.SIGCONT)
    call.stop()


@pytest.mark.slow
def test_a_stream_is_cut_without_a_traceback_when_its_login_cannot_be_looked_for(
    product: Product,
) -> None:
    before = product.logs().count("Traceback")
    call = Call(product, "slowly with gap 50 ms, long 300")
    with contextlib.closing(log_in(product, KEY)) as reader:
        with following(reader, call.id) as answer:
            seen = events(answer)
            assert next(seen)[0] == "frame"
            rename(product, "page_sessions", "away")
            try:
                with contextlib.suppress(httpx.TransportError):
                    assert "end" not in {name for name, _, _ in seen}
                assert (
                    reader.get(
                        f"/debug/calls/{call.id}/events", headers={"accept": "application/json"}
                    ).status_code
                    == 503
                )
            finally:
                rename(product, "away", "page_sessions")
    wait_for(lambda: "a page was cut off" in product.logs())
    assert product.logs().count("Traceback") == before
    call.stop()


@pytest.mark.slow
async def test_without_redis_nobody_watches_and_the_place_is_free_again() -> None:
    live = LiveTail("redis://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(StreamConnectionLost):
        async with live.watch(CALL, "login"):
            pass
    assert live.viewers == [] and time.monotonic() - began < 10
