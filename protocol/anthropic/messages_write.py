"""The messages of a chat/completions client, written for a provider of the Messages dialect (docs/protocol.md 1.1)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.anthropic import media
from protocol.anthropic.models import ModelRow
from protocol.anthropic.names import Ids, Names
from protocol.fields import invalid
from protocol.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.openai_chat.messages_read import result_text
from protocol.request import OtherPart, Part, TextPart, ToolResultPart, ToolUsePart, Turn
from protocol.target import Draft

MAX_BREAKPOINTS = 4
"""Places that one request may mark for the prompt cache."""
SYSTEM_MARK = "[system message] "
"""Before a system message that stands where only a user's may."""
_KNOWN = frozenset(("role", "content", "cache_control", "prompt_cache_breakpoint"))
_ECHOES = frozenset(("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "annotations", "refusal", "id"))
"""What clients send back of an answer. Thinking goes upstream only as recorded with its signature, never as a client tells it."""


class MessageWriter:
    """Writes the system texts and the turns of one request."""

    def __init__(self, draft: Draft, row: ModelRow, names: Names) -> None:
        self._draft = draft
        self._row = row
        self._names = names
        self._ids = Ids()
        self._marked: list[dict[str, Any]] = []
        self._own_marks = 0

    def system(self) -> list[dict[str, Any]]:
        """Return a text block for each leading system message; more where parts of it are marked for the cache."""
        request = self._draft.request
        originals = request.system_messages if len(request.system_messages) == len(request.system) else ({},) * len(request.system)
        blocks = []
        for text, message in zip(request.system, originals, strict=True):
            blocks += self._system_blocks(text, message)
        return blocks

    def _system_blocks(self, text: str, message: dict[str, Any]) -> list[dict[str, Any]]:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if any(p.get("cache_control") or p.get("prompt_cache_breakpoint") for p in parts) and "".join(p["text"] for p in parts) == text:
            blocks = [self._mark({"type": "text", "text": p["text"]}, p) for p in parts if p["text"].strip()]
        else:
            blocks = [{"type": "text", "text": text}] if text.strip() else []
        self._note_unknown(message)
        return self._mark_last(blocks, message)

    def turns(self) -> list[dict[str, Any]]:
        """Return the messages, [] where none has content. Raises InvalidRequest naming what the provider cannot be told."""
        turns = self._draft.request.turns
        messages: list[dict[str, Any]] = []
        followed = _before_assistant(turns)
        for position, turn in enumerate(turns):
            role = "assistant" if turn.role == "assistant" else "user"
            blocks = self._blocks(turn)
            if turn.role == "system":
                if self._row.mid_system and messages and messages[-1]["role"] != "assistant" and followed[position]:
                    role = "system"
                else:
                    blocks = [b | {"text": SYSTEM_MARK + b["text"]} for b in blocks]
            if blocks and messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            elif blocks:
                messages.append({"role": role, "content": blocks})
        for message in messages:
            if message["role"] == "user":
                # the API wants results before anything else of their turn
                message["content"].sort(key=lambda b: b["type"] != "tool_result")
        if messages:
            _trim_prefill(messages[-1])
        return messages

    def limit_marks(self, more: int) -> None:
        """Take back the first marks of prompt_cache_breakpoint where, with `more` on tools, there are too many."""
        surplus = len(self._marked) + self._own_marks + more - MAX_BREAKPOINTS
        if self._marked and surplus > 0:
            for block in self._marked[:surplus]:
                del block["cache_control"]
            self._draft.drop("prompt_cache_breakpoint")

    def _blocks(self, turn: Turn) -> list[dict[str, Any]]:
        self._note_unknown(turn.extra)
        blocks = [block for part in turn.parts for block in self._part(part)]
        if turn.role == "assistant":
            if isinstance(refusal := turn.extra.get("refusal"), str) and refusal.strip():
                blocks.insert(0, {"type": "text", "text": refusal})
            if turn.extra.get("audio") is not None:
                invalid("the audio of an earlier answer cannot be sent to this model's provider", "messages")
        return self._mark_last(blocks, turn.extra)

    def _part(self, part: Part) -> list[dict[str, Any]]:
        match part:
            case TextPart():
                self._note_unknown(part.extra)
                return [self._mark({"type": "text", "text": part.text}, part.extra)] if part.text.strip() else []
            case ToolUsePart():
                name, identity = self._names.upstream(part.name), self._ids.upstream(part.id)
                return [self._mark({"type": "tool_use", "id": identity, "name": name, "input": read_input(part)}, part.extra)]
            case ToolResultPart():
                return [self._result(part)]
            case OtherPart(dialect="anthropic"):
                # from the record of an earlier answer: signed, so as it was
                return [part.body]
            case _:
                return self._foreign(part)

    def _result(self, part: ToolResultPart) -> dict[str, Any]:
        if part.form == "legacy" and not part.tool_call_id:
            invalid("a function message answers no earlier function_call", "messages")
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": self._ids.upstream(part.tool_call_id), "content": part.text}
        original = part.extra.get("content")
        if isinstance(original, list) and result_text(original, "") == part.text and any(p.keys() != {"type", "text"} for p in original):
            parts = [TextPart(p["text"], p) if p["type"] == "text" else OtherPart(p["type"], p, "openai") for p in original]
            block["content"] = [b for p in parts for b in self._part(p)]
        if part.is_error:
            block["is_error"] = True
        return self._mark(block, part.extra)

    def _foreign(self, part: OtherPart) -> list[dict[str, Any]]:
        body = part.body
        match part.kind:
            case "image_url":
                image = body.get("image_url")
                image = image if isinstance(image, dict) else {"url": image}
                if image.get("detail") not in (None, "auto"):
                    self._draft.drop("messages[].image_url.detail")
                return [self._mark(media.image_block(image.get("url")), body)]
            case "file":
                return [self._mark(self._file(body.get("file")), body)]
            case "refusal" if isinstance(text := body.get("refusal"), str):
                return [{"type": "text", "text": text}] if text.strip() else []
        invalid(f"a part of type {part.kind[:60]!r} cannot be sent to this model's provider", "messages")

    def _file(self, file: Any) -> dict[str, Any]:
        if not isinstance(file, dict) or file.get("file_id") is None or file.get("file_data") is not None:
            return media.file_block(file)
        if "files" not in self._draft.target.families:
            invalid("file_id names a file at a provider, and this key may not use such files; send file_data", "messages")
        if not isinstance(file["file_id"], str):
            invalid("file.file_id must be a string", "messages")
        return {"type": "document", "source": {"type": "file", "file_id": file["file_id"]}}

    def _mark_last(self, blocks: list[dict[str, Any]], extra: dict[str, Any]) -> list[dict[str, Any]]:
        last = blocks[-1] if blocks else None
        if last is not None and "cache_control" not in last and last["type"] not in ("thinking", "redacted_thinking"):
            blocks[-1] = self._mark(dict(last), extra)
        return blocks

    def _mark(self, block: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
        """Mark a block for the prompt cache, as `extra` says."""
        if isinstance(own := extra.get("cache_control"), dict):
            block["cache_control"] = own
            self._own_marks += 1
        elif isinstance(breakpoint_ := extra.get("prompt_cache_breakpoint"), dict):
            block["cache_control"] = {"type": "ephemeral"}
            self._marked.append(block)
            if breakpoint_.get("ttl") is not None:
                self._draft.drop("prompt_cache_breakpoint.ttl")
        return block

    def _note_unknown(self, extra: dict[str, Any]) -> None:
        for name, value in extra.items():
            if value is not None and name not in _KNOWN and name not in _ECHOES and name not in ("type", "text", "audio"):
                self._draft.drop(f"messages[].{name[:60]}")


def _before_assistant(turns: Sequence[Turn]) -> list[bool]:
    """Tell for each turn whether an assistant's comes next, or nothing but system messages: where a system message may stay one."""
    result, may = [], True
    for turn in reversed(turns):
        result.append(may)
        if turn.role != "system" and not _is_empty(turn):
            may = turn.role == "assistant"
    return result[::-1]


def _is_empty(turn: Turn) -> bool:
    """Will nothing be written of this turn?"""
    return not turn.extra.get("refusal") and all(isinstance(p, TextPart) and not p.text.strip() for p in turn.parts)


def _trim_prefill(message: dict[str, Any]) -> None:
    last = message["content"][-1]
    if message["role"] == "assistant" and last["type"] == "text":
        # the API refuses trailing whitespace in a prefill
        last["text"] = last["text"].rstrip()


def read_input(part: ToolUsePart) -> msgspec.Raw:
    """Return a call's arguments as JSON for `input`. Raises InvalidRequest: arguments are never guessed."""
    text = normal_arguments(part.arguments)
    try:
        loads_arguments(text)
        return msgspec.Raw(text.encode())
    except AmbiguousJson as error:
        invalid(f"the arguments of the tool call {part.id[:60]!r} cannot be read: {error}", "messages")
