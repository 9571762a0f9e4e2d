"""Common work of all workers: sends heartbeats, runs background tasks, and ends the process when it
hangs or has no memory."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import CodeType
from typing import Any

from protocol.errors import StreamConnectionLost
from settings.runtime import Runtime
from streams import heartbeats, layout, lifecycle, scripts
from streams.connection import NOT_AN_ANSWER, Connection, RedisError
from workers.cpu_lane import interrupt

log = logging.getLogger(__name__)
FORGET_MS, FORGET_EVERY_S = 3_600_000, 600
REPEAT_S, LONGEST_REPEAT_S = 1.0, 60.0
"""How long a background task that failed waits, the longest after some failures in a row."""
HANG_CPU_S = 1.0
CHECK_S = 0.25
LOOK_S = 0.1
"""How often a worker that stops looks whether it is still needed."""


def tell_ready(settings: Runtime) -> None:
    """Report that this worker is ready; one without memory ends from now on."""
    asyncio.get_running_loop().set_exception_handler(_end_without_memory)
    lifecycle.tell_ready(settings)


def _end_without_memory(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End this process when it gets no memory, for what it holds then comes free, and others do its
    work.

    Where a connection's answer does not fit, only its protocol fails: it would connect and ask
    again for ever, and send heartbeats.
    """
    error = context.get("exception")
    # the sentence is that of the Redis protocol's parser
    if isinstance(error, MemoryError) or str(error) == "Out of memory":
        try:
            log.error("out of memory: this worker ends so that others do its work; give it more")
        finally:
            os._exit(70)
    loop.default_exception_handler(context)


