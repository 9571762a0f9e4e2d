"""What a failed attempt was, and what is tried after it.

`FAILURES` is the whole of the rules; docs/run/routes.md shows the same table to operators.
"""

import re
from typing import Literal, NamedTuple

from protocol.events import UpstreamFailed

Outcome = Literal[
    "ok",
    "connect",
    "reset",
    "silent",
    "server",
    "rate",
    "money",
    "auth",
    "conflict",
    "bad_request",
    "error_event",
    "open",
    "cut",
    "untranslatable",
]
Same = Literal["never", "once", "alone", "again"]
"""When the same target is asked again: never; once; where there is no other and it says when; after
a wait, where no other is left."""
MAX_RETRY_AFTER_S = 60.0


class Reaction(NamedTuple):
    """What follows an outcome. `other`: the next target is asked. `acts`: what the request makes
    the provider do may have been done, so one with server tools is never sent again."""

    other: bool
    same: Same = "never"
    acts: bool = True


FAILURES: dict[Outcome, Reaction] = {
    "connect": Reaction(other=True, acts=False),
    "open": Reaction(other=True, acts=False),
    "reset": Reaction(other=True),
    "silent": Reaction(other=True),
    "cut": Reaction(other=True),
    "error_event": Reaction(other=True),
    "server": Reaction(other=True, same="again"),
    "rate": Reaction(other=True, same="alone", acts=False),
    "money": Reaction(other=True, acts=False),
    "auth": Reaction(other=True, acts=False),
    "conflict": Reaction(other=False, same="once"),
    "bad_request": Reaction(other=False),
    "untranslatable": Reaction(other=True, acts=False),
}
ONCE: frozenset[Outcome] = frozenset(("reset", "silent", "conflict"))
"""A second one in a call ends it: what one request does to every target is not tried on all."""
_OF_CODE: dict[str, Outcome] = {
    "upstream_closed": "reset",
    "upstream_timeout": "silent",
    "call_deadline": "silent",
    "upstream_cut": "cut",
    "upstream_protocol_error": "cut",
    "upstream_encoding": "cut",
    **dict.fromkeys(
        (
            "upstream_unreachable",
            "upstream_dns",
            "upstream_refused",
            "upstream_tls",
            "upstream_connect_timeout",
            "upstream_certificates",
            "upstream_token",
            "proxy_unreachable",
            "proxy_dns",
            "proxy_refused",
            "proxy_connect_timeout",
            "proxy_denied",
        ),
        "connect",
    ),
}
_OF_STATUS: dict[int, Outcome] = {
    401: "auth",
    402: "money",
    403: "auth",
    408: "server",
    409: "conflict",
    429: "rate",
    498: "server",
}
_OF_KIND: dict[str, Outcome] = {"billing_error": "money", "authentication_error": "auth"}
_LEFT_ALONE = b'"upstream_unavailable"'
"""The code with which a gateway's breaker answers in an upstream's place; a proxy that says the
same means the same."""
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


class Failure(NamedTuple):
    """How an attempt ended. `event` is what the client is told where nothing follows."""

    outcome: Outcome
    event: UpstreamFailed
    status: int = 0
    retry_after_s: float | None = None


def of_code(code: str, event: UpstreamFailed) -> Failure:
    """Return what a gateway's error code means; unknown ones are never tried again."""
    return Failure(_OF_CODE.get(code, "bad_request"), event)


def of_status(status: int, raw: bytes, event: UpstreamFailed) -> Failure:
    """Return what an error answer means."""
    outcome: Outcome = "server" if status >= 500 else "bad_request"
    outcome = _OF_KIND.get(event.kind) or _OF_STATUS.get(status, outcome)
    if status == 503 and _LEFT_ALONE in raw:
        outcome = "open"
    return Failure(outcome, event, status, read_retry_after(event.retry_after))


def of_event(event: UpstreamFailed) -> Failure:
    """Return what an error within an answer means."""
    is_clients = event.kind in ("invalid_request_error", "request_too_large")
    return Failure("bad_request" if is_clients else "error_event", event, 200)


def read_retry_after(text: str | None) -> float | None:
    """Return a Retry-After in seconds, at most `MAX_RETRY_AFTER_S`; None where it has none. Dates
    have none: a session knows no clock but its gateway's."""
    if not text or not _SECONDS.fullmatch(text.strip()):
        return None
    return min(float(text), MAX_RETRY_AFTER_S)
