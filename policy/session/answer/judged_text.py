"""Text that judges decide about before it goes out.

Theory. What text policies release, and what of it is no call, gathers until a window is full. A call
that was found in text is decided as a call, also by those who judge text. Must not know: what judges
are asked.
"""

from policy.session.answer import metadata
from policy.session.answer.slots import CallSlot, Mark, Slot, TextRun, TextSlot
from policy.session.answer.text_flow import TextFlow
from policy.session.answer.windows import OpenText, TextWindow, Withheld
from protocol.events import BlockKind, BlockStart, BlockStop, TextDelta
from protocol.records import VerdictName
from protocol.text_calls.words import TextCall


class JudgedTextFlow(TextFlow):
    """The text of one call, in windows."""

    def run(self, event: BlockStart) -> TextRun:
        """As every flow."""
        assert self._chain.window is not None
        self._texts[event.index] = OpenText(self._chain.window)
        return super().run(event)

    def feed(self, event: TextDelta) -> Mark:
        """As every flow; its windows decide."""
        verdict, index = super().feed(event)
        return ("block" if verdict == "block" else "hold"), index

    def _release_text(self, slot: Slot, run: TextRun, text: str) -> None:
        if self._answer is not None and slot.kind is BlockKind.TEXT:
            self._answer.add(text)
        self._texts[slot.index].add(text)
        self._flush(run, is_rest=False)

    def _flush(self, run: TextRun, *, is_rest: bool = True) -> None:
        index, slots = run.start.index, self._slots
        text = self._texts[index]
        while (piece := text.cut(self._windows, is_rest=is_rest)) is not None:
            before = slots.by_index[index]
            self._begin(before, run)
            window = TextWindow(slots.new_key(), piece, self._chain, run.start)
            self._windows += 1
            text.ask(window)
            after = slots.by_index[index] = TextSlot(slots.new_key(), run)
            slots.insert_after(before, window)
            slots.insert_after(window, after)
            before.close()
            self._on_call(window)

    def _suspect(self, run: TextRun, index: int, call: TextCall, raw: str) -> None:
        self._flush(run)
        super()._suspect(run, index, call, raw)

    def _record(self, slot: Slot, verdict: VerdictName) -> None:
        verdict = self._texts[slot.index].verdict(verdict)
        if verdict != "hold" and slot.index not in self._outbox.recorded:
            # by the key that its chunks are recorded with
            super()._record(self._slots.by_key[slot.index], verdict)

    def goes_out(self, call: CallSlot) -> bool | None:
        """Does a decided call that was found in text go out? None while that depends on the text
        before it: `settle` gives it back then."""
        return self._texts[call.index].goes_out(call)

    def settle(self, window: TextWindow, way: str) -> list[CallSlot]:
        """Let out what the verdict on a window lets out; `way`: what goes with one that is
        blocked. Returns the calls that waited for it."""
        decided, index = window.final, window.index
        waiting = self._texts[index].settle(window, way)
        if decided.verdict == "allow":
            self._slots.put(window, TextDelta(index, window.piece.text))
        else:
            self._withhold(window, way)
        last = self._slots.by_index[index]
        if last.done:
            self._record(window, last.verdict)
        return waiting

    def _withhold(self, window: TextWindow, way: str) -> None:
        index, is_text = window.index, window.kind is BlockKind.TEXT
        self._outbox.lose()
        notices = self._outbox.notices
        notice = metadata.read_notice(
            notices.judged(window.final), self._chain, notices.least(of_call=False)
        )
        # reasoning has none
        self._slots.put(window, Withheld(index, f"\n{notice}\n" if is_text else "", way == "block"))
        if way != "turn":
            return
        self._slots.put(window, BlockStop(index))
        if not is_text:
            # nothing else of the turn would say why it ends
            for event in (
                BlockStart(index + 1, BlockKind.TEXT),
                TextDelta(index + 1, notice),
                BlockStop(index + 1),
            ):
                self._slots.put(window, event)
        if index not in self._outbox.recorded:
            super()._record(self._slots.by_key[index], "replace")
