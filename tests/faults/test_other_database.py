"""Two instances on one Redis: a Redis holds the calls of one database, and each of its databases by
number is apart."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from protocol.errors import AuditUnavailable, OtherDatabase
from sluice.check import doctor
from sluice.settings import load_config
from streams import layout
from streams.connection import Connection
from streams.identity import Identity
from tests.support.checks.record import fresh_database, rows
from tests.support.clients.commands import run_command
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, base_config
from tests.support.servers.stores import own_valkey
from tests.support.waiting import wait_for

HEADERS = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
BODY = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
OTHER = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A database with an id of its own: those that are copied have that of the one they were copied
    from."""
    with fresh_database(database_url) as fresh:
        rows(fresh, "UPDATE identity SET id = gen_random_uuid()")
        yield fresh


@pytest.fixture
def product(tmp_path: Path, redis_url: str, url: str) -> Iterator[Product]:
    with Product(tmp_path, redis_url, url, base_config()) as made:
        yield made


def identity_of(url: str) -> str:
    [(found,)] = rows(url, "SELECT id::text FROM identity")
    return str(found)


def without_number(redis_url: str) -> str:
    return redis_url.partition("?")[0].rpartition("/")[0] if redis_url.count("/") > 2 else redis_url


def ask(product: Product) -> httpx.Response:
    return httpx.post(f"{product.url}/v1/chat/completions", json=BODY, headers=HEADERS, timeout=30)


