"""Upstream bytes to events, in the ways in which they may arrive."""

import itertools
from collections.abc import Iterable
from hashlib import sha256

from protocol import codecs
from protocol.bytes.sse import EventSplitter
from protocol.dialects.modules import Turns
from protocol.dialects.table import DIALECTS
from protocol.events import (
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import DialectName
from tests.support.checks.kinds import of_kind
from tests.support.upstreams.recordings import Recording

MAX = 1 << 20


def decode(dialect: DialectName, pieces: Iterable[bytes]) -> list[Event]:
    """Decode a stream that comes in `pieces`."""
    splitter, decoder = EventSplitter(MAX), DIALECTS[dialect].decoder()
    chunks = [chunk for piece in pieces for chunk in splitter.feed(piece)] + splitter.finish()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.finish()


def events_of(recording: Recording) -> list[Event]:
    """The events of a recorded answer, whole or as a stream that came in one piece."""
    if recording.is_stream:
        return decode(recording.dialect, [recording.body])
    return codecs.decode_whole(recording.dialect, recording.body)


def known(events: Iterable[Event]) -> list[Event]:
    """Without what is withheld or says nothing."""
    return [e for e in events if not isinstance(e, Opaque | Ping)]


def by_block(events: Iterable[Event]) -> list[Event]:
    """Order events as a session releases them: block after block, in the order in which blocks
    began, each whole."""
    events = known(events)
    order = [e.index for e in events if isinstance(e, BlockStart)]
    ends = [e for e in events if isinstance(e, MessageStop | UpstreamFailed)]
    starts = of_kind(events, MessageStart)
    blocks = [[e for e in events if getattr(e, "index", None) == index] for index in order]
    return [*starts, *itertools.chain(*blocks), *ends]


def texts(events: Iterable[Event]) -> dict[int, str]:
    """The text of each block."""
    found: dict[int, str] = {}
    for event in events:
        if isinstance(event, TextDelta):
            found[event.index] = found.get(event.index, "") + event.text
    return found


def stopped(events: Iterable[Event]) -> set[int]:
    """The blocks that were ended."""
    return {e.index for e in events if isinstance(e, BlockStop)}


def digest(text: str) -> str:
    """As the facts about recordings have texts that are too long for them."""
    return sha256(text.encode()).hexdigest()[:16]


def turns_of(dialect: DialectName) -> Turns:
    """What builds recorded turns of this dialect and puts them back."""
    turns = DIALECTS[dialect].turns
    assert turns is not None
    return turns
