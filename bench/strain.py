"""How cost grows with size: of requests, of open streams, of answers, of tool arguments. Everything
in one run, as ratios.

`python -m bench.strain [--only requests,streams,answers,calls] [--json]`; exit code 1 where a bound
is passed.

requests: what 1 MB of history adds to the time to first token, 20 sent at the same moment, against
`bench.plain_proxy`. streams: latency of a chunk with 1,000 open streams against 50, at the same
number of chunks a second in all. answers: CPU and memory for twice as many one-character deltas,
and for twice as many bytes of tool arguments. calls: CPU and what a client waits, a fragment of a
tool call against a delta of text.
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from rich import box
from rich.console import Console
from rich.table import Table

from bench.histories import history
from bench.processes import children, total
from bench.scripted import STAMP_CHARACTERS
from sluice.bench import CONFIG, RunningSluice, started
from sluice.up.embedded import free_port

_STAMP = re.compile(rb"@(\d+);")
MIB = 2**20
PARTS = ("requests", "streams", "answers", "calls")
SCRIPTS = {
    "quick": "text-20-2000-32",
    "first": "text-1-0-32",
    "few": "text-150-25000-32",
    "many": "text-8-500000-32",
    "deltas": "text-5000-0-1",
    "more deltas": "text-10000-0-1",
    "arguments": "tool-5000-0-512",
    "more arguments": "tool-10000-0-512",
    "text": "text-100-20000-32",
    "fragments": "tool-100-20000-32",
}
"""Models of the upstream (`bench.scripted`), by what they are for here."""
Row = dict[str, Any]


@contextlib.contextmanager
def serving(module: str, *args: str) -> Iterator[str]:
    """Run one of this folder's servers and lend its URL."""
    port = free_port()
    command = [sys.executable, "-m", module, str(port), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                sys.exit(f"{module} does not start")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def config(upstream: str) -> dict[str, Any]:
    """The policies of `sluice bench`; `rules` has no judge, which takes 64 KiB of arguments at
    most."""
    policies: Any = CONFIG["policies"]
    return {
        "upstreams": {"scripted": {"dialect": "openai", "base_url": f"{upstream}/v1"}},
        "models": [{"match": "*-*-*-*", "upstream": "scripted"}],
        "policies": {**policies, "rules": policies["default"][:2]},
    }


class Client:
    """Asks one server."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, key: str = "none", **headers: str
    ) -> None:
        self._session, self._url = session, f"{url}/v1/chat/completions"
        self._headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            **headers,
        }
        self.first_ms: list[float] = []
        self.delays_ms: list[tuple[float, float]] = []
        """When a chunk came, and how long after it was sent."""
        self.last_call = ""

    async def ask(self, body: bytes) -> bytes:
        """Send a request; returns the answer. Raises RuntimeError on what is not one."""
        began, rest, parts = time.monotonic_ns(), b"", []
        async with self._session.post(
            self._url, data=aiohttp.BytesPayload(body), headers=self._headers
        ) as answer:
            if answer.status != 200:
                raise RuntimeError(
                    f"{self._url}: status {answer.status}: {(await answer.text())[:300]}"
                )
            self.last_call = answer.headers.get("x-sluice-call-id", "")
            is_first = True
            async for data in answer.content.iter_any():
                now = time.monotonic_ns()
                parts.append(data)
                buffer, end = rest + data, 0
                for stamp in _STAMP.finditer(buffer):
                    if is_first:
                        self.first_ms.append((now - began) / 1e6)
                        is_first = False
                    self.delays_ms.append((now / 1e9, (now - int(stamp[1])) / 1e6))
                    end = stamp.end()
                rest = buffer[max(end, len(buffer) - STAMP_CHARACTERS) :]
        whole = b"".join(parts)
        if b"[DONE]" not in whole:
            raise RuntimeError(f"{self._url}: an answer without its end: {whole[-300:]!r}")
        return whole


def _body(script: str, *, prompt: str = "hello") -> bytes:
    return json.dumps(
        {
            "model": SCRIPTS[script],
            "stream": True,
            "messages": [{"role": "user", "content": prompt}],
        }
    ).encode()


# --- requests ---


async def requests(
    place: RunningSluice, upstream: str, *, size: int, at_once: int, rounds: int
) -> list[Row]:
    """The time to first token of large requests: the upstream itself, a plain proxy, Sluice, in
    turn."""
    body = history(SCRIPTS["quick"], size)
    with serving("bench.plain_proxy", upstream) as proxy:
        async with _session() as session:
            clients = {
                "direct": Client(session, upstream),
                "proxy": Client(session, proxy),
                "sluice": Client(session, place.url, place.key),
            }
            for number in range(rounds + 1):
                names = list(clients) if number % 2 else list(clients)[::-1]
                for name in names:
                    await asyncio.gather(*(clients[name].ask(body) for _ in range(at_once)))
                    if not number:
                        clients[name].first_ms.clear()
                    await _at_rest(session, place, clients["sluice"].last_call)
    first = {name: statistics.median(client.first_ms) for name, client in clients.items()}
    added = {name: first[name] - first["direct"] for name in ("proxy", "sluice")}
    told = ", ".join(f"{name} {value:.0f} ms" for name, value in first.items())
    what = (
        f"time to first token that {len(body) / 1e6:.2f} MB add, {at_once} at once, to that of a"
        " plain proxy"
    )
    return [_row("requests", what, added["sluice"] / added["proxy"], 1.5, told)]


# --- streams ---


async def streams(place: RunningSluice, *, counts: Sequence[tuple[str, int]]) -> list[Row]:
    """Latency of chunks while many streams are open, at one rate in all: only what came while all
    were open counts."""
    found: dict[str, tuple[float, float, float]] = {}
    async with _session() as session:
        for script, count in counts:
            _, chunks, gap_us, _ = SCRIPTS[script].split("-")
            client, whole_s = Client(session, place.url, place.key), int(chunks) * int(gap_us) / 1e6
            began = time.monotonic()
            await asyncio.gather(
                *(
                    _later(client, _body(script), number * int(gap_us) / 1e6 / count)
                    for number in range(count)
                )
            )
            gap_s = int(gap_us) / 1e6
            steady = [
                delay for at, delay in client.delays_ms if began + 2 * gap_s < at < began + whole_s
            ]
            cuts = statistics.quantiles(steady, n=100)
            found[script] = (cuts[49], cuts[98], count / gap_s)
            await _at_rest(session, place, client.last_call)
    (few, few_count), (many, many_count) = counts
    told = ", ".join(
        f"{n} open: p50 {found[s][0]:.2f}, p99 {found[s][1]:.1f} ms at {found[s][2]:.0f} chunks/s"
        for s, n in counts
    )
    return [
        _row(
            "streams",
            f"p50 of a chunk with {many_count:,} streams, to that with {few_count}",
            found[many][0] / found[few][0],
            2.0,
            told,
        )
    ]


async def _later(client: Client, body: bytes, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    await client.ask(body)


# --- answers ---


async def answers(place: RunningSluice) -> list[Row]:
    """CPU for twice as much, and how far the processes' memory peaks above what they held: one call
    after the other."""
    rows = []
    for less, more, what in (
        ("deltas", "more deltas", "10,000 one-character deltas"),
        ("arguments", "more arguments", "5 MB of tool arguments in 10,000 fragments"),
    ):
        used: dict[str, list[float]] = {less: [], more: []}
        peaks: dict[str, dict[str, float]] = {}
        async with _session() as session:
            client = Client(session, place.url, place.key, **{"x-sluice-policy": "rules"})
            for script in (more, less, more, less, more, less, more):
                with _watched(place) as peak:
                    before = _cpu_ms(place)
                    whole = await client.ask(_body(script))
                    await _at_rest(session, place, client.last_call)
                    used[script].append(sum(_cpu_ms(place).values()) - sum(before.values()))
                peaks[script] = peak
                _check_length(whole, script)
        # the first one warms up
        ratio = statistics.median(used[more][1:]) / statistics.median(used[less])
        told = (
            f"CPU {statistics.median(used[less]):.0f} -> {statistics.median(used[more][1:]):.0f} ms"
        )
        rows.append(_row("answers", f"CPU of {what}, to that of half", ratio, 2.2, told))
        grown = peaks[more]
        told = ", ".join(f"{role} {size:.0f}" for role, size in grown.items() if size >= 1)
        rows.append(
            _row(
                "answers",
                f"MiB by which a process of ours peaks over {what}",
                max(grown.values()),
                64.0,
                told,
            )
        )
    return rows


def _check_length(whole: bytes, script: str) -> None:
    kind, chunks, _, size = SCRIPTS[script].split("-")
    wanted = int(chunks) * int(size) if kind == "text" else (int(chunks) - 2) * int(size)
    if whole.count(b"x" if kind == "text" else b"y") < wanted:
        raise RuntimeError(f"{script}: an answer that is not whole: {whole[:500]!r}")


@contextlib.contextmanager
def _watched(place: RunningSluice) -> Iterator[dict[str, float]]:
    """How far, in MiB, each of our processes peaked above what it held before."""
    pids = {
        role: pid
        for role, found in place.roles.items()
        if role not in ("postgres", "redis")
        for pid in found
    }
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    held = {role: _status(pid, "VmRSS") for role, pid in pids.items()}
    grown: dict[str, float] = {}
    yield grown
    grown |= {role: _status(pid, "VmHWM") - held[role] for role, pid in pids.items()}


def _status(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


# --- calls ---


async def calls(place: RunningSluice, *, at_once: int, rounds: int) -> list[Row]:
    """Paced streams of text and of tool fragments in turn, the judge on: CPU a chunk, all processes
    counted."""
    used: dict[str, list[dict[str, float]]] = {"text": [], "fragments": []}
    async with _session() as session:
        client = Client(session, place.url, place.key)
        for number in range(rounds + 1):
            for script in ("text", "fragments") if number % 2 else ("fragments", "text"):
                before, chunks = _cpu_ms(place), int(SCRIPTS[script].split("-")[1])
                await asyncio.gather(
                    *(_later(client, _body(script), n * 0.02 / at_once) for n in range(at_once))
                )
                await _at_rest(session, place, client.last_call)
                if number:
                    used[script].append(
                        {
                            role: (now - before[role]) * 1e3 / chunks / at_once
                            for role, now in _cpu_ms(place).items()
                        }
                    )
    medians = {
        script: {role: statistics.median(one[role] for one in found) for role in found[0]}
        for script, found in used.items()
    }
    sums = {script: sum(found.values()) for script, found in medians.items()}
    told = ", ".join(
        f"{role} {medians['text'][role]:.0f} -> {medians['fragments'][role]:.0f}"
        for role in medians["text"]
    )
    told = f"us: {sums['text']:.0f} -> {sums['fragments']:.0f} ({told})"
    return [
        _row(
            "calls",
            "CPU of a fragment of a tool call, to that of a delta of text",
            sums["fragments"] / sums["text"],
            1.0,
            told,
        )
    ]


# --- all ---


def _row(part: str, what: str, value: float, bound: float, told: str) -> Row:
    return {
        "part": part,
        "what": what,
        "value": round(value, 2),
        "bound": bound,
        "reached": value <= bound,
        "told": told,
    }


def _cpu_ms(place: RunningSluice) -> dict[str, float]:
    return {
        role: sum(total(children(pid))["cpu_us"] for pid in pids) / 1e3
        for role, pids in place.roles.items()
    }


@contextlib.asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, read_bufsize=MIB
    ) as session:
        yield session


async def _at_rest(session: aiohttp.ClientSession, place: RunningSluice, call_id: str) -> None:
    """Wait until a call's end is on record: what one measurement left to do must not weigh on the
    next."""
    headers = {"authorization": f"Bearer {place.key}"}
    for _ in range(600 if call_id else 0):
        async with session.get(
            f"{place.url}/audit/calls", params={"call_id": call_id}, headers=headers
        ) as answer:
            items = (await answer.json())["items"]
        if items and items[0]["ended_at"]:
            return
        await asyncio.sleep(0.05)


async def measure(
    place: RunningSluice, upstream: str, only: Sequence[str], args: argparse.Namespace
) -> list[Row]:
    """All parts."""
    rows: list[Row] = []
    if "requests" in only:
        rows += await requests(
            place, upstream, size=args.size, at_once=args.at_once, rounds=args.rounds
        )
    if "streams" in only:
        rows += await streams(place, counts=(("few", 50), ("many", 1000)))
    if "answers" in only:
        rows += await answers(place)
    if "calls" in only:
        rows += await calls(place, at_once=50, rounds=args.rounds)
    return rows


def show(rows: Sequence[Row]) -> None:
    """Print a table."""
    table = Table(box=box.SIMPLE, padding=(0, 1), pad_edge=False)
    for name in ("", "measured", "bound", "", "in detail"):
        table.add_column(name, justify="right" if name in ("measured", "bound") else "left")
    for row in rows:
        table.add_row(
            row["what"],
            f"{row['value']:.2f}",
            f"{row['bound']:g}",
            "" if row["reached"] else "not reached",
            row["told"],
        )
    Console(width=200).print(table)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    options.add_argument("--size", type=int, default=MIB, help="bytes of a large request")
    options.add_argument("--at-once", type=int, default=20, help="large requests at once")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", action="store_true")
    args = options.parse_args()
    only = args.only.split(",")
    if unknown := set(only) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}")
    with serving("bench.scripted") as upstream, started(config(upstream)) as place:
        rows = uvloop.run(measure(place, upstream, only, args))
    if args.json:
        print(json.dumps(rows))
    else:
        show(rows)
    sys.exit(any(not row["reached"] for row in rows))


if __name__ == "__main__":
    main()
