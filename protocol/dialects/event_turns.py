"""Recorded turns of the dialects that seal their output: built from the decoder's own events, and
put into the next request.

Responses encrypts its reasoning, Gemini signs calls and texts, Converse signs thinking. Each wants
that back unchanged, and no client of another dialect can keep it. So a turn is rebuilt from its raw
chunks as blocks; a dialect says how one block is written (`Write`). Messages has a builder of its
own (`protocol.dialects.anthropic.turn`), because its turns hold the results of the provider's own
tools as well."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.dialects.turns import BaseTurnBuilder, StoredTurn
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    SignatureDelta,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import ChatRequest, OtherPart, Part, TextPart, ToolUsePart, Turn

if TYPE_CHECKING:
    from protocol.dialects.modules import Decoder


class TurnBlock(msgspec.Struct, omit_defaults=True):
    """One block of a recorded turn. `text` is its text, or the JSON text of a call's arguments;
    `signature` what seals it."""

    index: int
    kind: BlockKind
    id: str = ""
    name: str = ""
    text: str = ""
    signature: str = ""
    body: dict[str, Any] | None = None


Write = Callable[[TurnBlock, ToolUsePart | None], Part | None]
"""Writes a block as a part of the next request: an OtherPart of the dialect, as its API has it.
With a call comes what the client has of it, whose id and arguments stay: a policy may have replaced
them. None: the block is left out, or the client's own part stays."""


class EventTurnBuilder(BaseTurnBuilder):
    """Builds a turn of the dialect whose codecs are given. Raises as its base does: never, but
    `is_broken`."""

    def __init__(
        self, make_decoder: "Callable[[], Decoder]", decode_whole: Callable[[bytes], list[Event]]
    ) -> None:
        super().__init__()
        self._make, self._whole = make_decoder, decode_whole
        self._decoder = make_decoder()
        self._blocks: dict[int, TurnBlock] = {}
        self._pieces: dict[int, list[str]] = {}
        self._base = 0

    def finish(self) -> None:
        """No chunk follows."""
        if not self.is_broken and not self._has_ended:
            try:
                self._take(self._decoder.finish())
            except RemoteProtocolError:
                self.is_broken = True

    def content(self) -> list[dict[str, Any]]:
        """The blocks in their order, as `TurnBlock` in builtins."""
        for index in list(self._pieces):
            self._close(index)
        return [msgspec.to_builtins(self._blocks[index]) for index in sorted(self._blocks)]

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case MessageStart():
                    self._base, self._has_ended = max(self._blocks, default=-1) + 1, False
                case BlockStart():
                    index = self._base + event.index
                    self._blocks[index] = TurnBlock(
                        index, event.kind, event.id, event.name, body=event.body
                    )
                case TextDelta() | ArgumentsDelta():
                    self._pieces.setdefault(self._base + event.index, []).append(event.text)
                case SignatureDelta():
                    self._blocks[self._base + event.index].signature = event.signature
                case BlockStop():
                    self._close(self._base + event.index)
                case MessageStop():
                    for index in list(self._pieces):
                        self._close(index)
                    self.stop_reason, self._has_ended, self._decoder = (
                        event.stop_reason,
                        True,
                        self._make(),
                    )
                case Opaque() | UpstreamFailed():
                    self.is_broken = True
                case _:
                    pass

    def _close(self, index: int) -> None:
        if (pieces := self._pieces.pop(index, None)) is not None:
            self._blocks[index].text += "".join(pieces)

    def _read_chunk(self, chunk: bytes) -> None:
        self._take(self._decoder.feed(chunk))

    def _read_body(self, raw: bytes) -> None:
        self._take(self._whole(raw))


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], write: Write, *, upstream: str
) -> tuple[ChatRequest, int]:
    """Put recorded turns of `upstream` and of the request's model in the place of the client's;
    returns the request and how many turns with calls are not on record.

    A turn is known where all its tool call ids are of exactly one recorded turn, one without calls
    where its text is that of the answer that it names. A call that the client does not have was
    blocked, and stays out with what seals it; the client's text stays where it is not the recorded
    one.
    """
    usable = [t for t in stored if t.upstream in ("", upstream) and t.model in ("", request.model)]
    owners, answers = _owners(usable), {t.call_id: t for t in usable}
    used: set[str] = set()
    turns: list[Turn] = []
    unknown = 0
    for turn in request.turns:
        calls = (
            {p.id: p for p in turn.parts if isinstance(p, ToolUsePart)}
            if turn.role == "assistant"
            else {}
        )
        owner = _owner(list(calls), owners) if calls else answers.get(turn.answer)
        if (
            owner is not None
            and owner.call_id not in used
            and len(calls) == sum(isinstance(p, ToolUsePart) for p in turn.parts)
        ):
            used.add(owner.call_id)
            turns.append(_merged(turn, owner, calls, write))
        else:
            unknown += bool(calls)
            turns.append(turn)
    return (msgspec.structs.replace(request, turns=tuple(turns)) if used else request), unknown


