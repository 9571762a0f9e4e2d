"""Processes that get no memory any more: they end and say so, others do their work, and the record
is whole."""

import resource
from pathlib import Path

import httpx2 as httpx
import pytest

from gateway import ready_and_metrics
from streams.metrics import ProcessFigures
from tests.support.checks.record import fresh_database, rows
from tests.support.servers.product import KEY, Product, Role, base_config
from tests.support.waiting import wait_for

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def ask(product: Product, *, bytes_more: int = 0) -> httpx.Response:
    """A call whose tool call the policies allow, with a longer history if that is asked for."""
    history = (
        [{"role": "user", "content": "x" * bytes_more}, {"role": "assistant", "content": "well"}]
        if bytes_more
        else []
    )
    body = {
        "model": "demo",
        "messages": [*history, {"role": "user", "content": "what is the weather in Paris"}],
        "tools": [TOOL],
    }
    return httpx.post(
        f"{product.url}/v1/chat/completions",
        json=body,
        headers={"authorization": f"Bearer {KEY}"},
        timeout=60,
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_audit_writer_without_memory_ends_and_another_writes_what_it_had(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    config = base_config()
    config["limits"] |= {"commit_s": 4.0}
    with fresh_database(database_url) as url, Product(tmp_path, redis_url, url, config) as product:
        roles: list[Role] = ["audit", "judge", "gateway", "policy"]
        [writer, *_] = product.start(*roles)
        assert "tool_calls" in ask(product).text
        pages = int(Path(f"/proc/{writer.pid}/statm").read_text().split()[0])
        resource.prlimit(
            writer.pid, resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY)
        )
        # the demo model refuses it, the record has it
        assert ask(product, bytes_more=3_000_000).status_code == 413
        assert writer.wait(30) == 70, writer.tail()
        assert "out of memory: this worker ends" in writer.log.read_text()
        product.start("audit")
        wait_for(
            lambda: "tool_calls" in ask(product).text,
            timeout_s=30,
            what="tool calls are allowed again",
        )
        wait_for(
            lambda: (
                rows(url, "SELECT count(*) FROM ends") == rows(url, "SELECT count(*) FROM calls")
            ),
            timeout_s=30,
            what="the record",
        )
        assert rows(url, "SELECT count(*) FROM calls")[0][0] >= 3


class Redis:
    """One that knows how many records wait."""

    def __init__(self) -> None:
        self.backlog = 0

    async def call(self, *command: object) -> int:
        assert command[0] == "XLEN"
        return self.backlog


class Bus:
    """As much of a gateway's bus as is looked at."""

    def __init__(self) -> None:
        self.redis, self.shards, self.calls, self.warnings = (
            Redis(),
            1,
            dict[str, object](),
            list[str](),
        )
        self.figures = ProcessFigures()


async def test_ready_warns_of_records_that_wait_and_do_not_become_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, bus = [1000.0], Bus()
    monkeypatch.setattr("gateway.ready_and_metrics.time.monotonic", lambda: now[0])
    looked = ready_and_metrics.Status(bus)  # type: ignore[arg-type]
    for backlog in (0, 5, 0, 0, 900, 400, 2_000, 2_000, 3_000, 3_000, 4_000):
        bus.redis.backlog = backlog
        await looked._look_at_backlog()
        assert looked.warnings == []
        now[0] += ready_and_metrics.SCHEMA_S
    now[0] += ready_and_metrics.SCHEMA_S
    [said] = looked.warnings
    assert said.startswith(
        "4,000 records wait for Postgres, no fewer than 35 s ago, so tool calls are blocked: see"
    )
    bus.redis.backlog = 3_999
    await looked._look_at_backlog()
    assert looked.warnings == []
