"""Redis' clock, with which every process compares its own: how far they differ, and when that is
too far.

A call's id holds the time at which it began, by its gateway's clock, and its day on record follows
from that. A gateway whose clock is days behind would put today's calls among those that are old
enough to go.
"""

import logging
import time

from protocol.errors import AuditUnavailable
from settings.time_spans import span

log = logging.getLogger(__name__)
WARN_S = 2.0
"""Clocks further apart than this make a record that is hard to read: its times, and the order of
calls, are of many machines."""
REFUSE_S = 60.0
"""A gateway whose clock differs by more takes no calls."""
_ANSWER_S = 5.0


def read_time(url: str) -> float:
    """Return what Redis' clock says, in seconds since 1970. Blocking. Raises AuditUnavailable."""
    import redis  # gateways do not load it

    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=_ANSWER_S, socket_timeout=_ANSWER_S
        ) as client:
            seconds, microseconds = client.time()
    except (redis.RedisError, OSError, ValueError) as error:
        raise AuditUnavailable(
            "Redis does not report its time, and without its clock no old rows are deleted"
        ) from error
    return float(seconds) + float(microseconds) / 1e6


class ClockWatch:
    """How far this process' clock is from Redis', by the last heartbeat and what the monotonic
    clock counted since."""

    def __init__(self) -> None:
        self._ahead_of_monotonic: float | None = None
        self._unsure_s = 0.0
        self._noted = ""

    def note(self, redis_s: float, began: float) -> None:
        """Take Redis' answer; it was asked at `began` on the monotonic clock."""
        now = time.monotonic()
        self._unsure_s = (now - began) / 2
        self._ahead_of_monotonic = redis_s - began - self._unsure_s
        self._log()

    def ahead_s(self, at: float | None = None) -> float:
        """Return how far a time (by default now, by this process' clock) is ahead of Redis'; 0
        while that is not known."""
        if self._ahead_of_monotonic is None:
            return 0.0
        seconds = time.time() if at is None else at
        return seconds - self._ahead_of_monotonic - time.monotonic()

    def fault(self, at: float | None = None) -> str:
        """Say in a sentence why no call may begin at a time; empty where one may."""
        ahead_s = self.ahead_s(at)
        if abs(ahead_s) - self._unsure_s <= REFUSE_S:
            return ""
        return (
            f"{_differs(ahead_s)}: it takes no calls, as they would be on record under a wrong day;"
            " run NTP on both machines"
        )

    @property
    def warning(self) -> str:
        """Say in a sentence that the clocks differ; empty where they do not."""
        ahead_s = self.ahead_s()
        if abs(ahead_s) - self._unsure_s <= WARN_S:
            return ""
        return (
            f"{_differs(ahead_s)}: run NTP on both machines; past {REFUSE_S:.0f} s it takes no"
            " calls"
        )

    def _log(self) -> None:
        state = "refused" if self.fault() else "warned" if self.warning else ""
        if state == self._noted:
            return
        self._noted = state
        if state:
            log.log(
                logging.ERROR if state == "refused" else logging.WARNING,
                self.fault() or self.warning,
                extra={"action": "clock"},
            )
        else:
            log.info("this gateway's clock agrees with Redis' again", extra={"action": "clock"})


def _differs(ahead_s: float) -> str:
    return (
        f"this gateway's clock is {span(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'}"
        " Redis' clock"
    )
