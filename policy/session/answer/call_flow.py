"""The tool calls of one answer on their way to the client: numbered, decided, judged, recorded,
committed, and released or denied.

Theory. A call is held until it is complete, decided and, where that is asked for, committed. One
that the provider runs waits for its result, too, because the API takes neither without the other,
or is cut off by its block. Must not know: how events of text and of whole blocks are taken.
"""

from typing import Any, Final, Literal

from policy.base import NOTHING_BEFORE, Judgement
from policy.judging.answer_so_far import AnswerHistory
from policy.schemas.schemas import ToolSchemas
from policy.session.answer import metadata, toolcalls
from policy.session.answer.attachments import Attachments
from policy.session.answer.call_count import CallCount, Questions
from policy.session.answer.call_pairs import Pairs
from policy.session.answer.ids import CallIds
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import CallSlot, Mark, Slots
from policy.session.answer.toolcalls import ProviderCall
from policy.session.approved_tools import Approved
from policy.session.chain import Chain
from policy.session.decision import Decided
from protocol.bounds import MAX_TOOL_CALLS
from protocol.errors import RemoteProtocolError
from protocol.events import ArgumentsDelta, BlockKind, BlockStart, BlockStop
from protocol.records import ApprovalUseRecord, ToolReleaseRecord
from protocol.request import ChatRequest, Tool

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


Phase = Literal["taking", "ended", "cut"]
Step = Literal["end", "go_on", "cut"]

# An answer is taken until its message ends, whether it was finished, failed or paused. A paused turn
# goes on, and is taken again. A denied call that the provider runs cuts the turn, also one that had
# ended; that is final, and ends the message by itself.
_PHASES: Final[dict[tuple[Phase, Step], Phase]] = {
    ("taking", "end"): "ended",
    ("taking", "cut"): "cut",
    ("ended", "end"): "ended",
    ("ended", "go_on"): "taking",
    ("ended", "cut"): "cut",
    ("cut", "end"): "cut",
    ("cut", "cut"): "cut",
}


