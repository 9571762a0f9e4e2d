"""What `sluice doctor` sees in the database of a running product: its clock, rights, durability, what is set aside.

Looks and asks, changes nothing. Each check takes the database's URL and returns (state, sentence) pairs, none where all is well;
a new one is a function and a line of `CHECKS`. All import `db` where they use it: a start must be quick.
"""

from collections.abc import Callable

from sluice.live import Found, clock_faults

_DURABLE = {"fsync": "failed", "full_page_writes": "failed", "synchronous_commit": "warning"}
"""Settings that keep what was committed when the machine fails. Writers say the last one themselves."""


def clock(url: str) -> Found:
    """The server's clock against ours."""
    from db import migrate

    return clock_faults("PostgreSQL", migrate.clock_offset_s(url))


def rights(url: str) -> Found:
    """May the login of a role change what it should not?"""
    from db import migrate

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
    from db import migrate

    found: Found = []
    values = migrate.settings(url, _DURABLE)
    for name, state in _DURABLE.items():
        if values[name] == "off":
            said = f"PostgreSQL has {name} off, so a crash of its machine loses or destroys what was committed: set `{name} = on`"
            if state == "warning":
                said = f"PostgreSQL has {name} off by default; Sluice's writers say on for themselves, others that write there do not"
            found.append((state, said))
    return found


def dead_letters(url: str) -> Found:
    """Were records set aside?"""
    from db.letters import letters_at, say_letters

    count, last, calls = letters_at(url)
    return [("warning", f"{say_letters(count, calls)}; the last at {last:%Y-%m-%d %H:%M:%SZ}")] if count else []


CHECKS: dict[str, Callable[[str], Found]] = {
    "database clock": clock,
    "database rights": rights,
    "database durability": durability,
    "dead letters": dead_letters,
}
