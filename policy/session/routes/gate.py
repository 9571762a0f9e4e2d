"""An outbox that keeps the opening of a message back until there is content: so long another target
may still answer in place of this one."""

from policy.session.answer.outbox import Outbox
from policy.session.effects import CallInfo
from protocol.events import BlockStart, Event, MessageStart
from settings.config import NoticeForm


class GatedOutbox(Outbox):
    """The outbox of a call that may have several attempts."""

    def __init__(self, call: CallInfo, form: NoticeForm = "full") -> None:
        super().__init__(call, form)
        self._opening: list[Event] = []
        self.is_open = False
        """Has anything of an answer gone out?"""
        self.body: bytes | None = None
        """The request, for as long as it may be sent again."""

    def keep(self, body: bytes) -> None:
        """Keep the request for further attempts."""
        self.body = body

    def emit(self, event: Event) -> None:
        """Release an event to the client; what opens a message or a block waits for what follows
        it."""
        if self.is_open:
            super().emit(event)
            return
        self._opening.append(event)
        if type(event) is MessageStart or type(event) is BlockStart:
            return
        self.is_open, self.body = True, None
        opening, self._opening = self._opening, []
        for waiting in opening:
            super().emit(waiting)

    def drop_opening(self) -> None:
        """Throw away what waits: another answer takes its place."""
        self._opening = []
