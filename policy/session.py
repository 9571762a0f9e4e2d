"""The state machine of one call: decoded events, judgements and commits in; effects out. Pure and replayable.

Theory. Every content block has a slot, in the order in which blocks began. Only the first slot may emit; the others
keep their events until it is their turn, so blocks keep their order and a waiting judge holds up what follows it but
nothing before it. A text slot at the head streams; a tool slot emits once it is decided and, where tool calls are
durable, committed. The end of the message, or its failure, is the last slot. What comes out depends only on the order
of chunks and on judgements and commits, which are set once; so a second owner that replays the stream gets the same
outputs, and a running hash over them proves it.

Must not know: Redis, time, how bytes reach the client.
"""

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b

import jsonschema_rs
import msgspec

from policy.base import Block, Context, Judgement, OtherBlock, Policy, TextBlock, ToolCall
from policy.chain import Chain, Decided, Decision
from policy.effects import Ask, CallInfo, Dispatch, Output, Respond, State, Taken
from protocol import codecs, count_tokens, errors_wire
from protocol.config import DEMO, DEMO_MODELS, Config
from protocol.errors import Forbidden, InvalidRequest, NotFound, PipelineError, RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    Ping,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.json_strict import AmbiguousJson, loads_arguments, normal_arguments
from protocol.records import BlockRecord, CallRecord, EventRecord, JudgementRecord, Record, ToolCallRecord, ToolReleaseRecord, VerdictName, to_bytes
from protocol.request import ChatRequest, Dialect, Tool

_pack = msgspec.msgpack.Encoder().encode
_RANK: dict[VerdictName, int] = {"allow": 0, "replace": 1, "hold": 2, "block": 3, "withheld": 4}
Mark = tuple[VerdictName, int]
"""The verdict on a chunk as far as it is known, and the block it belongs to (-1: none)."""


class _Slot:
    """One content block, or the end of the message (`end`), waiting for its turn."""

    __slots__ = ("arguments", "blocked", "changed", "decided", "decision", "done", "end", "events", "id", "index", "kind", "name", "ordinal", "size", "started")

    def __init__(self, index: int, kind: BlockKind | None, *, id: str = "", name: str = "", ordinal: int = -1) -> None:
        self.index, self.kind, self.id, self.name, self.ordinal = index, kind, id, name, ordinal
        self.events: list[Event] = []
        self.done = self.blocked = self.changed = self.started = False
        self.arguments: list[str] = []
        self.size = 0
        self.decision: Decision | None = None
        self.decided: Decided | None = None
        self.end: MessageStop | UpstreamFailed | None = None


