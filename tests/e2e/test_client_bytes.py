"""Every byte that a client got is on the page of its call's chunks, in order: for each kind of
call."""

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest

from tests.support.checks.pages import bytes_of, written_of
from tests.support.clients.traffic import Kind, request
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product
from tests.support.upstreams.paused_turn import FIRST, FOUND, SECOND, reply
from tests.support.upstreams.product import Place, config, replayed
from tests.support.upstreams.recordings import own
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.waiting import wait_for

IDLE_S, ACTIVITY_S = 17.0, 8.0
HANGS = """
from policy.base import Policy


class Hangs(Policy):
    def on_tool_call(self, call):
        while True:
            pass
"""
TOOLS = {"anthropic": {"name": "get_weather", "input_schema": {"type": "object"}}}
TOOLS["openai"] = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("product")
    (folder / "hangs.py").write_text(HANGS)

    def made(replay: Replay) -> Json:
        base = config(replay)
        base["policies"]["hangs"] = [{"use": "hangs:Hangs"}]
        web = {"server_tools": [{"type": "web_search_20250305", "name": "web_search"}]}
        base["keys"] = [
            key | {"server_tools": ["web_search"], "policies": [*key["policies"], "hangs"]}
            for key in base["keys"]
        ]
        base["models"] = [r | (web if r["match"] == "claude-*" else {}) for r in base["models"]]
        limits = {
            "idle_s": IDLE_S,
            "activity_s": ACTIVITY_S,
            "keepalive_s": 1.0,
            "ended_ttl_s": 3.0,
        }
        base["limits"] |= limits | {"seal_s": 0.2, "lease_s": 30.0}
        return base

    with replayed(folder, redis_url, database_url, made) as running:
        running[0].start("pages")
        yield running


def got(
    product: Product,
    path: str,
    body: object,
    *,
    then: Callable[[bytes], bool] = lambda so_far: True,
    **said: str,
) -> tuple[str, int, bytes]:
    """Make a call; returns its id, the status and all bytes that came. `then` is told of them as
    they come, and may end it.

    said: values of headers whose names begin with `x-sluice-`.
    """
    headers = {
        "authorization": f"Bearer {KEY}",
        **{f"x-sluice-{name.replace('_', '-')}": value for name, value in said.items()},
    }
    data = b""
    with httpx.stream("POST", product.url + path, json=body, headers=headers, timeout=60) as answer:
        for part in answer.iter_raw():
            data += part
            if not then(data):
                break
    return answer.headers["x-sluice-call-id"], answer.status_code, data


def item(product: Product, call: str) -> Json:
    """A call as the audit API has it, also one that is in no list as no worker began it; empty
    while nothing of it is on record."""
    answer = httpx.get(
        f"{product.url}/audit/calls/{call}", headers={"authorization": f"Bearer {KEY}"}
    )
    found: Json = answer.json() if answer.status_code == 200 else {}
    return found


def pages(product: Product, call: str, *, limit: int = 7) -> list[Json]:
    """All pages of a call, once it is sealed."""

    def is_sealed() -> bool:
        return bool(product.audit("verify", call_id=call)["unsealed"] == 0)

    wait_for(lambda: item(product, call).get("ended_at"), timeout_s=30, what="its end")
    wait_for(is_sealed, timeout_s=20, what="its seal")
    found: list[Json] = []
    while not found or found[-1]["next_cursor"]:
        more = {"cursor": found[-1]["next_cursor"]} if found else {}
        found.append(product.audit(f"calls/{call}/chunks", limit=limit, **more))
    return found


def is_whole(product: Product, call: str, data: bytes) -> list[Json]:
    """The page holds what the client got and nothing else, and the record says that it is whole;
    returns what was written."""
    written = written_of(pages(product, call))
    assert bytes_of(written) == data
    whole = product.audit(f"calls/{call}")
    assert whole["incomplete"] is False, whole["events"]
    said = product.audit("verify", call_id=call)
    assert (said["ok"], said["incomplete"]) == (True, 0), said
    released = sum(
        len(p["payload"].encode())
        for p in written
        if p["kind"] == "release" and p["payload_base64"] is None
    )
    assert whole["released_bytes"] == released
    return written


def asking(
    dialect: str, model: str, *, streamed: bool = True, tools: bool = False
) -> tuple[str, Json]:
    """Path and body of a request."""
    path, body = request(dialect, "text" if streamed else "whole", "hello", model)
    return path, body | ({"tools": [TOOLS[dialect]]} if tools else {})


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("kind", ["text", "allowed", "blocked", "whole"])
def test_text_tool_calls_and_whole_answers(place: Place, dialect: Any, kind: Kind) -> None:
    product, _ = place
    path, body = request(dialect, kind)
    call, status, data = got(product, path, body)
    assert status == 200 and data
    written = is_whole(product, call, data)
    if kind in ("allowed", "blocked"):
        [block] = {
            item["block"]
            for page in pages(product, call)
            for item in page["items"]
            if item["verdict"] in ("allow", "block")
        } - {
            -1,
            0,
        }
        assert any(block in piece["blocks"] for piece in written)


