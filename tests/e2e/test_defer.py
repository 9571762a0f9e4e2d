"""Turns that are deferred, through the whole product: what the official clients get, what upstreams
are asked, what is on record."""

import itertools
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from protocol.request import DialectName
from tests.support.checks.deferred import answer as streamed_answer
from tests.support.clients.answering import direct
from tests.support.clients.sdk_calls import DIALECTS, MODES, Mode, Said, ask, results, tool
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product
from tests.support.servers.stores import Stores
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.cases import began, client_call, frames, text
from tests.support.upstreams.frames import delta, end, start, stop
from tests.support.upstreams.product import (
    Place,
    call_of,
    config,
    new_session,
    recorded_bytes,
    replayed,
)
from tests.support.upstreams.recordings import Recording
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.waiting import wait_for

MODEL: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-x"}
TRUSTED: dict[DialectName, str] = {"openai": "gpt-trusted", "anthropic": "claude-trusted"}


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(replay: Replay) -> Json:
        base = config(replay)
        upstreams = base["upstreams"] | {
            f"trusted-{d}": dict(base["upstreams"][d]) for d in DIALECTS
        }
        routes = [
            *({"match": TRUSTED[d], "upstream": f"trusted-{d}"} for d in DIALECTS),
            *base["models"],
        ]
        critical = [{"name": "shell", "tool": "bash"}]
        series = {
            f"to-{d}": [
                {
                    "use": "control",
                    "critical": critical,
                    "on_critical": {"do": "defer", "model": TRUSTED[d]},
                }
            ]
            for d in DIALECTS
        }
        series["audited"] = [series["to-anthropic"][0] | {"audit": {"rate": 1.0}}]
        keys = [key | {"policies": ["default", *series]} for key in base["keys"]]
        return base | {
            "upstreams": upstreams,
            "models": routes,
            "policies": base["policies"] | series,
            "keys": keys,
            "limits": base["limits"] | {"keepalive_s": 0.3, "seal_s": 0.3},
        }

    with replayed(*stores, made) as running:
        yield running


def answer(
    dialect: DialectName,
    said: str,
    name: str,
    value: Any,
    identity: str,
    *,
    streamed: bool,
    tokens: tuple[int, int] = (5, 3),
) -> Reply:
    body = streamed_answer(dialect, said, (identity, name, value), tokens=tokens)
    if streamed:
        return stream(body, cutting="random", seed=len(said))
    return Reply(whole_body(Recording("case", dialect, body, True, {}), direct))


def asking(
    product: Product, client: DialectName, mode: Mode, messages: Any, policy: str, **more: Any
) -> Said:
    tools = [tool(client, "bash", command="string"), tool(client, "look", at="string")]
    model = more.pop("model", MODEL[client])
    return ask(
        product.url,
        client,
        mode,
        messages,
        model=model,
        tools=tools,
        max_tokens=20_000,
        headers={"x-sluice-policy": policy, "x-sluice-session": more.pop("session", "")},
        **more,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("client", "first", "second"),
    [
        ("openai", "openai", "anthropic"),
        ("openai", "anthropic", "anthropic"),
        ("anthropic", "anthropic", "openai"),
        ("anthropic", "openai", "openai"),
    ],
)
def test_another_models_turn_comes_as_one_message_and_both_are_on_record(
    place: Place,
    client: DialectName,
    first: DialectName,
    second: DialectName,
    mode: Mode,
) -> None:
    product, replay = place
    streamed, session = mode != "whole", new_session()
    mine, other = f"call_{session[5:]}a", f"call_{session[5:]}b"
    replay.answer(
        answer(
            first,
            "I delete.",
            "bash",
            {"command": "rm -rf /data"},
            mine,
            streamed=streamed,
            tokens=(50, 30),
        ),
        answer(second, "I look.", "look", {"at": "x"}, other, streamed=streamed, tokens=(70, 7)),
    )
    said = asking(product, client, mode, "go", f"to-{second}", model=MODEL[first], session=session)
    assert said.text == ("I delete." if streamed else "I look.")
    assert said.plain_calls == [("look", {"at": "x"})] and said.tokens == (70, 7)
    assert (
        said.model not in TRUSTED.values()
        and "rm -rf" not in str(said)
        and "trusted" not in str(said)
    )
    one, two = (a.body for a in replay.asked)
    assert (one["model"], two["model"]) == (MODEL[first], TRUSTED[second])
    assert [m["role"] for m in two["messages"]] == ["user"] and len(two["tools"]) == 2
    call = call_of(product, session)
    assert (call["state"], call["reason"], call["usage"]["output_tokens"]) == (
        "ENDED",
        "complete",
        37,
    )
    listed = product.audit("tool-calls", call_id=call["call_id"], order="asc")["items"]
    assert [(c["name"], c["verdict"], c["reason"]) for c in listed] == [
        ("bash", "discarded", "critical"),
        ("look", "allow", ""),
    ]
    assert b"I delete." in recorded_bytes(
        product, call["call_id"]
    ) and b"I look." in recorded_bytes(product, call["call_id"])
    wait_for(
        lambda: not product.audit("verify", call_id=call["call_id"])["unsealed"],
        timeout_s=10,
        what="the seal",
    )
    verified = product.audit("verify", call_id=call["call_id"])
    assert (verified["ok"], verified["incomplete"]) == (True, 0), verified


