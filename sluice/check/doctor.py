"""Checks that a process has what it needs, and that it is fit for use. Each fault is one sentence
that says what to do.

Runs before a process starts and in `sluice doctor`. Checks of a running product are in
`streams.health` and `sluice.check.live` (Redis), and in `db.state.health` and
`sluice.check.live_database`: a new one is a function and a line in a list there. Heavy libraries
are imported where they are used: a start must be quick."""

import asyncio
import contextlib
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from protocol.errors import PolicyFailed
from settings.config import Config, Key
from sluice.check.check import counts, unknown_policies, warnings
from sluice.check.policy_check import expanded, passes_everything
from sluice.check.store_check import TITLES, WITHIN_S, Checked, StoreCheck
from sluice.errors import NotFit, SettingsError, Unavailable
from sluice.policy_set_name import policy_set
from sluice.settings import place
from streams import fitness

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
_LIBRARIES = (
    "redis",
    "db.keys",
    "db.migrations.migrate",
    "db.seals.stalled_retention",
    "sluice.check.live",
    "sluice.check.live_database",
)
"""What the checks import."""
_REMEDY = (
    "print the ACL file anew with deploy/redis/redis-users and `ACL LOAD` it (it has `user default"
    " off resetpass ~* &* +@all`, as whom nobody can log in), or use Valkey 9.1.2 or later"
)


def check_redis(url: str) -> list[str]:
    """Return warnings about the Redis at `url`. Raises Unavailable when it is away, NotFit when it
    may lose what is kept in it."""
    import redis

    refusal = ""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            try:
                client.ping()
            except redis.ResponseError as error:
                # its answer to every command that could write while it cannot write its file; INFO
                # works all the same
                if not (refusal := str(error)).startswith("MISCONF"):
                    raise
            try:
                info = client.info()
            except redis.exceptions.NoPermissionError:
                info = {}
            assert isinstance(info, dict)
            loses = _loses_at_a_restart(client, info)
    except redis.AuthenticationError:
        raise Unavailable(
            f"Redis at {place(url)} refuses the user or password: correct SLUICE_REDIS_URL"
        ) from None
    except redis.exceptions.BusyLoadingError:
        raise Unavailable(
            f"Redis at {place(url)} is still loading its data: try again when it is done"
        ) from None
    except (redis.RedisError, OSError, ValueError) as error:
        raise Unavailable(
            f"Redis at {place(url)} does not answer ({type(error).__name__}): start it or correct"
            " SLUICE_REDIS_URL"
        ) from None
    return _check_info(info, place(url), refusal, loses)


def _loses_at_a_restart(client: "redis.Redis", info: Mapping[str, object]) -> str:
    """Return why this Redis would drop transactions while it loads its append-only file, as what
    follows "Redis"; empty: it would not."""
    import redis

    from sluice.check.rights import LOADS

    if not info or fitness.loads_freely(info):
        return ""
    with client.pipeline(transaction=False) as pipe:
        for command in LOADS:
            pipe.execute_command("ACL", "DRYRUN", "default", *command)  # type: ignore[no-untyped-call]
        answers = pipe.execute(raise_on_error=False)
    if any(isinstance(answer, redis.ResponseError) for answer in answers):
        return (
            "may lose its backlog at a restart, and this user may not ask (`ACL DRYRUN`):"
            f" {_REMEDY}"
        )
    if any(answer not in (b"OK", "OK", True) for answer in answers):
        return (
            "loses its backlog at a restart, as the user `default` may not load all of the"
            f" append-only file: {_REMEDY}"
        )
    return ""


def _check_info(
    info: Mapping[str, object], where: str, refusal: str = "", loses: str = ""
) -> list[str]:
    faults = fitness.faults_of(info) if info else []
    faults += [loses] if loses else []
    if refusal and not any("refuses writes" in fault for fault in faults):
        faults.append(f"refuses writes ({refusal}): make room on its disk, then see its log")
    if faults:
        raise NotFit(f"Redis at {where} {'; it '.join(faults)}")
    if not info:
        return [
            "Redis does not let this user see INFO: make sure that it has `appendonly yes` and"
            " `maxmemory-policy noeviction`"
        ]
    messages = [f"Redis at {where} {warning}" for warning in fitness.warnings_of(info)]
    if not int(str(info.get("maxmemory", 0))):
        messages.append(
            "Redis has no maxmemory: set one, so that new calls are refused before the machine runs"
            " out of memory"
        )
    return messages


