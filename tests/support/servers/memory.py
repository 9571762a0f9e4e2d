"""What the processes of a product and its Redis hold while something goes on."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.support.checks.figures import Figure
from tests.support.clients.readers import resident_bytes
from tests.support.servers.product import Product

MIB = 2**20
BOUND = 64 * MIB
"""Far above what some calls need (tens of KiB each), far below what a leak or an unbounded buffer
would take."""


def _held(product: Product) -> dict[str, int]:
    store: Any = product.redis
    found = {
        f"{c.role} {c.pid}": resident_bytes(c.pid)
        for c in product.children
        if c.process.poll() is None
    }
    return found | {"redis": int(store.info("memory")["used_memory"])}


@contextmanager
def bounded(
    product: Product, figure: Figure, what: str, *, each: int = BOUND, redis: int = BOUND
) -> Iterator[None]:
    """While this lasts no process grows by more than `each` bytes, and Redis not by more than
    `redis`; each is a figure."""
    before, stopping = _held(product), threading.Event()
    grown = dict.fromkeys((name.split()[0] for name in before), 0)

    def watch() -> None:
        while not stopping.wait(0.1):
            for name, now in _held(product).items():
                role = name.split()[0]
                grown[role] = max(grown[role], now - before[name])

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield
        finally:
            stopping.set()
        watching.result()
    for role, size in grown.items():
        figure(f"{what}: growth of {role}", size / MIB, "MiB")
    assert all(size < (redis if role == "redis" else each) for role, size in grown.items()), grown
