"""Filters and cursors of the audit lists: strings from a query or a command line become checked
values, or InvalidRequest.

A cursor is a position, not a query: it decodes to a call id and a number and nothing else, so a
forged one can only name another place in the same list. Must not know: SQL.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args
from uuid import UUID

import msgspec

from db.text import words
from protocol.bounds import MAX_FILTER_CHARS, MAX_PAGE
from protocol.debug import BITS
from protocol.errors import InvalidRequest
from protocol.records import VerdictName
from settings.config_faults import did_you_mean

P = TypeVar("P", "Position", "LinePosition")
ListName = Literal["calls", "tool-calls", "judge-blocks", "chunks", "reviews"]
Asked = ListName | Literal["call", "counts", "export", "verify", "debug-logs", "door", "usage"]
"""What takes filters."""
Order = Literal["asc", "desc"]
LEAST_PREFIX = 8
"""Hexadecimal digits that the beginning of a call id must have: fewer stand for more than a minute
of calls."""
DEFAULT_LIMIT = 50
MAX_LIMIT = MAX_PAGE
MAX_TEXT = MAX_FILTER_CHARS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_MS = 1 << 48
_pack = msgspec.msgpack.Encoder(uuid_format="bytes").encode
NOT_A_CALL_ID = "not_a_call_id"
"""Code of the error about what cannot be a call id."""
_DIGITS = 32


class CallState(StrEnum):
    """What a call may be in."""

    ACTIVE = "ACTIVE"
    """It began, and its end is not on record."""
    ENDED = "ENDED"
    """Its answer came to its end."""
    FAILED = "FAILED"
    """It did not; the reason says why."""


ApprovalState = Literal["open", "approved", "denied", "superseded", "expired"]
"""What a tool call that waits for people, or did, may be in."""
APPROVAL_STATES: tuple[ApprovalState, ...] = get_args(ApprovalState)


def approval_state(text: str) -> ApprovalState | None:
    """Return a state that is asked for; None for `all`. Raises InvalidRequest."""
    state = next((word for word in APPROVAL_STATES if word == text), None)
    if state is None and text != "all":
        raise InvalidRequest(f"must be all or one of {', '.join(APPROVAL_STATES)}", param="state")
    return state


class Queued(StrEnum):
    """What a decision that is to be looked at may be in."""

    WAITING = "waiting"
    """Somebody is to label it."""
    REVIEWED = "reviewed"
    """Somebody did."""
    OVER_BUDGET = "over_budget"
    """Its day's budget went to others."""


class Filter(NamedTuple):
    """A filter: what takes it, what it means as an option of a command, and the values that it may
    have, if those are few."""

    name: str
    of: str
    """Of `Asked`, with spaces between."""
    help: str
    values: Sequence[str] = ()
    default: str = ""


