"""Options of chat/completions, as a Messages request says them: kept, changed, left out by name, or
refused by name."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from protocol.request import OtherPart, Turn
from protocol.target import Target
from tests.support.clients.to_anthropic import (
    ADAPTIVE,
    ANSWER,
    BUDGET,
    EPHEMERAL,
    NEWEST,
    OLD,
    TOOL,
    UNKNOWN,
    USER,
    WRITTEN,
    call,
    cross,
    read,
    refused,
    translate,
)
from tests.support.json_values import Json
from tests.support.request_codecs import sent_body, written_body

# --- options ---


def test_web_search() -> None:
    place = {"city": "Paris", "country": "FR", "region": "IDF", "timezone": "Europe/Paris"}
    options = {
        "search_context_size": "low",
        "user_location": {"type": "approximate", "approximate": place},
    }
    search = {
        "type": "web_search_20250305",
        "name": "web_search",
        "max_uses": 1,
        "user_location": {"type": "approximate", **place},
    }
    assert cross(web_search_options=options, tools=[TOOL])["tools"] == [WRITTEN, search]
    assert cross(web_search_options={"user_location": None})["tools"] == [
        {"type": "web_search_20250305", "name": "web_search"}
    ]
    assert refused(web_search_options=options, families=frozenset()) == "web_search_options"
    assert (
        refused(
            web_search_options={}, tools=[{"type": "function", "function": {"name": "web_search"}}]
        )
        == "web_search_options"
    )
    assert refused(web_search_options={"search_context_size": "huge"}) == "web_search_options"
    assert refused(web_search_options={"user_location": {"type": "exact"}}) == "web_search_options"
    assert refused(web_search_options=7) == "web_search_options"


@pytest.mark.parametrize(
    ("model", "effort", "limit", "expected", "dropped"),
    [
        (
            BUDGET,
            "minimal",
            9000,
            {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
            (),
        ),
        (
            BUDGET,
            "high",
            2000,
            {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1999}},
            (),
        ),
        (BUDGET, "high", 1024, {"max_tokens": 1024}, ("reasoning_effort",)),
        (
            BUDGET,
            "high",
            None,
            {"max_tokens": 12288, "thinking": {"type": "enabled", "budget_tokens": 8192}},
            (),
        ),
        (BUDGET, "none", None, {"max_tokens": 4096, "thinking": {"type": "disabled"}}, ()),
        (
            UNKNOWN,
            "low",
            None,
            {"max_tokens": 6144, "thinking": {"type": "enabled", "budget_tokens": 2048}},
            (),
        ),
        (OLD, "low", None, {"max_tokens": 6144}, ("reasoning_effort",)),
        (OLD, "none", None, {"max_tokens": 4096}, ()),
        (
            NEWEST,
            "minimal",
            9,
            {
                "max_tokens": 9,
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "low"},
            },
            (),
        ),
        (
            ADAPTIVE,
            "xhigh",
            9,
            {
                "max_tokens": 9,
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"},
            },
            (),
        ),
        (NEWEST, "none", 9, {"max_tokens": 9, "thinking": {"type": "disabled"}}, ()),
    ],
)
def test_effort(
    model: str, effort: str, limit: int | None, expected: Json, dropped: tuple[str, ...]
) -> None:
    """LiteLLM asks for more thinking than the answer may have tokens (high with max_tokens 2000):
    the provider refuses that."""
    done = translate(model=model, reasoning_effort=effort, max_tokens=limit)
    assert {k: v for k, v in sent_body(done).items() if k not in ("model", "messages")} == expected
    assert done.dropped == dropped


def test_a_turn_in_the_middle_thinks_only_where_its_thinking_is_known() -> None:
    messages = [
        USER,
        {"role": "assistant", "tool_calls": [call("a")]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
    ]
    done = translate(model=BUDGET, reasoning_effort="low", messages=messages)
    assert ("thinking" in sent_body(done), done.dropped) == (
        False,
        ("reasoning_effort",),
    )
    request = read({"model": BUDGET, "reasoning_effort": "low", "messages": messages})
    known = Turn(
        "assistant",
        (OtherPart("thinking", {"type": "thinking"}, "anthropic"), *request.turns[1].parts),
    )
    request = msgspec.structs.replace(request, turns=(request.turns[0], known, request.turns[2]))
    assert "thinking" in written_body(request, Target(dialect="anthropic"))
    assert "thinking" in cross(model=BUDGET, reasoning_effort="low", messages=[USER, ANSWER, USER])


def test_the_vendors_own_words_of_thinking_count_first() -> None:
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert cross(thinking=thinking)["thinking"] == thinking
    done = translate(thinking=thinking, reasoning_effort="low")
    assert (sent_body(done)["thinking"], done.dropped) == (
        thinking,
        ("reasoning_effort",),
    )
    assert cross(model="claude-opus-4-5", thinking=thinking, reasoning_effort="max")[
        "output_config"
    ] == {"effort": "high"}
    assert cross(thinking=thinking, reasoning_effort="none")["thinking"] == thinking
    assert refused(thinking="hard") == "thinking"
    assert refused(reasoning_effort="heroic") == "reasoning_effort"
    assert refused(reasoning_effort=7) == "reasoning_effort"


@pytest.mark.parametrize(
    ("model", "given", "expected", "dropped"),
    [
        (BUDGET, {"max_tokens": 70_000}, 64_000, ("max_tokens",)),
        (
            BUDGET,
            {"max_completion_tokens": 70_000, "max_tokens": 5},
            64_000,
            ("max_completion_tokens",),
        ),
        (UNKNOWN, {"max_tokens": 10**9}, 10**9, ()),
        (UNKNOWN, {"max_completion_tokens": 7, "max_tokens": 5}, 7, ()),
        ("claude-3-haiku-20240307", {}, 4096, ()),
    ],
)
def test_max_tokens(model: str, given: Json, expected: int, dropped: tuple[str, ...]) -> None:
    done = translate(model=model, **given)
    assert (sent_body(done)["max_tokens"], done.dropped) == (expected, dropped)


@pytest.mark.parametrize(
    ("model", "given", "expected", "dropped"),
    [
        # LiteLLM forwards 1.7, which the provider refuses
        (UNKNOWN, {"temperature": 1.7, "top_p": 0.9}, {"temperature": 1.0, "top_p": 0.9}, ()),
        (UNKNOWN, {"temperature": 0, "top_k": 4}, {"temperature": 0.0, "top_k": 4}, ()),
        (BUDGET, {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5}, ("top_p",)),
        (BUDGET, {"top_p": 0.9}, {"top_p": 0.9}, ()),
        (
            NEWEST,
            {"temperature": 0.5, "top_p": 0.9, "top_k": 4},
            {},
            ("temperature", "top_p", "top_k"),
        ),
        (
            BUDGET,
            {"temperature": 0.5, "reasoning_effort": "low", "top_k": 4},
            {},
            ("temperature", "top_k"),
        ),
        (BUDGET, {"temperature": 1, "reasoning_effort": "low"}, {"temperature": 1.0}, ()),
        (BUDGET, {"top_p": 0.5, "reasoning_effort": "low"}, {}, ("top_p",)),
        (BUDGET, {"top_p": 0.97, "reasoning_effort": "low"}, {"top_p": 0.97}, ()),
        (ADAPTIVE, {"temperature": 0.5, "reasoning_effort": "low"}, {"temperature": 0.5}, ()),
    ],
)
def test_sampling(model: str, given: Json, expected: Json, dropped: tuple[str, ...]) -> None:
    done = translate(model=model, **given)
    body = sent_body(done)
    assert ({k: body[k] for k in ("temperature", "top_p", "top_k") if k in body}, done.dropped) == (
        expected,
        dropped,
    )


def test_stops_that_are_white_are_dropped_and_named() -> None:
    """LiteLLM forwards them, and the provider refuses."""
    done = translate(stop=["END", " ", "\n"])
    assert (sent_body(done)["stop_sequences"], done.dropped) == (["END"], ("stop",))
    assert cross(stop="END")["stop_sequences"] == ["END"]
    assert "stop_sequences" not in cross(stop="\n")


def test_whom_a_request_is_for_is_told_as_a_hash_alone() -> None:
    """LiteLLM drops what looks like an address without a word."""
    for field in ("user", "safety_identifier"):
        assert cross(**{field: "ann@example.com"})["metadata"] == {
            "user_id": sha256(b"ann@example.com").hexdigest()
        }
    assert refused(safety_identifier=7) == "safety_identifier"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("audio", {"voice": "a"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("moderation", {"model": "m"}),
        ("speed", "fast"),
        ("workspace_id", "w"),
        ("something_new", {"a": 1}),
        ("base_url", "http://evil"),
    ],
)
def test_what_cannot_be_said_there_is_refused_by_name(name: str, value: Any) -> None:
    assert refused(**{name: value}) == name


@pytest.mark.parametrize(
    ("name", "value", "beta"),
    [
        ("container", "container_1", None),
        ("context_management", {"edits": []}, "context-management-2025-06-27"),
        ("cache_control", EPHEMERAL, None),
        (
            "mcp_servers",
            [{"type": "url", "url": "https://mcp.example", "name": "n"}],
            "mcp-client-2025-11-20",
        ),
    ],
)
def test_the_vendors_own_words_pass_where_the_key_may(
    name: str, value: Any, beta: str | None
) -> None:
    done = translate(**{name: value})
    assert sent_body(done)[name] == value
    assert done.betas == ((beta,) if beta else ())
    if name in ("container", "mcp_servers"):
        assert refused(**{name: value}, families=frozenset()) == name


def test_beta_names_in_the_body_are_gated_like_those_of_the_header() -> None:
    done = translate(betas=["files-api-2025-04-14"])
    assert ("betas" in sent_body(done), done.betas) == (
        False,
        ("files-api-2025-04-14",),
    )
    gated = translate(betas=["files-api-2025-04-14"], families=frozenset())
    assert (gated.betas, gated.dropped) == ((), ("anthropic-beta: files-api-2025-04-14",))
