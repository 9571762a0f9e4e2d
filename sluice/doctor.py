"""`sluice doctor`: every check of `sluice.checks` in one go, and whether anybody may call at all."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from protocol.config import Config, Runtime
from sluice import checks
from sluice.errors import SettingsError, StartError, Unavailable

State = Literal["ok", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and how it ended; `message` is what was found or what to do."""

    name: str
    state: State
    message: str


def check_keys(config: Config, database_url: str) -> str:
    """Check that somebody may call: a key in the file or in the database. Raises SettingsError, Unavailable."""
    if config.keys:
        return f"{len(config.keys)} in the configuration"
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
        raise Unavailable(f"PostgreSQL at {checks.place(database_url)} does not answer: {error.message}") from None
    if not known:
        raise SettingsError("there are no API keys, so nobody could call: make one with `sluice keys create --name dev`")
    return f"{known} in the database"


def examine(runtime: Runtime) -> list[Finding]:
    """Run every check."""

    def redis() -> str:
        facts = checks.check_redis(runtime.redis_url)
        return f"{checks.place(runtime.redis_url)}, version {facts.version or 'not told'}"

    return [
        _find("redis", redis),
        _find("database", lambda: f"{checks.place(runtime.database_url)}, migration {checks.check_database(runtime.database_url)}"),
        _find("keys", lambda: check_keys(runtime.config, runtime.database_url)),
    ]


def _find(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", check())
    except StartError as error:
        return Finding(name, "failed", str(error))
