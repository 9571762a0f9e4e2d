"""Rebuilds assistant turns of the Messages dialect exactly as upstream sent them, from the record,
for the next request.

A chat/completions client cannot keep thinking with its signature, nor results of the provider's own
tools. The API wants both back unchanged: in the next request of a tool loop, and after a paused
turn. So the turn is rebuilt from the raw events. Nothing is guessed: a turn that is not wholly
understood counts as incomplete and is not used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

import protocol.dialects.turns
from protocol.bytes.json_strict import (
    AmbiguousJson,
    dumps,
    loads_arguments,
    loads_exact,
    normal_arguments,
)
from protocol.dialects.turns import StoredTurn
from protocol.events import PAUSES
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    Reasoning,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    Turn,
)

_THINKING = frozenset(("thinking", "redacted_thinking"))
_PLAIN_CALL = frozenset(("type", "id", "name", "input"))


class _Frame(msgspec.Struct, gc=False):
    type: str
    index: int = -1
    delta: msgspec.Raw = msgspec.Raw(b"{}")
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    message: msgspec.Raw = msgspec.Raw(b"{}")


class _Delta(msgspec.Struct, gc=False):
    """The text of a delta; fields beside it are not part of the turn."""

    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    signature: str = ""


_frames = msgspec.json.Decoder(_Frame)
_deltas = msgspec.json.Decoder(_Delta)


def _read_frame(data: bytes) -> _Frame:
    try:
        return _frames.decode(data)
    except msgspec.MsgspecError:
        # lone surrogates, which the fast parser refuses
        value = _mapping(loads_exact(data))
        parts = {
            name: msgspec.Raw(dumps(value[name]))
            for name in ("delta", "content_block", "message")
            if name in value
        }
        index = value.get("index", -1)
        return _Frame(_string(value.get("type")), index if type(index) is int else -1, **parts)


def _read_delta(raw: msgspec.Raw) -> _Delta:
    try:
        return _deltas.decode(raw)
    except msgspec.MsgspecError:
        return msgspec.convert(loads_exact(bytes(raw)), _Delta)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is missing")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is missing")
    return value


class _Open(msgspec.Struct):
    """A block whose stop has not come. `pieces` are fragments of its one growing field."""

    block: dict[str, Any]
    pieces: list[str] = []

    def close(self) -> None:
        """Put the fragments into the block, joined. Raises ValueError where they are no JSON object
        and must be one."""
        block, text = self.block, "".join(self.pieces)
        match block["type"]:
            case "text" | "thinking" as field:
                if text:
                    block[field] = (block.get(field) or "") + text
            case _:
                if text.strip():
                    whole = _mapping(loads_exact(text.encode("utf-8", "surrogatepass")))
                    if block.get("input") not in ({}, None, whole):
                        raise ValueError("a call came with two inputs")
                    block["input"] = whole


class TurnBuilder(protocol.dialects.turns.BaseTurnBuilder):
    """A turn of this dialect."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[dict[str, Any]] = []
        self._open: dict[int, _Open] = {}
        self._base = 0
        self._message_id = ""
        self._in_message = False

    def content(self) -> list[dict[str, Any]]:
        """The content blocks, without blank text, which the API sends and refuses. Values that must
        not be changed."""
        return [
            b
            for b in self._blocks
            if b["type"] != "text" or b.get("citations") or _string(b.get("text", "")).strip()
        ]

    def _read_answer(self, answer: Any) -> None:
        message = _mapping(answer)
        if message.get("type") != "message":
            raise ValueError("not a message")
        self._begin(message)
        self._end()

    def _read_event(self, data: bytes) -> None:
        frame = _read_frame(data)
        if frame.type == "ping":
            return
        if frame.type == "message_start":
            self._begin(_mapping(loads_exact(bytes(frame.message))))
            return
        if not self._in_message:
            raise ValueError("an event outside a message")
        match frame.type:
            case "content_block_delta":
                self._delta(frame)
            case "content_block_start":
                self._start(frame.index, loads_exact(bytes(frame.content_block)))
            case "content_block_stop":
                self._opened(frame.index).close()
                del self._open[frame.index]
            case "message_delta":
                self._about(_mapping(loads_exact(bytes(frame.delta))))
            case "message_stop":
                self._end()
            case _:
                # an error, or an event that may be part of the content
                raise ValueError("an event that is not understood")

    def _begin(self, message: dict[str, Any]) -> None:
        identity = message.get("id")
        if self._in_message:
            if identity == self._message_id and len(self._blocks) == self._base:
                return
            raise ValueError("a message inside a message")
        if self._has_ended and self.stop_reason not in PAUSES:
            raise ValueError("a message after the end")
        self._in_message, self._has_ended, self.stop_reason = True, False, ""
        self._message_id, self._base = _string(identity), len(self._blocks)
        content = message.get("content")
        if content is not None and not isinstance(content, list):
            raise ValueError("the content is no list")
        for index, block in enumerate(content or ()):
            self._start(index, block)
            self._open.pop(index).close()
        self._about(message)

    def _about(self, fields: dict[str, Any]) -> None:
        if fields.get("stop_reason") is not None:
            self.stop_reason = _string(fields["stop_reason"])
        if fields.get("container") is not None:
            container = _mapping(fields["container"])
            self.container = _string(container.get("id"))
            self.container_expires_at = str(container.get("expires_at") or "")

    def _start(self, index: int, block: Any) -> None:
        if index != len(self._blocks) - self._base:
            raise ValueError("blocks out of order")
        block = _mapping(block)
        kind = _string(block.get("type"))
        if kind in ("text", "thinking"):
            _string(block.get(kind, ""))
        if kind.endswith("tool_use"):
            _mapping(block.setdefault("input", {}))
        self._blocks.append(block)
        self._open[index] = _Open(block)

    def _opened(self, index: int) -> _Open:
        if (open_block := self._open.get(index)) is None:
            raise ValueError("a block that is not open")
        return open_block

    def _delta(self, frame: _Frame) -> None:
        open_block = self._opened(frame.index)
        delta, block = _read_delta(frame.delta), open_block.block
        match delta.type, block["type"]:
            case ("text_delta", "text"):
                open_block.pieces.append(delta.text)
            case ("thinking_delta", "thinking"):
                open_block.pieces.append(delta.thinking)
            case ("signature_delta", "thinking"):
                block["signature"] = delta.signature
            case ("input_json_delta", kind) if kind.endswith("tool_use"):
                open_block.pieces.append(delta.partial_json)
            case ("citations_delta", "text"):
                if not block.get("citations"):
                    block["citations"] = []
                if not isinstance(block["citations"], list):
                    raise ValueError("the citations are no list")
                block["citations"].append(
                    _mapping(_mapping(loads_exact(bytes(frame.delta))).get("citation"))
                )
            case ("compaction_delta", "compaction"):
                block |= {
                    k: v
                    for k, v in _mapping(loads_exact(bytes(frame.delta))).items()
                    if k != "type"
                }
            case _:
                raise ValueError("a delta that is not understood")

    def _end(self) -> None:
        # recorded: a message cut by max_tokens ends without the stop of its last block
        for open_block in self._open.values():
            open_block.close()
        self._open.clear()
        self._in_message, self._has_ended = False, True
        _string(self.stop_reason or None)


