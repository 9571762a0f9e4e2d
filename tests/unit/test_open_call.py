"""A call as its gateway sees it: how released bytes reach the client without waking a task, and how
room is waited for."""

import asyncio
import time
from typing import Any

import pytest

from gateway.call.calls import OpenCall
from protocol.bounds import FIRST_KEEPALIVE_S
from protocol.dialects.table import CLIENTS
from protocol.errors import StreamProtocolError
from streams import layout
from streams.connection import Append, _pack
from streams.layout import Dispatch, Reply
from tests.support.checks.replies import reply_of


class Client:
    """What is written to it without its handler; `takes` says whether it can be."""

    def __init__(self) -> None:
        self.written = list[bytes]()
        self.takes = True

    def write(self, data: bytes) -> bool:
        """Remember, unless it takes nothing."""
        if self.takes:
            self.written.append(data)
        return self.takes


def opened(client: Client | None = None) -> OpenCall:
    call = OpenCall(
        layout.new_call_id(), CLIENTS["openai"], b"{}", activity_s=9, deadline=time.monotonic() + 9
    )
    call.begin_answer()
    call.outgoing.write = client.write if client is not None else None
    return call


def tell(call: OpenCall, **fields: Any) -> None:
    call.on_reply(reply_of(call.id, call.order.expected, call.order.expected + 1, **fields))


async def waiting(call: OpenCall) -> "asyncio.Task[None]":
    task = asyncio.create_task(call.wait())
    await asyncio.sleep(0)
    return task


async def is_woken(task: "asyncio.Task[None]") -> bool:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task.done()


async def test_what_came_together_is_one_write_and_nobody_wakes() -> None:
    client = Client()
    call = opened(client)
    handler = await waiting(call)
    tell(call, data=b"a")
    tell(call, data=b"b")
    assert not client.written
    call.relay()
    tell(call, data=b"c")
    call.relay()
    call.relay()
    assert (
        client.written == [b"ab", b"c"]
        and not call.outgoing.size
        and call.outgoing.relayed == call.order.expected == 3
    )
    assert not await is_woken(handler)
    handler.cancel()


async def test_a_client_that_takes_nothing_now_gets_it_from_its_handler_in_order() -> None:
    client = Client()
    call = opened(client)
    handler = await waiting(call)
    tell(call, data=b"a")
    call.relay()
    client.takes = False
    tell(call, data=b"b")
    call.relay()
    assert call.outgoing.relayed == 1
    tell(call, data=b"c")
    call.relay()
    assert await is_woken(handler)
    assert (client.written, call.take_out(), call.outgoing.relayed) == ([b"a"], b"bc", 3)


@pytest.mark.parametrize("with_client", [True, False])
@pytest.mark.parametrize("what", ["end", "dispatch", "error"])
async def test_an_end_a_request_and_an_error_are_the_handlers(what: str, with_client: bool) -> None:
    client = Client()
    call = opened(client if with_client else None)
    handler = await waiting(call)
    if what == "end":
        tell(call, data=b"last", end="complete")
    elif what == "dispatch":
        tell(call, dispatch=Dispatch("x", "openai", "chat", b"{}"))
        tell(call, data=b"more")
    else:
        tell(call, data=b"before")
        call.fail(StreamProtocolError("broken"))
    call.relay()
    assert await is_woken(handler)
    # nothing passes the handler once it has something to do
    assert not client.written and (what == "error" or call.outgoing.size)


async def test_nothing_is_written_before_there_is_something() -> None:
    call = opened(Client())
    handler = await waiting(call)
    call.relay()
    tell(call, processed=3)
    call.relay()
    assert not await is_woken(handler)
    handler.cancel()


async def test_room_is_given_when_the_worker_is_that_far() -> None:
    call = opened()
    call.appender.append("chunks", [b"x" * 60, b"y" * 60])
    call.appender.append("eof")
    call.appender.append("chunks", [b"z" * 60])
    call.appender.next_entries(1)
    gone = list[str]()
    call.when_room(100, lambda: gone.append("now"))
    tell(call, processed=0)
    assert not gone
    tell(call, processed=2)
    tell(call, processed=4)
    assert gone == ["now"]
    call.appender.append("chunks", [b"x" * 200])
    call.when_room(100, lambda: gone.append("forgotten"))
    call.flow.forget_room()
    call.appender.next_entries(2)
    tell(call, processed=99)
    assert gone == ["now"]


@pytest.mark.parametrize("blob", [b"", b"x", b"\r\n$5\r\n" * 9, bytes(range(256)) * 300])
def test_an_append_is_what_redis_would_be_sent(blob: bytes) -> None:
    packed = Append("key:\u00e4", "channel", b"b").pack(b"12-0", blob, b"hint")
    assert packed == _pack(("XADD", "key:\u00e4", "NOMKSTREAM", "12-0", b"b", blob)) + _pack(
        ("PUBLISH", "channel", b"hint")
    )


def age(call: OpenCall, seconds: float) -> None:
    call.started = time.monotonic() - seconds


def keepalive(call: OpenCall) -> None:
    call.on_reply(
        Reply(
            call.id,
            call.order.expected,
            call.order.expected,
            status=200,
            headers={"content-type": "x"},
            data=b": keepalive\n\n",
            keepalive=True,
        )
    )


async def test_a_keepalive_that_came_too_early_is_written_when_the_8_seconds_are_over() -> None:
    call = opened()
    call.order.head_sent = False
    handler = await waiting(call)
    keepalive(call)
    age(call, FIRST_KEEPALIVE_S - 0.1)
    call.show_life(time.monotonic())
    call.relay()
    assert not await is_woken(handler) and not call.order.status
    age(call, FIRST_KEEPALIVE_S + 0.1)
    call.show_life(time.monotonic())
    call.relay()
    assert await is_woken(handler)
    assert (call.order.status, call.order.headers, call.take_out()) == (
        200,
        {"content-type": "x"},
        b": keepalive\n\n",
    )
    call.show_life(time.monotonic())
    assert not call.outgoing.size


async def test_a_true_status_within_8_seconds_is_not_spoilt_by_a_keepalive_before_it() -> None:
    call = opened()
    call.order.head_sent = False
    keepalive(call)
    tell(call, status=429, data=b"{}", end="upstream_status")
    age(call, 16)
    call.show_life(time.monotonic())
    assert (call.order.status, call.take_out()) == (429, b"{}")


async def test_keepalives_of_a_begun_answer_are_written_as_they_come_and_progress_never() -> None:
    client = Client()
    call = opened(client)
    handler = await waiting(call)
    keepalive(call)
    call.relay()
    call.on_reply(
        Reply(call.id, call.order.expected, call.order.expected, processed=7, keepalive=True)
    )
    call.relay()
    assert client.written == [b": keepalive\n\n"] and not await is_woken(handler)
    handler.cancel()


def test_what_a_call_was_told_before_its_stream_was_gone_stays() -> None:
    """The worker that ended it has let its stream go; what the gateway still wanted to say of it
    has no place any more."""
    ended, given_up = opened(), opened()
    tell(ended, data=b"last", end="complete")
    ended.appender.append("closed", number=1, text="complete")
    given_up.on_reply(Reply(given_up.id, 0, 0, failed="gateway_lost"))
    given_up.appender.append("closed", text="gateway_lost")
    for call in (ended, given_up):
        assert call.appender.next_entries(1)
        call.lose()
        call.appender.append("closed")
        assert not call.appender.unanswered and not call.appender.pending
    assert ended.order.error is None and ended.take_out() == b"last"
    assert given_up.order.error is not None and given_up.order.error.error_code == "gateway_lost"
