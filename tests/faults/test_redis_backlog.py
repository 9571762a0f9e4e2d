"""Calls that clients have complete, and that no audit writer has taken yet: whatever Redis loses of
them is named, call by call.

The audit writer is away, calls end, Redis dies or is emptied, the writer comes back: each call is
on record whole, or is marked incomplete.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import redis

from db.seals.verify import verify
from sluice.check import doctor
from sluice.check.rights import USERS
from sluice.settings import load_config
from streams import layout
from tests.support.checks.record import fresh_database, rows
from tests.support.servers.least import BINARIES, guarded_spec, url_of
from tests.support.servers.product import KEY, Product, base_config
from tests.support.servers.stores import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(300)
CALLS = 12


class Backlog:
    """A product on a Redis of its own, with the shipped rights, whose audit writer can be away."""

    def __init__(self, product: Product, server: Server) -> None:
        self.product, self.server = product, server
        self.admin: Any = redis.Redis.from_url(server.url)

    def make_calls(self, count: int = CALLS) -> set[str]:
        """Calls that clients have complete; returns their ids."""
        body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
        made = set()
        for _ in range(count):
            answer = httpx.post(
                f"{self.product.url}/v1/chat/completions",
                json=body,
                headers={"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"},
                timeout=30,
            )
            assert answer.status_code == 200, answer.text
            made.add(answer.headers["x-sluice-call-id"])
        return made

    def stop_writer(self) -> None:
        for writer in self.product.of("audit"):
            writer.kill(signal.SIGTERM)
            writer.wait()

    def ends_in_redis(self) -> None:
        """Wait until workers have written the ends of all calls."""
        wait_for(
            lambda: (
                self.admin.xlen(layout.ended_key(0)) > 0
                and not self.admin.xlen(layout.dispatch_key(0))
            ),
            what="all calls ended",
        )

    def take_rights(self) -> None:
        """Put an ACL file in which `default` has no rights in the place of the shipped one."""
        file = self.server.data / "users.acl"
        first, _, others = file.read_text().partition("\n")
        assert first.startswith("user default")
        file.write_text(f"user default off resetkeys resetchannels -@all\n{others}")

    def restart(
        self, number: signal.Signals = signal.SIGKILL, before: Callable[[], None] = lambda: None
    ) -> None:
        self.server.kill(number)
        before()
        self.server.start()

    def whole(self) -> set[str]:
        query = (
            "SELECT e.call_id::text FROM ends e JOIN calls USING (call_id) WHERE e.reason ="
            " 'complete'"
        )
        return {call for (call,) in rows(self.product.database_url, query)}

    def named(self) -> set[str]:
        return {
            call
            for (call,) in rows(
                self.product.database_url,
                "SELECT DISTINCT call_id::text FROM events WHERE kind = 'incomplete'",
            )
        }

    def settles(self, calls: set[str]) -> None:
        """Wait until each call is on record whole or named."""
        wait_for(
            lambda: calls <= self.whole() | self.named(),
            timeout_s=40,
            what="each call is on record whole, or named",
        )

    def doctor(self) -> str:
        """What `sluice doctor` says of calls that are not whole on record."""
        config = load_config(self.product.config_file)
        found = doctor.check_all(config, self.server.url, self.product.database_url)
        return "; ".join(sentence for name, _, sentence in found if name == "incomplete calls")


@pytest.fixture(params=BINARIES)
def backlog(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Iterator[Backlog]:
    spec, url = guarded_spec(tmp_path / "redis", request.param)
    server = Server(spec, url, tmp_path / "redis")
    config = base_config()
    config["limits"] |= {"ended_ttl_s": 3.0}
    try:
        with (
            fresh_database(database_url) as database,
            Product(tmp_path, url, database, config) as product,
        ):
            product.redis_urls = {
                role: url_of(USERS[role], url)
                for role in ("gateway", "policy", "judge", "audit", "pages")
            }
            product.start("audit", "judge", "gateway", "policy")
            yield Backlog(product, server)
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.case("R1")
def test_r1_a_restart_keeps_the_backlog(backlog: Backlog) -> None:
    backlog.stop_writer()
    calls = backlog.make_calls()
    backlog.ends_in_redis()
    backlog.restart()
    backlog.product.start("audit")
    wait_for(lambda: calls <= backlog.whole(), timeout_s=30, what="all calls on record")
    assert not backlog.named()


@pytest.mark.case("R2")
@pytest.mark.parametrize("lost", ["transactions", "all, twice"])
@pytest.mark.slow
def test_r2_what_redis_loses_of_a_backlog_is_named(backlog: Backlog, lost: str) -> None:
    """Where `default` has no rights Redis 7.0 drops all transactions of its file. Of a Redis lost
    twice, the report is lost too."""
    recorded = backlog.make_calls(2)
    wait_for(lambda: recorded <= backlog.whole(), what="on record")
    backlog.stop_writer()
    calls = backlog.make_calls()
    backlog.ends_in_redis()
    if lost == "transactions":
        backlog.restart(signal.SIGTERM, backlog.take_rights)
    else:
        for _ in range(2):
            backlog.restart(before=backlog.server.wipe)
            wait_for(lambda: backlog.admin.xlen(layout.ended_key(0)), what="the gateway's report")
    backlog.product.start("audit")
    backlog.settles(calls)
    named = backlog.named()
    # a Valkey that loads without asking for rights has lost nothing
    assert named == calls - backlog.whole() and (
        named == calls or (lost == "transactions" and not named)
    )
    assert verify(backlog.product.database_url).item()["incomplete"] == len(named)
    assert not named or f"{CALLS} calls are incomplete on record" in backlog.doctor()


@pytest.mark.case("R2")
@pytest.mark.parametrize("backlog", ["valkey"], indirect=True)
@pytest.mark.slow
def test_r2_a_gateway_that_stops_after_redis_was_lost_names_its_calls_first(
    backlog: Backlog,
) -> None:
    backlog.stop_writer()
    calls = backlog.make_calls()
    backlog.ends_in_redis()
    (gateway,) = backlog.product.of("gateway")
    backlog.server.kill()
    gateway.kill(signal.SIGTERM)
    backlog.server.wipe()
    backlog.server.start()
    assert gateway.wait() == 0
    backlog.product.start("audit")
    backlog.settles(calls)
    assert calls <= backlog.named()


@pytest.mark.parametrize("backlog", ["valkey"], indirect=True)
@pytest.mark.slow
def test_whichever_stream_is_lost_alone_no_call_is_lost_in_silence(backlog: Backlog) -> None:
    """Every kind of stream that is in Redis: one that comes later, and holds records that nothing
    else shows, fails here."""
    kinds, done = {"audit", "ended"}, set[str]()
    while kinds - done:
        kind = min(kinds - done)
        backlog.stop_writer()
        calls = backlog.make_calls()
        backlog.ends_in_redis()
        found = {
            key: key.decode().split(":")[2]
            for key in backlog.admin.scan_iter("sluice:*", _type="stream")
        }
        kinds |= set(found.values())
        backlog.admin.delete(*(key for key, one in found.items() if one == kind), "none")
        backlog.product.start("audit")
        backlog.settles(calls)
        done.add(kind)
    assert {"audit", "dispatch", "ended", "reply"} <= done, done
