"""Filters and cursors of the audit lists: strings from a query or a command line become checked values, or InvalidRequest.

A cursor is a position, not a query: it decodes to a call id and a number and nothing else, so a forged one can only
name another place in the same list. Must not know: SQL.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, get_args
from uuid import UUID

import msgspec

from db.text import words
from protocol.bounds import MAX_FILTER_CHARS, MAX_PAGE
from protocol.config import did_you_mean
from protocol.errors import InvalidRequest
from protocol.records import VerdictName

ListName = Literal["calls", "tool-calls", "judge-blocks", "chunks"]
Order = Literal["asc", "desc"]

LIST_FILTERS = frozenset(
    {"call_id", "session", "model", "key", "key_id", "name", "verdict", "policy", "since", "until", "q", "limit", "cursor", "order"}
)
CALL_FILTERS = LIST_FILTERS | {"state"}
CHUNK_FILTERS = frozenset({"verdict", "limit", "cursor", "order"})
EXPORT_FILTERS = CALL_FILTERS - {"limit", "cursor", "order"}
VERIFY_FILTERS = frozenset({"call_id", "since", "until"})
COUNT_FILTERS = LIST_FILTERS - {"call_id", "q", "limit", "cursor", "order"}
DEFAULT_LIMIT = 50
MAX_LIMIT = MAX_PAGE
MAX_TEXT = MAX_FILTER_CHARS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_MS = 1 << 48
_pack = msgspec.msgpack.Encoder(uuid_format="bytes").encode
LEAST_PREFIX = 8
"""Hexadecimal digits that the beginning of a call id must have: fewer stand for more than a minute of calls."""
NOT_A_CALL_ID = "not_a_call_id"
"""Code of the error about what cannot be a call id."""
_DIGITS = 32


class State(StrEnum):
    """What a call may be in."""

    ACTIVE = "ACTIVE"
    """It began, and its end is not on record."""
    ENDED = "ENDED"
    """Its answer came to its end."""
    FAILED = "FAILED"
    """It did not; the reason says why."""


class Position(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last item of a page: what a cursor holds."""

    list: ListName
    order: Order
    call_id: UUID
    number: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a list is asked for. `low` and `high` bound the call id (`high` is exclusive), made from `since` and `until`."""

    call_id: UUID | None = None
    prefix: str | None = None
    """The beginning of a call id, in digits without dashes: somebody must look up which call it is, and ask for that."""
    state: State | None = None
    session: str | None = None
    model: str | None = None
    key: str | None = None
    key_id: str | None = None
    name: str | None = None
    verdict: str | None = None
    policy: str | None = None
    low: UUID | None = None
    high: UUID | None = None
    words: str | None = None
    limit: int = DEFAULT_LIMIT
    order: Order = "desc"
    after: Position | None = None


def parse_filters(given: Iterable[tuple[str, str]], *, of: ListName, allowed: frozenset[str] | None = None) -> Filters:
    """Check query parameters; an empty value is one not given. Raises InvalidRequest with the parameter's name."""
    if allowed is None:
        allowed = CALL_FILTERS if of == "calls" else LIST_FILTERS
    values: dict[str, str] = {}
    for name, value in given:
        if name not in allowed:
            raise InvalidRequest(f"unknown filter; known are {', '.join(sorted(allowed))}", param=name[:64])
        if name in values:
            raise InvalidRequest("given twice", param=name)
        if len(value) > MAX_TEXT:
            raise InvalidRequest(f"longer than {MAX_TEXT} characters", param=name)
        if value:
            values[name] = value
    order = _order(values.get("order", "asc" if of == "chunks" else "desc"))
    call_id = parse_call_id(values["call_id"]) if "call_id" in values else None
    low, high = _bound("since", values.get("since")), _bound("until", values.get("until"))
    if low is not None and high is not None and low >= high:
        raise InvalidRequest("is not after `since`, so nothing can match", param="until")
    return Filters(
        call_id=call_id if isinstance(call_id, UUID) else None,
        prefix=call_id if isinstance(call_id, str) else None,
        state=_state(values.get("state")),
        session=values.get("session"),
        model=values.get("model"),
        key=values.get("key"),
        key_id=values.get("key_id"),
        name=values.get("name"),
        verdict=_verdict(values.get("verdict")),
        policy=values.get("policy"),
        low=low,
        high=high,
        words=_words(values.get("q")),
        limit=_limit(values.get("limit")),
        order=order,
        after=_position(values.get("cursor"), of, order),
    )


