"""Readers' labels of decisions: right, wrong, unsure or always, with a sentence. Append-only; the
newest of a block counts. Never sealed.

`always` also changes what is decided from then on: an admin allows such a call of this key and
project (`db.state.polling`), until the block has another label.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args
from uuid import UUID

from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncEngine

from db.engine import reading
from db.models import Label
from db.read.json_rows import JsonObject, time
from db.text import from_column, to_column
from protocol.errors import Forbidden, InvalidRequest, NotFound

Word = Literal["right", "wrong", "unsure", "always"]
WORDS: tuple[Word, ...] = get_args(Word)
ALWAYS: Word = "always"
MAX_NOTE_CHARS = 2_000
MAX_LABELS = 100
"""Of one block by one key: nobody has the last word by saying much."""
_KNOWN = text("""
SELECT EXISTS (SELECT FROM tool_calls WHERE call_id = :call AND block = :block)
    OR EXISTS (SELECT FROM blocks WHERE call_id = :call AND block = :block)
    OR EXISTS (SELECT FROM judgements WHERE call_id = :call AND block = :block),
    (SELECT count(*) FROM labels WHERE call_id = :call AND block = :block AND key_id = :key_id),
    EXISTS (SELECT FROM events WHERE call_id = :call AND number = :block AND kind = 'asked')
""")
_NEWEST = text("""
SELECT DISTINCT ON (l.call_id, l.block) l.call_id, l.block, l.label, l.note, l.key, l.at
    FROM labels l
JOIN unnest(CAST(:calls AS uuid[]), CAST(:blocks AS integer[])) AS asked (call_id, block)
    ON l.call_id = asked.call_id AND l.block = asked.block
ORDER BY l.call_id, l.block, l.at DESC
""")


class Labels:
    """Stores labels and finds them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(
        self,
        call_id: UUID,
        block: int,
        label: str,
        note: str,
        *,
        key: str,
        key_id: str,
        admin: bool,
    ) -> None:
        """Store a label; it is durable when this returns. Raises InvalidRequest, Forbidden,
        NotFound, AuditUnavailable."""
        if label == ALWAYS and not admin:
            raise Forbidden("only keys with the role admin may allow calls for good")
        if label not in WORDS:
            raise InvalidRequest(f"must be one of {', '.join(WORDS)}", param="label")
        if len(note) > MAX_NOTE_CHARS:
            raise InvalidRequest(f"longer than {MAX_NOTE_CHARS:,} characters", param="note")
        values: dict[str, Any] = {
            "call_id": call_id,
            "block": block,
            "key": to_column(key),
            "key_id": key_id,
            "label": label,
        }
        async with reading(self._engine) as connection:
            is_known, before, was_asked = (
                await connection.execute(
                    _KNOWN, {"call": call_id, "block": block, "key_id": key_id}
                )
            ).one()
            if not is_known:
                raise NotFound(f"this call has no decision on a block {block}", param="block")
            if label == ALWAYS and not was_asked:
                raise InvalidRequest(
                    "only what a rule asked about, in a project that was named, can be allowed for"
                    " good",
                    param="label",
                )
            if before >= MAX_LABELS:
                raise InvalidRequest(f"has {MAX_LABELS} labels of this key already", param="block")
            await connection.execute(insert(Label).values(**values, note=to_column(note.strip())))
            await connection.commit()

    async def newest(
        self, places: Iterable[tuple[UUID, int]]
    ) -> dict[tuple[UUID, int], JsonObject]:
        """Return the newest label of each of these blocks of calls, where there is one."""
        asked = list(places)
        if not asked:
            return {}
        async with reading(self._engine) as connection:
            rows = await connection.execute(
                _NEWEST,
                {"calls": [call for call, _ in asked], "blocks": [block for _, block in asked]},
            )
            return {
                (row.call_id, row.block): {
                    "label": row.label,
                    "note": from_column(row.note),
                    "key": from_column(row.key),
                    "at": time(row.at),
                }
                for row in rows
            }
