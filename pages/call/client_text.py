"""What the client of an open call got, found again in what upstream sent, block by block: a policy
may have joined, changed or left out blocks. Must not know: which releases may go out.
"""

from itertools import islice

from pages.call.followed_blocks import REFUSED, FollowedBlock, FollowedBlocks
from pages.call.sides import MOST_EVENT, Listener, in_order
from pages.escape import spelled
from protocol.bytes.sse import EventSplitter


class ClientText:
    """Takes the releases of a call in order, and gives what they hold to the blocks."""

    def __init__(self, dialect: str, blocks: FollowedBlocks) -> None:
        self._blocks = blocks
        self._listener = Listener(in_order(dialect), keep_text=False)
        self._splitter: EventSplitter | None = None
        self._whole: list[bytes] | None = None
        self._at = self._call_at = self._heard = 0
        self._calls: dict[int, int] = {}
        """By the client's blocks that are tool calls, the blocks of upstream."""
        self._loose: list[str] = []

    def block_began(self, place: int) -> None:
        """A block of upstream came at this place in their order."""
        self._call_at = min(self._call_at, place)

    def take(self, payload: bytes, *, had: bool) -> None:
        """Take the next release; `had`: the browser has it."""
        if self._splitter is None and self._whole is None:
            if payload.lstrip()[:1] == b"{":
                self._whole = []
            else:
                self._splitter = EventSplitter(MOST_EVENT)
        if self._whole is not None:
            self._whole.append(payload)
            if payload.rstrip().endswith(b"}"):
                self._take_event(b"".join(self._whole), had=had)
        elif self._splitter is not None:
            for event in self._splitter.feed(payload):
                self._take_event(event, had=had)

    def take_loose(self) -> str:
        """Return what is new and of no block of upstream."""
        loose, self._loose = "".join(self._loose), []
        return loose

    def _take_event(self, event: bytes, *, had: bool) -> None:
        self._listener.take(event)
        for number, client_block in islice(self._listener.blocks.items(), self._heard, None):
            self._heard += 1
            if client_block.is_call:
                self._calls[number] = self._next_call()
        for number, text in self._listener.last:
            if number in self._calls:
                self._deliver(self._blocks.by_number.get(self._calls[number]), text, had=had)
            else:
                self._find(text, had=had)

    def _next_call(self) -> int:
        """The block of upstream that a tool call of the client's stands for: the next that was not
        refused."""
        for at in range(self._call_at, len(self._blocks.order)):
            block = self._blocks.at(at)
            if block.is_call and not block.is_given and block.verdict not in REFUSED:
                block.is_given = True
                self._at, self._call_at = max(self._at, at), at + 1
                return block.number
        return -1

    def _deliver(self, block: FollowedBlock | None, text: str, *, had: bool) -> None:
        if block is not None:
            self._blocks.touch(block.number).deliver(text, had=had)
        elif not had:
            self._loose.append(spelled(text))

    def _find(self, text: str, *, had: bool) -> None:
        """A client's text joins what several blocks left: its parts go to the blocks in their
        order."""
        place: FollowedBlock | None = None
        for at in range(self._at, len(self._blocks.order)):
            block = self._blocks.at(at)
            if block.is_call:
                # one notice for each that was refused, in their order
                if block.verdict in REFUSED and (
                    place is None or (place.is_changed and not block.is_changed)
                ):
                    place = block
            elif (
                not block.is_changed
                and block.remainder
                and text.startswith(part := block.remainder.first(len(text)))
            ):
                self._at = at
                self._deliver(block, part, had=had)
                text = text[len(part) :]
                if not text:
                    return
            elif place is None and (block.remainder or block.is_changed):
                place = block
        if place is None and self._blocks.order:
            place = self._blocks.at(min(self._at, len(self._blocks.order) - 1))
        if place is not None:
            place.change()
        self._deliver(place, text, had=had)