def _calls(turn: Turn) -> Iterator[ToolUsePart]:
    return (
        (p for p in turn.parts if isinstance(p, ToolUsePart))
        if turn.role == "assistant"
        else iter(())
    )


def with_turns(
    request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str = ""
) -> tuple[ChatRequest, str, list[str]]:
    """Put recorded turns in the place of the client's; returns the request, the container to go on
    with, and what was dropped.

    A turn is known where all its tool call ids are of exactly one recorded turn (of `upstream`, if
    given). The client's arguments stay: a policy may have replaced them; a call that the client
    does not have was blocked, and stays out. Where a turn of the tool loop that the request goes on
    with is unknown, thinking is turned off: the API refuses such turns without the thinking they
    began with, and nothing is made up.
    """
    stored = [s for s in stored if not upstream or s.upstream in ("", upstream)]
    owners, answers = _owners(stored), {s.call_id: s for s in stored if _is_usable(s)}
    known: dict[int, StoredTurn] = {}
    used: set[str] = set()
    loop = loop_start(request.turns)
    has_unknown = False
    for position, turn in enumerate(request.turns):
        ids = [p.id for p in _calls(turn)]
        owner = _owner(ids, owners) if ids else answers.get(turn.answer)
        if not ids and (owner is None or not _says(turn, owner)):
            continue
        if owner is not None and owner.call_id not in used:
            used.add(owner.call_id)
            known[position] = owner
        else:
            has_unknown = has_unknown or position >= loop
    reasoning, dropped = request.reasoning, []
    if has_unknown and reasoning is not None and not _is_off(reasoning):
        dropped = ["reasoning_effort" if reasoning.effort else "thinking"]
        reasoning = Reasoning(mode="off")
    merge = _Merge(keep_thinking=reasoning is None or not _is_off(reasoning))
    turns = tuple(merge.turn(t, known[n]) if n in known else t for n, t in enumerate(request.turns))
    if not known and not dropped:
        return request, "", []
    container = next((s.container for s in reversed(known.values()) if s.container), "")
    return msgspec.structs.replace(request, turns=turns, reasoning=reasoning), container, dropped


