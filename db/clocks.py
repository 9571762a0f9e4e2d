"""Which day it is by three clocks: PostgreSQL's, Redis' and that of the process that wants to take old rows away.

No single clock decides that something may go. The database decides (`db.migrations.agreeing`); here its session learns of the other two.
"""

import time
from datetime import date

import psycopg

from db.migrations.agreeing import SETTING
from protocol.errors import InvalidRequest
from protocol.retention import AGREE_S
from protocol.spans import span

TELL = f"SELECT set_config('{SETTING}', %s, false)"
_TODAY = "SELECT (sluice_agreed_now() AT TIME ZONE 'UTC')::date, extract(epoch FROM now())::float8"


def clocks(redis_s: float) -> str:
    """Return the value of the setting: this process' clock and Redis', in seconds since 1970."""
    return f"{time.time():.3f},{redis_s:.3f}"


def today(connection: psycopg.Connection, redis_s: float) -> date:
    """Return the day (UTC) that is not over by the earliest of the three clocks. Raises InvalidRequest where they disagree."""
    mine_s = time.time()
    connection.execute(TELL.encode(), (clocks(redis_s),))
    row = connection.execute(_TODAY.encode()).fetchone()
    assert row is not None
    agreed: date | None = row[0]
    if agreed is None:
        raise InvalidRequest(f"{_differing(mine_s, redis_s, row[1])}. Run NTP on these machines, then try again")
    return agreed


def _differing(mine_s: float, redis_s: float, postgres_s: float) -> str:
    """Say how far the clocks of both servers are from this process' clock."""
    shown = []
    for whose, at in (("PostgreSQL", postgres_s), ("Redis", redis_s)):
        how = "ahead of" if at > mine_s else "behind"
        shown.append(f"the clock of {whose} is {span(abs(at - mine_s))} {how} this machine's")
    return f"nothing old goes while clocks differ by more than {span(AGREE_S)}: {' and '.join(shown)}"
