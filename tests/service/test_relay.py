"""A gateway's relay with several requests upstream in one call, on a real Valkey and a real HTTP
upstream; the worker's part is played."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from gateway.relay import ClientGone
from protocol.bounds import MAX_KEPT_HEADS
from protocol.errors import StreamProtocolError
from settings.config import Upstream
from settings.limits import Limits
from streams.layout import Dispatch, Entry
from tests.support.servers.relay_place import ends, opened
from tests.support.upstreams.replay import Replay, replaying, stream
from tests.support.upstreams.replay import Reply as Answer

FIRST, SECOND = b"event: a\ndata: 1\n\n", b"event: b\ndata: 2\n\n"


@pytest.fixture(scope="module")
def upstream() -> Iterator[Replay]:
    with replaying() as server:
        yield server


def answers(count: int) -> Callable[[list[Entry]], bool]:
    """Are there `count` entries with chunks?"""
    return lambda entries: sum(e.kind == "chunks" for e in entries) == count


async def test_a_second_request_is_sent_in_one_call_and_its_answer_follows_the_first(
    redis_url: str, upstream: Replay
) -> None:
    upstream.answer(stream(FIRST), stream(SECOND))
    async with opened(redis_url, upstream) as place:
        place.dispatch(None)
        await place.entries(ends(1))
        place.dispatch(b'{"second": 2}')
        entries = await place.entries(ends(2))
        assert [(e.seq, e.kind, e.chunks) for e in entries] == [
            (1, "chunks", [FIRST]),
            (2, "eof", []),
            (3, "chunks", [SECOND]),
            (4, "eof", []),
        ]
        assert [a.raw for a in upstream.asked] == [b'{"first": 1}', b'{"second": 2}']
        assert place.call.body == b""
        place.reply(
            status=200, headers={"content-type": "text/event-stream"}, data=b"done", end="complete"
        )
        await asyncio.wait({place.task}, timeout=5)
        assert place.relay.complete
        assert [m.get("body") for m in place.sent] == [None, b"done"]


async def test_whole_bodies_follow_each_other_too(redis_url: str, upstream: Replay) -> None:
    upstream.answer(Answer(b'{"a": 1}'), Answer(b'{"b": 2}'))
    async with opened(redis_url, upstream) as place:
        place.dispatch(b"{}")
        await place.entries(ends(1))
        place.dispatch(b"{}")
        assert [e.chunks for e in await place.entries(ends(2))] == [[b'{"a": 1}'], [b'{"b": 2}']]


async def test_the_clients_own_body_is_never_sent_twice(redis_url: str, upstream: Replay) -> None:
    upstream.answer(stream(FIRST))
    async with opened(redis_url, upstream) as place:
        place.dispatch(None)
        await place.entries(ends(1))
        place.dispatch(None)
        await asyncio.wait({place.task}, timeout=5)
        assert isinstance(place.call.order.error, StreamProtocolError)
        assert len(upstream.asked) == 1


async def test_a_client_that_goes_away_cancels_the_request_under_way(
    redis_url: str, upstream: Replay
) -> None:
    for before in (0, 1):
        upstream.answer(*[stream(FIRST)] * before, stream(SECOND, ending="hang"))
        async with opened(redis_url, upstream) as place:
            for number in range(before + 1):
                place.dispatch(b"{}")
                await place.entries(answers(number + 1))
            place.call.fail(ClientGone("gone"))
            await asyncio.wait({place.task}, timeout=5)
            running = place.relay._upstream
            assert running is not None and not running.done()
            await place.relay.stop_upstream()
            assert running.cancelled()
            assert not place.relay.complete


async def test_the_time_to_the_first_byte_begins_anew(redis_url: str, upstream: Replay) -> None:
    upstream.answer(stream(FIRST + SECOND, cutting="events", gap_s=0.7), stream(SECOND))
    async with opened(redis_url, upstream, limits=Limits(first_byte_s=1.0, idle_s=1.0)) as place:
        place.dispatch(b"{}")
        await place.entries(ends(1))
        place.dispatch(b"{}")
        assert [e.kind for e in await place.entries(ends(2)) if e.kind != "chunks"] == [
            "eof",
            "eof",
        ]
        upstream.answer(stream(FIRST, ending="hang"))
        place.dispatch(b"{}")
        assert (await place.entries(ends(3)))[-1].text == "upstream_timeout"


async def test_what_upstream_may_send_is_counted_over_all_requests_of_a_call(
    redis_url: str, upstream: Replay
) -> None:
    upstream.answer(stream(FIRST * 10))
    async with opened(redis_url, upstream, limits=Limits(output_bytes=len(FIRST) * 15)) as place:
        place.dispatch(b"{}")
        await place.entries(ends(1))
        place.dispatch(b"{}")
        assert [(e.kind, e.text) for e in await place.entries(ends(2)) if e.kind != "chunks"] == [
            ("eof", ""),
            ("failed", "upstream_too_large"),
        ]


async def test_betas_join_the_operators_and_go_to_the_messages_dialect_alone(
    redis_url: str, upstream: Replay
) -> None:
    upstream.answer(Answer(b"{}"))
    async with opened(redis_url, upstream) as place:
        place.dispatch(b"{}", "web-fetch-2025-09-10", "own-2")
        await place.entries(ends(1))
        place.dispatch(b"{}")
        await place.entries(ends(2))
        place.reply(dispatch=Dispatch("openai", "openai", "chat", b"{}", ("web-fetch-2025-09-10",)))
        await place.entries(ends(3))
        assert [a.headers.get("anthropic-beta") for a in upstream.asked] == [
            "own-1,own-2,web-fetch-2025-09-10",
            "own-1, own-2",
            None,
        ]


async def test_a_call_whose_stream_redis_lost_ends_and_its_stream_is_not_begun_anew(
    redis_url: str, upstream: Replay
) -> None:
    upstream.answer(stream(FIRST + SECOND))
    async with opened(redis_url, upstream) as place:
        await place.bus.redis.call("DEL", place.call.appender.stream_key)
        place.dispatch(None)
        async with asyncio.timeout(10):
            await place.task
        assert (
            place.call.order.error is not None
            and place.call.order.error.error_code == "stream_lost"
        )
        assert await place.bus.redis.call("EXISTS", place.call.appender.stream_key) == 0


async def test_upstream_is_not_read_on_while_redis_does_not_answer(
    redis_url: str, upstream: Replay
) -> None:
    upstream.answer(stream(b"event: a\ndata: %s\n\n" % (b"x" * 16_000) * 1000))
    limits = Limits(unsent_bytes=256 * 1024)
    async with opened(redis_url, upstream, limits=limits) as place:
        await place.bus.redis.call("CLIENT", "PAUSE", 1500, "WRITE")
        place.dispatch(None)
        await place.entries(lambda found: bool(found))
        # the mark, and what one read brought past it
        assert limits.unsent_bytes < place.call.flow._received_bytes < limits.unsent_bytes + 2**20


async def test_secrets_of_configured_headers_are_not_in_what_an_upstream_says_of_them(
    redis_url: str, upstream: Replay
) -> None:
    said = (
        b'{"error": {"message": "Bearer sk-of-4711, sk-of-4711 and hunter2-hunter2 of seven are'
        b' wrong, text/plain-or-not"}}'
    )
    upstream.answer(Answer(said, status=401))
    async with opened(redis_url, upstream) as place:
        place.reply(dispatch=Dispatch("openai", "openai", "chat", b"{}"))
        (entry,) = await place.entries(ends(1))
        assert entry.chunks == [
            b'{"error": {"message": "[key], [key] and [key] of seven are wrong,'
            b' text/plain-or-not"}}'
        ]
        assert upstream.asked[0].headers["x-proxy-token"] == "hunter2-hunter2"


async def test_sets_of_betas_do_not_add_up(redis_url: str, upstream: Replay) -> None:
    async with opened(redis_url, upstream) as place:
        upstreams = place.upstreams
        for number in range(3 * MAX_KEPT_HEADS):
            _, head = upstreams._head(
                Dispatch("anthropic", "anthropic", "messages", None, (f"beta-{number}",))
            )
            assert b"anthropic-beta: own-1,own-2,beta-%d\r\n" % number in head
            assert len(upstreams._heads) <= MAX_KEPT_HEADS


LIMITS = {"anthropic-ratelimit-unified-status": "rejected", "x-ratelimit-remaining-requests": "0"}
TOLD = {"x-should-retry": "false", "retry-after-ms": "1500"}


@pytest.mark.parametrize(("status", "shows_limits"), [(429, False), (429, True), (200, True)])
async def test_a_client_is_told_what_the_upstream_says_of_asking_again(
    redis_url: str, upstream: Replay, *, status: int, shows_limits: bool
) -> None:
    wrong = {
        "x-should-retry-all": "false",
        "x-ratelimit-": "1",
        "set-cookie": "a=b",
        "anthropic-organization-id": "1",
    }
    upstream.answer(Answer(b"{}", status=status, headers=TOLD | LIMITS | wrong))
    provider = Upstream(dialect="anthropic", base_url=upstream.url, limit_headers=shows_limits)
    async with opened(redis_url, upstream, upstreams={"anthropic": provider}) as place:
        place.dispatch(None)
        await place.entries(
            lambda entries: any(entry.kind in ("status", "body") for entry in entries)
        )
        place.reply(
            status=status, headers={"content-type": "application/json"}, data=b"{}", end="complete"
        )
        await place.task
    got = {name.decode(): value.decode() for name, value in place.sent[0]["headers"]}
    expected = (TOLD if status != 200 else {}) | (LIMITS if shows_limits else {})
    assert {name: value for name, value in got.items() if name in TOLD | LIMITS | wrong} == expected


@pytest.mark.parametrize(
    "content_type", ["TEXT/Event-Stream", "text/plain", "application/octet-stream", ""]
)
async def test_a_stream_is_known_by_its_first_bytes(
    redis_url: str, upstream: Replay, content_type: str
) -> None:
    upstream.answer(Answer(b"\ndata: 1\n\ndata: 2\n\n", content_type=content_type, cutting="bytes"))
    async with opened(redis_url, upstream) as place:
        place.dispatch(None)
        entries = await place.entries(
            lambda entries: any(entry.kind in ("eof", "body", "failed") for entry in entries)
        )
    assert [chunk for entry in entries for chunk in entry.chunks if chunk.strip()] == [
        b"data: 1\n\n",
        b"data: 2\n\n",
    ]
    assert upstream.asked[-1].headers["user-agent"] == "sluice"