_LISTS = "calls tool-calls judge-blocks"
_ROWS = f"{_LISTS} counts export"
FILTERS = (
    Filter(
        "call_id",
        f"{_LISTS} export verify reviews debug-logs",
        f"One call: its id, or the first {LEAST_PREFIX} characters of it or more.",
    ),
    Filter("session", f"{_ROWS} debug-logs", "Session of the call."),
    Filter("model", f"{_ROWS} usage", "Model asked for."),
    Filter("key", f"{_ROWS} reviews debug-logs door usage", "Name of the API key."),
    Filter(
        "key_id",
        f"{_ROWS} reviews",
        "Id of the API key, or its beginning, as `sluice keys list` shows it.",
    ),
    Filter("name", _ROWS, "Name of the tool."),
    Filter(
        "verdict",
        f"{_ROWS} chunks",
        "allow, block, replace, hold, withheld or discarded.",
        get_args(VerdictName),
    ),
    Filter(
        "policy",
        f"{_ROWS} reviews debug-logs usage",
        "Policy that decided, or of the call; of debug logs the one whose hook it is.",
    ),
    Filter("type", "debug-logs", "transport, endpoint, policy or callback.", tuple(BITS)),
    Filter("hook", "debug-logs", "Hook of a policy, for example on_text."),
    Filter("event", "debug-logs", "What happened, for example chunks."),
    Filter("state", "calls export", "ACTIVE, ENDED or FAILED.", tuple(map(str, CallState))),
    Filter("state", "reviews", "waiting, reviewed or over_budget.", tuple(map(str, Queued))),
    Filter("why", "reviews", "sampled or suspicion.", ("sampled", "suspicion")),
    Filter(
        "since",
        f"{_ROWS} verify reviews debug-logs door usage",
        "Calls that began at this time or later: {forms}. Without a zone it is local time.",
    ),
    Filter(
        "until",
        f"{_ROWS} verify reviews debug-logs door usage",
        "Calls that began before this time, written as for --since.",
    ),
    Filter(
        "q",
        f"{_LISTS} export",
        "Words, or beginnings of words, in the tool's name, its arguments, the reason or the rule.",
    ),
    Filter("q", "debug-logs", "Text in the line's detail, as it is written there."),
    Filter(
        "limit",
        f"{_LISTS} chunks reviews debug-logs",
        f"Items on a page, 1 to {MAX_LIMIT}.",
        default=str(DEFAULT_LIMIT),
    ),
    Filter("cursor", f"{_LISTS} chunks reviews debug-logs", "Where the last page ended."),
    Filter(
        "order",
        f"{_LISTS} chunks reviews",
        "By time of the call: asc is the oldest first, or desc.",
        get_args(Order),
        "desc",
    ),
)
"""All filters, in the order in which a command shows them. What a filter compares is in
`db.read.lists`."""


def filters_of(asked: Asked) -> tuple[Filter, ...]:
    """Return the filters that a list, or what else takes some, takes."""
    return tuple(query_filter for query_filter in FILTERS if asked in query_filter.of.split())


