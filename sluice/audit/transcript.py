"""Shows a call as a conversation: what the client sent and got, as text. Must not know: the
database, the terminal.

The answer is read as a client reads it, from the recorded bytes. Bytes that are not a readable
answer or error (an interrupted or redacted call) are shown as they are, or a sentence says what is
missing.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, assert_never

from protocol import codecs
from protocol.bounds import MAX_FILTER_CHARS
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DIALECTS, check_name
from protocol.errors import PipelineError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStop,
    TextDelta,
    UpstreamFailed,
)
from protocol.request import ChatRequest, OtherPart, Part, TextPart, ToolResultPart, ToolUsePart

Item = dict[str, Any]
LONG = 2 * MAX_FILTER_CHARS
"""How many characters of a message are shown, unless all are requested."""


class Utterance(NamedTuple):
    """A message of a speaker."""

    who: str
    text: str


def sent(call: Item) -> list[Utterance]:
    """Return the request of a call as a conversation, the oldest first."""
    body, dialect = _bytes(call, "request"), call.get("dialect")
    if not body:
        return [Utterance("", "(no request is on record: it was redacted, or lost)")]
    try:
        request = CLIENTS[check_name(dialect or "")].decode_request(
            body, endpoint=call.get("endpoint") or None
        )
    except (PipelineError, ValueError):
        return [Utterance("request", body.decode(errors="replace"))]
    return list(_turns(request))


def got(call: Item, pieces: Sequence[Item]) -> list[Utterance]:
    """Return what the client got; `pieces` are those of the call's chunks, in order."""
    known = [piece for piece in pieces if piece["relayed"] is not None]
    relayed = [piece for piece in known or pieces if piece["relayed"] is not False]
    data = b"".join(_bytes(piece, "payload") or b"" for piece in relayed)
    if not data:
        is_on_record = not call.get("releases") or any(_bytes(piece, "payload") for piece in pieces)
        return [
            Utterance(
                "", "(nothing)" if is_on_record else "(not on record: it was redacted, or lost)"
            )
        ]
    messages = (
        list(_answer(call, data))
        or _error(call, data)
        or [Utterance("answer", data.decode(errors="replace"))]
    )
    if not known:
        messages.append(
            Utterance(
                "",
                "(whether the client got it is not known: the call goes on, or its gateway died)",
            )
        )
    return messages


def short(text: str) -> str:
    """Return the beginning of a long text, and how long it is."""
    return (
        text
        if len(text) <= LONG
        else f"{text[:LONG]}… ({len(text):,} characters: --full shows all)"
    )


def _turns(request: ChatRequest) -> Iterator[Utterance]:
    if request.tools:
        yield Utterance("tools", ", ".join(tool.name for tool in request.tools))
    yield from (Utterance("system", text) for text in request.system)
    for turn in request.turns:
        for part in turn.parts:
            yield from _part(turn.role, part)


def _part(role: str, part: Part) -> Iterator[Utterance]:
    match part:
        case TextPart():
            yield Utterance(role, part.text)
        case ToolUsePart():
            yield Utterance("tool call", f"{part.name} {part.arguments}")
        case ToolResultPart():
            yield Utterance("tool error" if part.is_error else "tool result", part.text)
        case OtherPart():
            yield Utterance(role, f"({part.kind}: {len(json.dumps(part.body)):,} bytes)")
        case _:
            assert_never(part)


def _answer(call: Item, data: bytes) -> Iterator[Utterance]:
    """The parts of an answer, in the order in which they began; nothing where it cannot be read."""
    parts: dict[int, list[str]] = {}
    heads: dict[int, str] = {}
    last: list[Utterance] = []
    for event in _events(call, data):
        match event:
            case BlockStart():
                is_call = event.kind in (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)
                heads[event.index] = (
                    "tool call"
                    if is_call
                    else "thinking"
                    if event.kind is BlockKind.THINKING
                    else "assistant"
                )
                parts[event.index] = (
                    [f"{event.name} "]
                    if is_call
                    else []
                    if event.kind is not BlockKind.OTHER
                    else [f"({event.name})"]
                )
            case TextDelta() | ArgumentsDelta():
                heads.setdefault(event.index, "assistant")
                parts.setdefault(event.index, []).append(event.text)
            case MessageStop():
                last = [Utterance("end", str(event.stop_reason))]
            case UpstreamFailed():
                last = [Utterance("error", f"{event.kind}: {event.message}")]
            case _:
                pass
    yield from (Utterance(heads[index], "".join(text)) for index, text in parts.items())
    yield from last


def _error(call: Item, data: bytes) -> list[Utterance]:
    """The one sentence of an error body, of any dialect."""
    try:
        error = json.loads(data)["error"]
        message = f"{error.get('type') or error.get('code') or 'error'}: {error['message']}"
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return []
    return [Utterance("error", f"{call.get('status') or ''} {message}".lstrip())]


def _events(call: Item, data: bytes) -> list[Event]:
    dialect = call.get("dialect")
    events: list[Event] = []
    if dialect not in DIALECTS:
        return events
    try:
        if not call.get("stream"):
            return codecs.decode_whole(dialect, data) if (call.get("status") or 200) == 200 else []
        decoder, splitter = DIALECTS[dialect].decoder(), EventSplitter(len(data) + 1)
        for frame in (*splitter.feed(data), *splitter.finish()):
            events += decoder.feed(frame)
    except PipelineError:
        # what came before is shown
        pass
    return events


def _bytes(item: Item, name: str) -> bytes | None:
    """What an item holds under a name: text, or the exact bytes beside it."""
    if exact := item.get(f"{name}_base64"):
        return base64.b64decode(exact)
    text = item.get(name)
    return None if text is None else str(text).encode(errors="surrogatepass")
