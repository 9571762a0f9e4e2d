"""The content blocks of one answer on their way through the policies: text, tool calls, blocks
carried whole.

Theory. Text passes the text policies piece by piece; what they release is searched for calls that a
client may read out of text. A tool call is held until it is complete, decided and, where that is
asked for, committed. A call that the provider runs is decided like any other, but a block cannot
undo it: it ends the turn, and with it the upstream's work; where the provider asks first, a block
keeps back the question. A block carried whole is decided whole; a result stays with its call,
because the API takes neither without the other.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import proxy

import msgspec

from policy.answer import AnswerHistory
from policy.base import NOTHING_BEFORE, Block, Judgement, OtherBlock
from policy.schemas import AnswerCheck, ToolSchemas
from policy.session import metadata, toolcalls
from policy.session.approved import Approved
from policy.session.chain import Chain, Decided
from policy.session.effects import JudgeRequest
from policy.session.ids import CallIds
from policy.session.outbox import Outbox
from policy.session.pairs import Pairs
from policy.session.slots import RANKED, Continue, End, Mark, Slot, Slots
from policy.session.text_flow import TextFlow
from protocol.bounds import MAX_BLOCKS, MAX_OPEN_ASKS, MAX_TOOL_CALLS
from protocol.dialects import CLIENTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStop,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from protocol.json_strict import dumps
from protocol.records import ToolReleaseRecord, VerdictName
from protocol.request import ChatRequest, DialectName, Tool
from protocol.target import Ids

_CALLS = (BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE)
_CALL_BYTES = 4 * 1024
"""What a decision takes beside what the size of the arguments makes it take, as bytes of them."""
PENDING = "mcp_pending"
"""Executor of a call that its provider asks about before it runs it: the one call of a provider's
that a block prevents."""
_NOTED_ID = 200
"""Characters of an upstream's id that are noted; its raw event has it whole."""
LISTED = 2 * MAX_TOOL_CALLS
"""Calls of one answer that have rows of their own: those past the bound that are listed all the
same; of the others only their number."""


