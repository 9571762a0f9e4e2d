"""Rebuilds assistant turns of the Messages dialect exactly as upstream sent them, from the record.

A chat/completions client cannot keep thinking with its signature, nor results of the provider's own
tools. The API wants both back unchanged: in the next request of a tool loop, and after a paused
turn. So the turn is rebuilt from the raw events. Nothing is guessed: a turn that is not wholly
understood counts as incomplete and is not used.
"""

from typing import Any

import msgspec

from protocol import bounds
from protocol.bytes.json_strict import dumps, loads_exact
from protocol.bytes.sse import parse_event
from protocol.bytes.value_count import count_values
from protocol.dialects.turns import BaseTurnBuilder
from protocol.events import PAUSES


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


class TurnBuilder(BaseTurnBuilder):
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

    def _read_body(self, raw: bytes) -> None:
        if count_values(raw, bounds.MAX_ANSWER_VALUES) > bounds.MAX_ANSWER_VALUES:
            raise ValueError("too many values")
        message = _mapping(loads_exact(raw))
        if message.get("type") != "message":
            raise ValueError("not a message")
        self._begin(message)
        self._end()

    def _read_chunk(self, chunk: bytes) -> None:
        _, data = parse_event(chunk)
        if not data:
            return
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
