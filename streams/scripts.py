"""A function for each Lua script (`streams/lua/`): what it takes, and what its answer means.

Only this module, `streams.judge_scripts` and `streams.key_memory_scripts` know the order of a
script's keys and arguments."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from streams import layout, lua
from streams.connection import Argument, Connection, RedisError, pack, pack_large
from streams.layout import Start
from streams.script_outcomes import Outcome

MAX_TAKEOVERS = 4
"""A call that was taken over this many times without an output in between is ended, whatever its
owners died of."""


# --- what gateways do ---


class StartBounds(NamedTuple):
    """What holds for every call that begins."""

    max_queue: int
    max_backlog: int
    claim_ms: int
    call_ttl_ms: int
    body_ttl_ms: int


def start(
    redis: Connection, bounds: StartBounds, calls: Sequence[tuple[Start, bytes]]
) -> asyncio.Future[list[bytes | RedisError]]:
    """Put calls of one shard, with their bodies, onto their own streams and the dispatch stream,
    and charge them to their keys, unless a bound is passed. Gives an outcome for each."""
    return redis.script("start", *_start(bounds, calls))


async def start_large(
    redis: Connection, bounds: StartBounds, start: Start, body: bytes
) -> bytes | RedisError:
    """Begin a call whose body is set by a command of its own; in one MULTI, so that neither is
    there without the other. Through a script Redis copies a body several times, 1 MB for 0.6-2 ms
    of its CPU."""
    keys, args = _start(bounds, [(start, b"")], has_bodies=True)
    run = pack("EVALSHA", lua.SHA["start"], len(keys), *keys, *args)
    stored = pack_large("SET", layout.body_key(start.call_id), body, "PX", bounds.body_ttl_ms)
    answer = (await redis.transaction([*stored, run], 2))[1]
    outcome: bytes | RedisError = answer if isinstance(answer, RedisError) else answer[0]
    return outcome


def _start(
    bounds: StartBounds, calls: Sequence[tuple[Start, bytes]], *, has_bodies: bool = False
) -> tuple[list[str], list[Argument]]:
    shard = layout.shard_of(calls[0][0].call_id)
    keys = [layout.dispatch_key(shard), layout.audit_key(shard), layout.memory_key(shard)]
    args: list[Argument] = [*bounds, int(has_bodies)]
    for call, body in calls:
        keys += (layout.call_key(call.call_id), layout.body_key(call.call_id))
        args += (layout.pack_start(call), body, call.call_id, call.payer)
    return keys, args


def append_last(
    redis: Connection, call_id: str, entries: Iterable[tuple[bytes, bytes, bytes]]
) -> asyncio.Future[bytes]:
    """Append the last entries of a call, again or for the first time, where the ordinary way was
    refused. Of each: its id, what is appended, what is published."""
    args: list[Argument] = [layout.chunk_channel(call_id)]
    for entry in entries:
        args += entry
    return redis.script("append_last", [layout.call_key(call_id)], args)


def beat(
    redis: Connection, shard: int, gateway: str, *, position: bytes, ttl_ms: int, key_bytes: int
) -> asyncio.Future[Any]:
    """Write a gateway's heartbeat, with how far it has read its replies, and how much memory one
    key may have. Gives whether that position is an entry of its stream (OK, LOST, or why it is not
    known), whether there are entries after it, and whether the last heartbeat was still there."""
    keys = [
        layout.gateway_key(shard, gateway),
        layout.reply_key(shard, gateway),
        layout.memory_key(shard),
    ]
    return redis.script("beat", keys, [position, ttl_ms, key_bytes])


def take_request(
    redis: Connection, call_id: str, limits: Mapping[str, int], *, window_ms: int
) -> asyncio.Future[list[int]]:
    """Count a call among those of its key and team, by `layout.requests_key`, unless as many as one
    of the limits began within the window; the same call counts once. Gives whether it is counted,
    which of them is the tightest, how many more may begin, and in how many ms the oldest is past
    the window."""
    return redis.script("request_take", [*limits], [call_id, window_ms, *limits.values()])


def show_gateway(redis: Connection, gateway: str, trouble: str) -> asyncio.Future[bytes]:
    """Write a gateway's heartbeat for `sluice doctor`, with what is wrong with it."""
    args: list[Argument] = [gateway, trouble, layout.GATEWAYS_TTL_MS]
    return redis.script("show_gateway", [layout.GATEWAYS_KEY], args)


