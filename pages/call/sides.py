"""Both sides of a call by content block: what upstream sent, decoded from chunks, and what the
client got, decoded from releases.

The record holds bytes; the codecs of `protocol` say what they mean. What cannot be decoded is
reported as such, never guessed. Must not know: the database, templates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import EventSplitter
from protocol.codecs import decode_whole
from protocol.dialects.base import Dialect
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.errors_wire import parse_error, upstream_sentence
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    RawDelta,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)

if TYPE_CHECKING:
    from protocol.dialects.modules import Decoder

MOST_EVENT = 64 * 2**20
_LEAST_FOUND = 12
"""Characters that a text must have to be looked for in the middle of what the client got."""


@dataclass(slots=True)
class SideBlock:
    """A content block as seen by one side. `number` is the block's number in the record."""

    number: int
    kind: str = ""
    name: str = ""
    id: str = ""
    pieces: list[str] = field(default_factory=list)
    sealed: int = 0
    """Bytes of it that the provider encrypted or signed, which nobody here can read."""
    body: Mapping[str, object] | None = None
    chunks: int = 0

    @property
    def text(self) -> str:
        """Its text, or the arguments of a tool call."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""

    @property
    def is_call(self) -> bool:
        """Is it a tool call?"""
        return self.kind in (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)


class Listener:
    """Takes the raw bytes of one side in order. The first of `dialects` that understands them is
    used.

    `blocks` holds the content blocks, `failed` the error at the end, `unknown` what no decoder
    models.
    """

    def __init__(self, dialects: Sequence[Dialect], *, keep_text: bool = True) -> None:
        self._dialects, self._keep = tuple(dialects), keep_text
        self._decoder: Decoder | None = None
        self._offset = self._next = 0
        self._is_placed = False
        self.blocks: dict[int, SideBlock] = {}
        self.failed = self.problem = self.dialect = ""
        self.unknown: list[str] = []
        self.last: list[tuple[int, str]] = []
        """What the last piece added: block and text."""
        self.heard: set[int] = set()
        """The blocks that had any."""

    def take(self, raw: bytes, block: int = -1) -> None:
        """Take one event or one whole answer; `block` is the one that the record names for it.
        Never raises on what it is given."""
        self.last = []
        if not raw.strip():
            return
        if raw.lstrip()[:1] in (b"{", b"["):
            self._whole(raw)
            return
        for event in self._events(raw):
            self._event(event, block)

    def restart(self) -> None:
        """What comes now is another answer: its blocks are numbered behind those that were."""
        self._decoder, self._offset, self._is_placed = None, self._next, False

    def finish(self) -> None:
        """There is nothing more."""
        if self._decoder is not None:
            try:
                for event in self._decoder.finish():
                    if not isinstance(event, UpstreamFailed):
                        self._event(event, -1)
            except RemoteProtocolError as error:
                self.problem = self.problem or str(error)
        self._decoder = None

    def _events(self, raw: bytes) -> list[Event]:
        if self._decoder is not None:
            try:
                return self._decoder.feed(raw)
            except RemoteProtocolError as error:
                self.problem = self.problem or str(error)
                return []
        for dialect in self._dialects:
            decoder = dialect.decoder()
            try:
                events = decoder.feed(raw)
            except RemoteProtocolError:
                continue
            if any(isinstance(event, MessageStart | UpstreamFailed) for event in events):
                self._decoder, self.dialect = decoder, dialect.name
                self._dialects = (
                    dialect,
                    *(other for other in self._dialects if other is not dialect),
                )
                return events
        return []

    def _whole(self, raw: bytes) -> None:
        for dialect in self._dialects:
            try:
                events = decode_whole(dialect.name, raw)
            except (RemoteProtocolError, RecursionError):
                continue
            if any(isinstance(event, MessageStart) for event in events):
                self.dialect = dialect.name
                for event in events:
                    self._event(event, -1)
                return
        payload, error = parse_error(raw)
        if error:
            self.failed = upstream_sentence(payload) or "it gives no reason"
        else:
            self.problem = self.problem or "it is no answer of a dialect that is known"

    def _event(self, event: Event, block: int) -> None:
        match event:
            case BlockStart():
                if not self._is_placed and block >= event.index:
                    # an answer that goes on with a turn: its first block says where it stands in
                    # the whole
                    self._offset = block - event.index
                self._is_placed = True
                content_block = self._side_block(event.index)
                content_block.kind, content_block.name, content_block.id, content_block.body = (
                    event.kind.value,
                    event.name,
                    event.id,
                    event.body,
                )
                if event.kind is BlockKind.OTHER and event.body:
                    self._carried(content_block, event.body)
            case TextDelta() | ArgumentsDelta():
                content_block = self._side_block(event.index)
                content_block.chunks += 1
                self.last.append((content_block.number, event.text))
                self.heard.add(content_block.number)
                if self._keep:
                    content_block.pieces.append(event.text)
            case SignatureDelta():
                self._side_block(event.index).sealed += len(event.signature)
            case AttachmentDelta() if event.field == "reasoning_details":
                self._side_block(event.index).sealed += _encrypted(event.value)
            case MessageStop():
                # a decoder ends with its message; what was kept for its end is out by now
                if event.explanation:
                    self.unknown.append("explanation of the refusal")
                self.restart()
            case UpstreamFailed():
                self.failed = event.message or event.kind
            case Opaque():
                self.unknown.append(event.what)
            case RawDelta():
                self.unknown.append(event.what)
            case _:
                pass

    def _carried(self, content_block: SideBlock, body: Mapping[str, object]) -> None:
        """A block that came whole: what is encrypted is counted, all else is its JSON."""
        hidden = body.get("data") if "thinking" in content_block.name else None
        if isinstance(hidden, str):
            content_block.kind, content_block.sealed = BlockKind.THINKING.value, len(hidden)
            return
        text = dumps(body).decode(errors="surrogatepass")
        self.last.append((content_block.number, text))
        self.heard.add(content_block.number)
        if self._keep:
            content_block.pieces.append(text)

    def _side_block(self, index: int) -> SideBlock:
        number = index + self._offset
        self._next = max(self._next, number + 1)
        if number not in self.blocks:
            self.blocks[number] = SideBlock(number)
        return self.blocks[number]


def _encrypted(value: object) -> int:
    """Characters of reasoning that came encrypted."""
    total = 0
    for element in value if isinstance(value, list) else ():
        data = element.get("data") if isinstance(element, dict) else None
        total += len(data) if isinstance(data, str) else 0
    return total


def beginning(
    dialects: Sequence[Dialect], opening: bytes, pieces: Iterable[bytes]
) -> SideBlock | None:
    """Return what the first chunks of a block say; `opening` is the one that began the message, if
    it is of no block."""
    listener = Listener(dialects)
    listener.take(opening)
    for raw in pieces:
        listener.take(raw)
    if not listener.blocks:
        return None
    first, *others = listener.blocks.values()
    for content_block in others:
        first.pieces += content_block.pieces
    return first


def in_order(name: str | None) -> tuple[Dialect, ...]:
    """Return all dialects, the one of that name first."""
    return tuple(sorted(DIALECTS.values(), key=lambda dialect: dialect.name != name))


def read_client(pieces: Iterable[bytes], dialect: str | None, *, streams: bool) -> Listener:
    """Return what a client read out of the bytes that it got."""
    listener = Listener(in_order(dialect))
    if not streams:
        listener.take(b"".join(pieces))
        return listener
    splitter = EventSplitter(MOST_EVENT)
    for piece in pieces:
        for event in splitter.feed(piece):
            listener.take(event)
    for event in splitter.finish():
        listener.take(event)
    listener.finish()
    return listener


@dataclass(frozen=True, slots=True)
class BlockOutcome:
    """The record of a block that upstream sent. `released`: the arguments that went out; `passed`:
    it went out as it came."""

    number: int
    is_call: bool
    text: str
    passed: bool = False
    released: str | None = None


@dataclass(slots=True)
class Got:
    """What the client got for a block. `shared`: it covers these blocks together, because nothing
    in the bytes separates them."""

    text: str = ""
    shared: tuple[int, ...] = ()


def align(
    blocks: Sequence[BlockOutcome], client: Sequence[SideBlock]
) -> tuple[dict[int, Got], str]:
    """Return what the client got for each block, and the text that it got for none of them.

    A client's text joins what several blocks left. Blocks that went out as they came are found
    again; what lies between them is what the client got for the others.
    """
    matched: dict[int, Got] = {}
    remainder = _Unassigned(client)
    waiting: list[int] = []
    loose: list[str] = []

    def settle(text: str) -> None:
        if not waiting:
            loose.append(text)
        elif text:
            shared = tuple(waiting) if len(waiting) > 1 else ()
            for number in waiting:
                matched[number] = Got(text, shared)
        waiting.clear()

    for block in blocks:
        if block.is_call and block.released is not None:
            before = remainder.to_call()
            if before is None:
                waiting.append(block.number)
                continue
            settle(before[0])
            matched[block.number] = Got(before[1])
        elif block.passed and not block.is_call and block.text:
            text_before = remainder.to_text(block.text, may_skip=bool(waiting))
            if text_before is None:
                waiting.append(block.number)
                continue
            settle(text_before)
            matched[block.number] = Got(block.text)
        else:
            waiting.append(block.number)
    settle(remainder.all())
    return matched, "".join(loose)


class _Unassigned:
    """What of the client's side is not given to a block yet."""

    def __init__(self, client: Sequence[SideBlock]) -> None:
        self._items = [(content_block.is_call, content_block.text) for content_block in client]
        self._at = self._from = 0

    def to_call(self) -> tuple[str, str] | None:
        """Go behind the next tool call; returns the text before it, and its arguments."""
        for at in range(self._at, len(self._items)):
            is_call, text = self._items[at]
            if is_call:
                before = self._texts(at)
                self._at, self._from = at + 1, 0
                return before, text
        return None

    def to_text(self, text: str, *, may_skip: bool) -> str | None:
        """Go behind a text; returns what stands before it."""
        for at in range(self._at, len(self._items)):
            is_call, client_text = self._items[at]
            if is_call:
                return None
            start = self._from if at == self._at else 0
            place = (
                client_text.find(text, start)
                if may_skip and len(text) >= _LEAST_FOUND
                else start
                if client_text.startswith(text, start)
                else -1
            )
            if place >= 0:
                before = self._texts(at) + client_text[start:place]
                self._at, self._from = at, place + len(text)
                return before
            if not may_skip and start < len(client_text):
                return None
        return None

    def all(self) -> str:
        """Return all that is left."""
        return self._texts(len(self._items))

    def _texts(self, until: int) -> str:
        """What lies before an item, without what was given away."""
        texts = [text for _, text in self._items[self._at : until]]
        if texts:
            texts[0] = texts[0][self._from :]
        return "".join(texts)