UPSTREAM: dict[str, Reply] = {
    "an error status": Reply(b'{"error": {"message": "no"}}', 500),
    "an overload": Reply(b'{"error": {"message": "later"}}', 529, headers={"retry-after": "3"}),
    "cut": stream(own("openai-cut.sse"), cutting="events"),
    "an error event": stream(own("openai-error-event.sse"), cutting="events"),
    "tools": stream(own("openai-tools-interleaved.sse"), cutting="events"),
    "no stream at all": Reply(b"<html>", content_type="text/html"),
    "reasoning": stream(own("openai-reasoning.sse"), cutting="random"),
}


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("answer", UPSTREAM)
def test_what_upstreams_do(place: Place, dialect: str, answer: str) -> None:
    product, replay = place
    replay.answer(UPSTREAM[answer])
    path, body = asking(dialect, "gpt-x", tools=answer == "tools")
    call, _, data = got(product, path, body, policy="noop")
    assert data
    is_whole(product, call, data)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_turn_that_goes_on(place: Place, streamed: bool) -> None:
    product, replay = place
    replay.answer(
        reply(FIRST, "pause_turn", (10, 5), streamed=streamed),
        reply([FOUND], "pause_turn", (20, 6), streamed=streamed),
        reply(SECOND[1:], "tool_use", (30, 7), streamed=streamed),
    )
    path, body = asking("openai", "claude-x", streamed=streamed, tools=True)
    call, status, data = got(product, path, body)
    assert status == 200 and len(replay.asked) == 3
    is_whole(product, call, data)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "demo", "stream": True, "messages": "none"},
        {"model": "nothing", "messages": [{"role": "user", "content": "x"}]},
    ],
)
def test_a_refused_request(place: Place, body: Json) -> None:
    product, _ = place
    call, status, data = got(product, "/v1/chat/completions", body)
    assert status in (400, 404) and json.loads(data)["error"]
    assert [piece["chunk"] for piece in is_whole(product, call, data)] == [None]


@pytest.mark.slow
def test_what_the_gateway_writes_when_its_worker_is_silent(place: Place) -> None:
    """The worker sleeps behind its first release, and hears of the end when it wakes."""
    product, _ = place
    [worker] = product.of("policy")

    def sleeps(so_far: bytes) -> bool:
        worker.kill(signal.SIGSTOP)
        return True

    path, body = request("openai", "text", f"long 200 slowly, with a gap 20 ms {uuid4().hex}")
    try:
        call, _, data = got(product, path, body, then=sleeps)
    finally:
        worker.kill(signal.SIGCONT)
    written = is_whole(product, call, data)
    assert written[-1]["kind"] == "frame" or any(piece["kind"] == "frame" for piece in written)


def told(product: Product, call: str) -> None:
    """Wait until what a gateway said of a call that its worker gave up is on record."""
    wait_for(
        lambda: "relayed" in {e["kind"] for e in item(product, call).get("events", ())},
        timeout_s=20,
        what="what was relayed",
    )


@pytest.mark.slow
def test_an_answer_whose_worker_gives_it_up(place: Place) -> None:
    """A policy hangs in a tool call: text went out before, and the gateway's own error after it."""
    product, replay = place
    replay.answer(stream(own("openai-tools-interleaved.sse"), cutting="events"))
    path, body = asking("openai", "gpt-x", tools=True)
    call, _, data = got(product, path, body, policy="hangs")
    assert b'"code":"policy_failed"' in data.replace(b" ", b"")
    told(product, call)
    written = is_whole(product, call, data)
    assert [piece["kind"] for piece in written][-1] == "frame" and all(
        piece["relayed"] for piece in written
    )


@pytest.mark.slow
def test_a_request_that_no_worker_takes(place: Place) -> None:
    product, _ = place
    [worker] = product.of("policy")
    worker.kill(signal.SIGSTOP)
    path, body = asking("openai", "demo", streamed=False)
    try:
        call, status, data = got(product, path, body, timeout_s="20")
    finally:
        worker.kill(signal.SIGCONT)
    assert status == 503 and json.loads(data)["error"]["code"] == "no_worker"
    told(product, call)
    assert [piece["kind"] for piece in is_whole(product, call, data)] == ["frame"]


@pytest.mark.slow
def test_a_client_that_goes_away_got_the_beginning(place: Place) -> None:
    """What was handed to its connection is on the page; how much of it arrived nobody here
    knows."""
    product, _ = place
    path, body = request("openai", "text", f"long 200 slowly, with a gap 20 ms {uuid4().hex}")
    call, _, data = got(product, path, body, then=lambda so_far: so_far.count(b"data:") < 10)
    written = written_of(pages(product, call))
    assert bytes_of(written).startswith(data)
    assert product.audit(f"calls/{call}")["incomplete"] is False


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.slow
def test_keepalives_and_an_error_that_comes_late(place: Place, dialect: str) -> None:
    """An upstream that says nothing: keepalives from the sixteenth second on, which take the status
    with them, and then an error."""
    product, replay = place
    replay.answer(Reply(b"", content_type="text/event-stream", ending="hang"))
    path, body = asking(dialect, "gpt-x")
    call, status, data = got(product, path, body, policy="noop")
    assert status == 200
    kinds = [piece["kind"] for piece in is_whole(product, call, data)]
    assert "keepalive" in kinds and "late" in kinds
