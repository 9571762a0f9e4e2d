"""Every bound and timer of the configuration."""

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.bounds import MAX_BODY_BYTES, MAX_EVENT_BYTES, MAX_OUTPUT_BYTES, MAX_SEGMENTS
from settings.config_faults import Faults, Place


class Limits(BaseModel):
    """Every bound and timer. Names in `_s` are seconds, in `_bytes` bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    body_bytes: int = MAX_BODY_BYTES
    """The largest request body. A larger one gets 413."""
    output_bytes: int = MAX_OUTPUT_BYTES
    """The most that an upstream may send in one call. Past it the call ends."""
    event_bytes: int = MAX_EVENT_BYTES
    """The largest arguments of one tool call. Larger ones are blocked. One SSE event of more than
    six times this ends the call (a JSON escape can take six bytes for one)."""
    upload_bytes: int = 256 * 2**20
    """All request bodies that one gateway is receiving or has not yet sent upstream. Past it 503. A
    key may use as much as is still free; past that 429. At least twice `body_bytes`."""
    body_s: float = 120.0
    """How long a request body may take to arrive. Past it 408."""
    open_calls: int = 5_000
    """Open calls of one gateway. Past it 503. A key may have as many as are still free; past that
    429."""
    key_calls: int = 100
    """Open calls of one key on a gateway that other keys used in the last minute. Past it 429. A
    key that is alone may have half of `open_calls`. A key's own `calls` takes precedence."""
    queue: int = 2_000
    """Calls on the dispatch stream (open and waiting) per shard. Past it 503."""
    backlog: int = 1_000_000
    """Audit entries not yet in Postgres. Past it new calls get 503."""
    memory_share: float = 0.7
    """Share of Redis' `maxmemory` in use. Past it new calls get 503."""
    claim_s: float = 5.0
    """How long a call waits for a worker to claim it. Past it 503, before anything is paid for."""
    lease_s: float = 5.0
    """How long a worker may be silent before another takes its calls over."""
    activity_s: float = 30.0
    """How long a worker may send nothing for a call, no output and no keepalive, before the gateway
    ends it."""
    keepalive_s: float = 10.0
    """How often a worker sends a keepalive while the client gets nothing else. The client sees the
    first after 8 to 10 s (until then headers wait for the real status), then one every 10 to 11
    s."""
    first_byte_s: float = 600.0
    """How long an upstream may take to send the first byte."""
    dispatches: Annotated[int, Field(ge=1, le=MAX_SEGMENTS)] = MAX_SEGMENTS
    """Requests that one call may send upstream, for a turn that pauses, is deferred or goes on
    behind a block. Past it the turn ends, and a call that would be deferred is blocked."""
    idle_s: float = 600.0
    """How long an upstream may be silent between bytes."""
    connect_s: float = 10.0
    """How long connecting to an upstream may take."""
    call_s: float = 1800.0
    """How long a whole call may take."""
    client_stall_s: float = 60.0
    """How long a client may read nothing, or send nothing of its request body, before its
    connection is closed; in the second case with 408."""
    client_idle_s: Annotated[float, Field(gt=0)] = 75.0
    """How long a client's connection stays open after its last answer. A proxy in front should keep
    its own for less, or a request may arrive as it closes."""
    unsent_bytes: Annotated[int, Field(ge=256 * 1024)] = 1 * 2**20
    """Bytes not yet sent to a client, or not yet processed by a worker. Past it the upstream is not
    read. Workers report every 128 KiB."""
    judge_s: float = 30.0
    """How long a judgement may take if the policy sets no deadline."""
    commit_s: float = 30.0
    """How long a tool call waits for its commit before it is blocked with `audit_unavailable`."""
    max_calls: int = 500
    """Calls that one policy worker holds. One API key may have four fifths of them, so that there
    is room for others."""
    reply_entries: int = 50_000
    """Unread entries on a gateway's reply stream. Past it releases wait."""
    audit_read_s: float = 10.0
    """How long Postgres may take for one query of the audit API. Past it 503, and if Postgres is
    silent the connection is closed."""
    redis_silent_s: float = 5.0
    """How long Redis may take to answer before the connection is closed and opened again."""
    ended_ttl_s: float = 60.0
    """How long Redis keeps the keys that mark a call as ended. Its stream, judgements and lookups
    stay 5 s at most."""
    call_ttl_s: float = 7200.0
    """How long after their last use the keys of open calls expire, if nothing else deletes them."""
    body_ttl_s: float = 86400.0
    """How long a request body stays in Redis if the audit writer does not delete it after its
    commit."""
    drain_s: float = 25.0
    """How long a stopping process may take to finish."""
    seal_s: float = 2.0
    """How often audit writers seal calls that have ended, once all their records are in Postgres.
    Seals wait up to 30 s while records arrive faster than they are written."""
    checkpoint_s: float = 60.0
    """How often an audit writer writes a checkpoint over all seals, if there are new ones."""

    @model_validator(mode="after")
    def _bounds_something(self) -> "Limits":
        # with a bound of 0 nothing works, and what computes with an endless one raises in every
        # call
        wrong = [name for name, value in self if not (value > 0 and math.isfinite(value))]
        faults: list[tuple[Place, str]] = [
            (("limits", name), "must be more than 0 and finite") for name in wrong
        ]
        if self.memory_share > 1:
            faults.append((("limits", "memory_share"), "must be at most 1"))
        if faults:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _takes_a_body(self) -> "Limits":
        # a key may have half of what bodies may have
        if self.upload_bytes < 2 * self.body_bytes:
            raise ValueError("upload_bytes must be at least twice body_bytes")
        return self