class Position(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last item of a page: what a cursor holds."""

    list: ListName
    order: Order
    call_id: UUID
    number: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class LinePosition(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The last line of a page of debug logs: what its cursor holds. `at` is Unix microseconds."""

    list: Literal["debug-logs"]
    call_id: UUID
    at: int
    process: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
    n: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a list is asked for. `low` and `high` bound the call id (`high` is exclusive), made from
    `since` and `until`."""

    call_id: UUID | None = None
    prefix: str | None = None
    """The beginning of a call id, in digits without dashes: somebody must look up which call it is,
    and ask for that."""
    state: CallState | None = None
    queued: Queued | None = None
    why: str | None = None
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
    label: str | None = None
    """Of judge blocks, for pages: a reader's newest label of the decision."""
    passed: bool = False
    """Of judge blocks with the verdict allow or replace: what a judged policy let pass, instead of
    nothing."""
    limit: int = DEFAULT_LIMIT
    order: Order = "desc"
    after: Position | None = None
    type: str | None = None
    hook: str | None = None
    event: str | None = None
    contains: str | None = None
    after_line: LinePosition | None = None


def parse_filters(parameters: Iterable[tuple[str, str]], *, of: Asked) -> Filters:
    """Check query parameters; an empty value is one not given. Raises InvalidRequest with the
    parameter's name."""
    allowed = {query_filter.name for query_filter in filters_of(of)}
    values: dict[str, str] = {}
    for name, value in parameters:
        if name not in allowed:
            raise InvalidRequest(
                f"unknown filter; known are {', '.join(sorted(allowed))}", param=name[:64]
            )
        if name in values:
            raise InvalidRequest("given twice", param=name)
        if len(value) > MAX_TEXT:
            raise InvalidRequest(f"longer than {MAX_TEXT} characters", param=name)
        if value:
            values[name] = value
    order = _order(values.pop("order", "asc" if of == "chunks" else "desc"))
    parsed: dict[str, Any] = {"order": order}
    for name, value in values.items():
        field, read = _READ_OF.get((of, name)) or _READ.get(name, (name, str))
        parsed[field] = read(value)
    if isinstance(parsed.get("call_id"), str):
        parsed["prefix"] = parsed.pop("call_id")
    if "low" in parsed and "high" in parsed and parsed["low"] >= parsed["high"]:
        raise InvalidRequest("is not after `since`, so nothing can match", param="until")
    after: Position | None = parsed.get("after")
    if after is not None and (after.list != of or after.order != order):
        raise InvalidRequest("belongs to another list or order", param="cursor")
    return Filters(**parsed)


def parse_call_id(value: str) -> UUID | str:
    """Return a call id, or the digits of its beginning, at least 8. Raises InvalidRequest."""
    try:
        return UUID(value)
    except ValueError:
        digits = value.lower().replace("-", "")
    is_hex = bool(digits) and not set(digits) - set("0123456789abcdef") and len(digits) < _DIGITS
    if not is_hex or (
        value.lower() != digits and not str(ids_with(digits)[0]).startswith(value.lower())
    ):
        raise InvalidRequest(
            "must be a call id (a UUID) or the beginning of one",
            param="call_id",
            code=NOT_A_CALL_ID,
        )
    if len(digits) < LEAST_PREFIX:
        raise InvalidRequest(
            f"too short: give at least the first {LEAST_PREFIX} characters of the call id",
            param="call_id",
        )
    return digits


def ids_with(prefix: str) -> tuple[UUID, UUID]:
    """Return the smallest and the largest call id that begins with these digits."""
    return UUID(prefix.ljust(_DIGITS, "0")), UUID(prefix.ljust(_DIGITS, "f"))


def encode_cursor(position: Position | LinePosition) -> str:
    """Return the opaque text of a position."""
    return base64.urlsafe_b64encode(_pack(position)).rstrip(b"=").decode()


def first_id(at: datetime) -> UUID:
    """Return the smallest call id of that millisecond. Raises OverflowError before 1970 or past
    what a UUIDv7 holds."""
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


def _one_of(name: str, known: Sequence[str], value: str) -> str:
    if value not in known:
        raise InvalidRequest(
            f"must be one of {', '.join(known)}{did_you_mean(value, known)}", param=name
        )
    return value


def _bound(name: str, value: str) -> UUID:
    try:
        at = datetime.fromisoformat(value.replace(" ", "+") if "T" in value else value)
        return first_id(at if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise InvalidRequest(
            "must be a date or time like 2026-01-31 or 2026-01-31T12:00:00Z", param=name
        ) from None


def _words(value: str) -> str:
    if not (query := words(value)):
        raise InvalidRequest("contains no word to search for", param="q")
    return query


def _limit(value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= MAX_LIMIT):
        raise InvalidRequest(f"must be a number from 1 to {MAX_LIMIT}", param="limit")
    return int(value)


def read_cursor(value: str) -> Position:
    """Return the position that a cursor holds. Raises InvalidRequest."""
    return _position(value, Position)


def _position(value: str, kind: type[P]) -> P:
    try:
        packed = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(packed, type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidRequest("not a cursor of this API", param="cursor") from None


_READ: dict[str, tuple[str, Callable[[str], Any]]] = {
    "call_id": ("call_id", parse_call_id),
    "state": (
        "state",
        lambda value: CallState(_one_of("state", tuple(map(str, CallState)), value.upper())),
    ),
    "why": ("why", lambda value: _one_of("why", ("sampled", "suspicion"), value.lower())),
    "verdict": ("verdict", lambda value: _one_of("verdict", get_args(VerdictName), value.lower())),
    "since": ("low", partial(_bound, "since")),
    "until": ("high", partial(_bound, "until")),
    "q": ("words", _words),
    "limit": ("limit", _limit),
    "cursor": ("after", read_cursor),
}
"""The field of `Filters` that a filter becomes, and how it is read; all others are text as it
came."""
_READ_OF: dict[tuple[Asked, str], tuple[str, Callable[[str], Any]]] = {
    ("debug-logs", "type"): ("type", lambda value: _one_of("type", tuple(BITS), value.lower())),
    ("debug-logs", "q"): ("contains", str),
    ("debug-logs", "cursor"): ("after_line", lambda value: _position(value, LinePosition)),
    ("reviews", "state"): (
        "queued",
        lambda value: Queued(_one_of("state", tuple(map(str, Queued)), value.lower())),
    ),
}
"""The same of those that mean something else in a list."""
