"""What one call may be watched for: each step of a call that has debug lines, as it is taken."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from policy.session.effects import JudgeRequest
from protocol.errors import PipelineError
from protocol.records import Record
from streams.layout import Entry

Call = TypeVar("Call", contravariant=True)


class CallObserver(Protocol[Call]):
    """Takes the steps of one call. It never raises, and changes nothing of the call."""

    def moved(self, call: Call) -> None:
        """The call is in another phase; its first is that of its claim."""

    def began(self, call: Call, size: int, took_ns: int) -> None:
        """The session took a request body of `size` bytes."""

    def refused(self, error: PipelineError) -> None:
        """The call is answered with an error instead of beginning."""

    def fed(self, call: Call, entry: Entry, expected: int, taken: bool, took_ns: int) -> None:
        """An entry of the stream came while `expected` was the next number."""

    def learned(self, field: str, size: int) -> None:
        """A fact of the call came."""

    def asked(self, asks: Sequence[JudgeRequest], commits: Sequence[int]) -> None:
        """The call waits for these judgements, and for the commits of these blocks."""

    def released(self, call: Call) -> None:
        """The release that is under way was made."""

    def answered(self, call: Call) -> None:
        """Redis took the release that was under way."""

    def noted(self, kind: str, detail: str) -> None:
        """Something went on record that the session does not know."""

    def ended(self, call: Call, reason: str, relayed: int, records: Sequence[Record]) -> None:
        """The last records of the call were made."""

    def lost(self, call: Call, outcome: bytes) -> None:
        """Redis refused a release or a renewal for good."""