# --- what policy workers do ---


class Delivery(msgspec.Struct, frozen=True):
    """An entry of the dispatch stream: its id, its call, and until when that may be claimed (Unix
    ms)."""

    entry: str
    call_id: str
    due: int


class Claimed(msgspec.Struct, kw_only=True):
    """A call that was claimed: where its numbers stand, what it is pinned to, and the beginning of
    its stream. Without what cannot be read, where `is_spoilt`."""

    call_id: str
    token: str
    entry: str
    expired: bool
    """Too late: its client was refused already."""
    entries: list[Any]
    released: int = 0
    digest: str = ""
    recorded: int = 0
    policy: str = ""
    revision: str = ""
    takeovers: int = 0
    """How many takeovers in a row, before this one, brought no output; -1: nobody had it before."""
    body: bytes | None = None
    is_large: bool = False
    """The body is still to be fetched."""
    facts: list[bytes] = []
    died_in_it: bool = False
    """Did its last owner mark that it was in a step of it, and nothing after that?"""
    written: int = -1
    """How many releases with bytes there are; below 0: its last owner was of a version that does
    not count them."""
    is_spoilt: bool = False
    """What Redis holds of it cannot be read: all that can be done is to end it."""

    @property
    def is_fresh(self) -> bool:
        """Did nobody have it before?"""
        return self.takeovers < 0

    @property
    def is_hopeless(self) -> bool:
        """Does it kill whoever takes it?"""
        return self.takeovers >= (1 if self.died_in_it else MAX_TAKEOVERS)


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What came of a claim: the call, or else why it is not this worker's."""

    outcome: bytes
    claimed: Claimed | None
    detail: str = ""
    """Redis' own text (ERROR), or the policy sets under which the call may begin (SET)."""


async def claim(
    redis: Connection,
    shard: int,
    deliveries: Sequence[Delivery],
    tokens: Mapping[str, str],
    *,
    consumer: str,
    pins: Sequence[str],
    is_takeover: bool,
    is_late: bool,
    call_ttl_ms: int,
    lease_ms: int,
    patience_ms: int,
) -> dict[str, ClaimAnswer]:
    """Take delivered calls: check and renew each lease in both places that say who owns the call,
    the pending entry and the control key. `tokens` and the answer are by call.

    A call whose pinned policy and revision (`policy@revision`) are not among the worker's `pins` is
    left to others for `patience_ms`; then it is given all the same, to be closed. So is a call that
    somebody took and had not begun, where it may not begin under the worker's policy set (`=set`).
    A new one is passed on to others, some times at once and then as they look for it, until it is
    too late; new calls of a key that has its share of this worker (`!key`) are left to them. Of a
    body over 64 KiB only its size comes: a command of its own reads it at half the price.
    """
    keys = [layout.dispatch_key(shard)]
    args: list[Argument] = [
        consumer,
        int(is_takeover),
        call_ttl_ms,
        int(is_late),
        lease_ms,
        patience_ms,
        len(pins),
        *pins,
    ]
    for delivery in deliveries:
        call_id = delivery.call_id
        keys += (
            layout.ctl_key(call_id),
            layout.call_key(call_id),
            layout.body_key(call_id),
            layout.facts_key(call_id),
        )
        args += (tokens[call_id], delivery.entry, delivery.due)
    answers = await redis.script("claim", keys, args)
    return {
        delivery.call_id: _claim_answer(delivery, tokens[delivery.call_id], answer, is_late)
        for delivery, answer in zip(deliveries, answers, strict=True)
    }


def _claim_answer(delivery: Delivery, token: str, answer: list[Any], is_late: bool) -> ClaimAnswer:
    outcome, *values = answer
    if outcome == Outcome.OK:
        return ClaimAnswer(outcome, _claimed(delivery, token, values, is_late))
    detail = values[0].decode(errors="replace") if values else ""
    if outcome == Outcome.ERROR and detail.startswith("WRONGTYPE"):
        return ClaimAnswer(outcome, _claimed(delivery, token, [], is_late))
    return ClaimAnswer(outcome, None, detail)


