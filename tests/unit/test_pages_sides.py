"""What upstream said and what the client got, by content block, out of the bytes that are on
record."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.call.sides import BlockOutcome, Got, Listener, SideBlock, align, in_order, read_client
from protocol.dialects.table import DIALECTS
from tests.support.json_values import Json


def frame(value: Json) -> bytes:
    """A server-sent event of the Messages dialect."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def messages(*blocks: tuple[Json, list[Json]]) -> list[bytes]:
    """A streamed answer of that dialect."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "usage": usage,
    }
    frames = [frame({"type": "message_start", "message": start})]
    for index, (begin, deltas) in enumerate(blocks):
        frames.append(
            frame({"type": "content_block_start", "index": index, "content_block": begin})
        )
        frames += [
            frame({"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        ]
        frames.append(frame({"type": "content_block_stop", "index": index}))
    frames.append(
        frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    )
    return [*frames, frame({"type": "message_stop"})]


def text(*pieces: str) -> tuple[Json, list[Json]]:
    """A text block."""
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]


def heard(*raw: bytes, dialect: str = "") -> Listener:
    """What is read of raw chunks."""
    listener = Listener(in_order(dialect))
    for one in raw:
        listener.take(one)
    listener.finish()
    return listener


def test_each_block_is_read_with_its_kind() -> None:
    call = (
        {"type": "tool_use", "id": "t", "name": "bash", "input": {}},
        [{"type": "input_json_delta", "partial_json": '{"a": 1}'}],
    )
    hidden: tuple[Json, list[Json]] = (
        {"type": "redacted_thinking", "data": "x" * 40},
        [],
    )
    found = heard(*messages(hidden, text("a", "b"), call))
    assert [(said.kind, said.name, said.text, said.sealed) for said in found.blocks.values()] == [
        ("thinking", "redacted_thinking", "", 40),
        ("text", "", "ab", 0),
        ("tool_use", "bash", '{"a": 1}', 0),
    ]
    assert not found.problem


@pytest.mark.parametrize("said", sorted(DIALECTS))
def test_the_dialect_is_found_whatever_was_expected(said: str) -> None:
    assert heard(*messages(text("hello")), dialect=said).blocks[0].text == "hello"
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi"}}],
    }
    assert heard(f"data: {json.dumps(chunk)}\n\n".encode(), dialect=said).blocks[0].text == "hi"


def test_an_answer_that_goes_on_is_numbered_as_in_the_record() -> None:
    listener = Listener(in_order(None))
    for answer, first in ((messages(text("one")), 0), (messages(text("two")), 4)):
        for raw in answer:
            listener.take(raw, first if b"content_block" in raw else -1)
    assert {number: said.text for number, said in listener.blocks.items()} == {0: "one", 4: "two"}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"error": {"message": "out of order", "type": "server_error"}}',
        b'{"type": "error", "error": {"message": "out of order"}}',
        b' [{"error": {"code": 500, "message": "out of order", "status": "INTERNAL"}}]',
        b'{"message": "out of order", "__type": "X"}',
        b'{"detail": "out of order"}',
    ],
)
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_an_upstreams_error_is_an_error_and_no_answer_that_cannot_be_decoded(
    raw: bytes, dialect: str
) -> None:
    found = heard(raw, dialect=dialect)
    assert (found.failed, found.problem) == ("out of order", "")


def test_what_is_no_answer_is_said_to_be_none() -> None:
    assert heard(b'{"nonsense": true}').problem
    assert heard(b"data: nonsense\n\n").blocks == {}
    assert heard(b"\xff\xfe\n\n", b"", b"\n\n").blocks == {}


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_nothing_that_is_on_record_is_too_much_for_it(raw: list[bytes]) -> None:
    heard(*messages(text("a"))[:3], *raw)
    read_client(raw, None, streams=True)
    read_client(raw, None, streams=False)


def of_text(number: int, text: str, *, passed: bool = True) -> BlockOutcome:
    return BlockOutcome(number, False, text, passed)


def of_call(number: int, released: str | None = None) -> BlockOutcome:
    return BlockOutcome(number, True, "{}", released=released)


TEXT, CALL = "text", "tool_use"


def got(*pieces: tuple[str, str]) -> list[SideBlock]:
    """Blocks of the client's side."""
    return [SideBlock(number, kind, pieces=[text]) for number, (kind, text) in enumerate(pieces)]


def test_a_notice_is_what_the_client_got_for_the_blocked_call() -> None:
    blocks = [of_text(0, "Let me look. "), of_call(1), of_text(2, "And then I am done.")]
    joined = got((TEXT, "Let me look. [not executed]And then I am done."))
    apart = got((TEXT, "Let me look. "), (TEXT, "[not executed]"), (TEXT, "And then I am done."))
    for client in (joined, apart):
        found, left = align(blocks, client)
        assert (found[1], left) == (Got("[not executed]"), "")
        assert found[2].text == "And then I am done."


def test_what_two_blocks_left_together_is_said_to_be_of_both() -> None:
    found, _ = align(
        [of_call(1), of_call(2), of_call(3, "{}")], got((TEXT, "[no][no]"), (CALL, "{}"))
    )
    assert found[1] == found[2] == Got("[no][no]", (1, 2))
    assert found[3] == Got("{}")


def test_what_the_client_got_besides_is_left() -> None:
    assert align([of_text(0, "a")], got((TEXT, "ab"))) == ({0: Got("a")}, "b")
    assert align([], got((TEXT, "error"))) == ({}, "error")


@given(
    st.lists(st.tuples(st.booleans(), st.text("ab", max_size=14), st.booleans()), max_size=6),
    st.lists(st.tuples(st.sampled_from((TEXT, CALL)), st.text("ab", max_size=20)), max_size=6),
)
def test_nothing_that_the_client_got_is_lost(
    blocks: list[tuple[bool, str, bool]], client: list[tuple[str, str]]
) -> None:
    decided = [
        BlockOutcome(n, is_call, text, ok, text if ok else None)
        for n, (is_call, text, ok) in enumerate(blocks)
    ]
    found, left = align(decided, got(*client))
    groups = {(entry.shared or number, entry.text) for number, entry in found.items()}
    texts = sum(len(text) for kind, text in client if kind == TEXT)
    assert sum(len(text) for _, text in groups) + len(left) >= texts