def start(product: Product, *command: str) -> tuple[int, str]:
    """Run a role that ends at once; its exit code and what it said."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "SLUICE_CONFIG": str(product.config_file),
        "SLUICE_REDIS_URL": product.redis_url,
        "SLUICE_DATABASE_URL": product.database_url,
        "SLUICE_PORT": "0",
    }
    done = run_command(*command, env=environment)
    return done.returncode, done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("gateway",), ("worker", "audit")])
def test_who_finds_the_calls_of_another_database_does_not_start(
    product: Product, command: tuple[str, ...]
) -> None:
    product.redis.set(layout.DATABASE_KEY, OTHER)
    code, said = start(product, *command)
    assert code == 4, said
    place = product.redis_url.rpartition("@")[2]
    assert f"Redis at {place} holds the calls of another database than PostgreSQL at " in said
    assert layout.DATABASE_KEY in said and str(urlsplit(product.redis_url).password) not in said
    found = doctor.check_all(
        load_config(product.config_file), product.redis_url, product.database_url, live=False
    )
    assert [state for name, state, _ in found if name == "identity"] == ["failed"]
    assert product.redis.get(layout.DATABASE_KEY) == OTHER.encode()


@pytest.mark.slow
def test_a_redis_that_another_instance_took_gives_and_gets_nothing_until_it_is_ours_again(
    product: Product,
) -> None:
    gateway, writer, _ = product.start("gateway", "audit", "policy")
    store: Any = product.redis
    mine = identity_of(product.database_url)
    assert store.get(layout.DATABASE_KEY) == mine.encode()
    assert ask(product).status_code == 200
    wait_for(lambda: not store.xlen(layout.audit_key(0)), what="everything on record")
    before = rows(product.database_url, "SELECT count(*) FROM dead_letters")
    store.set(layout.DATABASE_KEY, OTHER)
    wait_for(
        lambda: (
            "holds the calls of another database" in httpx.get(f"{product.url}/ready").json()["why"]
        ),
        what="the gateway sees it",
    )
    answer = ask(product)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "other_database")
    wait_for(lambda: "nothing is read from it" in writer.tail(), what="the writer sees it")
    assert "nothing is read from it" in gateway.tail()
    entry = store.xadd(layout.audit_key(0), {"b": b"the record of another's call"})
    # it went on looking at least twice: it would have been taken
    looks = store.info("commandstats")["cmdstat_get"]["calls"]
    wait_for(
        lambda: store.info("commandstats")["cmdstat_get"]["calls"] > looks + 6, what="more looks"
    )
    assert [one for one, _ in store.xrange(layout.audit_key(0))] == [entry]
    assert rows(product.database_url, "SELECT count(*) FROM dead_letters") == before
    store.xdel(layout.audit_key(0), entry)
    store.set(layout.DATABASE_KEY, mine)
    wait_for(lambda: ask(product).status_code == 200, what="calls again")
    wait_for(lambda: not store.xlen(layout.audit_key(0)), what="and their record")


@pytest.mark.parametrize("is_server", [True, False], ids=["another server", "another number"])
@pytest.mark.slow
def test_a_second_sluice_on_a_database_is_refused_until_the_first_is_gone(
    product: Product, tmp_path: Path, redis_url: str, url: str, is_server: bool
) -> None:
    product.start("audit", "policy", "gateway")
    wait_for(
        lambda: rows(url, "SELECT 1 FROM identity WHERE redis_number > 0"),
        what="the first is counted",
    )
    with contextlib.ExitStack() as stack:
        server = (
            stack.enter_context(own_valkey(tmp_path / "other")).url
            if is_server
            else f"{without_number(redis_url)}/9"
        )
        (tmp_path / "second").mkdir()
        second = stack.enter_context(Product(tmp_path / "second", server, url, base_config()))
        for command in (("gateway",), ("worker", "audit")):
            code, said = start(second, *command)
            assert code == 4 and "is in use by another Sluice" in said, said
        product.stop()
        rows(url, "UPDATE identity SET redis_seen_at = now() - interval '3 minutes'")
        second.start("audit", "policy", "gateway")
        assert ask(second).status_code == 200
        code, said = start(product, "gateway")
        assert code == 4 and "is an old primary" in said, "now it is the second"


def test_a_redis_that_lost_its_keys_is_claimed_again(product: Product) -> None:
    product.start("gateway", "audit")
    product.redis.flushall()
    mine = identity_of(product.database_url).encode()
    wait_for(lambda: product.redis.get(layout.DATABASE_KEY) == mine, what="the id is there again")


async def test_what_cannot_be_asked_at_the_start_is_learned_later_and_nothing_is_taken_before(
    redis_url: str,
) -> None:
    redis = Connection(redis_url, name="test")
    await redis.open()
    await redis.call("FLUSHALL")
    is_away = True

    async def database(known: int | None, run_id: str) -> tuple[str, int | None]:
        if is_away:
            raise AuditUnavailable("away")
        return OTHER, 0

    first, second = Identity(redis, database), Identity(redis, database)
    with pytest.raises(AuditUnavailable):
        await first.holds()
    first.check()
    is_away = False
    assert await first.holds()
    assert await redis.call("GET", layout.DATABASE_KEY) == OTHER.encode()
    # the same database may have two, and one that is away again is the one that it was
    assert await second.holds()
    is_away = True
    assert await first.holds()
    await redis.call("SET", layout.DATABASE_KEY, "another")
    first.look_anew()
    assert not await first.holds()
    with pytest.raises(OtherDatabase, match="another database"):
        first.check()
    # a Redis that takes no keys is nobody else's
    await redis.call("DEL", layout.DATABASE_KEY)
    maxmemory = (await redis.call("CONFIG", "GET", "maxmemory"))[1]
    await redis.call("CONFIG", "SET", "maxmemory", "1")
    try:
        first.look_anew()
        assert await first.holds()
    finally:
        await redis.call("CONFIG", "SET", "maxmemory", maxmemory)
        await redis.close()


@pytest.mark.parametrize("number", [2, None], ids=["counted meanwhile", "not counted yet"])
async def test_an_answer_about_a_redis_that_was_started_again_meanwhile_says_nothing(
    redis_url: str, number: int | None
) -> None:
    redis = Connection(redis_url, name="test")
    await redis.open()
    await redis.call("FLUSHALL")
    await redis.call("SET", layout.PRIMARY_KEY, "1")
    left = list[bool]()

    async def database(known: int | None, run_id: str) -> tuple[str, int | None]:
        # what a restart changes: here its number stands for it
        await redis.call("SET", layout.PRIMARY_KEY, str(number or 7))
        return OTHER, None

    identity = Identity(redis, database, lambda: left.append(True))
    assert await identity.holds() and not left
    assert await redis.call("GET", layout.PRIMARY_KEY) == str(number or 7).encode()
    await redis.close()


def strict() -> Json:
    return base_config() | {"durability": "strict"}


@pytest.mark.slow
def test_what_another_database_number_has_committed_lets_nothing_go(
    tmp_path: Path, redis_url: str, url: str, database_url: str
) -> None:
    """Channels know no numbers: what is published for /1 is heard on /0."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    at = without_number(redis_url)
    with (
        fresh_database(database_url) as other,
        Product(folders[0], f"{at}/0", url, strict()) as ours,
        Product(folders[1], f"{at}/1", other, strict()) as theirs,
    ):
        for product in (ours, theirs):
            product.start("audit", "policy", "gateway")
            assert ask(product).status_code == 200, product.logs()
        store: Any = ours.redis
        wait_for(lambda: not store.xlen(layout.audit_key(0)), what="everything on record")
        (writer,) = ours.of("audit")
        answers: list[httpx.Response] = []
        writer.kill(signal.SIGSTOP)
        try:
            asking = threading.Thread(target=lambda: answers.append(ask(ours)), daemon=True)
            asking.start()
            wait_for(lambda: store.xlen(layout.audit_key(0)), what="a released request")
            for _ in range(10):
                assert ask(theirs).status_code == 200
            # nothing of ours was let go: not even the request to its upstream, whose answer would
            # be the call's second entry
            [call] = [
                key
                for key in store.scan_iter("*:call:*")
                if store.hget(key.replace(b":call:", b":ctl:"), "t") != b"closed"
            ]
            assert store.xlen(call) == 1
            assert not answers
        finally:
            writer.kill(signal.SIGCONT)
        asking.join(20)
        assert answers[0].status_code == 200
