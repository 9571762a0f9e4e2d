"""Debug logs: which exist, what switches them on, and the format of a line. Pure.

A call's lines are asked for once, by its gateway, as a mask in START: bits of loggers, and how much
of content is shown. They are for finding out what happened, and no evidence: lines may be lost, and
are counted.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from protocol.errors import InvalidRequest

Logger = Literal["transport", "endpoint", "policy", "callback"]
"""transport: entries written and read in Redis. endpoint: what a policy worker does with a call.
policy: each hook of each policy. callback: what the gateway does towards client and upstream."""
Content = Literal["none", "preview", "full"]

TRANSPORT, ENDPOINT, POLICY, CALLBACK = 1, 2, 4, 8
PREVIEW, FULL = 64, 128
REFUSED = 256
"""Somebody asked for lines who may not; the call's record says so."""
BITS: dict[str, int] = {
    "transport": TRANSPORT,
    "endpoint": ENDPOINT,
    "policy": POLICY,
    "callback": CALLBACK,
}
ANY = TRANSPORT | ENDPOINT | POLICY | CALLBACK
HEADER = b"x-sluice-debug"
DEBUG_REFUSED = "debug_refused"
"""Kind of the event in the record of a call whose key may not switch debug logs on by the
header."""

PREVIEW_BYTES, FULL_BYTES = 1024, 65_536
"""Of content that a line shows."""
LINES_PER_S, BYTES_PER_S, LINES_PER_CALL = 2_000, 8 * 2**20, 20_000
"""Of one process; what is more is counted as lost."""
KEPT_DAYS, KEPT_BYTES = 3, 2**30
"""How long lines are kept, and how many bytes of them; the oldest day goes first."""
LONGEST_MIN, MOST_SWITCHES = 60, 10
"""Of what admins switch on for a key: for how long, and for how many keys at once."""
MAX_PAIRS = 1_000
"""Pairs of key and error code of which a gateway counts what it refused; the others are counted
together."""


class Debug(BaseModel):
    """Which calls have debug logs (docs/run/debug-logs.md). Without loggers, only those that an
    admin switches on."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    loggers: tuple[Logger, ...] = ()
    """Which loggers to switch on."""
    keys: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")], ...] = ()
    """Names of the API keys whose calls are logged. Empty: all."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of these calls that is logged."""
    content: Content = "preview"
    """How much content a line shows. `none`: sizes only; `preview`: up to 1 KiB; `full`: up to 64
    KiB."""


def mask_of(loggers: Iterable[str], content: Content = "preview") -> int:
    """Return the mask in START for these loggers; 0 for none."""
    mask = 0
    for logger in loggers:
        mask |= BITS[logger]
    return mask | {"none": 0, "preview": PREVIEW, "full": FULL}[content] if mask else 0


def loggers_of(mask: int) -> list[str]:
    """Return the names of the loggers in a mask."""
    return [name for name, bit in BITS.items() if mask & bit]


def read_header(value: bytes) -> list[str]:
    """Return the loggers that the header names. Raises InvalidRequest for a name that is none."""
    names = [name.strip() for name in value.decode("latin-1").split(",") if name.strip()]
    if unknown := [name for name in names if name not in BITS]:
        raise InvalidRequest(
            f"there is no debug log {unknown[0][:32]!r}; there are {', '.join(BITS)}",
            param=HEADER.decode(),
        )
    return names


class DebugLine(msgspec.Struct, frozen=True, array_like=True):
    """One line. `n` counts the lines of one process about one call, from 1: a number that is
    missing was lost. `at` is Unix microseconds.

    `number` says what comes next: of chunks the seq behind them, of what was released the number of
    the next output.
    """

    call_id: str
    n: int
    at: int
    type: str
    event: str
    seq: int = -1
    number: int = -1
    block: int = -1
    policy: str = ""
    hook: str = ""
    duration_us: int = -1
    size: int = -1
    """In bytes."""
    detail: bytes = b""


class DoorCount(msgspec.Struct, frozen=True, array_like=True):
    """How many requests with a key (its name, or `none`) a gateway has refused with an error code
    since it started."""

    key: str
    code: str
    n: int


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """What one entry of a debug stream holds. `lost`: lines that the process made and did not send,
    since it started. `sent`: those that it sent before these."""

    process: str
    lost: int
    sent: int
    lines: list[DebugLine] = []
    door: list[DoorCount] = []
    at: int = 0
    """Of `door`, Unix ms."""


def shown(content: bytes, most: int) -> bytes:
    """Return content cut to what a line may hold, with its whole length where it is longer. `most`
    0: only its length."""
    if len(content) <= most:
        return content
    return (
        content[:most] + b"... (%d bytes)" % len(content) if most else b"(%d bytes)" % len(content)
    )


def most_of(mask: int) -> int:
    """Return how many bytes of content a line of this mask may show."""
    return FULL_BYTES if mask & FULL else PREVIEW_BYTES if mask & PREVIEW else 0
