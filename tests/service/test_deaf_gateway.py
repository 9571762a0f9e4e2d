"""A gateway reads its replies on a real Redis: whatever becomes of ids or of bytes, it goes on
hearing, or says that it does not."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from gateway.bus import Bus
from gateway.call.calls import OpenCall
from gateway.heartbeat import BEAT_S
from gateway.ready_and_metrics import Status
from protocol.dialects.table import CLIENTS
from settings.limits import Limits
from streams import layout
from streams.gateways import gateway_faults
from streams.layout import Reply
from tests.support.servers.proxy import proxied
from tests.support.waiting import wait_until


class Ears:
    """A running gateway's bus, with one call that waits for replies; workers are played by
    `store`."""

    def __init__(self, bus: Bus, store: Any) -> None:
        self.bus, self.store = bus, store
        self.key, self.gateway_key = (
            layout.reply_key(0, bus.gateway),
            layout.gateway_key(0, bus.gateway),
        )
        self.call = OpenCall(
            layout.new_call_id(),
            CLIENTS["openai"],
            b"",
            activity_s=30,
            deadline=time.monotonic() + 60,
        )
        bus.calls[self.call.id] = self.call
        self._number = 0

    def reply(self, entry: str = "*") -> int:
        """Release the next number; returns the one after it, which the call then expects."""
        number, self._number = self._number, self._number + 1
        self.store.xadd(
            self.key, {"b": layout.pack(Reply(self.call.id, number, number + 1))}, id=entry
        )
        self.store.pexpire(self.key, 600_000)
        return self._number

    async def hears(self, entry: str = "*") -> None:
        """What is released now is heard, and no number before it is missing."""
        wanted = self.reply(entry)
        await wait_until(
            lambda: self.call.order.expected == wanted, timeout_s=8, what="the reply is heard"
        )
        assert self.call.order.error is None

    def ahead(self, seconds: float = 3600) -> str:
        """An id as it is given while the clock is so far ahead (behind: below 0)."""
        clock: Any = self.store.time()
        return f"{layout.time_ms(clock) + int(seconds * 1000)}-0"

    async def ready(self) -> str:
        return (await Status(self.bus).ready(draining=False))[1]


@asynccontextmanager
async def running(
    redis_url: str, through: str = "", *, strict: bool = False
) -> AsyncIterator[Ears]:
    with Redis.from_url(redis_url) as store:
        store.flushall()
        bus = Bus(
            through or redis_url, layout.new_call_id(), Limits(redis_silent_s=2.0), 1, strict=strict
        )
        await bus.open()
        task = asyncio.create_task(bus.run())
        try:
            yield Ears(bus, store)
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.wait({task})
            await bus.close()


async def beats(store: Any, ears: Ears, count: int = 2) -> None:
    """So many heartbeats from now on."""
    for _ in range(count):
        store.delete(ears.gateway_key)
        await wait_until(
            lambda: bool(store.exists(ears.gateway_key)), timeout_s=5, what="a heartbeat"
        )


@pytest.mark.slow
async def test_replies_are_heard_after_redis_clock_was_an_hour_ahead_and_the_stream_expired(
    redis_url: str,
) -> None:
    async with running(redis_url) as ears:
        await ears.hears()
        await ears.hears(ears.ahead())
        # the clock is right again: ids go on where they were
        await ears.hears()
        await beats(ears.store, ears)
        ears.store.delete(ears.key)
        await beats(ears.store, ears)
        assert ears.store.get(ears.gateway_key) == b"0-0", "or workers trim what was not read"
        for _ in range(3):
            await ears.hears()


async def test_replies_are_heard_of_a_redis_that_came_back_empty_with_its_clock_behind(
    redis_url: str,
) -> None:
    async with running(redis_url) as ears:
        await ears.hears()
        ears.store.flushall()
        # at once, and before the next heartbeat
        await ears.hears(ears.ahead(-20))
        await ears.hears(ears.ahead(-19))
        assert not ears.bus.trouble


async def test_a_stream_set_back_under_the_gateway_is_read_from_the_beginning(
    redis_url: str,
) -> None:
    async with running(redis_url) as ears:
        await ears.hears(ears.ahead())
        ears.store.xtrim(ears.key, maxlen=0)
        ears.store.execute_command("XSETID", ears.key, ears.ahead(-3600))
        await ears.hears()


async def altered_once(redis_url: str, change: Callable[[bytes], bytes]) -> None:
    """One answer with a reply is altered on its way; the calls go on."""
    with proxied(redis_url) as proxy:
        changed = list[bytes]()

        def once(data: bytes) -> bytes:
            if changed or b"reply:" not in data or (altered := change(data)) == data:
                return data
            changed.append(data)
            return altered

        async with running(redis_url, proxy.url(redis_url)) as ears:
            await ears.hears()
            proxy.alter_replies(once)
            await ears.hears()
            assert changed
            for _ in range(3):
                await ears.hears()


def in_id(new: bytes) -> Callable[[bytes], bytes]:
    """Put other bytes in place of the first digits of an entry's id."""
    return lambda data: re.sub(
        rb"(\$\d+\r\n)\d{%d}(\d+-\d+\r\n)" % len(new), rb"\g<1>" + new + rb"\g<2>", data, count=1
    )