def watch_loop(
    blocked_s: float, *, steps: Collection[CodeType] = (), is_other_busy: Callable[[], bool] = bool
) -> None:
    """End this process when its event loop hangs: it burns CPU for over a second, or is blocked for
    `blocked_s`.

    `steps` are functions that end their own work when TookTooLong interrupts them: a loop that
    hangs in one is interrupted first. Two times count: the CPU time of the loop's own thread
    (`beside` says whether another one works), and time in which this process ran and its loop did
    not. A stopped process (SIGSTOP, a paused machine) is fenced, not hung. Code that never releases
    the interpreter blocks the watching thread too; then the kernel's timer ends the process.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    clock = time.pthread_getcpuclockid(thread)
    turned = [time.clock_gettime(clock), 0.0]

    def tick() -> None:
        turned[:] = time.clock_gettime(clock), 0
        # of the whole process: with a step beside the loop both have half of the interpreter
        signal.setitimer(signal.ITIMER_PROF, (4 if is_other_busy() else 2) * HANG_CPU_S)
        loop.call_later(0.1, tick)

    def watch() -> None:
        interrupted = last = 0.0
        while True:
            time.sleep(CHECK_S)
            now = time.clock_gettime(clock)
            burned = now - turned[0]
            # not by the clock: a check that took longer than it should is time in which this
            # process did not run either
            turned[1] += CHECK_S if now - last < CHECK_S / 50 else 0
            last = now
            if burned > HANG_CPU_S and interrupted != turned[0] and interrupt(thread, steps):
                interrupted = turned[0]
            elif (
                burned > (1.5 if interrupted == turned[0] else 1) * HANG_CPU_S
                or turned[1] > blocked_s
            ):
                log.error(
                    "event loop hangs in a hook: this worker ends so that others take its calls"
                )
                os._exit(70)

    tick()
    threading.Thread(target=watch, name="watchdog", daemon=True).start()


async def keep(name: str, task: Callable[[], Awaitable[None]]) -> None:
    """Run a background task until cancelled, and restart it when it fails.

    The task handles expected errors itself. An unexpected error is a bug or an odd answer, and must
    not stop for good a task whose absence nobody would notice. Raises MemoryError: without memory
    the whole process has to end.
    """
    pause_s = REPEAT_S
    while True:
        began = time.monotonic()
        try:
            await task()
            log.error("a background task ended: restarting it", extra={"action": name})
        except MemoryError:
            raise
        except Exception:
            log.exception("a background task failed: restarting it", extra={"action": name})
        if time.monotonic() - began > LONGEST_REPEAT_S:
            pause_s = REPEAT_S
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_REPEAT_S)


async def stay_for_calls(
    redis: Connection, role: str, name: str, *, shards: int, grace_s: float
) -> None:
    """A worker that was asked to stop goes on for the calls that run, unless another of its role
    stays: they cannot end without one.

    It returns once nobody needs it, at the latest after `grace_s`, and at once where Redis cannot
    say what runs.
    """
    with contextlib.suppress(StreamConnectionLost, RedisError, TimeoutError, *NOT_AN_ANSWER):
        async with asyncio.timeout(grace_s):
            # in Redis before this worker looks: of two that stop at once, each knows of the other
            await heartbeats.write(redis, *heartbeats.shown_by(role, name, is_stopping=True))
            while True:
                live = await heartbeats.live(redis)
                running = [
                    await redis.call("XLEN", layout.dispatch_key(shard)) for shard in range(shards)
                ]
                # the calls of policy workers that died wait for others, which will have workers of
                # this role
                if heartbeats.others(live, role, name) or not (live.get("policy") and any(running)):
                    return
                await asyncio.sleep(LOOK_S)


async def send_heartbeats(
    redis: Connection, shown: Callable[[], Iterable[tuple[str, str]]], *, alive_file: str = ""
) -> None:
    """Write a heartbeat each second, by the roles and names that `shown` gives then, for readiness,
    health checks and hand-over."""
    alive = AliveFile(alive_file) if alive_file else None
    while True:
        written = heartbeats.write(redis, *shown())
        redis.quiet(written)
        written.add_done_callback(_end_on_old_primary)
        if alive is not None:
            written.add_done_callback(alive.write)
        await asyncio.sleep(heartbeats.EVERY_S)


def _end_on_old_primary(written: asyncio.Future[bytes]) -> None:
    """End this process on an old primary: one that is started anew connects to the later one, and
    nobody waits for what this one does."""
    if (
        not written.cancelled()
        and written.exception() is None
        and written.result() == layout.OLD_PRIMARY
    ):
        log.error(
            "Redis is an old primary: this worker ends; let SLUICE_REDIS_URL lead to the later one"
        )
        os._exit(70)


class AliveFile:
    """The file in which this process notes when Redis last took its heartbeat. A fresh time shows
    that the loop turns and reaches Redis.

    The time is in seconds since the machine's start, as in /proc/uptime, because wall clocks jump.
    A container's health check reads the file (`deploy/health`): starting an interpreter that asks
    Redis would take 0.37 s of CPU each time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_logged = False

    def write(self, written: asyncio.Future[bytes]) -> None:
        """Write it, if Redis took the heartbeat."""
        if written.cancelled() or written.exception() is not None:
            return
        try:
            with open("/proc/uptime", "rb") as clock:
                now = clock.read().partition(b".")[0]
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                os.pwrite(
                    file, now + b"\n", 0
                )  # never empty meanwhile: seconds do not become fewer digits
            finally:
                os.close(file)
        except OSError as error:
            if not self._is_logged:
                log.error(
                    "the heartbeat file cannot be written: correct SLUICE_ALIVE_FILE",
                    extra={"error": str(error)},
                )
            self._is_logged = True


async def forget_consumers(redis: Connection, keys: Sequence[str], group: str) -> None:
    """Forget the consumers of a group whose processes ended over an hour ago, now and every ten
    minutes. Runs until cancelled."""
    while True:
        for key in keys:
            redis.quiet(scripts.forget_consumers(redis, key, group, idle_ms=FORGET_MS))
        await asyncio.sleep(FORGET_EVERY_S)
