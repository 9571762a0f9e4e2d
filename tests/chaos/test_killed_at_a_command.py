"""Real processes get SIGKILL at the moment when one of their commands has taken effect and its
answer is on the way.

A sample, with a printed seed, of what tests/faults/test_every_command.py does for every command
inside one process.
"""

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2 as httpx
import psycopg
import pytest

from db.connections import conninfo
from tests.support.checks.figures import Figure
from tests.support.checks.invariants import Seen, call_faults, read_call, settle
from tests.support.clients.sdk_calls import tool
from tests.support.servers.product import KEY, Product, Role, base_config
from tests.support.servers.wire import Fault, Point, PostgresLink, RedisLink, Watch, Wire
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ROLES: tuple[Role, ...] = ("audit", "judge", "gateway", "policy")
SAMPLE: dict[str, int] = {"policy": 2, "audit": 2, "judge": 1, "gateway": 1}
SPARE = 3
"""Points tried beyond the sample where a call did not come to some."""
DEADLINE_S = 40.0
REQUEST = {
    "model": "demo",
    "stream": True,
    "tools": [tool("openai", "bash", command="string")],
    "messages": [{"role": "user", "content": "list the files slowly, with a gap 20 ms"}],
}


class Place:
    """A product of processes behind wires."""

    def __init__(self, product: Product, watch: Watch, sql: psycopg.Connection[Any]) -> None:
        self.product, self.watch, self.sql = product, watch, sql
        self.killed: list[Role] = []
        watch.on_crash = self._kill

    def _kill(self, role: str) -> None:
        for child in self.product.of(role):  # type: ignore[arg-type]
            child.kill(signal.SIGKILL)
            self.killed.append(child.role)

    def _ask(self) -> Seen:
        seen, began = Seen("openai", streams=True, whole=False), time.monotonic()
        try:
            headers = {"authorization": f"Bearer {KEY}"}
            with httpx.stream(
                "POST",
                f"{self.product.url}/v1/chat/completions",
                json=REQUEST,
                headers=headers,
                timeout=60,
            ) as answer:
                seen.status, seen.call_id = (
                    answer.status_code,
                    answer.headers.get("x-sluice-call-id", ""),
                )
                for data in answer.iter_raw():
                    seen.body += data
                seen.whole = True
        except httpx.HTTPError:
            pass
        seen.elapsed_s = time.monotonic() - began
        return seen

    async def _replace(self) -> None:
        await self.watch.fired.wait()
        await wait_until(lambda: self.killed)
        await asyncio.to_thread(self.product.start, *self.killed)

    async def run(self, fault: Fault | None = None) -> tuple[Seen, list[str]]:
        """Make a call, replace who was killed, and check the invariants once all is over."""
        self.killed.clear()
        self.watch.begin(fault)
        # until all is over: a writer may come to its point long after the client has its answer
        replacing = asyncio.create_task(self._replace())
        seen = await asyncio.to_thread(self._ask)
        found = await asyncio.to_thread(settle, self.sql, self.product.redis, timeout_s=DEADLINE_S)
        self.watch.fault = None
        if not self.watch.fired.is_set():
            replacing.cancel()
        await asyncio.wait({replacing})
        if not replacing.cancelled():
            replacing.result()
        if seen.call_id:
            found += call_faults(seen, read_call(self.sql, seen.call_id), deadline_s=DEADLINE_S)
        return seen, found


@asynccontextmanager
async def opened(folder: Path, redis_url: str, database_url: str) -> AsyncIterator[Place]:
    watch, wires = Watch(), list[Wire]()
    config = base_config()
    config["limits"] |= {"lease_s": 1.0, "commit_s": 15.0, "judge_s": 15.0, "redis_silent_s": 2.0}
    with Product(folder, redis_url, database_url, config) as product:
        for role in ROLES:
            for urls, url, kind in (
                (product.redis_urls, redis_url, RedisLink),
                (product.database_urls, database_url, PostgresLink),
            ):
                at = urlsplit(url)
                assert at.hostname is not None and at.port is not None
                wires.append(Wire(watch, role, at.hostname, at.port, kind))
                await wires[-1].start()
                urls[role] = urlunsplit(
                    at._replace(netloc=f"{at.netloc.rpartition(':')[0]}:{wires[-1].port}")
                )
        try:
            await asyncio.to_thread(product.start, *ROLES)
            with psycopg.connect(conninfo(database_url), autocommit=True) as sql:
                yield Place(product, watch, sql)
        finally:
            await asyncio.to_thread(product.stop)
            for wire in wires:
                wire.cut()


@pytest.mark.case("W3", "W4", "W5")
@pytest.mark.timeout(240)
async def test_w5_processes_killed_at_a_command(
    tmp_path: Path, redis_url: str, database_url: str, seed: int, figure: Figure
) -> None:
    chance = random.Random(seed)
    async with opened(tmp_path, redis_url, database_url) as place:
        recordings = []
        for _ in range(2):
            seen, found = await place.run()
            assert not found and seen.status == 200 and b"[DONE]" in seen.body, (
                f"{found}\n{seen}\n{place.product.logs()}"
            )
            recordings.append(set(place.watch.points))
        reached, waits = list[Point](), list[float]()
        for role, count in SAMPLE.items():
            # what both have; which points a call comes to depends a little on timing all the same
            points = sorted(p for p in set.intersection(*recordings) if p.role == role)
            for point in chance.sample(points, len(points))[: count + SPARE]:
                seen, found = await place.run(Fault(point, "crash"))
                assert not found, f"seed {seed}: {point}: {found}\n{seen}\n{place.product.logs()}"
                if place.watch.fired.is_set():
                    reached.append(point)
                    waits.append(seen.elapsed_s)
                if sum(p.role == role for p in reached) == count:
                    break
        print(f"seed {seed}: killed at " + ", ".join(map(str, reached)))
        figure("processes killed at a command", len(reached), "kills")
        figure("longest wait of a client", max(waits), "s")
        assert {p.role for p in reached} == set(ROLES), f"seed {seed}: only {reached}"