def check_database(url: str) -> list[str]:
    """Check that PostgreSQL answers and stands at the newest migration, or a newer one. Raises
    Unavailable or NotFit."""
    from db.migrations import migrate

    revision = _revision(url)
    if revision is None:
        raise NotFit(f"the database at {place(url)} is not set up: run `sluice migrate`")
    if revision > (head := migrate.head()):
        return [
            f"the database at {place(url)} stands at migration {revision}, this Sluice knows {head}:"
            " bring it up to the others' version"
        ]
    if revision != head:
        raise NotFit(
            f"the database at {place(url)} stands at migration {revision}, this Sluice needs {head}:"
            " run `sluice migrate`"
        )
    return _check_pooler(url)


def _revision(url: str) -> str | None:
    """Return at which migration the database stands; None: it was never migrated. Raises
    Unavailable, and NotFit for one from before the first release."""
    from db.migrations import migrate
    from db.migrations.place import is_before_release

    revision = _ask_database(url, lambda: migrate.current(url))
    if revision and is_before_release(revision):
        raise NotFit(
            f"the database at {place(url)} was made by a Sluice before 0.2.0, the first release,"
            " and cannot be brought up to this one: begin with a new one (`make up"
            " DATA_DIR=FOLDER` with another folder, or an empty database in SLUICE_DATABASE_URL),"
            " and export the old record with the version that made it (`sluice audit export`)"
        )
    return revision


def _check_pooler(url: str) -> list[str]:
    """Check that the settings with which Sluice connects reach the server. Raises NotFit where a
    reported commit may be lost."""
    from db.state import server

    holds, commit = _ask_database(url, lambda: server.startup_options(url))
    if holds:
        return []
    ignored = (
        f"a pooler at {place(url)} ignores the settings with which Sluice connects"
        " (ignore_startup_parameters = options)"
    )
    if commit not in ("on", "remote_apply"):
        raise NotFit(
            f"{ignored}, and synchronous_commit is {commit} there, so that a crash of the server"
            " loses what was recorded: connect to PostgreSQL itself, or set it with `ALTER ROLE"
            " ... SET synchronous_commit = on` (docs/run/operations.md#poolers)"
        )
    return [
        f"{ignored}: timeouts of statements do not hold. Connect to PostgreSQL itself, or see"
        " docs/run/operations.md#poolers"
    ]


def check_database_live(url: str) -> list[Checked]:
    """Make every check of `sluice.check.live_database`; like `check_all`. Nothing of a database
    that is not set up, which `check_all` reports."""
    from db.migrations import migrate, schema
    from sluice.check.live_database import CHECKS

    if (_ask_database(url, lambda: migrate.current(url)) or "") < schema.FIRST:
        return []
    outcomes = []
    for name, check in CHECKS.items():
        results = _ask_database(url, functools.partial(check, url))
        outcomes += [(name, state, sentence) for state, sentence in results or [("ok", "")]]
    return outcomes


def check_retention(config: Config, url: str) -> list[Checked]:
    """Do old rows go? Like `check_all`."""
    from db.migrations import migrate
    from db.seals.stalled_retention import standing

    if _ask_database(url, lambda: migrate.current(url)) != migrate.head():
        return []
    sentences = _ask_database(url, lambda: standing(url, config.retention.days))
    return [("retention", "warning", sentence) for sentence in sentences] or [
        ("retention", "ok", "")
    ]


def check_identity(redis_url: str, database_url: str) -> list[str]:
    """Check that Redis and the database belong together. Raises NotFit; what is away is reported by
    the other checks."""
    fault = not_ours(redis_url, database_url)
    if fault is not None:
        raise fault
    return []


