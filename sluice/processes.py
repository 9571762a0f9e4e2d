"""Processes on this machine: start one so that it dies with its parent, recognize it after a crash,
end it.

A pid alone may be reused: the pid is stored on disk with the process's start time, and only a
process that matches both is ever signalled.
"""

import ctypes
import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
NOBODY = 65534
ON_LINUX = platform.system() == "Linux"
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Spec:
    """How to start a process, how to know that it is ready, how to end it."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the parent's environment."""
    cwd: Path | None = None
    user: int | None = None
    """Run as this user id (with `group`); only root may ask for it."""
    group: int | None = None
    before_exec: Callable[[], None] | None = None
    """Called in the new process before the program: `as_nobody`."""
    stop_signal: signal.Signals = signal.SIGTERM
    is_ready: Callable[[], bool] | None = None
    """A cheap probe; without it the process reports that itself through the descriptor named by
    `--ready-fd`."""
    is_stopping: Callable[[], bool] | None = None
    """A cheap probe: has another process asked it to stop, so that it only waits for its clients to
    leave?"""
    nice: int = 0
    """How far it gives way to the others where cores are short, as nice(1) has it."""
    role: Sequence[str] = ()
    """What `sluice` is called with in `argv`, if that is one of our roles: a fork server can start
    it."""


class Process(Protocol):
    """The used interface of a running process: of `subprocess.Popen`, and of a forked one."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""


def spawn(spec: Spec, *, ready_fd: int | None = None) -> subprocess.Popen[bytes]:
    """Start the process in a group of its own, its output appended to its log.

    Call it from the main thread: on Linux the kernel sends the stop signal when the *thread* that
    started it ends.
    """
    argv = [*spec.argv, "--ready-fd", str(ready_fd)] if ready_fd is not None else list(spec.argv)
    with open_log(spec.log) as log:
        # a server's own files are closed to other users, whatever mode it asks for
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec.cwd,
            env={**os.environ, **spec.env},
            user=spec.user,
            group=spec.group,
            extra_groups=[] if spec.user is not None else None,
            pass_fds=() if ready_fd is None else (ready_fd,),
            umask=0o077,
            preexec_fn=_before_exec(spec, os.getpid()),
            process_group=0,
        )


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to, closed to other users; where it cannot be, the output is dropped: a
    full disk ends no process."""
    try:
        return open(path, "ab", opener=_private)
    except OSError:
        return open(os.devnull, "ab")


def started_at(pid: int) -> str | None:
    """Return what distinguishes this process from an earlier or later one with the same pid; None
    when there is none (or a zombie)."""
    if ON_LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not shown or shown.startswith("Z") else shown.partition(" ")[2].strip()


def remember(path: Path, pid: int) -> None:
    """Write down `pid` and its start time. Raises OSError."""
    started = started_at(pid)
    if started is None:
        return
    part = path.with_suffix(".part")
    with open(part, "w", opener=_private) as file:
        json.dump({"pid": pid, "started_at": started}, file)
    part.replace(path)


def recall(path: Path) -> int | None:
    """Return the pid written at `path` if that very process still runs."""
    try:
        stored = json.loads(path.read_text())
        pid, started = int(stored["pid"]), str(stored["started_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if started_at(pid) == started else None


def sweep(folder: Path, *, grace_s: float) -> list[str]:
    """End every process written down in `folder` and return their names. After `grace_s` they are
    killed."""
    left = {
        path: pid for path in sorted(folder.glob("*.json")) if (pid := recall(path)) is not None
    }
    for path, pid in left.items():
        _signal_group(pid, signal.SIGINT if path.stem == "postgres" else signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    waiting = dict(left)
    while waiting and time.monotonic() < deadline:
        waiting = {path: pid for path, pid in waiting.items() if recall(path) is not None}
        time.sleep(_POLL_S)
    for pid in waiting.values():
        _signal_group(pid, signal.SIGKILL)
    while any(recall(path) is not None for path in waiting):
        time.sleep(_POLL_S)
    for path in folder.glob("*.json"):
        path.unlink(missing_ok=True)
    return [path.stem for path in left]


def end(process: Process, stop_signal: signal.Signals, *, grace_s: float) -> None:
    """Ask the process to stop, wait, and kill its group when it does not."""
    if process.poll() is None:
        process.send_signal(stop_signal)
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        if number == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def heed_signals() -> None:
    """Take the signals that stop a process although whoever started this one ignored them, as a
    script does for its background jobs.

    Each process that it starts would ignore them too. SIGHUP stays ignored: `nohup` means all
    processes of the group.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def heed_hangup() -> None:
    """Let SIGHUP stop this process, which has a group of its own: no terminal hangs it up, so
    `nohup` has no meaning for it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def hand_over_signals() -> None:
    """Before `exec` of a program that is not ours: let it have the signals that Python ignores for
    itself."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def die_with_parent(number: signal.Signals) -> None:
    """Let the kernel send `number` to this process when its parent dies. Only Linux can; elsewhere
    nothing happens."""
    if ON_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


def as_nobody() -> None:
    """Become `nobody` in a user namespace in which root's files are nobody's. Raises OSError where
    the kernel or a container forbids it.

    For root, and for programs that refuse to run as root: they have none of root's rights but those
    of the files' owner.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not ON_LINUX or libc.unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    for kind in ("uid", "gid"):
        Path(f"/proc/self/{kind}_map").write_text(f"{NOBODY} 0 1")


def can_be_nobody() -> bool:
    """Does `as_nobody` work here?"""
    try:
        return (
            subprocess.run(
                ["true"], preexec_fn=as_nobody, capture_output=True, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.SubprocessError):
        return False


def _before_exec(spec: Spec, parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        heed_hangup()
        os.nice(spec.nice)
        if spec.before_exec is not None:
            spec.before_exec()
        if ON_LINUX:
            libc.prctl(_PR_SET_PDEATHSIG, int(spec.stop_signal))
            if os.getppid() != parent:
                os._exit(1)

    return before_exec


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
