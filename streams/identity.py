"""Whether what this Redis holds belongs into this process's database: both know the database's id.

The first that comes writes it to Redis; who finds another one there does nothing more with it, or each of two instances would keep
half of the record. A Redis that lost its keys is claimed again by the next check. Must not know: how the database is asked.
"""

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from protocol.errors import AuditUnavailable, OtherDatabase
from streams import layout
from streams.connection import Connection, RedisError

log = logging.getLogger(__name__)
CHECK_S = 1.0
"""How old what is known of Redis may be."""
ASK_S = 5.0
"""How old what is known of the database may be."""


class Identity:
    """What is known of both. `ask` returns the id of the database, empty where it has none yet, and raises AuditUnavailable."""

    def __init__(self, redis: Connection, ask: Callable[[], Awaitable[str]]) -> None:
        self._redis, self._ask = redis, ask
        self._mine: str | None = None
        self._asked = self._checked = float("-inf")
        self.fault = ""
        """What is wrong, as a sentence; empty when nothing is, or it is not known."""

    def check(self) -> None:
        """Raise OtherDatabase where it is known that Redis holds another's."""
        if self.fault:
            raise OtherDatabase(self.fault)

    async def holds(self) -> bool:
        """Does what Redis holds belong into the database? Asks no more often than `CHECK_S` and `ASK_S`.

        Raises AuditUnavailable while the database's id is not known, StreamConnectionLost, RedisError.
        """
        now = time.monotonic()
        if now - self._asked > ASK_S:
            try:
                mine = await self._ask()
                if mine != self._mine:
                    self._mine, self._checked = mine, float("-inf")
            except AuditUnavailable:
                # away again: it was this one when it was last there
                if self._mine is None:
                    raise
            self._asked = now
        if now - self._checked > CHECK_S:
            self._note(await self._there() if self._mine else "")
            self._checked = now
        return not self.fault

    @property
    def is_due(self) -> bool:
        """Must `holds` be asked again? Asked before each batch, of which many come in a second."""
        return bool(self.fault) or time.monotonic() - self._checked > CHECK_S

    def look_anew(self) -> None:
        """Believe nothing that is known of Redis: it may be another than before."""
        self._checked = float("-inf")

    async def _there(self) -> str:
        assert self._mine is not None
        found: bytes | None = await self._redis.call("GET", layout.DATABASE_KEY)
        if found is None:
            # one that is full takes no key, and is nobody else's
            with contextlib.suppress(RedisError):
                found = await self._redis.call("SET", layout.DATABASE_KEY, self._mine, "NX", "GET")
        return self._mine if found is None else found.decode(errors="replace")

    def _note(self, there: str) -> None:
        is_other = there != self._mine if self._mine else False
        if is_other and not self.fault:
            log.error(
                "Redis holds the calls of another database than this process's: nothing is read from it; `sluice doctor` says what to do",
                extra={"action": "other_database", "redis": there, "postgres": self._mine},
            )
        elif self.fault and not is_other:
            log.warning("Redis holds the calls of this process's database again", extra={"action": "other_database"})
        self.fault = f"Redis holds the calls of another database ({there[:64]}) than this process's ({self._mine})" if is_other else ""
