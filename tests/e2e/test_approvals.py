"""A rule asks people: the call waits, and what they decide is what the client gets, once."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from tests.support.approvals import asked, asking, decide
from tests.support.clients.agent import TOOLS
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

SERIES = {
    "default": asking(hold_s=20),
    "later": asking(hold_s=0),
    "later-again": asking(hold_s=0, use_within_s=800),
    "two": asking(hold_s=20, need=2),
    "named": asking(hold_s=20, approvers=["carol"]),
    "goes-on": [{**asking(hold_s=20)[0], "on_block": "continue"}],
    "goes-on-later": [{**asking(hold_s=0)[0], "on_block": "continue"}],
    "scored": [
        {
            "use": "control",
            "monitors": [{"use": "shell"}],
            "steps": [{"at": 0.1, "do": "ask"}],
            "approval": {"hold_s": 20},
        }
    ],
}


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    config = base_config()
    config["policies"] = SERIES
    for key in config["keys"]:
        key["policies"] = list(SERIES)
    with running(*stores, config) as made:
        yield made


@pytest.fixture
def apart() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def deleted(
    product: Product, folder: str, series: str = "default", key: str = KEY, *, stream: bool = True
) -> dict[str, Any]:
    """Have the model delete a folder: what the client gets, its texts and tool calls."""
    body = {
        "model": "demo",
        "max_tokens": 500,
        "stream": stream,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": f"delete everything with rm -rf {folder}"}],
    }
    headers = {"x-api-key": key, "x-sluice-policy": series, "x-sluice-session": "s1"}
    answer = httpx.post(f"{product.url}/v1/messages", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    got: dict[str, Any] = {"call_id": answer.headers["x-sluice-call-id"], "text": "", "calls": []}
    if not stream:
        whole = answer.json()
        got["stop"] = whole["stop_reason"]
        for block in whole["content"]:
            if block["type"] == "text":
                got["text"] += block["text"]
            else:
                got["calls"].append(block["input"])
        return got
    for line in answer.text.splitlines():
        if line.startswith("data: "):
            data = json.loads(line[6:])
            delta = data.get("delta", {})
            got["text"] += delta.get("text", "")
            if delta.get("type") == "input_json_delta":
                got["calls"].append(json.loads(delta["partial_json"]))
            got["stop"] = delta.get("stop_reason") or got.get("stop")
    return got


def tool_call(product: Product, call_id: str) -> dict[str, Any]:
    [row] = wait_for(
        lambda: product.audit("tool-calls", call_id=call_id)["items"], what="the tool call"
    )
    return dict(row)


def kinds_of(product: Product, call_id: str) -> set[str]:
    wait_for(
        lambda: product.audit(f"calls/{call_id}")["state"] != "ACTIVE", what="the end on record"
    )
    return {event["kind"] for event in product.audit(f"calls/{call_id}")["events"]}


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_waits_and_goes_out_when_it_is_approved(
    product: Product, apart: ThreadPoolExecutor, stream: bool
) -> None:
    folder = f"./held-{stream}"
    waiting = apart.submit(deleted, product, folder, stream=stream)
    [approval] = asked(product, folder)
    assert not waiting.done()
    assert decide(product, approval) == "approved"
    got = waiting.result(10)
    assert [call["command"] for call in got["calls"]] == [f"rm -rf {folder}"]
    assert got["stop"] == "tool_use"
    row = tool_call(product, got["call_id"])
    assert (row["verdict"], row["reason"], row["rule"]) == ("allow", "approved", "deletes")
    [judgement] = product.audit(f"calls/{got['call_id']}")["judgements"]
    assert judgement["model"] == "people" and "carol" in judgement["reply"]


def test_where_nobody_decides_the_turn_ends_and_the_same_call_later_takes_the_decision(
    product: Product,
) -> None:
    folder = "./later"
    got = deleted(product, folder, "later")
    [approval] = asked(product, folder)
    assert got["calls"] == [] and got["stop"] == "end_turn"
    assert approval in got["text"] and f"/debug/approvals/{approval}" in got["text"]
    assert tool_call(product, got["call_id"])["reason"] == "approval_pending"
    again = deleted(product, folder, "later")
    assert approval in again["text"] and len(asked(product, folder)) == 1
    assert decide(product, approval) == "approved"
    assert decide(product, approval) == "same"
    assert decide(product, approval, "deny", by="dave") == "approved"
    assert len(deleted(product, folder, "later")["calls"]) == 1
    used_up = deleted(product, folder, "later")
    assert used_up["calls"] == [] and len(asked(product, folder, 2)) == 2


def test_a_denial_names_who_and_why_and_holds_for_the_same_call(
    product: Product, apart: ThreadPoolExecutor
) -> None:
    folder = "./denied"
    waiting = apart.submit(deleted, product, folder)
    [approval] = asked(product, folder)
    assert decide(product, approval, "deny", note="not on a Friday") == "denied"
    got = waiting.result(10)
    assert got["calls"] == [] and "carol denied it: not on a Friday" in got["text"]
    assert "carol denied it" in deleted(product, folder)["text"]
    assert asked(product, folder) == [approval]
    assert tool_call(product, got["call_id"])["reason"] == "approval_denied"


def test_edited_arguments_go_out_if_the_rules_let_them(
    product: Product, apart: ThreadPoolExecutor
) -> None:
    waiting = apart.submit(deleted, product, "./edited")
    [approval] = asked(product, "./edited")
    assert decide(product, approval, edited={"command": "rm -rf ./smaller"}) == "approved"
    got = waiting.result(10)
    assert [call["command"] for call in got["calls"]] == ["rm -rf ./smaller"]
    row = tool_call(product, got["call_id"])
    assert (row["verdict"], row["reason"]) == ("replace", "approved")
    # a tool's schema holds for people, too
    waiting = apart.submit(deleted, product, "./misfit")
    [approval] = asked(product, "./misfit")
    assert decide(product, approval, edited={"order": "rm"}) == "approved"
    got = waiting.result(10)
    assert got["calls"] == []
    assert tool_call(product, got["call_id"])["reason"] == "schema"


def test_one_approval_is_used_once(product: Product, apart: ThreadPoolExecutor) -> None:
    folder = "./once"
    deleted(product, folder, "later")
    [approval] = asked(product, folder)
    assert decide(product, approval) == "approved"
    results = [apart.submit(deleted, product, folder, "later") for _ in range(4)]
    assert sum(len(result.result(30)["calls"]) for result in results) == 1


def test_nobody_approves_a_call_of_their_own_and_two_are_two(
    product: Product, apart: ThreadPoolExecutor
) -> None:
    waiting: Future[dict[str, Any]] = apart.submit(deleted, product, "./two", "two")
    [approval] = asked(product, "./two")
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute("SELECT key FROM approvals WHERE approval_id = %s", (approval,))
        [own] = row.fetchone() or ("",)
    assert decide(product, approval, by=own) == "own"
    assert decide(product, approval) == "counted"
    assert decide(product, approval) == "same"
    assert decide(product, approval, "deny") == "other"
    assert not waiting.done()
    assert decide(product, approval, by="dave") == "approved"
    assert len(waiting.result(10)["calls"]) == 1
    waiting = apart.submit(deleted, product, "./named", "named")
    [approval] = asked(product, "./named")
    assert decide(product, approval, by="dave") == "not_named"
    assert decide(product, approval) == "approved"
    assert len(waiting.result(10)["calls"]) == 1


def test_an_approval_is_of_one_key_and_one_policy(product: Product) -> None:
    folder = "./bound"
    deleted(product, folder, "later")
    [first] = asked(product, folder)
    assert decide(product, first) == "approved"
    assert deleted(product, folder, "later", key=CLIENT_KEY)["calls"] == []
    assert deleted(product, folder + "/sub", "later")["calls"] == []
    # another policy asks for itself, and takes nothing back: a key may choose between its policies
    assert deleted(product, folder, "later-again")["calls"] == []
    assert decide(product, first, by="dave") == "approved"
    with psycopg.connect(product.database_url) as connection:
        connection.execute(
            "UPDATE approvals SET binding = 'of an older revision' WHERE approval_id = %s", (first,)
        )
    changed = deleted(product, folder, "later")
    assert changed["calls"] == [] and "the policy changed" in changed["text"]
    assert decide(product, first, by="dave") == "superseded"


def test_a_denial_goes_back_to_the_model_and_waiting_ends_the_turn(
    product: Product, apart: ThreadPoolExecutor
) -> None:
    """Where blocks are given back: not what waits, or the model would ask on and on."""
    waiting = apart.submit(deleted, product, "./back", "goes-on")
    [approval] = asked(product, "./back")
    assert decide(product, approval, "deny") == "denied"
    got = waiting.result(20)
    assert got["calls"] == []
    assert "block_continued" in kinds_of(product, got["call_id"])
    later = deleted(product, "./back-later", "goes-on-later")
    assert later["calls"] == [] and later["stop"] == "end_turn"
    assert "block_continued" not in kinds_of(product, later["call_id"])


def test_a_step_of_control_asks_people(product: Product, apart: ThreadPoolExecutor) -> None:
    waiting = apart.submit(deleted, product, "./scored", "scored")
    [approval] = asked(product, "./scored")
    assert decide(product, approval) == "approved"
    got = waiting.result(20)
    assert len(got["calls"]) == 1
    [decision] = product.audit(f"calls/{got['call_id']}")["decisions"]
    assert (decision["action"], decision["threshold"]) == ("ask", 0.1)
    assert tool_call(product, got["call_id"])["policy"] == "control"


def test_a_key_that_asks_without_end_has_a_bound(product: Product) -> None:
    texts = [deleted(product, f"./flood-{n}", "later", stream=False)["text"] for n in range(12)]
    assert "too many calls of this key wait" in texts[-1]
