"""What is said to people: broken between words on a terminal, whole elsewhere; what a record no
longer has."""

import io
from datetime import UTC, datetime

import pytest

from db.read.failures import Failures
from db.state.recent_failures import say
from sluice.audit.transcript import Utterance, sent
from sluice.sentences import wrapped


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_that_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    path = "/a-long/path-that/no-line/of-so-few/characters-has/room-for/x.yaml"
    text = (
        "sluice: 2 mistakes\n  line 2: the policy 'tool_ruels' is neither built in nor of the form"
        f" module:Class\n  {path}"
    )
    shown = wrapped(text, _Terminal()).split("\n")
    assert shown == [
        "sluice: 2 mistakes",
        "  line 2: the policy 'tool_ruels' is neither built",
        "    in nor of the form module:Class",
        f"  {path}",
    ]
    assert wrapped(text, io.StringIO()) == text


@pytest.mark.parametrize("number", ["", "3: ", "-1: "])
def test_the_number_of_a_chunk_is_left_out_and_a_port_is_not(number: str) -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    said = say(
        "u",
        [
            Failures(
                "u", "upstream_cut", 1, at, f"{number}http://127.0.0.1:24100: the upstream closed"
            )
        ],
    )
    assert said.endswith("the last at 12:00:00Z, http://127.0.0.1:24100: the upstream closed")


def test_a_redacted_request_is_said_to_be_missing() -> None:
    assert sent({"request": "", "dialect": "openai"}) == [
        Utterance("", "(no request is on record: it was redacted, or lost)")
    ]
