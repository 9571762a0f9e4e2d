"""Text on its way through the policies, and what upstream adds to it.

Theory. Pieces go through the text policies as they come; what those release is searched for calls that a client may read out of text.
Such a call becomes a block of its own between the text before and the text behind it. What vouches for text or copies it (signatures,
citations, log probabilities) goes only where the text goes unchanged.
"""

from collections.abc import Callable

from policy import extras
from policy.answer import Answer
from policy.base import Block, OtherBlock, TextBlock
from policy.chain import Chain, Decided
from policy.outbox import Outbox
from policy.schemas import AnswerCheck
from policy.searching import Search, raw_of
from policy.slots import Mark, Slot, Slots, TextRun
from protocol.errors import RemoteProtocolError
from protocol.events import AttachmentDelta, BlockKind, BlockStart, BlockStop, RawDelta, SignatureDelta, TextDelta
from protocol.records import VerdictName
from protocol.request import ChatRequest
from protocol.text_calls import FoundCall, Piece


class TextFlow:
    """The text of one call. `on_call` takes each call that was found in it, as a block that holds its text."""

    def __init__(
        self, outbox: Outbox, chain: Chain, slots: Slots, request: ChatRequest, heard: Answer | None, on_call: Callable[[Slot], None]
    ) -> None:
        self._outbox, self._chain, self._slots, self._request, self._on_call = outbox, chain, slots, request, on_call
        self._search = Search(outbox.call.dialect, is_on=chain.searches)
        self._heard = heard
        self.answer: AnswerCheck | None = None
        """Checks the answer's text against the schema that the client asked for."""

    def start(self, event: BlockStart, slot: Slot) -> None:
        """Take the beginning of a block."""
        slot.run = self._search.begin(event)
        # with policies that read text the block begins with the first text that they release
        if not self._chain.reads_text:
            self.begin(slot)

    def take(self, event: TextDelta) -> Mark:
        """Take some text. Raises RemoteProtocolError."""
        index = event.index
        slot = self._slots.by_index.get(index)
        if slot is None or slot.run is None or slot.done:
            raise RemoteProtocolError(f"upstream sent text for block {index}, which is not open for it")
        run = slot.run
        if self._heard is not None and slot.kind is not None:
            self._heard.text(slot.kind, event.text)
        if run.blocked:
            return "block", index
        if not self._chain.reads_text:
            return ("allow" if self._say(slot, run, event.text) else "hold"), index
        assert slot.kind is not None
        said, who = self._chain.on_text(event.text, TextBlock(index, slot.kind))
        if isinstance(said, Block):
            self._block_text(slot, run, said, who)
            return "block", index
        verdict: VerdictName = "allow"
        if said != event.text:
            run.changed, verdict = True, "replace"
        self._say(slot, run, said)
        return verdict, index

    def _say(self, slot: Slot, run: TextRun, text: str) -> bool:
        """Release text, but for what may be a call in it; False where some of it is held."""
        if run.scanner is None:
            self._release_text(slot, run, text)
            return True
        pieces = run.scanner.feed(text)
        if not run.held and not run.known and not run.waiting and len(pieces) == 1 and pieces[0] is text:
            # no character at which a call may begin, as in most prose
            self._release_text(slot, run, text)
            return True
        run.held += len(text)
        for piece in pieces:
            self._piece(run, slot.index, piece)
        if not run.held:
            self._say_waiting(run, slot.index)
        return not run.held

    def _piece(self, run: TextRun, index: int, piece: Piece) -> None:
        raw = raw_of(piece)
        new = raw[run.known :]
        run.known -= len(raw) - len(new)
        run.held -= len(new)
        if not new:
            return
        if isinstance(piece, FoundCall):
            self._suspect(run, index, piece, new)
        else:
            self._release_text(self._slots.by_index[index], run, new)

    def _say_waiting(self, run: TextRun, index: int) -> None:
        waiting, run.waiting = run.waiting, []
        for event in waiting:
            self._slots.put(self._slots.by_index[index], event)

    def begin(self, slot: Slot) -> None:
        """Release the beginning of a block, unless it is out."""
        assert slot.run is not None
        if not slot.run.started:
            slot.run.started = True
            self._slots.put(slot, slot.run.start)

    def _release_text(self, slot: Slot, run: TextRun, text: str) -> None:
        if text:
            if self.answer is not None and slot.kind is BlockKind.TEXT:
                self.answer.add(text)
            if not run.started:
                self.begin(slot)
            self._slots.put(slot, TextDelta(slot.index, text))

    def _suspect(self, run: TextRun, index: int, found: FoundCall, raw: str) -> None:
        """A call written as text, which a client may run: the text before goes on, this waits for its verdict, the rest behind it.

        `raw` is what of it is not yet out.
        """
        run.is_suspect = True
        if run.waiting:
            run.waiting = []
            self._outbox.note("withheld", -1, "logprobs")
        before = self._slots.by_index[index]
        self.begin(before)
        suspect = Slot(index, BlockKind.TOOL_USE, key=self._slots.new_key(), name=found.name)
        suspect.form, suspect.arguments, suspect.size = "prompt", [found.arguments], len(found.arguments)
        suspect.result = [TextDelta(index, raw)]
        if found.is_cut:
            suspect.decided = Decided("block", "too_large", "", "", None)
        elif not (found.strict or found.repaired) and self._request.tool(found.name) is not None:
            # as of a call that is none of text: rules about its arguments could not find them
            suspect.decided = Decided("block", "ambiguous_json", "", "", None)
        after = Slot(index, before.kind, key=self._slots.new_key(), name=before.name)
        after.run = run
        self._slots.insert_after(before, suspect)
        self._slots.insert_after(suspect, after)
        self._slots.by_index[index] = after
        before.done = True
        self._on_call(suspect)

    def _block_text(self, slot: Slot, run: TextRun, block: Block, who: str) -> None:
        run.blocked = self._outbox.withheld = True
        self._outbox.block_record(slot, "block", block.reason, who)
        if slot.kind is BlockKind.TEXT:
            self._release_text(slot, run, block.message or f"[Sluice: text was withheld by the policy {who!r}: {block.reason}]")

    def stop(self, slot: Slot, run: TextRun) -> None:
        """Take the end of a block."""
        if not run.blocked and self._chain.reads_text:
            assert slot.kind is not None
            said, who = self._chain.on_text_end(TextBlock(slot.index, slot.kind))
            if isinstance(said, Block):
                self._block_text(slot, run, said, who)
            else:
                run.changed = run.changed or bool(said)
                self._say(slot, run, said)
        rest: list[Piece] = []
        if not run.blocked:
            rest = run.scanner.finish() if run.scanner is not None else []
            for piece in rest:
                self._piece(run, slot.index, piece)
            self._say_waiting(run, slot.index)
            slot = self._slots.by_index[slot.index]
            self._outbox.block_record(slot, "replace" if run.changed else "allow", "", "")
            if not run.changed:
                for event in run.kept:
                    self.begin(slot)
                    self._slots.put(slot, event)
        if run.started:
            self._slots.put(slot, BlockStop(slot.index))
        slot.done = True
        self._search.end(run, rest)

    def attachment(self, event: SignatureDelta | AttachmentDelta | RawDelta, seq: int) -> Mark:
        """Take what upstream adds to text: signatures, citations, log probabilities. Raises RemoteProtocolError."""
        slot = self._slots.by_index.get(event.index)
        if slot is None or slot.run is None or slot.done:
            raise RemoteProtocolError(f"upstream added to block {event.index}, which is not open for it")
        run, what = slot.run, extras.name_of(event)
        # they vouch for text that the client did not get, or copy it
        if run.changed or run.blocked or (what == "logprobs" and (self._chain.reads_text or run.is_suspect)):
            self._outbox.note("withheld", seq, what)
            return "withheld", event.index
        if what in ("citation", "annotations") and self._chain.reads_other:
            assert isinstance(event, AttachmentDelta)
            said, who = self._chain.on_other(OtherBlock(event.index, what, {what: event.value}))
            if isinstance(said, Block):
                self._outbox.note("withheld", seq, f"{what}: {said.reason} ({who})")
                return "block", event.index
        if self._chain.reads_text:
            run.kept.append(event)
            return "hold", event.index
        if what == "logprobs" and run.held:
            run.waiting.append(event)
            return "hold", event.index
        self._slots.put(slot, event)
        return "allow", event.index