def not_ours(redis_url: str, database_url: str) -> NotFit | None:
    """Return the sentence for a Redis and a database that do not belong together; None where they
    do, or one of them is away."""
    import redis

    from db.migrations import migrate
    from db.migrations.primaries import SECOND
    from streams import layout

    at = (
        f"Redis at {place(redis_url)}{urlsplit(redis_url).path}",
        f"PostgreSQL at {place(database_url)}{urlsplit(database_url).path}",
    )
    with contextlib.suppress(Unavailable, SettingsError, redis.RedisError, OSError):
        with redis.Redis.from_url(redis_url, socket_connect_timeout=5, socket_timeout=5) as client:
            there, number = (
                client.get(layout.DATABASE_KEY),
                layout.primary_number(client.get(layout.PRIMARY_KEY)),
            )
            run_id = layout.run_id(
                client.info("server")["run_id"], client.get_connection_kwargs().get("db") or 0
            )
        identity = _ask_database(database_url, lambda: migrate.identity(database_url))
        if isinstance(there, bytes) and identity and there.decode(errors="replace") != identity:
            return NotFit(
                f"{at[0]} holds the calls of another database than {at[1]}, and each would get half"
                " of the other's record: correct SLUICE_REDIS_URL or SLUICE_DATABASE_URL, or give"
                " this Sluice a Redis, or a database number there, of its own. Where the other"
                f" database is gone for good: stop every process, then `DEL {layout.DATABASE_KEY}`"
                " there (docs/run/operations.md)"
            )
        seen = _ask_database(
            database_url, lambda: migrate.primary_seen(database_url, number, run_id)
        )
        if seen == SECOND:
            return NotFit(
                f"{at[1]} is in use by another Sluice, which has another Redis than"
                f" {place(redis_url)}: both would share its keys, policy names and retention. Let"
                " SLUICE_DATABASE_URL lead to a database of this Sluice's own, or SLUICE_REDIS_URL"
                " to the other's Redis (docs/run/operations.md)"
            )
        if seen is None:
            return NotFit(
                f"{at[0]} is an old primary: a later one holds the calls of this database. Let"
                " SLUICE_REDIS_URL lead to that one and stop what is still on the old one"
                " (docs/run/operations.md)"
            )
    return None


def check_keys(config: Config, database_url: str) -> list[str]:
    """Check that somebody may call: a key in the file or in the database; return warnings about
    those that name policies which there are not. Raises SettingsError, Unavailable."""
    from db.keys import KeyStore
    from protocol.errors import AuditUnavailable

    async def load() -> list[Key]:
        store = KeyStore.open(database_url)
        try:
            return await store.load()
        finally:
            await store.close()

    try:
        known = asyncio.run(load())
    except AuditUnavailable as error:
        if config.keys:
            # somebody may call; the check of the database reports that it is away
            return []
        raise Unavailable(
            f"PostgreSQL at {place(database_url)} does not answer: {error.message}"
        ) from None
    if not known and not config.keys:
        raise SettingsError(
            "there are no API keys, so nobody could call: make one with `sluice keys create --name"
            " dev`"
        )
    return unknown_policies(config, known)


def migrate_database(
    url: str, passwords: Mapping[str, str] | None = None, *, retains: bool | None = None
) -> None:
    """Bring the database to the newest migration, and make the logins that have a password. Raises
    Unavailable or NotFit."""
    from db.migrations import migrate

    revision, head = _revision(url), migrate.head()
    if revision is not None and revision > head:
        raise NotFit(
            f"the database at {place(url)} stands at migration {revision}, made by a newer Sluice;"
            f" this one knows {head} and cannot take it back: use the newer one, or bring back a"
            " backup of the database from before it"
        )
    _ask_database(url, lambda: migrate.upgrade(url, passwords=passwords, retains=retains))


def check_all(
    config: Config,
    redis_url: str,
    database_url: str,
    *,
    live: bool = True,
    search_path: Sequence[str] = (),
    progress: Callable[[str], None] = lambda line: None,
) -> list[Checked]:
    """Run every check. `live`: also those of a running product. `progress` gets a line before what
    may take a while."""
    for name in _LIBRARIES:
        # imported by two threads at once, each could get half of it
        importlib.import_module(name)
    checks: dict[str, Callable[[], list[str]]] = {
        "redis": lambda: check_redis(redis_url),
        "database": lambda: check_database(database_url),
        "identity": lambda: check_identity(redis_url, database_url),
        "keys": lambda: check_keys(config, database_url),
    }
    looks: dict[str, Callable[[], list[Checked]]] = {
        "redis": lambda: _look_at_redis(config, redis_url, database_url),
        "database": lambda: [
            *check_database_live(database_url),
            *check_retention(config, database_url),
        ],
    }
    progress("asking Redis and PostgreSQL ...")
    until = time.monotonic() + WITHIN_S
    asked = {
        name: StoreCheck(name, check, looks.get(name) if live else None)
        for name, check in checks.items()
    }
    # meanwhile, as this needs none of both
    outcomes = [
        *_configuration(config),
        _name_set(config, search_path),
        *_try_policies(config, search_path),
    ]
    for probe in asked.values():
        probe.wait_for_answer(until, lambda late: progress(f"{late} has not answered yet ..."))
    outcomes += [result for probe in asked.values() for result in probe.answer()]
    for name in looks if live else ():
        if asked[name].has_answered:
            progress(f"looking at what runs, by what {TITLES[name]} holds ...")
            outcomes += asked[name].look()
    return outcomes


