"""Tools that the provider runs, end to end: families by key, the operator's tools, betas, what was
dropped, turns that go on."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.json_values import Json, as_json
from tests.support.servers.product import CLIENT_KEY, KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.product import Place, call_of, new_session
from tests.support.upstreams.replay import Reply, replaying, stream
from tests.support.waiting import wait_for

SEARCH: Json = {"type": "web_search_20250305", "name": "web_search"}
ADDED = SEARCH | {"max_uses": 2, "allowed_domains": ["docs.example"]}
MESSAGE: Json = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
CALL: Json = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "x"},
}
FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [],
}


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replaying() as replay:
        config = upstreams.config(replay)
        config["upstreams"]["anthropic"]["headers"] = {"Anthropic-Beta": "own-1"}
        config["betas"] = ["extra-2027-01-01"]
        config["unknown"] = ["parameter foo"]
        config["models"].insert(
            0, {"match": "claude-search", "upstream": "anthropic", "server_tools": [ADDED]}
        )
        config["keys"][0] |= {"server_tools": ["web_search"], "policies": ["noop"]}
        with running(*stores, config) as product:
            yield product, replay


def post(
    product: Product, key: str = KEY, *, betas: tuple[str, ...] = (), session: str = "", **body: Any
) -> httpx.Response:
    """One request of the Messages dialect, with as many anthropic-beta headers as there are
    `betas`."""
    headers = [
        ("x-api-key", key),
        ("anthropic-version", "2023-06-01"),
        *(("anthropic-beta", b) for b in betas),
    ]
    headers += [("x-sluice-session", session)] if session else []
    request = {
        "model": "claude-x",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
        **body,
    }
    return httpx.post(product.url + "/v1/messages", headers=headers, json=request, timeout=20)


def test_beta_names_join_the_operators_and_unknown_ones_are_left_out_and_named(
    place: Place,
) -> None:
    product, replay = place
    replay.answer(Reply(as_json(MESSAGE)))
    said = post(
        product,
        betas=(
            "context-1m-2025-08-07, extra-2027-01-01",
            "never-heard-of-1, web-search-2025-03-05",
            "a b",
        ),
    )
    assert said.status_code == 200
    [asked] = replay.asked
    assert asked.headers["anthropic-beta"].split(",") == [
        "own-1",
        "context-1m-2025-08-07",
        "extra-2027-01-01",
        "web-search-2025-03-05",
    ]
    assert said.headers["x-sluice-dropped"] == "anthropic-beta: never-heard-of-1"


def test_nothing_dropped_is_no_header(place: Place) -> None:
    product, replay = place
    replay.answer(Reply(as_json(MESSAGE)))
    said = post(product)
    assert replay.asked[0].headers["anthropic-beta"] == "own-1"
    assert "x-sluice-dropped" not in said.headers


def test_a_key_without_the_family_is_refused_before_anything_is_sent(place: Place) -> None:
    product, replay = place
    replay.answer(Reply(as_json(MESSAGE)))
    said = post(product, CLIENT_KEY, tools=[SEARCH])
    assert said.status_code == 400
    assert "web_search" in said.json()["error"]["message"]
    assert replay.asked == []
    assert post(product, tools=[SEARCH]).status_code == 200
    assert replay.asked[0].body["tools"] == [SEARCH]


def test_the_operators_tool_goes_to_the_keys_that_have_its_family(place: Place) -> None:
    product, replay = place
    own = {"name": "get_weather", "description": "w", "input_schema": {"type": "object"}}
    for key, expected in ((KEY, [own, ADDED]), (CLIENT_KEY, [own])):
        replay.answer(Reply(as_json(MESSAGE)))
        assert post(product, key, model="claude-search", tools=[own]).status_code == 200
        assert replay.asked[0].body["tools"] == expected


@pytest.mark.slow
def test_a_parameter_that_the_upstream_does_not_have_is_named_and_on_record(place: Place) -> None:
    product, replay = place
    replay.answer(Reply(as_json(MESSAGE)))
    session = new_session()
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
    request = {
        "model": "claude-x",
        "messages": [{"role": "user", "content": "hi"}],
        "seed": 7,
        "max_tokens": 50,
    }
    said = httpx.post(
        product.url + "/v1/chat/completions", headers=headers, json=request, timeout=20
    )
    assert (said.status_code, said.headers.get("x-sluice-dropped")) == (200, "seed")
    events = product.audit(f"calls/{call_of(product, session)['call_id']}")["events"]
    assert [(e["kind"], e["detail"]) for e in events if e["kind"] == "dropped"] == [
        ("dropped", "0: seed")
    ]


@pytest.mark.slow
def test_a_parameter_that_nobody_knows_passes_only_where_the_operator_says_so(place: Place) -> None:
    product, replay = place
    replay.answer(Reply(as_json(MESSAGE)))
    said = post(product, foo=1, bar=2)
    assert (said.status_code, said.headers["x-sluice-dropped"]) == (200, "bar")
    assert replay.asked[0].body["foo"] == 1
    assert "bar" not in replay.asked[0].body


@pytest.mark.slow
def test_a_client_that_goes_away_in_a_continued_turn_ends_its_second_request(place: Place) -> None:
    product, replay = place
    first = MESSAGE | {
        "content": [{"type": "text", "text": "Searching."}, CALL],
        "stop_reason": "pause_turn",
    }
    start = {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None}}
    block = {"type": "content_block_start", "index": 0, "content_block": FOUND}
    second = "".join(
        f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in (start, block)
    ).encode()
    replay.answer(Reply(as_json(first)), stream(second, ending="hang"))
    session = new_session()
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-session": session}
    request = {
        "model": "claude-search",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 50,
    }
    with httpx.Client(timeout=20) as client, pytest.raises(httpx.ReadTimeout):
        client.post(product.url + "/v1/chat/completions", headers=headers, json=request, timeout=2)
    call = call_of(product, session)
    assert (call["state"], call["reason"]) == ("FAILED", "client_gone")
    assert len(replay.asked) == 2
    assert replay.asked[1].body["messages"][-1]["content"][-1] == CALL
    wait_for(lambda: replay.left == 1, timeout_s=5, what="the second request's connection closed")
