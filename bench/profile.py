"""What a chunk costs in each process: CPU, wake-ups, system calls, and the Redis commands by name.

`python -m bench.profile --workload "50 streams, 10 ms gap"`; with `--py-spy FOLDER` (py-spy must be
installed) a flame graph a process. Counts, unlike times, hardly change with what else a machine
does. Linux only: it reads /proc.
"""

import argparse
import asyncio
import contextlib
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from rich import box
from rich.console import Console
from rich.table import Table

from sluice.bench import WORKLOADS, RunningSluice, Workload, started
from sluice.load import Load

Counts = Counter[str]


def counts(pid: int) -> Counts:
    """CPU seconds, wake-ups and system calls that read or write, of all threads of a process."""
    found: Counts = Counter()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent = (task / "schedstat").read_text().split()
            found["cpu_us"] += int(spent[0]) // 1000
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary"):
                    found["wakes"] += int(line.split()[1])
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            found[name] += int(value)
    return found


def commands(client: Any) -> Counts:
    """How often each Redis command ran, also in scripts."""
    return Counter(
        {
            name.removeprefix("cmdstat_"): said["calls"]
            for name, said in client.info("commandstats").items()
        }
    )


@contextlib.contextmanager
def spied(place: RunningSluice, folder: Path | None) -> Iterator[None]:
    """Flame graphs of our processes meanwhile."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    spy = shutil.which("py-spy") or "py-spy"
    roles = [
        (role, pid)
        for role, pids in place.roles.items()
        if role not in ("redis", "postgres")
        for pid in pids
    ]
    flags = ["record", "--rate", "400", "--format", "raw", "--duration", "600"]
    running = [
        subprocess.Popen(
            [spy, *flags, "--pid", str(pid), "--output", str(folder / f"{role}-{pid}.txt")],
            stdout=subprocess.DEVNULL,
        )
        for role, pid in roles
    ]
    try:
        yield
    finally:
        for one in running:
            one.send_signal(2)
        for one in running:
            one.wait(30)


async def measure(place: RunningSluice, workload: Workload, folder: Path | None) -> dict[str, Any]:
    """Run the workload once to warm up and once counted; what each process and Redis did per
    chunk."""
    pids = {f"{role} {pid}": pid for role, found in place.roles.items() for pid in found}
    client = redis.Redis.from_url(place.redis_url)
    async with Load(place.url, place.key) as load:
        await load.run(
            workload.words, at_once=workload.at_once, rounds=1, streamed=workload.streamed
        )
        before, said = {name: total(children(pid)) for name, pid in pids.items()}, commands(client)
        with spied(place, folder):
            result = await load.run(
                workload.words,
                at_once=workload.at_once,
                rounds=workload.rounds,
                streamed=workload.streamed,
            )
    units = result.chunks if workload.streamed else result.answers
    # children anew: PostgreSQL has one for each connection
    rows = {
        name: {key: value / units for key, value in (total(children(pid)) - before[name]).items()}
        for name, pid in pids.items()
    }
    return {
        "workload": workload.name,
        "units": units,
        "failures": result.failures,
        "per_second": units / result.seconds,
        "processes": rows,
        "commands": {name: n / units for name, n in (commands(client) - said).items()},
    }


def children(pid: int) -> list[int]:
    """A process and what it started."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += [int(c) for c in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return found


def total(pids: list[int]) -> Counts:
    """Counts of several processes together."""
    return sum((counts(pid) for pid in pids), Counter())


def show(found: dict[str, Any]) -> None:
    """Print it as two tables."""
    table = Table(
        title=f"{found['workload']}: {found['units']:,} chunks, {found['per_second']:,.0f} per s",
        box=box.SIMPLE,
    )
    for name in ("per chunk", "CPU us", "wake-ups", "reads", "writes"):
        table.add_column(name, justify="right" if name != "per chunk" else "left")
    whole: Counter[str] = Counter()
    for name, row in found["processes"].items():
        whole.update(row)
        table.add_row(
            name, *(f"{row.get(key, 0):.2f}" for key in ("cpu_us", "wakes", "syscr", "syscw"))
        )
    table.add_row("all", *(f"{whole[key]:.2f}" for key in ("cpu_us", "wakes", "syscr", "syscw")))
    Console().print(table)
    named = sorted(found["commands"].items(), key=lambda pair: -pair[1])
    Console().print(
        "Redis, per chunk: " + ", ".join(f"{name} {n:.2f}" for name, n in named if n >= 0.005)
    )


def main() -> None:
    """Measure one workload, or all."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workload", choices=[one.name for one in WORKLOADS])
    options.add_argument("--py-spy", type=Path)
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    for workload in WORKLOADS:
        if asked.workload in (None, workload.name):
            with started() as place:
                found = asyncio.run(measure(place, workload, asked.py_spy))
            print(json.dumps(found)) if asked.json else show(found)


if __name__ == "__main__":
    main()
