"""The figures of the overview: one poller for all who look, and what cannot be read says so by its
age."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from db.read.queries import AuditReader
from pages import figures
from pages.figures import Figures
from protocol.errors import RateLimited
from settings.config import Config
from settings.runtime import Runtime
from streams import heartbeats, layout
from streams.connection import Connection
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, call_record, chunks_record, now_ms
from tests.support.servers.asked import pages_of

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
async def reader(url: str) -> AsyncIterator[AuditReader]:
    found = AuditReader.open(url)
    yield found
    await found.close()


def made(url: str, redis_url: str, reader: AuditReader) -> Figures:
    return Figures(Runtime(config=Config(), redis_url=redis_url, database_url=url), reader)


def stream(looked: AsyncIterator[object]) -> AsyncGenerator[object]:
    assert isinstance(looked, AsyncGenerator)
    return looked


async def test_what_redis_and_the_record_hold_is_shown(
    redis: Connection, redis_url: str, url: str, reader: AuditReader
) -> None:
    call = call_id()
    await insert(url, call_record(call), chunks_record(call, [b"a"], verdict="hold"))
    await redis.call("XADD", layout.dispatch_key(0), "*", "c", call, "d", "99999999999999")
    await heartbeats.write(
        redis, ("policy", "w1"), ("series", "default@r1:w1"), ("series", "p@2@r2:w1")
    )
    found = await made(url, redis_url, reader).look()
    assert found["streams"]["open_calls"] == 1 and found["streams"]["waiting"] == 0
    [one] = found["open"]["calls"]
    assert (one["call_id"], one["key"], one["revision"], one["chunks"], one["held"]) == (
        call,
        "dev",
        "r1",
        1,
        1,
    )
    assert found["workers"]["roles"] == {"gateway": 0, "policy": 1}
    assert found["workers"]["held"] == [["default", "r1", 1], ["p@2", "r2", 1]]
    assert (
        found["redis"]["used"] > 0
        and found["record"]["blocked"] == 0
        and len(found["record"]["per_minute"]) == figures.MINUTES
    )


async def test_a_call_whose_revision_no_worker_has_is_said_to_wait(
    redis: Connection, redis_url: str, url: str
) -> None:
    waits, runs = call_id(now_ms()), call_id(now_ms() - 1)
    await insert(url, call_record(waits, policy="old<b>"), call_record(runs))
    for call in (waits, runs):
        await redis.call("XADD", layout.dispatch_key(0), "*", "c", call, "d", "99999999999999")
    await heartbeats.write(redis, ("policy", "w1"), ("series", "default@r1:w1"))
    async with pages_of(url, {"policies": {"old": [{"use": "noop"}]}}, redis_url) as pages:
        for path in ("/debug/policies", "/debug/policies/old%3Cb%3E"):
            html = (await pages.page(path)).html
            assert (
                "1 open call waits for a revision that no living worker has" in html
                and f'href="/debug/calls/{waits}"' in html
            )
            assert (
                f'href="/debug/calls/{runs}"' not in html.partition("Start a worker")[0]
                and "old&lt;b&gt;" in html
            )
        assert "waits for a revision" not in (await pages.page("/debug/policies/default")).html


async def test_without_redis_the_record_is_shown_and_the_doctor_says_so(
    url: str, reader: AuditReader
) -> None:
    looked = made(url, NOWHERE, reader)
    await looked.look()
    found = await looked.look()
    for group in ("streams", "workers", "redis", "open"):
        assert found[group]["age_s"] is None, group
    assert found["record"]["age_s"] is not None
    await looked.examined()
    assert [one["what"] for one in looked.item()["doctor"]["found"]][:1] == ["redis"]


@pytest.mark.slow
async def test_one_poller_serves_all_and_ends_with_the_last(
    redis_url: str, url: str, reader: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = made(url, redis_url, reader)
    monkeypatch.setattr(figures, "MAX_VIEWERS", 2)
    first, second = stream(looked.watch()), stream(looked.watch())
    await anext(first)
    poller = looked._polling
    assert poller is not None
    await anext(second)
    assert looked._polling is poller, "it is shared"
    with pytest.raises(RateLimited):
        await anext(looked.watch())
    async with asyncio.timeout(10):
        await anext(first)
    await first.aclose()
    assert looked._polling is poller and not poller.done()
    await second.aclose()
    assert poller.done() and not looked.is_polling
    await looked.examined()
