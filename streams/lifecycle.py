"""How every process that uses the streams, gateway or worker, reports that it is ready, and stops
on a signal."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable

from settings.runtime import Runtime


def tell_ready(settings: Runtime) -> None:
    """Report through the descriptor of `sluice up` that this process is ready; from now on garbage
    is collected, but for what is there."""
    gc.collect()
    gc.freeze()
    gc.enable()  # who started this process did without while importing
    if settings.ready_fd is not None:
        os.write(settings.ready_fd, b"ready\n")
        os.close(settings.ready_fd)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop this process: SIGHUP only where `nohup` did not start it."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]


def on_stop(stop: Callable[[], None]) -> None:
    """Call `stop` at each of `stop_signals`. SIGUSR1 and SIGUSR2 mean nothing here."""
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # unless somebody gave them a meaning, they would end the process, and a gateway's every
        # call
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
