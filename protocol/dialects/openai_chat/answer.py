"""One chat/completions answer, streamed or whole, to events: its blocks, and the fields of the
message as a whole. The theory is in `protocol.dialects.openai_chat.decode`, which splits streams
into chunks."""

import re
from collections.abc import Callable
from typing import Any, Literal

from protocol.bytes.bookkeeping import is_tame
from protocol.dialects.openai_chat.attached import (
    are_annotations,
    is_prose_free,
    logprobs_of,
    readable_reasoning,
)
from protocol.dialects.openai_chat.blocks import Blocks
from protocol.dialects.openai_chat.cited import read_citation, read_sources
from protocol.dialects.openai_chat.finish import MEANINGS
from protocol.dialects.openai_chat.usage import usage_of
from protocol.dialects.openai_chat.wire import Choice, Chunk, Delta, OddChunk, Unknown, read_usage
from protocol.errors import RemoteProtocolError
from protocol.events import (
    SEALED,
    BlockKind,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    RawDelta,
    StopReason,
    UpstreamFailed,
    Usage,
)

CUT = "the upstream ended its answer without finishing it"
_TOP_FIELDS = ("prompt_filter_results", "provider", "moderation", "x_groq", "usage_breakdown")
_ODD_FIELDS = ("time_info", "timings", "request_id", "generationId", "metadata")
"""The same, of few vendors: Cerebras, llama.cpp, Z.ai, Vercel's gateway, Together."""
_CHOICE_FIELDS = ("content_filter_results", "native_finish_reason")
"""What applications read beside the answer: kept for clients of the same dialect where it is only
words and numbers."""
_FIRM = re.compile(r"[A-Z][\w.-]{0,30}(?: [A-Z0-9][\w.-]{0,30}){1,3}", re.ASCII)
"""The name of a provider that OpenRouter took, where it is of several words."""
_DETAILS: tuple[Literal["reasoning_details", "thinking_blocks"], ...] = (
    "reasoning_details",
    "thinking_blocks",
)


