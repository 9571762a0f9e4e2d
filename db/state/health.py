"""Checks of the database of a running product: durability, standbys, dead letters, incomplete
calls, decisions that wait for a person, keys that expire, upstreams and judges that failed.
Read-only.

`sluice doctor` makes them, and the pages. Each takes the database's URL and returns (state,
sentence) pairs, none if all is well; a new check is a function and a line of `CHECKS`. Blocking.
"""

from collections.abc import Callable

from db.dead_letters import letters_at, say_letters
from db.expiry import expiring_at, say_expiry
from db.missing_records import incomplete_at, say_incomplete
from db.state import server
from db.state.recent_failures import failed_judges, failed_upstreams
from db.waiting_reviews import say_waiting, waiting_at
from db.write.rows import PARTITIONED

Found = list[tuple[str, str]]
AHEAD_DAYS = 5
_DURABLE = {"fsync": "failed", "full_page_writes": "failed", "synchronous_commit": "warning"}
"""Settings that keep what was committed when the machine fails. Sluice says the last one for its
own connections."""


def durability(url: str) -> Found:
    """Does what was committed outlive the server's machine?"""
    findings: Found = []
    values = server.settings(url, _DURABLE)
    for name, state in _DURABLE.items():
        if values[name] == "off":
            message = (
                f"PostgreSQL has {name} off, so a crash of its machine loses or destroys what was"
                f" committed: set `{name} = on`"
            )
            if state == "warning":
                message = (
                    f"PostgreSQL has {name} off by default; Sluice turns it on for itself, other"
                    f" writers do not: set `{name} = on`"
                )
            findings.append((state, message))
    return findings


def standbys(url: str, at: str = "PostgreSQL") -> Found:
    """Is this the server that is written to, and would another that takes its place have all that
    was committed?"""
    replication = server.standbys(url)
    if replication.is_standby:
        return [
            (
                "failed",
                (
                    f"{at} is a standby, which takes no writes: let SLUICE_DATABASE_URL name the"
                    " primary"
                ),
            )
        ]
    if replication.is_read_only:
        return [
            (
                "failed",
                (
                    f"{at} takes no writes (default_transaction_read_only): see who set that, often"
                    " for want of disk space"
                ),
            )
        ]
    if not replication.names and replication.connected:
        problem = (
            f"{at} has {replication.connected} standbys and none is synchronous: a failover loses the last"
            " commits, tool calls among them"
        )
        return [("warning", f"{problem}: set `synchronous_standby_names`")]
    if replication.names and not replication.synchronous and not replication.hidden:
        problem = (
            f"{at} lets each commit wait for a standby of `synchronous_standby_names ="
            f" {replication.names}`, and none of them is connected"
        )
        return [("failed", f"{problem}: bring one back, or take it out of that setting")]
    return []


def partitions(url: str) -> Found:
    """Are there tables for the calls of the coming days? Audit writers make those of a week ahead,
    each hour."""
    missing = server.missing_partitions(url, PARTITIONED, AHEAD_DAYS)
    if not missing:
        return []
    ahead, first, table = missing[0]
    what = (
        f"{len(missing)} of the partitions for the next {AHEAD_DAYS} days are missing, the first"
        f" for {first} ({table})"
    )
    how = (
        "see the audit writers' log, and what lies in the default partition of that day"
        " (docs/run/operations.md)"
    )
    return [("failed" if ahead <= 1 else "warning", f"{what}: {how}")]


def dead_letters(url: str) -> Found:
    """Were records set aside?"""
    count, last, calls = letters_at(url)
    return (
        [("warning", f"{say_letters(count, calls)}; the last at {last:%Y-%m-%d %H:%M:%SZ}")]
        if count
        else []
    )


def incomplete_calls(url: str) -> Found:
    """Does the record of a call lack something?"""
    call_ids = incomplete_at(url)
    return [("warning", say_incomplete(len(call_ids), call_ids, most=5))] if call_ids else []


def expiring_keys(url: str) -> Found:
    """Do clients lose their keys soon, or have they lately?"""
    return [("warning", say_expiry(*key)) for key in expiring_at(url)]


def reviews(url: str) -> Found:
    """Does somebody have to look at decisions?"""
    count, since = waiting_at(url)
    return [("ok", say_waiting(count, since))] if count else []


CHECKS: dict[str, Callable[[str], Found]] = {
    "database durability": durability,
    "database standbys": standbys,
    "partitions": partitions,
    "incomplete calls": incomplete_calls,
    "dead letters": dead_letters,
    "reviews": reviews,
    "key expiry": expiring_keys,
    "upstream failures": failed_upstreams,
    "judge failures": failed_judges,
}
