"""The pages of sessions through the product: each turn once, whatever the agent sends again, and
what was refused where it was asked."""

import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from pages import conversation
from protocol.conversations.histories import MARK_BYTES
from protocol.errors import InvalidRequest, NotFound
from tests.support.checks.record import rows
from tests.support.clients.agent import PAGE, SESSION, TYPED, twelve_calls
from tests.support.json_values import Json
from tests.support.servers.asked import Made, Pages, Shown
from tests.support.servers.asked import ask as ask_pages
from tests.support.servers.denied import RULES
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for


def configuration() -> Json:
    """A series by rules."""
    base = base_config()
    base["policies"] = {"rules": [{"use": "tool_rules", "deny": RULES}]}
    for key in base["keys"]:
        key["policies"] = list(base["policies"])
    return base


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores, configuration()) as made:
        yield made


@pytest.fixture(scope="module")
def ids(product: Product) -> dict[str, list[str]]:
    return twelve_calls(product)


def ask(product: Product, work: Callable[[Pages], Awaitable[Made]]) -> Made:
    return ask_pages(product.database_url, configuration(), work)


def page(product: Product, url: str) -> Shown:
    return ask(product, lambda pages: pages.page(url))


def typed_of(shown: Shown) -> list[str]:
    """What clients typed, in the order of the page."""
    steps = [step for group in shown.values["groups"] for step in group["steps"]]
    turns = [turn for step in steps for turn in step["turns"]]
    return [
        part["text"]
        for turn in turns
        if turn["role"] == "user"
        for part in turn["parts"]
        if part["kind"] == "text"
    ]


@pytest.mark.slow
def test_of_12_calls_each_turn_is_there_once(product: Product, ids: dict[str, list[str]]) -> None:
    shown = page(product, PAGE)
    assert sorted(typed_of(shown)) == sorted(["name this: mend the tests", *TYPED])
    assert [
        step["call"]["call_id"]
        for group in shown.values["groups"]
        if group["is_main"]
        for step in group["steps"]
    ] == ids["main"]
    [side, sub] = [group for group in shown.values["groups"] if not group["is_main"]]
    assert side["is_side"] and [step["call"]["call_id"] for step in side["steps"]] == ids["title"]
    assert (sub["agent"], sub["head"], [step["call"]["call_id"] for step in sub["steps"]]) == (
        "a1",
        "look around: say look",
        ids["sub"],
    )
    results = [
        part["text"]
        for group in shown.values["groups"]
        for step in group["steps"]
        for turn in step["turns"]
        for part in turn["parts"]
        if part["kind"] == "tool_result"
    ]
    assert len(results) == len(set(results))


def test_what_was_refused_and_replaced_stands_where_it_was_asked(
    product: Product, ids: dict[str, list[str]]
) -> None:
    shown = page(product, PAGE)
    acts = {
        step["call"]["call_id"]: [
            (act["name"], act["verdict"], act["released"])
            for act in step["acts"]
            if act["kind"] == "tool_use"
        ]
        for group in shown.values["groups"]
        for step in group["steps"]
    }
    assert [act[:2] for act in acts[ids["main"][2]] if act[1] == "block"] == [("bash", "block")]
    assert ("get_weather", "replace", '{"city":"Oslo"}') in [
        (n, v, r and r.replace(" ", "")) for n, v, r in acts[ids["main"][3]]
    ]
    assert "never released" in shown.html
    kinds = [(mark["call_id"], mark["kind"]) for mark in shown.values["marks"]]
    assert (ids["main"][2], "block") in kinds and (ids["main"][3], "replace") in kinds


def test_a_changed_history_and_a_foreign_turn_are_said(
    product: Product, ids: dict[str, list[str]]
) -> None:
    shown = page(product, PAGE)
    steps = {
        step["call"]["call_id"]: step for group in shown.values["groups"] for step in group["steps"]
    }
    changed = steps[ids["main"][5]]
    assert (changed["changed"], changed["common"]) == (True, 2)
    signs = {
        (line["sign"], "".join(text for text, _ in line["parts"]))
        for line in changed["change"]["lines"]
    }
    assert ("+", "what was before, in short") in signs and ("-", "list the files") in signs
    assert "History changed from turn 3 on" in shown.html
    assert steps[ids["main"][7]]["begins"] and not steps[ids["main"][6]]["begins"]
    foreign = [
        (call, turn["number"])
        for call, step in steps.items()
        for turn in step["turns"]
        if turn["is_foreign"]
    ]
    assert foreign == [(ids["main"][8], 1)]
    assert shown.html.count("not what Sluice released") == 1


