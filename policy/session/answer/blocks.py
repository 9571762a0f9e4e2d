"""The content blocks of one answer on their way through the policies: text, tool calls, blocks
carried whole.

Theory. Text passes the text policies piece by piece; what they release is searched for calls that a
client may read out of text. A tool call is held until it is complete, decided and, where that is
asked for, committed. A call that the provider runs is decided like any other, but a block cannot
undo it: it ends the turn, and with it the upstream's work; where the provider asks first, a block
keeps back the question. A block carried whole is decided whole; a result stays with its call,
because the API takes neither without the other.
"""

from collections.abc import Callable
from typing import Any
from weakref import proxy

import msgspec

from policy.base import Block, OtherBlock
from policy.session.answer import metadata, toolcalls
from policy.session.answer.attachments import Crossing
from policy.session.answer.call_flow import LISTED, CallFlow
from policy.session.answer.judged_text import JudgedTextFlow
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import (
    FIRST_SUSPECT,
    RANKED,
    CallSlot,
    Continue,
    End,
    EndSlot,
    Mark,
    Slot,
    Slots,
    TextSlot,
    WholeSlot,
)
from policy.session.answer.text_flow import TextFlow
from policy.session.answer.windows import TextWindow, Withholding
from policy.session.approved_tools import Approved
from policy.session.chain import Chain
from policy.session.decision import Decided
from protocol.bounds import MAX_BLOCKS
from protocol.bytes.json_strict import dumps
from protocol.dialects.table import CLIENTS
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
from protocol.records import VerdictName
from protocol.request import ChatRequest, DialectName
from protocol.target import Ids


