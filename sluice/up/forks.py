"""A fork server: a process that has imported the modules that all roles share, and forks a role
when `sluice up` requests it.

Each role on its own would import the same 0.6 s of modules; together these imports cost more of a
start than the servers and the database. Forked roles start at once, also after a crash, and share
the memory of the imports.

Theory. The launcher forks the server before it has a loop or a thread. A role is forked twice, so
that the kernel reparents it to the launcher, which is a subreaper meanwhile. The role is then an
ordinary child: the launcher waits for it, signals it and restarts it like any other, and it
outlives the server. It then runs what its command line would run, and shows that command line. If
forking is impossible (another system than Linux, threads, a dead server), `spawn` returns None, and
the caller starts the role from its command line: slower, otherwise the same.
"""

import asyncio
import atexit
import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from protocol.dialects.table import CLIENTS, DIALECTS
from sluice.processes import ON_LINUX, Spec, die_with_parent, heed_hangup, open_log

ANSWER_S = 10.0
"""How long the server may take to fork; past it, it is given up."""
SHARED = (
    "sluice.settings",
    "sluice.logs",
    "uvloop",
    "gateway.main",
    "workers.policy.worker",
    "workers.judge.worker",
    "workers.audit.writer",
    "pages.main",
    "policy.builtin.tool_rules",
    "policy.builtin.tool_judge",
    *(
        f"{dialect.__module__}.{name}"
        for dialect in DIALECTS.values()
        for name in ("decode", "write")
    ),
    *(
        f"{dialect.__module__}.{name}"
        for dialect in CLIENTS.values()
        for name in ("encode", "read")
    ),
)
"""The roles, and what they load when they know their configuration or with their first call."""
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST = 128 * 1024
_POLL_S = 0.005
_READY = b"ready"


