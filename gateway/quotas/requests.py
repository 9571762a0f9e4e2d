"""Bounds how many requests of a key or a team begin within a minute, over all gateways. Redis
counts them by call, so that one that nobody served is given back, and the same call never counts twice. Keys
without such a limit cost nothing here.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from gateway.asgi import Message, Send
from gateway.call.calls import OpenCall
from protocol.dialects.base import ClientDialect
from protocol.errors import Overloaded, RateLimited, StreamConnectionLost
from settings.budgets import Budget
from settings.config import Key
from streams import layout, scripts
from streams.connection import Connection, RedisError

WINDOW_MS = 60_000
Headers = tuple[tuple[bytes, bytes], ...]


class RequestQuota:
    """The requests of the keys, and of the teams, that have `requests_minute`."""

    def __init__(self, redis: Connection, teams: Mapping[str, Budget]) -> None:
        self._redis, self._teams = redis, teams

    def _limits(self, key: Key) -> dict[str, tuple[int, str]]:
        """Return the limits of a key and whose they are, by the name in Redis."""
        limits = {}
        if key.requests_minute is not None:
            limits[layout.requests_key(key.id)] = (key.requests_minute, "this key")
        team = self._teams.get(key.team) if key.team is not None else None
        if team is not None and team.requests_minute is not None:
            name = layout.requests_key(f"team:{key.team}")
            limits[name] = (team.requests_minute, f"the team {key.team!r}")
        return limits

    @contextlib.asynccontextmanager
    async def counting(self, key: Key, call: OpenCall) -> AsyncIterator[Headers]:
        """Count a call while it is served, and give the headers of its answer that say what is
        left. What Sluice itself refuses within, for want of room, of a worker or of a budget, is
        given back. Raises RateLimited past a limit, Overloaded where Redis cannot say."""
        if not (limits := self._limits(key)):
            yield ()
            return
        headers = await self._take(limits, call)
        try:
            yield headers
        except (Overloaded, RateLimited) as error:
            error.headers = headers
            await self._give_back(limits, call)
            raise
        if isinstance(call.order.error, Overloaded | RateLimited):
            await self._give_back(limits, call)

    async def _take(self, limits: dict[str, tuple[int, str]], call: OpenCall) -> Headers:
        try:
            is_taken, place, left, wait_ms = await scripts.take_request(
                self._redis,
                call.id,
                {name: most for name, (most, _) in limits.items()},
                window_ms=WINDOW_MS,
            )
        except (StreamConnectionLost, RedisError) as error:
            raise Overloaded(
                "Sluice cannot count the requests of this key now; try again in 1 second",
                retry_after_s=1,
            ) from error
        limit, whose = [*limits.values()][place]
        named = limit_headers(call.dialect, "requests", str(limit), str(left), wait_ms)
        headers = tuple((name.encode(), value.encode()) for name, value in named.items())
        if is_taken:
            return headers
        wait_s = max(-(-wait_ms // 1000), 1)
        seconds = "1 second" if wait_s == 1 else f"{wait_s} seconds"
        refused = RateLimited(
            f"{whose} may begin {limit} requests within a minute (its requests_minute), and none"
            f" is left; try again in {seconds}",
            code="budget_exceeded",
            retry_after_s=wait_s,
        )
        refused.headers = headers
        raise refused

    async def _give_back(self, limits: Iterable[str], call: OpenCall) -> None:
        """Forget a call that nobody served. Where Redis cannot, it counts until its minute is
        over."""
        for name in limits:
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await self._redis.call("ZREM", name, call.id)


def with_headers(send: Send, headers: Headers, call: OpenCall) -> Send:
    """Return `send` for an answer with these headers and those of the call's budget, in place of an
    upstream's of the same names."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            ours = headers if call.budget is None else (*headers, *call.budget.headers)
            names = {name for name, _ in ours}
            others = [header for header in message["headers"] if header[0] not in names]
            message = {**message, "headers": [*others, *ours]}
        await send(message)

    return sending


def limit_headers(
    dialect: ClientDialect, kind: str, most: str, left: str, wait_ms: int | None
) -> dict[str, str]:
    """Return the headers of a limit of requests, tokens or usd; `wait_ms`: when it opens again."""
    opens = ""
    if wait_ms is not None:
        wait_s = max(-(-wait_ms // 1000), 0)
        opens = f"{wait_s}s"
        if dialect.resets_at_time:
            at = datetime.now(UTC) + timedelta(seconds=wait_s)
            opens = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    named = zip(dialect.quota_headers, (most, left, opens), strict=True)
    return {name.replace("requests", kind): value for name, value in named if value}
