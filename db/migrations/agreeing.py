"""The time by which something old may go, as a function of the database: the earliest of three clocks, if they agree. Since migration 0026.

A clock that is ahead makes the rows of today look old. So every function that deletes or drops rows for their age asks this one instead of
`now()`. Its caller first tells the session what its own clock and Redis' say (`db.clocks`). Where it did not, or where the clocks differ,
the answer is NULL, and nothing is older than NULL. Must not know: connections.
"""

from typing import Final

from protocol.retention import AGREE_S

SETTING: Final = "sluice.clocks"
"""What the caller's clock and Redis' say, in seconds since 1970, with a comma between them."""
NOW: Final = "now()"
"""The clock of migrations before 0026: the server's alone."""
AGREED: Final = "{schema}.sluice_agreed_now()"
FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION sluice_agreed_now() RETURNS timestamptz LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN count(*) = 3 AND max(clock.at) - min(clock.at) <= interval '{AGREE_S} seconds' THEN min(clock.at) END
    FROM (
        SELECT now() AS at
        UNION ALL SELECT to_timestamp(shown::float8) FROM unnest(string_to_array(current_setting('{SETTING}', true), ',')) shown
    ) clock
$$
"""
