"""Advisory locks of PostgreSQL: whoever holds one does alone what it is for. Functions of the
database have the numbers in their text."""

from typing import Final

MIGRATION_LOCK: Final = 7_310_581_201
PARTITIONS_LOCK: Final = 7_310_581_202
SEAL_LOCK: Final = 7_310_581_203
DEBUG_LINES_LOCK: Final = 7_310_581_205
READS_LOCK: Final = 7_310_581_206
USAGE_LOCK: Final = 7_310_581_207
"""Makes the rows of an hour."""
USAGE_TURN_LOCK: Final = 7_310_581_208
"""Sees to it that there are such rows."""
RETENTION_LOCK: Final = 7_310_581_211
"""Takes old rows away."""
SHED_LOCK: Final = 7_310_581_212
"""Takes those of one table away, in the function of the database that does it."""
