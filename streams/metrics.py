"""The catalogue of metrics: a line for each figure of `/metrics`. `gateway/ready_and_metrics.py`
reads the gauges; what workers count is read here.

Workers serve no HTTP. Counts lie in Redis, in one hash of each shard, and are added in the step
that ends a call: what happened in a call counts once, however often the call was taken over.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum

from streams import layout
from streams.connection import Connection


class Gauge(Enum):
    """Figures of now, each with what it says."""

    OPEN_CALLS = "Open calls"
    AUDIT_BACKLOG_ENTRIES = "Audit entries not yet in Postgres"
    DISPATCH_ENTRIES = "Calls on the dispatch streams, open and waiting"
    JUDGE_QUEUE_DEPTH = "Judge jobs waiting or running"
    JUDGE_OLDEST_WAIT_SECONDS = "Age of the oldest judge job"
    POLICY_WORKERS = "Live policy workers"
    JUDGE_JOBS_REJECTED = "Jobs on the judge queue that were not JSON"
    DEAD_LETTERS = "Records set aside, which are in no list of the audit API"
    INCOMPLETE_CALLS = (
        "Calls of which the record lacks something, or holds something else than was released"
    )
    JUDGE_WORKERS = "Live judge workers"
    AUDIT_WRITERS = "Live audit writers"
    CLOCK_AHEAD_SECONDS = (
        "How far this gateway's clock is ahead of Redis' clock; below 0 it is behind"
    )


class Count(Enum):
    """What policy workers count in calls that ended (`workers/call_totals.py`), and how many debug
    lines an audit writer knows to be lost."""

    TOOL_CALLS_BLOCKED = (
        "Tool calls with the verdict block, of calls that ended; the same at all gateways"
    )
    TOOL_CALLS_UNREAD = (
        "Tool calls with arguments that no rule could look at, of calls that ended; the same at all"
        " gateways"
    )
    SEALED_ANSWERS = (
        "Answers with fields that only the provider can read, of calls that ended; the same at all"
        " gateways"
    )
    DEBUG_LOST = (
        "Lines of debug logs that were made and did not come to Postgres; the same at all gateways"
    )


def metric(measure: Gauge | Count) -> str:
    """Return the name at `/metrics`, without the ending of counters."""
    return f"sluice_{measure.name.lower()}"


def pack(counts: Mapping[Count, int]) -> str:
    """Return the counts of a call as the script of its end takes them."""
    return " ".join(f"{count.name} {number}" for count, number in counts.items() if number)


async def read(redis: Connection, shards: int) -> dict[Count, int]:
    """Return what was counted until now. Raises StreamConnectionLost, RedisError."""
    totals = Counter[bytes]()
    for shard in range(shards):
        fields = await redis.call("HGETALL", layout.counts_key(shard))
        totals.update(dict(zip(fields[::2], map(int, fields[1::2]), strict=True)))
    totals[Count.DEBUG_LOST.name.encode()] = int(
        await redis.call("GET", layout.debug_lost_key()) or 0
    )
    return {count: totals[count.name.encode()] for count in Count}
