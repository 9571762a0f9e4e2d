"""generateContent answers, streamed and whole, to events (docs/change/protocol.md 1.15).

Each chunk of a stream is a whole answer that holds what is new. The finish reason ends all blocks,
so calls are decided then, but text, usage and sources may still follow: the message ends where the
stream does. A stream without a finish reason was cut.
"""

from typing import Any

import msgspec

from protocol.bytes.bookkeeping import is_tame
from protocol.bytes.json_strict import dumps
from protocol.bytes.sse import parse_event
from protocol.dialects.gemini import finish as finishes
from protocol.dialects.gemini.blocks import Blocks
from protocol.dialects.gemini.failures import failed_inside
from protocol.dialects.gemini.partial_arguments import Arguments, whole
from protocol.dialects.gemini.sources import Sources
from protocol.dialects.gemini.wire import (
    CONTENTS,
    Candidate,
    Chunk,
    FunctionCall,
    Part,
    UsageMetadata,
    read_chunk,
    read_counts,
    read_text,
)
from protocol.errors import RemoteProtocolError
from protocol.events import (
    BlockKind,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
    uncached,
)

_CUT = "the upstream ended its answer without finishing it"
_SEARCHES = frozenset(("GOOGLE_SEARCH_WEB", "GOOGLE_SEARCH_IMAGE", "GOOGLE_SEARCH"))
_TOOL_NAMES = {
    "URL_CONTEXT": "web_fetch",
    "FILE_SEARCH": "file_search",
    **dict.fromkeys(_SEARCHES, "web_search"),
}
"""What calls of the provider's tools are named, as in the other dialects; others go by their own
word."""


def usage_of(counts: UsageMetadata | None) -> Usage:
    """Return the counts: cached tokens are among those of the prompt, and thoughts are not among
    those of the answer."""
    if counts is None:
        return Usage()
    prompt, cached, tool = (
        counts.prompt_token_count,
        counts.cached_content_token_count,
        counts.tool_use_prompt_token_count,
    )
    candidate_tokens, thought = counts.candidates_token_count, counts.thoughts_token_count
    fresh = None if prompt is None else uncached(prompt + (tool or 0), cached)
    return Usage(
        fresh,
        None
        if candidate_tokens is None and thought is None
        else (candidate_tokens or 0) + (thought or 0),
        cached,
        None,
        thought,
    )


class _Pending:
    """A call whose arguments come in pieces. Nobody hears of it before it is complete."""

    def __init__(self, name: str, identity: str) -> None:
        self.name, self.identity, self.signature = name, identity, ""
        self.arguments = Arguments()