class Session:
    """One call. Feed it, then `take` what it wants done."""

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        self.call, self._policies, self._config = call, policies, config
        self.state: State = "ACTIVE"
        self.usage, self.stop_reason, self.status = Usage(), "", 200
        self.request: ChatRequest | None = None
        self._chain: Chain | None = None
        self._decoder: codecs.Decoder | None = None
        self._upstream_dialect: Dialect = call.dialect
        self._slots: deque[_Slot] = deque()
        self._by_index: dict[int, _Slot] = {}
        self._tools = self._survivors = 0
        self._emitted_block = self._withheld = self._visible = self._stopped = False
        self._next_index = 0
        self._hash = blake2b(digest_size=16)
        self._number = self._taken = self._notes = 0
        self.checkpoint, self.checkpoint_digest = 0, ""
        self._outputs: list[Output] = []
        self._records: list[Record] = []
        self._asks: list[Ask] = []
        self._waits: list[int] = []
        self._end = ""
        self._validators: dict[str, jsonschema_rs.Draft202012Validator | None] = {}

    # --- what the worker calls ---

    def begin(self, body: bytes | None) -> None:
        """Validate the request, run the request hooks, translate; gives Dispatch or Respond."""
        call, model, upstream = self.call, "", ""
        try:
            if body is None:
                raise InvalidRequest("the request body was lost before a worker could read it", code="body_lost")
            request = self.request = codecs.decode_request(call.dialect, body)
            model = request.model
            upstream = self._config.route(model) or ""
            if not upstream:
                raise NotFound(f"there is no model {model!r} here; GET /v1/models lists them", code="model_not_found", param="model")
            self._chain = Chain(self._policies, Context(call.call_id, call.nonce, call.key, call.session, request))
            output = self._dispatch(request, upstream)
        except PipelineError as error:
            output = self._refusal(error)
        # a client that streams gets usage or not as it asked; the record always has what upstream said
        self._records.append(
            CallRecord(
                call_id=call.call_id, at=call.at, dialect=call.dialect, endpoint=call.endpoint, key=call.key, session=call.session,
                model=model, upstream=upstream, policy=call.policy, policy_revision=call.revision,
                stream=bool(self.request and self.request.stream), gateway=call.gateway,
            )
        )  # fmt: skip
        self._put(output)

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning (unknown policy, a revision that cannot be loaded)."""
        self._put(self._refusal(error))

    def chunks(self, seq: int, raw: Sequence[bytes]) -> list[Mark]:
        """Take chunks `seq`, `seq + 1`, ...; returns what is known of each."""
        marks: list[Mark] = []
        if self._decoder is None:
            self._decoder = codecs.make_decoder(self._upstream_dialect)
        for offset, chunk in enumerate(raw):
            if self._stopped:
                marks.append(("withheld", -1))
                continue
            try:
                events = self._decoder.feed(chunk)
            except RemoteProtocolError as error:
                self._fail("api_error", error.message)
                self._note("protocol_error", seq + offset, error.message)
                marks.append(("withheld", -1))
                continue
            marks.append(self._events(events, seq + offset))
        return marks

    def body(self, seq: int, raw: bytes) -> Mark:
        """Take a whole answer (status 200, no stream)."""
        if self.call.endpoint == "count_tokens":
            return self._count(seq, raw)
        try:
            events = codecs.decode_whole(self._upstream_dialect, raw)
        except RemoteProtocolError as error:
            self._fail("api_error", error.message)
            self._note("protocol_error", seq, error.message)
            return "withheld", -1
        verdict, _ = self._events(events, seq)
        return verdict, -1

    def error_status(self, status: int, raw: bytes, retry_after: str) -> Mark:
        """Take an error answer; its meaning is kept, its payload is not forwarded."""
        self._failed(codecs.decode_error(self._upstream_dialect, status, raw, retry_after or None))
        return "withheld", -1

    def eof(self) -> None:
        """Upstream is done."""
        if self._stopped:
            return
        try:
            events = self._decoder.finish() if self._decoder is not None else []
        except RemoteProtocolError as error:
            self._fail("api_error", error.message)
            return
        self._events(events, -1)
        if not self._stopped:
            self._fail("api_error", "upstream ended its answer without finishing it")

    def failed(self, code: str) -> None:
        """Upstream could not be reached, was silent too long, or sent too much."""
        status, kind, message = _FAILURES.get(code, (502, "api_error", "the upstream failed"))
        self._failed(UpstreamFailed(kind, message, status))

    def judgement(self, block: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        slot = self._by_index.get(block)
        decision = slot.decision if slot is not None else None
        if slot is None or decision is None or decision.question is None or decision.step != step:
            return
        question = decision.question
        self._records.append(
            JudgementRecord(
                call_id=self.call.call_id, block=block, step=step, at=at, model=question.model, policy=decision.asker,
                probability=judgement.probability, threshold=question.threshold, explanation=judgement.explanation,
                prompt=to_bytes(judgement.prompt or question.prompt), reply=to_bytes(judgement.reply),
                latency_ms=judgement.latency_ms, attempts=judgement.attempts, error=judgement.error,
            )
        )  # fmt: skip
        decision.advance(judgement)
        self._settle(slot, at)
        self._pump()

    def committed(self, block: int, ok: bool, at: int) -> None:
        """Take the commit of a tool call's record; not `ok` means that it was not waited for any longer."""
        slot = self._by_index.get(block)
        if slot is None or slot.done or slot.decided is None or slot.decided.verdict == "block":
            return
        if not ok:
            overruled = Decided("block", "audit_unavailable", slot.decided.policy, "", None)
            slot.decided = overruled
            self._records.append(
                BlockRecord(call_id=self.call.call_id, block=block, at=at, kind="tool_use", verdict="block", reason="audit_unavailable", policy="")
            )
        self._fill(slot, at)
        self._pump()

    def take(self) -> Taken:
        """Return what is wanted since the last time."""
        taken = Taken(
            self._taken, self._number, self._hash.hexdigest(), self._outputs, self._records, self._asks, self._waits, self._end
        )
        self._taken = self._number
        self._outputs, self._records, self._asks, self._waits = [], [], [], []
        return taken

    # --- the request ---

    def _dispatch(self, request: ChatRequest, upstream: str) -> Dispatch | Respond:
        assert self._chain is not None
        call, config = self.call, self._config
        said, who = self._chain.on_request(request)
        if isinstance(said, Block):
            raise Forbidden(said.message or f"the policy {who!r} blocked this request: {said.reason}", code="blocked_by_policy")
        if upstream == DEMO:
            dialect, native = DEMO_MODELS[request.model] or call.dialect, True
        else:
            dialect, native = config.upstreams[upstream].dialect, config.upstreams[upstream].native_tools
        if not native and said.tools:
            raise InvalidRequest(f"the model {request.model!r} has no native tool calls, which this version needs", param="tools")
        self._upstream_dialect = dialect
        if call.endpoint == "count_tokens":
            if dialect != "anthropic":
                body = count_tokens.encode_count(count_tokens.estimate_tokens(request), estimated=True)
                self._stopped = True
                return Respond(200, {"content-type": "application/json", "x-sluice-estimated": "true"}, body, b"", "complete")
            return Dispatch(upstream, dialect, "count_tokens", None)
        body = None if said is request and dialect == call.dialect else codecs.encode_request(dialect, said)
        return Dispatch(upstream, dialect, "messages" if dialect == "anthropic" else "chat", body)

    def _refusal(self, error: PipelineError) -> Respond:
        self.state, self._stopped, self.status = "FAILED", True, error.http_status
        headers = {"content-type": "application/json"}
        if error.retry_after_s is not None:
            headers["retry-after"] = str(error.retry_after_s)
        if error.error_code == "blocked_by_policy":
            headers["x-should-retry"] = "false"
        body = errors_wire.error_body(self.call.dialect, error)
        frame = errors_wire.error_frame(self.call.dialect, "invalid_request_error", error.message, error.error_code)
        return Respond(error.http_status, headers, body, frame, error.error_code)

    def _count(self, seq: int, raw: bytes) -> Mark:
        try:
            tokens = count_tokens.decode_count(raw)
        except RemoteProtocolError as error:
            self._fail("api_error", error.message)
            return "withheld", -1
        self._stopped = True
        self._put(Respond(200, {"content-type": "application/json"}, count_tokens.encode_count(tokens, estimated=False), b"", "complete"))
        return "allow", -1

    # --- events ---

    def _events(self, events: list[Event], seq: int) -> Mark:
        verdict: VerdictName = "allow"
        block = -1
        for event in events:
            try:
                said, at_block = self._event(event, seq)
            except RemoteProtocolError as error:
                self._fail("api_error", error.message)
                self._note("protocol_error", seq, error.message)
                return "withheld", -1
            if _RANK[said] > _RANK[verdict]:
                verdict = said
            if at_block >= 0:
                block = at_block
        return verdict, block

    def _event(self, event: Event, seq: int) -> Mark:
        match event:
            case TextDelta():
                return self._text(event)
            case ArgumentsDelta():
                return self._arguments(event)
            case BlockStart():
                return self._block_start(event, seq)
            case BlockStop():
                return self._block_stop(event)
            case MessageStart():
                self.usage = self.usage.updated(event.usage)
                self._emit(event)
            case SignatureDelta():
                slot = self._slot(event.index, BlockKind.THINKING)
                # a signature vouches for text that the client did not get
                if slot.changed or slot.blocked:
                    return "withheld", event.index
                self._into(slot, event)
                return "allow", event.index
            case MessageStop():
                self.usage = self.usage.updated(event.usage)
                self._finish(event)
            case UpstreamFailed():
                self._failed(event)
                return "withheld", -1
            case Opaque():
                self._withheld = True
                self._note("withheld", seq, event.what)
                return "withheld", -1
            case Ping():
                pass
        return "allow", -1

    def _slot(self, index: int, *kinds: BlockKind) -> _Slot:
        slot = self._by_index.get(index)
        if slot is None or slot.kind not in kinds or slot.done:
            raise RemoteProtocolError(f"upstream sent a delta for block {index}, which is not open as {' or '.join(kinds)}")
        return slot

    def _block_start(self, event: BlockStart, seq: int) -> Mark:
        if event.index in self._by_index:
            raise RemoteProtocolError(f"upstream began block {event.index} twice")
        self._next_index = max(self._next_index, event.index + 1)
        slot = self._by_index[event.index] = _Slot(event.index, event.kind, id=event.id, name=event.name)
        self._slots.append(slot)
        match event.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                # with policies that read text the block begins with the first text that they release
                if not self._reads_text:
                    slot.started = True
                    self._into(slot, event)
                return "allow", event.index
            case BlockKind.TOOL_USE:
                slot.ordinal = self._tools
                self._tools += 1
                return "hold", event.index
            case BlockKind.OTHER:
                return self._other(slot, event)
            case BlockKind.OPAQUE:
                self._withheld = slot.blocked = True
                self._note("withheld", seq, event.name or "block")
                return "withheld", event.index

    @property
    def _reads_text(self) -> bool:
        return self._chain is not None and self._chain.reads_text

    def _other(self, slot: _Slot, event: BlockStart) -> Mark:
        assert self._chain is not None
        said, who = self._chain.on_other(OtherBlock(event.index, event.name, event.body or {}))
        if isinstance(said, Block):
            self._withheld = slot.blocked = True
            self._block_record(slot, "block", said.reason, who)
            return "block", event.index
        self._block_record(slot, "allow", "", "")
        self._into(slot, event)
        return "allow", event.index

    def _text(self, event: TextDelta) -> Mark:
        index = event.index
        slot = self._by_index.get(index)
        if slot is None or slot.done or (slot.kind is not BlockKind.TEXT and slot.kind is not BlockKind.THINKING):
            raise RemoteProtocolError(f"upstream sent text for block {index}, which is not open for it")
        if slot.blocked:
            return "block", index
        if slot.started and not self._reads_text:
            self._into(slot, event)
            return "allow", index
        assert self._chain is not None
        said, who = self._chain.on_text(event.text, TextBlock(index, slot.kind))
        if isinstance(said, Block):
            self._block_text(slot, said, who)
            return "block", index
        verdict: VerdictName = "allow"
        if said != event.text:
            slot.changed, verdict = True, "replace"
        self._release_text(slot, said)
        return verdict, index

    def _release_text(self, slot: _Slot, text: str) -> None:
        if not text:
            return
        if not slot.started:
            slot.started = True
            assert slot.kind is not None
            self._into(slot, BlockStart(slot.index, slot.kind))
        self._into(slot, TextDelta(slot.index, text))

    def _block_text(self, slot: _Slot, block: Block, who: str) -> None:
        slot.blocked = self._withheld = True
        self._block_record(slot, "block", block.reason, who)
        if slot.kind is BlockKind.TEXT:
            self._release_text(slot, block.message or f"[Sluice: text was withheld by the policy {who!r}: {block.reason}]")

    def _arguments(self, event: ArgumentsDelta) -> Mark:
        slot = self._slot(event.index, BlockKind.TOOL_USE)
        slot.size += len(event.text)
        if slot.size <= self.call.max_arguments_bytes:
            slot.arguments.append(event.text)
        return "hold", event.index

    def _block_stop(self, event: BlockStop) -> Mark:
        slot = self._by_index.get(event.index)
        if slot is None or slot.done:
            raise RemoteProtocolError(f"upstream ended block {event.index}, which is not open")
        match slot.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                self._text_stop(slot)
            case BlockKind.TOOL_USE:
                self._decide(slot)
                self._pump()
                return "hold", event.index
            case _:
                if not slot.blocked:
                    self._into(slot, event)
                slot.done = True
        self._pump()
        return "allow", event.index

    def _text_stop(self, slot: _Slot) -> None:
        if not slot.blocked:
            if self._reads_text:
                assert self._chain is not None and slot.kind is not None
                said, who = self._chain.on_text_end(TextBlock(slot.index, slot.kind))
                if isinstance(said, Block):
                    self._block_text(slot, said, who)
                else:
                    slot.changed = slot.changed or bool(said)
                    self._release_text(slot, said)
            if not slot.blocked:
                self._block_record(slot, "replace" if slot.changed else "allow", "", "")
        if slot.started:
            self._into(slot, BlockStop(slot.index))
        slot.done = True

    # --- tool calls ---

    def _decide(self, slot: _Slot) -> None:
        assert self._chain is not None and self.request is not None
        text = normal_arguments("".join(slot.arguments))
        if slot.size > self.call.max_arguments_bytes:
            slot.decided = Decided("block", "too_large", "", "", None)
        else:
            try:
                value = loads_arguments(text)
            except AmbiguousJson as error:
                slot.decided = Decided("block", "ambiguous_json", "", f"[Sluice: the arguments of {slot.name!r} were blocked: {error}]", None)
            else:
                tool = self.request.tool(slot.name)
                call = ToolCall(slot.index, slot.ordinal, slot.id, slot.name, text, value, tool)
                slot.decision = Decision(self._chain, call)
                slot.decision.advance()
        self._settle(slot, self._at)

    _at = 0
    """Unix ms of the entry that is being taken in; set by the worker, used only in records."""

    def _settle(self, slot: _Slot, at: int) -> None:
        decision = slot.decision
        if slot.decided is None:
            assert decision is not None
            if decision.decided is None:
                assert decision.question is not None
                self._asks.append(Ask(slot.index, decision.step, decision.question))
                return
            slot.decided = decision.decided
            if slot.decided.verdict == "replace" and self._schema_valid(decision.call.tool, decision.call.value) is False:
                slot.decided = Decided("block", "schema", slot.decided.policy, "", None)
        decided = slot.decided
        wait = decided.verdict != "block" and self.call.durable
        self._records.append(
            ToolCallRecord(
                call_id=self.call.call_id, block=slot.index, index=slot.ordinal, at=at, tool_call_id=slot.id, name=slot.name,
                arguments=to_bytes("".join(slot.arguments)),
                released_arguments=None if decided.arguments is None else to_bytes(decided.arguments),
                executor="client", form="native", verdict=decided.verdict, reason=decided.reason, policy=decided.policy,
                schema_valid=None if decision is None else self._schema_valid(decision.call.tool, decision.call.value), notify=wait,
            )
        )  # fmt: skip
        if wait:
            self._waits.append(slot.index)
        else:
            self._fill(slot, at)

    def _schema_valid(self, tool: Tool | None, value: dict[str, object]) -> bool | None:
        if tool is None or not tool.schema:
            return None
        if tool.name not in self._validators:
            try:
                self._validators[tool.name] = jsonschema_rs.Draft202012Validator(tool.schema)
            except ValueError:
                self._validators[tool.name] = None
        validator = self._validators[tool.name]
        return None if validator is None else validator.is_valid(value)

    def _fill(self, slot: _Slot, at: int) -> None:
        """Put what the client gets for a decided tool call into its slot."""
        decided = slot.decided
        assert decided is not None
        if decided.arguments is None:
            self._withheld = True
            who = f" by the policy {decided.policy!r}" if decided.policy else ""
            message = decided.message or f"[Sluice: the tool call {slot.name!r} was blocked{who}: {decided.reason}]"
            events: list[Event] = [BlockStart(slot.index, BlockKind.TEXT), TextDelta(slot.index, message)]
        else:
            self._survivors += 1
            events = [BlockStart(slot.index, BlockKind.TOOL_USE, id=slot.id, name=slot.name), ArgumentsDelta(slot.index, decided.arguments)]
        events.append(BlockStop(slot.index))
        for event in events:
            self._into(slot, event)
        self._records.append(ToolReleaseRecord(call_id=self.call.call_id, block=slot.index, at=at))
        slot.done = True

    # --- the end ---

    def _finish(self, event: MessageStop) -> None:
        for slot in self._slots:
            if not slot.done and slot.decided is None and slot.decision is None:
                raise RemoteProtocolError(f"upstream ended the message with block {slot.index} open")
        self._close_with(event)

    def _failed(self, event: UpstreamFailed) -> None:
        if self._stopped:
            return
        # a block that upstream did not finish can never be approved
        unfinished = [s for s in self._slots if not s.done and s.decided is None and s.decision is None]
        for slot in unfinished:
            if slot is not self._slots[0] or slot.kind not in (BlockKind.TEXT, BlockKind.THINKING):
                self._slots.remove(slot)
            self._block_record(slot, "withheld", "unfinished", "")
            slot.done = True
        self._close_with(event)

    def _fail(self, kind: str, message: str) -> None:
        self._failed(UpstreamFailed(kind, message, 502))

    def _close_with(self, event: MessageStop | UpstreamFailed) -> None:
        self._stopped = True
        slot = _Slot(self._next_index, None)
        slot.end, slot.done = event, True
        self._slots.append(slot)
        self._pump()

    def _complete(self, event: MessageStop) -> None:
        reason = event.stop_reason
        if reason is StopReason.TOOL_USE and self._tools and not self._survivors:
            reason = StopReason.END_TURN
        if not self._emitted_block and self._withheld:
            index = self._next_index
            for notice in (
                BlockStart(index, BlockKind.TEXT), TextDelta(index, "[Sluice: the answer was withheld by policy]"), BlockStop(index)
            ):  # fmt: skip
                self._emit(notice)
        self.stop_reason, self._end = str(reason), "complete"
        self.state = "ENDED"
        self._emit(msgspec.structs.replace(event, stop_reason=reason, usage=self.usage))

    def _abort(self, event: UpstreamFailed) -> None:
        self.state, self._end = "FAILED", event.kind
        if self._visible:
            self._emit(event)
            return
        self.status, headers, body = errors_wire.failed_response(self.call.dialect, event)
        frame = errors_wire.error_frame(self.call.dialect, event.kind, event.message, event.kind)
        self._put(Respond(self.status, headers, body, frame, event.kind))

    # --- outputs ---

    def _into(self, slot: _Slot, event: Event) -> None:
        if self._slots and self._slots[0] is slot:
            self._emit(event)
        else:
            slot.events.append(event)

    def _pump(self) -> None:
        """Let every slot whose turn has come emit; stop at the first that is not done."""
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            if slot.end is not None:
                if isinstance(slot.end, MessageStop):
                    self._complete(slot.end)
                else:
                    self._abort(slot.end)
                return
            if self._slots:
                for event in self._slots[0].events:
                    self._emit(event)
                self._slots[0].events = []

    def _emit(self, event: Event) -> None:
        if type(event) is BlockStart:
            self._emitted_block = True
        if self.request is not None and self.request.stream:
            self._visible = True
        self._put(event)

    def _put(self, output: Output) -> None:
        self._outputs.append(output)
        self._number += 1
        self._hash.update(_pack(output))
        if self._number == self.checkpoint:
            self.checkpoint_digest = self._hash.hexdigest()
        if type(output) is Respond:
            self._end = self._end or output.reason

    def _note(self, kind: str, seq: int, detail: str) -> None:
        self._notes += 1
        detail = f"{seq}: {detail}"
        self._records.append(EventRecord(call_id=self.call.call_id, kind=kind, number=self._notes, at=self._at, detail=detail))

    def _block_record(self, slot: _Slot, verdict: VerdictName, reason: str, policy: str) -> None:
        kind = slot.kind.value if slot.kind is not None else ""
        self._records.append(
            BlockRecord(call_id=self.call.call_id, block=slot.index, at=self._at, kind=kind, verdict=verdict, reason=reason, policy=policy)
        )

    def at(self, at: int) -> None:
        """Set the time of what is taken in next (Unix ms); only records carry it."""
        self._at = at


_FAILURES: dict[str, tuple[int, str, str]] = {
    "upstream_timeout": (504, "timeout_error", "the upstream did not answer in time"),
    "upstream_unreachable": (502, "api_error", "the upstream cannot be reached"),
    "upstream_too_large": (502, "api_error", "the upstream's answer is past the limit"),
    "upstream_protocol_error": (502, "api_error", "the upstream's answer is not what its dialect allows"),
    "call_deadline": (504, "timeout_error", "the call's deadline has passed"),
}
"""What the gateway's error codes mean for the client: status before the first byte, Messages error type, sentence."""
