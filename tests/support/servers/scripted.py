"""The Lua scripts as gateways and workers run them, each with a call's keys and some arguments."""

import time
from hashlib import sha256
from typing import Any

from streams import layout, scripts
from streams.connection import Argument, Connection
from streams.layout import Reply, Start
from tests.support.servers.dispatch import GATEWAY

LEASE_MS = 5_000


def make_start(call_id: str, body: bytes = b"{}") -> Start:
    """What a gateway says at a call's beginning."""
    return Start(
        call_id=call_id,
        at=1,
        gateway=GATEWAY,
        dialect="openai",
        endpoint="chat",
        key="k",
        policies=("default",),
        policy="",
        session="",
        nonce="n",
        deadline=2,
        key_id="k",
        policy_sets=(),
        body_sha256=sha256(body).digest(),
    )


async def begin(
    redis: Connection, *, claim_ms: int = 5000, queue: int = 10, backlog: int = 10
) -> tuple[str, Any]:
    """Begin a call; returns its id and what the script said."""
    call_id = layout.new_call_id()
    keys = [
        layout.dispatch_key(0),
        layout.audit_key(0),
        layout.memory_key(0),
        layout.call_key(call_id),
        layout.body_key(call_id),
    ]
    args: list[Argument] = [
        queue,
        backlog,
        claim_ms,
        60_000,
        60_000,
        "0",
        layout.pack(make_start(call_id)),
        b"{}",
        call_id,
        "k",
    ]
    return call_id, (await redis.script(scripts.START, keys, args))[0]


async def begin_large(redis: Connection, body: bytes, *, queue: int = 10) -> tuple[str, Any]:
    """As a gateway begins a call with a large request: the body first, and both or neither."""
    call_id = layout.new_call_id()
    keys = [
        layout.dispatch_key(0),
        layout.audit_key(0),
        layout.memory_key(0),
        layout.call_key(call_id),
        layout.body_key(call_id),
    ]
    await redis.call("SET", keys[4], body, "PX", 60_000)
    args: list[Argument] = [
        queue,
        10,
        5000,
        60_000,
        60_000,
        "1",
        layout.pack(make_start(call_id, body)),
        b"",
        call_id,
        "k",
    ]
    return call_id, (await redis.script(scripts.START, keys, args))[0]


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
) -> list[Any]:
    """Claim a call; returns what the script said."""
    due = int(time.time() * 1000) + 5000 if due is None else due
    args: list[Argument] = [
        consumer,
        "1" if takeover else "0",
        60_000,
        "0",
        LEASE_MS,
        patience,
        len(pins),
        *pins,
        token,
        entry,
        due,
    ]
    said: list[Any] = (
        await redis.script(scripts.CLAIM, [layout.dispatch_key(0), *claim_keys(call_id)], args)
    )[0]
    return said


def claim_keys(call_id: str) -> list[str]:
    """The keys of a call that the claim script takes."""
    return [
        key(call_id) for key in (layout.ctl_key, layout.call_key, layout.body_key, layout.facts_key)
    ]


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
    keys = [
        layout.dispatch_key(0),
        layout.audit_key(0),
        layout.reply_key(0, GATEWAY),
        layout.counts_key(0),
    ]
    keys += [*finish_keys(call_id), layout.ended_key(0)]
    said = await redis.script(
        scripts.FINISH, keys, [60_000, 60_000, token, b"end", reply, "1" if gone else "0", counts]
    )
    return str(said[0].decode())


def finish_keys(call_id: str) -> list[str]:
    """The keys of a call that the script of its end takes."""
    return [key(call_id) for key in (layout.ctl_key, layout.call_key, layout.facts_key)]


async def set_fact(redis: Connection, call_id: str, field: str, value: str) -> Any:
    """Set a fact of a call, unless it is set; returns for each field whether it was written."""
    keys = [layout.facts_key(call_id), layout.call_key(call_id)]
    return await redis.script(scripts.FACT, keys, [layout.facts_channel(call_id), field, value])


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
    keys = [
        layout.gateway_key(0, GATEWAY),
        layout.reply_key(0, GATEWAY),
        layout.audit_key(0),
        layout.ctl_key(call_id),
    ]
    blob = layout.pack(Reply(call_id, number, following)) if reply is None else reply
    said = await redis.script(
        scripts.RELEASE,
        keys,
        [
            max_reply,
            60_000,
            "1" if strict else "0",
            token,
            number,
            following,
            digest,
            following,
            blob,
            b"audit",
            *pin,
            written,
        ],
    )
    return str(said[0].decode())


async def lengths(redis: Connection) -> tuple[int, int]:
    """How long the reply stream and the audit stream are."""
    return await redis.call("XLEN", layout.reply_key(0, GATEWAY)), await redis.call(
        "XLEN", layout.audit_key(0)
    )


async def claimed(redis: Connection, token: str = "t1") -> tuple[str, str]:
    """Begin a call that `w1` claims; returns its id and its entry."""
    call_id, _ = await begin(redis)
    entry = await deliver(redis, "w1")
    assert (await claim(redis, call_id, entry, token=token, consumer="w1"))[0] == b"OK"
    return call_id, entry
