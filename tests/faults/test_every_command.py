"""The n-th Redis command and the n-th SQL statement of a call fails, for every n and in every way;
every process dies after its n-th.

Each kind of call runs clean a few times, through wires that record what every role says to its
servers: those are the points. Then it runs again for every point and way, and once more with the
role dying there, on lanes that work side by side. After each run the invariants of
`tests.support.checks.invariants` hold. A command that is new in the code is a new point, without a
line here.

Which points a run has depends a little on timing (two audit batches or one, a heartbeat or none): a
fault that found no such point is tried again, and what is still not reached is counted and bounded.
SLUICE_FAULT_LANES sets the number of lanes, SLUICE_FAULT_SHARE tries a random share of the faults
(a number from 0 to 1; `tests/support/checks/sweeps.py`), SLUICE_FAULT_ONLY those in whose text a
word occurs."""

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop

from tests.support.checks.figures import Figure
from tests.support.checks.sweeps import IDLE_S, ONLY, SHARE, SILENT_WAYS, clean, short_times
from tests.support.servers.lanes import Lane, Outcome, end_all_others, open_lane
from tests.support.servers.wire import WAYS, Fault, Point
from tests.support.upstreams.kinds import KINDS, Kind

__all__ = ["short_times"]
LANES = int(os.environ.get("SLUICE_FAULT_LANES") or (10 if SHARE == 1 else 5))
"""To open one takes as long as a few runs."""
RECORDINGS = 3
TRIES = 3
RUN_S = 60


@dataclass
class Sweep:
    """The runs of one kind of call."""

    kind: Kind
    points: set[Point] = field(default_factory=set)
    clocked: set[tuple[str, str, str]] = field(default_factory=set)
    steady: set[tuple[str, str, str]] = field(default_factory=set)
    """What every recording has; the rest depends on timing."""
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    reached: set[tuple[tuple[str, str, str], str]] = field(default_factory=set)
    runs: int = 0
    missed: list[Fault] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    whole: int = 0
    longest: tuple[float, str] = (0.0, "")
    waits: list[tuple[float, str]] = field(default_factory=list)

    def faults(self, seed: int) -> list[Fault]:
        """Every point in every way, in a random order: neighbours in time are not neighbours in
        cause."""
        made = [
            Fault(p, way)
            for p in sorted(self.points)
            for way in (*WAYS, "crash")
            if way == "crash" or not p.name.startswith("push")
        ]
        chance = random.Random(seed)
        # the first of each name also without an end of the connection: only the product's own
        # time-outs can tell
        firsts = [p for p in sorted(self.points) if p.nth == 1 and not p.name.startswith("push")]
        made += [Fault(p, chance.choice(SILENT_WAYS), silent=True) for p in firsts]
        made = [f for f in made if ONLY in str(f)]
        chance.shuffle(made)
        return made[: max(1, round(len(made) * SHARE))]

    def note(self, fault: Fault, outcome: Outcome) -> None:
        """Count a run that reached its point."""
        self.tried[fault.point.role, "silent" if fault.silent else fault.way] += 1
        self.reached.add((fault.point[:3], fault.way))
        self.whole += outcome.seen.whole and outcome.seen.status == 200
        self.longest = max(self.longest, (outcome.took_s, f"{fault}"))
        self.waits = sorted([*self.waits, (outcome.seen.elapsed_s, f"{fault}")], reverse=True)[:5]
        if outcome.faults:
            end = outcome.recorded.end if outcome.recorded else None
            self.failed.append(f"{fault}: {outcome.faults[:4]} client {outcome.seen.status} {end}")
            print(self.failed[-1], flush=True)

    def untried(self) -> list[str]:
        """Commands and statements of every recording that failed in none of their occurrences, with
        the way."""
        wanted = {
            (f.point[:3], f.way)
            for f in self.faults(0)
            if not f.silent and f.point[:3] in self.steady
        }
        return sorted(f"{'/'.join(place)} {way}" for place, way in wanted - self.reached)

    def report(self) -> str:
        """What was tried, by role and way."""
        ways = (*WAYS, "crash", "silent")
        roles = sorted({role for role, _ in self.tried})
        lines = [
            f"{self.kind.name}: {len(self.points)} points, {self.runs} runs, {self.whole} answered"
            f" whole, share {SHARE:g}"
        ]
        lines += [
            f"  {role}: " + ", ".join(f"{way} {self.tried[role, way]}" for way in ways)
            for role in roles
        ]
        lines += [
            f"  longest waits of a client: {waited:.2f} s, {cause}" for waited, cause in self.waits
        ]
        lines.append(f"  longest until settled {self.longest[0]:.2f} s ({self.longest[1]})")
        return "\n".join([*lines, *(f"  not reached: {f}" for f in self.missed)])


