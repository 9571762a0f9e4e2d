"""A failover of Redis after which some processes stay on the old primary: they stop, and the record
is that of the new one."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from db.migrations.primaries import COUNTED, IN_USE_S, SECOND, SEEN, SILENT_S
from streams import layout
from streams.connection import Connection, RedisError
from tests.support.checks.holes import Place
from tests.support.checks.record import fresh_database, rows
from tests.support.checks.sealed import verified
from tests.support.clients.readers import joined, under_way
from tests.support.servers.product import Product, base_config
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Server, client, follow, own_postgres, own_valkey, promote
from tests.support.waiting import wait_for, wait_until

CALLS, WORDS, SHORT = 18, 300, 60


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_who_stays_on_the_old_primary_stops_and_every_call_is_right_on_record(
    tmp_path: Path,
) -> None:
    with (
        own_valkey(tmp_path / "1") as primary,
        own_valkey(tmp_path / "2") as replica,
        own_postgres(tmp_path) as postgres,
    ):
        follow(replica, primary)
        with (
            proxied(primary.url) as moving,
            Product(tmp_path, primary.url, postgres.url, base_config()) as product,
        ):
            place = Place(product, primary, postgres)
            stale = product.start("audit", "policy")
            product.redis_urls = dict.fromkeys(
                ("audit", "policy", "judge", "gateway"), moving.url(primary.url)
            )
            product.start("audit", "judge", "policy", "gateway")
            readers = place.ask(CALLS, WORDS, gap_ms=30)
            under_way(readers, 10)
            promote(replica, primary)
            move(moving, replica)
            wait_for(
                lambda: all(child.process.poll() == 70 for child in stale),
                what="the stale processes stop",
                timeout_s=40,
            )
            assert all("old primary" in child.tail() for child in stale)
            joined(readers)
            # what the old primary took in the moment before the move is lost with it: such a call
            # ends with an error
            whole = {reader.call_id for reader in readers if reader.has_all(WORDS)}
            assert len(whole) > CALLS / 2, product.logs()
            ended = "SELECT call_id::text, state FROM ends"
            wait_for(
                lambda: len(rows(postgres.url, ended)) == CALLS,
                what="every end on record",
                timeout_s=40,
            )
            wait_for(
                lambda: place.count("SELECT count(DISTINCT call_id) FROM seals") == CALLS,
                what="seals",
                timeout_s=40,
            )
            code, said = verified(postgres.url)
            named = set(said["incomplete_calls"])
            wrong = [
                call
                for call, state in rows(postgres.url, ended)
                if state != "ENDED" and call in whole - named
            ]
            assert not wrong and place.lacking(readers).keys() <= named, said
            assert code == (4 if named else 0), said


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_call_whose_last_entries_a_failover_lost_ends_at_once(tmp_path: Path) -> None:
    """The workers are on the new primary while its gateway still appends to the old one: they
    cannot know that more came."""
    with (
        own_valkey(tmp_path / "1") as primary,
        own_valkey(tmp_path / "2") as replica,
        own_postgres(tmp_path) as postgres,
    ):
        follow(replica, primary)
        with (
            proxied(primary.url) as early,
            proxied(primary.url) as late,
            Product(tmp_path, primary.url, postgres.url, base_config()) as product,
        ):
            place = Place(product, primary, postgres)
            product.redis_urls = dict.fromkeys(("audit", "policy", "judge"), early.url(primary.url))
            product.redis_urls["gateway"] = late.url(primary.url)
            product.start("audit", "judge", "policy", "gateway")
            readers = place.ask(4, SHORT, gap_ms=20)
            under_way(readers, 5)
            promote(replica, primary)
            move(early, replica)
            with client(primary) as old, client(replica) as new:
                wait_for(
                    lambda: {last_kind(old, r.call_id) for r in readers} == {"eof"},
                    what="the end of what upstream says",
                )
                assert "eof" not in {last_kind(new, r.call_id) for r in readers}
            move(late, replica)
            began = time.monotonic()
            joined(readers)
            assert time.monotonic() - began < base_config()["limits"].get("activity_s", 30) / 2, (
                product.logs()
            )
            assert not any(reader.has_all(SHORT) for reader in readers)
            ended = "SELECT state, reason FROM ends"
            wait_for(
                lambda: rows(postgres.url, ended) == [("FAILED", "stream_protocol_error")] * 4,
                what="every end on record",
            )
            wait_for(
                lambda: place.count("SELECT count(DISTINCT call_id) FROM seals") == 4,
                what="seals",
                timeout_s=40,
            )
            # the record has all that was released
            code, said = verified(postgres.url)
            assert place.lacking(readers).keys() <= set(said["incomplete_calls"]) and code in (
                0,
                4,
            ), said


def move(proxy: Proxy, to: Server) -> None:
    """Let what is behind `proxy` connect anew, to another server."""
    proxy.retarget("127.0.0.1", urlsplit(to.url).port or 0)
    proxy.reset()


def last_kind(store: Any, call_id: str) -> str:
    """The kind of the last entry of a call's stream."""
    [(_, fields)] = store.xrevrange(layout.call_key(call_id), count=1)
    return layout.unpack_entry(next(iter(fields.values()))).kind


def test_primaries_are_counted_and_an_old_one_is_known(database_url: str) -> None:
    """P is promoted from nothing, R from P, S from R; what P still says is old until nobody was on
    the newest for some minutes."""
    with fresh_database(database_url) as url:
        rows(
            url,
            "UPDATE identity SET redis_number = 0, redis_run_id = '', redis_seen_at = '-infinity'",
        )

        def held(known: int | None, mine: str) -> Any:
            read_only = [row[1] for row in rows(url, SEEN, known, mine)]
            [(_, number)] = rows(url, COUNTED, known, mine)
            assert [number if number in (None, SECOND) else 0] == read_only
            return number

        assert [held(None, "P"), held(1, "P"), held(1, "R")] == [1, 1, 2]
        assert [held(1, "P"), held(2, "R"), held(1, "R")] == [
            None,
            2,
            2,
        ], "R may not have been told its number yet"
        assert held(1, "P again") is None, "also when it was restarted with its old data"
        assert [held(None, "empty"), held(None, ""), held(2, "S")] == [SECOND, 0, 3]
        rows(url, f"UPDATE identity SET redis_seen_at = now() - interval '{IN_USE_S + 1} s'")
        assert [held(None, "empty"), held(3, "S"), held(None, "empty")] == [
            0,
            3,
            SECOND,
        ], "which lost its data, or is a second Sluice's"
        rows(url, f"UPDATE identity SET redis_seen_at = now() - interval '{SILENT_S + 1} s'")
        [(_, number)] = rows(url, COUNTED, 1, "P")
        assert (number, held(3, "S"), held(9, "P")) == (4, None, 9), "the database may be set back"


@pytest.mark.slow
async def test_a_connection_to_a_primary_that_became_a_replica_is_made_anew(tmp_path: Path) -> None:
    with own_valkey(tmp_path) as valkey, proxied(valkey.url) as proxy:
        redis = Connection(proxy.url(valkey.url), name="test")
        await redis.open()
        with client(valkey) as store:
            raw: Any = store
            raw.replicaof("127.0.0.1", 1)
        with pytest.raises(RedisError, match="READONLY"):
            await redis.call("SET", layout.PRIMARY_KEY, "1")
        await wait_until(lambda: proxy.accepted == 2)
        await redis.close()
