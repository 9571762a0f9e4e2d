"""`sluice bench`: measures the cost of Sluice on this machine, in under a minute, with the built-in
upstream.

It starts its own Sluice (embedded servers, a temporary data directory) with a policy that looks at
every event, the judge on tool calls and the audit log on, and counts the CPU of all its processes.
Client and upstream share the machine.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from providers.origin import Origin
from sluice.bench_client import Load, StreamFigures
from sluice.errors import SettingsError, StartError
from sluice.settings import URLS_FILE

START_S = 60.0
CONFIG = {
    "policies": {
        "default": [
            {
                "use": "text_replace",
                "rules": [{"find": "a phrase that never comes", "replace": ""}],
            },
            {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": "rm -rf"}]},
            {"use": "tool_judge", "model": "demo-judge", "threshold": 0.6},
        ]
    }
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """The load of clients: `at_once` of them, `rounds` times each."""

    name: str
    words: str
    at_once: int
    rounds: int
    streamed: bool = True


WORKLOADS = (
    Workload("1 stream, 5 ms gap", "long 200 clock slowly, with a gap 5 ms", 1, 3),
    Workload("50 streams, 10 ms gap", "long 100 clock slowly, with a gap 10 ms", 50, 3),
    Workload("50 streams, no gap", "long 300 clock", 50, 4),
    Workload("50, not streamed", "hello", 50, 40, streamed=False),
)


@dataclass(frozen=True)
class RunningSluice:
    """A running Sluice. `roles` are the pids of its processes by role, none where it is not
    ours."""

    url: str
    key: str
    roles: dict[str, list[int]] = field(default_factory=dict)
    redis_url: str = ""
    database_url: str = ""

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of all its processes."""
        return tuple(pid for role_pids in self.roles.values() for pid in role_pids)


def run(*, url: str, key: str, as_json: bool, quick: bool) -> None:
    """Measure and print. Raises StartError where Sluice does not start."""
    try:
        Origin(url or "http://127.0.0.1")
    except ValueError:
        raise SettingsError(
            "--url: must begin with http:// or https://, as in http://127.0.0.1:8080"
        ) from None
    with contextlib.nullcontext(RunningSluice(url, key)) if url else started() as place:
        measured = asyncio.run(_measure(place, quick=quick))
    if as_json:
        print(json.dumps(measured))  # noqa: T201
    else:
        _show(measured)


