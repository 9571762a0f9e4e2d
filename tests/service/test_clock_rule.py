"""No single clock decides that something may go: whatever deletes or drops for age asks three
clocks, also what is added later."""

import re
import time
from pathlib import Path

import psycopg
import pytest

import db.agreed_time
from db.agreed_time import today
from db.connections import conninfo
from protocol.errors import InvalidRequest
from tests.support.checks.record import rows

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "db",
    "demo",
    "gateway",
    "pages",
    "policy",
    "protocol",
    "providers",
    "settings",
    "sluice",
    "streams",
    "workers",
)
_GOES = re.compile(
    r"\b(?:DELETE\s+FROM|DROP\s+TABLE|TRUNCATE\s+(?:TABLE\s+)?[\w{]|DETACH\s+PARTITION)"
)
_CLOCK = re.compile(
    r"\b(?:now|clock_timestamp|transaction_timestamp|statement_timestamp)\(\)|\bcurrent_(?:date|timestamp)\b",
    re.IGNORECASE,
)
BY_NAME = {
    "sluice_redact": (
        "the rows of one call, which a person names; `now()` says whether it may still be open, and"
        " when it was"
    ),
    "sluice_sweep_page_sessions": (
        "logins that ended by the clock that gave them their end: nothing on record"
    ),
}
"""Functions of the database that delete, ask no three clocks, and why."""
OUTSIDE = {
    "db/seals/redact.py": "what came of a redacted call while it was redacted",
    "db/seals/restore.py": "copies of archived days, beside the record, that are put back anew",
    "db/migrations/schema.py": "a downgrade to nothing",
}
"""Modules with statements that delete, besides those of functions of the database, and why."""


def test_every_function_that_deletes_for_age_asks_the_three_clocks(url: str) -> None:
    found = {
        name: text
        for name, text in rows(
            url, "SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'sluice%%'"
        )
        if _GOES.search(text)
    }
    assert found.keys() >= {
        "sluice_shed",
        "sluice_forget",
        "sluice_drop_before",
        "sluice_trim_debug_logs",
        "sluice_roll_up",
    }
    for name in found.keys() - BY_NAME.keys():
        compared = [
            line
            for line in found[name].splitlines()
            if _CLOCK.search(line) and re.search(r"[<>]", line)
        ]
        assert "sluice_agreed_now()" in found[name], (
            f"{name} deletes and does not ask whether the clocks agree"
        )
        assert compared == [], f"{name} compares with one clock"


def test_nothing_outside_those_functions_deletes() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    deleting = {
        str(path.relative_to(ROOT))
        for path in paths
        if _GOES.search(path.read_text(encoding="utf-8"))
    }
    functions = {f"db/migrations/{name}.py" for name in ("dropping", "sealed")}
    assert deleting - functions == OUTSIDE.keys() - functions


@pytest.mark.skipif(
    not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that nobody sets"
)
def test_a_clock_that_was_set_ahead_since_the_start_makes_nothing_old(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one machine PostgreSQL, Redis and the process read the same clock, so all three were
    set."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        today(connection, time.time())
        monkeypatch.setattr(db.agreed_time, "_BOOTED_S", db.agreed_time._BOOTED_S - 2 * 86_400)
        with pytest.raises(InvalidRequest, match=r"PostgreSQL is 2\.0 days ahead"):
            today(connection, time.time())


@pytest.mark.parametrize("told", ["", "1", "1,2,3", "{now},{late}", "{early},{now}", "{now},"])
def test_a_session_that_knows_no_three_clocks_has_no_time_at_which_something_may_go(
    url: str, told: str
) -> None:
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        (now,) = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone() or (0.0,)
        given = told.format(now=now, late=now + 3700, early=now - 3700)
        connection.execute("SELECT set_config('sluice.clocks', %s, false)", (given,))
        try:
            agreed = connection.execute("SELECT sluice_agreed_now()").fetchone()
        except psycopg.DataError:
            agreed = (None,)
        assert agreed == (None,)
        with pytest.raises(psycopg.DataError):
            connection.execute("SELECT sluice_drop_before('2000-01-01', 'x')")


def test_the_earliest_of_three_clocks_says_which_day_is_over(url: str) -> None:
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        (now,) = connection.execute("SELECT extract(epoch FROM now())::float8").fetchone() or (0.0,)
        assert today(connection, now - 3500) <= today(connection, now)
        with pytest.raises(InvalidRequest, match=r"the clock of Redis is 2\.0 hours behind"):
            today(connection, now - 7200)
