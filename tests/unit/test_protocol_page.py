"""docs/change/protocol.md says what the code does: stop reasons in both directions."""

import json

import pytest

from protocol import codecs
from protocol.dialects.table import CLIENTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
    Usage,
)
from protocol.request import ChatRequest
from tests.support.checks.markdown import DOCS, names, tables
from tests.support.json_values import as_json

PAGE = (DOCS / "change" / "protocol.md").read_text(encoding="utf-8")
REASONS = tables(PAGE, "1.3 Answers: Messages to chat/completions")[1][1:]


def finish_of(reason: StopReason) -> str:
    """The finish reason that a chat/completions client gets for a stop reason of Messages."""
    encoder = CLIENTS["openai"].encoder(
        ChatRequest(dialect="openai", model="m"), call_id="c", created=0
    )
    start = MessageStart("msg_1", "m", Usage(), {"dialect": "anthropic"})
    body = encoder.encode(
        [
            start,
            BlockStart(0, BlockKind.TEXT),
            TextDelta(0, "Hi"),
            BlockStop(0),
            MessageStop(reason, Usage()),
        ]
    )
    return str(json.loads(body)["choices"][0]["finish_reason"])


def stop_of(word: str) -> str:
    """The stop reason that a finish reason becomes; "" for a failure."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": word}
    try:
        last = codecs.decode_whole(
            "openai", as_json({"id": "1", "model": "m", "choices": [choice]})
        )[-1]
    except RemoteProtocolError:
        return ""
    return str(last.stop_reason) if isinstance(last, MessageStop) else ""


def test_every_stop_reason_is_on_the_page() -> None:
    assert {name for row in REASONS for name in names(row[0])} == {
        str(reason) for reason in StopReason
    }


@pytest.mark.parametrize(
    ("reason", "finish"), [(name, names(row[1])[0]) for row in REASONS for name in names(row[0])]
)
def test_a_stop_reason_becomes_what_the_page_says(reason: str, finish: str) -> None:
    assert finish_of(StopReason(reason)) == finish


@pytest.mark.parametrize(
    ("word", "reason"),
    [(name, (names(row[3]) or [""])[0]) for row in REASONS for name in names(row[2])],
)
def test_a_finish_reason_becomes_what_the_page_says(word: str, reason: str) -> None:
    assert stop_of(word) == reason


def test_an_unknown_finish_reason_is_an_error() -> None:
    assert REASONS[-1][2:] == ["missing, unknown", "an error"]
    assert stop_of("something new") == ""
