"""The connection by which an audit writer reaches the record: opened when needed and again after a
failure, and given up when its server is silent. Must not know: tables, records.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.pq.abc import PGresult

from db.connections import conninfo, cut
from db.write.packing import Packed, PackedDumper
from db.write.pipeline import Pipeline, Statement
from protocol.errors import AuditUnavailable

STATEMENT_TIMEOUT_MS = 30_000
SILENT_S, LONGEST_SILENT_S = 10.0, 40.0
"""A batch without an answer for so long is given up with its connection: a network or a server that
is gone says nothing. Each time the next batch gets twice the time, past the server's own statement
timeout, so that a slow server is not taken for a silent one for ever."""
T = TypeVar("T")


class AuditConnection:
    """One connection, its prepared statements, and how long to wait for its server. Not for
    concurrent use."""

    def __init__(self, database_url: str) -> None:
        self._conninfo = conninfo(database_url)
        self._connection: AsyncConnection | None = None
        self._pipeline: Pipeline | None = None
        self._silent_s = SILENT_S

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection, self._pipeline = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _number(self, statement: LiteralString, values: tuple[object, ...]) -> int:
        rows = await self._rows(statement, values)
        return int(rows[0][0]) if rows else 0

    async def _rows(
        self, statement: LiteralString, values: tuple[object, ...] | Mapping[str, object]
    ) -> list[Any]:
        try:
            return await self._answered(self._fetched(statement, values))
        except psycopg.DataError:
            raise
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise AuditUnavailable("the audit log cannot be maintained now") from error

    async def _fetched(
        self, statement: str, values: Sequence[object] | Mapping[str, object]
    ) -> list[Any]:
        connection = await self._connected()
        return await (await connection.execute(statement, values)).fetchall()

    async def _run(self, transactions: list[list[Statement]]) -> list[list[PGresult]]:
        """The same as `_answered` for the pipeline, which may be cancelled and closed at any time:
        without a task, 30 us less a batch."""
        assert self._connection is not None and self._pipeline is not None
        connection, is_silent = self._connection, False

        def give_up() -> None:
            nonlocal is_silent
            is_silent = True
            cut(connection)

        clock = asyncio.get_running_loop().call_later(self._silent_s, give_up)
        try:
            results = await self._pipeline.run(transactions)
        except BaseException:
            if is_silent:
                self._silent_s = min(2 * self._silent_s, LONGEST_SILENT_S)
            raise
        finally:
            clock.cancel()
        # not after an error: what a slow server refuses at once says nothing of how long it takes
        # for the rest
        self._silent_s = SILENT_S
        return results

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """Do some work on the connection; without an answer in time the connection is cut, and the
        work fails with it."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            done, _ = await asyncio.wait({task}, timeout=self._silent_s)
            self._silent_s = SILENT_S if done else min(2 * self._silent_s, LONGEST_SILENT_S)
        finally:
            if not task.done():
                # not cancelled: the driver would then ask the server to cancel, and wait for its
                # answer
                if self._connection is not None:
                    cut(self._connection)
                # whoever is cancelled closes the connection next, and under a pipeline that still
                # reads the driver crashes the process
                await asyncio.wait({task})
        return await task

    async def _connected(self) -> AsyncConnection:
        if self._connection is None or self._connection.closed:
            # a commit that is announced is on disk, and a redaction is seen, whatever the defaults
            # of server, database and login
            level = "-c default_transaction_isolation=read\\ committed"
            options = (
                f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c timezone=UTC -c"
                f" synchronous_commit=on {level}"
            )
            self._connection = await AsyncConnection.connect(
                self._conninfo, autocommit=True, options=options
            )
            self._connection.adapters.register_dumper(Packed, PackedDumper)
            self._pipeline = Pipeline(self._connection)
        return self._connection
