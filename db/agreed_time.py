"""Which day it is by three clocks: PostgreSQL's, Redis' and that of the process that wants to take
old rows away.

No single clock decides that something may go. The database decides (`sluice_agreed_now`); here its
session learns of the other two.
"""

import time
from datetime import date

import psycopg

from protocol.errors import InvalidRequest
from settings.retention import AGREE_S
from settings.time_spans import span

TELL = "SELECT set_config('sluice.clocks', %s, false)"
"""Tells the session what this process' clock and Redis' say, in seconds since 1970, with a comma
between them."""
_TODAY = "SELECT (sluice_agreed_now() AT TIME ZONE 'UTC')::date, extract(epoch FROM now())::float8"
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", None)
"""A clock that nobody sets and that goes on while the machine sleeps: Linux has one."""
_BOOTED_S = time.time() - time.clock_gettime(_SINCE_BOOT) if _SINCE_BOOT is not None else 0.0


def clocks(redis_s: float) -> str:
    """Return the value of the setting: this process' clock and Redis', in seconds since 1970."""
    return f"{_own_s():.3f},{redis_s:.3f}"


def _own_s() -> float:
    """What this process' clock says, or would say had nobody set it ahead since the start: on one
    machine all three are the same clock."""
    return (
        time.time()
        if _SINCE_BOOT is None
        else min(time.time(), _BOOTED_S + time.clock_gettime(_SINCE_BOOT))
    )


def today(connection: psycopg.Connection, redis_s: float) -> date:
    """Return the day (UTC) that is not over by the earliest of the three clocks. Raises
    InvalidRequest where they disagree."""
    mine_s = _own_s()
    connection.execute(TELL.encode(), (clocks(redis_s),))
    row = connection.execute(_TODAY.encode()).fetchone()
    assert row is not None
    agreed: date | None = row[0]
    if agreed is None:
        raise InvalidRequest(
            f"{_differing(mine_s, redis_s, row[1])}. Run NTP on these machines, and restart what"
            " was running when a clock was set"
        )
    return agreed


def _differing(mine_s: float, redis_s: float, postgres_s: float) -> str:
    """Say how far the clocks of both servers are from this process' clock."""
    shown = []
    for whose, at in (("PostgreSQL", postgres_s), ("Redis", redis_s)):
        how = "ahead of" if at > mine_s else "behind"
        shown.append(f"the clock of {whose} is {span(abs(at - mine_s))} {how} this machine's")
    return (
        f"no old rows are deleted while clocks differ by more than {span(AGREE_S)}:"
        f" {' and '.join(shown)}"
    )
