"""What one open call may be watched for: the traffic of a call that has debug lines."""

from typing import Protocol, TypeVar

from protocol.errors import PipelineError
from streams.layout import Dispatch, Entry, EntryKind, Reply

Call = TypeVar("Call", contravariant=True)


class TrafficObserver(Protocol[Call]):
    """Takes what comes and goes. It never raises, and changes nothing of the call."""

    def begun(self, call: Call) -> None:
        """The client's request is here."""

    def replied(self, call: Call, reply: Reply, expected: int, was_over: bool) -> None:
        """A reply came while `expected` was the next output, and the call has taken it or not."""

    def answering(self, call: Call) -> None:
        """The head of the answer goes to the client."""

    def relayed(self, call: Call, size: int) -> None:
        """So many bytes went to the client."""

    def failed(self, call: Call, error: PipelineError) -> None:
        """The gateway ends the call with this error."""

    def dispatched(self, call: Call, dispatch: Dispatch) -> None:
        """A request is to go upstream."""

    def queued(self, kind: EntryKind, chunks: list[bytes], number: int, text: str) -> None:
        """Something is queued for the call's stream."""

    def numbered(self, entries: list[Entry]) -> None:
        """These entries go to Redis, some perhaps again."""

    def stalled(self, size: int) -> None:
        """The upstream is not read while so many bytes wait."""

    def lost(self) -> None:
        """Redis has this call's stream no longer."""
