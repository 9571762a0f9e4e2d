"""A network that loses what a gateway and Redis say to one another, one way, for less than two
rounds of `redis_silent_s`: calls wait."""

import time
from pathlib import Path

import pytest

from settings.limits import Limits
from tests.support.checks.record import fresh_database
from tests.support.clients.readers import Reader, hold_invariants, joined, request, under_way, words
from tests.support.servers.product import Product, base_config
from tests.support.servers.proxy import proxied

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]
LOST_S = 8.0
WORDS = 60


@pytest.mark.case("R3")
@pytest.mark.parametrize("way", ["requests", "replies"])
@pytest.mark.slow
def test_r3_calls_wait_while_one_gateway_and_redis_lose_what_they_say(
    tmp_path: Path, redis_url: str, database_url: str, way: str
) -> None:
    assert Limits().redis_silent_s == 5.0, "with the defaults"
    with (
        fresh_database(database_url) as url,
        proxied(redis_url) as proxy,
        Product(tmp_path, redis_url, url, base_config()) as product,
    ):
        product.redis_urls["gateway"] = proxy.url(redis_url)
        product.start("audit", "judge", "gateway", "policy")
        readers = [Reader(product.url, request(words(WORDS))) for _ in range(6)]
        under_way(readers)
        lose = proxy.alter_requests if way == "requests" else proxy.alter_replies
        lose(lambda data: b"")
        # nothing to wait for: the fault lasts so long
        time.sleep(LOST_S)
        lose(None)
        joined(readers)
        assert all(r.has_all(WORDS) for r in readers), product.logs()
        hold_invariants(product, readers)
