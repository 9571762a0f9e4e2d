"""Reviews of decisions by auditors, and decisions of approvers, over HTTP: the only parts of the
audit API that write.

A body is read here, because it is bounded, and because every mistake in it is reported in the
API's form. Must not know: Redis, SQL.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from starlette.requests import ClientDisconnect, Request

from db.write.approvals import ApproverDecision, read_decision
from db.write.reviews import Auditor, Review, check
from protocol.bounds import MAX_DECISION_BYTES, MAX_REVIEW_BYTES
from protocol.bytes.json_strict import loads_body
from protocol.errors import InvalidRequest, NotFound, TooLarge, TooSlow
from settings.config import Key

MAX_BLOCK = 2**31 - 1
_FIELDS = ("label", "note", "second")
_DECISION_FIELDS = ("decision", "note", "arguments")


async def read_review(request: Request, call_id: UUID, block: str, within_s: float) -> Review:
    """Return what a request says. Raises InvalidRequest, NotFound, TooLarge, TooSlow."""
    digits = block.removeprefix("-")
    if not (
        digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= MAX_BLOCK
    ):
        raise NotFound("no decision on this block is to be reviewed", code="not_audited")
    body = await _body(request, _FIELDS, MAX_REVIEW_BYTES, within_s)
    second = body.get("second", False)
    if not isinstance(second, bool):
        raise InvalidRequest("must be true or false", param="second")
    label, note = check(body.get("label"), body.get("note", ""))
    return Review(call_id, int(block), label, note, second)


def auditor_of(key: Key) -> Auditor:
    """Return who speaks with a key."""
    return Auditor(key.id, key.name)


async def read_decision_body(request: Request, within_s: float) -> ApproverDecision:
    """Return what an approver decides. Raises InvalidRequest, TooLarge, TooSlow."""
    body = await _body(request, _DECISION_FIELDS, MAX_DECISION_BYTES, within_s)
    return read_decision(body.get("decision"), body.get("note", ""), body.get("arguments"))


async def _body(
    request: Request, fields: Sequence[str], most: int, within_s: float
) -> dict[str, Any]:
    body = b""
    try:
        async with asyncio.timeout(within_s):
            async for piece in request.stream():
                body += piece
                if len(body) > most:
                    raise TooLarge(f"this body has at most {most:,} bytes")
    except TimeoutError:
        raise TooSlow("the request body did not arrive in time", retry_after_s=1) from None
    except ClientDisconnect:
        raise InvalidRequest("the request body did not come whole", code="body_lost") from None
    read: dict[str, Any] = loads_body(body)
    for name in read:
        if name not in fields:
            raise InvalidRequest(f"unknown field; known are {', '.join(fields)}", param=name[:64])
    return read