def _claimed(delivery: Delivery, token: str, values: list[Any], is_late: bool) -> Claimed:
    """Parse what the claim script returned for a call; unreadable or missing values leave only its
    id."""
    try:
        number, digest, seq, policy, revision, takeovers, entries, body, facts, inside, count = (
            values
        )
        released = int(number)
        return Claimed(
            call_id=delivery.call_id,
            token=token,
            entry=delivery.entry,
            expired=is_late,
            entries=entries,
            released=released,
            digest=digest.decode(),
            recorded=int(seq),
            policy=policy.decode(),
            revision=revision.decode(),
            takeovers=int(takeovers),
            body=None if isinstance(body, int) else body,
            is_large=isinstance(body, int),
            facts=facts,
            died_in_it=inside == b"1",
            written=count_written(count, released),
        )
    except ValueError:
        return Claimed(
            call_id=delivery.call_id,
            token=token,
            entry=delivery.entry,
            expired=is_late,
            entries=values[6] if values else [],
            is_spoilt=True,
        )


def count_written(value: bytes, released: int) -> int:
    """Read how many releases there are, `NUMBER:COUNT`: written at another number, it is of an
    owner that is not the last."""
    number, _, count = value.partition(b":")
    if not released:
        return 0
    return int(count) if number == b"%d" % released and count.isdigit() else -1


def replayed(redis: Connection, call_id: str, token: str) -> asyncio.Future[bytes]:
    """Mark that a call taken over did its new owner no harm: takeovers are counted anew."""
    return redis.script("replayed", [layout.ctl_key(call_id)], [token])


def mark_inside(
    redis: Connection, call_id: str, token: str, *, is_inside: bool
) -> asyncio.Future[bytes]:
    """Mark that the owner of a call is in a step of it that may kill the owner, or no longer
    is."""
    return redis.script("inside", [layout.ctl_key(call_id)], [token, int(is_inside)])


def renew(
    redis: Connection,
    shard: int,
    consumer: str,
    call_ttl_ms: int,
    leases: Sequence[tuple[str, str, str]],
) -> asyncio.Future[list[bytes]]:
    """Renew leases of a worker, each a call's id, token and dispatch entry; gives an outcome for
    each."""
    keys = [layout.dispatch_key(shard)]
    args: list[Argument] = [consumer, call_ttl_ms]
    for call_id, token, entry in leases:
        keys.append(layout.ctl_key(call_id))
        args += (token, entry)
    return redis.script("renew", keys, args)


def hand_over(
    redis: Connection, call_id: str, token: str, *, within_ms: int
) -> asyncio.Future[bytes]:
    """Give a call back so that another worker claims it at once. Its owner stops in order: it did
    not die in a step of it."""
    keys = [layout.dispatch_key(layout.shard_of(call_id)), layout.ctl_key(call_id)]
    return redis.script("handover", keys, [token, call_id, within_ms])


FencedRelease = tuple[str, str, int, int, str, int, bytes, bytes, str, str, int]
"""What is released of one call: the key of its lease, and what the script takes: token, number and
next number of its outputs, digest, last chunk, reply, records, policy and revision (of the first
release; empty after it), and how many releases with bytes there are.

A plain tuple: a named one costs each chunk thirty instructions of Python more.
"""


def release(
    redis: Connection,
    shard: int,
    gateway: str,
    rows: Iterable[FencedRelease],
    *,
    max_reply: int,
    reply_ttl_ms: int,
    is_strict: bool,
    is_large: bool = False,
) -> asyncio.Future[list[bytes]]:
    """Release and record in one step, for up to 60 calls of one shard and gateway, each fenced by
    token and number; gives an outcome for each.

    The first release of a call pins its policy revision, in the same step: nothing goes out under a
    revision that a takeover would not know.
    """
    keys = [
        layout.gateway_key(shard, gateway),
        layout.reply_key(shard, gateway),
        layout.audit_key(shard),
    ]
    args: list[Argument] = [max_reply, reply_ttl_ms, int(is_strict)]
    for row in rows:
        keys.append(row[0])
        args += row[1:]
    return redis.script("release", keys, args, is_large=is_large)


