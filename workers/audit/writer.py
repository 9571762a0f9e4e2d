"""The audit writer: drains the audit streams into Postgres, announces commits, acks, trims.

An entry leaves Redis only after its commit. Order within a batch: commit, announce tool calls, then
what nobody waits for: commit request bodies, delete those of ended calls, cover what came after its
call's seal (`workers.audit.sealing`), ack. So whatever dies in between is repeated, and every step
repeated is a no-op. With Postgres away the batch in hand is tried again until it is there; the
stream is the backlog.

Each shard has a `Drain`, with a `ShardReader` and a `ShardStore`; `Chores` is what is done beside.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from protocol.errors import AuditUnavailable, StreamConnectionLost
from settings.runtime import Runtime
from streams import heartbeats, layout, lifecycle, metrics_port
from streams.connection import Connection, RedisError
from streams.metrics_port import Exposition
from workers import process
from workers.audit.accounts import Accounts
from workers.audit.chores import Chores
from workers.audit.drain import Drain
from workers.audit.histories import Histories
from workers.audit.record_figures import RecordFigures
from workers.audit.request_bodies import Bodies
from workers.audit.sealing import SealLoop
from workers.audit.stopping import WriterStop

log = logging.getLogger(__name__)
START_CHECK_S = 3.0
"""How long the start waits to know whose records Redis holds."""


class AuditWriter:
    """One process; any number may run, each entry going to one of them."""

    def __init__(self, settings: Runtime) -> None:
        self.settings, self.limits, self.shards = (
            settings,
            settings.config.limits,
            settings.config.shards,
        )
        self.name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
        url, silent_s = settings.redis_url, self.limits.redis_silent_s
        self._redis = Connection(url, name="audit", silent_s=silent_s)
        self._wake_ups = Connection(
            url,
            name="audit-wake-ups",
            silent_s=silent_s,
            on_push=self._on_push,
            on_connect=self._subscribe,
        )
        self._stop = WriterStop()
        self._seals = SealLoop(settings, self._redis)
        self._histories = Histories(settings.database_url, self._seals.is_behind)
        bodies = Bodies(self._redis, self._stop.until_stored, self._histories.add)
        self._drains = [
            Drain(
                settings,
                shard,
                self.name,
                redis=self._redis,
                bodies=bodies,
                seals=self._seals,
                stop=self._stop,
            )
            for shard in range(self.shards)
        ]
        self._chores = Chores(
            settings,
            self._redis,
            self.name,
            bodies=bodies,
            seals=self._seals,
            identities=[drain.identity for drain in self._drains],
        )
        self.shown = RecordFigures(self._redis, self._drains, self._seals)
        self._woken = {
            layout.waiting_channel(drain.shard).encode(): drain.woken for drain in self._drains
        }
        """By channel: a call of the shard began to wait for its commit, or for an account."""
        self._accounts = Accounts(settings, self._redis)
        self._woken[layout.budget_channel().encode()] = self._accounts.woken

    @property
    def conflicts(self) -> int:
        """How many records came that were there with other content."""
        return sum(drain.store.conflicts for drain in self._drains)

    def stop(self) -> None:
        """Begin to stop: once the calls that run do not need this writer."""
        self._stop.is_asked.set()

    def _shown(self) -> list[tuple[str, str]]:
        shown = heartbeats.shown_by("audit", self.name, is_stopping=self._stop.is_asked.is_set())
        return [*shown, ("shards", f"{self.shards}:{self.name}")]

    async def _begin_stop(self) -> None:
        """What is there already still comes into the record, if that can be soon."""
        await self._stop.is_asked.wait()
        await process.stay_for_calls(
            self._redis, "audit", self.name, shards=self.shards, grace_s=self.limits.drain_s
        )
        self._stop.begin()
        for drain in self._drains:
            drain.wake()

    async def run(self) -> None:
        """Work until `stop`."""
        readers = [drain.reader for drain in self._drains]
        identities = [drain.identity for drain in self._drains]
        await asyncio.gather(
            self._redis.open(), self._wake_ups.open(), *(r.redis.open() for r in readers)
        )
        # a database that is away is asked before anything is written to it
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError, TimeoutError):
            async with asyncio.timeout(START_CHECK_S):
                await asyncio.gather(*(identity.holds() for identity in identities))
        with contextlib.suppress(AuditUnavailable, StreamConnectionLost, RedisError):
            await asyncio.gather(*(identity.settle() for identity in identities))
        identities[0].check()
        for reader in readers:
            await reader.make_group()
        process.tell_ready(self.settings)
        log.info("audit writer ready", extra={"writer": self.name})
        background = [
            asyncio.create_task(process.keep(name, task), name=name)
            for name, task in self._background().items()
        ]
        stopping = asyncio.create_task(self._begin_stop(), name="stop")
        drains = [
            asyncio.create_task(loop())
            for drain in self._drains
            for loop in (drain.run, drain.store.run_late)
        ]
        try:
            draining = asyncio.gather(*drains)
            waited: list[asyncio.Future[Any]] = [draining, *background]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for task in background:
                if task.done():
                    # a writer that sends heartbeats and does half of its work is worse than none:
                    # another takes its place
                    log.error(
                        "a background task ended: this writer ends",
                        extra={"action": task.get_name()},
                    )
                    cause = None if task.cancelled() else task.exception()
                    raise RuntimeError(f"the background task {task.get_name()} ended") from cause
            await draining
        finally:
            # each by itself: a group of which one failed takes no cancelling, and the others would
            # go on without their connections
            tasks = [*drains, *background, stopping]
            for task in tasks:
                task.cancel()
            with contextlib.suppress(StreamConnectionLost, RedisError):
                await heartbeats.withdraw(self._redis, *self._shown())
            await asyncio.gather(*tasks, return_exceptions=True)
            of_redis = (self._redis, self._wake_ups)
            await asyncio.gather(
                *(c.close() for c in of_redis), *(drain.close() for drain in self._drains)
            )
            await asyncio.gather(self._seals.close(), self._histories.close())

    def _background(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is done beside the draining, by name."""
        return {
            "heartbeats": partial(
                process.send_heartbeats,
                self._redis,
                self._shown,
                alive_file=self.settings.alive_file,
            ),
            "seals": self._seals.run,
            "histories": self._histories.run,
            "budgets": self._accounts.run,
            **self._chores.loops(),
        }

    def _on_push(self, message: list[Any]) -> None:
        self._woken[message[1]].set()

    async def _subscribe(self) -> None:
        for channel in self._woken:
            self._wake_ups.send_quiet("SUBSCRIBE", channel)


async def run(settings: Runtime) -> None:
    """Run one audit writer until SIGTERM."""
    writer = AuditWriter(settings)
    lifecycle.on_stop(writer.stop)
    shown = writer.shown
    async with metrics_port.listening(
        settings, lambda: Exposition(shown.figures, "audit"), shown.refresh
    ):
        await writer.run()
