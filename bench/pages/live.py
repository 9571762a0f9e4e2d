"""How far behind a live view is: from the moment a model's chunk is sent to its text in an event at
the browser's end.

`python -m bench.pages.live` runs a product of its own with 50 streams of 10 ms and 20 views of
them, and holds the figures against their bounds; `--views 0 5 20` measures several numbers of
views. The demo model writes the moment at which it sends each piece, so what is measured has the
gateway's reading in it. It measures with all processes on one machine.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx

from sluice.bench import started

STREAMS, GAP_MS = 50, 10
P50_MS, P99_MS = 120.0, 250.0
WORDS = 1000
OF_KEY = 10
OF_LOGIN = OF_KEY // 2
READERS = ("sk-sluice-bench-reader-1", "sk-sluice-bench-reader-2")
CONFIG = {
    "keys": [
        {
            "name": f"reader-{n}",
            "sha256": hashlib.sha256(key.encode()).hexdigest(),
            "roles": ["client", "auditor"],
        }
        for n, key in enumerate(READERS)
    ]
}
_CLOCK = re.compile(r"@(\d+);")


async def ask(client: httpx.AsyncClient, key: str, ids: list[str]) -> None:
    """One stream, read to its end."""
    body = {
        "model": "demo",
        "stream": True,
        "messages": [
            {"role": "user", "content": f"long {WORDS} clock slowly, with a gap {GAP_MS} ms"}
        ],
    }
    async with client.stream(
        "POST", "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
    ) as answer:
        ids.append(answer.headers["x-sluice-call-id"])
        async for _ in answer.aiter_raw():
            pass


async def load(url: str, key: str, streams: int) -> None:
    """All streams; prints their ids as they begin."""
    ids: list[str] = []
    limits = httpx.Limits(max_connections=streams)
    async with (
        httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(streams):
            group.create_task(ask(client, key, ids))
        while len(ids) < streams:
            await asyncio.sleep(0.01)
        sys.stdout.write(json.dumps(ids) + "\n")
        sys.stdout.flush()


async def log_in(client: httpx.AsyncClient, url: str, key: str) -> str:
    """Return the cookie of a login."""
    answer = await client.post(
        "/debug/login", data={"key": key, "next": "/debug/calls"}, headers={"origin": url}
    )
    return str(answer.headers["set-cookie"]).partition(";")[0]


async def view(
    client: httpx.AsyncClient, cookie: str, call_id: str, found: list[float], frames: list[int]
) -> None:
    """One live view: how old each piece of text is when its event is there."""
    async with client.stream(
        "GET", f"/debug/calls/{call_id}/events", headers={"cookie": cookie}
    ) as answer:
        answer.raise_for_status()
        rest, is_first = "", True
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            at = time.monotonic_ns()
            data = json.loads(line[6:])
            frames.append(data.get("behind", 0))
            for block in data.get("blocks", ()):
                text = rest + block.get("add", "")
                rest = text[text.rfind(";") + 1 :]
                # what was there before the view is no matter of its speed
                found += (
                    [] if is_first else [(at - int(sent)) / 1e6 for sent in _CLOCK.findall(text)]
                )
                is_first = False


def cpu_s(pids: list[int]) -> float:
    """The CPU that processes took so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


async def run(url: str, key: str, views: int, streams: int, pids: list[int]) -> dict[str, Any]:
    """Measure with so many views; `pids` are those of the pages."""
    found: list[float] = []
    frames: list[int] = []
    async with httpx.AsyncClient(
        base_url=url, timeout=120, limits=httpx.Limits(max_connections=64)
    ) as client:
        # before the streams: the first login loads the pages' libraries
        cookies = [await log_in(client, url, READERS[n // 2]) for n in range(-(-views // OF_LOGIN))]
        await client.get("/debug/calls", headers={"cookie": cookies[0]})
        arguments = [
            sys.executable,
            "-m",
            "bench.pages.live",
            "--load",
            url,
            "--streams",
            str(streams),
        ]
        loading = await asyncio.create_subprocess_exec(
            *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, "SLUICE_KEY": key}
        )
        assert loading.stdout is not None
        ids = json.loads(await loading.stdout.readline())
        began, cpu = time.monotonic(), cpu_s(pids)
        async with asyncio.TaskGroup() as group:
            for n in range(views):
                group.create_task(view(client, cookies[n // OF_LOGIN], ids[n], found, frames))
        cpu = cpu_s(pids) - cpu
    took = time.monotonic() - began
    await loading.wait()
    cuts = statistics.quantiles(found, n=100)
    return {
        "streams": streams,
        "views": views,
        "pieces": len(found),
        "p50_ms": round(statistics.median(found), 1),
        "p99_ms": round(cuts[98], 1),
        "most_ms": round(max(found), 1),
        "made_after_p50_ms": statistics.median(frames),
        "made_after_p99_ms": round(statistics.quantiles(frames, n=100)[98]),
        "frames_a_second_and_view": round(len(frames) / took / views, 1),
        "pages_cpu_us_a_piece": round(cpu / len(found) * 1e6),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    """Measure; returns 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, nargs="*", default=[20])
    parser.add_argument("--load", metavar="URL", default="", help=argparse.SUPPRESS)
    parser.add_argument("--streams", type=int, default=STREAMS)
    given = parser.parse_args()
    if given.load:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(load(given.load, os.environ["SLUICE_KEY"], given.streams))
        return 0
    failed = False
    with started(CONFIG) as place:
        for views in given.views:
            found = asyncio.run(
                run(place.url, READERS[0], views, given.streams, place.roles["pages"])
            )
            failed = failed or found["p50_ms"] > P50_MS or found["p99_ms"] > P99_MS
            sys.stdout.write(json.dumps(found) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
