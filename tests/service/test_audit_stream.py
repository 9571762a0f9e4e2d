"""What is said of an audit stream: up to where it is on record, and nothing of what cannot be
read."""

import asyncio
from typing import Any

import pytest

from streams import audit_stream, layout
from streams.audit_stream import StreamState
from streams.connection import Connection, NotAnAnswer, RedisError

KEY, GROUP = layout.audit_key(0), layout.AUDIT_GROUP


async def look(redis: Connection) -> StreamState:
    return await audit_stream.read_state(redis, 0)


async def take(redis: Connection, count: int) -> None:
    await redis.call("XREADGROUP", "GROUP", GROUP, "w", "COUNT", count, "STREAMS", KEY, ">")


async def test_what_is_on_record_and_what_may_still_come(redis: Connection) -> None:
    assert await look(redis) == StreamState()
    for n in (1, 2, 3):
        await redis.call("XADD", KEY, f"10-{n}", "b", "")
    assert await look(redis) == StreamState((10, 3), (0, 0), (10, 1)), (
        "a group that is not there will be made at the beginning"
    )
    await redis.call("XGROUP", "CREATE", KEY, GROUP, "0")
    assert await look(redis) == StreamState((10, 3), (0, 0), (10, 1))
    await take(redis, 2)
    assert await look(redis) == StreamState((10, 3), (10, 2), (10, 1)), "what a writer holds"
    await redis.call("XACK", KEY, GROUP, "10-1")
    assert (await look(redis)).first_open == (10, 2)
    await redis.call("XACK", KEY, GROUP, "10-2")
    assert await look(redis) == StreamState((10, 3), (10, 2), (10, 3)), "what nobody took"
    await take(redis, 1)
    await redis.call("XTRIM", KEY, "MAXLEN", 0)
    assert await look(redis) == StreamState((10, 3), (10, 3), (10, 3)), (
        "taken out of the stream, and a writer holds it"
    )
    await redis.call("XACK", KEY, GROUP, "10-3")
    assert await look(redis) == StreamState((10, 3), (10, 3), None)


async def test_what_was_taken_out_before_a_writer_had_it_is_not_waited_for(
    redis: Connection,
) -> None:
    await redis.call("XGROUP", "CREATE", KEY, GROUP, "0", "MKSTREAM")
    await redis.call("XADD", KEY, "1000-0", "b", "")
    await redis.call("XADD", KEY, "1200-0", "b", "")
    assert (await look(redis)).behind_ms == 1200
    await redis.call("XTRIM", KEY, "MINID", "1100")
    assert await look(redis) == StreamState((1200, 0), (0, 0), (1200, 0))
    await redis.call("XTRIM", KEY, "MAXLEN", 0)
    state = await look(redis)
    assert state == StreamState((1200, 0), (1200, 0), None) and state.behind_ms == 0


async def test_what_redis_refuses_is_raised(redis: Connection) -> None:
    await redis.call("SET", KEY, "no stream")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        await look(redis)


def test_up_to_where_it_is_recorded() -> None:
    assert StreamState((9, 0), (9, 0), None).is_recorded((10, 0))
    assert [
        StreamState((9, 0), (5, 0), (5, 1)).is_recorded(entry) for entry in ((5, 0), (5, 1), (5, 2))
    ] == [True, False, False]


class Odd:
    """A connection of which one answer is another than it should be."""

    def __init__(self, redis: Connection, command: str, answer: Any) -> None:
        self._redis, self._command, self._answer = redis, command, answer
        self.is_cut = False

    def call(self, *args: Any) -> "asyncio.Future[Any]":
        if args[:2] != tuple(self._command.split()) and args[0] != self._command:
            return self._redis.call(*args)
        future = asyncio.get_running_loop().create_future()
        future.set_result(self._answer)
        return future

    def cut(self) -> None:
        self.is_cut = True


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("XINFO STREAM", [b"lengtg", 1]),
        ("XINFO STREAM", [b"length"]),
        ("XINFO STREAM", 7),
        ("XINFO STREAM", [b"length", 0, b"last-generated-id", b"1-?"]),
        ("XINFO GROUPS", [7]),
        ("XINFO GROUPS", [[b"name", layout.AUDIT_GROUP.encode()]]),
        ("XPENDING", None),
        ("XPENDING", [1, None]),
        ("XPENDING", [1, b"\xff-1"]),
    ],
)
async def test_an_answer_that_cannot_be_read_is_a_fault_of_redis(
    redis: Connection, command: str, answer: Any
) -> None:
    """And the connection is made anew: what comes next on it may be the answer to something
    else."""
    await redis.call("XGROUP", "CREATE", KEY, GROUP, "0", "MKSTREAM")
    odd = Odd(redis, command, answer)
    with pytest.raises(NotAnAnswer):
        await audit_stream.read_state(odd, 0)  # type: ignore[arg-type]
    assert odd.is_cut
