"""An answer in the client's terms: names of tools, and the forced tool that stands for
`response_format`."""

from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
)
from protocol.restore import Restorer
from protocol.target import Restore

START = MessageStart("m", "x")


def call(index: int, name: str, arguments: str) -> list[Event]:
    return [
        BlockStart(index, BlockKind.TOOL_USE, f"t{index}", name),
        ArgumentsDelta(index, arguments),
        BlockStop(index),
    ]


def text(index: int, said: str) -> list[Event]:
    return [BlockStart(index, BlockKind.TEXT), TextDelta(index, said), BlockStop(index)]


def restored(restore: Restore, events: list[Event]) -> list[Event]:
    restorer = Restorer(restore)
    return [e for event in events for e in restorer.feed([event])]


def test_the_forced_tool_is_the_answer() -> None:
    events = [
        START,
        *text(0, "Here:"),
        *call(1, "json", '{"n":1}'),
        MessageStop(StopReason.TOOL_USE),
    ]
    assert restored(Restore(json_tool="json"), events) == [
        START,
        *text(1, '{"n":1}'),
        MessageStop(StopReason.END_TURN),
    ]


def test_a_forced_tool_without_arguments_is_an_empty_object() -> None:
    bare: list[Event] = [BlockStart(0, BlockKind.TOOL_USE, "t0", "json"), BlockStop(0)]
    for events in (bare, call(0, "json", "")):
        said = restored(
            Restore(json_tool="json"), [START, *events, MessageStop(StopReason.TOOL_USE)]
        )
        assert "".join(e.text for e in said if isinstance(e, TextDelta)) == "{}"


def test_a_users_tool_beside_the_forced_one_is_a_call() -> None:
    events = [
        START,
        *text(0, "Let me look."),
        *call(1, "look", "{}"),
        MessageStop(StopReason.TOOL_USE),
    ]
    assert restored(Restore(json_tool="json"), events) == events
