"""Bounds how many requests of a key begin within a minute, over all gateways. Redis counts them by
call, so that one that nobody served is given back, and the same call never counts twice. Keys
without such a limit cost nothing here.
"""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from gateway.asgi import Message, Send
from gateway.call.calls import OpenCall
from protocol.dialects.base import ClientDialect
from protocol.errors import Overloaded, RateLimited, StreamConnectionLost
from settings.config import Key
from streams import layout, scripts
from streams.connection import Connection, RedisError

WINDOW_MS = 60_000
Headers = tuple[tuple[bytes, bytes], ...]


class RequestQuota:
    """The requests of the keys that have `requests_minute`."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis

    @contextlib.asynccontextmanager
    async def counting(self, key: Key, limit: int, call: OpenCall) -> AsyncIterator[Headers]:
        """Count a call while it is served, and give the headers of its answer that say what is
        left. What Sluice itself refuses within, for want of room or of a worker, is given back.
        Raises RateLimited past the limit, Overloaded where Redis cannot say."""
        headers = await self._take(key, limit, call)
        try:
            yield headers
        except (Overloaded, RateLimited) as error:
            error.headers = headers
            await self._give_back(key, call)
            raise
        if isinstance(call.order.error, Overloaded):
            await self._give_back(key, call)

    async def _take(self, key: Key, limit: int, call: OpenCall) -> Headers:
        try:
            is_taken, left, wait_ms = await scripts.take_request(
                self._redis, key.id, call.id, limit=limit, window_ms=WINDOW_MS
            )
        except (StreamConnectionLost, RedisError) as error:
            raise Overloaded(
                "Sluice cannot count the requests of this key now; try again in 1 second",
                retry_after_s=1,
            ) from error
        headers = _headers(call.dialect, limit, left, wait_ms)
        if is_taken:
            return headers
        wait_s = max(-(-wait_ms // 1000), 1)
        seconds = "1 second" if wait_s == 1 else f"{wait_s} seconds"
        refused = RateLimited(
            f"this key may begin {limit} requests within a minute (its requests_minute), and none"
            f" is left; try again in {seconds}",
            code="budget_exceeded",
            retry_after_s=wait_s,
        )
        refused.headers = headers
        raise refused

    async def _give_back(self, key: Key, call: OpenCall) -> None:
        """Forget a call that nobody served. Where Redis cannot, it counts until its minute is
        over."""
        with contextlib.suppress(StreamConnectionLost, RedisError):
            await self._redis.call("ZREM", layout.requests_key(key.id), call.id)


def with_headers(send: Send, headers: Headers) -> Send:
    """Return `send` for an answer with these headers, in place of an upstream's of the same
    names."""
    names = {name for name, _ in headers}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [header for header in message["headers"] if header[0] not in names]
            message = {**message, "headers": [*others, *headers]}
        await send(message)

    return sending


def _headers(dialect: ClientDialect, limit: int, left: int, wait_ms: int) -> Headers:
    wait_s = -(-wait_ms // 1000)
    opens = f"{wait_s}s"
    if dialect.resets_at_time:
        at = datetime.now(UTC) + timedelta(seconds=wait_s)
        opens = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    return tuple(
        (name.encode(), value.encode())
        for name, value in zip(dialect.quota_headers, (str(limit), str(left), opens), strict=True)
    )