def parse_call_id(value: str) -> UUID | str:
    """Return a call id, or the digits of its beginning, at least 8. Raises InvalidRequest."""
    try:
        return UUID(value)
    except ValueError:
        digits = value.lower().replace("-", "")
    is_hex = bool(digits) and not set(digits) - set("0123456789abcdef") and len(digits) < _DIGITS
    if not is_hex or (value.lower() != digits and not str(ids_with(digits)[0]).startswith(value.lower())):
        raise InvalidRequest("must be a call id (a UUID) or the beginning of one", param="call_id", code=NOT_A_CALL_ID)
    if len(digits) < LEAST_PREFIX:
        raise InvalidRequest(f"too short: give at least the first {LEAST_PREFIX} characters of the call id", param="call_id")
    return digits


def ids_with(prefix: str) -> tuple[UUID, UUID]:
    """Return the smallest and the largest call id that begins with these digits."""
    return UUID(prefix.ljust(_DIGITS, "0")), UUID(prefix.ljust(_DIGITS, "f"))


def encode_cursor(position: Position) -> str:
    """Return the opaque text of a position."""
    return base64.urlsafe_b64encode(_pack(position)).rstrip(b"=").decode()


def first_id(at: datetime) -> UUID:
    """Return the smallest call id of that millisecond. Raises OverflowError before 1970 or past what a UUIDv7 holds."""
    ms = (at - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= ms < _UUID_MS:
        raise OverflowError("out of range")
    return UUID(int=ms << 80)


def created_at(call_id: UUID) -> datetime | None:
    """Return the time in a call id, None when it holds no date we can write."""
    try:
        return _EPOCH + timedelta(milliseconds=call_id.int >> 80)
    except OverflowError:
        return None


def _order(value: str) -> Order:
    match value:
        case "asc" | "desc":
            return value
        case _:
            raise InvalidRequest("must be asc or desc", param="order")


def _state(value: str | None) -> State | None:
    try:
        return None if value is None else State(value.upper())
    except ValueError:
        raise InvalidRequest(
            f"must be one of {', '.join(State)}{did_you_mean(str(value).upper(), map(str, State))}", param="state"
        ) from None


def _verdict(value: str | None) -> str | None:
    known = get_args(VerdictName)
    if value is not None and value.lower() not in known:
        raise InvalidRequest(f"must be one of {', '.join(known)}{did_you_mean(value.lower(), known)}", param="verdict")
    return value and value.lower()


def _bound(name: str, value: str | None) -> UUID | None:
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value.replace(" ", "+") if "T" in value else value)
        return first_id(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise InvalidRequest("must be a date or time like 2026-01-31 or 2026-01-31T12:00:00Z", param=name) from None


def _words(value: str | None) -> str | None:
    if value is None:
        return None
    if not (found := words(value)):
        raise InvalidRequest("holds no word to search for", param="q")
    return found


def _limit(value: str | None) -> int:
    if value is None:
        return DEFAULT_LIMIT
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= MAX_LIMIT):
        raise InvalidRequest(f"must be a number from 1 to {MAX_LIMIT}", param="limit")
    return int(value)


def _position(value: str | None, of: ListName, order: Order) -> Position | None:
    if value is None:
        return None
    try:
        packed = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        position = msgspec.msgpack.decode(packed, type=Position)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidRequest("not a cursor of this API", param="cursor") from None
    if position.list != of or position.order != order:
        raise InvalidRequest("belongs to another list or order", param="cursor")
    return position