THOUGHT = [
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me see."),
    delta(0, "signature_delta", signature="c2lnbmF0dXJl" * 20),
    stop(0),
]


@pytest.mark.parametrize("client", DIALECTS)
def test_the_next_request_is_one_that_the_provider_takes(place: Place, client: DialectName) -> None:
    product, replay = place
    session = new_session()
    thinking: Json = (
        {"reasoning_effort": "high"}
        if client == "openai"
        else {"thinking": {"type": "enabled", "budget_tokens": 4000}}
    )
    mine, other = f"toolu_{session[5:]}a", f"toolu_{session[5:]}b"
    replay.answer(
        stream(
            frames(
                began(),
                *THOUGHT,
                *client_call(1, mine, "bash", {"command": "ls"}),
                *end("tool_use"),
            )
        ),
        stream(frames(began(), *client_call(0, other, "look", {"at": "x"}), *end("tool_use"))),
        stream(frames(began(), *text(0, "Done."), *end())),
    )
    more: Json = {"model": MODEL["anthropic"], **thinking}
    said = asking(product, client, "iterate", "go", "to-anthropic", **more)
    assert [c.name for c in said.calls] == ["look"] and said.thinking == "Let me see."
    assert "thinking" not in replay.asked[1].body or replay.asked[1].body["thinking"] == {
        "type": "disabled"
    }
    history = [{"role": "user", "content": "go"}, *results(client, said, ["ok"])]
    assert asking(product, client, "iterate", history, "to-anthropic", **more).text == "Done."
    sent = replay.asked[2].body
    assistant = sent["messages"][1]["content"]
    assert [b["name"] for b in assistant if b["type"] == "tool_use"] == ["look"]
    if client == "anthropic":
        # what it thought itself is out, signed by itself
        assert assistant[0]["thinking"] == "Let me see." and sent["thinking"]["type"] == "enabled"
    else:
        # nothing of the record is taken for a turn that two models made
        assert [b["type"] for b in assistant] == ["tool_use"] and sent.get(
            "thinking", {"type": "disabled"}
        ) == {"type": "disabled"}


def test_a_client_that_leaves_before_the_turn_is_deferred_has_no_other_model_asked(
    place: Place,
) -> None:
    product, replay = place
    session = new_session()
    body = answer(
        "openai", "I list.", "bash", {"command": "ls"}, f"call_{session}", streamed=True
    ).body
    replay.answer(stream(body, ending="hang"), stream(b""))
    tools = [tool("openai", "bash", command="string")]
    request = {
        "model": "gpt-x",
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
        "tools": tools,
    }
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-policy": "to-openai",
        "x-sluice-session": session,
    }
    with httpx.stream(
        "POST", product.url + "/v1/chat/completions", json=request, headers=headers
    ) as answered:
        # chunks that wait for a verdict are on record at the next sweep
        call_id = answered.headers["x-sluice-call-id"]
        wait_for(
            lambda: recorded_bytes(product, call_id) == body,
            timeout_s=15,
            what="all of the first answer on record",
        )
    call = call_of(product, session)
    assert call["reason"] == "client_gone" and len(replay.asked) == 1
    [_, waiting] = product.audit(f"calls/{call['call_id']}")["blocks"]
    assert (waiting["kind"], waiting["verdict"], waiting["reason"]) == (
        "tool_use",
        "withheld",
        "undecided",
    )
    assert (
        wait_for(lambda: replay.left == 1, timeout_s=5, what="upstream is left")
        and len(replay.asked) == 1
    )


@pytest.mark.parametrize("client", DIALECTS)
def test_a_large_history_goes_to_the_other_model_whole(place: Place, client: DialectName) -> None:
    product, replay = place
    session = new_session()
    replay.answer(
        answer(client, "I list.", "bash", {"command": "ls"}, f"call_{session}a", streamed=True),
        answer("openai", "I look.", "look", {"at": "x"}, f"call_{session}b", streamed=True),
    )
    history = [
        {"role": role, "content": "word " * 2_000}
        for _ in range(60)
        for role in ("user", "assistant")
    ]
    messages = [*history, {"role": "user", "content": "go"}]
    said = asking(product, client, "iterate", messages, "to-openai", session=session)
    assert said.plain_calls == [("look", {"at": "x"})]
    assert [len(m["content"]) for m in replay.asked[1].body["messages"]] == [10_000] * 120 + [2]