class CallFlow:
    """The tool calls of one answer, over all its segments."""

    attempt = 0
    """Which answer of the call it is."""

    def __init__(self, outbox: Outbox, chain: Chain, request: ChatRequest, slots: Slots) -> None:
        self._outbox, self._chain = outbox, chain
        self._approved = Approved(request, request)
        self.call, self.slots, self.calls = outbox.call, slots, CallCount()
        self.phase: Phase = "taking"
        self._schemas = ToolSchemas()
        self._pairs, self._ids = Pairs(), CallIds(outbox.call.call_id)
        self._answer = AnswerHistory() if chain.asks else None
        self._attachments = Attachments(outbox, chain, slots)
        self._questions = Questions()

    def _take(self, step: Step) -> None:
        self.phase = _PHASES[self.phase, step]

    @property
    def is_cut(self) -> bool:
        """Was a call denied that the provider runs? Nothing more is taken then."""
        return self.phase == "cut"

    def fits(self, tool: Tool, value: dict[str, Any]) -> bool:
        """Do arguments fit their tool's schema, as far as there is one?"""
        return self._schemas.fits(tool, value)

    def _identify(self, slot: CallSlot) -> None:
        """Give a call an id of ours where upstream's does not name it alone; upstream's is in a
        record beside it."""
        if slot.kind is BlockKind.SERVER_TOOL_USE or slot.executor == PENDING:
            self._ids.take(slot.shown_id)
        elif (
            identity := self._ids.of(
                slot.index, slot.shown_id, is_native=slot.start.form == "native"
            )
        ) != slot.shown_id:
            if slot.id and slot.ordinal < LISTED:
                self._outbox.block_note(
                    slot, "minted_id", f"upstream's id was {slot.id[:_NOTED_ID]!r}"
                )
            slot.identify(identity)

    def _number(self, slot: CallSlot) -> None:
        self.calls.add(slot)
        self.calls.hold(_CALL_BYTES)
        if slot.executor not in ("client", PENDING):
            self._pairs.may_cut(slot)
        if slot.kind is BlockKind.TOOL_USE and slot.executor == "client":
            self.calls.note_first(slot)

    def _found(self, suspect: CallSlot) -> None:
        """Decide on a call that was found in text, or on a window of text."""
        if suspect.kind is not BlockKind.TOOL_USE:
            self.judge(suspect)
            return
        self.calls.note_first(suspect)
        self.calls.add(suspect)
        suspect.rename(self._approved.meant_by(suspect.name, None))
        self._start_decision(suspect)

    def _arguments(self, event: ArgumentsDelta) -> Mark:
        slot = self.slots.by_index.get(event.index)
        if type(slot) is not CallSlot or slot.result or slot.done:
            raise RemoteProtocolError(
                f"upstream sent arguments for block {event.index}, which is no open tool call"
            )
        slot.feed(event.text, self.call.max_arguments_bytes if slot.ordinal < LISTED else 0)
        self.calls.hold(len(event.text))
        return "hold", event.index

    def _complete(self, slot: CallSlot) -> None:
        """Take that upstream ended a call."""
        self.calls.hold(-slot.size - _CALL_BYTES)
        self._start_decision(slot)

    def _start_decision(self, slot: CallSlot) -> None:
        """Decide on a complete call as far as that needs no judge; the next step is `_on_decision`,
        at once or when one has answered."""
        if slot.ordinal >= MAX_TOOL_CALLS:
            self._leave_out(slot)
            return
        tool = self._approved.request.tool(slot.name)
        refused = self._refused(slot, is_offered=tool is not None)
        if refused is not None:
            slot.decide(refused)
        before = NOTHING_BEFORE if self._answer is None else self._answer.so_far()
        if slot.decided is None:
            toolcalls.start_decision(slot, self._chain, tool, self.call.max_arguments_bytes, before)
            self._outbox.note_project(self._chain.context.claims.detail)
        if self._answer is not None:
            self._answer.call(toolcalls.earlier_call(slot))
        if slot.decision is not None and slot.decision.may_ask_next:
            self._questions.add(slot)
            self._ask_next()
        else:
            self._on_decision(slot, self._outbox.at)

    def _refused(self, slot: CallSlot, *, is_offered: bool) -> Decided | None:
        """The block of a call that nobody may make, whatever its arguments and the policies."""
        if not slot.result and not metadata.is_name(slot.name, offered=is_offered):
            return Decided.deny("name")
        if slot.decided is not None:
            return None
        approved = self._approved
        if slot.executor == PENDING:
            is_foreign = self._attachments.crossing.is_foreign
            return toolcalls.UNANSWERABLE if is_foreign else approved.took(slot.name)
        if slot.kind is BlockKind.TOOL_USE:
            toolset = (slot.start.body or {}).get("toolset_name")
            is_first = slot.key == self.calls.first
            return approved.refused(slot.name, toolset, is_first=is_first)
        return approved.took(slot.name) if slot.kind is BlockKind.SERVER_TOOL_USE else None

    def _leave_out(self, slot: CallSlot) -> None:
        """A call past the bound: the client sees a notice for the first one only, and past `LISTED`
        calls are counted, not listed."""
        if slot.ordinal >= LISTED and slot.executor == "client":
            slot.close()
            self._outbox.lose()
            return
        message = f"an answer may have {MAX_TOOL_CALLS} tool calls, and the others were left out"
        slot.decide(Decided.deny("too_many", message=message))
        self._on_decision(slot, self._outbox.at)

    def _ask_next(self) -> None:
        """Let calls that wait for a judge go on, in their order, as many as may have open
        questions."""
        for slot, decision in self._questions.due():
            decision.advance()
            self._on_decision(slot, self._outbox.at)

    @property
    def unasked(self) -> list[int]:
        """The calls that wait for their turn to be asked about."""
        return self._questions.waiting

    def judgement(self, key: int, step: int, judgement: Judgement, at: int) -> None:
        """Take the answer to an ask. Late or repeated answers change nothing."""
        slot = self.slots.by_key.get(key)
        if not isinstance(slot, CallSlot) or slot.done:
            return
        decision = slot.decision
        if decision is None or step not in decision.questions:
            return
        self._outbox.records.append(toolcalls.judged(self.call, decision, step, judgement, at))
        if decision.answer(step, judgement):
            self._on_decision(slot, at)
            self._ask_next()

    def committed(self, key: int, fault: str, at: int) -> None:
        """Take the commit of a tool call's record; `fault` is the reason for which it is not
        released all the same, if there is one."""
        slot = self.slots.by_key.get(key)
        if type(slot) is not CallSlot or slot.done or slot.phase != "decided":
            return
        if slot.final.verdict == "block":
            return
        if fault:
            slot.decide(Decided.deny(fault, policy=slot.final.policy))
            self._outbox.block_record(slot, "block", fault, "")
        self._on_commit(slot, at)

    def _on_decision(self, slot: CallSlot, at: int) -> None:
        """Ask the judges that are wanted, or go by the verdict."""
        decision = slot.decision
        if decision is not None and decision.questions:
            self._questions.open(slot.key)
            requests, record = decision.requests(self._outbox.call)
            if record is not None:
                self._outbox.records.append(record)
            self._outbox.asks += requests
            return
        self._questions.close(slot.key)
        self._settle(slot, at)

    def judge(self, slot: CallSlot) -> None:
        """Ask judges about a text, when its turn comes."""
        self.slots.by_key[slot.key] = slot
        self._questions.add(slot)
        self._ask_next()

    def _settle(self, slot: CallSlot, at: int) -> None:
        """Record the verdict; the next step is `_on_commit`, at once or when the record is
        durable."""
        decision, valid = slot.decision, toolcalls.close_decision(slot, self._schemas)
        arguments = slot.final.arguments
        if slot.kind is BlockKind.TOOL_USE and arguments is not None:
            misfit = self._approved.misfit(slot.name, arguments)
            if misfit is not None:
                slot.decide(misfit)
                arguments = None
        # used once: whatever the durability, it goes out when the record has it so
        approval_id = slot.final.approval_id
        wait = arguments is not None and (self.call.durable or bool(approval_id))
        if wait and approval_id:
            self._outbox.records.append(
                ApprovalUseRecord(
                    approval_id=approval_id, call_id=self.call.call_id, block=slot.key
                )
            )
        if decision is not None and decision.choices:
            # with the call's own record, so that nothing goes out whose scores are not on record
            self._outbox.records += toolcalls.chosen(
                self.call, slot, decision.choices, at, attempt=self.attempt
            )
        self._outbox.records += toolcalls.records(
            self.call, slot, at, schema_valid=valid, notify=wait
        )
        if wait:
            self._outbox.waits.append(slot.key)
        else:
            self._on_commit(slot, at)

    def _on_commit(self, slot: CallSlot, at: int) -> None:
        """Release a decided call, or cut the turn behind it, unless it waits for its result."""
        if slot.executor not in ("client", PENDING) and slot.final.arguments is None:
            self._release(slot, at)
            self._cut(slot)
            return
        for waiting in self._pairs.allowed(slot):
            self._pair(waiting)
        is_there = self._pairs.result(slot) is not None
        may_come = self._chain.reads_other and self.phase == "taking"
        if slot.kind is not BlockKind.SERVER_TOOL_USE or not (is_there or may_come):
            self._release(slot, at)
            return
        slot.approve()
        if is_there:
            self._pair(slot)

    def _release(self, slot: CallSlot, at: int) -> None:
        """Put what the client gets for a decided call into its slot."""
        arguments = slot.final.arguments
        if arguments is None:
            self._outbox.lose()
        elif slot.kind is BlockKind.TOOL_USE and not slot.result and slot.executor == "client":
            self.calls.survive(slot)
        if slot.ordinal <= MAX_TOOL_CALLS:
            for event in (
                toolcalls.released(slot, arguments)
                if arguments is not None
                else toolcalls.denied(slot, self._notice(slot))
            ):
                self.slots.put(slot, event)
        self._outbox.records.append(
            ToolReleaseRecord(call_id=self.call.call_id, block=slot.key, at=at)
        )
        slot.close()

    def _notice(self, slot: CallSlot) -> str:
        """What stands in place of a denied call or of its result, as far as the policies let it."""
        notices, decided = self._outbox.notices, slot.final
        if slot.has_denied_result:
            text = notices.result(slot.name, decided)
        else:
            text = notices.call(slot.name, slot.executor, decided)
        return metadata.read_notice(
            text, self._chain, notices.least(of_call=slot.executor in ("client", PENDING))
        )

    def _pair(self, call: CallSlot) -> None:
        """Let a call go the way of its result."""
        result = self._pairs.result(call)
        if result is None or result.waits:
            return
        block, who, _ = result
        if block is not None:
            call.deny_result(Decided.of(block, who))
            self._outbox.block_record(call, "withheld", block.reason, who, block.rule)
        self._release(call, self._outbox.at)

    def _late_result(self, start: BlockStart, call_id: str) -> Mark:
        """The result of a call in an earlier answer: whoever denies the call gets its result
        withheld."""
        known = self._pairs.earlier(call_id)
        if known is None:
            name = toolcalls.name_of_result(start.name)
            known = ProviderCall(name, "", "mcp" if name == "mcp" else "provider", "")
        slot = CallSlot(
            start.index,
            start,
            known.executor,
            known.server,
            result=[start, BlockStop(start.index)],
        )
        slot.rename(known.name)
        slot.answer_for(call_id, known.arguments)
        self.slots.add(slot)
        self._number(slot)
        return "hold", slot.index

    def _cut(self, slot: CallSlot) -> None:
        """End the turn behind a denied call that the provider is running: all blocks' part."""
        raise NotImplementedError
