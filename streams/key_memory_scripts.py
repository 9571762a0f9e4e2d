"""Charges what Redis holds for a call to the call's API key, until it is free again.

`memory` is a hash of a shard. It has the bytes of each call that is not stored yet, with its key's
id (`CALL`), their sum by key (`key:ID`), and how much one key may have (`most`, which gateways
write with their heartbeats). A charge lives as long as the request body of its call, which an audit
writer deletes when the call's end is stored. Whatever a crash leaves, `sweep` finds: a charge
without a body is given back.
"""

import asyncio
from collections.abc import Sequence

from streams import layout
from streams.connection import Connection


def charge(redis: Connection, call_id: str, payer: str, size: int) -> asyncio.Future[bytes]:
    """Charge more to an open call, unless its key has its share (KEY)."""
    return redis.script(
        "charge", [layout.memory_key(layout.shard_of(call_id))], [call_id, payer, size]
    )


def free(redis: Connection, shard: int, call_ids: Sequence[str]) -> asyncio.Future[bytes]:
    """Delete the request bodies of stored calls, and give back what these were charged."""
    keys = [layout.memory_key(shard), *map(layout.body_key, call_ids)]
    return redis.script("free", keys, [*call_ids])


def sweep(redis: Connection, shard: int, cursor: bytes) -> asyncio.Future[bytes]:
    """Give back charges of calls that have no body any more, some at a time; gives the cursor to go
    on with."""
    return redis.script("sweep", [layout.memory_key(shard)], [cursor, layout.body_prefix(shard)])