class FencedEnd(msgspec.Struct, frozen=True):
    """The end of one call."""

    call_id: str
    token: str
    audit: bytes
    reply: bytes
    """For the gateway, where the worker gives the call up."""
    is_gone: bool = False
    """End it also where Redis lost the call, or its lease cannot be read."""
    counts: str = ""


def finish(
    redis: Connection,
    shard: int,
    gateway: str,
    rows: Iterable[FencedEnd],
    *,
    ended_ttl_ms: int,
    reply_ttl_ms: int,
) -> asyncio.Future[list[bytes]]:
    """Write terminal records and let go of the calls, up to 60 of one shard and gateway; nothing
    can be released after it. Gives an outcome for each.

    The call's stream and facts stay 5 s: for a worker that is still reading them, and does not know
    yet that another ended the call. The key that marks it as ended stays for `ended_ttl_ms`.
    """
    keys = [
        layout.dispatch_key(shard),
        layout.audit_key(shard),
        layout.reply_key(shard, gateway),
        layout.counts_key(shard),
        layout.ended_key(shard),
    ]
    args: list[Argument] = [ended_ttl_ms, reply_ttl_ms]
    for end in rows:
        call_id = end.call_id
        keys += (layout.ctl_key(call_id), layout.call_key(call_id), layout.facts_key(call_id))
        args += (end.token, end.audit, end.reply, int(end.is_gone), end.counts)
    return redis.script("finish", keys, args)


# --- what audit writers do ---


def read_records(
    redis: Connection,
    shard: int,
    consumer: str,
    *,
    max_blobs: int,
    max_bytes: int,
    idle_ms: int | None = None,
) -> asyncio.Future[list[Any]]:
    """Take entries for an audit writer, until they hold a number of blobs or pass a number of
    bytes; first those of writers that were idle for `idle_ms`, if it is given."""
    args: list[Argument] = [consumer, max_blobs, max_bytes, "" if idle_ms is None else idle_ms]
    return redis.script("read", [layout.audit_key(shard)], args)


def trim(
    redis: Connection, shard: int, entries: Sequence[bytes], *, is_published: bool
) -> asyncio.Future[int]:
    """Acknowledge entries, then trim the audit stream below the smallest unacknowledged id, or up
    to the last delivered one; publish that id if asked. Everything below it is committed by every
    writer. A user who may append may also trim (XADD's MAXLEN, which no ACL refuses), so entries
    trimmed here are counted."""
    keys = [layout.audit_key(shard), layout.committed_key(shard), layout.trimmed_key(shard)]
    return redis.script("trim", keys, [int(is_published), *entries])


def missing(redis: Connection, shard: int) -> asyncio.Future[int]:
    """How many audit entries went away without being trimmed; below 0 when the stream was taken
    away and begun anew."""
    return redis.script("missing", [layout.audit_key(shard), layout.trimmed_key(shard)], [])


# --- what several do ---


def write_heartbeats(redis: Connection, processes: Iterable[str]) -> asyncio.Future[bytes]:
    """Write the heartbeats of a worker process, `role:name` each. The answer says whether this
    Redis is an old primary (`streams.identity`)."""
    return redis.script("heartbeat", [layout.WORKERS_KEY, layout.PRIMARY_KEY], [*processes])


def set_fact(redis: Connection, call_id: str, field: str, value: bytes) -> asyncio.Future[int]:
    """Write a fact, once, and publish its field on the call's channel; gives whether it was
    written. It stays as long as the call's stream: a call that is over takes none."""
    keys = [layout.facts_key(call_id), layout.call_key(call_id)]
    return redis.script("fact", keys, [layout.facts_channel(call_id), field, value])


def forget_consumers(
    redis: Connection, key: str, group: str, *, idle_ms: int
) -> asyncio.Future[int]:
    """Forget consumers of processes that ended long ago: a living one asks at least once a second,
    and nothing pending is forgotten."""
    return redis.script("forget", [key], [group, idle_ms])
