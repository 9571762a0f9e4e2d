"""The request tab: what it shows of a request has a bound, and what it leaves out is counted."""

from typing import Any

from pages.call import request
from protocol.dialects.table import CLIENTS, DEFAULT
from tests.support.json_values import Json, as_json


def shown(**body: Any) -> Json:
    """What the page shows of a request in the dialect of Anthropic."""
    made = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hello"}],
        **body,
    }
    return request.shown(CLIENTS.get("anthropic", DEFAULT).decode_request(as_json(made)))


def test_parts_of_a_turn_have_a_bound_and_the_rest_is_counted() -> None:
    parts = [{"type": "text", "text": "a\u200b" * 1000} for _ in range(2000)]
    [turn] = shown(messages=[{"role": "user", "content": parts}])["open"]
    assert len(turn["parts"]) + turn["more"] == 2000 and turn["more"] == 2000 - request.PARTS
    assert all(part["length"] == 2000 for part in turn["parts"])
    text = "".join(part["text"] for part in turn["parts"])
    # what is spelled out is counted as long as it is on the page
    assert 0 < len(text) * 60 / 2 < request.BUDGET + 4_000 * 60
    assert turn["parts"][-1]["cut"] and not turn["parts"][-1]["text"]


def test_the_newest_turn_has_its_room_first() -> None:
    turns = [{"role": ("user", "assistant")[n % 2], "content": "x" * 3_999} for n in range(61)]
    made = shown(messages=turns)
    assert made["not_listed"] == 1 and [part["cut"] for part in made["open"][0]["parts"]] == [False]
    assert (
        sum(len(part["text"]) for row in [*made["open"], *made["folded"]] for part in row["parts"])
        <= request.BUDGET
    )


def test_instructions_and_tools_have_a_bound_and_say_their_length() -> None:
    tools = [
        {"name": f"t{n}", "description": "d" * 5_000, "input_schema": {"type": "object"}}
        for n in range(300)
    ]
    made = shown(system=[{"type": "text", "text": "s" * 9_000}] * 30, tools=tools)
    assert (len(made["system"]), made["system_more"]) == (20, 10) and made["system"][0][
        "length"
    ] == 9_000
    assert (len(made["tools"]), made["tools_more"]) == (200, 100)
    first = made["tools"][0]["description"]
    assert (len(first["text"]), first["length"], first["cut"]) == (300, 5_000, True)


def test_an_option_that_is_cut_says_so() -> None:
    [stop] = [
        value for name, value in shown(stop_sequences=["z" * 2_000])["facts"] if name == "stop"
    ]
    assert "the first 600 of 2,000 characters" in stop
