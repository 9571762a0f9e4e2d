"""`text_judge` through all processes: windows of an answer, the user's words, results of tools."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.checks.logins import log_in
from tests.support.clients.sdk_calls import DIALECTS, MODES, Mode, ask
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams.judges import MODEL, JudgeModel, judge_model
from tests.support.upstreams.product import call_of, config, new_session
from tests.support.upstreams.replay import Replay, Reply, replaying, stream
from tests.support.waiting import wait_for

SENTENCE = "This is sentence number {} of an answer, and it says nothing that matters. "
BAD = "Take 400 mg of the drug twice a day, as your doctor will not tell you. "
RULE = "No medical dosage advice for a named drug."
WINDOW = {"first": 60, "chars": 60, "overlap": 20}
JUDGE_S = 0.2


class Place:
    """A product, its upstream and its judge."""

    def __init__(self, product: Product, replay: Replay, judge: JudgeModel) -> None:
        self.product, self.replay, self.judge = product, replay, judge


def shown(prompt: str) -> Any:
    return json.loads(prompt.split("\n")[1])


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replaying() as replay, judge_model() as judge:
        made = config(replay)
        made["upstreams"]["judges"] = {"dialect": "openai", "base_url": f"{judge.url}/v1"}
        made["models"].insert(0, {"match": MODEL, "upstream": "judges"})
        common = {"use": "text_judge", "model": MODEL, "rule": RULE, "window": WINDOW}
        made["policies"] |= {
            "answers": [common],
            "turns": [common | {"on_block": "turn"}],
            "requests": [common | {"on": ["request"]}],
            "results": [common | {"on": ["tool_results"]}],
            "fresh": [common | {"cache": False}],
        }
        made["keys"][0]["policies"] += ["answers", "turns", "requests", "results", "fresh"]
        judge.decide = lambda prompt: 0.9 if "400 mg" in shown(prompt)["text"] else 0.1
        with running(*stores, made) as product:
            product.start("pages")
            yield Place(product, replay, judge)


def chunks(text: str, *, step: int = 9, gap_s: float = 0.0) -> Reply:
    deltas: list[Json] = [{"content": text[at : at + step]} for at in range(0, len(text), step)]
    frames = [
        b"data: "
        + as_json(
            {
                "id": "x",
                "model": "gpt-x",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }
        )
        + b"\n\n"
        for delta, reason in [*((delta, None) for delta in deltas), ({}, "stop")]
    ]
    return stream(b"".join(frames) + b"data: [DONE]\n\n", cutting="events", gap_s=gap_s)


def whole(text: str) -> Reply:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return Reply(as_json({"id": "x", "model": "gpt-x", "choices": [choice]}))


def headers(policy: str, session: str = "") -> dict[str, str]:
    return {"x-sluice-policy": policy, "x-sluice-session": session or new_session()}


TEXT = SENTENCE.format(1) + BAD + SENTENCE.format(3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", DIALECTS)
def test_a_window_that_breaks_the_rule_is_withheld_and_on_record(
    place: Place, client: str, mode: Mode
) -> None:
    session = new_session()
    place.replay.answer(whole(TEXT) if mode == "whole" else chunks(TEXT))
    sent = headers("answers", session)
    got = ask(place.product.url, client, mode, "go", model="gpt-x", headers=sent)
    assert "400 mg" not in got.text and "[Sluice withheld text here: judged harmful" in got.text
    assert got.text.startswith(SENTENCE.format(1)) and got.text.endswith(SENTENCE.format(3))
    call = call_of(place.product, session)
    assert (call["state"], call["reason"]) == ("ENDED", "complete")
    detail = place.product.audit(f"calls/{call['call_id']}")
    judged = {item["block"]: item for item in detail["judgements"]}
    verdicts = {item["block"]: item["verdict"] for item in detail["blocks"]}
    assert [item["probability"] for _, item in sorted(judged.items())] == [0.1, 0.9, 0.1]
    assert [verdicts[block] for block in sorted(judged)] == ["allow", "block", "allow"]
    assert verdicts[min(verdicts)] == "replace"
    listed = place.product.audit("judge-blocks", call_id=call["call_id"])["items"]
    assert [(item["policy"], item["judge"]["probability"]) for item in listed] == [
        ("text_judge", 0.9)
    ]


def test_the_turn_ends_with_a_window_where_that_is_wanted(place: Place) -> None:
    session = new_session()
    place.replay.answer(chunks(TEXT * 5, gap_s=0.005))
    sent = headers("turns", session)
    got = ask(place.product.url, "openai", "iterate", "go", model="gpt-x", headers=sent)
    assert got.text.startswith(SENTENCE.format(1)) and SENTENCE.format(3) not in got.text
    assert call_of(place.product, session)["reason"] == "complete"


def post(place: Place, policy: str, body: Json, *, session: str = "") -> httpx.Response:
    sent = {"authorization": f"Bearer {KEY}", **headers(policy, session)}
    url = f"{place.product.url}/v1/chat/completions"
    return httpx.post(url, json={"model": "gpt-x", **body}, headers=sent, timeout=30)


def test_blocked_words_of_the_user_never_reach_the_upstream(place: Place) -> None:
    place.replay.answer(whole("Fine."))
    messages = [{"role": "user", "content": BAD}, {"role": "assistant", "content": "No."}]
    got = post(place, "requests", {"messages": messages[:1]})
    assert got.status_code == 200 and place.replay.asked == []
    call_id = got.headers["x-sluice-call-id"]
    wait_for(
        lambda: [
            call
            for call in place.product.audit("calls", call_id=call_id)["items"]
            if call["state"] == "ENDED"
        ],
        what="the call on record",
    )
    with contextlib.closing(log_in(place.product, KEY)) as reader:
        page = reader.get(f"/debug/calls/{call_id}")
        assert page.status_code == 200 and "did not send your message" in page.text
        assert reader.get("/debug/judge-blocks").status_code == 200
    words = got.json()["choices"][0]
    assert words["finish_reason"] == "stop"
    assert "did not send your message" in words["message"]["content"]
    # the conversation goes on: only what is new is judged
    got = post(place, "requests", {"messages": [*messages, {"role": "user", "content": "Hi"}]})
    assert got.json()["choices"][0]["message"]["content"] == "Fine."


def test_a_blocked_result_is_replaced_and_no_judge_is_asked_about_it_twice(place: Place) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    other = call | {"id": "t2"}
    messages: list[Json] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call, other]},
        {"role": "tool", "tool_call_id": "t1", "content": BAD},
        {"role": "tool", "tool_call_id": "t2", "content": "good"},
    ]
    place.replay.answer(whole("Fine."))
    place.judge.asked.clear()
    for _ in range(2):
        got = post(place, "results", {"messages": messages})
        assert got.json()["choices"][0]["message"]["content"] == "Fine."
    first, second = (asked.body["messages"] for asked in place.replay.asked)
    assert first == second and first[3]["content"] == "good"
    assert first[2]["content"] == "[Sluice withheld this result: " + first[2]["content"][30:]
    assert sorted(shown(prompt)["text"] for prompt in place.judge.asked) == sorted([BAD, "good"])


def first_text_s(place: Place, policy: str) -> float:
    """How long a client waits for its first text."""
    body = {"model": "gpt-x", "stream": True, "messages": [{"role": "user", "content": "go"}]}
    sent = {"authorization": f"Bearer {KEY}", **headers(policy)}
    url = f"{place.product.url}/v1/chat/completions"
    began = time.monotonic()
    with httpx.stream("POST", url, json=body, headers=sent, timeout=30) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if "sentence number" in line)
        took_s = time.monotonic() - began
        list(lines)
    return took_s


def test_the_first_text_comes_one_judgement_behind_its_window(place: Place) -> None:
    decide, never = place.judge.decide, threading.Event()
    place.judge.decide = lambda prompt: float(never.wait(JUDGE_S))
    try:
        # the first event is the first window
        place.replay.answer(chunks(SENTENCE.format(1) * 6, step=len(SENTENCE), gap_s=0.01))
        plain_s, judged_s = (
            sorted(first_text_s(place, policy) for _ in range(5))[2] for policy in ("noop", "fresh")
        )
    finally:
        place.judge.decide = decide
    over_ms = (judged_s - plain_s - JUDGE_S) * 1000
    # 20 ms on a machine that does nothing else
    assert over_ms < 200, f"{over_ms:.1f} ms on top of the judgement"
    print(f"{over_ms:.1f} ms on top of the judgement")


def test_another_worker_takes_over_with_half_of_the_windows_judged(place: Place) -> None:
    text = "".join(SENTENCE.format(n) for n in range(6))
    product, judge = place.product, place.judge
    judge.asked.clear()
    decide, held = judge.decide, threading.Event()

    def half(prompt: str) -> float:
        if "number 3" in shown(prompt)["text"]:
            held.wait(30)
        return 0.1

    judge.decide = half
    try:
        place.replay.answer(chunks(text))
        got: list[str] = []
        session = new_session()
        body = {"model": "gpt-x", "stream": True, "messages": [{"role": "user", "content": "go"}]}
        sent = {"authorization": f"Bearer {KEY}", **headers("fresh", session)}
        url = f"{product.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, headers=sent, timeout=60) as answer:
            lines = answer.iter_lines()
            for line in lines:
                if line.startswith("data: {"):
                    got.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
                if "number 2" in "".join(got):
                    break
            owner = next(child for child in reversed(product.children) if child.role == "policy")
            product.start("policy")
            owner.kill(signal.SIGKILL)
            owner.wait()
            held.set()
            for line in lines:
                if line.startswith("data: {"):
                    got.append(json.loads(line[6:])["choices"][0]["delta"].get("content") or "")
        assert "".join(got) == text
        assert call_of(product, session)["reason"] == "complete"
    finally:
        held.set()
        judge.decide = decide
    wait_for(lambda: product.audit("calls", session=session)["items"], what="the record")