class Answer:
    """One message: its blocks, and the fields of the message as a whole."""

    def __init__(self, unknown: frozenset[str]) -> None:
        self._unknown = unknown
        self.blocks = Blocks()
        self.started = False
        self.finish: str | None = None
        self.has_blank_finish = False
        """Was the finish reason an empty string? Snowflake's never says another one."""
        self._usage = Usage()
        self._total: int | None = None
        self._usage_object: Any = None
        self._fields: dict[str, Any] = {}
        self._filters: Any = None
        self._native: Any = None
        self._early: list[Event] = []
        self._sources: OddChunk | None = None
        """The last list of the pages that the answer is from, outside its text."""
        self._pages: list[Any] = []
        """Annotations that came while no text was open."""

    def take(
        self,
        chunk: Chunk,
        unknown_fields: list[Unknown],
        content_of: Callable[[Choice], Delta | None],
        events: list[Event],
    ) -> None:
        """Take a chunk of a stream, or a whole answer; `content_of` a choice is what it says."""
        if chunk.usage:
            self._count(chunk.usage)
        if isinstance(chunk, OddChunk):
            self._odd(chunk, events)
        if (
            chunk.moderation
            or chunk.x_groq
            or chunk.usage_breakdown
            or (not self.started and (chunk.prompt_filter_results or chunk.provider))
        ):
            self._beside(chunk, _TOP_FIELDS, events)
            if not chunk.usage and isinstance(chunk.x_groq, dict) and chunk.x_groq.get("usage"):
                # Groq's compound models say it nowhere else
                self._count(chunk.x_groq["usage"])
        called: list[int] = []
        for choice in chunk.choices or ():
            if choice.index != 0:
                events.append(Opaque("choice"))
                continue
            content = content_of(choice)
            if not self.started:
                events.append(self._start(chunk, choice, content))
                events += self._early
            if content is not None or choice.logprobs:
                called = self._content(content or Delta(), choice.logprobs, events)
            if unknown_fields:
                # before the finish, which ends the calls that they are of
                self._unmodelled(unknown_fields, called, events)
                unknown_fields = []
            if choice.content_filter_results:
                self._filters = choice.content_filter_results
            if choice.finish_reason:
                if self.finish is None:
                    if self._pages:
                        # they came before the text
                        self._attach_pages(events)
                    if self._sources is not None:
                        self._cite(self._sources, events)
                    self.blocks.close(events)
                self.finish, self._native = choice.finish_reason, choice.native_finish_reason
            elif choice.finish_reason == "":
                self.has_blank_finish = True
        if unknown_fields:
            self._unmodelled(unknown_fields, called, events)

    def _odd(self, chunk: OddChunk, events: list[Event]) -> None:
        self._beside(chunk, _ODD_FIELDS, events)
        if chunk.citations or chunk.search_results:
            self._sources = chunk
        for choice in () if chunk.usage else chunk.choices or ():
            if choice.usage and choice.index == 0:
                self._count(choice.usage)

    def _beside(self, chunk: Chunk, names: tuple[str, ...], events: list[Event]) -> None:
        """Keep the other fields of the chunk; what is more than words and numbers is withheld,
        unless the setting `unknown` names it."""
        present = {name: value for name in names if (value := getattr(chunk, name))}
        allowed = {
            n: v
            for n, v in present.items()
            if is_tame(v) or (n == "provider" and isinstance(v, str) and _FIRM.fullmatch(v))
        }
        self._fields |= allowed
        for name, value in present.items():
            if name not in allowed:
                self._release(Unknown(f"field {name}", {name: value}), -1, events)

    def _start(self, chunk: Chunk, choice: Choice, content: Delta | None) -> MessageStart:
        self.started = True
        extra: dict[str, Any] = {
            "dialect": "openai",
            "content_null": content is None or content.content is None,
        }
        optional_fields: dict[str, Any] = {
            "created": chunk.created if isinstance(chunk.created, int) else None,
            "system_fingerprint": chunk.system_fingerprint,
            "service_tier": chunk.service_tier,
            "fields": self._fields or None,
            "choice": _tame(choice, _CHOICE_FIELDS) or None,
            # whole answers say that there are none
            "message": (
                {
                    name: []
                    for name in ("annotations", "tool_calls")
                    if getattr(content, name, None) == []
                }
                or None
            ),
        }
        self._fields = {}
        extra |= {name: value for name, value in optional_fields.items() if value is not None}
        return MessageStart(chunk.id or "", chunk.model or "", Usage(), extra)

    def _count(self, usage: Any) -> None:
        """Take usage; the last one counts."""
        try:
            counts, cached = read_usage(usage)
        except ValueError as error:
            raise RemoteProtocolError(
                "upstream sent usage that is not one of its dialect"
            ) from error
        self._usage = self._usage.updated(usage_of(counts, cached))
        self._usage_object = usage
        self._total = counts.total_tokens if counts.total_tokens is not None else self._total

    # --- what the model says ---

    def _content(self, delta: Delta, logprobs: Any, events: list[Event]) -> list[int]:
        """Take what a choice says; returns the blocks of its tool calls."""
        blocks = self.blocks
        if (
            delta.reasoning_content
            or delta.reasoning
            or delta.reasoning_details
            or delta.thinking_blocks
        ):
            self._reasoning(delta, events)
        if logprobs:
            logprobs = self._split(logprobs, delta, events)
            if thought := logprobs.get("reasoning_content"):
                blocks.attach(BlockKind.THINKING, "reasoning_content", "logprobs", thought, events)
        if delta.content:
            blocks.text(BlockKind.TEXT, delta.content, events)
            if logprobs:
                blocks.attach(BlockKind.TEXT, "", "logprobs", logprobs.get("content"), events)
        if delta.annotations:
            # before the calls of a whole answer: they go with its text
            self._annotations(delta.annotations, events)
        called: list[int] = []
        if calls := delta.tool_calls:
            if len(calls) > 1:
                blocks.place(calls)
            for position, call in enumerate(calls):
                if call.type not in (None, "function", "custom", ""):
                    events.append(Opaque("tool call of another type"))
                    called.append(-1)
                else:
                    called.append(blocks.call(position, call, events))
        if delta.refusal or delta.function_call or delta.audio:
            self._seldom(delta, logprobs, events)
        return called

    def _reasoning(self, delta: Delta, events: list[Event]) -> None:
        blocks = self.blocks
        lists = {name: value for name in _DETAILS if (value := getattr(delta, name))}
        shown = {name: readable_reasoning(value) for name, value in lists.items()}
        thought, name = (
            (delta.reasoning_content, "reasoning_content")
            if delta.reasoning_content
            else (delta.reasoning or "", "reasoning")
        )
        if not thought and (detail_text := next(filter(None, shown.values()), "")):
            thought, name = detail_text, blocks.reasoning_name()
        if thought:
            blocks.text(BlockKind.THINKING, thought, events, name)
        if delta.reasoning and delta.reasoning != thought:
            self._withhold("delta field reasoning", None, events)
        for field, details in lists.items():
            if shown[field] in ("", thought):
                blocks.attach_details(field, details, events)
            else:
                self._withhold(field, {field: details}, events)

    def _split(self, logprobs: Any, delta: Delta, events: list[Event]) -> dict[str, Any]:
        """Return the log probabilities by the text that they are of; DeepSeek has those of its
        reasoning too."""
        texts = {
            "content": delta.content,
            "refusal": delta.refusal,
            "reasoning_content": delta.reasoning_content,
        }
        parts = logprobs_of(logprobs, {name: text or "" for name, text in texts.items()})
        if parts is None:
            body = {"choices": [{"index": 0, "delta": {}, "logprobs": logprobs}]}
            self._release(Unknown("logprobs", body), -1, events)
        return parts or {}

    def _annotations(self, annotations: Any, events: list[Event]) -> None:
        if not are_annotations(annotations):
            self._withhold("annotations", {"annotations": annotations}, events)
            return
        # OpenRouter sends what its search found before the text, or after the finish
        self._pages += annotations
        self._attach_pages(events)

    def _attach_pages(self, events: list[Event]) -> None:
        if all(
            self.blocks.attach(BlockKind.TEXT, "", "citation", read_citation(page), events)
            for page in self._pages
        ):
            self._pages = []

    def _cite(self, sources: OddChunk, events: list[Event]) -> None:
        """Add the pages that were listed outside the text: each a citation without a place, and the
        search that found them."""
        citations = read_sources(sources.citations, sources.search_results)
        cited = [
            self.blocks.attach(BlockKind.TEXT, "", "citation", citation, events)
            for citation in citations
        ]
        if citations and all(cited):
            self._sources = None
            self.blocks.searched(len(citations), events)

    def _seldom(self, delta: Delta, logprobs: Any, events: list[Event]) -> None:
        blocks = self.blocks
        if delta.refusal:
            blocks.text(BlockKind.TEXT, delta.refusal, events, "refusal")
            if logprobs:
                blocks.attach(
                    BlockKind.TEXT, "refusal", "logprobs", logprobs.get("refusal"), events
                )
        if delta.function_call is not None and (
            delta.function_call.name or delta.function_call.arguments
        ):
            blocks.legacy_call(delta.function_call, events)
        if delta.audio:
            self._withhold("audio", {"audio": delta.audio}, events)

    # --- what we do not model ---

    def _withhold(self, what: str, delta: dict[str, Any] | None, events: list[Event]) -> None:
        self._release(
            Unknown(what, None if delta is None else {"choices": [{"index": 0, "delta": delta}]}),
            -1,
            events,
        )

    def _unmodelled(
        self, unknown_fields: list[Unknown], called: list[int], events: list[Event]
    ) -> None:
        for unknown in unknown_fields:
            if unknown.what == "delta field executed_tools" and unknown.body is not None:
                # what they found is withheld, that they ran is on record
                self.blocks.executed(unknown.body["choices"][0]["delta"]["executed_tools"], events)
            block = (
                called[unknown.call]
                if 0 <= unknown.call < len(called)
                else self.blocks.open_text
                if _is_sealed(unknown)
                else -1
            )
            # of a call that is itself withheld nothing goes out
            self._release(
                unknown if block >= 0 or unknown.call < 0 else Unknown(unknown.what), block, events
            )

    def _release(self, unknown: Unknown, block: int, events: list[Event]) -> None:
        """Withhold what the setting `unknown` does not name. What it names waits for the message to
        begin."""
        if unknown.body is None or not (unknown.what in self._unknown or _is_sealed(unknown)):
            events.append(Opaque(unknown.what))
        else:
            (events if self.started else self._early).append(
                RawDelta(unknown.what, block, unknown.body, "openai")
            )

    # --- the end ---

    def end(self) -> list[Event]:
        """The end, from the last values received; a finished message with tool calls stops for them
        whatever word the vendor used."""
        events: list[Event] = []
        # content may come after the finish
        self.blocks.close(events)
        if self._sources is not None:
            events.append(Opaque("field citations"))
        if self._pages:
            self.blocks.carry("annotations", {"annotations": self._pages}, events)
        events.append(self._stop())
        return events

    def _stop(self) -> Event:
        if self.finish not in MEANINGS:
            raise RemoteProtocolError("upstream ended its answer with an unknown finish reason")
        reason = MEANINGS[self.finish]
        if reason is None:
            return UpstreamFailed("api_error", CUT)
        extra: dict[str, Any] = {"fields": self._fields} if self._fields else {}
        if self.blocks.has_calls and reason is StopReason.END_TURN:
            # what it means; clients of this dialect get the vendor's own word
            reason, extra["finish_reason"] = StopReason.TOOL_USE, "stop"
        of_choice = {"content_filter_results": self._filters, "native_finish_reason": self._native}
        if choice_fields := {
            name: value for name, value in of_choice.items() if value and is_tame(value)
        }:
            extra["choice"] = choice_fields
        return MessageStop(reason, self._usage, None, extra | self._kept_usage())

    def _kept_usage(self) -> dict[str, Any]:
        """The usage object for clients of the same dialect; else at least a total that does not add
        up."""
        if self._usage_object and is_tame(self._usage_object):
            return {"usage": self._usage_object}
        usage = self._usage
        counts = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
        counted = sum(filter(None, counts))
        return {"total_tokens": self._total} if self._total not in (None, counted) else {}


def _is_sealed(unknown: Unknown) -> bool:
    return unknown.what.rpartition(" ")[2] in SEALED and is_prose_free(unknown.body)


def _tame(holder: Chunk | Choice, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(holder, name)) and is_tame(value)}
