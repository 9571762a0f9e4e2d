"""Runs steps on large input off the loop: one thread takes them one after the other. A step past
its CPU time ends only its own call.

Theory. All work of a call is done in synchronous steps on input from a client or an upstream. Small
steps run on the loop. A large step (a body, an entry, a call with much state) would block every
other call; on this thread it shares only the interpreter with them. API keys take turns, so a key
with many large calls waits only for itself. A step that used `CPU_S` gets an exception, its call is
given up, and the thread continues. C code that never releases the interpreter does not see the
exception; then the watchdog ends the process. A call has at most one step waiting, so the queue is
no longer than the worker's list of calls.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from queue import SimpleQueue
from types import CodeType, FrameType

from protocol.bounds import STEP_CPU_S
from protocol.errors import TookTooLong

log = logging.getLogger(__name__)
AT_ONCE = 2
"""Turns at once: the body of the next comes while the step of one is done, and no more of them lie
here together."""
CHECK_S = 0.05
AGAIN_S = 1.0
"""Of CPU, after which a step that caught its exception gets another."""
SWITCH_S = 0.001
"""How soon the loop gets the interpreter back while a step is under way; Python's own 5 ms would be
paid at each of its system calls."""
Step = Callable[[], None]


class Lane:
    """One worker's thread for large steps. A step that stands still for `blocked_s`, or goes on
    past its exception, ends the process."""

    def __init__(self, *, blocked_s: float, cpu_s: float = STEP_CPU_S) -> None:
        self._blocked_s, self._cpu_s = blocked_s, cpu_s
        self._free = AT_ONCE
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits for a turn, by API key; the first key is the next."""
        self._lock = asyncio.Lock()
        self._steps: SimpleQueue[tuple[Step, asyncio.AbstractEventLoop, asyncio.Future[bool]]] = (
            SimpleQueue()
        )
        self._ident = 0
        self._edge = threading.Lock()
        self._is_inside = self._has_raised = False
        """Is a step under way, and was it interrupted? Changed with `_edge` held, so that nothing
        is raised outside."""

    @property
    def is_busy(self) -> bool:
        """Is a step under way?"""
        return self._is_inside

    @contextlib.asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Hold one of the turns; waiting keys get theirs round robin."""
        if self._free:
            self._free -= 1
        else:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, deque()).append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            key = next(iter(self._waiting))
            queue = self._waiting.pop(key)
            first = queue.popleft()
            if queue:
                self._waiting[key] = queue
            if not first.done():
                first.set_result(None)
                return
        self._free += 1

    async def run(self, step: Step) -> bool:
        """Do a step on the thread; False where TookTooLong ended it, which it may catch itself.
        What else it raises is raised."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if not self._ident:
                thread = threading.Thread(target=self._work, name="lane", daemon=True)
                thread.start()
                assert thread.ident is not None
                self._ident = thread.ident
            done: asyncio.Future[bool] = loop.create_future()
            usual = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_S)
            watching = loop.create_task(self._watch(), name="lane watch")
            try:
                self._steps.put((step, loop, done))
                return await done
            finally:
                sys.setswitchinterval(usual)
                watching.cancel()

    async def _watch(self) -> None:
        """Interrupt the step that is under way where it takes too long; end the process where that
        does not help."""
        clock = time.pthread_getcpuclockid(self._ident)
        began = last = time.clock_gettime(clock)
        still, again = 0, 0.0
        while True:
            await asyncio.sleep(CHECK_S)
            now = time.clock_gettime(clock)
            # by the number of checks, at each of which this process ran: a machine that stood still
            # is not a step that did
            still = still + 1 if now - last < CHECK_S / 50 else 0
            last = now
            if now - began > self._cpu_s and now > again:
                again = now + AGAIN_S
                with self._edge:
                    if self._is_inside:
                        self._has_raised = True
                        _raise_in(self._ident)
            if still * CHECK_S > self._blocked_s or now - began > 3 * self._cpu_s + AGAIN_S:
                log.error("a step hangs in a hook: this worker ends so that others take its calls")
                os._exit(70)

    def _work(self) -> None:
        while True:
            step, loop, done = self._steps.get()
            error: Exception | None = None
            in_time = True
            with self._edge:
                self._is_inside = True
            try:
                try:
                    step()
                except Exception as raised:  # noqa: BLE001 - whoever waits for the step gets it
                    error = raised
                self._leave()
            except TookTooLong:
                # wherever it arrived; the next one is not due yet
                in_time = False
                self._leave()
            del step
            loop.call_soon_threadsafe(_tell, done, in_time, error)
            del error

    def _leave(self) -> None:
        with self._edge:
            self._is_inside = False
            raised, self._has_raised = self._has_raised, False
        if not raised:
            return
        # One may have been raised that has not arrived. It is not taken back: the interpreter would
        # go on looking for it at each call and loop of the process, for ever. Another takes its
        # place, and arrives here.
        with contextlib.suppress(TookTooLong):
            _raise_in(threading.get_ident())
            while True:
                pass


def interrupt(thread: int, steps: Collection[CodeType]) -> bool:
    """Interrupt a thread that is in one of these functions; False where it is not. The function
    must catch TookTooLong."""
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and frame.f_code not in steps:
        frame = frame.f_back
    if frame is not None:
        _raise_in(thread)
    return frame is not None


def _raise_in(thread: int) -> None:
    """Let TookTooLong be raised at the thread's next call or loop."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(TookTooLong)
    )


def _tell(done: "asyncio.Future[bool]", in_time: bool, error: Exception | None) -> None:
    if done.done():
        return
    if error is None or not in_time:
        done.set_result(in_time)
    else:
        done.set_exception(error)
