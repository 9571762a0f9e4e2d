"""The header x-sluice-dropped: names, ASCII, bounded; and that answers carry it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.session.session import Session
from protocol.dropped import HEADER, MAX_BYTES, header_value
from settings.config import Config
from streams import layout
from streams.layout import Entry
from tests.support.checks.owned_calls import BODY
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info, owned, start_of

CHUNK = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "hello"}}]}


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ((), ""),
        (("seed",), "seed"),
        (("seed", "logit_bias"), "seed,logit_bias"),
        (
            ("messages[2].name", "anthropic-beta: x", "a,b\r\nc\u00e9"),
            "messages[2].name,anthropic-beta: x,a?b??c?",
        ),
    ],
)
def test_names_are_separated_by_commas_and_nothing_else_gets_in(
    names: tuple[str, ...], value: str
) -> None:
    assert header_value(names) == value


@given(st.lists(st.text(max_size=600), max_size=200))
def test_any_names_give_a_bounded_header_that_is_ascii(names: list[str]) -> None:
    value = header_value(names)
    assert len(value.encode("ascii")) <= MAX_BYTES
    assert value.isprintable()


def test_names_past_the_bound_are_told_by_dots() -> None:
    assert header_value(["a" * 100] * 10) == ",".join(["a" * 100] * 4) + ",..."
    assert header_value(["a" * 1000]) == "..."


@pytest.mark.parametrize("dropped", [(), ("seed", "top_k")])
def test_the_head_of_the_answer_names_what_was_dropped(dropped: tuple[str, ...]) -> None:
    start = start_of(BODY, layout.new_call_id())
    info = call_info(start.call_id, durable=True, max_arguments_bytes=1000)
    call = owned(start, Session(info, [], Config()))
    call.begin(BODY)
    call.session.dropped = dropped
    dispatched = call.next_release(1)
    assert dispatched is not None
    assert HEADER not in layout.unpack_reply(dispatched.reply).headers
    call.answered()
    call.feed_entry(Entry(1, 1, "chunks", [b"data: " + as_json(CHUNK) + b"\n\n"]))
    release = call.next_release(2)
    assert release is not None
    headers = layout.unpack_reply(release.reply).headers
    assert headers["x-sluice-policy"] == "p@r"
    assert headers.get(HEADER) == (",".join(dropped) or None)
