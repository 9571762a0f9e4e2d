"""Sends what calls append to their streams.

All appends of one shard and event-loop tick go out as one MULTI. Each entry has an explicit id and
is published on the call's channel in the same transaction, so nobody hears an entry that the stream
does not hold. A call has one append in flight; after an error the same ids are sent again, and
Redis answers a duplicate with "equal or smaller". A missing stream is never created again: Redis
has lost the call, or the call ended long ago. Must not know: what is in an entry.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.call.calls import CHANNEL_MAX, OpenCall
from streams import layout, scripts
from streams.connection import Connection, RedisError
from streams.layout import Entry
from streams.script_outcomes import Outcome

RETRY_S = 0.05
_Batch = list[tuple[OpenCall, list[Entry]]]


class Appends:
    """The appends of one gateway process. `lose` is called with a call whose stream is missing."""

    def __init__(self, redis: Connection, lose: Callable[[OpenCall], None]) -> None:
        self._redis, self._lose = redis, lose
        self._dirty: dict[str, OpenCall] = {}
        self.sending = set[str]()
        """Calls with entries that Redis has not confirmed, also of those that are over here."""

    def append(self, call: OpenCall) -> None:
        """Send what `call` has queued at the end of this tick, unless an append of it is under way
        (then after that)."""
        if call.appender.unanswered or not call.appender.pending:
            return
        self._push(call)

    def _push(self, call: OpenCall) -> None:
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._flush)
        self._dirty[call.id] = call

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, {}
        at = time.time_ns() // 1_000_000
        by_shard: dict[int, _Batch] = {}
        for call in dirty.values():
            self.sending.add(call.id)
            by_shard.setdefault(call.shard, []).append((call, call.appender.next_entries(at)))
        for batch in by_shard.values():
            self._send(batch)

    def _send(self, batch: _Batch) -> None:
        packed = [
            call.appender.commands.pack(*_pack(entry))
            for call, entries in batch
            for entry in entries
        ]
        self._redis.transaction(packed, 2 * len(packed)).add_done_callback(
            partial(self._appended, batch)
        )

    def _appended(self, batch: _Batch, done: "asyncio.Future[list[Any] | None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        answers = done.result() if error is None else None
        if not isinstance(answers, list):
            for call, entries in batch:
                if call.appender.closed and isinstance(error, RedisError):
                    self.send_last(call, entries)
                else:
                    self._later(call)
            return
        at = 0
        for call, entries in batch:
            # of each entry that of XADD, then that of PUBLISH
            added = answers[at : (at := at + 2 * len(entries)) : 2]
            if len(added) != len(entries) or {*map(type, added)} != {bytes}:
                if None in added:
                    self.sending.discard(call.id)
                    self._lose(call)
                    continue
                if not _has_all(entries, added):
                    self._later(call)
                    continue
            call.appender.is_stored()
            self.sending.discard(call.id)
            self.append(call)

    def send_last(self, call: OpenCall, entries: list[Entry]) -> None:
        """Send what ends a call once more, now so that a full Redis takes it too."""
        scripts.append_last(self._redis, call.id, map(_pack, entries)).add_done_callback(
            lambda done: self._appended_last(call, done)
        )

    def _appended_last(self, call: OpenCall, done: "asyncio.Future[bytes]") -> None:
        if done.cancelled():
            return
        if done.exception() is not None:
            self._later(call)
            return
        self.sending.discard(call.id)
        if done.result() == Outcome.GONE:
            self._lose(call)
        else:
            call.appender.is_stored()
            # the end may have been queued behind them
            self.append(call)

    def _later(self, call: OpenCall) -> None:
        asyncio.get_running_loop().call_later(RETRY_S, self._repeat, call)

    def _repeat(self, call: OpenCall) -> None:
        if time.monotonic() < call.deadline + 60 and call.appender.unanswered:
            self._push(call)
        else:
            self.sending.discard(call.id)


def _has_all(entries: list[Entry], added: list[Any]) -> bool:
    """Has Redis these entries, from before where it refuses them now?"""
    return len(added) == len(entries) and not any(
        isinstance(outcome, Exception) and "equal or smaller" not in str(outcome)
        for outcome in added
    )


def _pack(entry: Entry) -> tuple[bytes, bytes, bytes]:
    """The id of an entry, the entry, and what is published of it."""
    blob = layout.pack(entry)
    return (
        b"%d-0" % entry.seq,
        blob,
        blob if len(blob) <= CHANNEL_MAX else layout.pack(Entry(entry.seq, entry.at, "see")),
    )
