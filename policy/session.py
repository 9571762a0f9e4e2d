"""The state machine of one call: decoded events, judgements and commits in; effects out. Pure and replayable.

Theory. Blocks wait for their turn in `policy.slots`. A text block at the head streams; a tool call emits once it is
decided and, where tool calls are durable, committed. What comes out depends only on the order of chunks and on
judgements and commits, which are set once; so a second owner that replays the stream gets the same outputs, and a
running hash over them proves it.

Must not know: Redis, time, how bytes reach the client.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from policy import opening, toolcalls
from policy.base import Block, Context, Judgement, OtherBlock, Policy, TextBlock
from policy.chain import Chain, Decided
from policy.effects import Ask, CallInfo, Dispatch, Output, Respond, State, Taken
from policy.slots import Slot, Slots
from protocol import codecs, count_tokens, errors_wire
from protocol.config import Config
from protocol.errors import InvalidRequest, PipelineError, RemoteProtocolError
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
from protocol.records import BlockRecord, EventRecord, Record, ToolReleaseRecord, VerdictName, to_bytes
from protocol.request import ChatRequest, Dialect

_encode = msgspec.msgpack.Encoder().encode
_RANK: dict[VerdictName, int] = {"allow": 0, "replace": 1, "hold": 2, "block": 3, "withheld": 4}


def _pack(output: Output) -> bytes:
    try:
        return _encode(output)
    except UnicodeEncodeError:
        # a model can write lone surrogates, which no UTF-8 format takes
        return to_bytes(repr(output))


_MAX_OPAQUE = 100
Mark = tuple[VerdictName, int]
"""The verdict on a chunk as far as it is known, and the block it belongs to (-1: none)."""


class Session:
    """One call. Feed it, then `take` what it wants done."""

    def __init__(self, call: CallInfo, policies: Sequence[Policy], config: Config) -> None:
        self.call, self._policies, self._config = call, policies, config
        self.state: State = "ACTIVE"
        self.usage, self.stop_reason, self.status = Usage(), "", 200
        self.request: ChatRequest | None = None
        self.dropped: tuple[str, ...] = ()
        self._chain: Chain | None = None
        self._decoder: codecs.Decoder | None = None
        self._upstream_dialect: Dialect = call.dialect
        self._slots = Slots(self._emit)
        self._tools = self._survivors = 0
        self._emitted_block = self._withheld = self._visible = self._stopped = False
        self._hash = blake2b(digest_size=16)
        self._number = self._taken = self._notes = 0
        self.checkpoint, self.checkpoint_digest = 0, ""
        self._opaque: set[str] = set()
        self._outputs: list[Output] = []
        self._records: list[Record] = []
        self._asks: list[Ask] = []
        self._waits: list[int] = []
        self._end = ""
        self._schemas = toolcalls.Schemas()
        self._at = 0

    # --- what the worker calls ---

    def begin(self, body: bytes | None) -> None:
        """Validate the request, run the request hooks, translate; gives Dispatch or Respond."""
        call, model, upstream = self.call, "", ""
        try:
            if body is None:
                raise InvalidRequest("the request body was lost before a worker could read it", code="body_lost")
            request = self.request = codecs.decode_request(call.dialect, body, endpoint=call.endpoint)
            model = request.model
            upstream = opening.route(self._config, model)
            self._chain = Chain(self._policies, Context(call.call_id, call.nonce, call.key, call.session, request))
            output = opening.dispatch(call, self._config, self._chain, request, upstream)
            if isinstance(output, Dispatch):
                self._upstream_dialect = output.dialect
            else:
                self._stopped = True
        except PipelineError as error:
            output = self._refusal(error)
        self._records.append(opening.record(call, self.request, model, upstream))
        self._put(output)

    def refuse(self, error: PipelineError) -> None:
        """Answer with an error instead of beginning (unknown policy, a revision that cannot be loaded)."""
        self._records.append(opening.record(self.call, None, "", ""))
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
        self._failed(errors_wire.gateway_failure(code))

    def judgement(self, block: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        slot = self._slots.by_index.get(block)
        decision = slot.decision if slot is not None else None
        if slot is None or decision is None or decision.question is None or decision.step != step:
            return
        self._records.append(toolcalls.judged(self.call, slot, judgement, at))
        decision.advance(judgement)
        self._settle(slot, at)
        self._pump()

    def committed(self, block: int, ok: bool, at: int) -> None:
        """Take the commit of a tool call's record; not `ok` means that it was not waited for any longer."""
        slot = self._slots.by_index.get(block)
        if slot is None or slot.done or slot.decided is None or slot.decided.verdict == "block":
            return
        if not ok:
            overruled = Decided("block", "audit_unavailable", slot.decided.policy, "", None)
            slot.decided = overruled
            self._records.append(
                BlockRecord(
                    call_id=self.call.call_id, block=block, at=at, kind="tool_use", verdict="block", reason="audit_unavailable", policy=""
                )
            )
        self._fill(slot, at)
        self._pump()

    def take(self) -> Taken:
        """Return what is wanted since the last time."""
        taken = Taken(self._taken, self._number, self._hash.hexdigest(), self._outputs, self._records, self._asks, self._waits, self._end)
        self._taken = self._number
        self._outputs, self._records, self._asks, self._waits = [], [], [], []
        return taken

    # --- the request ---

    def _refusal(self, error: PipelineError) -> Respond:
        self.state, self._stopped, self.status = "FAILED", True, error.http_status
        return opening.refusal(self.call.dialect, error)

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
                self._slots.put(slot, event)
                return "allow", event.index
            case MessageStop():
                self.usage = self.usage.updated(event.usage)
                self._finish(event)
            case UpstreamFailed():
                self._failed(event)
                return "withheld", -1
            case Opaque():
                self._withheld = True
                self._withhold(event.what, seq)
                return "withheld", -1
            case Ping():
                pass
        return "allow", -1

    def _withhold(self, what: str, seq: int) -> None:
        # the first of its kind is worth a record: every chunk has its mark anyway, and a server tool has hundreds of deltas
        if what not in self._opaque and len(self._opaque) < _MAX_OPAQUE:
            self._opaque.add(what)
            self._note("withheld", seq, what)

    def _slot(self, index: int, *kinds: BlockKind) -> Slot:
        slot = self._slots.by_index.get(index)
        if slot is None or slot.kind not in kinds or slot.done:
            raise RemoteProtocolError(f"upstream sent a delta for block {index}, which is not open as {' or '.join(kinds)}")
        return slot

    def _block_start(self, event: BlockStart, seq: int) -> Mark:
        if event.index in self._slots.by_index:
            raise RemoteProtocolError(f"upstream began block {event.index} twice")
        slot = Slot(event.index, event.kind, id=event.id, name=event.name)
        self._slots.add(slot)
        match event.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                # with policies that read text the block begins with the first text that they release
                if not self._reads_text:
                    slot.started = True
                    self._slots.put(slot, event)
                return "allow", event.index
            case BlockKind.TOOL_USE:
                slot.ordinal = self._tools
                self._tools += 1
                return "hold", event.index
            case BlockKind.OTHER:
                return self._other(slot, event)
            case BlockKind.OPAQUE | BlockKind.SERVER_TOOL_USE:
                self._withheld = slot.blocked = True
                self._note("withheld", seq, event.name or "block")
                return "withheld", event.index

    @property
    def _reads_text(self) -> bool:
        return self._chain is not None and self._chain.reads_text

    def _other(self, slot: Slot, event: BlockStart) -> Mark:
        assert self._chain is not None
        said, who = self._chain.on_other(OtherBlock(event.index, event.name, event.body or {}))
        if isinstance(said, Block):
            self._withheld = slot.blocked = True
            self._block_record(slot, "block", said.reason, who)
            return "block", event.index
        self._block_record(slot, "allow", "", "")
        self._slots.put(slot, event)
        return "allow", event.index

    def _text(self, event: TextDelta) -> Mark:
        index = event.index
        slot = self._slots.by_index.get(index)
        if slot is None or slot.kind is None or slot.done or not slot.is_text:
            raise RemoteProtocolError(f"upstream sent text for block {index}, which is not open for it")
        if slot.blocked:
            return "block", index
        if slot.started and not self._reads_text:
            self._slots.put(slot, event)
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

    def _release_text(self, slot: Slot, text: str) -> None:
        if not text:
            return
        if not slot.started:
            slot.started = True
            assert slot.kind is not None
            self._slots.put(slot, BlockStart(slot.index, slot.kind, name=slot.name))
        self._slots.put(slot, TextDelta(slot.index, text))

    def _block_text(self, slot: Slot, block: Block, who: str) -> None:
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
        slot = self._slots.by_index.get(event.index)
        if slot is None or slot.done:
            raise RemoteProtocolError(f"upstream ended block {event.index}, which is not open")
        match slot.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                self._text_stop(slot)
            case BlockKind.TOOL_USE:
                assert self._chain is not None and self.request is not None
                toolcalls.decide(slot, self._chain, self.request, self.call.max_arguments_bytes)
                self._settle(slot, self._at)
                self._pump()
                return "hold", event.index
            case _:
                if not slot.blocked:
                    self._slots.put(slot, event)
                slot.done = True
        self._pump()
        return "allow", event.index

    def _text_stop(self, slot: Slot) -> None:
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
            self._slots.put(slot, BlockStop(slot.index))
        slot.done = True

    # --- tool calls ---

    def _settle(self, slot: Slot, at: int) -> None:
        decision = slot.decision
        if slot.decided is None and decision is not None and decision.question is not None:
            self._asks.append(Ask(slot.index, decision.step, decision.question))
            return
        valid = toolcalls.settle(slot, self._schemas)
        assert slot.decided is not None
        wait = slot.decided.arguments is not None and self.call.durable
        self._records.append(toolcalls.record(self.call, slot, at, schema_valid=valid, notify=wait))
        if wait:
            self._waits.append(slot.index)
        else:
            self._fill(slot, at)

    def _fill(self, slot: Slot, at: int) -> None:
        """Put what the client gets for a decided tool call into its slot."""
        assert slot.decided is not None
        if slot.decided.arguments is None:
            self._withheld = True
        else:
            self._survivors += 1
        for event in toolcalls.released(slot, self.call.dialect):
            self._slots.put(slot, event)
        self._records.append(ToolReleaseRecord(call_id=self.call.call_id, block=slot.index, at=at))
        slot.done = True

    # --- the end ---

    def _finish(self, event: MessageStop) -> None:
        for slot in self._slots.unfinished():
            raise RemoteProtocolError(f"upstream ended the message with block {slot.index} open")
        self._close_with(event)

    def _failed(self, event: UpstreamFailed) -> None:
        if self._stopped:
            return
        # a block that upstream did not finish can never be approved
        for slot in self._slots.unfinished():
            self._slots.drop(slot)
            self._block_record(slot, "withheld", "unfinished", "")
        self._close_with(event)

    def _fail(self, kind: str, message: str) -> None:
        # no status of upstream's: it answered, and the answer is paid for
        self._failed(UpstreamFailed(kind, message))

    def _close_with(self, event: MessageStop | UpstreamFailed) -> None:
        self._stopped = True
        slot = Slot(self._slots.next_index, None)
        slot.end, slot.done = event, True
        self._slots.add(slot)
        self._pump()

    def _complete(self, event: MessageStop) -> None:
        reason = event.stop_reason
        if reason is StopReason.TOOL_USE and self._tools and not self._survivors:
            reason = StopReason.END_TURN
        # a refusal is empty by itself
        if not self._emitted_block and self._withheld and reason is not StopReason.REFUSAL:
            index = self._slots.next_index
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

    def _pump(self) -> None:
        end = self._slots.pump()
        if isinstance(end, MessageStop):
            self._complete(end)
        elif end is not None:
            self._abort(end)

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

    def _block_record(self, slot: Slot, verdict: VerdictName, reason: str, policy: str) -> None:
        kind = slot.kind.value if slot.kind is not None else ""
        self._records.append(
            BlockRecord(call_id=self.call.call_id, block=slot.index, at=self._at, kind=kind, verdict=verdict, reason=reason, policy=policy)
        )

    def at(self, at: int) -> None:
        """Set the time of what is taken in next (Unix ms); only records carry it."""
        self._at = at
