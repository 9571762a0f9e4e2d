"""The output of one call in one step: joined and encoded outputs of its session, and the arguments
of the release script."""

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from policy.session.effects import Output, Respond, SendUpstream
from protocol.events import Event, TextDelta
from streams import layout

if TYPE_CHECKING:
    from protocol.dialects.modules import Encoder


class Release(msgspec.Struct):
    """Arguments of one call in the release script."""

    number: int
    next: int
    digest: str
    seq: int
    reply: bytes
    audit: bytes
    written: int
    """How many releases with bytes there are with it; below 0: not known."""
    is_asked: bool = False
    """Was it sent, and is its answer still to come?"""
    is_out: bool | None = False
    """Did it go out? None: Redis may have done it."""


class Rendered(msgspec.Struct):
    """Outputs as one reply has them."""

    status: int = 0
    headers: dict[str, str] = {}
    data: bytes = b""
    late: bytes = b""
    late_sha256: bytes = b""
    dispatch: layout.Dispatch | None = None


def render(outputs: list[Output], make_encoder: "Callable[[], Encoder]") -> Rendered:
    """Encode the outputs of a session as one reply has them."""
    rendered = Rendered()
    events: list[Event] = []
    for output in outputs:
        if type(output) is TextDelta:
            events.append(output)
        elif isinstance(output, SendUpstream):
            rendered.dispatch = layout.Dispatch(
                output.upstream,
                output.dialect,
                output.endpoint,
                output.body,
                output.betas,
                digest(output.body or b""),
                output.attempt,
                output.wait_ms,
            )
        elif isinstance(output, Respond):
            rendered.status, rendered.headers = output.status, output.headers
            rendered.data, rendered.late, rendered.late_sha256 = (
                output.body,
                output.frame,
                digest(output.frame),
            )
        else:
            events.append(output)
    if events:
        rendered.data += make_encoder().encode(join(events))
    return rendered


def pass_over(outputs: list[Output], make_encoder: "Callable[[], Encoder]") -> None:
    """Let an encoder take what another owner released. Nobody knows into how many frames that was
    joined; a dialect that numbers its frames goes on behind the most that there can be, so that no
    number comes twice."""
    if events := [output for output in outputs if not isinstance(output, SendUpstream | Respond)]:
        make_encoder().encode(events)


def join(events: list[Event]) -> list[Event]:
    """Join neighbouring text deltas of one block: one frame instead of many, the same text."""
    if len(events) < 2:
        return events
    joined: list[Event] = []
    parts: list[str] = []
    index = -1
    for event in events:
        if type(event) is TextDelta:
            if event.index != index and parts:
                joined.append(TextDelta(index, "".join(parts)))
                parts = []
            index = event.index
            parts.append(event.text)
            continue
        if parts:
            joined.append(TextDelta(index, "".join(parts)))
            parts = []
        joined.append(event)
    if parts:
        joined.append(TextDelta(index, "".join(parts)))
    return joined


def digest(data: bytes) -> bytes:
    """The hash that goes with bytes to the gateway and into the record; of none, none."""
    return sha256(data).digest() if data else b""
