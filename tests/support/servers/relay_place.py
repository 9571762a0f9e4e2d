"""A gateway's relay on a real Valkey and a real upstream, with the worker's part played."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from gateway.bus import Bus
from gateway.call.calls import OpenCall
from gateway.relay import Relay
from gateway.upstream import Upstreams
from protocol.dialects.table import CLIENTS
from settings.config import Config, Upstream
from settings.limits import Limits
from streams import layout
from streams.layout import Dispatch, Entry
from tests.support.checks.replies import reply_of
from tests.support.upstreams.replay import Replay

SECRETS = {
    "Authorization": "Bearer sk-of-4711",
    "x-proxy-token": "hunter2-hunter2",
    "x-team": "seven",
    "Accept": "text/plain-or-not",
}


class Place:
    """One open call of a gateway, and what its client got."""

    def __init__(self, bus: Bus, upstreams: Upstreams, body: bytes) -> None:
        self.bus, self.upstreams, self.sent = bus, upstreams, list[MutableMapping[str, Any]]()
        self.call = OpenCall(
            layout.new_call_id(),
            CLIENTS["anthropic"],
            body,
            activity_s=30,
            deadline=time.monotonic() + 60,
        )
        bus.calls[self.call.id] = self.call
        self.relay = Relay(self.call, upstreams, self._send)
        self.task = asyncio.get_running_loop().create_task(self.relay.run())

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    def reply(self, **fields: Any) -> None:
        """What a worker releases next."""
        number = self.call.order.expected
        self.call.on_reply(reply_of(self.call.id, number, number + 1, **fields))
        self.call.relay()

    def dispatch(self, body: bytes | None, *betas: str, upstream: str = "anthropic") -> None:
        """A worker's approved request."""
        self.reply(
            dispatch=Dispatch(
                upstream,
                "anthropic" if upstream == "anthropic" else "openai",
                "messages",
                body,
                betas,
            )
        )

    async def entries(self, wanted: Callable[[list[Entry]], bool]) -> list[Entry]:
        """The call's stream, as soon as it is as `wanted`."""
        async with asyncio.timeout(10):
            while True:
                found = await self.bus.redis.call(
                    "XRANGE", self.call.appender.stream_key, "1-0", "+"
                )
                entries = [layout.unpack_entry(fields[1]) for _, fields in found]
                if wanted(entries):
                    return entries
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        """What the HTTP handler does at its end."""
        self.task.cancel()
        await asyncio.wait({self.task})
        await self.relay.stop_upstream()


@asynccontextmanager
async def opened(
    redis_url: str,
    server: Replay,
    *,
    body: bytes = b'{"first": 1}',
    limits: Limits | None = None,
    upstreams: dict[str, Upstream] | None = None,
) -> AsyncIterator[Place]:
    config = Config(
        upstreams=upstreams
        or {
            "anthropic": Upstream(
                dialect="anthropic", base_url=server.url, headers={"Anthropic-Beta": "own-1, own-2"}
            ),
            "openai": Upstream(dialect="openai", base_url=server.url + "/v1", headers=SECRETS),
        },
        limits=limits or Limits(),
    )
    bus = Bus(redis_url, layout.new_call_id(), config.limits, 1)
    sender = Upstreams(config, bus)
    await bus.open()
    place = Place(bus, sender, body)
    await bus.redis.call("XADD", place.call.appender.stream_key, layout.START_ID, layout.BLOB, b"")
    try:
        yield place
    finally:
        await place.end()
        await sender.close()
        await bus.redis.call("DEL", place.call.appender.stream_key)
        await bus.close()


def ends(count: int) -> Callable[[list[Entry]], bool]:
    """Are there `count` ends of answers?"""
    return lambda entries: (
        sum(e.kind in ("eof", "body", "status", "failed") for e in entries) == count
    )
