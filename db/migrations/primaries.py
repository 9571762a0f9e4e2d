"""Which primary of Redis holds the calls of this database: counted here, because only here all processes meet after a failover.

Each time Redis has another run id (a restart, a promoted replica) the next audit writer that looks counts one up and writes the number to
Redis. So an old primary that goes on beside the promoted replica holds a lower number. It may count up too once no writer has looked at
the newer one for `SILENT_S`: that one is gone, and somebody went back. A Redis that knows no number, while a writer has just looked at
another, belongs to a second Sluice on this database: its keys, retention and record would be mixed with the first one's, so it is refused.
Must not know: connections, Redis.
"""

from typing import Final, LiteralString

SILENT_S: Final = 120
"""Longer than all audit writers are away when they are restarted."""
SEEN_S: Final = 5
"""How often a look is noted."""
IN_USE_S: Final = 10
"""How long after a look another Redis counts as in use."""
SECOND: Final = -1
"""What is returned for the Redis of a second Sluice."""
HOLD: Final = "sluice_hold_redis(bigint, text)"
COLUMNS = (
    "ADD COLUMN redis_number bigint NOT NULL DEFAULT 0", "ADD COLUMN redis_run_id text NOT NULL DEFAULT ''",
    "ADD COLUMN redis_seen_at timestamptz NOT NULL DEFAULT '-infinity'",
)  # fmt: skip
_IS_SECOND = f"known IS NULL AND mine NOT IN ('', redis_run_id) AND redis_seen_at > now() - interval '{IN_USE_S} s'"
_HOLD = f"""
CREATE FUNCTION sluice_hold_redis(known bigint, mine text) RETURNS bigint LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {{schema}}.identity SET redis_number = greatest(redis_number, coalesce(known, 0)) + (mine <> redis_run_id)::int,
        redis_run_id = mine, redis_seen_at = now()
    WHERE mine <> '' AND CASE WHEN mine <> redis_run_id THEN known >= redis_number OR redis_seen_at < now() - interval '{SILENT_S} s'
        ELSE known > redis_number OR redis_seen_at < now() - interval '{SEEN_S} s' END;
    SELECT CASE WHEN mine = redis_run_id THEN redis_number WHEN {_IS_SECOND} THEN {SECOND} WHEN mine = '' OR known IS NULL THEN 0 END
        FROM {{schema}}.identity
$$
"""
"""Returns the number of the primary `mine`, which Redis knows as `known`; NULL where a later one is held, `SECOND` for that of a second
Sluice. 0: it is not counted, as Redis does not say its run id, or is empty and the one that is held was in use lately."""
COUNTED: LiteralString = "SELECT id::text AS database, sluice_hold_redis(%s, %s) AS number FROM identity"
"""Asked by who counts: with the number that Redis knows, and its run id."""
SEEN: LiteralString = f"""
SELECT id::text AS database, CASE WHEN redis_number > known AND redis_run_id <> mine THEN NULL WHEN {_IS_SECOND} THEN {SECOND} ELSE 0 END
    AS number FROM identity, (SELECT %s::bigint AS known, %s::text AS mine) asked
"""
"""Asked by who only reads: the same."""


def functions(schema: str) -> list[str]:
    """Return the statements that make the function, which nobody may run until they get the right."""
    return [_HOLD.format(schema=schema), f"REVOKE ALL ON FUNCTION {HOLD} FROM PUBLIC"]