class _Message:
    """One message: its blocks, and the fields of the message as a whole."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.started = False
        self.finish: str | None = None
        self.usage: UsageMetadata | None = None
        self.late_usage: msgspec.Raw | None = None
        """The counts of the last chunk that was nothing but text, not yet read."""
        self._explanation = ""
        self.is_blocked = False
        self._pending: _Pending | None = None
        self._last_code = ""
        self._sources = Sources(self.blocks)

    @property
    def has_pending(self) -> bool:
        """Are the arguments of a call still coming?"""
        return self._pending is not None

    def take(self, chunk: Chunk, unknown_names: list[str], events: list[Event]) -> None:
        """Take a chunk of a stream, or a whole answer. Raises RemoteProtocolError for what is
        neither."""
        if (
            not self.started
            and chunk.candidates is None
            and chunk.prompt_feedback is None
            and chunk.usage_metadata is None
        ):
            raise RemoteProtocolError(
                "upstream sent something that is not an answer in its dialect"
            )
        if chunk.usage_metadata is not None:
            self.usage, self.late_usage = chunk.usage_metadata, None
        if not self.started:
            self.started = True
            events.append(
                MessageStart(
                    chunk.response_id or "",
                    chunk.model_version or "",
                    Usage(),
                    {"dialect": "gemini"},
                )
            )
        feedback = chunk.prompt_feedback
        if feedback is not None and feedback.block_reason:
            self.is_blocked = True
            self._explanation = feedback.block_reason_message or feedback.block_reason
        for position, candidate in enumerate(chunk.candidates or ()):
            if position or candidate.index != 0:
                events.append(Opaque("candidate"))
            else:
                self._candidate(candidate, events)
        events.extend(map(Opaque, unknown_names))

    def _candidate(self, candidate: Candidate, events: list[Event]) -> None:
        parts = (candidate.content.parts if candidate.content is not None else None) or ()
        self._sources.take(candidate, events)
        last = (
            max((n for n, part in enumerate(parts) if part.text), default=-1)
            if self._sources.waiting
            else -1
        )
        for number, part in enumerate(parts):
            if number > last and part.text is None:
                # it ends the text
                self._sources.cite(events)
            self._part(part, events)
        for what in ("logprobs_result", "grounding_attributions"):
            if getattr(candidate, what):
                events.append(Opaque(f"candidate field {what}"))
        if candidate.finish_reason and candidate.finish_reason != "FINISH_REASON_UNSPECIFIED":
            self.finish = candidate.finish_reason
            self._explanation = candidate.finish_message or self._explanation
            if self._pending is not None:
                # only STOP says that the output is complete
                if self.finish == "STOP":
                    self._complete(events)
                else:
                    self._pending = None
                    events.append(Opaque("part of a function call"))
            self._sources.close(events)

    def _part(self, part: Part, events: list[Event]) -> None:
        """Take a part, which has one content."""
        contents = [name for name in CONTENTS if getattr(part, name) is not None]
        if len(contents) + bool(part.text) > 1:
            raise RemoteProtocolError("upstream sent a part with two contents")
        signature = part.thought_signature or ""
        if part.function_call is not None:
            self._call(part.function_call, signature, events)
            return
        if self._pending is not None and (contents or part.text):
            raise RemoteProtocolError("upstream sent something else inside a call")
        if not contents:
            self.blocks.text(
                BlockKind.THINKING if part.thought else BlockKind.TEXT,
                part.text or "",
                signature,
                events,
            )
            return
        match contents[0]:
            case "executable_code":
                self._code(part.executable_code or {}, signature, events)
            case "tool_call":
                self._tool_call(part.tool_call or {}, signature, events)
            case "code_execution_result":
                body = part.code_execution_result or {}
                self._result(
                    "codeExecutionResult",
                    body,
                    _word(body, "id") or self._last_code,
                    signature,
                    events,
                )
            case "tool_response":
                self._result(
                    "toolResponse",
                    part.tool_response or {},
                    _word(part.tool_response or {}, "id"),
                    signature,
                    events,
                )
            case "inline_data":
                self._result("inlineData", part.inline_data or {}, "", signature, events)
            case _:
                self._result("fileData", part.file_data or {}, "", signature, events)

    # --- calls ---

    def _call(self, call: FunctionCall, signature: str, events: list[Event]) -> None:
        pending, pieces = self._pending, call.partial_args
        if pending is None:
            if not call.name:
                raise RemoteProtocolError("upstream sent a tool call without a name")
            if pieces is None and not call.will_continue:
                self.blocks.call(call.name, call.id or "", whole(call.args), signature, events)
                return
            pending = self._pending = _Pending(call.name, call.id or "")
        elif call.name or (call.id and call.id != pending.identity):
            raise RemoteProtocolError("upstream began a call inside another one")
        if whole(call.args) != "{}":
            raise RemoteProtocolError("upstream sent the arguments of one call whole and in pieces")
        pending.signature = signature or pending.signature
        pending.arguments.take(pieces or [])
        if not call.will_continue:
            self._complete(events)

    def _complete(self, events: list[Event]) -> None:
        if (pending := self._pending) is not None:
            self._pending = None
            self.blocks.call(
                pending.name, pending.identity, pending.arguments.text(), pending.signature, events
            )

    # --- what the provider ran ---

    def _code(self, code: dict[str, Any], signature: str, events: list[Event]) -> None:
        arguments = dumps({name: value for name, value in code.items() if name != "id"}).decode()
        self._last_code = self.blocks.server_call(
            "code_execution",
            _word(code, "id"),
            arguments,
            {"type": "executableCode"},
            signature,
            events,
        )

    def _tool_call(self, call: dict[str, Any], signature: str, events: list[Event]) -> None:
        kind = _word(call, "toolType")
        name = _TOOL_NAMES.get(kind, kind.lower() or "tool")
        self._sources.shown.add(name)
        body = {"type": "toolCall", "toolType": kind}
        other_fields = {n: v for n, v in call.items() if n not in ("id", "toolType", "args")}
        arguments = (
            call.get("args") if not other_fields else {**other_fields, "args": call.get("args")}
        )
        if other_fields:
            body["form"] = "whole"
        self.blocks.server_call(
            name, _word(call, "id"), dumps(arguments or {}).decode(), body, signature, events
        )

    def _result(
        self, name: str, body: dict[str, Any], call: str, signature: str, events: list[Event]
    ) -> None:
        self.blocks.other(
            name,
            {**body, "type": name} | ({"tool_use_id": call} if call else {}),
            signature,
            events,
        )

    # --- the end ---

    def end(self) -> list[Event]:
        """The end, from the last values received. Raises RemoteProtocolError."""
        if self.late_usage is not None:
            try:
                self.usage = read_counts(self.late_usage)
            except ValueError as error:
                raise RemoteProtocolError(
                    "upstream sent usage that is not one of its dialect"
                ) from error
        events: list[Event] = []
        self._sources.close(events)
        self._sources.end(events)
        events.append(self._stop())
        return events

    def _stop(self) -> Event:
        word = self.finish
        if word is None:
            if not self.is_blocked:
                return UpstreamFailed("api_error", _CUT)
            reason: StopReason | None = StopReason.REFUSAL
        else:
            reason = finishes.meaning(word, has_calls=self.blocks.has_calls)
        if reason is None:
            return UpstreamFailed("api_error", finishes.failure(word or ""))
        explanation = (self._explanation or word or "") if reason is StopReason.REFUSAL else ""
        extra = {"native_stop": word} if word and is_tame(word) else {}
        usage = usage_of(self.usage)
        if word is None and usage == Usage():
            # nothing was read and nothing written
            usage = Usage(0, 0)
        return MessageStop(reason, usage, None, extra, explanation)


def _word(body: dict[str, Any], name: str) -> str:
    return value if isinstance(value := body.get(name), str) else ""


class StreamDecoder:
    """Streamed chunks to events. `unknown` is of no use here: nobody speaks this dialect to us."""

    def __init__(self, unknown: frozenset[str] = frozenset()) -> None:
        self._message = _Message()
        self._done = False

    @property
    def has_finish(self) -> bool:
        """Has a finish reason come that is no failure?"""
        message = self._message
        return (
            message.finish is not None
            and finishes.meaning(message.finish, has_calls=message.blocks.has_calls) is not None
        )

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Raises RemoteProtocolError; what comes after that, or after the
        end, is withheld."""
        _, data = parse_event(chunk)
        if not data:
            return []
        if self._done:
            return [Opaque("data after the end")]
        try:
            if (
                self._message.blocks.open_kind is not None
                and (text := self._more_text(data)) is not None
            ):
                return text
            return self._take(*read_chunk(data))
        except ValueError as error:
            self._done = True
            raise RemoteProtocolError(
                "upstream sent a chunk that is not one of its dialect"
            ) from error
        except RemoteProtocolError:
            self._done = True
            raise

    def _more_text(self, data: bytes) -> list[Event] | None:
        """The event of a chunk that goes on with the open text, as nearly every chunk does; None
        for any other."""
        message = self._message
        if message.has_pending or (read := read_text(data)) is None or not read[0].text:
            return None
        part, counts = read
        blocks = message.blocks
        if not blocks.goes_on(BlockKind.THINKING if part.thought else BlockKind.TEXT):
            return None
        if counts:
            message.late_usage = counts
        if not part.thought:
            blocks.pieces.append(part.text)
        return [TextDelta(blocks.open_index, part.text)]

    def _take(self, chunk: Chunk, unknown_names: list[str]) -> list[Event]:
        if chunk.error:
            self._done = True
            return [failed_inside(chunk.error)]
        events: list[Event] = []
        self._message.take(chunk, unknown_names, events)
        return events

    def finish(self) -> list[Event]:
        """The stream is over; nothing else says so."""
        if self._done:
            return []
        self._done = True
        message = self._message
        return message.end() if message.started else [UpstreamFailed("api_error", _CUT)]


def decode_whole(body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a whole answer. Raises RemoteProtocolError."""
    try:
        answer, unknown_names = read_chunk(body)
    except ValueError as error:
        raise RemoteProtocolError("upstream's answer is not one of its dialect") from error
    if answer.error:
        return [failed_inside(answer.error)]
    message = _Message()
    events: list[Event] = []
    message.take(answer, unknown_names, events)
    if message.finish is None and not message.is_blocked:
        raise RemoteProtocolError("upstream's answer has no finish reason")
    return events + message.end()
