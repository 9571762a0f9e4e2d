"""Log lines: JSON, fixed text and fields, and never what an error or a foreign library quotes."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from sluice import logs
from tests.support.json_values import Json

SECRET = "the prompt of a client"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged; the handlers and levels of the test run come back afterwards."""
    root = logging.getLogger()
    kept = (root.handlers[:], root.level, [logging.getLogger(name).level for name in logs.OURS])
    stream = io.StringIO()
    logs.set_up("gateway", "info", stream=stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:], root.level = kept[0], kept[1]
    for name, level in zip(logs.OURS, kept[2], strict=True):
        logging.getLogger(name).setLevel(level)


def lines(stream: io.StringIO) -> list[Json]:
    """The decoded lines."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_line_has_text_and_fields(stream: io.StringIO) -> None:
    logging.getLogger("gateway.bus").info(
        "call opened", extra={"call_id": "c-1", "seq": 4, "owner": None, "key": ("a", 1)}
    )
    [line] = lines(stream)
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "gateway.bus",
        "process": "gateway",
        "message": "call opened",
        "call_id": "c-1",
        "seq": 4,
        "owner": None,
        "key": "('a', 1)",
    }


def test_fields_cannot_stand_for_the_line_itself(stream: io.StringIO) -> None:
    logging.getLogger("gateway").info("true text", extra={"level": "forged", "logger": "forged"})
    assert (lines(stream)[0]["level"], lines(stream)[0]["logger"]) == ("info", "gateway")


def test_line_breaks_and_controls_stay_in_one_line(stream: io.StringIO) -> None:
    logging.getLogger("workers").warning("text", extra={"name_of_tool": "a\nb\x1b[2J\u2028\ud800"})
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()


@pytest.mark.case("A7")
def test_exception_is_its_type_and_place(stream: io.StringIO) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("policy").exception("policy fault")
    [line] = lines(stream)
    assert line["error_type"] == "ValueError"
    assert "test_exception_is_its_type_and_place" in line["raised_at"][-1]
    assert SECRET not in stream.getvalue()


def test_foreign_lines_are_not_filled_in(stream: io.StringIO) -> None:
    logging.getLogger("arq.worker").warning("job %s failed", SECRET, extra={"arguments": SECRET})
    logging.getLogger("arq.worker").info("started")
    assert [line["message"] for line in lines(stream)] == ["job %s failed"]
    assert SECRET not in stream.getvalue()


def test_long_fields_are_cut(stream: io.StringIO) -> None:
    logging.getLogger("db").error("refused", extra={"error": "x" * 100_000})
    assert len(stream.getvalue()) < 3_000