def test_the_client_is_shown_life_while_the_other_model_answers(
    place: Place,
) -> None:
    product, replay = place
    session = new_session()
    slow = answer("openai", "I look.", "look", {"at": "x"}, f"call_{session}b", streamed=True)
    replay.answer(
        answer(
            "anthropic", "I list.", "bash", {"command": "ls"}, f"call_{session}a", streamed=True
        ),
        stream(slow.body, cutting="events", gap_s=0.5),
    )
    tools = [tool("anthropic", "bash", command="string")]
    request = {
        "model": MODEL["anthropic"],
        "max_tokens": 9,
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
        "tools": tools,
    }
    answered = httpx.post(
        product.url + "/v1/messages",
        json=request,
        headers={"x-api-key": KEY, "x-sluice-policy": "to-openai"},
        timeout=30,
    )
    assert (
        answered.text.count("event: ping") >= 1
        and '"name":"look"' in answered.text
        and '"bash"' not in answered.text
    )


@pytest.mark.slow
def test_calls_of_both_answers_may_be_drawn_for_an_audit_and_the_draws_are_right(
    place: Place,
) -> None:
    product, replay = place
    session = new_session()
    replay.answer(
        answer(
            "openai",
            "I delete.",
            "bash",
            {"command": "rm -rf /data"},
            f"call_{session}a",
            streamed=True,
        ),
        answer("anthropic", "I look.", "look", {"at": "x"}, f"call_{session}b", streamed=True),
    )
    said = asking(product, "openai", "helper", "go", "audited", session=session)
    assert said.plain_calls == [("look", {"at": "x"})]
    call = call_of(product, session)
    known = product.audit(f"calls/{call['call_id']}")
    decided = [(d["attempt"], d["action"], d["audit"]) for d in known["decisions"]]
    assert decided == [(0, "defer", "sampled"), (1, "allow", "sampled")]
    assert [(a["attempt"], a["chosen"]) for a in known["attempts"]] == [(0, False), (1, True)]

    def drawn() -> list[Json]:
        return [r for r in product.audit("reviews")["items"] if r["call_id"] == call["call_id"]]

    reviews = wait_for(drawn, timeout_s=10, what="the draws among what is to be looked at")
    assert sorted((r["name"], r["verdict"]) for r in reviews) == [
        ("bash", "discarded"),
        ("look", "allow"),
    ], reviews
    wait_for(
        lambda: not product.audit("verify", call_id=call["call_id"])["unsealed"],
        timeout_s=10,
        what="the seal",
    )
    verified = product.audit("verify", call_id=call["call_id"])
    assert (verified["ok"], verified["incomplete"]) == (True, 0), verified


@pytest.mark.slow
def test_a_client_that_leaves_while_the_other_model_answers_ends_that_answer_too(
    place: Place,
) -> None:
    product, replay = place
    session = new_session()
    second = answer("openai", "I look.", "look", {"at": "x"}, f"call_{session}b", streamed=True)
    body = second.body.partition(b"data: [DONE]")[0]
    replay.answer(
        answer("openai", "I list.", "bash", {"command": "ls"}, f"call_{session}a", streamed=True),
        stream(body, ending="hang"),
    )
    tools = [tool("openai", "bash", command="string"), tool("openai", "look", at="string")]
    request = {
        "model": "gpt-x",
        "stream": True,
        "messages": [{"role": "user", "content": "go"}],
        "tools": tools,
    }
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-policy": "to-openai",
        "x-sluice-session": session,
    }
    with httpx.stream(
        "POST", product.url + "/v1/chat/completions", json=request, headers=headers
    ) as answered:
        call_id = answered.headers["x-sluice-call-id"]
        wait_for(
            lambda: recorded_bytes(product, call_id).endswith(body),
            timeout_s=15,
            what="what the other model said on record",
        )
        shown = b"".join(itertools.islice(answered.iter_raw(), 1))
    call = call_of(product, session)
    assert call["reason"] == "client_gone" and len(replay.asked) == 2 and b'"look"' not in shown
    assert wait_for(lambda: replay.left == 1, timeout_s=5, what="upstream is left")
    known = product.audit(f"calls/{call_id}")
    assert [(c["name"], c["verdict"]) for c in known["tool_calls"]] == [("bash", "discarded")]
    assert [(a["attempt"], a["chosen"]) for a in known["attempts"]] == [(0, False)]
    assert {b["verdict"] for b in known["blocks"]} <= {"allow", "withheld", "discarded"}
    # the text of the first went out; of the other nothing did
    assert [b["block"] for b in known["blocks"] if b["verdict"] == "allow"] == [0]
    wait_for(
        lambda: not product.audit("verify", call_id=call_id)["unsealed"],
        timeout_s=10,
        what="the seal",
    )
    assert product.audit("verify", call_id=call_id)["ok"]
