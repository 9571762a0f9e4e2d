"""Opens an upstream's compressed answer: a bounded part in each turn of the loop, and nothing ahead
of what its call may still take."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain

from gateway.call.flow import FlowControl
from protocol.bytes.compressed import Opener
from protocol.errors import InvalidRequest, PipelineError, RemoteProtocolError, TooLarge
from providers.http1 import UpstreamConnection

_STEP_BYTES = 2**20
"""Opened in one turn of the loop."""
_CODE = "upstream_encoding"


class CompressedAnswer:
    """What of one answer is still to be opened. `take` gets what it opens to, and raises where that
    is too much; it may make its line wait for `flow`, of at most `mark` bytes."""

    def __init__(
        self, coding: str, take: Callable[[bytes], None], flow: FlowControl, mark: int
    ) -> None:
        self._opener, self._take, self._flow, self._mark = Opener(coding), take, flow, mark
        self._unopened: Iterator[bytes] = iter(())
        self._line: UpstreamConnection | None = None
        self.came = 0
        """Compressed bytes so far."""

    def feed(self, data: bytes, line: UpstreamConnection | None) -> None:
        """Take compressed bytes; `line` is paused while they are opened. Raises
        RemoteProtocolError, and what `take` raises."""
        self.came += len(data)
        self._unopened = chain(self._unopened, self._opener.feed(data))
        self._line = line
        self._go_on()

    def _open(self) -> bool:
        """Open a part; True where there is more."""
        left = _STEP_BYTES
        try:
            for piece in self._unopened:
                self._take(piece)
                left -= len(piece)
                if left <= 0:
                    return True
        except (InvalidRequest, TooLarge) as error:
            why = f"the upstream's compressed answer cannot be read: {error.message}"
            raise RemoteProtocolError(why, code=_CODE) from None
        self._unopened = iter(())
        return False

    def _go_on(self) -> None:
        line, flow = self._line, self._flow
        has_more = self._open()
        if line is None:
            return
        if not has_more and flow.backlog_bytes() <= self._mark:
            line.resume()
            return
        line.pause()
        if flow.backlog_bytes() > self._mark:
            flow.when_room(self._mark, self._open_on)
        else:
            asyncio.get_running_loop().call_soon(self._open_on)

    def _open_on(self) -> None:
        if self._line is not None:
            try:
                self._go_on()
            except PipelineError as error:
                self._line.drop(error)

    def leave(self) -> None:
        """Let go of the line: all of the answer came, or nobody wants it."""
        self._line = None

    async def finish(self) -> None:
        """Open the rest of an answer that came to its end. Raises as `feed`, and where the
        compressed data has no end."""
        while self._open():
            await self._flow.room(self._mark)
            await asyncio.sleep(0)
        if not self._opener.is_over:
            raise RemoteProtocolError("the upstream's compressed answer was cut", code=_CODE)
