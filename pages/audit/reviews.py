"""Reviews of decisions by auditors, over HTTP: the only part of the audit API that writes.

The body is read here, because it is bounded, and because every mistake in it is reported in the
API's form. Must not know: Redis, SQL.
"""

import asyncio
from uuid import UUID

from starlette.requests import ClientDisconnect, Request

from db.write.reviews import Auditor, Review, check
from protocol.bounds import MAX_REVIEW_BYTES
from protocol.bytes.json_strict import loads_body
from protocol.errors import InvalidRequest, NotFound, TooLarge, TooSlow
from settings.config import Key

MAX_BLOCK = 2**31 - 1
_FIELDS = ("label", "note", "second")


async def read_review(request: Request, call_id: UUID, block: str, within_s: float) -> Review:
    """Return what a request says. Raises InvalidRequest, NotFound, TooLarge, TooSlow."""
    digits = block.removeprefix("-")
    if not (
        digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= MAX_BLOCK
    ):
        raise NotFound("no decision on this block is to be reviewed", code="not_audited")
    body = loads_body(await _body(request, within_s))
    for name in body:
        if name not in _FIELDS:
            raise InvalidRequest(f"unknown field; known are {', '.join(_FIELDS)}", param=name[:64])
    second = body.get("second", False)
    if not isinstance(second, bool):
        raise InvalidRequest("must be true or false", param="second")
    label, note = check(body.get("label"), body.get("note", ""))
    return Review(call_id, int(block), label, note, second)


def auditor_of(key: Key) -> Auditor:
    """Return who speaks with a key."""
    return Auditor(key.id, key.name)


async def _body(request: Request, within_s: float) -> bytes:
    body = b""
    try:
        async with asyncio.timeout(within_s):
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_REVIEW_BYTES:
                    raise TooLarge(f"a review has at most {MAX_REVIEW_BYTES} bytes")
    except TimeoutError:
        raise TooSlow("the request body did not arrive in time", retry_after_s=1) from None
    except ClientDisconnect:
        raise InvalidRequest("the request body did not come whole", code="body_lost") from None
    return body
