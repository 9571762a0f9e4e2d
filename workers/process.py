"""What every worker does alike beside other processes: it shows that it lives, and dies when it hangs or has no memory."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import CodeType
from typing import Any

from protocol.config import Runtime
from streams import layout, lifecycle, scripts
from streams.connection import Connection
from workers.lane import interrupt

log = logging.getLogger(__name__)
PRESENCE_S = 1.0
STALE_MS = 5_000
FORGET_MS, FORGET_EVERY_S = 3_600_000, 600
REPEAT_S, LONGEST_REPEAT_S = 1.0, 60.0
"""How long a chore that failed waits, the longest after some failures in a row."""
HANG_CPU_S = 1.0
LOOK_S = 0.25


def tell_ready(settings: Runtime) -> None:
    """Say that this worker is ready; one without memory ends from now on."""
    asyncio.get_running_loop().set_exception_handler(_end_without_memory)
    lifecycle.tell_ready(settings)


def _end_without_memory(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End this process when it gets no memory, for what it holds then comes free, and others do its work.

    Where a connection's answer does not fit, only its protocol fails: it would connect and ask again for ever, and look alive.
    """
    error = context.get("exception")
    # the sentence is that of the Redis protocol's parser
    if isinstance(error, MemoryError) or str(error) == "Out of memory":
        try:
            log.error("out of memory: this worker ends so that others do its work; give it more")
        finally:
            os._exit(70)
    loop.default_exception_handler(context)


def watch_loop(blocked_s: float, *, steps: Collection[CodeType] = (), beside: Callable[[], bool] = bool) -> None:
    """End this process when its event loop hangs: burns CPU for over a second, or is blocked for `blocked_s`.

    `steps` are functions that end what they are about when they are interrupted by TookTooLong: a loop that hangs in one gets that first.
    What counts is the CPU of the loop's own thread (`beside` says whether another is at work), and time in which this process ran and its
    loop did not: one that was stopped (SIGSTOP, a paused machine) is fenced, not hung. Code that never lets go of the interpreter leaves
    the watching thread no turn; for it the kernel's own timer ends the process.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    clock = time.pthread_getcpuclockid(thread)
    beat = [time.clock_gettime(clock), 0.0]

    def tick() -> None:
        beat[:] = time.clock_gettime(clock), 0
        # of the whole process: with a step beside the loop both have half of the interpreter
        signal.setitimer(signal.ITIMER_PROF, (4 if beside() else 2) * HANG_CPU_S)
        loop.call_later(0.1, tick)

    def watch() -> None:
        interrupted = last = 0.0
        while True:
            time.sleep(LOOK_S)
            now = time.clock_gettime(clock)
            burned = now - beat[0]
            # not by the clock: a look that took longer than it should is time in which this process did not run either
            beat[1] += LOOK_S if now - last < LOOK_S / 50 else 0
            last = now
            if burned > HANG_CPU_S and interrupted != beat[0] and interrupt(thread, steps):
                interrupted = beat[0]
            elif burned > (1.5 if interrupted == beat[0] else 1) * HANG_CPU_S or beat[1] > blocked_s:
                log.error("event loop hangs in a hook: this worker ends so that others take its calls")
                os._exit(70)

    tick()
    threading.Thread(target=watch, name="watchdog", daemon=True).start()


async def keep(name: str, chore: Callable[[], Awaitable[None]]) -> None:
    """Run a chore until cancelled, and begin it again where it fails.

    What it foresees it handles itself; what it does not is a fault of ours, or an odd answer, and one of those must not end for good what
    nobody would miss. Raises MemoryError: without memory the whole process has to end.
    """
    pause_s = REPEAT_S
    while True:
        began = time.monotonic()
        try:
            await chore()
            log.error("a chore ended: it begins again", extra={"action": name})
        except MemoryError:
            raise
        except Exception:
            log.exception("a chore failed: it begins again", extra={"action": name})
        if time.monotonic() - began > LONGEST_REPEAT_S:
            pause_s = REPEAT_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_REPEAT_S)


async def show_presence(redis: Connection, *shown: tuple[str, str], alive_file: str = "") -> None:
    """Write a sign of life each second, by role and name, for readiness, health checks and hand-over; prune the stale."""
    alive = AliveFile(alive_file) if alive_file else None
    while True:
        said = show(redis, *shown)
        redis.quiet(said)
        if alive is not None:
            said.add_done_callback(alive.write)
        await asyncio.sleep(PRESENCE_S)


class AliveFile:
    """Where this process writes down when Redis last took its sign of life: so its loop turns, and it reaches Redis.

    What is written is the second since the machine's start, as /proc/uptime has it for who looks, because wall clocks jump. A health
    check of a container reads it (`deploy/health`): an interpreter that starts, and asks Redis, takes 0.37 s of CPU each time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_told = False

    def write(self, said: "asyncio.Future[object]") -> None:
        """Write it, if Redis took it."""
        if said.cancelled() or said.exception() is not None:
            return
        try:
            with open("/proc/uptime", "rb") as clock:
                now = clock.read().partition(b".")[0]
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(file, now + b"\n", 0)  # never empty meanwhile: seconds do not become fewer digits
            finally:
                os.close(file)
        except OSError as error:
            if not self._is_told:
                log.error("the sign of life cannot be written down: correct SLUICE_ALIVE_FILE", extra={"error": str(error)})
            self._is_told = True


def show(redis: Connection, *shown: tuple[str, str]) -> "asyncio.Future[object]":
    """Write a sign of life."""
    return redis.script(scripts.PRESENCE, [layout.WORKERS_KEY], [f"{role}:{name}" for role, name in shown])


async def forget_consumers(redis: Connection, keys: Sequence[str], group: str) -> None:
    """Forget the consumers of a group whose processes ended over an hour ago, now and every ten minutes. Runs until cancelled."""
    while True:
        for key in keys:
            redis.script(scripts.FORGET, [key], [group, FORGET_MS]).add_done_callback(_ignore)
        await asyncio.sleep(FORGET_EVERY_S)


async def hide_presence(redis: Connection, role: str, name: str) -> None:
    """Take the sign of life back: this process is going."""
    redis.call("HDEL", layout.WORKERS_KEY, f"{role}:{name}").add_done_callback(_ignore)
    await asyncio.sleep(0)


async def present(redis: Connection, role: str) -> list[str]:
    """Names of the live processes of a role. Raises StreamConnectionLost."""
    now, shown = await signs(redis)
    names = []
    for field, at in shown.items():
        if now - at > STALE_MS:
            redis.call("HDEL", layout.WORKERS_KEY, field).add_done_callback(_ignore)
        elif field.startswith(f"{role}:"):
            names.append(field.partition(":")[2])
    return names


async def signs(redis: Connection) -> tuple[int, dict[str, int]]:
    """What time it is, and when each process last showed life, by `role:name`, all on Redis' clock. Raises StreamConnectionLost."""
    found, clock = await asyncio.gather(redis.call("HGETALL", layout.WORKERS_KEY), redis.call("TIME"))
    return layout.time_ms(clock), {field.decode(): int(at) for field, at in zip(found[::2], found[1::2], strict=True)}


def _ignore(future: "asyncio.Future[object]") -> None:
    if not future.cancelled():
        future.exception()
