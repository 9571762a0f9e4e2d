"""Keeps processes running: starts them, waits until each is ready, restarts what crashes, ends them
in order.

Theory. A process is *starting* until its probe or its pipe reports it ready, then *up*. A process
that ends before it was ever ready fails the start: repeating a wrong setting helps nobody. One that
ends later is restarted after a pause that doubles from `FIRST_PAUSE_S` to `LONGEST_PAUSE_S`, and is
forgotten after `STEADY_S` of running well.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sluice.errors import Busy, NotFit, SettingsError, StartError, Unavailable
from sluice.processes import Process, Spec, remember, spawn
from sluice.up.forks import ForkServer

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 5.0
"""Well below `activity_s`: calls of workers that keep ending are taken over before their clients
time out."""
STEADY_S = 60.0
_PROBE_S = 0.02
_STOPPING_S = 1.0
_READY = b"ready\n"


class _Child:
    """One process and what became of it."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.process: Process | None = None
        self.is_up = asyncio.Event()
        self.ended = asyncio.Event()
        self.was_up = False
        self.started = 0.0
        self.crashes = 0
        self.refusal: StartError | None = None
        """Why the process could not start, in its own words."""


class Supervisor:
    """Runs processes until `stop`. Pids go to files in `run_dir`, so that a later start can sweep
    what a killed launcher left.

    `say` gets one line for each event. Roles are forked by `forks`, if there is one and it can.
    Use it from the main thread, on an asyncio loop of its own.
    """

    def __init__(
        self, run_dir: Path, say: Callable[[str], None], forks: ForkServer | None = None
    ) -> None:
        self._run_dir, self._say, self._forks = run_dir, say, forks
        self._children: dict[str, _Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._restarts = True

    def __enter__(self) -> "Supervisor":
        self._run_dir.mkdir(parents=True, exist_ok=True)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the running processes by name."""
        return {
            name: c.process.pid
            for name, c in self._children.items()
            if c.process is not None and c.process.returncode is None
        }

    @property
    def names(self) -> list[str]:
        """The names of all processes, running or about to be restarted."""
        return list(self._children)

    async def start(self, specs: Iterable[Spec], *, timeout_s: float) -> None:
        """Start processes side by side and wait until all are ready. Raises StartError naming the
        one that is not."""
        children = [_Child(spec) for spec in specs]
        for child in children:
            self._children[child.spec.name] = child
            self._tasks[child.spec.name] = asyncio.create_task(
                self._keep(child), name=child.spec.name
            )
        waits = [asyncio.create_task(child.is_up.wait()) for child in children]
        tasks = [self._tasks[child.spec.name] for child in children]
        try:
            async with asyncio.timeout(timeout_s):
                while not all(child.is_up.is_set() for child in children):
                    pending = [wait for wait in waits if not wait.done()]
                    done, _ = await asyncio.wait(
                        [*pending, *tasks], return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done.intersection(tasks):
                        task.result()
        except TimeoutError:
            late = next(child for child in children if not child.is_up.is_set())
            raise StartError(
                f"{late.spec.name} was not ready after {timeout_s:.0f} s: its log is"
                f" {late.spec.log}"
            ) from None
        finally:
            for wait in waits:
                wait.cancel()

    def start_beside(self, spec: Spec) -> None:
        """Start a process that nobody waits for, and without which the others go on: it is started
        again also where it never was ready."""
        child = self._children[spec.name] = _Child(spec)
        child.was_up = True
        self._tasks[spec.name] = asyncio.create_task(self._keep(child), name=spec.name)

    async def watch(self) -> None:
        """Wait until a process cannot be kept running any more, and raise why: StartError or
        OSError."""
        done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self, names: Iterable[str], *, grace_s: float) -> None:
        """End processes side by side: their stop signal, then, after `grace_s`, SIGKILL for their
        whole group."""
        stopping = [self._children[name] for name in names if name in self._children]
        for child in stopping:
            self._tasks[child.spec.name].cancel()
        await asyncio.gather(
            *(self._tasks[child.spec.name] for child in stopping), return_exceptions=True
        )
        running = [(child, child.process) for child in stopping if child.process is not None]
        for child, process in running:
            if process.poll() is None:
                process.send_signal(child.spec.stop_signal)
            else:
                child.ended.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                for child, _ in running:
                    await child.ended.wait()
        for child, process in running:
            if process.poll() is None:
                self._say(f"{child.spec.name} did not end within {grace_s:.0f} s and is killed")
                _kill_group(process)
            process.wait()
            del self._children[child.spec.name]
            try:
                self._pid_file(child).unlink(missing_ok=True)
            except OSError as error:
                # of a process that is gone: the next start knows it by its start time, and ends
                # nobody
                self._say(f"{self._pid_file(child)} cannot be removed ({error.strerror})")

    def kill_now(self) -> None:
        """End everything but the servers at once, and restart nothing."""
        self._restarts = False
        for child in self._children.values():
            if (
                child.process is not None
                and child.spec.is_ready is None
                and child.process.poll() is None
            ):
                _kill_group(child.process)

    async def _keep(self, child: _Child) -> None:
        while True:
            await self._run_once(child)
            assert child.process is not None
            if not self._restarts:
                return
            code = child.process.wait()
            how = (
                f"was killed by {signal.Signals(-code).name}"
                if code < 0
                else f"ended with exit code {code}"
            )
            if child.refusal is not None:
                refusal, child.refusal = child.refusal, None
                if not child.was_up:
                    raise refusal
                self._say(f"{child.spec.name}: {refusal}")
            if not child.was_up:
                raise StartError(
                    f"{child.spec.name} {how} before it was ready: {_last_line(child.spec.log)}"
                )
            child.crashes = 1 if time.monotonic() - child.started > STEADY_S else child.crashes + 1
            pause_s = min(FIRST_PAUSE_S * 2 ** (child.crashes - 1), LONGEST_PAUSE_S)
            self._say(
                f"{child.spec.name} {how}: it is started again in {pause_s:g} s (log:"
                f" {child.spec.log})"
            )
            await asyncio.sleep(pause_s)

    async def _run_once(self, child: _Child) -> None:
        """Start the process and return when it ended."""
        child.is_up.clear()
        child.ended.clear()
        child.started = time.monotonic()
        reading = _spawn(child, self._forks)
        assert child.process is not None
        try:
            self._remember(child, child.process.pid)
            proving = asyncio.create_task(self._until_ready(child, reading))
            try:
                await child.ended.wait()
                if reading is not None:
                    await asyncio.wait([proving], timeout=1)
            finally:
                proving.cancel()
        finally:
            if reading is not None:
                os.close(reading)

    def _remember(self, child: _Child, pid: int) -> None:
        try:
            remember(self._pid_file(child), pid)
        except OSError as error:
            # for the sweep after a launcher that was killed, and the kernel ends its processes
            # where it can: no reason to end now
            self._say(
                f"{self._pid_file(child)} cannot be written ({error.strerror}): make room on its"
                f" disk. {child.spec.name} runs on"
            )

    async def _until_ready(self, child: _Child, reading: int | None) -> None:
        if reading is not None:
            line = await _read_line(reading)
            if line != _READY:
                child.refusal = _refusal(line)
                return
        else:
            while child.spec.is_ready is not None and not child.spec.is_ready():
                await asyncio.sleep(_PROBE_S)
        if child.crashes and child.process is not None:
            self._say(f"{child.spec.name} is back (pid {child.process.pid})")
        child.was_up = True
        child.is_up.set()
        if child.spec.is_stopping is not None:
            await self._until_stopping(child, child.spec.is_stopping)

    async def _until_stopping(self, child: _Child, is_stopping: Callable[[], bool]) -> None:
        """End a process that another process asked to stop, and that waits for its clients to
        leave: ours stay."""
        while not is_stopping():
            await asyncio.sleep(_STOPPING_S)
        if child.process is not None and child.process.poll() is None:
            self._say(
                f"{child.spec.name} was told to stop by somebody else, and waits for its clients:"
                " disconnecting them"
            )
            child.process.send_signal(child.spec.stop_signal)

    def _reap(self) -> None:
        for child in self._children.values():
            if (
                child.process is not None
                and not child.ended.is_set()
                and child.process.poll() is not None
            ):
                child.ended.set()

    def _pid_file(self, child: _Child) -> Path:
        return self._run_dir / f"{child.spec.name}.json"


def _spawn(child: _Child, forks: ForkServer | None) -> int | None:
    """Start the process; return the end of the pipe on which it will report that it is ready, if it
    is one that does."""
    if child.spec.is_ready is not None:
        child.process = spawn(child.spec)
        return None
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        forked = forks.spawn(child.spec, ready_fd=writing) if forks is not None else None
        child.process = forked or spawn(child.spec, ready_fd=writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return reading


async def _read_line(reading: int) -> bytes:
    """Return the first line that the process writes, what there is of it when it ends before."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(reading, readable.set)
    line = b""
    try:
        while not line.endswith(b"\n"):
            await readable.wait()
            readable.clear()
            more = os.read(reading, 4096)
            if not more:
                break
            line += more
        return line
    finally:
        loop.remove_reader(reading)


def _refusal(line: bytes) -> StartError | None:
    """A process that cannot start writes `CODE SENTENCE`; CODE is one of the exit codes of
    `sluice.errors`."""
    code, _, sentence = line.decode(errors="replace").strip().partition(" ")
    kind = {kind.exit_code: kind for kind in (SettingsError, Unavailable, NotFit, Busy)}.get(
        int(code) if code.isdigit() else 0, StartError
    )
    return kind(sentence) if sentence else None


def _kill_group(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_line(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1][:500] if lines else f"see {log}"