class Forked:
    """A forked process, with what the supervisor uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, if it has ended."""
        return self._waited(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._waited(0 if deadline is None else os.WNOHANG)) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _waited(self, flags: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class ForkServer:
    """The launcher's side. Use it from the main thread."""

    def __init__(self, connection: socket.socket | None, pid: int) -> None:
        self._connection, self._pid = connection, pid

    @classmethod
    def start(cls, main: Callable[[], None], modules: Sequence[str] = SHARED) -> Self:
        """Fork the server, which goes on to import `modules`; a role runs `main`. Call it while
        there is one thread and no event loop."""
        if not ON_LINUX or _threads() > 1:
            return cls(None, 0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        launcher = os.getpid()
        _flush()
        pid = os.fork()
        if pid == 0:
            _exit_after(_serve, theirs.fileno(), launcher, modules, main)
        theirs.close()
        return cls(ours, pid)

    async def ready(self) -> None:
        """Wait until the server has imported everything, or has failed to."""
        if self._connection is None:
            return
        self._connection.setblocking(False)
        answer = b""
        with contextlib.suppress(OSError):
            answer = await asyncio.get_running_loop().sock_recv(self._connection, _LARGEST)
        if answer != _READY:
            self.close()
        elif self._connection is not None:
            self._connection.settimeout(ANSWER_S)

    def spawn(self, spec: Spec, *, ready_fd: int) -> Forked | None:
        """Start a role in a group of its own, its output appended to its log, as `processes.spawn`
        does; None: it has to be done so."""
        if self._connection is None or not spec.role:
            return None
        asked = {
            "argv": list(spec.argv),
            "role": list(spec.role),
            "env": dict(spec.env),
            "cwd": str(spec.cwd or ""),
            "nice": spec.nice,
            "stop_signal": int(spec.stop_signal),
        }
        try:
            with open_log(spec.log) as log, _adopting():
                socket.send_fds(
                    self._connection, [json.dumps(asked).encode()], [log.fileno(), ready_fd]
                )
                forked = Forked(int(self._connection.recv(_LARGEST)))
            # raises where the kernel gave it to somebody else, and then it ends by itself
            forked.poll()
            return forked
        except (OSError, ValueError):
            self.close()
            return None

    def close(self) -> None:
        """End the server; what it forked stays."""
        if self._connection is None:
            return
        self._connection.close()
        self._connection = None
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Take orphans of processes below this one, instead of init; only meanwhile, since nobody would
    wait for others than ours."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _serve(
    connection_fd: int, launcher: int, modules: Sequence[str], main: Callable[[], None]
) -> None:
    """What the server does until the launcher is gone."""
    os.setpgid(0, 0)  # the terminal's Ctrl-C is for the launcher
    die_with_parent(signal.SIGKILL)
    if os.getppid() != launcher:
        return
    _rewire(os.open(os.devnull, os.O_RDWR), {connection_fd})
    show_command([sys.executable, "-m", "sluice.cli", "fork-server"])
    gc.disable()  # importing makes no garbage
    for name in modules:
        import_module(name)
    gc.freeze()  # no collection writes to pages that the forked share
    if _threads() > 1:
        return
    connection = socket.socket(fileno=connection_fd)
    connection.send(_READY)
    while True:
        message, fds, _, _ = socket.recv_fds(connection, _LARGEST, 2)
        if not message:
            return
        asked = json.loads(message)
        pid = _fork_for(partial(_become, launcher, main, asked, *fds))
        for fd in fds:
            os.close(fd)
        connection.send(str(pid).encode())


def _fork_for(become: Callable[[int], None]) -> int:
    """Fork a role and leave it to the launcher; return its pid."""
    pid_read, pid_write = os.pipe()
    go_read, go_write = os.pipe()
    between = os.fork()
    if between == 0:
        _exit_after(_leave_child, become, pid_write, go_read)
    os.close(pid_write)
    os.close(go_read)
    pid = os.read(pid_read, 32)
    os.close(pid_read)
    os.waitpid(between, 0)  # from here on the child is the launcher's
    with contextlib.suppress(BrokenPipeError):
        os.write(go_write, b"!")
    os.close(go_write)
    return int(pid)


def _leave_child(become: Callable[[int], None], pid_write: int, go_read: int) -> None:
    pid = os.fork()
    if pid == 0:
        _exit_after(become, go_read)
    os.setpgid(
        pid, pid
    )  # here, because the launcher may want to end the group as soon as it has the pid
    os.write(pid_write, str(pid).encode())
    os._exit(0)


def _become(
    launcher: int,
    main: Callable[[], None],
    asked: dict[str, Any],
    log_fd: int,
    ready_fd: int,
    go_read: int,
) -> None:
    """Be the role: what its command line would be after `exec`."""
    os.read(go_read, 1)
    heed_hangup()
    die_with_parent(signal.Signals(asked["stop_signal"]))
    if os.getppid() != launcher:
        return
    os.nice(asked["nice"])
    os.environ.update(asked["env"])
    _rewire(log_fd, {ready_fd})
    if asked["cwd"]:
        os.chdir(asked["cwd"])
    ready = ["--ready-fd", str(ready_fd)]
    show_command([*asked["argv"], *ready])
    sys.argv = ["sluice", *asked["role"], *ready]
    main()


def _exit_after(run: Any, *arguments: Any) -> None:
    """Run in a forked process, and end it there: nothing of the forking one's stack may go on in
    it."""
    code = 1
    try:
        run(*arguments)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at its top
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
            _flush()
        os._exit(code)


def _rewire(output: int, descriptors: set[int]) -> None:
    """Read from nowhere, write to `output`, and close all other file descriptors except
    `descriptors`: among them is the launcher's lock."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(int(name))


def show_command(argv: Sequence[str]) -> None:
    """Let `ps` show this command line. Written over the one this process was started with, and over
    the environment behind it, of which the C library gets a copy first."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end, last = (
        int(fields[45]),
        int(fields[46]),
        int(fields[48]),
    )  # arg_start, arg_end, env_end of proc(5)
    if not 0 < start < end <= last:
        return
    words = [os.fsencode(word) for word in argv]
    text = b"\0".join(words) + b"\0"
    if len(text) <= end - start:
        text = text.ljust(end - start, b"\0")
    else:
        for name, value in os.environb.items():
            os.putenv(name, value)
        # a byte other than NUL at the end of the old one says to the kernel: one string, which goes
        # on behind it up to the next NUL
        text = b" ".join(words)[: last - start - 1] + b"\0"
    ctypes.memmove(start, text, len(text))


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
