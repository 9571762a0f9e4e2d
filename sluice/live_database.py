"""Checks of `sluice doctor` on the database of a running product: clock, rights, durability, standbys, dead letters. Read-only.

Each check takes the database's URL and returns (state, sentence) pairs, none if all is well; a new check is a function and a line of
`CHECKS`. All import `db` where they use it: a start must be quick.
"""

from collections.abc import Callable

from sluice.live import Found, clock_faults
from sluice.settings import place
from sluice.upstream_failures import failed_judges, failed_upstreams

_DURABLE = {"fsync": "failed", "full_page_writes": "failed", "synchronous_commit": "warning"}
"""Settings that keep what was committed when the machine fails. Sluice says the last one for its own connections."""


def clock(url: str) -> Found:
    """The server's clock against ours."""
    from db import server

    return clock_faults("PostgreSQL", *server.clock_offset_s(url))


def rights(url: str) -> Found:
    """May the login of a role change what it should not?"""
    from db.migrations import migrate

    found: Found = []
    logins = migrate.wide_rights(url)
    for one in logins:
        if one.is_superuser:
            found.append(("failed", f"the login {one.login} is a superuser: `ALTER ROLE {one.login} NOSUPERUSER`"))
        elif one.tables:
            what = "insert, change or delete" if one.role == migrate.READER else "change or delete"
            where = f"{one.tables[0]}{f' and {len(one.tables) - 1} more' if len(one.tables) > 1 else ''}"
            found.append(("failed", f"the login {one.login} may {what} rows of {where}: let it have the role {one.role} and nothing else"))
    if not any(one.role == migrate.WRITER for one in logins):
        sentence = "no login has the role sluice_writer, so audit writers use one that may change the record"
        found.append(("warning", f"{sentence}: make it with SLUICE_AUDIT_DATABASE_PASSWORD and `sluice migrate`"))
    return found


def durability(url: str) -> Found:
    """Does what was committed outlive the server's machine?"""
    from db import server

    found: Found = []
    values = server.settings(url, _DURABLE)
    for name, state in _DURABLE.items():
        if values[name] == "off":
            said = f"PostgreSQL has {name} off, so a crash of its machine loses or destroys what was committed: set `{name} = on`"
            if state == "warning":
                said = f"PostgreSQL has {name} off by default; Sluice turns it on for itself, other writers do not: set `{name} = on`"
            found.append((state, said))
    return found


def standbys(url: str) -> Found:
    """Is this the server that is written to, and would another that takes its place have all that was committed?"""
    from db import server

    one, at = server.standbys(url), f"PostgreSQL at {place(url)}"
    if one.is_standby:
        return [("failed", f"{at} is a standby, which takes no writes: let SLUICE_DATABASE_URL name the primary")]
    if one.is_read_only:
        return [("failed", f"{at} takes no writes (default_transaction_read_only): see who set that, often for want of disk space")]
    if not one.names and one.connected:
        said = f"{at} has {one.connected} standbys and none is synchronous: a failover loses the last commits, tool calls among them"
        return [("warning", f"{said}: set `synchronous_standby_names`")]
    if one.names and not one.synchronous and not one.hidden:
        said = f"{at} lets each commit wait for a standby of `synchronous_standby_names = {one.names}`, and none of them is connected"
        return [("failed", f"{said}: bring one back, or take it out of that setting")]
    return []


def dead_letters(url: str) -> Found:
    """Were records set aside?"""
    from db.letters import letters_at, say_letters

    count, last, calls = letters_at(url)
    return [("warning", f"{say_letters(count, calls)}; the last at {last:%Y-%m-%d %H:%M:%SZ}")] if count else []


def incomplete_calls(url: str) -> Found:
    """Does the record of a call lack something?"""
    from db.holes import incomplete_at, say_incomplete

    found = incomplete_at(url)
    return [("warning", say_incomplete(len(found), found, most=5))] if found else []


def reviews(url: str) -> Found:
    """Does somebody have to look at decisions?"""
    from db.audits import say_waiting, waiting_at

    count, since = waiting_at(url)
    return [("ok", say_waiting(count, since))] if count else []


CHECKS: dict[str, Callable[[str], Found]] = {
    "database clock": clock,
    "database rights": rights,
    "database durability": durability,
    "database standbys": standbys,
    "incomplete calls": incomplete_calls,
    "dead letters": dead_letters,
    "reviews": reviews,
    "upstream failures": failed_upstreams,
    "judge failures": failed_judges,
}
