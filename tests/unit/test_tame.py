"""Bookkeeping goes past the policies only when it cannot be prose."""

from typing import Any

import pytest

from protocol.bytes.bookkeeping import is_tame, tame_fields

DEEP: Any = {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}
TAME: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "",
    "standard",
    "us.anthropic.claude-x-5:0",
    "vendor/model@20260101",
    "2026-10-14T10:02:00.044495Z",
    "2026-10-14T10:02:00+00:00",
    "messages.1.content.0",
    {},
    [],
    {
        "input_tokens": 3,
        "iterations": [
            {"type": "message", "model": "m", "cache_creation": {"ephemeral_5m_input_tokens": 0}}
        ],
    },
    {
        "id": "container_1",
        "expires_at": "2026-10-14T10:02:00Z",
        "skills": [{"skill_id": "pptx", "type": "anthropic", "version": "latest"}],
    },
    list(range(900)),
]
WILD: list[Any] = [
    "two words",
    "a\nb",
    "https://example.test/x",
    "é",
    "x" * 129,
    "x" * 10_000,
    "\ud800",
    "<b>",
    float("inf"),
    float("nan"),
    1 << 63,
    -(1 << 63) - 1,
    b"x",
    {"a key": 1},
    {"k" * 65: 1},
    {"a": ["fine", "not fine"]},
    DEEP,
    list(range(1_001)),
    ["word" * 20] * 60,
    {"k" * 60 + str(i): 1 for i in range(80)},
]


@pytest.mark.parametrize("value", TAME, ids=repr)
def test_counts_names_and_times_pass(value: Any) -> None:
    assert is_tame(value)


@pytest.mark.parametrize("value", WILD, ids=lambda v: repr(v)[:40])
def test_anything_that_could_be_prose_does_not(value: Any) -> None:
    assert not is_tame(value)


def test_each_field_is_judged_alone_and_the_withheld_are_named() -> None:
    holder = {"input_tokens": 1, "note": "some prose", "k" * 90: "more prose"}
    assert tame_fields(holder, "usage") == (
        {"input_tokens": 1},
        ["usage note", "usage " + "k" * 60],
    )


def test_what_the_setting_names_passes_as_it_is() -> None:
    assert tame_fields({"note": "some prose"}, "usage", frozenset(("usage note",))) == (
        {"note": "some prose"},
        [],
    )


def test_too_much_of_it_is_withheld_together() -> None:
    words = {f"k{i}": "word" * 20 for i in range(60)}
    assert tame_fields({"note": "some prose"} | words, "usage", frozenset(("usage note",))) == (
        {"note": "some prose"},
        ["usage"],
    )
    assert tame_fields({f"k{i}": "two words" for i in range(1_001)}, "usage") == ({}, ["usage"])
