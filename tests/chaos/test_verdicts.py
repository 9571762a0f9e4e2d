"""A verdict is reached once: what was asked and answered before a crash is not asked again, and no
late answer changes it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from streams import layout
from tests.support.clients.readers import Reader, hold_invariants, joined, kinds, owned_by, request
from tests.support.servers.product import Child, Product, base_config, running
from tests.support.upstreams.judges import JudgeModel, judge_model, judged_by
from tests.support.waiting import wait_for

ARGUMENTS = {"command": "ls -la"}


@pytest.fixture
def model() -> Iterator[JudgeModel]:
    with judge_model() as made:
        made.open.clear()
        yield made


@pytest.fixture
def product(
    tmp_path: Path, redis_url: str, database_url: str, model: JudgeModel
) -> Iterator[Product]:
    config = judged_by(base_config(), model)
    config["limits"] |= {"judge_s": 20.0}
    with running(tmp_path, redis_url, database_url, config, policy=2) as made:
        yield made


def asked(product: Product, model: JudgeModel) -> tuple[Reader, Child, str]:
    """A call whose judge has just been asked: its client, its owner, its id."""
    reader = Reader(product.url, request("please list the files", tool=True), policy="asking")
    wait_for(lambda: model.asked, what="the judge is asked")
    owner = wait_for(
        lambda: next((c for c in product.of("policy") if owned_by(product, c.pid)), None),
        what="an owner",
    )
    return reader, owner, owned_by(product, owner.pid)[0]


def verdict(product: Product, call_id: str) -> bytes | None:
    store: Any = product.redis
    facts: dict[bytes, bytes] = store.hgetall(layout.facts_key(call_id))
    return next((value for field, value in facts.items() if field.startswith(b"j:")), None)


def tool_calls(reader: Reader) -> list[str]:
    return [
        c["function"].get("name", "")
        for f in reader.frames
        for c in f["choices"][0]["delta"].get("tool_calls") or ()
        if c.get("id")
    ]


@pytest.mark.case("W3")
def test_w3_a_stored_verdict_is_reused_by_the_next_owner(
    product: Product, model: JudgeModel
) -> None:
    reader, owner, call_id = asked(product, model)
    # the owner never learns of the answer: it stands still until it dies
    owner.kill(signal.SIGSTOP)
    model.open.set()
    wait_for(lambda: verdict(product, call_id), what="the verdict is stored")
    owner.kill(signal.SIGKILL)
    joined([reader])
    assert tool_calls(reader) == ["bash"], reader.received
    records = hold_invariants(product, [reader])
    assert "takeover" in kinds(records[call_id])
    assert len(model.asked) == 1
    with psycopg.connect(product.database_url) as connection:
        (judgements,) = connection.execute(
            "SELECT count(*) FROM judgements WHERE call_id = %s", (call_id,)
        ).fetchone() or (0,)
    assert judgements == 1


@pytest.mark.case("W3")
def test_w3_a_question_under_way_is_not_asked_again_by_the_next_owner(
    product: Product, model: JudgeModel
) -> None:
    reader, owner, call_id = asked(product, model)
    owner.kill(signal.SIGKILL)
    wait_for(
        lambda: any(call_id in owned_by(product, c.pid) for c in product.of("policy")),
        what="takeover",
    )
    product.start("judge")
    model.open.set()
    joined([reader])
    assert tool_calls(reader) == ["bash"]
    hold_invariants(product, [reader])
    assert len(model.asked) == 1


@pytest.mark.case("W2")
def test_w2_a_late_judgement_of_a_stopped_judge_changes_nothing(
    product: Product, model: JudgeModel
) -> None:
    model.probabilities = [0.0, 1.0]
    reader, _, call_id = asked(product, model)
    (stopped,) = product.of("judge")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        model.open.set()
        product.start("judge")
        # its heart stands still: the question is put to another, which blocks the call; the answer
        # to the first would have allowed it
        wait_for(lambda: verdict(product, call_id), timeout_s=15, what="another judge answers")
        joined([reader])
        first = verdict(product, call_id)
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_for(
        lambda: '"action": "late"' in stopped.log.read_text(),
        what="the late judge has answered, too",
    )
    assert verdict(product, call_id) == first
    assert tool_calls(reader) == [] and "Sluice blocked" in reader.text
    records = hold_invariants(product, [reader])
    assert [t["verdict"] for t in records[call_id].tools] == ["block"]
    assert len(model.asked) == 2
