"""The n-th thing that a process says to its servers when it starts fails, in every way; or the
process dies there.

Either it comes up all the same, or it ends with what its command has a sentence for and the next
start comes up; and what says that it is up works: the next call goes through all roles, and the
invariants hold. No start hangs, none is half alive. What a process says comes from the wire, so a
command that is new in the code is a point without a line here. The same command many times over on
one connection (the scripts are loaded one by one) fails at its first and its last.
SLUICE_FAULT_SHARE and SLUICE_FAULT_ONLY as in tests/faults/test_every_command.py.
"""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop

from tests.support.checks.figures import Figure
from tests.support.checks.sweeps import IDLE_S, ONLY, SHARE, SILENT_WAYS, clean, short_times
from tests.support.servers.lanes import ROLES, Lane, Outcome, end_all_others, open_lane
from tests.support.servers.wire import WAYS, Fault
from tests.support.upstreams.kinds import KINDS

__all__ = ["short_times"]

LANES = 4
RUN_S, CALLS = 60, 3
KIND = next(kind for kind in KINDS if kind.judged)
"""A call that needs every role."""


class Starts:
    """The starts of every role with every fault, on lanes that work side by side."""

    def __init__(self, folder: Path, server_url: str, seed: int) -> None:
        self._folder, self._server_url, self._chance = folder, server_url, random.Random(seed)
        self.tried: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.missed: list[Fault] = []
        self.failed: list[str] = []

    async def run(self) -> None:
        """Try everything."""
        async with AsyncExitStack() as stack:
            lanes = [
                await stack.enter_async_context(
                    open_lane(self._folder / f"lane{n}", self._server_url)
                )
                for n in range(LANES)
            ]
            for lane in lanes:
                await clean(lane, KIND)
            left = await self._faults(lanes[0])

            async def work(place: int) -> None:
                lane = lanes[place]
                while left:
                    fault = left.pop()
                    if not await self._try(lane, fault):
                        folder = self._folder / f"lane{place}-{len(self.failed)}"
                        lane = await stack.enter_async_context(open_lane(folder, self._server_url))

            await asyncio.gather(*map(work, range(LANES)))
        await end_all_others()

    async def _faults(self, lane: Lane) -> list[Fault]:
        points = set()
        for role in ROLES:
            assert not await lane.restart(role, None, idle_s=IDLE_S)
            seen = [
                p for p in lane.watch.points if p.role == role and not p.name.startswith("push")
            ]
            last = {p[:3]: p.nth for p in seen}
            points |= {p for p in seen if p.nth in (1, last[p[:3]])}
        made = [Fault(point, way) for point in sorted(points) for way in (*WAYS, "crash")]
        made += [
            Fault(point, self._chance.choice(SILENT_WAYS), silent=True)
            for point in sorted(points)
            if point.nth == 1
        ]
        made = [fault for fault in made if ONLY in str(fault)]
        self._chance.shuffle(made)
        return made[: max(1, round(len(made) * SHARE))]

    async def _try(self, lane: Lane, fault: Fault) -> bool:
        try:
            async with asyncio.timeout(RUN_S):
                ends = await lane.restart(fault.point.role, fault, idle_s=IDLE_S)
                fired = lane.watch.fired.is_set()
                outcome = await lane.run(KIND)
                # a call on which the fault still comes down may be refused, or lost with its
                # gateway
                for _ in range(CALLS - 1):
                    if not outcome.faults and not _is_served(outcome):
                        outcome = await lane.run(KIND)
        except Exception as error:  # noqa: BLE001 - whatever it is goes into the report, and the other faults are tried
            self.failed.append(f"{fault}: {type(error).__name__} {error}")
            return False
        if len(ends) > 1 or outcome.faults or not _is_served(outcome):
            self.failed.append(
                f"{fault}: ended {ends}, then {outcome.faults[:4]} status {outcome.seen.status}"
            )
        elif not fired:
            self.missed.append(fault)
        else:
            self.tried[fault.point.role, "silent" if fault.silent else fault.way] += 1
            self.ends.update(ends)
        return not outcome.faults

    def report(self) -> str:
        """What was tried, and what processes said when they ended."""
        lines = [
            f"  {role}: "
            + ", ".join(f"{way} {self.tried[role, way]}" for way in (*WAYS, "crash", "silent"))
            for role in sorted({role for role, _ in self.tried})
        ]
        lines += [f"  ended {count} times: {said}" for said, count in self.ends.most_common()]
        return "\n".join(
            [
                f"starts, share {SHARE:g}",
                *lines,
                *(f"  not reached: {fault}" for fault in self.missed),
            ]
        )


def _is_served(outcome: Outcome) -> bool:
    return outcome.seen.status == 200 and outcome.seen.whole


@pytest.mark.case("W5", "W6")
@pytest.mark.timeout(600)
@pytest.mark.slow
def test_w5_w6_every_command_and_statement_of_a_start_fails(
    tmp_path: Path, database_url: str, seed: int, figure: Figure
) -> None:
    made = Starts(tmp_path, database_url, seed)
    uvloop.run(made.run())
    print(made.report())
    figure("faults in the start of a process", made.tried.total(), "points")
    assert not made.failed, "\n".join(
        [f"{len(made.failed)} failed, seed {seed}", *made.failed[:40]]
    )
    if not ONLY and SHARE == 1:
        assert made.tried.total() > 4 * len(made.missed), made.report()
