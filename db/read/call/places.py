"""Places of lookups: how many of a key read at once, and how they are lent while one waits for the
record. Must not know: what is read.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Self

FIND_S = 2.0


HELD_BYTES = 2**20
"""A lookup that waits for the record and has read less than this lends its place to others
meanwhile."""


Turn = Callable[[str], AbstractAsyncContextManager[None]]
"""Lends a key one of the places of its process."""


def any_turn(_: str) -> AbstractAsyncContextManager[None]:
    """Return a place where there are enough for all."""
    return contextlib.nullcontext()


class Stay:
    """The place of one lookup: taken by `take`, given back at the end of the block. `held`: how
    many bytes it has read; `leaves_out`: there was more than it may read."""

    def __init__(self, turn: Turn, key_id: str) -> None:
        self.key_id, self.held, self.leaves_out = key_id, 0, False
        self._turn, self._stack = turn, contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def take(self) -> None:
        """Wait for a place."""
        await self._stack.enter_async_context(self._turn(self.key_id))

    async def wait(self, pause_s: float) -> None:
        """Wait for the record. Lookups of what never was must not keep others from theirs, nor many
        hold megabytes without a place."""
        is_lent = self.held < HELD_BYTES
        if is_lent:
            await self._stack.aclose()
        await asyncio.sleep(pause_s)
        if is_lent:
            await self.take()
