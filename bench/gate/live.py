"""A running Sluice, everything on: what a chunk and a call take of it, counted in lock step, and
its pace beside the bare upstream's.

In lock step the upstream sends a chunk when the client has the one before and all processes have
come to rest: then the counts do not depend on how fast the machine is or what else it does. The
audit writer, which takes together what a time brought, is stopped meanwhile, and takes it all
together after that.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench.gate.wire import Client, Upstream
from bench.processes import children, counts, total
from sluice.bench import CONFIG, RunningSluice, started
from streams import layout

PROBE = Path(__file__).with_name("probe")
PATIENCE_S = 60.0
REST_S = 0.003
"""Until every process waits again after a chunk; with less the counts are the same but for a few in
a hundred."""
WARM, STEPS, CALLS = 20, 300, 25
ROUNDS = 5
MANY, LONG = 50, 200
FEW, SHORT = 10, 150
DIRECT = 5
"""How many times as many chunks as through Sluice are asked for directly, which takes a tenth of
the time."""
Figures = dict[str, float]
Rounds = dict[str, list[float]]


@dataclass(frozen=True)
class Target:
    """Whom the client asks, and whose CPU is counted. `counting` is of Sluice, whose record is
    waited for."""

    url: str
    pids: list[int]
    key: str = ""
    counting: "Counting | None" = None

    @contextlib.asynccontextmanager
    async def asked(self, at_once: int, spent: list[float]) -> AsyncIterator[Client]:
        """A client; adds the CPU microseconds that it cost until everything is on record."""
        async with Client(self.url, at_once=at_once, key=self.key) as client:
            before = total(self.pids)["cpu_us"]
            yield client
            if self.counting is not None:
                await self.counting.drained()
            spent.append(total(self.pids)["cpu_us"] - before)


@contextlib.contextmanager
def bare_upstream() -> Iterator[tuple[int, int]]:
    """The upstream as a process of its own: its port and pid."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.gate.wire"], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


@contextlib.contextmanager
def sluice(ports: dict[str, int], folder: Path) -> Iterator[RunningSluice]:
    """Run a Sluice whose processes can count, with an upstream and a model of each name."""
    upstreams = {
        name: {"dialect": "openai", "base_url": f"http://127.0.0.1:{port}/v1"}
        for name, port in ports.items()
    }
    path = os.pathsep.join(filter(None, [str(PROBE), os.environ.get("PYTHONPATH")]))
    os.environ.update(PYTHONPATH=path, GATE_COUNTS=str(folder))
    with started(
        {
            **CONFIG,
            "upstreams": upstreams,
            "models": [{"match": name, "upstream": name} for name in upstreams],
        }
    ) as place:
        yield place


class Counting:
    """What the processes do between two moments."""

    def __init__(self, place: RunningSluice, folder: Path) -> None:
        self._folder = folder
        self._redis: Any = redis.Redis.from_url(place.redis_url)
        self._pids = {role: place.roles[role][0] for role in ("gateway", "policy", "audit")}
        self.figures: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def interpreter(self) -> AsyncIterator[None]:
        """Count Python's instructions and calls in the gateway, the policy worker and the audit
        writer."""
        await self._signal(signal.SIGUSR1, "counting", *self._pids)
        async with self._audit_stopped():
            yield
            told = await self._signal(signal.SIGUSR2, "counted", "gateway", "policy")
        told |= await self._signal(signal.SIGUSR2, "counted", "audit")
        for role, text in told.items():
            instructions, calls = text.split()
            self.figures.update(
                {
                    f"{role}: Python instructions": int(instructions),
                    f"{role}: calls of functions": int(calls),
                }
            )

    @contextlib.asynccontextmanager
    async def kernel_and_redis(self) -> AsyncIterator[None]:
        """Count wake-ups, reads and writes of the gateway and the policy worker, and the commands
        and bytes that Redis takes."""
        before, ran = {role: counts(pid) for role, pid in self._pids.items()}, self._ran()
        async with self._audit_stopped():
            yield
            after = {role: counts(pid) for role, pid in self._pids.items()}
        for role in ("gateway", "policy"):
            self.figures[f"{role}: wake-ups"] = after[role]["wakes"] - before[role]["wakes"]
            self.figures[f"{role}: reads and writes"] = sum(
                after[role][name] - before[role][name] for name in ("syscr", "syscw")
            )
        self.figures.update({name: n - ran[name] for name, n in self._ran().items()})

    def _ran(self) -> Counter[str]:
        ran = sum(said["calls"] for said in self._redis.info("commandstats").values())
        return Counter(
            {
                "Redis: commands": ran,
                "Redis: bytes in": self._redis.info("stats")["total_net_input_bytes"],
            }
        )

    @contextlib.asynccontextmanager
    async def _audit_stopped(self) -> AsyncIterator[None]:
        os.kill(self._pids["audit"], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pids["audit"], signal.SIGCONT)
        await self.drained()

    async def drained(self) -> None:
        """Wait until everything is on record."""
        await until(
            lambda: not self._redis.xlen(layout.audit_key(0)), "the record does not come after"
        )

    async def _signal(self, number: signal.Signals, answer: str, *roles: str) -> dict[str, str]:
        told = {}
        for role in roles:
            pid = self._pids[role]
            path = self._folder / f"{pid}.{answer}"
            os.kill(pid, number)
            await until(path.exists, f"{role} does not answer the probe")
            told[role] = path.read_text()
            path.unlink()
        return told


