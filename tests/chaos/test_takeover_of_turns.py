"""A worker killed in a turn of several requests, or in a lookup of what is on record: nothing is
asked, paid or said twice."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from streams import layout
from tests.support.checks.invariants import Recorded, call_faults
from tests.support.clients.readers import Reader, hold_invariants, joined, kinds, owned_by
from tests.support.clients.sdk_calls import tool
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.servers.product import Child, Product
from tests.support.servers.proxy import Proxy, proxied
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import Place, config, replayed
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.upstreams.turns import streamed
from tests.support.waiting import wait_for

MODEL = "claude-sonnet-4-5"
THINKING: Json = {
    "type": "thinking",
    "thinking": "Let me see.",
    "signature": "c2lnbmF0dXJl" * 20,
}
WORDS = 8
GAP_S = 0.04


def made(replay: Replay) -> Json:
    """Routes and keys with a search that the provider runs."""
    base = config(replay)
    searching = {"server_tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    base["models"] = [
        route | (searching if route["match"] == "claude-*" else {}) for route in base["models"]
    ]
    rules = {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": "rm -rf"}]}
    base["policies"] = base["policies"] | {"continued": [rules | {"on_block": "continue"}]}
    base["keys"] = [
        key | {"server_tools": ["web_search"], "policies": [*key["policies"], "continued"]}
        for key in base["keys"]
    ]
    # a worker that takes over is started in the test, on a machine with other work
    base["limits"] = {**base.get("limits", {}), "claim_s": 20}
    return base


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replayed(*stores, made) as running:
        yield running


def answer(content: list[Json], reason: str, *, gap_s: float = 0.0) -> Reply:
    about = {
        "role": "assistant",
        "model": MODEL,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    return stream(b"".join(streamed(content, reason, about=about)), cutting="events", gap_s=gap_s)


def asking(product: Product, messages: list[Json], *, policy: str = "noop") -> Reader:
    body = {
        "model": MODEL,
        "max_tokens": 20_000,
        "messages": messages,
        "stream": True,
        "tools": [tool("openai", "f", city="string")],
    }
    return Reader(product.url, body, policy=policy)


def found(product: Product, reader: Reader, replies: Sequence[Reply]) -> Recorded:
    """The record of a call that was taken over once and is whole; all that upstream sent is in
    it."""
    joined([reader])
    recorded = hold_invariants(product, [reader])[reader.call_id]
    assert call_faults(reader.seen, recorded, upstream=b"".join(r.body for r in replies)) == [], (
        product.logs()
    )
    assert reader.whole and recorded.end[:2] == ("ENDED", "complete")
    assert [kind for kind, _ in recorded.events if kind == "takeover"] == ["takeover"]
    return recorded


def segment(number: int) -> list[Json]:
    """A segment of a turn: its words, each a block, and a search that the next segment finds."""
    search = {
        "type": "server_tool_use",
        "id": f"srvtoolu_{number}",
        "name": "web_search",
        "input": {"query": "x"},
    }
    before = {
        "type": "web_search_tool_result",
        "tool_use_id": f"srvtoolu_{number - 1}",
        "content": [],
    }
    words = [{"type": "text", "text": f"w{number}-{n} "} for n in range(WORDS)]
    return [*([before] if number > 1 else []), *words, *([search] if number < 3 else [])]


@pytest.mark.case("W1")
@pytest.mark.parametrize(("asked", "word"), [(1, "w1-3 "), (2, ""), (2, "w2-3 "), (3, "w3-7 ")])
def test_w1_kill_9_of_the_owner_in_a_segment_of_a_continued_turn(
    place: Place, asked: int, word: str
) -> None:
    """Killed in the first segment, as the second is asked for, in it, and when the last word of all
    is out."""
    product, replay = place
    segments = [segment(n) for n in (1, 2, 3)]
    reasons = ("pause_turn", "pause_turn", "end_turn")
    replies = [
        answer(content, reason, gap_s=GAP_S)
        for content, reason in zip(segments, reasons, strict=True)
    ]
    replay.answer(*replies)
    reader = asking(product, [{"role": "user", "content": "go"}])
    wait_for(lambda: len(replay.asked) == asked and word in reader.text, what="the moment")
    [victim] = product.of("policy")
    victim.kill(signal.SIGKILL)
    product.start("policy")
    found(product, reader, replies)
    assert reader.text == "".join(
        block["text"] for content in segments for block in content if block["type"] == "text"
    )
    assert [
        frame
        for frame in reader.frames
        if frame["choices"] and frame["choices"][0]["finish_reason"]
    ][1:] == []
    first, second, third = (a.body["messages"] for a in replay.asked)
    assert second == [*first, {"role": "assistant", "content": segments[0]}]
    assert third == [*first, {"role": "assistant", "content": [*segments[0], *segments[1]]}]


@pytest.mark.case("W1")
@pytest.mark.parametrize(("asked", "word"), [(1, "w1-3 "), (2, ""), (2, "w2-3 "), (3, "w3-7 ")])
def test_w1_kill_9_of_the_owner_of_a_turn_whose_calls_are_given_back(
    place: Place, asked: int, word: str
) -> None:
    """As above; between two answers, the next owner has at hand what the first had to look up."""
    product, replay = place

    def words(number: int) -> list[Json]:
        return [{"type": "text", "text": f"w{number}-{n} "} for n in range(WORDS)]

    def call(number: int) -> Json:
        value = {"command": f"rm -rf /{number}"}
        return {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": value}

    answers = [[*words(1), call(1)], [*words(2), call(2)], words(3)]
    reasons = ("tool_use", "tool_use", "end_turn")
    replies = [
        answer(content, reason, gap_s=GAP_S)
        for content, reason in zip(answers, reasons, strict=True)
    ]
    replay.answer(*replies)
    messages = [{"role": "user", "content": "go"}]
    reader = asking(product, messages, policy="continued")
    wait_for(lambda: len(replay.asked) == asked and word in reader.text, what="the moment")
    [victim] = product.of("policy")
    victim.kill(signal.SIGKILL)
    product.start("policy")
    found(product, reader, replies)
    assert [reader.text.count(f"w{n}-{WORDS - 1} ") for n in (1, 2, 3)] == [1, 1, 1]
    assert reader.text.count("[Sluice blocked the tool call 'bash'") == 2
    first, second, third = (a.body["messages"] for a in replay.asked)
    assert second[:-2] == first and second[-2]["content"] == answers[0]
    assert third[:-2] == second and third[-2]["content"] == answers[1]


def tool_turn(product: Product, replay: Replay, mark: str) -> tuple[list[Json], list[Json]]:
    """A turn on record with a tool call; returns what upstream said, and the messages that go on
    from there."""
    content = [
        THINKING,
        {"type": "tool_use", "id": f"toolu_{mark}", "name": "f", "input": {"city": "Paris"}},
    ]
    replay.answer(answer(content, "tool_use"))
    question = {"role": "user", "content": "Weather?"}
    reader = asking(product, [question])
    joined([reader])
    hold_invariants(product, [reader])
    call = {
        "id": f"toolu_{mark}",
        "type": "function",
        "function": {"name": "f", "arguments": '{"city": "Paris"}'},
    }
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    return content, [
        question,
        said,
        {"role": "tool", "tool_call_id": f"toolu_{mark}", "content": "rain"},
    ]


def only_worker(product: Product, redis: str, database: str) -> Child:
    """Replace the policy workers by one that finds its servers there."""
    for child in product.of("policy"):
        child.kill(signal.SIGTERM)
        child.wait()
    product.redis_urls["policy"], product.database_urls["policy"] = redis, database
    [child] = product.start("policy")
    return child


def in_the_lookup(postgres: Proxy, ask: Callable[[], Reader]) -> Reader:
    """A call whose owner has asked PostgreSQL for what came before and waits."""
    postgres.hold_replies()
    before = postgres.passed[0]
    reader = ask()
    wait_for(lambda: postgres.passed[0] > before, what="the lookup")
    return reader


@pytest.mark.case("W1", "W3")
@pytest.mark.parametrize("answered", [False, True])
def test_w1_kill_9_of_the_owner_in_a_lookup_of_recorded_turns(place: Place, answered: bool) -> None:
    """Killed while PostgreSQL answers: the next owner looks it up. Killed when the turns are a
    fact: the next owner does not ask again."""
    product, replay = place
    content, messages = tool_turn(product, replay, f"{answered}".lower())
    with proxied(product.redis_url) as redis, proxied(product.database_url) as postgres:
        direct = product.database_url
        victim = only_worker(product, redis.url(product.redis_url), postgres.url(direct))
        try:
            replies = [answer([{"type": "text", "text": "Take an umbrella."}], "end_turn")]
            replay.answer(*replies)
            reader = in_the_lookup(postgres, lambda: asking(product, messages))
            [call_id] = wait_for(lambda: owned_by(product, victim.pid), what="its owner")
            store: Any = product.redis
            if answered:
                # the answers to what comes before, as what the fact is charged to, are heard
                redis.hold_replies_from(
                    rb"%b\b.*\r\n%b\r\n"
                    % (layout.facts_key(call_id).encode(), layout.TURNS_FIELD.encode())
                )
                postgres.heal()
                wait_for(
                    lambda: store.hexists(layout.facts_key(call_id), layout.TURNS_FIELD),
                    what="the fact",
                )
            assert replay.asked == []
            victim.kill(signal.SIGKILL)
            victim.wait()
            nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/nothing"
            only_worker(product, product.redis_url, nowhere if answered else direct)
            recorded = found(product, reader, replies)
        finally:
            del product.redis_urls["policy"], product.database_urls["policy"]
    assert "fenced" not in kinds(recorded)
    assert reader.text == "Take an umbrella."
    [asked] = [a.body["messages"] for a in replay.asked]
    assert asked[1] == {"role": "assistant", "content": content}


def going_on(product: Product, said: Any, previous: str = "") -> Reader:
    more = {"previous_response_id": previous} if previous else {}
    body = {
        "model": MODEL,
        "input": said,
        "stream": True,
        "tools": [tool("responses", "f", city="string")],
        **more,
    }
    return Reader(product.url, body, dialect="responses")


def identity(reader: Reader) -> str:
    """The id by which the next request goes on with an answer."""
    joined([reader])
    return str(reader.frames[-1]["response"]["id"])


@pytest.mark.case("W1")
def test_w1_kill_9_of_the_owners_of_a_conversation_that_is_on_record_alone(
    place: Place,
) -> None:
    """Three answers that go on with each other: a worker dies while it reads the first, the next in
    the middle of the last."""
    product, replay = place
    content = [
        THINKING,
        {"type": "tool_use", "id": "toolu_chain", "name": "f", "input": {"city": "Paris"}},
    ]
    replay.answer(answer(content, "tool_use"))
    first = going_on(product, "Weather?")
    result = [{"type": "function_call_output", "call_id": "toolu_chain", "output": "rain"}]
    name = identity(first)
    with proxied(product.database_url) as postgres:
        victim = only_worker(product, product.redis_url, postgres.url(product.database_url))
        second_replies = [answer([{"type": "text", "text": "Take an umbrella."}], "end_turn")]
        replay.answer(*second_replies)
        second = in_the_lookup(postgres, lambda: going_on(product, result, name))
        wait_for(lambda: owned_by(product, victim.pid), what="its owner")
        assert replay.asked == []
        victim.kill(signal.SIGKILL)
        victim.wait()
        heir = only_worker(product, product.redis_url, product.database_url)
        del product.redis_urls["policy"], product.database_urls["policy"]
    found(product, second, second_replies)
    asked = [a.body["messages"] for a in replay.asked]
    third_replies = [
        answer([{"type": "text", "text": f"w{n} "} for n in range(WORDS)], "end_turn", gap_s=GAP_S)
    ]
    replay.answer(*third_replies)
    third = going_on(product, "Thanks", identity(second))
    wait_for(lambda: "w3 " in third.text, what="the middle")
    heir.kill(signal.SIGKILL)
    product.start("policy")
    found(product, third, third_replies)
    assert third.text == "".join(f"w{n} " for n in range(WORDS))
    asked += [a.body["messages"] for a in replay.asked]
    assert len(asked) == 2 and asked[0][1] == {
        "role": "assistant",
        "content": content,
    }, "with the signature that no client was given"
    assert asked[1][: len(asked[0])] == asked[0]
    assert asked[1][len(asked[0]) :] == [
        {"role": "assistant", "content": [{"type": "text", "text": "Take an umbrella."}]},
        {"role": "user", "content": [{"type": "text", "text": "Thanks"}]},
    ]