class CallBlocks(CallFlow):
    """All blocks of one answer, over all its segments."""

    def __init__(
        self,
        outbox: Outbox,
        chain: Chain,
        request: ChatRequest,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        emit = emit or outbox.emit
        super().__init__(
            outbox, chain, request, Slots(Withholding(emit) if chain.window is not None else emit)
        )
        self._client = request
        self._has_output = False
        self._first_of_whole = 0
        """Index of the first block of the last whole answer: the turn may go on, and the next
        answer's blocks are not this one's."""
        # not bound methods: in a cycle all that a call holds would wait for the garbage collector
        weak = proxy(self)
        flow = TextFlow if chain.window is None else JudgedTextFlow
        self._text = flow(
            outbox,
            chain,
            self.slots,
            request,
            self._answer,
            lambda suspect: weak._found(suspect),
            lambda before: weak._behind(before),
        )
        self.feed_text = self._text.feed

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
        is_foreign = dialect != self.call.dialect
        self._attachments.cross(
            Crossing(
                is_foreign,
                is_foreign and CLIENTS[self.call.dialect].hides_foreign,
                passes_sealed,
                not is_foreign and (sent.state is None or sent.state.keeps_seals),
            )
        )
        form = sent.response_format
        self._text.cross(form.schema if form is not None else None, is_foreign=is_foreign)

    def begin_whole(self, index: int) -> None:
        """Take that a whole answer comes, from the block `index` on."""
        self._first_of_whole = index

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
                return self._attachments.take(event, seq)
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
        # known here, whatever the verdicts on what came before: those come early in one run and
        # late in another
        follows_text = self._has_output
        self._has_output = follows_text or event.kind is not BlockKind.THINKING
        match event.kind:
            case BlockKind.TEXT | BlockKind.THINKING:
                try:
                    run = self._text.run(event)
                except RemoteProtocolError:
                    # on record it began all the same
                    self.slots.add(Slot(event.index, event.index, event.kind, event.name))
                    raise
                text = TextSlot(event.index, run, follows_text=follows_text)
                self.slots.add(text)
                self._text.start(text)
                return "allow", event.index
            case BlockKind.TOOL_USE | BlockKind.SERVER_TOOL_USE:
                executor, server = toolcalls.executor_of(event), toolcalls.server_of(event.body)
                call = CallSlot(event.index, event, executor, server, follows_text=follows_text)
                self.slots.add(call)
                if event.kind is BlockKind.SERVER_TOOL_USE:
                    self._pairs.begin(call)
                call.show(metadata.read_id(call.id, self._chain) if call.id else "")
                self._number(call)
                self._identify(call)
                return "hold", event.index
            case BlockKind.OTHER:
                return self._other(event)
            case BlockKind.OPAQUE:
                self.slots.add(WholeSlot(event))
                self._outbox.withhold(event.name or "block", seq)
                return "withheld", event.index

    def _with_shown_id(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a result with its call's id as the client gets it."""
        if isinstance(identity := body.get("tool_use_id"), str):
            body = {**body, "tool_use_id": metadata.read_id(identity, self._chain)}
        return body

    def _stop(self, event: BlockStop) -> Mark:
        slot = self.slots.by_index.get(event.index)
        if slot is None or slot.done:
            raise RemoteProtocolError(f"upstream ended block {event.index}, which is not open")
        if type(slot) is TextSlot:
            self._text.stop(slot)
            return "allow", event.index
        if type(slot) is CallSlot:
            self._complete(slot)
            return "hold", event.index
        if slot.has_begun:
            self.slots.put(slot, event)
        slot.close()
        return "allow", event.index

    def _unmodelled(self, event: RawDelta, seq: int) -> Mark:
        if event.is_sealed and self._attachments.crossing.is_foreign:
            # for the record: no client of another dialect has a place for it
            return "allow", event.index
        if event.is_sealed and not self._attachments.crossing.passes_sealed:
            self._outbox.note("withheld", seq, event.what)
            return "withheld", event.index
        verdict, _ = self._chain.on_other(OtherBlock(event.index, event.what, event.body))
        slot = self.slots.by_index.get(event.index)
        if (
            isinstance(verdict, Block)
            or not event.is_for(self.call.dialect)
            or (slot is not None and slot.done)
            or (type(slot) is WholeSlot and slot.blocked)
        ):
            self._outbox.withhold(event.what, seq)
            return "withheld", event.index
        if event.is_sealed:
            self._attachments.count_sealed(len(dumps(event.body)))
        if slot is None:
            slot = Slot(self.slots.new_key())
            self.slots.add(slot)
            slot.close()
        if type(slot) is CallSlot:
            slot.raw.append(event)
            return "hold", event.index
        if type(slot) is TextSlot:
            return self._attachments.take(event, seq)
        self.slots.put(slot, event)
        return "allow", event.index

    # --- blocks carried whole ---

    def _unsealed(self, event: BlockStart, seq: int) -> BlockStart:
        body = event.body or {}
        if not self._attachments.crossing.passes_sealed and metadata.is_all_sealed(
            event.name, body
        ):
            return msgspec.structs.replace(event, kind=BlockKind.OPAQUE)
        return msgspec.structs.replace(
            event, body=self._attachments.unsealed(event.name, body, seq)
        )

    def _other(self, event: BlockStart) -> Mark:
        body = event.body or {}
        start = BlockStart(
            event.index, BlockKind.OTHER, name=event.name, body=self._with_shown_id(body)
        )
        call_id = body.get("tool_use_id")
        call = self._pairs.call_of(call_id)
        verdict, who = self._chain.on_other(OtherBlock(event.index, event.name, body))
        block = verdict if isinstance(verdict, Block) else None
        if event.name == "annotations" and self._text.has_changed:
            # they tell of places in the text as it was
            block = block or Block("text")
        is_late = call is None and (isinstance(call_id, str) or event.name.endswith("_tool_result"))
        if block is None and is_late:
            return self._late_result(start, call_id if isinstance(call_id, str) else "")
        slot = WholeSlot(start)
        self.slots.add(slot)
        if call is not None:
            self._pairs.add(call, block, who)
            if call.waits:
                self._pair(call)
        if block is not None:
            slot.block()
            self._outbox.lose()
            self._outbox.block_record(slot, "block", block.reason, who, block.rule)
            return "block", slot.index
        self._outbox.block_record(slot, "allow", "", "")
        if self._attachments.crossing.hides_foreign and slot.name != "annotations":
            slot.block()
            if body.keys() - {"type"} and not metadata.is_all_sealed(slot.name, body):
                self._outbox.withhold(slot.name, -1)
        else:
            self.slots.put(slot, start)
        return "allow", slot.index

    def _behind(self, before: Slot) -> Slot:
        """The slot that a call found in text is to stand behind: its text's."""
        return before

    def _settle(self, slot: CallSlot, at: int) -> None:
        if not isinstance(slot, TextWindow):
            super()._settle(slot, at)
            return
        decided, decision = slot.so_far, slot.decision
        assert decided is not None and decision is not None
        slot.decide(decided)
        self._outbox.block_record(
            slot, decided.verdict, decided.reason, decided.policy, decided.rule
        )
        slot.close()
        if slot.index >= 0 and isinstance(self._text, JudgedTextFlow):
            waiting = self._text.settle(slot, decision.way)
            if decision.way == "turn":
                self._cut(slot)
            for call in waiting:
                if not call.done:
                    self._release(call, at)

    def _release(self, slot: CallSlot, at: int) -> None:
        goes: bool | None = True
        if slot.key >= FIRST_SUSPECT and isinstance(self._text, JudgedTextFlow):
            goes = self._text.goes_out(slot)
        if goes:
            super()._release(slot, at)
        elif goes is not None:
            # nothing more of its block goes out
            self._outbox.lose()
            self._outbox.block_note(slot, "withheld", "after_denied")
            slot.close()

    def _cut(self, slot: CallSlot) -> None:
        """End the turn behind a denied call that the provider is running, or a text with which it
        ends: nothing that builds on it goes out."""
        self._pairs.cut(slot)
        for later in self.slots.cut_after(slot):
            self._questions.close(later.key)
            if type(later) is EndSlot:
                continue
            if type(later) is CallSlot and later.survives:
                self.calls.lose()
            # a call that is not complete has no row: how much of it was here when the verdict came
            # is chance
            if type(later) is CallSlot and later.phase == "deciding":
                later.decide(Decided.deny("after_denied"))
                self._outbox.records += toolcalls.records(
                    self.call, later, self._outbox.at, schema_valid=None, notify=False
                )
            else:
                # whether its own verdict was here before is chance
                self._outbox.block_note(later, "withheld", "after_denied")
        self._take("cut")
        for earlier in self.slots.unfinished():
            self._close(earlier)
        self._end_of_segment(MessageStop(StopReason.END_TURN))

    def _close(self, slot: Slot) -> None:
        """End a block whose end is not waited for."""
        if type(slot) is TextSlot:
            self._text.stop(slot)
        else:
            self.slots.drop(slot)
            if slot.kind is not BlockKind.OTHER or type(slot) is CallSlot:
                self._outbox.block_record(slot, "withheld", "unfinished", "")

    def worst(self) -> VerdictName:
        """The worst verdict on a block of the last whole answer, `hold` for a call that is not
        decided; `allow` where there is none."""
        verdicts = {
            slot.verdict
            for slot in self.slots.by_key.values()
            if slot.index >= self._first_of_whole
        }
        return next((verdict for verdict in RANKED if verdict in verdicts), "allow")

    # --- the end ---

    def finish(self, end: MessageStop | Continue) -> None:
        """Upstream ended its message. Raises RemoteProtocolError where a block is open."""
        for slot in self.slots.unfinished():
            raise RemoteProtocolError(f"upstream ended the message with block {slot.index} open")
        is_over = isinstance(end, MessageStop) and end.stop_reason is StopReason.END_TURN
        self._text.finish(is_over=is_over)
        self._attachments.finish()
        self._end_of_segment(end)

    def fail(self, end: UpstreamFailed) -> None:
        """The answer failed: a block that upstream did not finish can never be approved."""
        for slot in self.slots.unfinished():
            self.slots.drop(slot)
            self._outbox.block_record(slot, "withheld", "unfinished", "")
        self._end_of_segment(end)

    def abandon(self) -> None:
        """The answer failed, and another one takes its place."""
        self._outbox.note_findings(self._chain.policies)
        for slot in self.slots.unfinished():
            self._questions.close(slot.key)
            self._outbox.block_record(slot, "discarded", "unfinished", "")

    def _end_of_segment(self, end: MessageStop | UpstreamFailed | Continue) -> None:
        if self.calls.number > LISTED and not isinstance(end, Continue):
            self._outbox.note(
                "too_many", -1, f"{self.calls.number} tool calls came, of which {LISTED} are listed"
            )
        # calls whose result did not come go out without it: it may come in the next answer
        self._take("end")
        self._outbox.note_findings(self._chain.policies)
        for slot in self._pairs.without_result():
            self._release(slot, self._outbox.at)
        self._add_end(end)

    def go_on(self) -> int:
        """Begin another segment; returns what its block indices must be raised by."""
        self._take("go_on")
        return self.slots.next_index

    def answer_again(self) -> None:
        """Take that the next segment is an answer of its own: the first call in it is the first
        that the client gets."""
        self.calls.begin_answer()
        self._text.separate()

    def _add_end(self, end: End) -> None:
        self.slots.add(EndSlot(self.slots.new_key(), end))
