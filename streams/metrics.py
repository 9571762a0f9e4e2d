"""The catalogue of metrics: a line for each figure of `/metrics`, here and nowhere else.

`Gauge` and `Count` are what every gateway shows of the whole installation. Counts lie in Redis, in
one hash of each shard, and are added in the step that ends a call: what happened in a call counts
once, however often the call was taken over. `Total`, `Span` and `Now` are what each process shows
of itself (`streams.metrics_port`): plain integers in one `ProcessFigures`, added once a call, a
batch or a decision, never once a chunk, and read at a scrape.

Labels come from bounded sets: routes, upstreams, policies and judge models of the configuration,
shards, and words of ours. Never a call, a session, a tool, a path or a client's text.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
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


class Measure(Enum):
    """A figure of one process: help, then labels."""

    # in C, not by the name: each is a key on the path of a call
    __hash__ = object.__hash__


class Total(Measure):
    """Counters of one process: help, then labels. Counted at a call's end, if not said
    otherwise."""

    CALLS = "Calls taken, at once", "dialect"
    CALLS_STARTED = "Calls that a policy worker began, at once", "route"
    CALLS_ENDED = "Calls that ended", "route", "state", "reason"
    CHUNKS_RECEIVED = "Chunks that upstreams sent; of several, to the last one", "upstream"
    CHUNKS_FORWARDED = "Chunks of what was approved", "policy"
    CHUNKS_WITHHELD = "Chunks of what was not approved", "policy", "verdict"
    CHUNKS_UNDECIDED = ("Chunks of what nobody had decided when its call ended",)
    VERDICTS = "Last verdicts on content blocks and tool calls", "policy", "kind", "verdict"
    TOKENS = "Tokens as the record has them", "route", "kind"
    TIMEOUTS = "Timers that ended a call or a request", "timer"
    REFUSED = "Requests refused before their call began, at once", "reason"
    UPSTREAM_FAILURES = (
        "Requests to upstreams that came to nothing, at once; left_alone: was not sent",
        "upstream",
        "outcome",
    )
    TAKEOVERS = ("Calls taken over from another policy worker, at once",)
    FENCED = "Calls lost to another worker or with Redis, at once", "outcome"
    JUDGEMENTS = "Answers of judges, at once", "model", "outcome"
    RECORDS_SET_ASIDE = ("Records that became dead letters, at once",)
    RECORD_CONFLICTS = ("Records that were there with other content, at once",)


class Span(Measure):
    """Durations in one process, in seconds: help, then labels."""

    FIRST_RELEASE_SECONDS = "From a call's begin to the head of its answer", "upstream"
    CALL_SECONDS = "From a call's begin to its end", "upstream"
    JUDGE_SECONDS = "A judge's answer, with all its attempts", "model"


class Now(Measure):
    """Gauges of one process: help, then labels."""

    BUILD_INFO = "Always 1", "version", "python", "role"
    UPSTREAM_STATE = "0: it is asked, 1: one request tries it, 2: it is left alone", "upstream"
    LOOP_LAG_SECONDS = ("How late the event loop was at most, in the last 15 s",)
    HELD_CALLS = ("Calls that this policy worker has",)
    RECORD_LAG_SECONDS = "Age of the oldest entry that is not on record", "shard"
    RECORD_BACKLOG_ENTRIES = "Entries of the audit stream", "shard"
    CHECKPOINT_AGE_SECONDS = ("Since this writer last looked for calls to put in a checkpoint",)
    UNSEALED_CALLS = ("Ended calls that wait for their seal at this writer",)


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms, in seconds."""
MOST_SERIES = 200
"""Of one metric in one process; what comes past it counts under the label `other`."""
Labels = tuple[str, ...]
Sample = tuple[Now, Labels, float]


def metric(measure: Enum) -> str:
    """Return the name at `/metrics`, without the ending of counters."""
    return f"sluice_{measure.name.lower()}"


class ProcessFigures:
    """What one process counts. `reads` give what is looked up at a scrape alone."""

    __slots__ = ("reads", "spans", "totals")

    def __init__(self) -> None:
        self.totals = defaultdict[Total, dict[Labels, int]](dict)
        self.spans = defaultdict[Span, dict[Labels, list[float]]](dict)
        """By labels: observations of each bucket, of more than the last, and their sum."""
        self.reads: list[Callable[[], Iterable[Sample]]] = []

    def add(self, total: Total, *labels: str, by: int = 1) -> None:
        """Count."""
        counts = self.totals[total]
        if labels not in counts and len(counts) >= MOST_SERIES - 1:
            labels = ("other",) * len(labels)
        counts[labels] = counts.get(labels, 0) + by

    def observe(self, span: Span, seconds: float, *labels: str) -> None:
        """Take a duration into account."""
        spans = self.spans[span]
        if labels not in spans:
            labels = labels if len(spans) < MOST_SERIES - 1 else ("other",) * len(labels)
            spans.setdefault(labels, [0] * (len(BUCKETS) + 2))
        buckets = spans[labels]
        buckets[bisect_left(BUCKETS, seconds)] += 1
        buckets[-1] += seconds


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
