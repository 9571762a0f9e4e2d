"""One part that is slow: what everything holds stays bounded, other calls go on as before, and past
the bound calls are refused."""

import itertools
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from protocol.request import DialectName
from streams import layout
from tests.support.checks.figures import Figure
from tests.support.clients.readers import (
    PATHS,
    Reader,
    hold_invariants,
    joined,
    request,
    under_way,
    words,
)
from tests.support.json_values import as_json
from tests.support.servers.memory import MIB, bounded
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.judges import JudgeModel, judge_model, judged_by
from tests.support.upstreams.replay import replaying, stream
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

DIALECTS: list[DialectName] = ["openai", "anthropic"]
ROUNDS, CALLS = 3, 25
SLACK_S = 0.05
"""What the machine may add by itself: the two halves of a round do not see the same neighbours."""


def p95(took: list[float]) -> float:
    return statistics.quantiles(took, n=20)[-1]


def calls_p95(product: Product, *, tool: bool = False) -> float:
    """The 95th percentile of calls one after the other."""
    took = []
    with httpx.Client(
        base_url=product.url, headers={"authorization": f"Bearer {KEY}"}, timeout=30
    ) as client:
        for n in range(CALLS):
            dialect = DIALECTS[n % 2]
            body = request("please list the files" if tool else "hello", dialect, tool=tool)
            began = time.monotonic()
            answer = client.post(PATHS[dialect], json=body)
            took.append(time.monotonic() - began)
            assert answer.status_code == 200 and b'"error"' not in answer.content, answer.text
    return p95(took)


def compared(
    measure: Callable[[], float],
    slow: Callable[[], AbstractContextManager[None]],
    figure: Figure,
    name: str,
) -> None:
    """A p95 with and without the slow one, in turns in one run. What blocks others blocks them in
    every round; a neighbour does not."""
    without, with_it = [], []
    measure()
    for _ in range(ROUNDS):
        without.append(measure())
        with slow():
            with_it.append(measure())
    quiet = statistics.median(without)
    figure(f"{name}, in proportion to that without it", statistics.median(with_it) / quiet, "x")
    assert min(with_it) < 1.5 * quiet + SLACK_S, (without, with_it)


def assert_refused(readers: Iterable[Reader], says: bytes = b"", *, status: int = 503) -> None:
    for reader in readers:
        assert reader.status == status and int(reader.headers["retry-after"]) >= 1, (
            reader.status,
            reader.received[:300],
        )
        assert (b'"type":"error"' in reader.received) is (reader.dialect == "anthropic"), (
            reader.received
        )
        assert says in reader.received, reader.received


def open_calls(product: Product) -> int:
    store: Any = product.redis
    return int(store.xlen(layout.dispatch_key(0)))


# --- slow clients ---

STALLED, SLOW = 2, 2
UNSENT, KERNEL = 256 * 1024, 4 * MIB
"""What the gateway holds unsent of a call, and what Linux holds of one socket's unread bytes
(tcp_wmem)."""
FRAME = json.dumps(
    {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "x" * 16_000}, "finish_reason": None}],
    }
)