@pytest.mark.parametrize("new", [b"9", b"0", b"x", b"\xff", b"99999", b"\xff\xfe\xfd"])
async def test_one_altered_reply_id_costs_a_moment(redis_url: str, new: bytes) -> None:
    await altered_once(redis_url, in_id(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"*1\r\n*2", b"*1\r\n*1"),
        (b"*1\r\n*2", b"*1\r\n:2"),
        (b"*1", b":1"),
        (b"*1", b"-1"),
        (b"*1", b"$1"),
        (b"*2\r\n$1\r\nb", b":2\r\n$1\r\nb"),
    ],
)
async def test_an_answer_that_is_none_costs_a_moment(
    redis_url: str, old: bytes, new: bytes
) -> None:
    await altered_once(redis_url, lambda data: data.replace(old, new, 1))


async def test_a_redis_whose_figures_are_no_text_ends_no_gateway(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with proxied(redis_url) as proxy:
        async with running(redis_url, proxy.url(redis_url)) as ears:
            proxy.alter_replies(lambda data: data.replace(b"redis_version", b"redis\xff\xfeersion"))
            await wait_until(
                lambda: "unreadable answer from Redis" in caplog.text, what="it is said"
            )
            proxy.alter_replies(lambda data: data.replace(b"used_memory:", b"used_memory:x"))
            await asyncio.sleep(0)
            proxy.alter_replies(None)
            await ears.hears()


@pytest.mark.slow
async def test_what_cannot_be_read_is_said_once_in_a_row_and_by_ready(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(redis_url) as ears:
        ears.store.delete(ears.key)
        ears.store.set(ears.key, "no stream", ex=60)
        await wait_until(
            lambda: "cannot read them" in ears.bus.trouble, timeout_s=10, what="it knows"
        )
        assert [r.message for r in caplog.records].count("replies cannot be read") == 1
        why = await ears.ready()
        assert ears.key in why and "WRONGTYPE" in why and "restart it" in why
        await wait_until(
            lambda: b"WRONGTYPE" in ears.store.hget(layout.GATEWAYS_KEY, ears.bus.gateway),
            what="it is shown",
        )
        ears.store.delete(ears.key)
        await ears.hears()
        await wait_until(lambda: not ears.bus.trouble, what="all is well")


async def test_a_gateway_that_may_not_look_at_its_stream_reads_it_all_the_same(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As where somebody's own ACL file does not give the rights."""
    with Redis.from_url(redis_url) as admin:
        admin.execute_command(
            "ACL",
            "SETUSER",
            "old",
            "on",
            ">secret",
            "~*",
            "&*",
            "+@all",
            "-xrange",
            "-hgetall",
            "-hset",
        )
    parts = urlsplit(redis_url)
    url = parts._replace(netloc=f"old:secret@{parts.hostname}:{parts.port}").geturl()
    try:
        async with running(redis_url, url) as ears:
            for _ in range(3):
                await ears.hears()
            await beats(ears.store, ears)
            assert [r.message for r in caplog.records].count(
                "the reply stream cannot be checked"
            ) == 1
            assert ears.store.get(ears.gateway_key) != b"0-0" and not ears.bus.trouble
    finally:
        with Redis.from_url(redis_url) as admin:
            admin.execute_command("ACL", "DELUSER", "old")


@pytest.mark.slow
async def test_a_gateway_whose_reading_brings_nothing_says_so_and_heals(
    redis_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(redis_url) as ears:
        await ears.hears()
        [replies] = ears.bus._replies
        call = replies._redis.call
        with monkeypatch.context() as patched:
            # its connection works, and answers about another stream
            patched.setattr(
                replies._redis,
                "call",
                lambda *args: call(*(f"{a}:other" if a == replies.key else a for a in args)),
            )
            # the read that is under way is of the right one
            await ears.hears()
            ears.reply()
            await wait_until(
                lambda: "does not receive them" in ears.bus.trouble, timeout_s=10, what="it knows"
            )
            assert "replies wait and are not received" in caplog.text
            assert "does not receive them" in await ears.ready()
        await wait_until(
            lambda: ears.call.order.expected == 3, timeout_s=5, what="the reply is heard"
        )
        await wait_until(lambda: not ears.bus.trouble, what="all is well")


async def test_strict_replies_are_released_again_after_an_altered_id(redis_url: str) -> None:
    """What waits for a commit that never comes does not keep those behind it."""
    async with running(redis_url, strict=True) as ears:

        def reply(entry: str) -> int:
            number, ears._number = ears._number, ears._number + 1
            ears.store.xadd(
                ears.key, {"b": layout.pack(Reply(ears.call.id, number, number + 1)), "a": entry}
            )
            return ears._number

        ears.store.set(layout.committed_key(0), "1000-0")
        reply("999-0")
        await wait_until(lambda: ears.call.order.expected == 1, what="the first")
        other = OpenCall(
            layout.new_call_id(),
            CLIENTS["openai"],
            b"",
            activity_s=30,
            deadline=time.monotonic() + 60,
        )
        ears.bus.calls[other.id] = other
        ears.store.xadd(ears.key, {"b": layout.pack(Reply(other.id, 0, 1)), "a": "9995-0"})
        reply("996-0")
        await wait_until(
            lambda: ears.call.order.expected == 2, timeout_s=5, what="the one behind it"
        )


async def test_calls_that_nobody_takes_while_nothing_is_heard_are_told_of(redis_url: str) -> None:
    async with running(redis_url) as ears:
        ears.bus.untaken = 2
        assert not Status(ears.bus).warnings
        ears.bus.untaken = 3
        assert "no policy worker took the last 3 calls" in Status(ears.bus).warnings[0]
        await ears.hears()
        assert not Status(ears.bus).warnings


async def test_no_warning_of_a_gateway_hides_another(redis_url: str) -> None:
    async with running(redis_url) as ears:
        ears.bus.notices, ears.bus.untaken = [lambda: ["too few descriptors: raise the limit"]], 3
        assert [said.split(" ")[0] for said in Status(ears.bus).warnings] == ["too", "no"]
        await beats(ears.store, ears)
        shown: Any = ears.store.hgetall(layout.GATEWAYS_KEY)
        [(state, said)] = gateway_faults(shown, layout.time_ms(ears.store.time()))
        assert (
            state == "warning" and "raise the limit; no policy worker took the last 3 calls" in said
        )


@pytest.mark.parametrize("silent_s", [1.0, 5.0, 10.0])
def test_a_sign_of_life_outlasts_two_rounds_of_silence(silent_s: float) -> None:
    """The connection is cut after one and a quarter, the first new one is given up after another; a
    heartbeat was a second old."""
    bus = Bus("redis://nobody", "g", Limits(redis_silent_s=silent_s), 1)
    assert bus.heartbeat.alive_ms > (2.25 * silent_s + 2 * BEAT_S) * 1000


async def test_a_gateway_forgets_those_that_ended_long_ago(redis_url: str) -> None:
    with Redis.from_url(redis_url) as store:
        store.flushall()
        clock: Any = store.time()
        now = layout.time_ms(clock)
        signs = {
            "old": f"{now - 2 * layout.GATEWAY_KNOWN_MS} ",
            "young": f"{now - 1000} ",
            "spoilt": "\xff",
        }
        store.hset(layout.GATEWAYS_KEY, mapping=signs)
        bus = Bus(redis_url, "new", Limits(), 1)
        await bus.open()
        await bus.redis.call("PING")
        kept: Any = store.hkeys(layout.GATEWAYS_KEY)
        assert set(kept) == {b"young", b"spoilt", b"new"}
        await bus.close()
        kept = store.hkeys(layout.GATEWAYS_KEY)
        assert b"new" not in kept
