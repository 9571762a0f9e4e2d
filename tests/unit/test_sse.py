"""Cutting a byte stream into events, and reading one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bytes.sse import EventSplitter, parse_event
from protocol.errors import RemoteProtocolError

PIECES = st.lists(
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"data: x",
            b"event: y",
            b": c",
            b"\xef\xbb\xbf",
            b"\xe2\x80\xa8",
            b"",
            b"data",
        ]
    ),
    max_size=40,
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    return [*pieces, data[start:]]


def split(pieces: list[bytes]) -> list[bytes]:
    splitter = EventSplitter(10_000)
    return [event for piece in pieces for event in splitter.feed(piece)] + splitter.finish()


def read(chunks: list[bytes]) -> list[tuple[str, bytes]]:
    """What a decoder sees: events with data, the first without the byte order mark."""
    return [event for event in map(parse_event, chunks) if event[1]]


@pytest.mark.case("U4")
@given(PIECES.map(b"".join), st.lists(st.integers(0, 7), max_size=30))
def test_joined_output_is_the_input_and_splits_change_nothing(
    data: bytes, sizes: list[int]
) -> None:
    whole = split([data])
    pieces = split(cut(data, sizes))
    single = split([data[i : i + 1] for i in range(len(data))])
    assert b"".join(whole) == b"".join(pieces) == b"".join(single) == data
    assert read(whole) == read(pieces) == read(single)


@pytest.mark.case("U4")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_cuts(end: bytes) -> None:
    data = b"event: a" + end + b"data: 1" + end + end + b"data: 2" + end + b"data:3" + end + end
    assert read(split([data])) == [("a", b"1"), ("", b"2\n3")]
    assert len(split([data])) == 2


@pytest.mark.case("U4")
@pytest.mark.parametrize(
    "data",
    [
        b"data: " + b"x" * 100,
        b"data: " + b"x" * 100 + b"\n\n",
        b"data: " + b"x" * 100 + b"\r\n\r\n",
    ],
)
def test_event_past_the_bound_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        EventSplitter(50).feed(data)
    splitter = EventSplitter(50)
    with pytest.raises(RemoteProtocolError):
        [splitter.feed(data[i : i + 10]) for i in range(0, len(data), 10)]


def test_many_events_may_be_larger_than_the_bound_together() -> None:
    assert len(EventSplitter(20).feed(b"data: 123456\n\n" * 50)) == 50


@pytest.mark.case("U4")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_large_streams_take_linear_time(end: bytes) -> None:
    # 2 MB in small pieces and as one piece; quadratic scanning would take minutes
    splitter = EventSplitter(1 << 22)
    line = b"data: " + b"x" * 94 + end
    assert [splitter.feed(line) for _ in range(20_000)] == [[]] * 20_000
    assert len(splitter.feed(end)) == 1
    assert len(EventSplitter(1 << 22).feed((b"data: 1" + end + end) * 100_000)) == 100_000
