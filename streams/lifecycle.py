"""How every process at the streams, gateway or worker, reports that it is ready, and stops on a signal."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable

from protocol.runtime import Runtime


def tell_ready(settings: Runtime) -> None:
    """Report through the descriptor of `sluice up` that this process is ready; from now on garbage is collected, but for what is there."""
    gc.collect()
    gc.freeze()
    gc.enable()  # who started this process did without while importing
    if settings.ready_fd is not None:
        os.write(settings.ready_fd, b"ready\n")
        os.close(settings.ready_fd)


def on_stop(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM, SIGINT and SIGHUP, the last unless `nohup` started this process. SIGUSR1 and SIGUSR2 mean nothing here."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        # unless somebody gave them a meaning, they would end the process, and a gateway's every call
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.SIG_IGN)
