"""Forms on their way to the pages: a bounded number at once, each for a short time; a new one never
waits for those before it.

Where there are too many, the oldest of whoever has most of them goes: slow ones make room for one
that comes in a moment, whoever sends them. Must not know: the content of a form.
"""

import asyncio
from collections import Counter

from gateway.asgi import Receive
from gateway.record.pages_process import read_body
from protocol.bounds import FORM_S, MAX_FORMS, MAX_RELAYED_FORM_BYTES
from protocol.errors import Overloaded, TooLarge, TooSlow


class FormUploads:
    """The incomplete forms of one gateway: at most `MAX_FORMS` times `MAX_RELAYED_FORM_BYTES` in
    memory."""

    def __init__(self) -> None:
        self._waiting = dict[asyncio.Timeout, str]()
        """When each is given up, and the address it comes from; the oldest first."""

    def __len__(self) -> int:
        return len(self._waiting)

    async def read(
        self, address: str, headers: list[tuple[bytes, bytes]], receive: Receive, *, is_here: bool
    ) -> bytes | None:
        """Return a form; None where its sender left. Raises TooLarge, TooSlow, and Overloaded for
        one that made room for another."""
        if any(
            name == b"content-length" and int(value) > MAX_RELAYED_FORM_BYTES
            for name, value in headers
        ):
            raise _too_large()
        if is_here:
            # nothing is waited for, so it takes nobody's place
            return await _read(receive)
        timeout = asyncio.timeout(FORM_S)
        try:
            async with timeout:
                self._make_room()
                self._waiting[timeout] = address
                return await _read(receive)
        except TimeoutError:
            if timeout in self._waiting:
                raise TooSlow(f"The form did not arrive within {FORM_S:g} s.") from None
            raise Overloaded(
                "Too many forms are being sent. Send it again.", retry_after_s=1
            ) from None
        finally:
            self._waiting.pop(timeout, None)

    def _make_room(self) -> None:
        if len(self._waiting) >= MAX_FORMS:
            counts = Counter(self._waiting.values())
            most = max(counts.values())
            oldest = next(
                timeout for timeout, address in self._waiting.items() if counts[address] == most
            )
            del self._waiting[oldest]
            if not oldest.expired():
                oldest.reschedule(0)


async def _read(receive: Receive) -> bytes | None:
    body = await read_body(receive, MAX_RELAYED_FORM_BYTES)
    if body is not None and len(body) > MAX_RELAYED_FORM_BYTES:
        raise _too_large()
    return body


def _too_large() -> TooLarge:
    return TooLarge(f"A form may have at most {MAX_RELAYED_FORM_BYTES:,} bytes.")
