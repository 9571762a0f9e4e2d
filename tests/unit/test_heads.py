"""How answers are written: a head goes out with what follows it, or alone when nothing does; chunks only where a body may follow."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.heads import ChunkWriter, _WithHead


class Socket:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.writes = list[bytes]()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Remember."""
        assert not self.is_closed
        self.writes.append(data)

    def close(self) -> None:
        """Remember."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Was it closed?"""
        return self.is_closed


def answer() -> tuple[Socket, _WithHead]:
    socket = Socket()
    return socket, _WithHead(socket, asyncio.get_running_loop())  # type: ignore[arg-type]


async def test_a_head_goes_out_with_what_follows_it() -> None:
    socket, out = answer()
    out.write(b"head ")
    assert not socket.writes
    out.write(b"body")
    out.write(b"more")
    await asyncio.sleep(0)
    assert socket.writes == [b"head body", b"more"]


async def test_a_head_alone_waits_for_no_more_than_this_turn() -> None:
    socket, out = answer()
    out.write(b"head")
    await asyncio.sleep(0)
    assert socket.writes == [b"head"]
    out.write(b"body")
    assert socket.writes == [b"head", b"body"]


async def test_closing_sends_a_head_first() -> None:
    socket, out = answer()
    out.write(b"head")
    assert not out.is_closing()
    out.close()
    await asyncio.sleep(0)
    assert socket.writes == [b"head"] and out.is_closing()


@pytest.mark.parametrize(
    ("change", "writes"),
    [
        ({}, True),
        ({"write_paused": True}, False),
        ({"disconnected": True}, False),
        ({"response_complete": True}, False),
        ({"response_started": False}, False),
        ({"chunked_encoding": False}, False),
        ({"chunked_encoding": None}, False),
    ],
)
def test_a_chunk_is_written_only_where_send_would_do_no_more(change: dict[str, Any], writes: bool) -> None:
    state = {"disconnected": False, "response_complete": False, "response_started": True, "chunked_encoding": True, "write_paused": False}
    state |= change
    socket = Socket()
    connection: Any = SimpleNamespace(cycle=SimpleNamespace(transport=socket, **state), flow=SimpleNamespace(**state))
    assert ChunkWriter(connection).write(b"x" * 17) is writes
    assert socket.writes == ([b"11\r\n" + b"x" * 17 + b"\r\n"] if writes else [])
