"""A gateway for which there is no memory left: large requests are refused in words, small ones
served."""

import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.clients.readers import PATHS, request
from tests.support.servers.product import KEY, Product, base_config

HEADERS = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
MORE = 12 * 2**20
"""What the gateway may take beyond what it has."""


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with Product(tmp_path, redis_url, database_url, base_config()) as made:
        made.start("audit", "policy", "gateway")
        yield made


def mapped_bytes(pid: int) -> int:
    """What counts for RLIMIT_AS."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.slow
def test_a_body_that_no_memory_is_left_for_gets_503(product: Product) -> None:
    (gateway,) = product.of("gateway")
    said, reset = list[tuple[int, str]](), list[str]()

    def ask(size: int) -> None:
        body = request("x" * size, stream=False)
        with httpx.Client(base_url=product.url, timeout=30) as client:
            try:
                answer = client.post(PATHS["openai"], json=body, headers=HEADERS)
            except httpx.TransportError as error:
                reset.append(repr(error))
            else:
                said.append((answer.status_code, answer.text))

    ask(100)
    limit = mapped_bytes(gateway.pid) + MORE
    resource.prlimit(gateway.pid, resource.RLIMIT_AS, (limit, limit))
    threads = [threading.Thread(target=ask, args=(6 * 2**20,)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    # a reset is no answer: only where the event loop found no memory to read into, of which a
    # connection is not told before its end
    unread = [
        line
        for line in product.logs().splitlines()
        if "Fatal error on transport" in line and "MemoryError" in line
    ]
    assert len(reset) <= len(unread), (reset, unread)
    assert len(said) + len(reset) == 11 and {status for status, _ in said} <= {200, 413, 503}, said
    refused = [text for status, text in said if status == 503]
    assert refused and all("out of memory" in text for text in refused), said
    ask(100)
    assert said[-1][0] == 200
