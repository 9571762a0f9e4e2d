"""Text on its way through the policies.

Theory. Pieces go through the text policies as they come; what those release is searched for calls
that a client may read out of text. Such a call becomes a block of its own between the text before
and the text behind it. What vouches for text or copies it (signatures, citations, log
probabilities) goes only where the text goes unchanged.
"""

from collections.abc import Callable
from typing import Any

from policy.base import Block
from policy.judging.answer_so_far import MOST_HEARD, AnswerHistory
from policy.schemas.schemas import AnswerCheck
from policy.session.answer import metadata
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import RANKED, CallSlot, Mark, Slot, Slots, TextRun, TextSlot
from policy.session.answer.text_call_search import Search, raw_of
from policy.session.answer.text_comparison import joined
from policy.session.answer.windows import OpenText
from policy.session.chain import Chain
from policy.session.decision import Decided
from protocol.bounds import MAX_TEXT_CALLS, TEXT_STEP_CHARS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    TextDelta,
)
from protocol.records import VerdictName
from protocol.request import ChatRequest
from protocol.text_calls.words import Piece, TextCall


class TextFlow:
    """The text of one call. `on_call` takes each call that was found in it, as a block that holds
    its text; `behind` takes the slot before such a call, and returns the one that the call is to
    stand behind."""

    def __init__(
        self,
        outbox: Outbox,
        chain: Chain,
        slots: Slots,
        request: ChatRequest,
        heard: AnswerHistory | None,
        on_call: Callable[[CallSlot], None],
        behind: Callable[[Slot], Slot],
    ) -> None:
        self._outbox, self._chain, self._slots, self._request = outbox, chain, slots, request
        self._on_call, self._behind = on_call, behind
        self._reads_text = chain.reads_text
        # looked up once, not for each piece of text
        self._slot_of, self._put = slots.by_index.get, slots.put
        self._on_text = chain.on_text
        self._is_plain = chain.window is None
        """Does text that goes as it came need nothing more?"""
        self.has_changed = not self._is_plain
        """Is any text of the answer not as it came, or can that not be known?"""
        self._texts: dict[int, OpenText] = {}
        self._windows = 0
        """The windows of the answer, where judges decide about it."""
        self._open: set[str] = set()
        """Fields of which a block is open."""
        self._search = Search(outbox.call.dialect, is_on=chain.searches)
        self._heard = heard
        self._is_foreign = False
        """Does the answer come from another dialect than the client's?"""
        self._needs_gap = False
        """Would the next text stick to a notice?"""
        self._answer: AnswerCheck | None = None
        """Checks the answer's text against the schema that the client asked for."""

    def cross(self, schema: dict[str, Any] | None, *, is_foreign: bool) -> None:
        """Take whether the answer comes from another dialect, and the schema that its text is to
        fit."""
        self._is_foreign = is_foreign
        if schema and is_foreign and self._answer is None:
            self._answer, self._is_plain = AnswerCheck(schema), False

    def separate(self) -> None:
        """Take that the next text is another answer's: clients join texts."""
        self._needs_gap = True

    def run(self, event: BlockStart) -> TextRun:
        """Begin to search a block. Raises RemoteProtocolError."""
        run = self._search.begin(event)
        run.heard = None if self._heard is None else self._heard.pieces(event.kind)
        return run

    def start(self, slot: TextSlot) -> None:
        """Take the beginning of a block. Raises RemoteProtocolError."""
        run = slot.run
        if self._reads_text:
            if run.about.field in self._open:
                # policies would read the two as they come, clients read them one after the other
                raise RemoteProtocolError("upstream began a block of text inside another")
            self._open.add(run.about.field)
        elif not (self._is_foreign and slot.kind is BlockKind.THINKING):
            # else the block begins with the first text that policies release, or that a client of
            # another dialect can be shown
            self._begin(slot, run)

    def feed(self, event: TextDelta) -> Mark:
        """Take some text. Raises RemoteProtocolError."""
        index, text = event.index, event.text
        slot = self._slot_of(index)
        if type(slot) is not TextSlot or slot.done:
            raise RemoteProtocolError(
                f"upstream sent text for block {index}, which is not open for it"
            )
        run = slot.run
        if len(text) > TEXT_STEP_CHARS:
            return self._feed_in_steps(event)
        if (heard := run.heard) is not None:
            heard.append(text)
            if len(heard) > MOST_HEARD and self._heard is not None:
                self._heard.join()
        if run.blocked:
            return "block", index
        if not self._reads_text:
            return ("allow" if self._say(slot, run, text) else "hold"), index
        if run.half or (not text.isascii() and "\ud800" <= text[-1:] <= "\udbff"):
            text = self._whole(run, text)
            outcome, who = self._on_text(text, run.about)
            return self._decided(slot, run, text, outcome, who), index
        outcome, who = self._on_text(text, run.about)
        if (
            outcome is text
            and text
            and not run.waiting
            and not run.echo.held
            and self._is_plain
            and (
                run.scanner is None or (not run.held and not run.known and run.scanner.passes(text))
            )
        ):
            # nearly every piece is as it came, and as most prose without a character at which a
            # call may begin: what `_decided` would make of it
            if not run.started:
                self._begin(slot, run)
            self._put(slot, event)
            return "allow", index
        return self._decided(slot, run, text, outcome, who), index

    def _decided(
        self, slot: TextSlot, run: TextRun, text: str, outcome: str | Block, who: str
    ) -> VerdictName:
        """Go by what the policies made of some text."""
        if isinstance(outcome, Block):
            self._block_text(slot, run, outcome, who)
            return "block"
        if outcome == text and not run.echo.held and not run.waiting:
            self._say(slot, run, text)
            return "hold" if run.half else "allow"
        return self._compare(slot, run, text, outcome)

    def _compare(self, slot: Slot, run: TextRun, text: str, approved: str) -> VerdictName:
        """Release what the policies made of text, of which they may hold some."""
        run.echo.feed(text, approved)
        self._say(slot, run, approved)
        if run.echo.has_changed:
            self._drop_waiting(run)
            return "replace"
        if run.echo.is_behind or run.half:
            return "hold"
        self._say_waiting(run, slot.index)
        return "allow"

    def _whole(self, run: TextRun, text: str) -> str:
        """Keep half a character at the end until the other half comes: clients join the two, so
        policies must see them joined."""
        text = joined(run.half + text)
        run.half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return text[:-1] if run.half else text

    def _feed_in_steps(self, event: TextDelta) -> Mark:
        """Take long text so that no hook and no search sees all of it at once; once the block is
        denied, it is only heard."""
        text, marks = event.text, set[VerdictName]()
        for at in range(0, len(text), TEXT_STEP_CHARS):
            marks.add(self.feed(TextDelta(event.index, text[at : at + TEXT_STEP_CHARS]))[0])
        return next(verdict for verdict in RANKED if verdict in marks), event.index

    def _say(self, slot: Slot, run: TextRun, text: str) -> bool:
        """Release text, but for what may be a call in it; False where some of it is held."""
        if run.scanner is None:
            self._release_text(slot, run, text)
            return True
        if len(text) > TEXT_STEP_CHARS:
            # what a policy held back and now gives at once
            for at in range(0, len(text), TEXT_STEP_CHARS):
                if not run.blocked:
                    self._say(
                        self._slots.by_index[slot.index], run, text[at : at + TEXT_STEP_CHARS]
                    )
            return not run.held
        pieces = run.scanner.feed(text)
        if (
            not run.held
            and not run.known
            and not run.waiting
            and len(pieces) == 1
            and pieces[0] is text
        ):
            # no character at which a call may begin, as in most prose
            self._release_text(slot, run, text)
            return True
        run.held += len(text)
        for piece in pieces:
            self._piece(run, slot.index, piece)
            if run.blocked:
                return False
        self._say_waiting(run, slot.index)
        return not run.held

    def _piece(self, run: TextRun, index: int, piece: Piece) -> None:
        raw = raw_of(piece)
        new = raw[run.known :]
        run.known -= len(raw) - len(new)
        run.held -= len(new)
        if not new:
            return
        if isinstance(piece, TextCall):
            self._suspect(run, index, piece, new)
        else:
            self._release_text(self._slots.by_index[index], run, new)

    def _say_waiting(self, run: TextRun, index: int) -> None:
        if not run.waiting or run.held or run.echo.is_behind:
            return
        waiting, run.waiting = run.waiting, []
        for event in waiting:
            self._slots.put(self._slots.by_index[index], event)

    def _drop_waiting(self, run: TextRun) -> None:
        if run.waiting:
            run.waiting = []
            self._outbox.note("withheld", -1, "logprobs")

    def _begin(self, slot: Slot, run: TextRun) -> None:
        """Release the beginning of a block, unless it is out."""
        if not run.started:
            run.started = True
            self._slots.put(slot, run.start)
            if self._needs_gap and slot.kind is BlockKind.TEXT:
                self._needs_gap = False
                self._slots.put(slot, TextDelta(slot.index, "\n\n"))

    def _release_text(self, slot: Slot, run: TextRun, text: str) -> None:
        if text:
            if self._answer is not None and slot.kind is BlockKind.TEXT:
                self._answer.add(text)
            if not run.started:
                self._begin(slot, run)
            self._slots.put(slot, TextDelta(slot.index, text))

    def _suspect(self, run: TextRun, index: int, call: TextCall, raw: str) -> None:
        """A call written as text, which a client may run: the text before goes on, this waits for
        its verdict, the rest behind it.

        `raw` is what of it is not yet out.
        """
        run.is_suspect = True
        self._drop_waiting(run)
        before = self._slots.by_index[index]
        self._begin(before, run)
        start = BlockStart(index, BlockKind.TOOL_USE, name=call.name, form="prompt")
        suspect = CallSlot(self._slots.new_key(), start, result=[TextDelta(index, raw)])
        suspect.feed(call.arguments, len(call.arguments))
        run.calls += 1
        if run.calls > MAX_TEXT_CALLS:
            message = (
                f"a text may have {MAX_TEXT_CALLS} tool calls, and the rest of it was left out"
            )
            suspect.decide(Decided.deny("too_many", message=message))
            run.blocked = True
            self._outbox.lose()
            self._outbox.block_record(before, "block", "too_many", "")
        elif call.is_cut:
            suspect.decide(Decided.deny("too_large"))
        elif not (call.strict or call.repaired) and self._request.tool(call.name) is not None:
            # as of a call that is none of text: rules about its arguments could not find them
            suspect.decide(Decided.deny("ambiguous_json"))
        after = TextSlot(self._slots.new_key(), run)
        self._slots.insert_after(self._behind(before), suspect)
        self._slots.insert_after(suspect, after)
        self._slots.by_index[index] = after
        before.close()
        self._on_call(suspect)

    def _block_text(self, slot: TextSlot, run: TextRun, block: Block, who: str) -> None:
        run.blocked = self.has_changed = True
        self._outbox.lose()
        self._outbox.block_record(slot, "block", block.reason, who, block.rule)
        notices = self._outbox.notices
        if slot.kind is BlockKind.TEXT and (notice := notices.text(block, who)):
            gap = "\n\n" if run.started or slot.follows_text else ""
            self._release_text(
                slot,
                run,
                gap + metadata.read_notice(notice, self._chain, notices.least(of_call=False)),
            )

    def stop(self, block: TextSlot) -> None:
        """Take the end of a block."""
        run = block.run
        self._open.discard(run.about.field)
        if not run.blocked and self._reads_text:
            outcome, who = self._end_of_text(run)
            if isinstance(outcome, Block):
                self._block_text(block, run, outcome, who)
            else:
                run.echo.feed("", outcome)
                run.echo.finish()
                self._say(block, run, outcome)
        pieces: list[Piece] = []
        if not run.blocked:
            pieces = run.scanner.finish() if run.scanner is not None else []
            for piece in pieces:
                if not run.blocked:
                    self._piece(run, block.index, piece)
        self._flush(run)
        # calls that were found at the end have put others behind it
        slot = self._slots.by_index[block.index]
        if not run.blocked:
            if run.echo.has_changed:
                self.has_changed = True
                self._drop_waiting(run)
            self._say_waiting(run, slot.index)
            self._record(slot, "replace" if run.echo.has_changed else "allow")
            if not run.echo.has_changed:
                for event in run.attachments:
                    self._begin(slot, run)
                    self._slots.put(slot, event)
        if run.started:
            self._slots.put(slot, BlockStop(slot.index))
        slot.close()
        self._search.end(run, pieces)

    def _flush(self, run: TextRun) -> None:
        """Let out what of a block that has ended is still to go out."""

    def _record(self, slot: Slot, verdict: VerdictName) -> None:
        """Record the verdict on a block."""
        self._outbox.block_record(slot, verdict, "", "")

    def _end_of_text(self, run: TextRun) -> tuple[str | Block, str]:
        """The text that policies held back, and their output for a lone half of a character: it is
        never released as a half."""
        if not run.half:
            return self._chain.on_text_end(run.about)
        run.echo.feed(run.half, "")
        run.half = ""
        outcome, who = self._chain.on_text("\ufffd", run.about)
        if isinstance(outcome, Block):
            return outcome, who
        tail, who = self._chain.on_text_end(run.about)
        return (tail if isinstance(tail, Block) else outcome + tail), who

    def finish(self, *, is_over: bool) -> None:
        """Note at the end of an answer whether its text fits; `is_over`: the turn has ended by
        itself."""
        if self._answer is not None and is_over:
            self._outbox.note("answer", -1, self._answer.problem() or "it fits its schema")
