"""How long a client of a silent upstream waits for a keepalive, with the limits as they are
delivered, in real time."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from protocol.dialects.table import CLIENTS
from tests.support.checks.figures import Figure
from tests.support.clients.readers import Reader, request
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.product import MODEL, replayed
from tests.support.upstreams.replay import stream
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

MODELS = MODEL | {"responses": MODEL["openai"]}
BEGINNINGS = {name: dialect.keepalive * 4 for name, dialect in CLIENTS.items()} | {
    "responses": b"event: response.created\n"
}


def test_a_silent_upstream_costs_10_seconds_and_then_less_than_12(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    """Coding agents give an answer up after 20 s of silence."""
    with replayed(tmp_path, redis_url, database_url, upstreams.config) as (product, replay):
        replay.answer(stream(b"", ending="hang"))
        began = time.monotonic()
        readers = [
            Reader(
                product.url,
                request("go", dialect, model=MODELS[dialect]),
                dialect=dialect,
                timeout_s=30,
            )
            for dialect in CLIENTS
        ]
        wait_for(
            lambda: all(len(r.came) >= 4 for r in readers) or any(r.failure for r in readers),
            timeout_s=60,
            what="four keepalives",
        )
        for reader in readers:
            assert reader.status == 200 and reader.received.startswith(
                BEGINNINGS[reader.dialect]
            ), (
                reader.failure,
                reader.received,
            )
            first, most = (
                reader.came[0] - began,
                max(after - before for before, after in pairwise(reader.came)),
            )
            figure(f"{reader.dialect}: first byte of a silent stream", first, "s")
            figure(f"{reader.dialect}: longest gap after it", most, "s")
            assert 8 <= first <= 10 and most < 12, (first, most)
