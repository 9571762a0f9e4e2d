"""What the record says that a key, a team or a session used, for the accounts of budgets
(`streams.budget_scripts`). Must not know: Redis.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, LiteralString
from uuid import UUID

import psycopg

from db.connections import TimedConnection, conninfo, statement_timeout_ms
from db.filters import first_id
from db.text import to_column
from protocol.errors import AuditUnavailable

ANSWER_S: Final = 30.0
"""What a sum may take: a month with a million calls of one key takes some seconds."""
_KEY_CHARS = 16
_WHERE: dict[str, LiteralString] = {
    "k": "c.key_id = %(name)s",
    "t": "c.team = %(name)s",
    "s": "c.key_id = %(name)s AND c.session = %(session)s",
}
_SUM: LiteralString = """
SELECT coalesce(sum(e.charged_tokens), 0)::bigint,
    coalesce(sum(coalesce(e.cost_nanousd, 0) + coalesce(e.judge_nanousd, 0)), 0)::bigint
FROM calls c JOIN ends e ON e.call_id = c.call_id
WHERE c.call_id >= %(low)s AND c.call_id < %(high)s AND e.call_id >= %(low)s
    AND e.call_id < %(high)s AND c.call_id <> ALL (%(but)s) AND """
Used = Callable[[str, int, int, Collection[str]], Awaitable[tuple[int, int]]]
"""What a subject used, in tokens and nano-dollars: its name
(`budget_scripts.BudgetAccount.subject`), from when on and until when calls began (Unix ms; until 0:
now), and calls that do not count."""


@asynccontextmanager
async def moment(database_url: str) -> AsyncIterator[Used]:
    """Lend what reads the record as it is now, however long it takes. Raises AuditUnavailable."""
    options = f"-c statement_timeout={statement_timeout_ms(ANSWER_S)} -c timezone=UTC"
    try:
        connection = await TimedConnection.connect(conninfo(database_url), options=options)
        connection.answer_s = ANSWER_S
        async with connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # the moment is that of the first statement that reads
            await connection.execute("SELECT 1 FROM ends LIMIT 1")

            async def used(
                subject: str, since_ms: int, until_ms: int, but: Collection[str]
            ) -> tuple[int, int]:
                kind, name = subject[0], subject[1:]
                values = {
                    "name": to_column(name[:_KEY_CHARS] if kind == "s" else name),
                    "session": to_column(name[_KEY_CHARS:]),
                    "low": first_id(datetime.fromtimestamp(since_ms / 1000, UTC)),
                    "high": first_id(datetime.fromtimestamp(until_ms / 1000, UTC))
                    if until_ms
                    else UUID(int=2**128 - 1),
                    "but": list(map(UUID, but)),
                }
                answer = await connection.execute(_SUM + _WHERE[kind], values)
                row = await answer.fetchone()
                return (0, 0) if row is None else (int(row[0]), int(row[1]))

            yield used
    except (psycopg.Error, OSError) as error:
        raise AuditUnavailable("the record cannot be asked what was used") from error
