"""Blocks of servers that speak Messages and begin one in the place of another that they did not
end."""

import pytest

from protocol.errors import RemoteProtocolError
from protocol.events import BlockKind, BlockStart, BlockStop, TextDelta
from tests.support.upstreams.frames import delta, end, message, start, stop, stream

BEGUN = message(stop_reason=None)
TEXT = [start(0, type="text", text=""), delta(0, "text_delta", text="---")]
THINKING = [
    start(0, type="thinking", thinking=""),
    delta(0, "thinking_delta", thinking="hm"),
    stop(0),
]
ANSWER = [start(1, type="text", text=""), delta(1, "text_delta", text="Answer"), stop(1)]


def test_a_text_left_open_ends_where_the_next_block_begins() -> None:
    events = stream(BEGUN, *TEXT, *THINKING, *ANSWER, *end())
    assert (
        [e.index for e in events if isinstance(e, BlockStart)]
        == [e.index for e in events if isinstance(e, BlockStop)]
        == [0, 1, 2]
    )
    assert [(e.index, e.text) for e in events if isinstance(e, TextDelta)] == [
        (0, "---"),
        (1, "hm"),
        (2, "Answer"),
    ]
    assert [e.kind for e in events if isinstance(e, BlockStart)] == [
        BlockKind.TEXT,
        BlockKind.THINKING,
        BlockKind.TEXT,
    ]


@pytest.mark.parametrize(
    "frames",
    [
        [*THINKING, *THINKING],
        [start(0, type="tool_use", id="t", name="f", input={}), *THINKING],
        [*TEXT, *THINKING, start(-1, type="text", text="")],
    ],
    ids=["ended", "a call", "below 0"],
)
def test_no_other_block_is_begun_twice(frames: list[dict[str, object]]) -> None:
    with pytest.raises(RemoteProtocolError, match="twice"):
        stream(BEGUN, *frames)
