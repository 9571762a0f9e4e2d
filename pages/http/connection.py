"""Connections to the pages: a bounded number, where one that is silent, or slow to send or to
receive, makes room for a new one.

Gateways bound what comes through them; this is for browsers that connect to the pages themselves. A
request head that states more than once where its body ends is refused, as in a gateway: a proxy in
front may read it differently. Must not know: pages.
"""

import asyncio
import math
import re
from collections import Counter

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS, MOST_OF_GATEWAYS = 128, 512
"""Of browsers, where they connect to the pages; and of gateways, each of which has up to 88
(`gateway.record.pages_proxy`, `gateway.record.audit_proxy`)."""
STUCK_S = 5.0
"""Who takes nothing of an answer for so long makes room too."""

_LENGTH = rb"\n(content-length|transfer-encoding):"
_AMBIGUOUS = re.compile(rb"\n[ \t]|\ncontent-length:[^\n]*,|(?s:%b.*%b)" % (_LENGTH, _LENGTH), re.I)
"""A folded line; a list of lengths; and of lengths and codings more than one."""


class _Received(ReceiveBuffer):
    """What a client sent. h11 itself joins folded lines, takes one length twice, and leaves out a
    length where the body has chunks."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines of a head, or of trailers, once all are there. Raises
        RemoteProtocolError."""
        lines = super().maybe_extract_lines()
        if lines and _AMBIGUOUS.search(b"\n".join(lines)):
            raise h11.RemoteProtocolError("folded lines, or more than one length")
        return lines


class BrowserConnection(H11Protocol):
    """A connection of a browser."""

    most = MOST_CONNECTIONS
    _since, _stuck_at = 0.0, math.inf

    @property
    def is_waited_for(self) -> bool:
        """Has it no whole request that is being answered, or takes nothing of the answer?"""
        # before the first head there is none
        cycle = getattr(self, "cycle", None)
        return (
            cycle is None
            or cycle.response_complete
            or cycle.more_body
            or self.loop.time() - self._stuck_at > STUCK_S
        )

    def pause_writing(self) -> None:
        """The client is slower than what is sent to it."""
        self._stuck_at = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._stuck_at = math.inf
        super().resume_writing()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; with too many, the oldest that is waited for ends, of the address that has most of
        them."""
        waiting = [
            connection
            for connection in self.connections
            if isinstance(connection, BrowserConnection) and connection.is_waited_for
        ]
        super().connection_made(transport)
        self.conn._receive_buffer = _Received()
        self._since = self.loop.time()
        if len(self.connections) <= self.most or not waiting:
            return
        counts = Counter(_address(connection) for connection in waiting)
        oldest = min(
            waiting, key=lambda connection: (-counts[_address(connection)], connection._since)
        )
        oldest.transport.abort()
        # now: the next may come before that is done
        self.connections.discard(oldest)


class FromGateway(BrowserConnection):
    """A connection of a gateway."""

    most = MOST_OF_GATEWAYS


def _address(connection: BrowserConnection) -> str:
    return connection.client[0] if connection.client else ""
