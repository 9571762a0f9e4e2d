"""Checks of `sluice doctor` on the database of a running product: those of `db.state.health`, its
clock, and rights. Read-only.

Each check takes the database's URL and returns (state, sentence) pairs, none if all is well; a new
check is a function there, or here where only an operator may read. Imported late: a start must be
quick.
"""

from collections.abc import Callable

from db.migrations import migrate
from db.migrations.rights import READER, WRITER
from db.state import health, server
from sluice.settings import place
from streams.health import Found, clock_faults


def clock(url: str) -> Found:
    """The server's clock against ours."""
    return clock_faults("PostgreSQL", *server.clock_offset_s(url))


def rights(url: str) -> Found:
    """May the login of a role change what it should not?"""
    checks: Found = []
    logins = migrate.wide_rights(url)
    for login in logins:
        if login.is_superuser:
            checks.append(
                (
                    "failed",
                    f"the login {login.login} is a superuser: `ALTER ROLE {login.login} NOSUPERUSER`",
                )
            )
        elif login.tables:
            what = "insert, change or delete" if login.role == READER else "change or delete"
            where = f"{login.tables[0]}{f' and {len(login.tables) - 1} more' if len(login.tables) > 1 else ''}"
            checks.append(
                (
                    "failed",
                    (
                        f"the login {login.login} may {what} rows of {where}: let it have the role"
                        f" {login.role} and nothing else"
                    ),
                )
            )
    if not any(login.role == WRITER for login in logins):
        sentence = (
            "no login has the role sluice_writer, so audit writers use one that may change the"
            " record"
        )
        checks.append(
            (
                "warning",
                f"{sentence}: make it with SLUICE_AUDIT_DATABASE_PASSWORD and `sluice migrate`",
            )
        )
    return checks


def standbys(url: str) -> Found:
    """As there, with the address of the server."""
    return health.standbys(url, f"PostgreSQL at {place(url)}")


CHECKS: dict[str, Callable[[str], Found]] = {
    "database clock": clock,
    "database rights": rights,
    **health.CHECKS,
    "database standbys": standbys,
}
