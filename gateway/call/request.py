"""Reads what a client's request brings besides its key: the headers that say how its call is
served, and the body, to its bounds. Must not know: what a body says."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256

from gateway.asgi import Message, Receive
from gateway.http_limits import Link
from protocol.bounds import MAX_BETAS, MAX_TIMEOUT_S
from protocol.bytes.compressed import CODINGS, Opener
from protocol.errors import InvalidRequest, TooLarge, TooSlow, UnsupportedEncoding
from settings.limits import Limits

Headers = dict[bytes, bytes]
BETAS = b"anthropic-beta"
_STEP_BYTES = 2**20
"""Opened of a compressed body between two turns of the loop."""
_BETA = re.compile(rb"[A-Za-z0-9._-]{1,100}")


def name_headers(headers: list[tuple[bytes, bytes]]) -> Headers:
    """Return the headers by their names, of each the first. Raises InvalidRequest where one that
    says how a call is served is there twice: two readers may differ."""
    named = dict(headers[::-1])
    if len(named) != len(headers):
        for name, times in Counter(name for name, _ in headers).items():
            if times > 1 and (
                name.startswith(b"x-sluice-") or name in (b"content-length", b"content-encoding")
            ):
                shown = name.decode("latin-1")[:64]
                raise InvalidRequest(
                    f"the header {shown} is sent more than once",
                    code="repeated_header",
                    param=shown,
                )
    return named


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request body is larger than {limit} bytes")


def read_timeout(named: Headers, default: float) -> float:
    """Return the activity timeout that a client asks for, in seconds. Raises InvalidRequest."""
    value = named.get(b"x-sluice-timeout-s")
    if value is None:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise InvalidRequest(
            f"x-sluice-timeout-s must be a number of seconds up to {MAX_TIMEOUT_S:g}",
            param="x-sluice-timeout-s",
        )
    return seconds


def read_text(named: Headers, header: bytes, most: int) -> str:
    """Return a header's text. Raises InvalidRequest past `most` characters."""
    value = named.get(header, b"")
    if len(value) > most:
        # two that differ behind the bound would be one in the record
        raise InvalidRequest(
            f"{header.decode()} has {len(value):,} characters; at most {most:,} are allowed",
            param=header.decode(),
        )
    return value.decode("latin-1")


def client_betas(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Return the names of beta features that a request carries (several headers, comma lists), each
    once; odd ones and those past 64 are ignored.

    Whether a name goes upstream is decided later, by the translation.
    """
    names: dict[str, None] = {}
    for header, value in headers:
        if header != BETAS:
            continue
        for part in value.split(b","):
            name = part.strip()
            if len(names) == MAX_BETAS:
                return tuple(names)
            if _BETA.fullmatch(name) is not None:
                names[name.decode()] = None
    return tuple(names)


async def read_body(
    named: Headers,
    receive: Receive,
    link: Link | None,
    limits: Limits,
    *,
    expect: Callable[[int], None],
    take: Callable[[int], None],
) -> tuple[bytes, bytes]:
    """Return the request body, opened where it is compressed, and its hash: what policies read,
    what is recorded and what is sent is held to it.

    `expect` is called with the size that is known so far, `take` with the size of each part that
    is kept; both may refuse it. Raises RequestError.
    """
    limit = limits.body_bytes
    coding = named.get(b"content-encoding")
    opener = _opener(coding) if coding is not None else None
    try:
        size = int(named.get(b"content-length", b"0"))
    except ValueError:
        size = 0
    if size > limit:
        raise _too_large(limit)
    expect(size)
    parts, came, size, digest, until = [], 0, 0, sha256(), time.monotonic() + limits.body_s
    while True:
        if link is not None and link.has_body():
            # nothing is waited for, and a timer costs 8 us
            message = await receive()
        else:
            message = await _next_of_body(receive, until, limits.client_stall_s)
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client closed the connection")
        part = message.get("body", b"")
        if opener is not None:
            came += len(part)
            if came > limit:
                # it may open to nothing
                raise _too_large(limit)
        for piece in (part,) if opener is None else opener.feed(part):
            if opener is not None and size // _STEP_BYTES != (size + len(piece)) // _STEP_BYTES:
                # a few bytes may open to megabytes: others' calls go on between
                await asyncio.sleep(0)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            take(len(piece))
            expect(size)
            parts.append(piece)
            digest.update(piece)
        if not message.get("more_body"):
            if opener is not None:
                opener.finish()
            return b"".join(parts), digest.digest()


def _opener(written: bytes) -> Opener | None:
    """Return what opens a body of this content-encoding; None for a plain one. Raises
    UnsupportedEncoding."""
    coding = written.strip().lower().decode("latin-1")
    if coding == "identity":
        return None
    if coding not in CODINGS:
        refusal = (
            f"request bodies are taken with content-encoding {' or '.join(CODINGS)}, one of them and"
            " once; send the body in one of these, or without content-encoding"
        )
        raise UnsupportedEncoding(refusal, param="content-encoding")
    return Opener(coding)


async def _next_of_body(receive: Receive, until: float, stall_s: float) -> Message:
    try:
        async with asyncio.timeout(min(stall_s, until - time.monotonic())):
            return await receive()
    except TimeoutError:
        raise TooSlow("the request body did not arrive in time", retry_after_s=1) from None
