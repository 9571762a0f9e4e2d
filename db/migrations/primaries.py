"""Which primary of Redis holds the calls of this database: counted here, because only here all
processes meet after a failover.

Each time Redis has another run id (a restart, a promoted replica) the next audit writer that looks
counts one up and writes the number to Redis. So an old primary that goes on beside the promoted
replica holds a lower number. It may count up too once no writer has looked at the newer one for
`SILENT_S`: that one is gone, and somebody went back. A Redis that knows no number, while a writer
has just looked at another, belongs to a second Sluice on this database: its keys, retention and
record would be mixed with the first one's, so it is refused. The function `sluice_hold_redis` has
the same numbers in its text. Must not know: connections, Redis.
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
_IS_SECOND = (
    "known IS NULL AND mine NOT IN ('', redis_run_id) AND redis_seen_at > now() - interval"
    f" '{IN_USE_S} s'"
)
COUNTED: LiteralString = (
    "SELECT id::text AS database, sluice_hold_redis(%s, %s) AS number FROM identity"
)
"""Asked by who counts: with the number that Redis knows, and its run id. The number is NULL where a
later primary is held, `SECOND` for that of a second Sluice. 0: it is not counted, for Redis does
not say its run id, or is empty and the one that is held was in use lately.
"""
SEEN: LiteralString = f"""
SELECT id::text AS database, CASE WHEN redis_number > known AND redis_run_id <> mine THEN NULL
    WHEN {_IS_SECOND} THEN {SECOND} ELSE 0 END
    AS number FROM identity, (SELECT %s::bigint AS known, %s::text AS mine) asked
"""
"""Asked by who only reads: the same."""