class CallBlocks:
    """All blocks of one call, over all its segments. `cut` is set once a provider-run call was
    denied: nothing more is taken."""

    attempt = 0
    """Which answer of the call it is."""

    def __init__(
        self,
        outbox: Outbox,
        chain: Chain,
        request: ChatRequest,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        self._outbox, self._chain, self._client = outbox, chain, request
        self._approved = Approved(request, request)
        self._can_answer = True
        """Can the client say whether a provider may run a call? Clients of another dialect than the
        upstream's have no word for it."""
        self.call = outbox.call
        self.slots = Slots(emit or outbox.emit)
        self.survivors = 0
        self._first_call = -1
        self.is_cut = self._at_end = self._has_output = False
        self._ledger = self.held = 0
        # held: size of incomplete tool calls, on all of which one step may decide
        self.first_of_whole = 0
        """Index of the first block of the last whole answer: the turn may go on, and the next
        answer's blocks are not this one's."""
        self._schemas = ToolSchemas()
        self._pairs, self._ids = Pairs(), CallIds(outbox.call.call_id)
        # not a bound method: in a cycle all that a call holds would wait for the garbage collector
        weak = proxy(self)
        self._answer = AnswerHistory() if chain.asks else None
        self._text = TextFlow(
            outbox, chain, self.slots, request, self._answer, lambda suspect: weak._found(suspect)
        )
        self.feed_text = self._text.feed
        self._counts_sealed = False
        """Does the client get signatures? No other dialect than the upstream's has a place for
        them."""
        self._hides_foreign = False
        self._to_ask = deque[Slot]()
        self._asked = set[int]()
        """Calls with a question that is open: at most so many at a time, the others wait in
        `_to_ask`."""

    def fits(self, tool: Tool, value: dict[str, Any]) -> bool:
        """Do arguments fit their tool's schema, as far as there is one?"""
        return self._schemas.fits(tool, value)

    def look_at(
        self,
        sent: ChatRequest,
        dialect: DialectName,
        ids: Ids = "keep",
        *,
        passes_sealed: bool = True,
    ) -> None:
        """Take the request as it goes upstream: the answer is held to it, and may hold results of
        provider-run calls in it."""
        self._pairs.look_at(sent)
        self._ids.look_at(sent, ids)
        self._approved = Approved(self._client, sent.without_history())
        self._can_answer = dialect == self.call.dialect
        self._text.passes_sealed, self._text.is_foreign = (
            passes_sealed,
            dialect != self.call.dialect,
        )
        self._hides_foreign = self._text.is_foreign and CLIENTS[self.call.dialect].hides_foreign
        self._counts_sealed = dialect == self.call.dialect and (
            sent.state is None or sent.state.keeps_seals
        )
        form = sent.response_format
        if (
            form is not None
            and form.schema
            and dialect != self.call.dialect
            and self._text.answer is None
        ):
            self._text.answer = AnswerCheck(form.schema)

    # --- events ---

    def feed(self, event: Event, seq: int) -> Mark:
        """Take an event of a block. Raises RemoteProtocolError."""
        match event:
            case TextDelta():
                return self.feed_text(event)
            case ArgumentsDelta():
                return self._arguments(event)
            case BlockStart():
                return self._start(event, seq)
            case BlockStop():
                return self._stop(event)
            case SignatureDelta() | AttachmentDelta():
                return self._text.attachment(event, seq)
            case RawDelta():
                return self._unmodelled(event, seq)
            case _:
                return "allow", -1

    def _start(self, event: BlockStart, seq: int) -> Mark:
        if event.index in self.slots.by_index:
            raise RemoteProtocolError(f"upstream began block {event.index} twice")
        if len(self.slots.by_index) >= MAX_BLOCKS:
            raise RemoteProtocolError(f"upstream began more than {MAX_BLOCKS} blocks")
        if event.kind is BlockKind.TOOL_USE:
            event = msgspec.structs.replace(
                event, name=self._approved.meant_by(event.name, event.body)
            )
        event, withheld = metadata.read_body(event, self._chain)
        if withheld:
            self._outbox.note_withheld(withheld, seq)
        if event.kind is BlockKind.OTHER:
            event = self._unsealed(event, seq)
        slot = Slot(event.index, event.kind, id=event.id, name=event.name)
        slot.body, slot.form = event.body, event.form
        # known here, whatever the verdicts on what came before: those come early in one run and
        # late in another
        if self._has_output:
            slot.follows_text = True
        elif event.kind is not BlockKind.THINKING:
            self._has_output = True
        self.slots.add(slot)
        match event.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                self._text.start(event, slot)
                return "allow", event.index
            case BlockKind.TOOL_USE | BlockKind.SERVER_TOOL_USE:
                slot.executor, slot.server = (
                    toolcalls.executor_of(event),
                    toolcalls.server_of(event.body),
                )
                if event.kind is BlockKind.SERVER_TOOL_USE:
                    self._pairs.begin(slot)
                slot.shown_id = metadata.read_id(slot.id, self._chain) if slot.id else ""
                self._number(slot)
                self._identify(slot)
                return "hold", event.index
            case BlockKind.OTHER:
                return self._other(slot)
            case BlockKind.OPAQUE:
                slot.blocked = True
                self._outbox.withhold(event.name or "block", seq)
                return "withheld", event.index

    def _with_shown_id(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a result with its call's id as the client gets it."""
        if isinstance(identity := body.get("tool_use_id"), str):
            body = {**body, "tool_use_id": metadata.read_id(identity, self._chain)}
        return body

    def _identify(self, slot: Slot) -> None:
        """Give a call an id of ours where upstream's does not name it alone; upstream's is in a
        record beside it."""
        if slot.kind is BlockKind.SERVER_TOOL_USE or slot.executor == PENDING:
            self._ids.take(slot.shown_id)
        elif (
            identity := self._ids.of(slot.index, slot.shown_id, is_native=slot.form == "native")
        ) != slot.shown_id:
            if slot.id and slot.ordinal < LISTED:
                self._outbox.block_note(
                    slot, "minted_id", f"upstream's id was {slot.id[:_NOTED_ID]!r}"
                )
            slot.id = slot.shown_id = identity

    def _number(self, slot: Slot) -> None:
        slot.ordinal = self._ledger
        self._ledger += 1
        self.held += _CALL_BYTES
        if slot.executor not in ("client", PENDING):
            self._pairs.may_cut(slot)
        if slot.kind is BlockKind.TOOL_USE and slot.executor == "client":
            self._first_call = slot.key if self._first_call < 0 else self._first_call

    def _stop(self, event: BlockStop) -> Mark:
        slot = self.slots.by_index.get(event.index)
        if slot is None or slot.done:
            raise RemoteProtocolError(f"upstream ended block {event.index}, which is not open")
        if slot.run is not None:
            self._text.stop(slot, slot.run)
            return "allow", event.index
        if slot.kind in _CALLS or slot.result:
            self.held -= slot.size + _CALL_BYTES
            self._start_decision(slot)
            return "hold", event.index
        if not slot.blocked:
            self.slots.put(slot, event)
        slot.done = True
        return "allow", event.index

    def _unmodelled(self, event: RawDelta, seq: int) -> Mark:
        if event.is_sealed and self._text.is_foreign:
            # for the record: no client of another dialect has a place for it
            return "allow", event.index
        if event.is_sealed and not self._text.passes_sealed:
            self._outbox.note("withheld", seq, event.what)
            return "withheld", event.index
        verdict, _ = self._chain.on_other(OtherBlock(event.index, event.what, event.body))
        slot = self.slots.by_index.get(event.index)
        if (
            isinstance(verdict, Block)
            or not event.is_for(self.call.dialect)
            or (slot is not None and (slot.blocked or slot.done))
        ):
            self._outbox.withhold(event.what, seq)
            return "withheld", event.index
        if event.is_sealed:
            self._text.sealed.append(len(dumps(event.body)))
        if slot is None:
            slot = Slot(-1, None, key=self.slots.new_key())
            self.slots.add(slot)
            slot.done = True
        if slot.kind in _CALLS or slot.result:
            slot.raw.append(event)
            return "hold", event.index
        if slot.run is not None:
            return self._text.attachment(event, seq)
        self.slots.put(slot, event)
        return "allow", event.index

    # --- blocks carried whole ---

    def _unsealed(self, event: BlockStart, seq: int) -> BlockStart:
        body = event.body or {}
        if not self._text.passes_sealed and metadata.is_all_sealed(event.name, body):
            return msgspec.structs.replace(event, kind=BlockKind.OPAQUE)
        return msgspec.structs.replace(event, body=self._text.unsealed(event.name, body, seq))

    def _other(self, slot: Slot) -> Mark:
        body = slot.body or {}
        start = BlockStart(
            slot.index, BlockKind.OTHER, name=slot.name, body=self._with_shown_id(body)
        )
        call_id = body.get("tool_use_id")
        call = self._pairs.call_of(call_id)
        verdict, who = self._chain.on_other(OtherBlock(slot.index, slot.name, body))
        block = verdict if isinstance(verdict, Block) else None
        if slot.name == "annotations" and self._text.has_changed:
            # they tell of places in the text as it was
            block = block or Block("text")
        if call is not None:
            self._pairs.add(call, block, who)
            if call.released and not call.done:
                self._pair(call)
        if block is not None:
            slot.blocked = self._outbox.withheld = True
            self._outbox.block_record(slot, "block", block.reason, who, block.rule)
            return "block", slot.index
        if call is None and (isinstance(call_id, str) or slot.name.endswith("_tool_result")):
            return self._late_result(slot, start, call_id if isinstance(call_id, str) else "")
        self._outbox.block_record(slot, "allow", "", "")
        if self._hides_foreign and slot.name != "annotations":
            slot.blocked = True
            if body.keys() - {"type"} and not metadata.is_all_sealed(slot.name, body):
                self._outbox.withhold(slot.name, -1)
        else:
            self.slots.put(slot, start)
        return "allow", slot.index

    def _pair(self, call: Slot) -> None:
        """Let a call go the way of its result."""
        result = self._pairs.result(call)
        if result is None or result.waits:
            return
        block, who, _ = result
        if block is not None:
            call.decided = Decided(
                "block", block.reason, who, block.message, None, block.rule, block.detail
            )
            call.has_denied_result = True
            self._outbox.block_record(call, "withheld", block.reason, who, block.rule)
        self._release(call, self._outbox.at)

    def _late_result(self, slot: Slot, start: BlockStart, call_id: str) -> Mark:
        """The result of a call in an earlier answer: whoever denies the call gets its result
        withheld."""
        known = self._pairs.earlier(call_id)
        slot.result = [start, BlockStop(slot.index)]
        slot.id, slot.name = call_id, known.name if known else toolcalls.name_of_result(slot.name)
        slot.arguments = [known.arguments if known else ""]
        slot.server = known.server if known else ""
        slot.executor = known.executor if known else "mcp" if slot.name == "mcp" else "provider"
        self._number(slot)
        return "hold", slot.index

    # --- tool calls ---

    def _found(self, suspect: Slot) -> None:
        """Decide on a call that was found in text."""
        self._first_call = suspect.key if self._first_call < 0 else self._first_call
        suspect.ordinal, self._ledger = self._ledger, self._ledger + 1
        suspect.name = self._approved.meant_by(suspect.name, None)
        self._start_decision(suspect)

    def _arguments(self, event: ArgumentsDelta) -> Mark:
        slot = self.slots.by_index.get(event.index)
        if slot is None or slot.kind not in _CALLS or slot.done:
            raise RemoteProtocolError(
                f"upstream sent arguments for block {event.index}, which is no open tool call"
            )
        slot.size += len(event.text)
        self.held += len(event.text)
        if slot.size <= self.call.max_arguments_bytes and slot.ordinal < LISTED:
            slot.arguments.append(event.text)
        return "hold", event.index

    def _start_decision(self, slot: Slot) -> None:
        """Decide on a complete call as far as that needs no judge; the next step is `_on_decision`,
        at once or when one has answered."""
        if slot.ordinal >= MAX_TOOL_CALLS:
            self._leave_out(slot)
            return
        tool = self._approved.request.tool(slot.name)
        if not slot.result and not metadata.is_name(slot.name, offered=tool is not None):
            slot.decided = Decided("block", "name", "", "", None)
        elif slot.executor == PENDING and slot.decided is None:
            slot.decided = (
                self._approved.took(slot.name) if self._can_answer else toolcalls.UNANSWERABLE
            )
        elif slot.kind is BlockKind.TOOL_USE and slot.decided is None:
            toolset = (slot.body or {}).get("toolset_name")
            slot.decided = self._approved.refused(
                slot.name, toolset, is_first=slot.key == self._first_call
            )
        elif slot.kind is BlockKind.SERVER_TOOL_USE and slot.decided is None:
            slot.decided = self._approved.took(slot.name)
        before = NOTHING_BEFORE if self._answer is None else self._answer.so_far()
        if slot.decided is None:
            toolcalls.start_decision(slot, self._chain, tool, self.call.max_arguments_bytes, before)
        if self._answer is not None:
            self._answer.call(toolcalls.earlier_call(slot))
        if slot.decision is not None and slot.decision.may_ask_next:
            self._to_ask.append(slot)
            self._ask_next()
        else:
            self._on_decision(slot, self._outbox.at)

    def _leave_out(self, slot: Slot) -> None:
        """A call past the bound: the client sees a notice for the first one only, and past `LISTED`
        calls are counted, not listed."""
        if slot.ordinal >= LISTED and slot.executor == "client":
            slot.done = self._outbox.withheld = True
            return
        message = f"an answer may have {MAX_TOOL_CALLS} tool calls, and the others were left out"
        slot.decided = Decided("block", "too_many", "", message, None)
        self._on_decision(slot, self._outbox.at)

    def _ask_next(self) -> None:
        """Let calls that wait for a judge go on, in their order, as many as may have open
        questions."""
        while self._to_ask and len(self._asked) < MAX_OPEN_ASKS:
            slot = self._to_ask.popleft()
            if slot.done or slot.decision is None:
                continue
            slot.decision.advance()
            self._on_decision(slot, self._outbox.at)

    @property
    def unasked(self) -> list[int]:
        """The calls that wait for their turn to be asked about."""
        return [slot.key for slot in self._to_ask if not slot.done]

    def judgement(self, key: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        slot = self.slots.by_key.get(key)
        decision = slot.decision if slot is not None else None
        if (
            slot is None
            or slot.done
            or decision is None
            or decision.question is None
            or decision.step != step
        ):
            return
        self._outbox.records.append(toolcalls.judged(self.call, slot, judgement, at))
        decision.advance(judgement)
        self._on_decision(slot, at)
        self._ask_next()

    def committed(self, key: int, ok: bool, at: int) -> None:
        """Take the commit of a tool call's record; not `ok` means that it was not waited for any
        longer."""
        slot = self.slots.by_key.get(key)
        if (
            slot is None
            or slot.done
            or slot.released
            or slot.decided is None
            or slot.decided.verdict == "block"
        ):
            return
        if not ok:
            slot.decided = Decided("block", "audit_unavailable", slot.decided.policy, "", None)
            self._outbox.block_record(slot, "block", "audit_unavailable", "")
        self._on_commit(slot, at)

    def _on_decision(self, slot: Slot, at: int) -> None:
        """Ask the judge that is wanted, or go by the verdict."""
        decision = slot.decision
        if slot.decided is None and decision is not None and decision.question is not None:
            self._asked.add(slot.key)
            self._outbox.asks.append(JudgeRequest(slot.key, decision.step, decision.question))
            return
        self._asked.discard(slot.key)
        self._settle(slot, at)

    def _settle(self, slot: Slot, at: int) -> None:
        """Record the verdict; the next step is `_on_commit`, at once or when the record is
        durable."""
        decision, valid = slot.decision, toolcalls.close_decision(slot, self._schemas)
        assert slot.decided is not None
        if slot.kind is BlockKind.TOOL_USE and slot.decided.arguments is not None:
            slot.decided = self._approved.misfit(slot.name, slot.decided.arguments) or slot.decided
        wait = slot.decided.arguments is not None and self.call.durable
        if decision is not None and decision.choices:
            # with the call's own record, so that nothing goes out whose scores are not on record
            self._outbox.records += toolcalls.chosen(
                self.call, slot, decision.choices, at, attempt=self.attempt
            )
        self._outbox.records.append(
            toolcalls.record(self.call, slot, at, schema_valid=valid, notify=wait)
        )
        if wait:
            self._outbox.waits.append(slot.key)
        else:
            self._on_commit(slot, at)

    def _on_commit(self, slot: Slot, at: int) -> None:
        """Release a decided call, or cut the turn behind it, unless it waits for its result."""
        assert slot.decided is not None
        if slot.executor not in ("client", PENDING) and slot.decided.arguments is None:
            self._release(slot, at)
            self._cut(slot)
            return
        for waiting in self._pairs.allowed(slot):
            self._pair(waiting)
        if slot.kind is BlockKind.SERVER_TOOL_USE and self._pairs.result(slot) is not None:
            slot.released = True
            self._pair(slot)
        elif (
            slot.kind is BlockKind.SERVER_TOOL_USE and self._chain.reads_other and not self._at_end
        ):
            slot.released = True
        else:
            self._release(slot, at)

    def _release(self, slot: Slot, at: int) -> None:
        """Put what the client gets for a decided call into its slot."""
        assert slot.decided is not None
        if slot.decided.arguments is None:
            self._outbox.withheld = True
        elif slot.kind is BlockKind.TOOL_USE and not slot.result and slot.executor == "client":
            self.survivors += 1
            slot.survives = True
        if slot.ordinal <= MAX_TOOL_CALLS:
            for event in (
                toolcalls.released(slot)
                if slot.decided.arguments is not None
                else toolcalls.denied(slot, self._notice(slot))
            ):
                self.slots.put(slot, event)
        self._outbox.records.append(
            ToolReleaseRecord(call_id=self.call.call_id, block=slot.key, at=at)
        )
        slot.done = True

    def _notice(self, slot: Slot) -> str:
        """What stands in place of a denied call or of its result, as far as the policies let it."""
        notices, decided = self._outbox.notices, slot.decided
        assert decided is not None
        if slot.has_denied_result:
            text = notices.result(slot.name, decided)
        else:
            text = notices.call(slot.name, slot.executor, decided)
        return metadata.read_notice(
            text, self._chain, notices.least(of_call=slot.executor in ("client", PENDING))
        )

    def _cut(self, slot: Slot) -> None:
        """End the turn behind a denied call that the provider is running: nothing that builds on it
        goes out."""
        self._pairs.cut(slot)
        for later in self.slots.cut_after(slot):
            self._asked.discard(later.key)
            if later.end is not None:
                continue
            if later.survives:
                self.survivors -= 1
            # a call that is not complete has no row: how much of it was here when the verdict came
            # is chance
            if later.decided is None and later.decision is not None:
                later.decided = Decided("block", "after_denied", "", "", None)
                self._outbox.records.append(
                    toolcalls.record(
                        self.call, later, self._outbox.at, schema_valid=None, notify=False
                    )
                )
            else:
                # whether its own verdict was here before is chance
                self._outbox.block_note(later, "withheld", "after_denied")
        self.is_cut = True
        for earlier in self.slots.unfinished():
            self._close(earlier)
        self._end_of_segment(MessageStop(StopReason.END_TURN))

    def _close(self, slot: Slot) -> None:
        """End a block whose end is not waited for."""
        if slot.run is not None:
            self._text.stop(slot, slot.run)
        else:
            self.slots.drop(slot)
            if slot.kind is not BlockKind.OTHER or slot.result:
                self._outbox.block_record(slot, "withheld", "unfinished", "")

    def worst(self) -> VerdictName:
        """The worst verdict on a block of the last whole answer, `hold` for a call that is not
        decided; `allow` where there is none."""
        verdicts = {
            slot.verdict for slot in self.slots.by_key.values() if slot.index >= self.first_of_whole
        }
        return next((verdict for verdict in RANKED if verdict in verdicts), "allow")

    # --- the end ---

    def finish(self, end: MessageStop | Continue) -> None:
        """Upstream ended its message. Raises RemoteProtocolError where a block is open."""
        for slot in self.slots.unfinished():
            raise RemoteProtocolError(f"upstream ended the message with block {slot.index} open")
        if (
            self._text.answer is not None
            and isinstance(end, MessageStop)
            and end.stop_reason is StopReason.END_TURN
        ):
            self._outbox.note("answer", -1, self._text.answer.problem() or "it fits its schema")
        sealed = [
            *(self._text.carried if self._can_answer else ()),
            *(self._text.sealed if self._counts_sealed else ()),
        ]
        if sealed:
            self._outbox.note(
                "sealed",
                -1,
                f"{len(sealed):,} fields of {sum(sealed):,} characters that only the provider can"
                " read",
            )
            self._text.sealed.clear()
            self._text.carried.clear()
        self._end_of_segment(end)

    def fail(self, end: UpstreamFailed) -> None:
        """The answer failed: a block that upstream did not finish can never be approved."""
        for slot in self.slots.unfinished():
            self.slots.drop(slot)
            self._outbox.block_record(slot, "withheld", "unfinished", "")
        self._end_of_segment(end)

    def _end_of_segment(self, end: MessageStop | UpstreamFailed | Continue) -> None:
        if self._ledger > LISTED and not isinstance(end, Continue):
            self._outbox.note(
                "too_many", -1, f"{self._ledger} tool calls came, of which {LISTED} are listed"
            )
        # calls whose result did not come go out without it: it may come in the next answer
        self._at_end = True
        for slot in self._pairs.without_result():
            self._release(slot, self._outbox.at)
        self._add_end(end)

    def go_on(self) -> int:
        """Begin another segment; returns what its block indices must be raised by."""
        self._at_end = False
        return self.slots.next_index

    def _add_end(self, end: End) -> None:
        slot = Slot(-1, None, key=self.slots.new_key())
        slot.end, slot.done = end, True
        self.slots.add(slot)

    def pump(self) -> Iterator[End]:
        """Release what may go out; gives each end that is reached."""
        while (end := self.slots.pump()) is not None:
            if self.is_cut and isinstance(end, MessageStop) and self.survivors:
                # only now, because the verdicts on calls before may come after the one that cut
                end = MessageStop(StopReason.TOOL_USE)
            yield end
