"""Reads one reply stream of a gateway, and detects when reading it does not work.

Replies are numbered. Reading a reply twice does no harm; missing one ends its call. So whenever it
is unclear how far this gateway has read, it reads the stream again from its beginning. Entry ids
are Redis times and do not prove a position: the clock may go back, Redis may come back empty, a
byte may change in transit. What proves it is the entry itself: the stream is trimmed only below the
entry that was read last. If that entry is missing, the stream was replaced or deleted, and the
position in it is unknown. Each heartbeat checks this, in the script that tells workers how far they
may trim.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from protocol.errors import StreamConnectionLost
from streams import layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from streams.script_outcomes import Outcome

log = logging.getLogger(__name__)
READ_COUNT = 500
BEGINNING = b"0-0"
DEAF_BEATS = 3
"""After this many heartbeats in a row with entries to read and none received, reading is broken and
not just slow."""
FAILING_S = 3.0
"""Reading is refused for so long: not a Redis that just starts."""
RETRY_S, LONGEST_RETRY_S = 0.05, 1.0


class Replies:
    """The replies of one shard, for one gateway process. `again` is called where they are read from
    the beginning."""

    def __init__(
        self, url: str, gateway: str, shard: int, *, silent_s: float, again: Callable[[], None]
    ) -> None:
        self._redis = Connection(url, name="gateway-replies", silent_s=silent_s)
        self.key, self._shard, self._again = layout.reply_key(shard, gateway), shard, again
        self.position = BEGINNING
        """The id of the entry that was read last."""
        self.trouble = ""
        """Why this gateway hears nothing here, in a sentence; empty where it does."""
        self._was_at = BEGINNING
        """The position at the last heartbeat."""
        self._unheard = self._failures = self._times = 0
        self._failing_since: float | None = None
        self._refusal: bytes = Outcome.OK
        """The last answer of BEAT."""

    async def open(self) -> None:
        """Connect. Raises StreamConnectionLost."""
        await self._redis.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.close()

    def leave(self) -> None:
        """Break the connection; it is made anew."""
        self._redis.cut()

    async def next(self) -> list[list[Any]]:
        """Wait for entries, about a second; returns the id and the fields of each, none where
        nothing came or it could not be read.

        A series of failures is reported once, and waited out.
        """
        times = self._times
        try:
            reply = await self._redis.call(
                "XREAD",
                "COUNT",
                READ_COUNT,
                "BLOCK",
                self._redis.block_ms,
                "STREAMS",
                self.key,
                self.position,
            )
            entries: list[list[Any]] = reply[0][1] if reply else []
            for _, fields in entries:
                if type(fields) is not list:
                    raise ValueError("an entry without fields")
        except StreamConnectionLost:
            self._again()
            await asyncio.sleep(RETRY_S)
            return []
        except (RedisError, *NOT_AN_ANSWER) as error:
            await self._failed(error)
            return []
        if self._failing_since is not None:
            self._works()
        if not entries or times != self._times:
            # meanwhile it was found that this was no place to read from
            return []
        # taken as it is: what is no id Redis refuses, and an id that is not in the stream is found
        # with the next heartbeat
        self.position = entries[-1][0]
        return entries

    async def _failed(self, error: Exception) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            log.error(
                "replies cannot be read", extra={"shard": self._shard, "error": str(error)[:80]}
            )
        if time.monotonic() - self._failing_since > FAILING_S:
            self._trouble(f"cannot read them ({str(error)[:80]})")
        if not isinstance(error, RedisError):
            # what comes next on this connection may be the answer to something else
            self._redis.cut()
        self.begin_again()
        await asyncio.sleep(min(LONGEST_RETRY_S, RETRY_S * 2**self._failures))
        self._failures = min(self._failures + 1, 10)

    def _works(self) -> None:
        log.info("replies are read again", extra={"shard": self._shard})
        self._failing_since, self._failures = None, 0

    def begin_again(self) -> None:
        """Read all that is there once more."""
        self._times += 1
        self.position = BEGINNING
        self._again()

    def beaten(self, answer: Any) -> bool:
        """Take what BEAT answered: is the entry that was read last there (OK, LOST or an error),
        and is there more? Raises ValueError.

        Returns whether Redis still had the heartbeat before.
        """
        if not isinstance(answer, list):
            raise ValueError("not an answer to a heartbeat")
        outcome, has_more, was_there = answer
        if outcome == Outcome.LOST:
            log.warning(
                "the reply stream was replaced: reading it from the beginning",
                extra={"shard": self._shard},
            )
            self.begin_again()
        elif outcome not in (Outcome.OK, self._refusal):
            log.error(
                "the reply stream cannot be checked",
                extra={"shard": self._shard, "error": bytes(outcome)[:80].decode(errors="replace")},
            )
        self._refusal = outcome
        has_heard, self._was_at = self.position is not self._was_at, self.position
        self._unheard = self._unheard + 1 if has_more and not has_heard else 0
        if self._unheard >= DEAF_BEATS:
            self._unheard = 0
            self._trouble("does not receive them")
            log.error(
                "replies wait and are not received: reading them from the beginning",
                extra={"shard": self._shard},
            )
            self._redis.cut()
            self.begin_again()
        elif self._failing_since is None and (has_heard or not has_more):
            self.trouble = ""
        return bool(was_there)

    def _trouble(self, what: str) -> None:
        where = f"answers wait in Redis ({self.key}) and this gateway {what}"
        self.trouble = (
            f"{where}, so its calls end without one; it retries by itself: if that does not help,"
            " see its log and restart it"
        )
