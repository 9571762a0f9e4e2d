"""Processes and stores die while calls wait for people: nothing goes out twice, no decision is lost."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.approvals import asked, asking, decide, used_by
from tests.support.checks.record import rows
from tests.support.clients.readers import Reader, hold_invariants, joined, kinds, owned_by, request
from tests.support.json_values import Json
from tests.support.servers.product import Product, Role, base_config, running
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server
from tests.support.waiting import wait_for

LOOKED = (
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%approval_asks k%' AND state = 'idle'"
    " AND query_start > (SELECT max(at) FROM approval_asks)"
)
"""How many workers looked for decisions since something was asked."""
ROLES: tuple[Role, ...] = ("audit", "judge", "gateway", "policy", "policy")


def config(commit_s: float = 30.0) -> Json:
    """A release waits `commit_s` for its record: longer than a writer takes to start."""
    made = base_config()
    made["limits"] |= {"lease_s": 1.0, "commit_s": commit_s}
    made["policies"] = {"default": asking(hold_s=120)}
    for key in made["keys"]:
        key["policies"] = ["default"]
    return made


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with running(tmp_path, redis_url, database_url, config(), policy=2) as made:
        yield made


def delete(product: Product, folder: str, dialect: DialectName = "openai") -> Reader:
    body = request(f"delete everything with rm -rf {folder}", dialect, tool=True)
    return Reader(product.url, body, dialect=dialect, policy="default")


def went_out(reader: Reader) -> bool:
    return any(
        name in reader.received for name in (b'"tool_use"', b'"tool_calls"', b'"function_call"')
    )


def test_worker_and_writer_are_killed_while_calls_wait_and_each_goes_out_once(
    product: Product,
) -> None:
    held = {d: delete(product, f"./kill-{d}", d) for d in CLIENTS}
    ids = {d: asked(product, f"kill-{d}")[0] for d in CLIENTS}
    # one after the other would be the end of a call: whose worker dies while it replays it
    victim = max(product.of("policy"), key=lambda worker: len(owned_by(product, worker.pid)))
    taken = owned_by(product, victim.pid)
    victim.kill(signal.SIGKILL)
    wait_for(lambda: not owned_by(product, victim.pid), timeout_s=20, what="takeover")
    assert taken and not any(went_out(reader) for reader in held.values())
    (writer,) = product.of("audit")
    writer.kill(signal.SIGKILL)
    assert [decide(product, one) for one in ids.values()] == ["approved"] * len(ids)
    # a release waits for its record
    assert not any(went_out(reader) for reader in held.values())
    product.start("audit")
    joined(held.values())
    records = hold_invariants(product, held.values())
    for dialect, reader in held.items():
        assert went_out(reader), reader.received[-600:]
        assert used_by(product, ids[dialect]) == reader.call_id
        assert ("takeover" in kinds(records[reader.call_id])) == (reader.call_id in taken)
        assert asked(product, f"kill-{dialect}") == [ids[dialect]]


def test_a_decision_outlives_the_client_and_its_gateway(product: Product) -> None:
    gone = delete(product, "./gone")
    [one] = asked(product, "gone")
    (gateway,) = product.of("gateway")
    gateway.kill(signal.SIGKILL)
    joined([gone])
    assert not went_out(gone)
    product.start("gateway")
    # one that is alive for all its worker knows would use it
    hold_invariants(product, [gone])
    assert decide(product, one) == "approved"
    again = delete(product, "./gone")
    joined([again])
    assert went_out(again) and used_by(product, one) == again.call_id
    hold_invariants(product, [again])


def test_postgres_goes_away_while_calls_wait(
    tmp_path: Path, valkey: Server, postgres: Server
) -> None:
    with ExitStack() as stack:
        link: Proxy = stack.enter_context(proxied(postgres.url))
        product = stack.enter_context(Product(tmp_path, valkey.url, postgres.url, config(10.0)))
        product.database_urls = dict.fromkeys(ROLES, link.url(postgres.url))
        product.start(*ROLES)
        held = delete(product, "./away")
        [one] = asked(product, "away")
        wait_for(lambda: rows(postgres.url, LOOKED) != [(0,)], what="its worker found the request")
        # the open ones too: else the worker that has looked once would find the next request
        link.refuse()
        link.reset()
        lost = delete(product, "./lost")
        joined([lost])
        # nobody can be asked about what cannot be recorded
        assert not went_out(lost) and "people could not be asked" in lost.text
        assert decide(product, one) == "approved" and not went_out(held)
        link.heal()
        joined([held])
        assert went_out(held), held.text
        assert used_by(product, one) == held.call_id
        hold_invariants(product, [held, lost])
