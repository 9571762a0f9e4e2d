"""The checker of the invariants finds what is wrong: a real call, its client's bytes and its record
damaged in every way."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from db.connections import conninfo
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from streams import layout
from tests.support.checks.invariants import (
    Recorded,
    Seen,
    call_faults,
    read_call,
    redis_faults,
    settle,
)
from tests.support.checks.record import fresh_database
from tests.support.clients.readers import PATHS, request
from tests.support.clients.sdk_calls import tool
from tests.support.servers.product import KEY, Product, running

WORDS = "the weather in Paris, then delete everything with rm -rf /"


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    # a record of its own: the calls of products that were killed before them have no end
    with (
        fresh_database(database_url) as url,
        running(tmp_path_factory.mktemp("product"), redis_url, url) as made,
    ):
        yield made


def call(
    product: Product, dialect: DialectName, *, streams: bool = True, model: str = "demo"
) -> tuple[Seen, Recorded]:
    """Make one call; return what its client saw and what is on record once all is over."""
    tools = [tool(dialect, "get_weather", city="string"), tool(dialect, "bash", command="string")]
    body = request(WORDS, dialect, model=model, stream=streams) | {"tools": tools}
    answer = httpx.post(
        product.url + PATHS[dialect],
        json=body,
        headers={"authorization": f"Bearer {KEY}"},
        timeout=20,
    )
    seen = Seen(
        dialect,
        streams,
        answer.status_code,
        answer.content,
        call_id=answer.headers["x-sluice-call-id"],
    )
    with psycopg.connect(conninfo(product.database_url), autocommit=True) as connection:
        assert settle(connection, product.redis) == []
        return seen, read_call(connection, seen.call_id)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_call_without_a_fault_has_none(
    product: Product, dialect: DialectName, streams: bool
) -> None:
    seen, recorded = call(product, dialect, streams=streams)
    came = b"".join(raw for _, raw, _ in recorded.chunks)
    assert call_faults(seen, recorded, upstream=came, unapproved=[b"rm -rf"], deadline_s=1) == []
    assert len(recorded.tools) == 2 and b"get_weather" in seen.body
    broken = replace(seen, body=seen.body[: len(seen.body) // 2], whole=False)
    assert call_faults(broken, recorded) == []


def test_an_error_answer_has_no_fault(product: Product) -> None:
    seen, recorded = call(product, "anthropic", model="nobody-serves-this")
    assert seen.status == 404
    assert call_faults(seen, recorded) == []


def without(rows: list[Any], place: int) -> list[Any]:
    return rows[:place] + rows[place + 1 :]


DAMAGES: dict[str, tuple[str, Callable[[Seen, Recorded], tuple[Seen, Recorded]]]] = {
    "a byte more": ("I1", lambda s, r: (replace(s, body=s.body.replace(b"Let me", b"Let  me")), r)),
    "a byte less": ("I1", lambda s, r: (replace(s, body=s.body.replace(b"Let me", b"Let m")), r)),
    "a frame lost": (
        "I1",
        lambda s, r: (replace(s, body=b"\n\n".join(without(s.body.split(b"\n\n"), 2))), r),
    ),
    "another hash": (
        "I1",
        lambda s, r: (s, replace(r, releases=[(*r.releases[0][:3], b""), *r.releases[1:]])),
    ),
    "a release lost": ("I1", lambda s, r: (s, replace(r, releases=r.releases[:-1]))),
    "a release twice": ("I2", lambda s, r: (s, replace(r, releases=[r.releases[0], *r.releases]))),
    "chunks lost": ("I2", lambda s, r: (s, replace(r, chunks=without(without(r.chunks, 3), 3)))),
    "the last chunk lost": ("I3", lambda s, r: (s, replace(r, chunks=r.chunks[:-1]))),
    "an undecided chunk": (
        "I3",
        lambda s, r: (s, replace(r, chunks=[(1, r.chunks[0][1], "hold"), *r.chunks[1:]])),
    ),
    "no request": ("I3", lambda s, r: (s, replace(r, body=None))),
    "no call": ("I3", lambda s, r: (s, replace(r, call=None))),
    "a blocked call": (
        "I4",
        lambda s, r: (s, replace(r, tools=[t | {"verdict": "block"} for t in r.tools])),
    ),
    "other arguments": (
        "I4",
        lambda s, r: (s, replace(r, tools=[t | {"released": b'{"city":"Rome"}'} for t in r.tools])),
    ),
    "an unapproved byte": (
        "I4",
        lambda s, r: (replace(s, body=s.body.replace(b"Let me", b"rm -rf")), r),
    ),
    "no release of the call": (
        "I3",
        lambda s, r: (s, replace(r, tools=[t | {"released_at": None} for t in r.tools])),
    ),
    "no terminal": (
        "I5",
        lambda s, r: (replace(s, body=b"\n\n".join(s.body.split(b"\n\n")[:-2]) + b"\n\n"), r),
    ),
    "two terminals": (
        "I5",
        lambda s, r: (replace(s, body=s.body + b"\n\n".join(s.body.split(b"\n\n")[-2:])), r),
    ),
    "no end": ("I5", lambda s, r: (s, replace(r, end=None))),
    "too late": ("I7", lambda s, r: (replace(s, elapsed_s=9.0), r)),
}


@pytest.mark.parametrize("dialect", CLIENTS)
def test_every_damage_is_found(product: Product, dialect: DialectName) -> None:
    seen, recorded = call(product, dialect)
    came = b"".join(raw for _, raw, _ in recorded.chunks)
    for name, (invariant, damage) in DAMAGES.items():
        found = call_faults(
            *damage(seen, recorded), upstream=came, unapproved=[b"rm -rf"], deadline_s=5
        )
        assert any(fault.startswith(invariant) for fault in found), f"{name}: {found}"


@pytest.mark.slow
def test_what_is_left_in_redis_is_found(product: Product) -> None:
    assert redis_faults(product.redis) == []
    product.redis.set("sluice:{00}:left", "1")
    assert redis_faults(product.redis) == ["I6: no TTL on sluice:{00}:left"]
    product.redis.delete("sluice:{00}:left")
    left: Any = product.redis.xadd(layout.dispatch_key(9), {"c": "x"})
    product.redis.xgroup_create(layout.dispatch_key(9), layout.POLICY_GROUP, "0")
    assert redis_faults(product.redis, shards=10)[0].startswith("I6: 1 entries")
    product.redis.xreadgroup(layout.POLICY_GROUP, "x", {layout.dispatch_key(9): ">"})
    product.redis.xdel(layout.dispatch_key(9), left)
    assert redis_faults(product.redis, shards=10) == [f"I6: 1 pending on {layout.dispatch_key(9)}"]
    product.redis.delete(layout.dispatch_key(9))
