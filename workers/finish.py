"""The end of a call: its terminal record, written in the step that lets go of it, so that there is exactly one."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from protocol.errors import PolicyFailed, StreamConnectionLost
from protocol.records import EndRecord, encode_records
from streams import layout, scripts
from streams.connection import Argument, Connection, RedisError
from streams.layout import Reply
from workers.call import OwnedCall, now_ms
from workers.release import REPLY_TTL_MS

log = logging.getLogger(__name__)
RETRY_S = 0.1


class Finisher:
    """Writes the ends of one worker's calls."""

    def __init__(self, redis: Connection, *, ended_ttl_ms: int, is_mine: Callable[[OwnedCall], bool]) -> None:
        self._redis, self._ended_ttl_ms, self._is_mine = redis, ended_ttl_ms, is_mine

    async def end(self, call: OwnedCall, reason: str, relayed: int, *, gone: bool = False) -> None:
        """Write the end of `call` until Redis has it or the call is another's. `gone`: though Redis has lost it.

        `relayed` is the last number the gateway relayed, below 0 where the worker gives the call up: then the gateway is told.
        """
        try:
            audit = encode_records(call.end_records(reason, relayed, now_ms()))
        except Exception as error:
            # without its end a call would be kept for ever
            log.error("the records of a call cannot be written", extra={"call_id": call.id, "error": type(error).__name__}, exc_info=error)
            audit = encode_records([EndRecord(call_id=call.id, at=now_ms(), state="FAILED", reason=PolicyFailed.code, status=0)])
        # the gateway knows when it closed the call itself, and when nobody claimed it
        given_up = relayed < 0 and reason != "unclaimed"
        reply = layout.pack(Reply(call.id, call.released, call.released, failed=reason)) if given_up else b""
        while self._is_mine(call):
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._finish(call.id, call.gateway, call.token, audit, reply, gone=gone)
                return
            await asyncio.sleep(RETRY_S)

    async def end_lost(self, call_id: str, token: str, reason: str) -> None:
        """End a claimed call of which nothing can be read but the lease. A lost connection is made good by the next takeover."""
        end = EndRecord(call_id=call_id, at=now_ms(), state="FAILED", reason=reason, status=0, relayed=-1)
        with contextlib.suppress(StreamConnectionLost, RedisError):
            await self._finish(call_id, "", token, encode_records([end]), b"", gone=False)

    async def _finish(self, call_id: str, gateway: str, token: str, audit: bytes, reply: bytes, *, gone: bool) -> None:
        shard = layout.shard_of(call_id)
        keys = [layout.ctl_key(call_id), layout.dispatch_key(shard), layout.audit_key(shard), layout.call_key(call_id)]
        keys += [layout.facts_key(call_id), layout.reply_key(shard, gateway)]
        args: list[Argument] = [token, audit, self._ended_ttl_ms, reply, "1" if gone else "0", REPLY_TTL_MS]
        await self._redis.script(scripts.FINISH, keys, args)
