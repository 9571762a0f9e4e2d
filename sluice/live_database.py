"""Checks of `sluice doctor` on the database of a running product: those of `db.health`, its clock,
and rights. Read-only.

Each check takes the database's URL and returns (state, sentence) pairs, none if all is well; a new
check is a function there, or here where only an operator may read. Imported late: a start must be
quick.
"""

from collections.abc import Callable

from db import health, server
from db.migrations import migrate
from db.migrations.rights import READER, WRITER
from sluice.settings import place
from streams.health import Found, clock_faults


def clock(url: str) -> Found:
    """The server's clock against ours."""
    return clock_faults("PostgreSQL", *server.clock_offset_s(url))


def rights(url: str) -> Found:
    """May the login of a role change what it should not?"""
    found: Found = []
    logins = migrate.wide_rights(url)
    for one in logins:
        if one.is_superuser:
            found.append(
                (
                    "failed",
                    f"the login {one.login} is a superuser: `ALTER ROLE {one.login} NOSUPERUSER`",
                )
            )
        elif one.tables:
            what = "insert, change or delete" if one.role == READER else "change or delete"
            where = f"{one.tables[0]}{f' and {len(one.tables) - 1} more' if len(one.tables) > 1 else ''}"
            found.append(
                (
                    "failed",
                    (
                        f"the login {one.login} may {what} rows of {where}: let it have the role"
                        f" {one.role} and nothing else"
                    ),
                )
            )
    if not any(one.role == WRITER for one in logins):
        sentence = (
            "no login has the role sluice_writer, so audit writers use one that may change the"
            " record"
        )
        found.append(
            (
                "warning",
                f"{sentence}: make it with SLUICE_AUDIT_DATABASE_PASSWORD and `sluice migrate`",
            )
        )
    return found


def standbys(url: str) -> Found:
    """As there, with the address of the server."""
    return health.standbys(url, f"PostgreSQL at {place(url)}")


CHECKS: dict[str, Callable[[str], Found]] = {
    "database clock": clock,
    "database rights": rights,
    **health.CHECKS,
    "database standbys": standbys,
}