def _is_off(reasoning: Reasoning) -> bool:
    return reasoning.mode == "off" or reasoning.effort == "none"


def loop_start(turns: Sequence[Turn]) -> int:
    """Where the tool loop begins that the request goes on with: after the last turn in which the
    user says something new."""
    for position in range(len(turns) - 1, -1, -1):
        turn = turns[position]
        if turn.role == "user" and not any(isinstance(p, ToolResultPart) for p in turn.parts):
            return position + 1
    return 0


def _owners(stored: Sequence[StoredTurn]) -> dict[str, StoredTurn | None]:
    """The one recorded turn of each id; None where there are two, or where the turn cannot be sent
    back."""
    owners: dict[str, StoredTurn | None] = {}
    for turn in stored:
        tool_use_ids = {b.get("id") for b in turn.content if b.get("type") == "tool_use"}
        usable = _is_usable(turn)
        for identity in dict.fromkeys(turn.tool_call_ids):
            owners[identity] = (
                turn if usable and identity in tool_use_ids and identity not in owners else None
            )
    return owners


def _is_usable(turn: StoredTurn) -> bool:
    """Thinking without a signature (of another vendor's model) is refused."""
    return all(b.get("signature") for b in turn.content if b.get("type") == "thinking")


def _says(turn: Turn, stored: StoredTurn) -> bool:
    """Is the turn's text that of the recorded one?"""
    texts = (b["text"] for b in stored.content if b["type"] == "text")
    return _words(p.text for p in turn.parts if isinstance(p, TextPart)) == _words(texts)


def _owner(ids: Sequence[str], owners: dict[str, StoredTurn | None]) -> StoredTurn | None:
    first = owners.get(ids[0])
    return first if len(set(ids)) == len(ids) and all(owners.get(i) is first for i in ids) else None


class _Merge:
    """Writes recorded turns with what the client has of them; one for a whole request, because
    results refer back to calls."""

    def __init__(self, *, keep_thinking: bool) -> None:
        self._keep_thinking = keep_thinking
        self._server_calls: set[Any] = set()

    def turn(self, turn: Turn, stored: StoredTurn) -> Turn:
        """The recorded blocks in their order, with the client's calls, and its text where that is
        not the recorded one."""
        calls = {p.id: p for p in _calls(turn)}
        client_parts: list[Part] = [p for p in turn.parts if not isinstance(p, ToolUsePart)]
        texts = [b for b in stored.content if b["type"] == "text"]
        same = _says(turn, stored)
        client_parts = [p for p in client_parts if not (same and isinstance(p, TextPart))]
        parts: list[Part] = []
        for block in stored.content:
            if client_parts and (
                block["type"] == "text" or (block["type"] == "tool_use" and not texts)
            ):
                parts, client_parts = parts + client_parts, []
            match block["type"]:
                case "text":
                    if same:
                        parts.append(_other(block))
                case "tool_use":
                    if (part := calls.pop(block.get("id", ""), None)) is not None:
                        parts.append(_call(part, block))
                case _:
                    if self._belongs(block):
                        parts.append(_other(block))
        return Turn("assistant", (*parts, *client_parts), turn.extra)

    def _belongs(self, block: dict[str, Any]) -> bool:
        """A result whose call is not in the request is refused by the API; a call without its
        result is not: it may come late."""
        if block["type"] in _THINKING:
            return self._keep_thinking
        if block["type"].endswith("tool_use"):
            self._server_calls.add(block.get("id"))
        return "tool_use_id" not in block or block["tool_use_id"] in self._server_calls


def _words(texts: Iterable[str]) -> str:
    # blank blocks are left out of recorded turns, and clients trim
    return "".join("".join(texts).split())


def _other(block: dict[str, Any]) -> OtherPart:
    return OtherPart(block["type"], block, "anthropic")


def _call(part: ToolUsePart, block: dict[str, Any]) -> Part:
    """The client's call; with what the dialect has beside it where it was called by code that runs
    at the provider."""
    if block.keys() <= _PLAIN_CALL or (
        block.keys() <= {*_PLAIN_CALL, "caller"} and block["caller"] == {"type": "direct"}
    ):
        return part
    try:
        arguments = normal_arguments(part.arguments)
        loads_arguments(arguments)
    except AmbiguousJson:
        # refused by name where the request is written
        return part
    return OtherPart(
        block["type"], {**block, "input": msgspec.Raw(arguments.encode())}, "anthropic", part.id
    )