async def sweep(kind: Kind, folder: Path, server_url: str, seed: int) -> Sweep:
    """Run every fault of one kind of call."""
    made = Sweep(kind)
    async with AsyncExitStack() as stack:
        # one after the other: a server's start holds up the loop for longer than a lane takes for
        # silence
        lanes = [
            await stack.enter_async_context(open_lane(folder / f"lane{n}", server_url))
            for n in range(LANES)
        ]
        for lane in lanes:
            await clean(lane, kind)
        made.clocked = await clocked(lanes[0])
        recordings = []
        for lane in lanes[:RECORDINGS]:
            await clean(lane, kind)
            recordings.append(set(lane.watch.points))
        made.points = set().union(*recordings)
        made.steady = {point[:3] for point in set.intersection(*recordings)}
        # by the clock a role says the same again and again: what no call needs is tried once
        needed = {
            p[:3]: sum(q[:3] == p[:3] for q in set.intersection(*recordings))
            for p in made.points
            if p[:3] in made.clocked
        }
        made.points = {p for p in made.points if p.nth <= max(1, needed.get(p[:3], p.nth))}
        left = made.faults(seed)

        async def work(place: int) -> None:
            lane = lanes[place]
            while left:
                fault = left.pop()
                async with asyncio.timeout(TRIES * RUN_S):
                    outcome = await attempt(lane, fault)
                if outcome.faults:
                    # a broken lane would fail every run after this one
                    lane = await stack.enter_async_context(
                        open_lane(folder / f"lane{place}-{len(made.failed)}", server_url)
                    )
                    await clean(lane, kind)

        async def attempt(lane: Lane, fault: Fault) -> Outcome:
            tries = 1
            outcome = await lane.run(kind, fault)
            while not outcome.fired and not outcome.faults and tries < TRIES:
                tries += 1
                if fault.point[:3] in made.clocked:
                    fault = fault._replace(point=fault.point._replace(nth=1))
                    outcome = await lane.run(kind, fault, idle_s=IDLE_S)
                else:
                    outcome = await lane.run(kind, fault)
            made.runs += tries
            if outcome.fired or outcome.faults:
                made.note(fault, outcome)
            else:
                made.missed.append(fault)
            return outcome

        await asyncio.gather(*map(work, range(len(lanes))))
    await end_all_others()
    return made


async def clocked(lane: Lane) -> set[tuple[str, str, str]]:
    """What the roles say by the clock, without any call."""
    lane.watch.begin()
    await asyncio.sleep(IDLE_S)
    return {point[:3] for point in lane.watch.points}


@pytest.mark.case("W3", "W4", "W5", "W6")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name.replace(" ", "-"))
@pytest.mark.slow
def test_w5_w6_every_command_and_statement_fails(
    kind: Kind, tmp_path: Path, database_url: str, seed: int, figure: Figure
) -> None:
    made = uvloop.run(sweep(kind, tmp_path, database_url, seed))
    print(made.report())
    figure(f"{kind.name}: faults tried", made.runs, "")
    figure(f"{kind.name}: longest wait of a client", made.waits[0][0], "s")
    assert not made.failed, "\n".join(
        [f"{len(made.failed)} failed, seed {seed}", *made.failed[:40]]
    )
    if not ONLY and SHARE == 1:
        assert made.untried() == [], made.report()
        assert len(made.missed) < made.runs / 5, made.report()
