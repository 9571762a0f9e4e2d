"""Stops a user's own policy that does not end, where it is loaded or tried: a check must report it,
and not hang."""

import threading
from collections.abc import Callable
from typing import TypeVar

from policy.hooks import raised_at
from protocol.errors import PolicyFailed, TookTooLong
from workers.cpu_lane import interrupt

T = TypeVar("T")
LIMIT_S = 10.0
"""Far more than any policy takes that workers could use: they give each step two seconds."""


def within_limit(work: Callable[[], T]) -> T:
    """Do it, and return what it returns. Raises PolicyFailed with its place where it does not
    end."""
    timer = threading.Timer(LIMIT_S, interrupt, (threading.get_ident(), (within_limit.__code__,)))
    timer.daemon = True
    timer.start()
    try:
        return work()
    except TookTooLong as error:
        at = raised_at(error)
        raise PolicyFailed(
            f"it does not end: after {LIMIT_S:g} s it was {f'in {at}' if at else 'given up'}"
        ) from None
    finally:
        timer.cancel()