@contextlib.contextmanager
def started(config: Row = CONFIG, *flags: str) -> Iterator[RunningSluice]:
    """Run a Sluice of our own, with more `flags` of `sluice up` if given. Raises StartError."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        file = Path(folder) / "bench.yaml"
        file.write_text(json.dumps(config))
        command = [
            sys.executable,
            "-m",
            "sluice.cli",
            "up",
            "--json",
            "--port",
            "0",
            "--data-dir",
            f"{folder}/data",
            "--config",
            str(file),
        ]
        command += flags
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        log = Path(folder) / "up.log"
        with (
            log.open("wb") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment) as up,
        ):
            try:
                assert up.stdout is not None
                line = up.stdout.readline()
                if not line:
                    raise StartError(
                        f"Sluice does not start: {log.read_text(errors='replace').strip()[-500:]}"
                    )
                ready = json.loads(line)
                urls = json.loads((Path(folder) / "data" / URLS_FILE).read_text())
                roles = {role: pids for role, pids in ready["pids"].items() if role != "launcher"}
                yield RunningSluice(
                    ready["url"], ready["key"], roles, urls["redis_url"], urls["database_url"]
                )
            finally:
                up.terminate()
                up.wait(START_S)


async def _measure(place: RunningSluice, *, quick: bool) -> Row:
    rows: list[Row] = []
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    async with Load(place.url, place.key) as load:
        warm = await load.run("long 20 clock", at_once=8, rounds=2)
        if not warm.answers:
            raise _unanswered(place, warm)
        # also the audit API, which its process loads when it is first asked
        await _lag(place, warm)
        with bar:
            task = bar.add_task("", total=len(WORKLOADS))
            for workload in WORKLOADS:
                bar.update(task, description=workload.name)
                before = cpu_s(place.pids)
                rounds = 1 if quick else workload.rounds
                result = await load.run(
                    workload.words,
                    at_once=workload.at_once,
                    rounds=rounds,
                    streamed=workload.streamed,
                )
                if not result.answers:
                    raise _unanswered(place, result)
                lag_ms = await _lag(place, result)
                rows.append(_row(workload, result, cpu_s(place.pids) - before, lag_ms))
                bar.advance(task)
    return {"url": place.url, "cores": os.cpu_count(), "own": bool(place.pids), "workloads": rows}


def _unanswered(place: RunningSluice, result: StreamFigures) -> StartError:
    do = ""
    if "status 401" in result.why or "status 403" in result.why:
        do = (
            " (give a key of its own with --key or SLUICE_KEY; it needs the roles client and"
            " auditor)"
        )
    elif "status 404" in result.why:
        do = " (it has no model `demo`: say `demo: true` in its configuration)"
    return StartError(f"no call was answered at {place.url}: {result.why}{do}")


async def _lag(place: RunningSluice, result: StreamFigures) -> float:
    """Milliseconds from the last answer to its end on record."""
    began = time.monotonic()
    asked = urllib.request.Request(
        f"{place.url}/audit/calls?call_id={result.last_call}",
        headers={"authorization": f"Bearer {place.key}"},
    )
    while time.monotonic() - began < START_S:
        try:
            items = json.loads(await asyncio.to_thread(_get, asked))["items"]
        except urllib.error.HTTPError:
            return float("nan")
        if items and items[0]["ended_at"]:
            break
        await asyncio.sleep(0.005)
    return (time.monotonic() - began) * 1000


def _get(asked: urllib.request.Request) -> bytes:
    # by no proxy that the environment names
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        asked, timeout=START_S
    ) as answer:
        body: bytes = answer.read()
        return body


def _row(workload: Workload, result: StreamFigures, cpu: float, lag_ms: float) -> Row:
    units = result.chunks if workload.streamed else result.answers
    return {
        "workload": workload.name,
        "answers": result.answers,
        "failures": result.failures,
        "chunks": result.chunks,
        "per_second": round(units / result.seconds, 1),
        "added_p50_ms": _quantile(result.delays, 50),
        "added_p99_ms": _quantile(result.delays, 99),
        "first_token_p50_ms": _quantile(result.firsts, 50),
        "cpu_ms_per_1000": round(cpu * 1e6 / units, 1) if cpu else None,
        "audit_lag_ms": round(lag_ms, 1),
    }


def _quantile(values: list[float], percent: int) -> float | None:
    if len(values) < 2:
        return round(values[0], 2) if values else None
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def _show(measured: Row) -> None:
    title = f"Sluice on {measured['cores']} cores, which client and upstream share"
    caption = (
        "p50, p99: what Sluice adds to a chunk; first: to the first chunk; lag: until the record"
        " has the end (all ms); CPU: ms per 1,000 chunks"
    )
    table = Table(title=title, caption=caption, box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    columns = {
        "": "workload",
        "per s": "per_second",
        "p50": "added_p50_ms",
        "p99": "added_p99_ms",
        "first": "first_token_p50_ms",
        "CPU": "cpu_ms_per_1000",
        "lag": "audit_lag_ms",
        "failed": "failures",
    }
    for name in columns:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for row in measured["workloads"]:
        table.add_row(*(_shown(row[key]) for key in columns.values()))
    Console().print(table)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.2f}"


def cpu_s(pids: tuple[int, ...]) -> float:
    """Return the CPU seconds that these processes and what they started have used; 0 for none."""
    if not pids:
        return 0.0
    used, parents = _processes()
    return sum(seconds for pid, seconds in used.items() if _is_of(pid, set(pids), parents))


def _is_of(pid: int, roots: set[int], parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid in roots:
            return True
        pid = parents.get(pid, 0)
    return False


def _processes() -> tuple[dict[int, float], dict[int, int]]:
    """CPU seconds and parent of every process: from /proc, or from ps, whose times are fine enough
    on macOS."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    if Path("/proc/self/stat").exists():
        tick = os.sysconf("SC_CLK_TCK")
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                pid = int(path.parent.name)
                used[pid], parents[pid] = (int(fields[11]) + int(fields[12])) / tick, int(fields[1])
        return used, parents
    for line in subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,time="], capture_output=True, text=True, check=False
    ).stdout.splitlines():
        process, parent, spent = line.split()
        *larger_units, seconds = spent.replace("-", ":").split(":")
        used[int(process)] = float(seconds) + sum(
            int(n) * unit
            for n, unit in zip(reversed(larger_units), (60, 3600, 86400), strict=False)
        )
        parents[int(process)] = int(parent)
    return used, parents
