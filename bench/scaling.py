"""Whether more workers help: throughput against the number of policy workers and of judge workers.

`python -m bench.scaling --svg scaling.svg`. Policy workers run a policy that costs CPU for
each chunk, so they can help up to the machine's cores. Judge workers, one judgement at a time each,
wait for a model that takes 20 or 100 ms; they are measured twice: alone (a question on the queue
until its answer is there) and in the whole product (a request until its released tool call is
there), where everything else a call costs shares the cores. Each point is a `sluice up` of its own.
"""

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import slow_judge
from bench.costly import rounds_for
from bench.plot import Line, Panel, Points, figure
from policy.base import Judgement, JudgeQuestion
from policy.judging.prompt import SYSTEM
from policy.session.effects import JudgeRequest
from sluice.bench import RunningSluice, cpu_s, started
from sluice.bench_client import Load, StreamFigures
from streams import layout
from streams.connection import Connection
from workers.judge_queue import JudgeQueue

WAITS_MS = (20, 100)
POLICY_WORKERS, JUDGE_WORKERS = (1, 2, 3, 4), (1, 2, 4, 8, 16)
COST_US = 500
WARM_S, DEADLINE_S = 1.0, 30.0
"""What is not counted: until all workers work; no longer than the time that is."""
STREAMS, STREAM = 16, "long 200 clock"
WAITING = 4
"""Questions or calls for each judge worker, so that none is ever without work."""
BASH = {
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
}
TOOL_CALL = {
    "model": "demo",
    "messages": [{"role": "user", "content": "list the files"}],
    "tools": [{"type": "function", "function": BASH}],
}


@dataclass
class Point:
    """What so many workers did: units a second; how many cores all our processes kept busy, and
    what runs on the machine beside them."""

    workers: int
    per_second: float
    cores: float
    elsewhere: float
    failures: int = 0
    efficiency: float = 1.0


@dataclass
class Curve:
    """Throughput over workers. `unit` is what is counted."""

    name: str
    unit: str
    points: list[Point] = field(default_factory=list)

    def add(self, point: Point) -> None:
        """Add a point; its efficiency is its throughput per worker over the first point's."""
        self.points.append(point)
        first = self.points[0]
        point.efficiency = point.per_second / point.workers / (first.per_second / first.workers)

    @property
    def bound(self) -> float:
        """What all cores could do at the least CPU that a unit cost, client and upstream
        counted."""
        return (os.cpu_count() or 1) * max(point.per_second / point.cores for point in self.points)


def config(rounds: int, judges: str) -> dict[str, Any]:
    """A policy for each thing that is measured."""
    return {
        "upstreams": {
            f"wait-{ms}": {"dialect": "openai", "base_url": f"{judges}/{ms}/v1"} for ms in WAITS_MS
        },
        "demo": True,
        "models": [{"match": f"wait-{ms}", "upstream": f"wait-{ms}"} for ms in WAITS_MS],
        "policies": {
            "default": [{"use": "bench.costly:Costly", "rounds": rounds}],
            **{
                f"wait-{ms}": [
                    {"use": "tool_judge", "model": f"wait-{ms}", "deadline_s": DEADLINE_S}
                ]
                for ms in WAITS_MS
            },
        },
    }


def rate(times: list[float]) -> float:
    """Units a second, from the moment of each: the slope of their count, which hardly depends on
    where the window begins and ends."""
    return statistics.linear_regression(times, range(len(times))).slope if len(times) > 1 else 0.0


@contextlib.asynccontextmanager
async def again_and_again(
    one: Callable[[], Awaitable[bool]], at_once: int
) -> AsyncIterator[tuple[list[float], list[float]]]:
    """Do `one` again and again, `at_once` at a time; gives the moments of those that went well and
    of those that did not."""
    good: list[float] = []
    bad: list[float] = []

    async def client() -> None:
        while True:
            went_well = await one()
            (good if went_well else bad).append(time.monotonic())

    clients = [asyncio.create_task(client(), name="client") for _ in range(at_once)]
    try:
        yield good, bad
    finally:
        for task in clients:
            task.cancel()
        for said in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(said, Exception):
                raise said


