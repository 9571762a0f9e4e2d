"""Policy code that raises, answers nonsense, blocks, or never returns: its call is blocked or ends,
others go on."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checks.figures import Figure
from tests.support.clients.readers import (
    Reader,
    hold_invariants,
    joined,
    kinds,
    owned_by,
    request,
    under_way,
    words,
)
from tests.support.json_values import Json
from tests.support.servers.product import Product, base_config, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long

LEASE_S = 1.0
MACHINE_S = 8.0
"""What a busy machine may add."""
POLICY = '''
import re
import time
from pathlib import Path

from policy.base import Policy


class Bad(Policy):
    """What it does with a tool call is the word in `mode`; waiting once leaves a file, so that the next owner does not."""

    def __init__(self, mode: str, mark: str) -> None:
        self.mode, self.mark = mode, mark

    def on_tool_call(self, call):
        match self.mode:
            case "raise":
                raise RuntimeError("no")
            case "garbage":
                return "yes, please"
            case "stall" if not Path(self.mark).exists():
                Path(self.mark).touch()
                time.sleep(1.5)
            case "block":
                time.sleep(3600)
            case "loop":
                while True:
                    pass
            case "backtrack":
                re.match(r"(a+)+$", "a" * 60 + "b")
        return super().on_tool_call(call)
'''
MODES = ("raise", "garbage", "stall", "block", "loop", "backtrack")


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    (tmp_path / "bad.py").write_text(POLICY)
    config: Json = base_config()
    for mode in MODES:
        config["policies"][mode] = [
            {"use": "bad:Bad", "mode": mode, "mark": str(tmp_path / "stalled")}
        ]
        config["keys"][0]["policies"].append(mode)
    with running(tmp_path, redis_url, database_url, config, policy=2) as made:
        yield made


def ask(product: Product, mode: str) -> Reader:
    return Reader(product.url, request("please list the files", tool=True), policy=mode)


@pytest.mark.case("W8")
def test_w8_a_hook_that_raises_or_answers_nonsense_blocks_its_call_alone(product: Product) -> None:
    others = [Reader(product.url, request(words(40))) for _ in range(4)]
    readers = {mode: ask(product, mode) for mode in ("raise", "garbage")}
    joined([*others, *readers.values()])
    records = hold_invariants(product, [*others, *readers.values()])
    for reader in readers.values():
        assert "tool_calls" not in reader.received.decode() and "Sluice blocked" in reader.text
        assert [(t["verdict"], t["reason"]) for t in records[reader.call_id].tools] == [
            ("block", "fault")
        ]
    assert all(r.has_all(40) for r in others)
    assert len(product.of("policy")) == 2


@pytest.mark.case("W8", "W13")
def test_w13_a_loop_that_stalls_past_its_lease_is_fenced_afterwards(
    product: Product, figure: Figure
) -> None:
    others = [Reader(product.url, request(words(250))) for _ in range(6)]
    under_way(others)
    reader = ask(product, "stall")
    joined([reader, *others])
    records = hold_invariants(product, [reader, *others])
    assert all(r.has_all(250) for r in others) and reader.received.count(b'"name":"bash"') == 1, (
        reader.received
    )
    assert {"takeover", "fenced"} <= kinds(records[reader.call_id])
    assert len(product.of("policy")) == 2, "the worker that stalled for 1.5 leases lives"
    stall = max(r.longest_s for r in others)
    figure(
        "longest stall of other calls, the loop of their worker standing still for 1.5 s (lease"
        " 1 s)",
        stall,
        "s",
    )
    assert stall < LEASE_S + MACHINE_S


def replace_dead(product: Product, until: Reader) -> None:
    """Start a worker for each that ends, as a supervisor does, until the call is over."""
    workers = [c for c in product.children if c.role == "policy"]
    for child in workers:
        while child.process.poll() is None and until.is_alive():
            time.sleep(0.02)
        if until.is_alive():
            workers += product.start("policy")


def exit_codes(product: Product) -> list[int]:
    return [
        code
        for c in product.children
        if c.role == "policy" and (code := c.process.poll()) is not None
    ]


@pytest.mark.case("W8")
def test_w8_a_hook_that_loops_costs_its_call_and_no_worker(
    product: Product, figure: Figure
) -> None:
    others = [Reader(product.url, request(words(60, 100))) for _ in range(4)]
    under_way(others)
    reader = ask(product, "loop")
    joined([reader, *others])
    assert re.search(r'"code":"policy_failed"', reader.received.decode()), json.dumps(
        reader.frames[-1:]
    )
    assert all(r.has_all(60) for r in others) and len(product.of("policy")) == 2
    records = hold_invariants(product, [reader, *others])
    assert records[reader.call_id].end[1] == "policy_failed" and "step_deadline" in kinds(
        records[reader.call_id]
    )
    stall = max(r.longest_s for r in others)
    figure("a hook that loops: longest stall of other calls", stall, "s")
    figure("a hook that loops: until its call ended", reader.elapsed_s, "s")
    assert stall < 2.0 + MACHINE_S / 4


@pytest.mark.case("W8")
@pytest.mark.parametrize(("mode", "codes"), [("block", {70}), ("backtrack", {-signal.SIGPROF, 70})])
def test_w8_a_hook_that_never_lets_go_costs_its_call_and_two_workers(
    product: Product, mode: str, codes: set[int], figure: Figure
) -> None:
    others = [Reader(product.url, request(words(60, 100))) for _ in range(4)]
    under_way(others)
    reader = ask(product, mode)
    replace_dead(product, reader)
    joined(others)
    # the last may have lost the call before it ends
    ended = wait_for(
        lambda: exit_codes(product) if len(exit_codes(product)) >= 2 else None,
        what="two workers end",
    )
    assert len(ended) == 2 and set(ended) <= codes, ended
    assert re.search(r'"code":"policy_failed"', reader.received.decode()), json.dumps(
        reader.frames[-1:]
    )
    assert all(r.has_all(60) for r in others)
    records = hold_invariants(product, [reader, *others])
    assert records[reader.call_id].end[1] == "policy_failed"
    wait_for(
        lambda: not any(owned_by(product, c.pid) for c in product.of("policy")),
        what="nothing is left of it",
    )
    figure(
        f"a hook that hangs ({mode}): longest stall of other calls",
        max(r.longest_s for r in others),
        "s",
    )
    figure(f"a hook that hangs ({mode}): until its call ended", reader.elapsed_s, "s")
