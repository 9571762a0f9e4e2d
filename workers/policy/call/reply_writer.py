"""Writes the replies of one call: its outputs in the client's dialect, its head, its keepalives."""

import math
import time
from typing import TYPE_CHECKING

import msgspec

from policy.session.effects import Output
from policy.session.session import Session
from protocol import dropped
from protocol.bounds import FIRST_KEEPALIVE_S
from protocol.bytes import waiting
from protocol.dialects.table import CLIENTS
from protocol.events import Ping
from protocol.usage.prices import most_output
from streams.layout import BUDGETED, Dispatch, Reply, Start
from workers.policy.call.rendered import Rendered, digest, pass_over, render

if TYPE_CHECKING:
    from protocol.dialects.modules import Encoder


class ReplyWriter:
    """The encoder of one call, and what its client was sent."""

    __slots__ = (
        "_encoder",
        "_head_sent",
        "_session",
        "_silent_until",
        "_start",
        "last_sent",
        "policy_header",
        "waits_for",
    )

    def __init__(
        self, start: Start, session: Session, *, policy_header: str, is_taken_over: bool
    ) -> None:
        self._start, self._session, self.policy_header = start, session, policy_header
        self.waits_for = ""
        """What the next keepalive says (`protocol.bytes.waiting`)."""
        self._encoder: Encoder | None = None
        self._head_sent = False
        self.last_sent = -math.inf if is_taken_over else time.monotonic()
        """When the client was last sent something, or the call began. Not known of a call taken
        over: it gets a keepalive at once."""
        self._silent_until = self.last_sent + FIRST_KEEPALIVE_S

    def use(self, session: Session) -> None:
        """Write for another session of the same call."""
        self._session = session

    # --- keepalives ---

    @property
    def counts_keepalive(self) -> bool:
        """Is a keepalive an event of the dialect now, which the session has to count?"""
        session = self._session
        return (
            session.out.streams
            and CLIENTS[self._start.dialect].counts_events
            and (self._head_sent or time.monotonic() >= self._silent_until)
        )

    def is_silent(self, now: float) -> bool:
        """Is it time that the client hears something, of whose answer nothing came yet?"""
        return not self._head_sent and self.last_sent < self._silent_until <= now

    def is_sent(self, now: float) -> None:
        """Note that the client is sent something."""
        self.last_sent = now

    # --- replies ---

    def pass_over(self, outputs: list[Output]) -> None:
        """Let the encoder take what the last owner released."""
        pass_over(outputs, self._make_encoder)

    def write(
        self,
        outputs: list[Output],
        *,
        number: int,
        following: int,
        processed: int,
        end: str,
        keepalive: bool,
    ) -> Reply:
        """Return the reply for outputs `number` to `following` - 1, or with none a keepalive or the
        position up to which entries are processed."""
        rendered = render(outputs, self._make_encoder)
        waits_for = self.waits_for if keepalive else ""
        if not outputs and keepalive and not end:
            rendered.data = self._keepalive_bytes()
        elif waits_for and rendered.data and any(type(each) is Ping for each in outputs):
            # in front of the event; `Ping` itself must not change, as a replay makes it anew
            rendered.data = waiting.keepalive(rendered.data, waits_for)
        has_head = not self._head_sent and bool(rendered.data)
        if has_head and not rendered.status:
            rendered.status = 200
            rendered.headers = {"content-type": self._content_type()}
        if has_head and outputs:
            self._head_sent = True
        payload = rendered.data if outputs else b""
        return Reply(
            self._start.call_id,
            number,
            following,
            status=rendered.status,
            headers=self._headers(rendered, waits_for) if rendered.status or waits_for else {},
            data=rendered.data,
            late=rendered.late,
            end=end if outputs else "",
            dispatch=rendered.dispatch and self._reserving(rendered.dispatch),
            processed=processed,
            keepalive=not outputs,
            sha256=digest(payload),
            late_sha256=rendered.late_sha256,
        )

    def _reserving(self, dispatch: Dispatch) -> Dispatch:
        """Return a dispatch that says what a budget is to hold for it."""
        request = self._session.request
        if BUDGETED not in self._start.numbers or request is None:
            return dispatch
        price = self._session.price
        reserve = (most_output(request), *((-1, -1) if price is None else price.most))
        return msgspec.structs.replace(dispatch, reserve=reserve)

    def _keepalive_bytes(self) -> bytes:
        request = self._session.request
        is_stream = request is not None and request.stream
        return CLIENTS[self._start.dialect].keepalive if is_stream else b""

    def _content_type(self) -> str:
        return self._make_encoder().content_type if self._session.request else "application/json"

    def _headers(self, rendered: Rendered, waits_for: str) -> dict[str, str]:
        waits = {waiting.HEADER: waits_for} if waits_for else {}
        if not rendered.status:
            return waits
        headers = {**rendered.headers, **waits, "x-sluice-policy": self.policy_header}
        headers |= self._session.route_headers
        if self._session.dropped:
            headers[dropped.HEADER] = dropped.header_value(self._session.dropped)
        return headers

    def _make_encoder(self) -> "Encoder":
        if self._encoder is None:
            request = self._session.request
            assert request is not None
            self._encoder = CLIENTS[self._start.dialect].encoder(
                request, call_id=self._start.call_id, created=self._start.at // 1000
            )
        return self._encoder
