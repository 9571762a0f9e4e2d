"""Connections to the pages: so many at once, and one that says nothing, or sends its request slowly, makes room for a new one.

Gateways bound what comes through them; this is for browsers that connect to the pages themselves. Must not know: pages.
"""

import asyncio
from collections import Counter

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128


class Connection(H11Protocol):
    """One of them."""

    _since = 0.0

    @property
    def is_waited_for(self) -> bool:
        """Has it no whole request that is being answered?"""
        # before the first head there is none
        cycle = getattr(self, "cycle", None)
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; with too many, the oldest that is waited for ends, of the address that has most of them."""
        waiting = [one for one in self.connections if isinstance(one, Connection) and one.is_waited_for]
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) <= MOST_CONNECTIONS or not waiting:
            return
        counts = Counter(_address(one) for one in waiting)
        oldest = min(waiting, key=lambda one: (-counts[_address(one)], one._since))
        oldest.transport.close()
        # now: the next may come before that is done
        self.connections.discard(oldest)


def _address(connection: Connection) -> str:
    return connection.client[0] if connection.client else ""
