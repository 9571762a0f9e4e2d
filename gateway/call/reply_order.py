"""Which replies of one call count.

A reply is relayed only if it is the call's next number: lower is dropped, higher ends the call.
That covers dispatches, so no request is paid for twice. An answer ends once: with the reply that
says so or with an error of the gateway, whichever comes first."""

from protocol.errors import PipelineError
from streams.layout import Dispatch, Reply


class ReplyOrder:
    """How far the answer of one call is. `expected` is the number of the next output."""

    __slots__ = (
        "end",
        "error",
        "expected",
        "has_dispatched",
        "head_at",
        "head_sent",
        "headers",
        "is_overdue",
        "next_dispatch",
        "status",
        "upstream",
        "upstream_headers",
    )

    def __init__(self) -> None:
        self.expected = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_sent, self.head_at = False, 0.0
        self.upstream = ""
        """Where the last request was sent."""
        self.upstream_headers: dict[str, str] = {}
        """The upstream's headers for the client: when to retry, and its rate limits if a setting
        passes them on."""
        self.end = ""
        """The reason with which the answer is complete."""
        self.error: PipelineError | None = None
        """Why the gateway ends it."""
        self.next_dispatch: Dispatch | None = None
        """The request that is to go upstream."""
        self.has_dispatched = False
        self.is_overdue = False
        """Was its stream notified that the deadline is over?"""

    @property
    def is_over(self) -> bool:
        """Does no reply count any more?"""
        return bool(self.end) or self.error is not None

    def take(self, reply: Reply) -> None:
        """Go on behind this reply. Status and headers come with the first that has any."""
        self.expected, self.end = reply.next, reply.end
        if reply.status and not self.status:
            self.status, self.headers = reply.status, reply.headers

    def take_keepalive(self, reply: Reply) -> None:
        """Begin the answer with a keepalive, which has status and headers too."""
        if not self.status:
            self.status, self.headers = reply.status, reply.headers

    def send_head(self, now: float) -> None:
        """Take note that status and headers are written."""
        self.head_sent, self.head_at = True, now

    def fail(self, error: PipelineError) -> None:
        """End the answer with an error."""
        self.error = error

    def dispatch(self, dispatch: Dispatch) -> None:
        """Have this request sent."""
        self.has_dispatched = True
        self.next_dispatch = dispatch
        self.upstream = dispatch.upstream

    def take_dispatch(self) -> Dispatch | None:
        """Return the request to send now, once."""
        dispatch, self.next_dispatch = self.next_dispatch, None
        return dispatch

    def become_overdue(self) -> bool:
        """Take note that the deadline is over; True the first time."""
        was_overdue, self.is_overdue = self.is_overdue, True
        return not was_overdue
