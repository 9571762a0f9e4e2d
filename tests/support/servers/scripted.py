"""The Lua scripts as gateways and workers run them, each with a call's keys and some arguments."""

import time

from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.layout import Reply, Start
from streams.scripts import ClaimAnswer, Claimed, Delivery, FencedEnd
from tests.support.servers.dispatch import GATEWAY
from tests.support.worker_calls import start_of

LEASE_MS = 5_000


def make_start(call_id: str, body: bytes = b"{}") -> Start:
    """What a gateway says at a call's beginning."""
    return start_of(body, call_id, gateway=GATEWAY, policies=("default",))


def bounds(
    *, max_queue: int = 10, max_backlog: int = 10, claim_ms: int = 5000
) -> scripts.StartBounds:
    """Bounds under which a call begins."""
    return scripts.StartBounds(max_queue, max_backlog, claim_ms, 60_000, 60_000)


async def begin(
    redis: Connection, *, claim_ms: int = 5000, queue: int = 10, backlog: int = 10
) -> tuple[str, bytes | RedisError]:
    """Begin a call; returns its id and what the script said."""
    call_id = layout.new_call_id()
    limits = bounds(max_queue=queue, max_backlog=backlog, claim_ms=claim_ms)
    [outcome] = await scripts.start(redis, limits, [(make_start(call_id), b"{}")])
    return call_id, outcome


async def begin_large(
    redis: Connection, body: bytes, *, queue: int = 10
) -> tuple[str, bytes | RedisError]:
    """As a gateway begins a call with a large request: the body first, and both or neither."""
    call_id = layout.new_call_id()
    limits = bounds(max_queue=queue)
    return call_id, await scripts.start_large(redis, limits, make_start(call_id, body), body)


async def deliver(redis: Connection, consumer: str) -> str:
    """Deliver a call to a worker; returns the entry's id."""
    found = await redis.call(
        "XREADGROUP",
        "GROUP",
        "policy",
        consumer,
        "COUNT",
        1,
        "STREAMS",
        layout.dispatch_key(0),
        ">",
    )
    return str(found[0][1][0][0].decode())


async def claim(
    redis: Connection,
    call_id: str,
    entry: str,
    *,
    token: str,
    consumer: str,
    takeover: bool = False,
    due: int | None = None,
    pins: tuple[str, ...] = (),
    patience: int = 60_000,
) -> ClaimAnswer:
    """Claim a call; returns what the script said."""
    due = int(time.time() * 1000) + 5000 if due is None else due
    answers = await scripts.claim(
        redis,
        0,
        [Delivery(entry, call_id, due)],
        {call_id: token},
        consumer=consumer,
        pins=pins,
        is_takeover=takeover,
        is_late=False,
        call_ttl_ms=60_000,
        lease_ms=LEASE_MS,
        patience_ms=patience,
    )
    return answers[call_id]


async def take(
    redis: Connection,
    call_id: str,
    entry: str,
    token: str,
    *,
    consumer: str = "w2",
    takeover: bool = False,
    pins: tuple[str, ...] = (),
    patience: int = 60_000,
) -> Claimed:
    """Claim a call, which succeeds."""
    answer = await claim(
        redis,
        call_id,
        entry,
        token=token,
        consumer=consumer,
        takeover=takeover,
        pins=pins,
        patience=patience,
    )
    assert answer.claimed is not None, answer
    return answer.claimed


async def finish(
    redis: Connection,
    call_id: str,
    token: str,
    *,
    reply: bytes = b"",
    gone: bool = False,
    counts: str = "",
) -> str:
    """End a call; returns what the script said."""
    row = FencedEnd(call_id, token, b"end", reply, gone, counts)
    [said] = await scripts.finish(
        redis, 0, GATEWAY, [row], ended_ttl_ms=60_000, reply_ttl_ms=60_000
    )
    return said.decode()


async def release(
    redis: Connection,
    call_id: str,
    token: str,
    number: int,
    following: int,
    *,
    digest: str = "h",
    reply: bytes | None = None,
    max_reply: int = 100,
    pin: tuple[str, str] = ("", ""),
    strict: bool = False,
    written: int = 0,
) -> str:
    """Release something of a call; returns what the script said."""
    packed = layout.pack(Reply(call_id, number, following)) if reply is None else reply
    key, seq = layout.ctl_key(call_id), following
    row = (key, token, number, following, digest, seq, packed, b"audit", *pin, written)
    [said] = await scripts.release(
        redis, 0, GATEWAY, [row], max_reply=max_reply, reply_ttl_ms=60_000, is_strict=strict
    )
    return said.decode()


async def lengths(redis: Connection) -> tuple[int, int]:
    """How long the reply stream and the audit stream are."""
    return await redis.call("XLEN", layout.reply_key(0, GATEWAY)), await redis.call(
        "XLEN", layout.audit_key(0)
    )


async def claimed(redis: Connection, token: str = "t1") -> tuple[str, str]:
    """Begin a call that `w1` claims; returns its id and its entry."""
    call_id, _ = await begin(redis)
    entry = await deliver(redis, "w1")
    assert (await claim(redis, call_id, entry, token=token, consumer="w1")).outcome == b"OK"
    return call_id, entry