class SlowClient:
    """A client of the model `gpt-x` that leaves its answer unread, or reads about 64 KB/s of it."""

    def __init__(self, product: Product, stack: ExitStack, *, reads: bool) -> None:
        self._product, self._stopping = product, threading.Event()
        self._socket = stack.enter_context(socket.socket())
        # small: what the kernel takes is not what Sluice holds
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self._socket.settimeout(20)
        self._socket.connect(("127.0.0.1", product.port))
        body = as_json(request("go", model="gpt-x"))
        head = (
            f"POST {PATHS['openai']} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer"
            f" {KEY}\r\nx-sluice-policy: noop\r\n"
        )
        self._socket.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        found = wait_for(
            lambda: re.search(
                rb"x-sluice-call-id: (\S+)", self._socket.recv(4096, socket.MSG_PEEK)
            ),
            what="its answer",
        )
        self.call_id = found[1].decode()
        if reads:
            thread = threading.Thread(target=self._read, daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(self._stopping.set)

    def _read(self) -> None:
        while not self._stopping.wait(0.06):
            assert self._socket.recv(4096)

    def stands_still(self) -> bool:
        """Has nothing been appended to its call for half a second?"""
        store: Any = self._product.redis
        before, since = store.xlen(layout.call_key(self.call_id)), time.monotonic()
        wait_for(lambda: time.monotonic() > since + 0.5)
        return bool(before == store.xlen(layout.call_key(self.call_id)) > 0)


@contextmanager
def slow_clients(product: Product) -> Iterator[None]:
    """Some clients read nothing, some slowly; those that read nothing have stopped their
    upstreams."""
    store: Any = product.redis
    with ExitStack() as stack:
        stalled = [SlowClient(product, stack, reads=False) for _ in range(STALLED)]
        for _ in range(SLOW):
            SlowClient(product, stack, reads=True)
        for client in stalled:
            wait_for(client.stands_still, timeout_s=40, what="its upstream is not read any more")
        yield
    wait_for(
        lambda: not list(store.scan_iter("*:call:*")),
        timeout_s=30,
        what="what they held in Redis is gone",
    )


@pytest.mark.case("C2")
def test_c2_clients_that_do_not_read_do_not_slow_others(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with replaying() as replay:
        replay.answer(stream(f"data: {FRAME}\n\n".encode() * 1900, cutting="events"))
        config = upstreams.config(replay)
        config["limits"] |= {
            "unsent_bytes": UNSENT,
            "ended_ttl_s": 1.0,
            "open_calls": 2 * (STALLED + SLOW + 1),
        }
        with running(tmp_path, redis_url, database_url, config) as product:
            name = f"{STALLED + SLOW} clients that read 30 MB slowly or not at all"
            # each byte is on the call's stream, on the reply stream, and twice in the record until
            # that is committed
            with bounded(
                product,
                figure,
                name,
                each=96 * MIB,
                redis=(STALLED + SLOW) * 6 * (KERNEL + 2 * UNSENT),
            ):
                compared(
                    partial(calls_p95, product),
                    partial(slow_clients, product),
                    figure,
                    f"{name}: other calls' p95",
                )
                with slow_clients(product):
                    last = Reader(product.url, request(words(100)))
                    under_way([last], 1)
                    refused = [
                        Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS
                    ]
                    joined(refused)
                    assert_refused(refused, b"its share of 10", status=429)
                    joined([last])
            hold_invariants(product, [last, *refused])


# --- a slow judge ---


@pytest.mark.case("C11")
def test_c11_a_slow_judge(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with judge_model() as model:
        config = judged_by(base_config(), model, deadline_s=60.0)
        config["limits"] |= {"open_calls": 24}
        with running(tmp_path, redis_url, database_url, config) as product:
            asked: list[Reader] = []

            @contextmanager
            def slow() -> Iterator[None]:
                before = len(model.asked)
                model.open.clear()
                asked.append(
                    Reader(
                        product.url, request("please list the files", tool=True), policy="asking"
                    )
                )
                wait_for(lambda: len(model.asked) > before, what="the slow judge is asked")
                yield
                assert asked[-1].is_alive()
                model.open.set()
                joined(asked)

            # judged calls too: one slow question takes one of the judge's places, not all
            compared(
                partial(calls_p95, product, tool=True),
                slow,
                figure,
                "a slow judge: other calls' p95",
            )
            many(product, model, figure)
            hold_invariants(product, asked)


def many(product: Product, model: JudgeModel, figure: Figure) -> None:
    """As many calls as one key may have open wait for the judge: the next are refused, and all are
    served once it answers."""
    wait_for(lambda: open_calls(product) == 0, what="no call from before is open")
    with bounded(product, figure, "12 calls that wait for a judge"):
        model.open.clear()
        waiting = [
            Reader(product.url, request("please list the files", tool=True), policy="asking")
            for _ in range(12)
        ]
        wait_for(lambda: open_calls(product) == 12, what="all are open")
        refused = [Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS]
        joined(refused)
        assert_refused(refused, b"its share of 24", status=429)
        model.open.set()
        joined(waiting)
        assert all(b"ls -la" in r.received for r in waiting)
    hold_invariants(product, [*waiting, *refused])


# --- a slow worker pool ---

POOL, QUEUE, LATE = 5, 10, 20


@pytest.mark.case("C13")
def test_c13_a_slow_worker_pool(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    config = base_config()
    # one key has four fifths of it
    config["limits"] |= {"max_calls": POOL + 1, "claim_s": 1.0, "queue": QUEUE}
    refused: list[Reader] = []
    with running(tmp_path, redis_url, database_url, config) as product:
        served = [
            Reader(product.url, request(words(900, 50), DIALECTS[n % 2]), dialect=DIALECTS[n % 2])
            for n in range(POOL)
        ]
        under_way(served, 1)

        def gaps_p95() -> float:
            """Of the gaps between the frames of the calls that the pool holds."""
            since = time.monotonic()
            wait_for(lambda: time.monotonic() > since + 1.0)
            came = [[at for at in list(r.came) if at >= since] for r in served]
            return p95([b - a for one in came for a, b in itertools.pairwise(one)])

        @contextmanager
        def slow() -> Iterator[None]:
            """The worker holds all it may: others wait their time, and past the queue's bound not
            even that."""
            late = [
                Reader(product.url, request("hello", d), dialect=d)
                for d in DIALECTS
                for _ in range(LATE)
            ]
            wait_for(
                lambda: any(r.status == 503 for r in late), what="calls past the bound of the queue"
            )
            yield
            joined(late)
            refused.extend(late)

        with bounded(
            product, figure, f"a slow worker pool, {POOL} calls in it and {2 * LATE} before it"
        ):
            compared(
                gaps_p95, slow, figure, "a slow worker pool: p95 of the gaps in the calls it holds"
            )
            assert all(r.is_alive() for r in served), "the worker was free too soon"
            assert_refused(refused)
            assert {b"limit for open and waiting calls" in r.received for r in refused} == {
                True,
                False,
            }, "some for the queue's bound, some for their time"
            figure(
                "a slow worker pool: slowest refusal (claim_s 1)",
                max(r.elapsed_s for r in refused),
                "s",
            )
            joined(served, 90)
            assert all(r.has_all(900) for r in served)
        hold_invariants(product, [*served, *refused])


# --- a slow Postgres ---

BACKLOG = 300


@contextmanager
def slow_postgres(product: Product) -> Iterator[None]:
    """Every insert waits: another transaction holds the tables. Afterwards the record has caught
    up."""
    store: Any = product.redis
    with psycopg.connect(product.database_url) as connection:

        def locked() -> bool:
            """Has it all the locks? Waiting for one while it holds another could be a deadlock with
            a batch."""
            try:
                connection.execute(
                    "LOCK TABLE chunks, releases, calls IN ACCESS EXCLUSIVE MODE NOWAIT"
                )
            except psycopg.errors.LockNotAvailable:
                connection.rollback()
                return False
            return True

        wait_for(locked, what="the tables' locks")
        yield
        connection.rollback()
    wait_for(
        lambda: store.xlen(layout.audit_key(0)) < 10, timeout_s=30, what="the record catches up"
    )


@pytest.mark.case("D10")
def test_d10_a_slow_postgres(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    config = base_config()
    config["limits"] |= {"backlog": BACKLOG}
    with running(tmp_path, redis_url, database_url, config) as product:
        compared(
            partial(calls_p95, product),
            partial(slow_postgres, product),
            figure,
            "a slow Postgres: other calls' p95, text",
        )
        with (
            bounded(product, figure, f"a slow Postgres with {BACKLOG} records waiting"),
            slow_postgres(product),
        ):
            streams = [
                Reader(product.url, request(words(1500, 10), d), dialect=d) for d in DIALECTS * 2
            ]
            under_way(streams, 1)
            others = [Reader(product.url, request("hello"))]

            def is_refused() -> bool:
                joined(others[-1:])
                if others[-1].status == 200:
                    others.append(Reader(product.url, request("hello")))
                return others[-1].status == 503

            wait_for(is_refused, timeout_s=40, what="the backlog's bound")
            refused = [Reader(product.url, request("hello", d), dialect=d) for d in DIALECTS]
            joined(refused)
            assert_refused(refused, b"limit for unwritten audit records")
            assert all(r.is_alive() for r in streams), "they were done before the bound"
            joined(streams)
            assert all(r.has_all(1500) for r in streams), "open calls go on past the bound"
        hold_invariants(product, [*streams, *others, *refused])
        again = Reader(product.url, request("hello"))
        joined([again])
        assert again.status == 200