async def until(is_so: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition. Raises TimeoutError with `what`."""
    end = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(what)
        await asyncio.sleep(0.01)


async def count(place: RunningSluice, upstream: Upstream, folder: Path) -> Figures:
    """What a chunk and a call take, each for itself."""
    found: Figures = {}
    async with Client(place.url, at_once=1, key=place.key) as client:
        for way in (Counting.kernel_and_redis, *[Counting.interpreter] * 3):
            window = Counting(place, folder)
            await _steps(client, upstream, way(window))
            _take_least(found, "a chunk", window.figures, STEPS)
            window = Counting(place, folder)
            async with way(window):
                for _ in range(CALLS):
                    await client.run("stepped", streamed=False)
                    await asyncio.sleep(REST_S)
            _take_least(found, "a call", window.figures, CALLS)
    return found


def _take_least(found: Figures, what: str, figures: Mapping[str, float], number: int) -> None:
    """What starts by the clock falls into one window and not into the next: the least is the work
    itself."""
    for name, figure in figures.items():
        each = figure / number
        found[f"{what}, {name}"] = min(each, found.get(f"{what}, {name}", each))


async def _steps(
    client: Client, upstream: Upstream, window: contextlib.AbstractAsyncContextManager[None]
) -> None:
    """One stream in lock step: a few chunks to come to rest, then those that are counted."""
    arrived = asyncio.Event()
    client.on_marks = lambda _: arrived.set()

    async def step() -> None:
        arrived.clear()
        upstream.stepped[0]()
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
        await asyncio.sleep(REST_S)

    async with asyncio.TaskGroup() as group:
        upstream.stepped.clear()
        group.create_task(client.run("stepped", chunks=WARM + STEPS + 1, step=True))
        await until(lambda: upstream.stepped, "the upstream is not asked")
        for _ in range(WARM):
            await step()
        async with window:
            for _ in range(STEPS):
                await step()
        await step()


async def _many(target: Target, times: int) -> tuple[float, float]:
    """Many streams without a gap: chunks a second, and CPU microseconds a chunk."""
    spent: list[float] = []
    async with target.asked(MANY, spent) as client:
        began = time.monotonic()
        chunks = await client.run("bare", rounds=times, chunks=LONG)
        took_s = time.monotonic() - began
    return chunks / took_s, spent[0] / chunks


async def _few(target: Target, upstream: Upstream, times: int) -> float:
    """Few streams, with one chunk of each under way: CPU microseconds a chunk where little comes
    together."""
    spent: list[float] = []
    async with target.asked(FEW, spent) as client, asyncio.TaskGroup() as group:
        upstream.stepped.clear()
        group.create_task(client.run("stepped", chunks=SHORT * times, step=True))
        await until(lambda: len(upstream.stepped) == FEW, "the upstream is not asked")
        # which stream comes next is all one, as long as each gets its turn
        turns = itertools.cycle(upstream.stepped)

        def on_marks(count: int) -> None:
            for _ in range(count):
                next(turns)()

        client.on_marks = on_marks
        on_marks(FEW)
    return spent[0] / (FEW * SHORT * times)


async def _beside(
    bare: Target, stepped: Target, through: Target, upstream: Upstream, found: Rounds
) -> Figures:
    """Add rounds, in each of which the bare upstream and Sluice take turns; returns the medians of
    all."""
    for _ in range(ROUNDS):
        direct, ours = await _many(bare, DIRECT), await _many(through, 1)
        few = await _few(stepped, upstream, DIRECT), await _few(through, upstream, 1)
        found.setdefault(
            "chunks per second beside the bare upstream's: 50 streams without a gap", []
        ).append(ours[0] / direct[0])
        found.setdefault(
            "CPU a chunk, of the bare upstream's and client's: 50 streams without a gap", []
        ).append(ours[1] / direct[1])
        found.setdefault(
            "CPU a chunk, of the bare upstream's and client's: 10 streams in lock step", []
        ).append(few[1] / few[0])
    return {name: statistics.median(values) for name, values in found.items()}


MORE = 3
"""How often what depends on time is measured again: others may have taken the processor meanwhile."""


async def measure(is_quiet: Callable[[], bool], is_past: Callable[[str, float], bool]) -> Figures:
    """Start everything, count, and, when `is_quiet`, measure ratios; the counts twice, the ratios up
    to `MORE` times more where something `is_past` its bound."""
    upstream = Upstream()
    at = await upstream.start()
    with tempfile.TemporaryDirectory(prefix="sluice-gate-") as name, bare_upstream() as (port, pid):
        with sluice({"bare": port, "stepped": at}, Path(name)) as place:
            async with Client(place.url, at_once=8, key=place.key) as client:
                await client.run("bare", rounds=4, chunks=20)
            found = await count(place, upstream, Path(name))
            if any(is_past(figure, n) for figure, n in found.items()):
                # a beat or a sweep in between makes them more, nothing makes them fewer
                again = await count(place, upstream, Path(name))
                found = {figure: min(n, again[figure]) for figure, n in found.items()}
            what = "what is counted beside this does not end"
            await until(is_quiet, what, patience_s=10 * PATIENCE_S)
            pids = [one for root in place.pids for one in children(root)]
            bare, stepped = (
                Target(f"http://127.0.0.1:{port}", [os.getpid(), pid]),
                Target(f"http://127.0.0.1:{at}", [os.getpid()]),
            )
            through = Target(place.url, pids, place.key, Counting(place, Path(name)))
            rounds: Rounds = {}
            ratios = await _beside(bare, stepped, through, upstream, rounds)
            for _ in range(MORE):
                if not any(is_past(figure, n) for figure, n in ratios.items()):
                    break
                ratios = await _beside(bare, stepped, through, upstream, rounds)
    upstream.close()
    return found | ratios
