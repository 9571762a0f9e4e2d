"""Is everything a process needs there, and fit? Each fault is one sentence that says what to do.

Used before a process starts and by `sluice doctor`. Heavy libraries are imported where they are used: a start must be quick.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from protocol.config import Config
from sluice.errors import NotFit, SettingsError, StartError, Unavailable
from sluice.policy_set import policy_set
from streams import fitness

T = TypeVar("T")


def place(url: str) -> str:
    """Return where `url` points, without user and password."""
    parts = urlsplit(url)
    # PostgreSQL's sockets have the folder that holds them in the question
    where = parts.hostname or parse_qs(parts.query).get("host", [parts.path])[0]
    return f"{where}:{parts.port}" if parts.port else where


def check_redis(url: str) -> list[str]:
    """Return warnings about the Redis at `url`. Raises Unavailable when it is away, NotFit when it may lose what is kept in it."""
    import redis

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            client.ping()
            try:
                info = client.info()
            except redis.exceptions.NoPermissionError:
                return ["Redis does not let this user see INFO: make sure that it has `appendonly yes` and `maxmemory-policy noeviction`"]
    except redis.AuthenticationError:
        raise Unavailable(f"Redis at {place(url)} refuses the user or password: correct SLUICE_REDIS_URL") from None
    except redis.exceptions.BusyLoadingError:
        raise Unavailable(f"Redis at {place(url)} is still loading its data: try again when it is done") from None
    except (redis.RedisError, OSError, ValueError) as error:
        raise Unavailable(f"Redis at {place(url)} does not answer ({type(error).__name__}): start it or correct SLUICE_REDIS_URL") from None
    assert isinstance(info, dict)
    return _check_info(info, place(url))


def _check_info(info: Mapping[str, object], where: str) -> list[str]:
    if faults := fitness.faults_of(info):
        raise NotFit(f"Redis at {where} {'; it '.join(faults)}")
    if not int(str(info.get("maxmemory", 0))):
        return ["Redis has no maxmemory: set one, so that new calls are refused before the machine runs out of memory"]
    return []


def check_database(url: str) -> list[str]:
    """Check that PostgreSQL answers and stands at the newest migration, or a newer one. Raises Unavailable or NotFit."""
    from db import migrate

    found = _ask_database(url, lambda: migrate.current(url))
    if found is None:
        raise NotFit(f"the database at {place(url)} is not set up: run `sluice migrate`")
    if found > (head := migrate.head()):
        return [f"the database at {place(url)} stands at migration {found}, this Sluice knows {head}: bring it up to the others' version"]
    if found != head:
        raise NotFit(f"the database at {place(url)} stands at migration {found}, this Sluice needs {head}: run `sluice migrate`")
    return []


def check_database_live(url: str) -> list[tuple[str, str, str]]:
    """Look at the database's clock and at the rights of the roles' logins; like `check_all`."""
    from db import migrate
    from sluice.live import clock_faults

    if not _ask_database(url, lambda: migrate.current(url)):
        return []
    offset_s = _ask_database(url, lambda: migrate.clock_offset_s(url))
    found = [("database clock", state, sentence) for state, sentence in clock_faults("PostgreSQL", offset_s)]
    logins = _ask_database(url, lambda: migrate.wide_rights(url))
    for one in logins:
        if one.is_superuser:
            found.append(("database rights", "failed", f"the login {one.login} is a superuser: `ALTER ROLE {one.login} NOSUPERUSER`"))
        elif one.tables:
            what = "insert, change or delete" if one.role == migrate.READER else "change or delete"
            where = f"{one.tables[0]}{f' and {len(one.tables) - 1} more' if len(one.tables) > 1 else ''}"
            sentence = f"the login {one.login} may {what} rows of {where}: let it have the role {one.role} and nothing else"
            found.append(("database rights", "failed", sentence))
    if not any(one.role == migrate.WRITER for one in logins):
        sentence = "no login has the role sluice_writer, so audit writers use one that may change the record"
        found.append(("database rights", "warning", f"{sentence}: make it with SLUICE_AUDIT_DATABASE_PASSWORD and `sluice migrate`"))
    found += _ask_database(url, lambda: _look_at_record(url))
    names = {name for name, _, _ in found}
    return found + [(name, "ok", "") for name in _DATABASE_CHECKS if name not in names]


_DATABASE_CHECKS = ("database clock", "database rights", "database durability", "dead letters", "incomplete calls")
_DURABLE = {"fsync": "failed", "full_page_writes": "failed", "synchronous_commit": "warning"}
"""Settings that keep what was committed when the machine fails. Writers say the last one themselves."""


def _look_at_record(url: str) -> list[tuple[str, str, str]]:
    from db import migrate
    from db.holes import incomplete_at, say_incomplete
    from db.letters import letters_at, say_letters

    values = migrate.settings(url, _DURABLE)
    count, last, calls = letters_at(url)
    found = []
    for name, state in _DURABLE.items():
        if values[name] == "off":
            said = f"PostgreSQL has {name} off, so a crash of its machine loses or destroys what was committed: set `{name} = on`"
            if state == "warning":
                said = f"PostgreSQL has {name} off by default; Sluice's writers say on for themselves, others that write there do not"
            found.append(("database durability", state, said))
    if incomplete := incomplete_at(url):
        found.append(("incomplete calls", "warning", say_incomplete(len(incomplete), incomplete, most=5)))
    if count:
        found.append(("dead letters", "warning", f"{say_letters(count, calls)}; the last at {last:%Y-%m-%d %H:%M:%SZ}"))
    return found


def check_identity(redis_url: str, database_url: str) -> list[str]:
    """Check that what Redis holds belongs into this database. Raises NotFit; what is away is said by the other checks."""
    import redis

    from db import migrate
    from streams import layout

    with contextlib.suppress(Unavailable, SettingsError, redis.RedisError, OSError):
        with redis.Redis.from_url(redis_url, socket_connect_timeout=5, socket_timeout=5) as client:
            there = client.get(layout.DATABASE_KEY)
        mine = _ask_database(database_url, lambda: migrate.identity(database_url))
        if isinstance(there, bytes) and mine and there.decode(errors="replace") != mine:
            raise other_database(redis_url, database_url)
    return []


def other_database(redis_url: str, database_url: str) -> NotFit:
    """Return the sentence for a Redis that holds the calls of another database."""
    from streams import layout

    return NotFit(
        f"Redis at {place(redis_url)}{urlsplit(redis_url).path} holds the calls of another database than PostgreSQL at "
        f"{place(database_url)}{urlsplit(database_url).path}, and each would get half of the other's record: correct SLUICE_REDIS_URL or "
        "SLUICE_DATABASE_URL, or give this Sluice a Redis, or a database number there, of its own. Where the other database is gone "
        f"for good: stop every process, then `DEL {layout.DATABASE_KEY}` there (docs/operations.md)"
    )


def check_keys(config: Config, database_url: str) -> list[str]:
    """Check that somebody may call: a key in the file or in the database. Raises SettingsError, Unavailable."""
    if config.keys:
        return []
    from db.keys import KeyStore
    from protocol.errors import AuditUnavailable

    async def count() -> int:
        store = KeyStore.open(database_url)
        try:
            return len(await store.load())
        finally:
            await store.close()

    try:
        known = asyncio.run(count())
    except AuditUnavailable as error:
        raise Unavailable(f"PostgreSQL at {place(database_url)} does not answer: {error.message}") from None
    if not known:
        raise SettingsError("there are no API keys, so nobody could call: make one with `sluice keys create --name dev`")
    return []


def migrate_database(url: str, passwords: Mapping[str, str] | None = None) -> None:
    """Bring the database to the newest migration, and make the logins that have a password. Raises Unavailable or NotFit."""
    from db import migrate

    _ask_database(url, lambda: migrate.upgrade(url, passwords=passwords))


def is_migrated(url: str) -> bool:
    """Say whether the database stands at the newest migration. Raises Unavailable."""
    from db import migrate

    return bool(_ask_database(url, lambda: migrate.is_current(url)))


def check_all(
    config: Config, redis_url: str, database_url: str, *, live: bool = True, search_path: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """Run every check; return (what, `ok` or `warning` or `failed`, sentence). `live`: also those of a running product."""
    checks: list[tuple[str, Callable[[], list[str]]]] = [
        ("redis", lambda: check_redis(redis_url)),
        ("database", lambda: check_database(database_url)),
        ("identity", lambda: check_identity(redis_url, database_url)),
        ("keys", lambda: check_keys(config, database_url)),
    ]
    found = [_name_set(config, search_path)]
    for name, check in checks:
        try:
            warnings = check()
        except StartError as error:
            found.append((name, "failed", str(error)))
        else:
            found += [(name, "warning", sentence) for sentence in warnings] or [(name, "ok", "")]
    if live:
        # what is away was said above
        with contextlib.suppress(StartError):
            found += _look_at_redis(config, redis_url)
        with contextlib.suppress(StartError):
            found += check_database_live(database_url)
    return found


def _name_set(config: Config, search_path: Sequence[str]) -> tuple[str, str, str]:
    try:
        return "policy set", "ok", f"of this configuration and these policies: {policy_set(config, search_path)}"
    except SettingsError as error:
        return "policy set", "warning", str(error)


def without_shared_rights(found: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """What was found, for the servers of `sluice up`, where one user for all processes is no oversight."""
    said = "one user for all processes, as `sluice up` has it; compose.yaml has one for each role"
    return [(n, "ok", said) if s == "warning" and n in ("redis rights", "database rights") else (n, s, m) for n, s, m in found]


def _look_at_redis(config: Config, url: str) -> list[tuple[str, str, str]]:
    import redis

    from sluice.live import check_live

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=15) as client:
            return list(check_live(config, client))
    except (redis.RedisError, OSError) as error:
        raise Unavailable(f"Redis at {place(url)} went away ({type(error).__name__})") from None


def _ask_database(url: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ValueError as error:
        raise SettingsError(f"SLUICE_DATABASE_URL: {error}") from None
    except Exception as error:
        # the library's own sentence names host, port or what is missing, never the password
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise Unavailable(f"PostgreSQL at {place(url)} cannot be used: {said}") from error
