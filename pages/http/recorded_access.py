"""Sends nothing of the record before a row says who is shown it."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from db.access_log import PageRead

_READS = "sluice.reads"


class RecordedReads:
    """A layer of an application: what `record_read` named is stored before the next message goes
    out. Raises AuditUnavailable where it cannot be, and sends nothing."""

    def __init__(self, app: ASGIApp, note: Callable[[PageRead], Awaitable[None]]) -> None:
        self._app, self._note = app, note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        reads = list[PageRead]()

        async def send_recorded(message: Message) -> None:
            while reads:
                await self._note(reads[0])
                del reads[0]
            await send(message)

        await self._app({**scope, _READS: reads}, receive, send_recorded)


def record_read(scope: Scope, read: PageRead) -> None:
    """Say what the answer to this request shows, and to whom."""
    reads: list[PageRead] = scope[_READS]
    reads.append(read)
