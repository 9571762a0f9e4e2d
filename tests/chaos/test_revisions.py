"""Workers of two policy revisions at once: a call ends under the revision it began with, or it
ends."""

import signal
import time
from pathlib import Path

import pytest
import yaml

from settings.config import Config
from sluice.policy_set_name import policy_set
from tests.support.checks.figures import Figure
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    owned_by,
    request,
    under_way,
    words,
)
from tests.support.json_values import Json
from tests.support.servers.product import Product, base_config, running
from tests.support.waiting import wait_for

WORDS = 500


def newer_config() -> Json:
    config: Json = base_config()
    config["policies"]["default"][0]["deny"][0]["argument_matches"] = "mkfs"
    config["limits"] |= {"claim_s": 2.0}
    return config


def changing() -> Json:
    """The configuration of gateways whose calls may begin under the newer policies too."""
    return base_config() | {
        "accept_policy_sets": [policy_set(Config.model_validate(newer_config()), ())]
    }


def newer(product: Product) -> dict[str, str]:
    """The environment of workers that have another revision of the policy `default`."""
    path = product.folder / "newer.yaml"
    path.write_text(yaml.safe_dump(newer_config()))
    return {"SLUICE_CONFIG": str(path)}


def read(product: Product, count: int = 1) -> list[Reader]:
    readers = [Reader(product.url, request(words(WORDS)), policy="default") for _ in range(count)]
    under_way(readers)
    return readers


@pytest.mark.case("W11")
def test_w11_calls_stay_with_workers_of_their_revision(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with running(tmp_path, redis_url, database_url, changing()) as product:
        old = product.of("policy")[0]
        others = product.start("policy", "policy", env=newer(product))
        (capable,) = product.start("policy")
        # they stand still while the calls begin, so that all are the first one's; what they had
        # asked of Redis runs out in 250 ms
        for worker in (*others, capable):
            worker.kill(signal.SIGSTOP)
        time.sleep(0.6)
        readers = read(product, 4)
        for worker in (*others, capable):
            worker.kill(signal.SIGCONT)
        assert all(r.is_alive() for r in readers), "the streams were over too soon"
        old.kill(signal.SIGTERM)
        wait_for(
            lambda: len(owned_by(product, capable.pid)) == 4,
            timeout_s=20,
            what="the one with the same revision takes over",
        )
        assert old.wait(10) == 0
        # the last of its revision has nobody to hand over to: it drains
        capable.kill(signal.SIGTERM)
        joined(readers)
        assert capable.wait(10) == 0
        assert all(r.has_all(WORDS) for r in readers), (
            "\n".join(r.text[-60:] for r in readers) + product.logs()
        )
        records = hold_invariants(product, readers)
        workers = {
            detail for r in records.values() for kind, detail in r.events if kind == "takeover"
        }
        assert {w.rpartition("-")[2] for w in workers} == {str(capable.pid)}
        figure(
            "longest stall, two of three workers being of another revision",
            max(r.longest_s for r in readers),
            "s",
        )
        # the others serve new calls, under their own revision
        later = Reader(product.url, request("hello"), policy="default")
        joined([later])
        assert (
            hold_invariants(product, [later])[later.call_id].call[1]
            != next(iter(records.values())).call[1]
        )


@pytest.mark.case("W11")
def test_w11_a_call_whose_revision_no_worker_has_fails_closed(
    tmp_path: Path, redis_url: str, database_url: str, figure: Figure
) -> None:
    with running(tmp_path, redis_url, database_url) as product:
        (reader,) = read(product)
        product.start("policy", env=newer(product))
        product.of("policy")[0].kill(signal.SIGKILL)
        joined([reader])
        assert reader.frames[-1]["error"]["code"] == "policy_failed"
        assert reader.text and not reader.has_all(WORDS)
        records = hold_invariants(product, [reader])
        assert records[reader.call_id].end[1] == "policy_failed"
        # a lease of 1 s, then 2 s for a worker that could take it
        figure(
            "from the kill to the error, with no worker of the revision left", reader.longest_s, "s"
        )
        assert reader.longest_s < 3 + 8
