"""What debug logs cost: CPU a chunk of all processes with none, two and all four, side by side in one run of one product.

`python -m bench.debug_logs --rounds 5`. The streams are slow enough that no process comes past its bound of lines a second. Linux only: it
reads /proc.
"""

import argparse
import asyncio
import statistics
import time
from collections import Counter, defaultdict

import redis

from bench.profile import children, total
from sluice.bench import Place, started
from sluice.load import Load
from streams import layout

KINDS = {"off": "", "policy, endpoint": "policy,endpoint", "all four": "policy,endpoint,transport,callback"}
STREAMS, WORDS = 5, "long 150 clock slowly, with a gap 20 ms"


async def measure(place: Place, rounds: int) -> dict[str, list[tuple[float, float, Counter[str]]]]:
    """By kind, for each round: CPU microseconds a chunk, the median of a chunk's way in ms, and CPU a chunk by role."""
    client = redis.Redis.from_url(place.redis_url)
    found = defaultdict(list)
    for number in range(-1, rounds):
        for name, asked in KINDS.items():
            async with Load(place.url, place.key, {"x-sluice-debug": asked} if asked else None) as load:
                before = spent(place)
                result = await load.run(WORDS, at_once=STREAMS, rounds=1)
                await drained(client)
            assert not result.failures, result.why
            cpu = Counter({role: (n - before[role]) / result.chunks for role, n in spent(place).items()})
            if number >= 0:
                found[name].append((sum(cpu.values()), statistics.median(result.delays), cpu))
    print("lines lost:", client.get(layout.debug_lost_key()))
    return found


def spent(place: Place) -> Counter[str]:
    """CPU microseconds of all processes until now, by role."""
    return Counter({role: sum(total(children(pid))["cpu_us"] for pid in pids) for role, pids in place.roles.items()})


async def drained(client: "redis.Redis") -> None:
    """Wait until records and lines are in PostgreSQL; the same time in each round, as idle processes cost something too."""
    until = time.monotonic() + 2.5
    while time.monotonic() < until or any(client.xlen(key(0)) for key in (layout.audit_key, layout.debug_key)):
        await asyncio.sleep(0.1)


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    with started() as place:
        found = asyncio.run(measure(place, options.parse_args().rounds))
    bare = statistics.median(cpu for cpu, _, _ in found["off"])
    for name, rounds in found.items():
        cpu, delay = statistics.median(one[0] for one in rounds), statistics.median(one[1] for one in rounds)
        roles = {role: round(statistics.median(one[2][role] for one in rounds)) for role in rounds[0][2]}
        print(f"{name:18} {cpu:7.0f} us a chunk, {cpu / bare:.2f}x, {delay:.2f} ms p50, {roles}")


if __name__ == "__main__":
    main()