def summary(counts: Mapping[str, int]) -> str:
    """Return in one line how many checks ended how."""
    named = [
        f"{counts['failed']} failed",
        f"{counts['warning']} warning{'s' if counts['warning'] != 1 else ''}",
        f"{counts['ok']} ok",
    ]
    advice = (
        ""
        if not counts["failed"] and not counts["warning"]
        else ": each line that is not `ok` says what to do"
    )
    return f"{sum(counts.values())} checks: {', '.join(named)}{advice}"


def _configuration(config: Config) -> list[Checked]:
    """What a configuration without mistakes makes of itself: series that decide nothing, judges and
    keys that are not there."""
    warned = [finding.sentence for finding in warnings(config) if finding.level == "warning"]
    return [("configuration", "warning", sentence) for sentence in warned] or [
        ("configuration", "ok", counts(config))
    ]


def _try_policies(config: Config, search_path: Sequence[str]) -> Iterator[Checked]:
    """Let each series decide about a tool call and a text, as it would for a client: a hook that
    fails blocks whatever it is given."""
    from policy.loading import check_series, make
    from sluice.check.trial import try_call, try_text

    is_well = True
    for name, steps in config.policies.items():
        try:
            tried = (
                try_call(config, name, "bash", '{"command": "ls"}', search_path=search_path),
                try_text(config, name, "Hello.", search_path=search_path),
            )
            check_series(name, [make(step, search_path=search_path) for step in expanded(steps)])
            outcomes = [
                ("warning", f"a hook of the policies {name!r} fails, which blocks: {trial.fault}")
                for trial in tried
                if trial.fault
            ]
            if name == "default" and passes_everything(steps, search_path):
                outcomes.append(
                    ("warning", "the policies 'default' can block nothing: EVERYTHING PASSES")
                )
        except PolicyFailed as error:
            outcomes = [("failed", error.message)]
        for state, sentence in outcomes:
            is_well = False
            yield "policies", state, sentence
    if is_well:
        yield "policies", "ok", ""


def _name_set(config: Config, search_path: Sequence[str]) -> Checked:
    try:
        return (
            "policy set",
            "ok",
            f"of this configuration and these policies: {policy_set(config, search_path)}",
        )
    except SettingsError as error:
        return "policy set", "warning", str(error)


def without_shared_rights(checks: list[Checked]) -> list[Checked]:
    """What was found, for the servers of `sluice up`, where one user for all processes is no
    oversight."""
    message = (
        "one user for all processes, as `sluice up` has it; compose.yaml has one for each role"
    )
    return [
        (
            (n, "ok", message)
            if s == "warning" and n in ("redis rights", "database rights")
            else (n, s, m)
        )
        for n, s, m in checks
    ]


def _look_at_redis(config: Config, url: str, database_url: str) -> list[Checked]:
    import redis

    from sluice.check.live import check_live

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            return list(check_live(config, client, database_url))
    except (redis.RedisError, OSError) as error:
        raise Unavailable(f"Redis at {place(url)} went away ({type(error).__name__})") from None


def _ask_database(url: str, ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ValueError as error:
        raise SettingsError(f"SLUICE_DATABASE_URL: {error}") from None
    except Exception as error:
        # the library's own sentence names host, port or what is missing, never the password
        message = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        if "the database system is shutting down" in message:
            # after SIGTERM it refuses new clients and waits for those it has, ours among them
            message = (
                "it was told to shut down and waits for its clients: end it with `pg_ctl stop -m"
                " fast`, then start it"
            )
        if "unsupported startup parameter" in message:
            message += (
                "; a pooler (PgBouncer) stands before it: connect to PostgreSQL itself, or see"
                " docs/run/operations.md#poolers"
            )
        raise Unavailable(f"PostgreSQL at {place(url)} cannot be used: {message}") from error