def test_a_page_has_20_calls_and_leads_to_the_others(
    product: Product, ids: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.views.sessions.CALLS", 2)
    first = page(product, PAGE)
    assert (
        first.values["pager"]["earlier"] is None
        and f"from={ids['main'][2]}" in first.values["next_refusal"]
    )
    # on one page each refused call leads to the next, and the page to the first
    monkeypatch.setattr("pages.views.sessions.CALLS", 12)
    whole = page(product, PAGE)
    refused = sorted(
        step["index"]
        for group in whole.values["groups"]
        for step in group["steps"]
        if step["call"]["refused"]
    )
    assert whole.values["next_refusal"] == f"#c{refused[0] + 1}"
    assert whole.values["following"] == {
        str(one): f"#c{after + 1}" for one, after in itertools.pairwise(refused)
    }
    monkeypatch.setattr("pages.views.sessions.CALLS", 2)
    seen, shown = typed_of(first), first
    while shown.values["pager"]["later"]:
        shown = page(product, shown.values["pager"]["later"])
        seen += typed_of(shown)
    assert len(seen) == len(set(seen)) == 12
    assert shown.values["pager"]["end"] is None and shown.values["pager"]["earlier"]
    with pytest.raises(InvalidRequest):
        page(product, f"{PAGE}?from={'0' * 8}")


@pytest.mark.slow
def test_the_list_shows_what_a_person_typed_first(
    product: Product, ids: dict[str, list[str]]
) -> None:
    other = httpx.post(
        f"{product.url}/v1/chat/completions",
        json={
            "model": "demo",
            "messages": [{"role": "user", "content": "say hi"}],
            "prompt_cache_key": "shared",
        },
        headers={"authorization": f"Bearer {KEY}"},
        timeout=20,
    )
    call = other.headers["x-sluice-call-id"]
    wait_for(
        lambda: (
            rows(
                product.database_url,
                "SELECT 1 FROM histories JOIN ends USING (call_id) WHERE call_id = %s",
                call,
            )
            != []
        )
    )
    shown = page(product, "/debug/sessions")
    guessed, agent = [one for one in shown.values["items"] if one["session"] in ("shared", SESSION)]
    assert (guessed["guessed"], guessed["preview"]) == (True, "say hi")
    assert (agent["preview"], agent["program"], agent["calls"]) == (
        "mend the tests: say one",
        "Claude Code",
        12,
    )
    assert (
        agent["refused"] >= 1
        and agent["replaced"] >= 1
        and agent["tool_calls"] >= 3
        and agent["models"] == ["demo"]
    )
    assert PAGE in shown.html and "a guess, by <code>prompt_cache_key</code>" in shown.html
    assert product.audit("sessions")["items"] == shown.values["items"]
    # its words are of the conversation's first call, and who reads them reads that call
    read = shown.page.shown
    assert agent["preview_call_id"] == ids["main"][0] and read is not None
    assert {agent["call_id"], ids["main"][0]} <= set(map(str, read.call_ids))
    told = rows(
        product.database_url,
        "SELECT call_ids FROM reads WHERE path = '/audit/sessions' ORDER BY at DESC LIMIT 1",
    )
    assert ids["main"][0] in [str(call) for call in told[0][0]]
    assert page(product, "/debug/conversation-logs").values["items"] == shown.values["items"]
    one = page(product, "/debug/sessions?limit=1")
    assert [item["session"] for item in one.values["items"]] == ["shared"]
    then = page(product, one.values["pager"]["older"])
    assert [item["session"] for item in then.values["items"]] == [SESSION]
    assert page(product, "/debug/sessions?key=nobody").values["items"] == []
    with pytest.raises(NotFound):
        page(product, "/debug/sessions/other/shared")


def test_a_session_of_more_calls_than_are_read_says_so(
    product: Product, ids: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page(product, PAGE)
    assert not whole.values["more"]
    # the first calls have 1, 1 and 3 turns
    monkeypatch.setattr("db.read.sessions.MARK_BYTES", MARK_BYTES * 5)
    shown = page(product, PAGE)
    assert shown.values["more"] and 0 < shown.values["calls"] < 12
    assert f"The first {shown.values['calls']} calls are shown" in shown.html
    lines = [
        json.loads(line)
        for line in (
            ask(product, lambda pages: pages.file(f"{PAGE}?export=jsonl")).decode().splitlines()
        )
    ]
    assert lines[-1] == {"more": True, "calls": len(lines) - 1}
    assert "⟦more calls than".encode() in ask(
        product, lambda pages: pages.file(f"{PAGE}?export=text")
    )


def test_what_stood_in_a_history_before_is_read_too(
    product: Product, ids: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.views.sessions.CALLS", 1)
    seen = threading.Event()

    def steps(*given: Any, **more: Any) -> Any:
        # away from the loop, in which live views are served
        if threading.current_thread() is not threading.main_thread():
            seen.set()
        return conversation.steps(*given, **more)

    monkeypatch.setattr("pages.views.sessions.steps", steps)
    read = page(product, f"{PAGE}?from={ids['main'][5]}").page.shown
    assert read is not None and seen.is_set()
    assert str(read.call_ids[0]) == ids["main"][5] and len(read.call_ids) == 2
    assert str(read.call_ids[1]) in ids["main"][:5]


def test_a_list_is_read_some_sessions_at_a_time(
    product: Product, ids: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page(product, "/debug/sessions").values["items"]
    monkeypatch.setattr("db.read.session_list._AT_ONCE", 1)
    assert page(product, "/debug/sessions").values["items"] == whole


@pytest.mark.slow
def test_unknown_exports_are_refused(product: Product, ids: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidRequest):
        ask(product, lambda pages: pages.answer(f"{PAGE}?export=pdf"))


@pytest.mark.slow
def test_the_list_ends_where_enough_calls_were_looked_through(
    product: Product, ids: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.read.session_list.LOOK_THROUGH", 2)
    monkeypatch.setattr("db.read.session_list._STEP", 2)
    seen: list[str] = []
    url: str | None = "/debug/sessions"
    while url:
        shown = page(product, url)
        seen += [item["session"] for item in shown.values["items"]]
        url = shown.values["pager"]["older"]
    assert len(seen) == len(set(seen)) and SESSION in seen
