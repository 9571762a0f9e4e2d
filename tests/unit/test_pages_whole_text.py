"""A call as plain text: bytes can be read back out of it, and nobody can write a line that looks
like ours."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.call import request, whole_text
from pages.views import text as texts
from tests.support.checks.whole_text import released_in
from tests.support.request_codecs import read_request
from tests.support.waiting import watched

ODD = st.text(alphabet="a⟦⟧\x1b\u202e\u200b\x00\r\n U+0byte1", max_size=30)


@given(st.binary(max_size=60) | ODD.map(str.encode))
def test_bytes_can_be_read_back(data: bytes) -> None:
    text = whole_text.spell_bytes(data)
    assert whole_text.unspell(text) == data
    text.encode()


@given(st.text(max_size=30) | ODD)
def test_what_came_from_outside_never_looks_like_a_line_of_ours(text: str) -> None:
    spelled = whole_text.spell(text)
    assert "⟦" not in spelled.replace("⟦U+", "").replace("⟦byte ", "")
    assert whole_text.mark(text).count("\n") == 1
    assert not any(ord(one) < 32 for one in spelled if one not in "\n\t")


@given(st.lists(st.tuples(st.binary(max_size=20) | ODD.map(str.encode), st.booleans()), max_size=6))
def test_what_the_client_got_is_read_back_out_of_the_whole(
    pieces: list[tuple[bytes, bool]],
) -> None:
    whole = whole_text.ABOUT
    for number, (data, relayed) in enumerate(pieces):
        piece = {"kind": "release", "number": number, "bytes": len(data), "relayed": relayed}
        whole += f"{whole_text.written(piece)}{whole_text.spell_bytes(data)}\n"
    assert released_in(whole + whole_text.mark("end")) == b"".join(
        data for data, relayed in pieces if relayed
    )


@pytest.mark.slow
async def test_what_nobody_would_see_is_spelled_out_beside_the_loop_and_in_small_pieces() -> None:
    """A slice of the record, of which each character is a step of Python: whole, it held the loop
    for half a second and more."""
    data = b"\x7f" * 2**21 + "é€".encode() * 2**15

    async def slices() -> AsyncIterator[bytes]:
        yield data[:-1]
        yield data[-1:]

    async with watched() as loop:
        pieces = [piece async for piece in texts._spelled(slices())]
    assert whole_text.unspell(b"".join(pieces).decode()) == data
    assert max(map(len, pieces)) <= len("⟦U+007F⟧".encode()) * (texts.SPELLED_BYTES + 4)
    assert loop.longest_s < 0.25


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def asked(dialect: str, *contents: Any) -> Any:
    """A request with these turns of a user, an answer behind each but the last."""
    turns = [
        {"role": "user" if place % 2 == 0 else "assistant", "content": content}
        for place, content in enumerate(contents)
    ]
    return read_request(dialect, {"model": "m", "max_tokens": 5, "messages": turns})


def test_a_request_is_read_turn_by_turn_from_the_newest() -> None:
    shown = request.shown(asked("openai", *(f"turn {n}" for n in range(9))))
    assert [turn["number"] for turn in shown["open"]] == [8, 7, 6] and [
        turn["number"] for turn in shown["folded"]
    ] == [5, 4, 3, 2, 1, 0]
    assert (
        "".join(whole_text.request(asked("openai", "one", "two")))
        == "⟦request: turn 0: user⟧\none\n⟦request: turn 1: assistant⟧\ntwo\n"
    )
    assert len(request.shown(asked("openai", "a", "b", "c"), new=1)["open"]) == 1
    many = request.shown(asked("openai", *("x" for _ in range(201))))
    assert many["not_listed"] == 201 - request.LISTED


def test_a_long_turn_is_cut_and_says_so() -> None:
    [turn] = request.shown(asked("anthropic", "x" * 10_000))["open"]
    assert (turn["parts"][0]["cut"], turn["parts"][0]["length"], len(turn["parts"][0]["text"])) == (
        True,
        10_000,
        request.MOST,
    )


def test_images_are_facts_and_a_download_whatever_the_dialect() -> None:
    source = {"type": "base64", "media_type": "image/jpeg", "data": PIXEL}
    whole = asked(
        "anthropic", [{"type": "image", "source": source}, {"type": "text", "text": "look"}]
    )
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    for one in (whole, asked("openai", [url, {"type": "text", "text": "look"}])):
        [turn] = request.shown(one)["open"]
        [file] = [file for part in turn["parts"] for file in part["files"]]
        # what the sender said it is does not count
        assert (file["media_type"], file["size"]) == ("image/png", 70)
        assert [found.sha256 for found in request.files(one)] == [file["sha256"]]