def machine_s() -> float:
    """Seconds for which the machine's cores were busy or taken away, since it started; 0 where the
    system does not say."""
    with contextlib.suppress(OSError):
        user, nice, system, _idle, _wait, *others = (
            Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        return sum(map(int, (user, nice, system, *others))) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Meter:
    """CPU from now on: that of the product, of client and upstream, and what else the machine
    does."""

    def __init__(self, place: RunningSluice) -> None:
        self._pids = (os.getpid(), *place.pids)
        self._began, self._spent, self._busy = time.monotonic(), cpu_s(self._pids), machine_s()

    def point(self, workers: int, per_second: float, failures: int) -> Point:
        """What was measured since then."""
        took, spent, busy = (
            time.monotonic() - self._began,
            cpu_s(self._pids) - self._spent,
            machine_s() - self._busy,
        )
        return Point(workers, per_second, spent / took, max(0.0, (busy - spent) / took), failures)


@contextlib.asynccontextmanager
async def _streaming(load: Load) -> AsyncIterator[StreamFigures]:
    """Streams that begin anew until the block ends; `Result` has what came so far. Calls that are
    open then are dropped."""
    result = StreamFigures()

    async def client() -> None:
        while True:
            await load.ask(STREAM, result, streamed=True)

    clients = [asyncio.create_task(client(), name="client") for _ in range(STREAMS)]
    try:
        yield result
    finally:
        for one in clients:
            one.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def measure_policies(place: RunningSluice, workers: int, seconds: float) -> Point:
    """Chunks a second through the policy that costs CPU."""
    async with Load(place.url, place.key) as load, _streaming(load) as result:
        await asyncio.sleep(min(WARM_S, seconds))
        meter, before, began = Meter(place), result.chunks, time.monotonic()
        await asyncio.sleep(seconds)
        return meter.point(
            workers, (result.chunks - before) / (time.monotonic() - began), result.failures
        )


async def _measured(
    place: RunningSluice, workers: int, seconds: float, one: Callable[[], Awaitable[bool]]
) -> Point:
    async with again_and_again(one, WAITING * workers) as (good, bad):
        await asyncio.sleep(min(WARM_S, seconds))
        meter, before = Meter(place), len(good)
        await asyncio.sleep(seconds)
        return meter.point(workers, rate(good[before:]), len(bad))


class Asker:
    """Asks the judge pool as a policy worker does: a question on the queue, the answer by the
    call's channel."""

    def __init__(self, redis_url: str) -> None:
        self._redis, self._sub = (
            Connection(redis_url, name="bench"),
            Connection(redis_url, name="bench-sub", on_push=self._on_push),
        )
        self._queue, self._call_id = JudgeQueue(redis_url, self._redis), layout.new_call_id()
        self._waiting: dict[bytes, asyncio.Future[None]] = {}
        self._asked = 0

    async def __aenter__(self) -> "Asker":
        await asyncio.gather(self._redis.open(), self._sub.open())
        await self._sub.call("SUBSCRIBE", layout.facts_channel(self._call_id))
        # a call without its stream is over, and nothing is kept for it
        await self._redis.call("XADD", layout.call_key(self._call_id), "*", "kind", "bench")
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(self._queue.close(), self._redis.close(), self._sub.close())

    def _on_push(self, message: list[Any]) -> None:
        if (waiting := self._waiting.pop(message[2], None)) is not None and not waiting.done():
            waiting.set_result(None)

    async def ask(self, wait_ms: int) -> bool:
        """Ask one question; did the judge answer it, after its wait?"""
        nonce, block = secrets.token_hex(16), self._asked
        self._asked += 1
        call = {"name": "bash", "arguments": '{"command":"ls -la"}'}
        asked = JudgeQuestion(
            f"wait-{wait_ms}", SYSTEM, f"Is this harmful? {nonce} {call}", nonce, 0.6, None, call
        )
        name = layout.judgement_field(block, 0)
        self._waiting[name.encode()] = answered = asyncio.get_running_loop().create_future()
        await self._queue.ask(JudgeRequest(self._call_id, block, 0, asked), DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            await answered
        said = await self._redis.call("HGET", layout.facts_key(self._call_id), name)
        judgement = msgspec.json.decode(said, type=Judgement)
        return not judgement.error and judgement.latency_ms >= wait_ms - 1


async def measure_pool(place: RunningSluice, workers: int, seconds: float, wait_ms: int) -> Point:
    """Judgements a second of the judge workers alone."""
    async with Asker(place.redis_url) as asker:
        return await _measured(place, workers, seconds, lambda: asker.ask(wait_ms))


async def measure_calls(place: RunningSluice, workers: int, seconds: float, wait_ms: int) -> Point:
    """Calls a second through the whole product, each with one tool call that a judge allowed and
    that is on record."""
    headers = {"authorization": f"Bearer {place.key}", "x-sluice-policy": f"wait-{wait_ms}"}
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=DEADLINE_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers
    ) as session:

        async def call() -> bool:
            async with session.post(f"{place.url}/v1/chat/completions", json=TOOL_CALL) as answer:
                said = await answer.json()
                return (
                    answer.status == 200
                    and len(said["choices"][0]["message"].get("tool_calls") or ()) == 1
                )

        return await _measured(place, workers, seconds, call)


def run(
    policy_workers: list[int],
    judge_workers: list[int],
    seconds: float,
    cost_us: int,
    tell: Callable[[str], None],
) -> list[Curve]:
    """Measure every curve; `tell` is told what comes next."""
    policies = Curve(f"a policy of {cost_us} us a chunk", "chunks")
    alone = {ms: Curve(f"a judge of {ms} ms, the pool alone", "judgements") for ms in WAITS_MS}
    whole = {ms: Curve(f"a judge of {ms} ms, the whole product", "tool calls") for ms in WAITS_MS}
    with slow_judge.playing() as judges:
        made = config(rounds_for(cost_us), judges)
        for count in policy_workers:
            tell(f"{count} policy workers")
            with started(made, "--policy-workers", str(count)) as place:
                policies.add(asyncio.run(measure_policies(place, count, seconds)))
        for count in judge_workers:
            tell(f"{count} judge workers")
            with started(made, "--judge-workers", str(count), "--judge-concurrency", "1") as place:
                for ms in WAITS_MS:
                    alone[ms].add(asyncio.run(measure_pool(place, count, seconds, ms)))
                    whole[ms].add(asyncio.run(measure_calls(place, count, seconds, ms)))
    curves = [policies, *(curve for ms in WAITS_MS for curve in (alone[ms], whole[ms]))]
    return [curve for curve in curves if curve.points]


def drawn(curves: list[Curve]) -> str:
    """Return the figure: a panel for the policy, and one for each wait."""
    return figure(
        "Throughput against the number of workers",
        [
            _drawn(together[0].name.partition(",")[0], together)
            for together in (curves[:1], curves[1:3], curves[3:])
        ],
    )


def _drawn(title: str, curves: list[Curve]) -> Panel:
    base, most = curves[0].points[0], curves[0].points[-1].workers
    measured: list[Points] = [
        [(point.workers, point.per_second) for point in curve.points] for curve in curves
    ]
    lines = [
        Line(
            "ideal",
            "as many times one worker",
            [(0, 0), (most, most * base.per_second / base.workers)],
        ),
        Line(
            "bound",
            "what all cores could do in the whole product",
            [(0, curves[-1].bound), (most, curves[-1].bound)],
        ),
        Line("first", "the whole product", measured[-1]),
    ]
    if len(curves) > 1:
        lines.append(Line("second", "judge workers alone", measured[0]))
    workers = "judge workers, one judgement at a time each" if len(curves) > 1 else "policy workers"
    return Panel(
        title, workers, f"{curves[-1].unit}/s", lines, [point.workers for point in curves[0].points]
    )


def show(curves: list[Curve]) -> None:
    """Print a table."""
    table = Table(
        title=f"More workers, on {os.cpu_count()} cores",
        box=box.SIMPLE,
        padding=(0, 1),
        pad_edge=False,
        caption=(
            "efficiency: throughput per worker over that of one; cores kept busy, client and judge"
            " model too; other: by others"
        ),
    )
    for name in ("", "N", "per s", "efficiency", "cores", "other", "failed"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for curve in curves:
        for point in curve.points:
            first = point is curve.points[0]
            table.add_row(
                f"{curve.name} ({curve.unit})" if first else "",
                str(point.workers),
                f"{point.per_second:,.1f}",
                f"{point.efficiency:.3f}",
                f"{point.cores:.2f}",
                f"{point.elsewhere:.2f}",
                str(point.failures),
                end_section=point is curve.points[-1],
            )
    Console().print(table)


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(",") if count]


def main() -> None:
    """Measure, print, and draw where asked to."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--policy-workers", default=list(POLICY_WORKERS), type=_counts, metavar="N,N,..."
    )
    options.add_argument(
        "--judge-workers", default=list(JUDGE_WORKERS), type=_counts, metavar="N,N,..."
    )
    options.add_argument(
        "--seconds", type=float, default=3.0, help="how long each point is measured"
    )
    options.add_argument(
        "--cost-us", type=int, default=COST_US, help="CPU of the policy for each chunk"
    )
    options.add_argument("--svg", type=Path, help="draw the figure into this file")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(asked.policy_workers) + len(asked.judge_workers) + 1)
        curves = run(
            asked.policy_workers,
            asked.judge_workers,
            asked.seconds,
            asked.cost_us,
            lambda what: bar.update(task, description=what, advance=1),
        )
    if asked.json:
        print(json.dumps({"cores": os.cpu_count(), "curves": [asdict(curve) for curve in curves]}))
    else:
        show(curves)
    if asked.svg:
        asked.svg.write_text(drawn(curves))


if __name__ == "__main__":
    main()
