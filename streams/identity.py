"""Whether this Redis is the one that holds the calls of this process's database.

Redis and the database both know the database's id. The first process that comes writes it to Redis;
a process that finds another id there does nothing more with it, or each of two instances would keep
half of the record. A Redis that lost its keys is claimed again by the next check.

Both also know the number of Redis' primary (`db.migrations.primaries`). After a failover an old
primary may go on, with some processes on it: its number is lower than the database's. A process
that finds that stops using it and marks it. Workers, most of which have no database, read the mark
with their heartbeats and end; a gateway connects anew. Must not know: how the database is asked.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.errors import AuditUnavailable, OldPrimary, OtherDatabase
from streams import layout
from streams.connection import Connection, RedisError

log = logging.getLogger(__name__)
CHECK_S = 1.0
"""How old what is known may be."""
SETTLE_S = 12.0
"""Longer than the database takes another Redis to be in use after a writer looked at it."""
LEAVE_S = 5.0
"""How often a process on an old primary connects anew."""
_SECOND = (
    "another Sluice uses this process's database, from another Redis: both would share its keys,"
    " policy names and retention; give each a database of its own"
)
_OLD = (
    "this Redis is an old primary: a later one holds the calls of this database; let"
    " SLUICE_REDIS_URL lead to that one"
)


Ask = Callable[[int | None, str], Awaitable[tuple[str, int | None]]]
"""Gets the number that a Redis knows and its run id. Returns the database's id, empty where it has
none yet, and the number of this primary: None where a later one is held, 0 where it is not counted,
less for the Redis of a second Sluice. Raises AuditUnavailable."""


class Identity:
    """What is known about both. `leave` is called when this Redis is an old primary: to break
    connections, which are then made anew."""

    def __init__(
        self, redis: Connection, ask: Ask, leave: Callable[[], None] = lambda: None
    ) -> None:
        self._redis, self._ask, self._leave = redis, ask, leave
        self._database_id: str | None = None
        self._is_old = self._is_second = self._was_right = False
        self._checked = self._left = float("-inf")
        self.fault = ""
        """What is wrong, as a sentence; empty when nothing is, or it is not known."""

    def check(self) -> None:
        """Raise OtherDatabase or OldPrimary where it is known that this Redis holds another's
        calls, or is an old primary."""
        if self._is_old:
            raise OldPrimary(self.fault)
        if self.fault:
            raise OtherDatabase(self.fault)

    async def holds(self) -> bool:
        """Does what Redis holds belong into the database? Asks no more often than `CHECK_S`.

        Raises AuditUnavailable while the database's id is not known, StreamConnectionLost,
        RedisError.
        """
        if time.monotonic() - self._checked > CHECK_S:
            known, run_id = await self._primary()
            try:
                self._database_id, number = await self._ask(known, run_id)
            except AuditUnavailable:
                # away again: it was this one when it was last there
                if self._database_id is None:
                    raise
            else:
                if number is None and (known, run_id) != await self._primary():
                    # Redis was started again meanwhile: the answer is about the one before
                    return not self.fault
                # a Redis that was right before has lost its data
                self._is_old, self._is_second = (
                    number is None,
                    number is not None and number < 0 and not self._was_right,
                )
                if number not in (0, known) and (number is None or number > 0):
                    await self._write(layout.old_primary(known) if number is None else str(number))
            self._note(await self._there() if self._database_id else "")
            self._was_right |= bool(self._database_id and not self.fault)
            self._checked = time.monotonic()
            if self._is_old and self._checked - self._left > LEAVE_S:
                self._left = self._checked
                self._leave()
        return not self.fault

    async def settle(self) -> None:
        """Wait, at the start of a process, until it is known whether a second Sluice is there, or
        Redis was started anew without its data.

        Raises as `holds` does.
        """
        until = time.monotonic() + SETTLE_S
        while self._is_second and time.monotonic() < until:
            await asyncio.sleep(CHECK_S)
            await self.holds()

    @property
    def is_due(self) -> bool:
        """Must `holds` be asked again? Asked before each batch, of which many come in a second."""
        return bool(self.fault) or time.monotonic() - self._checked > CHECK_S

    def look_anew(self) -> None:
        """Believe nothing that is known of Redis: it may be another than before."""
        self._checked = float("-inf")

    async def _primary(self) -> tuple[int | None, str]:
        """The number that Redis knows, and what tells it from others: empty where Redis does not
        say."""
        try:
            stored_number, info = await asyncio.gather(
                self._redis.call("GET", layout.PRIMARY_KEY), self._redis.call("INFO", "server")
            )
        except RedisError:
            return None, ""
        run_id = re.search(rb"^run_id:(\w+)", info, re.MULTILINE)
        return (
            (
                layout.primary_number(stored_number),
                layout.run_id(run_id[1].decode(), self._redis.database),
            )
            if run_id
            else (None, "")
        )

    async def _write(self, number: str) -> None:
        # one that is full takes no key
        with contextlib.suppress(RedisError):
            await self._redis.call("SET", layout.PRIMARY_KEY, number)

    async def _there(self) -> str:
        assert self._database_id is not None
        stored_id: bytes | None = await self._redis.call("GET", layout.DATABASE_KEY)
        if stored_id is None:
            # one that is full takes no key, and is nobody else's
            with contextlib.suppress(RedisError):
                stored_id = await self._redis.call(
                    "SET", layout.DATABASE_KEY, self._database_id, "NX", "GET"
                )
        return self._database_id if stored_id is None else stored_id.decode(errors="replace")

    def _note(self, there: str) -> None:
        is_other = there != self._database_id if self._database_id else False
        fields: dict[str, Any] = {
            "action": "other_database",
            "redis": there,
            "postgres": self._database_id,
        }
        if self._is_old and not self.fault:
            log.error(
                "Redis is an old primary: nothing is read from it; connecting anew",
                extra={"action": "old_primary"},
            )
        elif self._is_second and not self.fault:
            log.error(_SECOND, extra=fields)
        elif is_other and not self.fault:
            log.error(
                "Redis holds the calls of another database than this process's: nothing is read"
                " from it; `sluice doctor` says what to do",
                extra=fields,
            )
        elif self.fault and not (is_other or self._is_old or self._is_second):
            log.warning("Redis holds the calls of this process's database again", extra=fields)
        other = (
            f"Redis holds the calls of another database ({there[:64]}) than this process's"
            f" ({self._database_id})"
            if is_other
            else ""
        )
        self.fault = _OLD if self._is_old else _SECOND if self._is_second else other
