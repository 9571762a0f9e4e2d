"""What every session needs from its worker, and the start of a session whose request continues kept
answers: it waits for those first, and so before its own record."""

from policy.session import opening
from policy.session.effects import CallInfo, SessionEffects
from policy.session.outbox import Outbox
from protocol.records import Record
from protocol.stored_answers import StoredAnswers


class Awaiting:
    """A session that waits for kept answers. Most have none to wait for."""

    _awaiting: bytes | None = None
    """The request that waits. Of the class until there is one: an object of Python with more than
    30 names of its own is slower."""

    def __init__(self, call: CallInfo, out: Outbox) -> None:
        self.call, self.out = call, out

    def begin(self, body: bytes | None) -> None:
        """Validate the request, run the request hooks, translate; gives Dispatch or Respond, or
        first asks for kept answers or recorded turns."""
        wanted = opening.kept_answers(self.call, body)
        if wanted is None:
            self._begin(body, None)
        else:
            self._awaiting, self.out.lookup = body, wanted

    def answers(self, stored_answers: StoredAnswers) -> None:
        """Take the kept answers that were asked for, and begin."""
        if (body := self._awaiting) is not None:
            self._awaiting = None
            self._begin(body, stored_answers)

    @property
    def awaits_answers(self) -> bool:
        """Has it not begun yet?"""
        return self._awaiting is not None

    @property
    def awaiting_bytes(self) -> int:
        """The size of the request that begins with them."""
        return len(self._awaiting or b"")

    def unbegun(self) -> list[Record]:
        """The first records of a call that ends before it begins."""
        return opening.records(self.call, None, "", "") if self.awaits_answers else []

    def drain(self) -> SessionEffects:
        """Return what is wanted since the last time."""
        return self.out.drain()

    def _begin(self, body: bytes | None, stored_answers: StoredAnswers | None) -> None:
        raise NotImplementedError