def _owners(stored: Iterable[StoredTurn]) -> dict[str, StoredTurn | None]:
    owners: dict[str, StoredTurn | None] = {}
    for turn in stored:
        for identity in turn.tool_call_ids:
            owners[identity] = None if identity in owners else turn
    return owners


def _owner(ids: Sequence[str], owners: dict[str, StoredTurn | None]) -> StoredTurn | None:
    first = owners.get(ids[0]) if ids else None
    return first if all(owners.get(i) is first for i in ids) else None


def _merged(turn: Turn, stored: StoredTurn, calls: dict[str, ToolUsePart], write: Write) -> Turn:
    blocks = msgspec.convert(stored.content, list[TurnBlock])
    of_block = {
        block: calls[i]
        for i, block in zip(stored.tool_call_ids, stored.blocks, strict=True)
        if i in calls
    }
    texts = [b for b in blocks if b.kind is BlockKind.TEXT]
    other_parts = [p for p in turn.parts if not isinstance(p, ToolUsePart)]
    is_same = _words(p.text for p in other_parts if isinstance(p, TextPart)) == _words(
        b.text for b in texts
    )
    if not calls and not is_same:
        # its items' ids alone say whose answer it is
        return turn
    client_parts: list[Part] = [p for p in other_parts if not (is_same and isinstance(p, TextPart))]
    parts = list(_parts(blocks, of_block, client_parts, write, is_same=is_same))
    # the items of the provider's own tools, as its client was given them, stand there once
    client = set(map(id, client_parts))
    recorded = {p.kind for p in parts if isinstance(p, OtherPart) and id(p) not in client}
    retained = (
        p
        for p in parts
        if id(p) not in client or not (isinstance(p, OtherPart) and p.kind in recorded)
    )
    return Turn("assistant", tuple(retained), turn.extra)


def _parts(
    blocks: Sequence[TurnBlock],
    of_block: dict[int, ToolUsePart],
    client_parts: list[Part],
    write: Write,
    *,
    is_same: bool,
) -> Iterator[Part]:
    """The recorded blocks in their order; what the client has instead of them stands where the text
    was, or before the calls."""
    for block in blocks:
        if block.kind in (BlockKind.TEXT, BlockKind.TOOL_USE) and client_parts:
            yield from client_parts
            client_parts = []
        if block.kind is BlockKind.TOOL_USE:
            if (call := of_block.get(block.index)) is not None:
                yield write(block, call) or call
        elif block.kind is BlockKind.TEXT:
            if (
                is_same
                and (part := write(block, None) or (TextPart(block.text) if block.text else None))
                is not None
            ):
                yield part
        elif (part := write(block, None)) is not None:
            yield part
    yield from client_parts
    recorded = {block.index for block in blocks}
    yield from (call for index, call in of_block.items() if index not in recorded)


def _words(texts: Iterable[str]) -> str:
    # clients trim
    return "".join("".join(texts).split())
