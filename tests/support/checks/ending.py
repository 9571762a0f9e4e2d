"""Every run of the tests ends, and says what did not: a pytest plugin.

A test that is over its time limit fails by itself (SIGALRM, which interrupts it where it stands).
One that this does not end, because it catches everything or is in C, takes its process with it,
`GRACE_S` later, with the stacks of all threads. A process of pytest-xdist that is lost ends the
run, and the run has failed: pytest-xdist would give all files of that process to another one, also
those that are done, of which nobody reports an end, and then wait for ever. SLUICE_TEST_MINUTES
bounds the whole run, whatever it stands at.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest

from sluice.processes import heed_signals
from tests.support.waiting import Limit

MINUTES = "SLUICE_TEST_MINUTES"
GRACE_S = 30.0
_REPORT_S = 5.0
"""How long before its limit a test gives up waiting, so that it is the test that says what for."""


_running: dict[str, float] = {}
"""The tests that run now, and since when."""
_lost: list[str] = []
"""Processes of pytest-xdist that ended though nobody asked them to."""
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr, which tests have no hold of; bound the run in its first process."""
    heed_signals()
    stderr = os.dup(2)
    config.add_cleanup(lambda: os.close(stderr))
    config.stash[_stderr] = stderr
    try:
        minutes = float(os.environ.get(MINUTES) or 0)
    except ValueError:
        raise pytest.UsageError(
            f"{MINUTES} is the number of minutes after which a run ends, not"
            f" {os.environ[MINUTES]!r}"
        ) from None
    if minutes > 0 and "PYTEST_XDIST_WORKER" not in os.environ:
        bound = threading.Timer(minutes * 60, _stop, [minutes, stderr])
        bound.daemon = True
        bound.start()
        config.add_cleanup(bound.cancel)
        signal.signal(signal.SIGUSR1, _exit)


def _stop(minutes: float, stderr: int) -> None:
    """Say what runs, and end the run: in order, or else at once."""
    now = time.monotonic()
    running = [f"  {test}, for {now - since:.0f} s" for test, since in _running.items()]
    lines = running or [
        "  no test: a process waits for work that does not come, or for the end of another"
    ]
    os.write(
        stderr,
        "\n".join(
            ["", f"the tests are not done after {minutes:g} minutes; what runs now:", *lines, ""]
        ).encode(),
    )
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    time.sleep(GRACE_S)
    os._exit(pytest.ExitCode.INTERRUPTED)


def _exit(_: int, __: FrameType | None) -> None:
    pytest.exit("the tests took too long", returncode=pytest.ExitCode.INTERRUPTED)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins, in whichever process."""
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """It is over."""
    _running.pop(nodeid, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """What bounds a test ends with it."""
    try:
        return (yield)
    finally:
        Limit.at = float("inf")
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Bound what waits in the test, and end its process where its time limit does not end it."""
    Limit.at = time.monotonic() + settings.timeout - min(_REPORT_S, settings.timeout / 2)
    faulthandler.dump_traceback_later(
        settings.timeout + GRACE_S, exit=True, file=item.config.stash[_stderr]
    )
    result = yield
    interrupt = signal.getsignal(signal.SIGALRM)

    def show_tasks(number: int, frame: FrameType | None) -> None:
        # the signal interrupts the loop, whose stack says nothing of where the test stands
        with contextlib.suppress(RuntimeError):
            for task in asyncio.all_tasks():
                task.print_stack()
        if callable(interrupt):
            interrupt(number, frame)

    if callable(interrupt):
        signal.signal(signal.SIGALRM, show_tasks)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """The signal of the time limit does not interrupt pytest while it says why a test failed."""
    if call.excinfo is not None:
        item.config.hook.pytest_timeout_cancel_timer(item=item)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A process of pytest-xdist has ended: with an error where nobody asked it to."""
    if error:
        _lost.append(node.gateway.id)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that lost a process has failed, even if it died between two tests."""
    if _lost and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
