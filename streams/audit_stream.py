"""The progress of an audit stream: stored entries, entries that a writer holds, and entries that
nobody took yet.

Sealing, ending orphaned calls and finding missing calls all ask the same: is everything up to an
entry stored? The answer comes from the stream, its group and the group's pending entries, in this
module alone.
"""

import asyncio
from typing import Any, NamedTuple

from streams import layout
from streams.connection import NOT_AN_ANSWER, Connection, NotAnAnswer, RedisError

EntryId = tuple[int, int]
NO_ENTRY: EntryId = (0, 0)


def entry_id(raw: bytes | str) -> EntryId:
    """Return a stream entry's id as numbers. Raises NotAnAnswer."""
    try:
        ms, _, number = (raw if isinstance(raw, str) else raw.decode()).partition("-")
        return int(ms), int(number)
    except NOT_AN_ANSWER as error:
        raise NotAnAnswer("not an entry id") from error


class StreamState(NamedTuple):
    """How things stood with one audit stream."""

    newest: EntryId = NO_ENTRY
    """The newest id that the stream has given out."""
    taken: EntryId = NO_ENTRY
    """The newest entry that a writer took; the same as `newest` where none is left to take."""
    first_open: EntryId | None = None
    """No entry that is not on record, and may still come onto it, is older than this; None: there
    is no such entry."""

    @property
    def behind_ms(self) -> int:
        """How much newer the newest entry is than the newest that a writer took."""
        return self.newest[0] - self.taken[0]

    def is_recorded(self, entry: EntryId) -> bool:
        """Is every entry up to this one on record, or gone for good?"""
        return self.first_open is None or entry < self.first_open


async def read_state(redis: Connection, shard: int) -> StreamState:
    """Ask how things stand. A stream that is not there is an empty one. Raises
    StreamConnectionLost, RedisError; NotAnAnswer is one."""
    key = layout.audit_key(shard)
    # in this order: what comes onto the stream in between is newer than all that is asked for, and
    # what a writer takes is pending then
    commands = (
        ("XINFO", "STREAM", key),
        ("XINFO", "GROUPS", key),
        ("XPENDING", key, layout.AUDIT_GROUP),
    )
    answers = await asyncio.gather(
        *(redis.call(*command) for command in commands), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, RedisError) or not _is_missing(answer):
                raise answer
            if "NOGROUP" not in str(answer):
                return StreamState()
    try:
        return _state(*answers)
    except (NotAnAnswer, *NOT_AN_ANSWER) as error:
        # what comes next on this connection may be the answer to something else
        redis.cut()
        raise NotAnAnswer("unreadable answer from Redis about the audit stream") from error


def _is_missing(error: RedisError) -> bool:
    return "NOGROUP" in str(error) or "no such key" in str(error)


def _state(stream: Any, groups: Any, pending: Any) -> StreamState:
    fields = _fields(stream)
    newest = entry_id(fields[b"last-generated-id"])
    ours = [
        group for group in map(_fields, groups) if group[b"name"] == layout.AUDIT_GROUP.encode()
    ]
    # a group that is not there will be made at the stream's beginning
    taken = entry_id(ours[0][b"last-delivered-id"]) if ours else NO_ENTRY
    first: EntryId | None = None
    if fields[b"length"] and taken < newest:
        first = max(entry_id(fields[b"recorded-first-entry-id"]), (taken[0], taken[1] + 1))
    else:
        taken = newest
    # what was taken out of the stream a writer may still hold
    if not isinstance(pending, RedisError) and pending[0]:
        held = entry_id(pending[1])
        first = held if first is None else min(first, held)
    return StreamState(newest, taken, first)


def _fields(flat: Any) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
