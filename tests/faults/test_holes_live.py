"""Stores that lose what they had taken: each call that is not whole on record afterwards is named, and no call that is.

What is not whole is told from outside: the bytes that the client got against the page of its chunks.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from db.verify import verify
from sluice.doctor import check_database_live
from streams import layout
from tests.support.damage import copied, cut, forget_since, set_back, written
from tests.support.pages import bytes_of, written_of
from tests.support.product import KEY, Product, base_config, running
from tests.support.stores import Server, client, own_postgres, own_valkey
from tests.support.traffic import Finished, Traffic
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
BACK_S = 10.0
ENDED_TTL_S = 6.0


class Place:
    """A product on stores of its own."""

    def __init__(self, product: Product, valkey: Server, postgres: Server, folder: Path) -> None:
        self.product, self.valkey, self.postgres, self.folder = product, valkey, postgres, folder


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    config = base_config()
    config["demo"] = True
    config["limits"] |= {"ended_ttl_s": ENDED_TTL_S, "seal_s": 0.3, "checkpoint_s": 1.0, "activity_s": 8.0}
    with own_valkey(tmp_path) as valkey, own_postgres(tmp_path) as postgres, running(tmp_path, valkey.url, postgres.url, config) as product:
        yield Place(product, valkey, postgres, tmp_path)


def postgres_set_back(place: Place) -> None:
    copy = copied(place.postgres, place.folder / "copy")
    time.sleep(BACK_S)
    set_back(place.postgres, copy)


def stream_cut(place: Place) -> None:
    """By hand, several times, while the writer is slow."""
    [writer] = place.product.of("audit")
    for how in ("XTRIM to ten", "XDEL of every second", "XTRIM to nothing", "DEL"):
        with stopped(writer):
            time.sleep(0.4)
            cut(place.valkey, how)
        time.sleep(1.0)


@contextmanager
def stopped(child: Any) -> Iterator[None]:
    """Let a process sleep."""
    child.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        child.kill(signal.SIGCONT)


def redis_forgets(place: Place) -> None:
    then = written(place.valkey)
    time.sleep(1.0)
    forget_since(place.valkey, then)


DAMAGES: list[tuple[Callable[[Place], None], float]] = [(postgres_set_back, BACK_S), (stream_cut, 6.0), (redis_forgets, 1.0)]


@pytest.mark.parametrize(("damage", "lasts_s"), DAMAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_call_that_is_not_whole_is_named(place: Place, damage: Callable[[Place], None], lasts_s: float) -> None:
    traffic = Traffic(place.product.url, 8, pause_s=0.1)
    wait_for(lambda: len(traffic.finished) > 20, timeout_s=30, what="some calls")
    began = time.monotonic()
    damage(place)
    done = time.monotonic()
    after = done + 12.0
    wait_for(lambda: any(f.began > after for f in traffic.finished), timeout_s=60, what="calls after it")
    finished = [f for f in traffic.stop() if f.seen.call_id and f.seen.status == 200]
    wait_for(lambda: is_settled(place), timeout_s=60, what="every call has ended")
    broken = {f.seen.call_id for f in finished if f.seen.whole and not is_whole(place, f)}
    assert broken, "the damage did none"
    with contextlib.suppress(AssertionError):
        wait_for(lambda: broken <= names(place), timeout_s=4 * ENDED_TTL_S + 10)
    named = names(place)
    assert broken - named == set(), what_of(place, broken - named)
    # what was whole before, and what began when all was well again
    innocent = {f.seen.call_id for f in finished if f.ended < began - 2 or f.began > after}
    assert innocent & named == set(), what_of(place, innocent & named)
    [sentence] = [said for name, state, said in check_database_live(place.postgres.url) if (name, state) == ("incomplete calls", "warning")]
    assert f"{len(named):,} call" in sentence and sum(call in sentence for call in named) == min(5, len(named))


def names(place: Place) -> set[str]:
    """The calls that verification names."""
    return {str(call) for call in verify(place.postgres.url).incomplete_calls}


def is_settled(place: Place) -> bool:
    """Is nothing open, and nothing on its way to the record?"""
    with client(place.valkey) as admin:
        return not admin.xlen(layout.dispatch_key(0)) and not admin.xlen(layout.audit_key(0))


def is_whole(place: Place, one: Finished) -> bool:
    pages: list[dict[str, Any]] = []
    while not pages or pages[-1]["next_cursor"]:
        more = {"cursor": pages[-1]["next_cursor"]} if pages else {}
        head = {"authorization": f"Bearer {KEY}"}
        place_of = f"{place.product.url}/audit/calls/{one.seen.call_id}/chunks"
        answer = httpx.get(place_of, params={"limit": 1000, **more}, headers=head, timeout=10)
        if answer.status_code == 404:
            return False
        pages.append(answer.json())
    return bytes_of(written_of(pages)) == bytes(one.seen.body)


def what_of(place: Place, calls: set[str]) -> str:
    """What the record says of some calls, for a failing test's message."""
    said = []
    for call in sorted(calls)[:3]:
        head = {"authorization": f"Bearer {KEY}"}
        whole = httpx.get(f"{place.product.url}/audit/calls/{call}", headers=head, timeout=10)
        said.append(f"{call}: {whole.text[:1500]}")
    return "\n".join(said)
