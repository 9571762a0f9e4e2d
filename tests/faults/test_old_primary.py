"""A failover of Redis after which some processes stay on the old primary: they stop, and the record is that of the new one."""

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
from tests.support.servers.proxy import proxied
from tests.support.servers.stores import client, follow, own_postgres, own_valkey, promote
from tests.support.waiting import wait_for, wait_until

CALLS, WORDS = 18, 300


@pytest.mark.timeout(180)
@pytest.mark.slow
def test_who_stays_on_the_old_primary_stops_and_every_call_is_right_on_record(tmp_path: Path) -> None:
    with own_valkey(tmp_path / "1") as primary, own_valkey(tmp_path / "2") as replica, own_postgres(tmp_path) as postgres:
        follow(replica, primary)
        with proxied(primary.url) as moving, Product(tmp_path, primary.url, postgres.url, base_config()) as product:
            place = Place(product, primary, postgres)
            stale = product.start("audit", "policy")
            product.redis_urls = dict.fromkeys(("audit", "policy", "judge", "gateway"), moving.url(primary.url))
            product.start("audit", "judge", "policy", "gateway")
            readers = place.ask(CALLS, WORDS, gap_ms=30)
            under_way(readers, 10)
            promote(replica, primary)
            moving.retarget("127.0.0.1", urlsplit(replica.url).port or 0)
            moving.reset()
            wait_for(lambda: all(child.process.poll() == 70 for child in stale), what="the stale processes stop", timeout_s=40)
            assert all("old primary" in child.tail() for child in stale)
            joined(readers)
            # what the old primary took in the moment before the move is lost with it: such a call ends with an error
            whole = {reader.call_id for reader in readers if reader.has_all(WORDS)}
            assert len(whole) > CALLS / 2, product.logs()
            ended = "SELECT call_id::text, state FROM ends"
            wait_for(lambda: len(rows(postgres.url, ended)) == CALLS, what="every end on record", timeout_s=40)
            wait_for(lambda: place.count("SELECT count(DISTINCT call_id) FROM seals") == CALLS, what="seals", timeout_s=40)
            code, said = verified(postgres.url)
            named = set(said["incomplete_calls"])
            wrong = [call for call, state in rows(postgres.url, ended) if state != "ENDED" and call in whole - named]
            assert not wrong and place.lacking(readers).keys() <= named, said
            assert code == (4 if named else 0), said


def test_primaries_are_counted_and_an_old_one_is_known(database_url: str) -> None:
    """P is promoted from nothing, R from P, S from R; what P still says is old until nobody was on the newest for some minutes."""
    with fresh_database(database_url) as url:
        rows(url, "UPDATE identity SET redis_number = 0, redis_run_id = '', redis_seen_at = '-infinity'")

        def held(known: int | None, mine: str) -> Any:
            read_only = [row[1] for row in rows(url, SEEN, known, mine)]
            [(_, number)] = rows(url, COUNTED, known, mine)
            assert [number if number in (None, SECOND) else 0] == read_only
            return number

        assert [held(None, "P"), held(1, "P"), held(1, "R")] == [1, 1, 2]
        assert [held(1, "P"), held(2, "R"), held(1, "R")] == [None, 2, 2], "R may not have been told its number yet"
        assert held(1, "P again") is None, "also when it was restarted with its old data"
        assert [held(None, "empty"), held(None, ""), held(2, "S")] == [SECOND, 0, 3]
        rows(url, f"UPDATE identity SET redis_seen_at = now() - interval '{IN_USE_S + 1} s'")
        assert [held(None, "empty"), held(3, "S"), held(None, "empty")] == [0, 3, SECOND], "which lost its data, or is a second Sluice's"
        rows(url, f"UPDATE identity SET redis_seen_at = now() - interval '{SILENT_S + 1} s'")
        [(_, number)] = rows(url, COUNTED, 1, "P")
        assert (number, held(3, "S"), held(9, "P")) == (4, None, 9), "the database may be set back"


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
