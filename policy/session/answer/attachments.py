"""What upstream adds to text: signatures, citations, log probabilities; and what of an answer only
its provider can read.

Theory. What vouches for text or copies it goes only where the text goes unchanged, so it waits for
the end of the block. What is sealed goes to nobody who is not to have it: a client of another
dialect, or any where the operator wants none. Must not know: how text passes the policies.
"""

from typing import Any, NamedTuple

import msgspec

from policy.base import Block, OtherBlock
from policy.session.answer import metadata
from policy.session.answer.outbox import Outbox
from policy.session.answer.slots import Mark, Slots, TextSlot
from policy.session.chain import Chain
from protocol.errors import RemoteProtocolError
from protocol.events import AttachmentDelta, RawDelta, SignatureDelta

_COPIES = frozenset(("reasoning_details", "thinking_blocks"))
"""What is attached to text and says what the text says, which its decoder made sure of: nothing
else passes without `on_other`."""


class Crossing(NamedTuple):
    """What becomes of an answer between the upstream's dialect and the client's."""

    is_foreign: bool = False
    """They are not the same: the client has no place for what only the provider can read."""
    hides_foreign: bool = False
    """Nor for blocks carried whole."""
    passes_sealed: bool = True
    """Signatures and encrypted reasoning may go to the client."""
    counts_sealed: bool = False
    """It is noted how many signatures went."""


class Attachments:
    """What upstream adds to the text of one answer."""

    def __init__(self, outbox: Outbox, chain: Chain, slots: Slots) -> None:
        self._outbox, self._chain, self._slots = outbox, chain, slots
        self.crossing = Crossing()
        self._reads_only_text = chain.reads_text and (
            not chain.reads_other or chain.window is not None
        )
        """Nobody reads the log probabilities of text that the model did not choose."""
        self._sealed: list[int] = []
        """The lengths of the signatures that went, in characters."""
        self._carried: list[int] = []
        """Likewise of the other fields that only the provider can read."""

    def cross(self, crossing: Crossing) -> None:
        """Take where the answer comes from."""
        self.crossing = crossing

    def take(self, event: SignatureDelta | AttachmentDelta | RawDelta, seq: int) -> Mark:
        """Take what upstream adds to text: signatures, citations, log probabilities. Raises
        RemoteProtocolError."""
        slot, is_seal = self._slots.by_index.get(event.index), isinstance(event, SignatureDelta)
        if slot is None or slot.done or (type(slot) is not TextSlot and not is_seal):
            raise RemoteProtocolError(
                f"upstream added to block {event.index}, which is not open for it"
            )
        if type(slot) is not TextSlot:
            # what seals a call is for the record: no client has a place for it
            return "allow", event.index
        run, what = slot.run, metadata.name_of(event)
        if self.crossing.is_foreign and what not in ("citation", "logprobs"):
            # what seals it is for the record, likewise
            return "allow", event.index
        if isinstance(event, SignatureDelta):
            if not (self.crossing.passes_sealed and metadata.is_sealed(event.signature)):
                self._outbox.note("withheld", seq, what)
                return "withheld", event.index
            self._sealed.append(len(event.signature))
        # they vouch for text that the client did not get, or copy it
        if (
            run.echo.has_changed
            or run.blocked
            or (what == "logprobs" and (run.is_suspect or self._reads_only_text))
        ):
            self._outbox.note("withheld", seq, what)
            return "withheld", event.index
        if isinstance(event, AttachmentDelta) and what != "logprobs":
            event = self._unsealed(event, seq)
        if isinstance(event, AttachmentDelta) and what not in _COPIES and self._chain.reads_other:
            verdict, who = self._chain.on_other(
                OtherBlock(
                    event.index,
                    what,
                    {what: event.value.source_object if what == "citation" else event.value},
                )
            )
            if isinstance(verdict, Block):
                self._outbox.note("withheld", seq, f"{what}: {verdict.reason} ({who})")
                return "block", event.index
        if what == "logprobs":
            if run.held or run.echo.is_behind or run.half:
                run.waiting.append(event)
                return "hold", event.index
        elif self._chain.reads_text:
            run.attachments.append(event)
            return "hold", event.index
        self._slots.put(slot, event)
        return "allow", event.index

    def unsealed(self, what: str, value: Any, seq: int) -> Any:
        """What is carried whole as its client may have it: the fields that only the provider can
        read are counted, or empty."""
        emptied, lengths = metadata.without_sealed(what, value)
        if lengths and not self.crossing.passes_sealed:
            self._outbox.withhold(f"sealed fields of {what}", seq)
            return emptied
        self._carried += lengths
        return value

    def _unsealed(self, event: AttachmentDelta, seq: int) -> AttachmentDelta:
        if event.field != "citation":
            return msgspec.structs.replace(
                event, value=self.unsealed(event.field, event.value, seq)
            )
        raw = self.unsealed(event.field, event.value.raw, seq)
        return msgspec.structs.replace(event, value=msgspec.structs.replace(event.value, raw=raw))

    def count_sealed(self, length: int) -> None:
        """Take that a field of this length goes out that only the provider can read."""
        self._sealed.append(length)

    def finish(self) -> None:
        """Note at the end of an answer how much went out that only the provider can read."""
        crossing = self.crossing
        sealed = [
            *(() if crossing.is_foreign else self._carried),
            *(self._sealed if crossing.counts_sealed else ()),
        ]
        if sealed:
            self._outbox.note(
                "sealed",
                -1,
                f"{len(sealed):,} fields of {sum(sealed):,} characters that only the provider can"
                " read",
            )
            self._sealed.clear()
            self._carried.clear()
