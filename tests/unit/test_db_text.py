"""Escaped text, search words, filters, cursors and packing: what the database code does without a
database."""

import base64
import struct
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.filters import Position, created_at, encode_cursor, first_id, parse_filters
from db.read.json_rows import dump_json, number, payload
from db.text import SEARCH_LIMIT, from_column, search_text, to_column, words
from db.write.packing import column
from protocol.errors import InvalidRequest

ANY_TEXT = st.text(st.characters(categories=None))


@given(ANY_TEXT)
def test_stored_text_comes_back_and_holds_nothing_postgres_refuses(text: str) -> None:
    stored = to_column(text)
    assert from_column(stored) == text
    assert "\x00" not in stored
    stored.encode()


@given(ANY_TEXT, ANY_TEXT)
def test_search_text_is_words_that_postgres_takes(name: str, arguments: str) -> None:
    found = search_text(name, arguments, "reason", "rule-7")
    found.encode()
    assert "\x00" not in found
    assert "reason rule 7" in found


def test_search_finds_decoded_json_escapes_and_stops_at_its_limit() -> None:
    assert "café" in search_text("bash", '{"where": "caf\\u00e9", "deep": [{"x": 1}]}', "", "")
    assert search_text("bash", "not \\ json", "", "") == "bash not json"
    assert search_text("bash", '{"a": ' * 300 + '"\\n"' + "}" * 300, "", "").startswith("bash")
    assert len(search_text("bash", "a " * SEARCH_LIMIT, "", "")) <= SEARCH_LIMIT
    assert words("rm -rf /tmp/build_dir") == "rm rf tmp build dir"


def test_filters_are_checked_values() -> None:
    got = parse_filters(
        [
            ("since", "2026-01-31"),
            ("until", "2026-01-31T12:00:00+01:00"),
            ("q", "rm -rf"),
            ("limit", "7"),
            ("verdict", "block"),
        ],
        of="calls",
    )
    assert got.low == first_id(datetime(2026, 1, 31, tzinfo=UTC))
    assert got.high == first_id(datetime(2026, 1, 31, 11, tzinfo=UTC))
    assert (got.words, got.limit, got.verdict, got.model, got.order) == (
        "rm rf",
        7,
        "block",
        None,
        "desc",
    )
    assert parse_filters([("model", "")], of="calls").model is None
    assert parse_filters([("since", "2026-01-31T12:00:00 01:00")], of="calls").low == got.high
    assert parse_filters([], of="chunks").order == "asc"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("call_id", "x"),
        ("verdict", "maybe"),
        ("since", "yesterday"),
        ("since", "1969-01-01"),
        ("until", "0001-01-01T00:00:00+23:59"),
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "-1"),
        ("limit", "٣"),
        ("limit", "1; drop table calls"),
        ("order", "up"),
        ("q", "!!"),
        ("cursor", "x"),
        ("cursor", "é"),
        ("session", "x" * 1001),
        ("colour", "red"),
    ],
)
def test_a_bad_filter_names_itself(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_filters([(name, value)], of="calls")
    assert caught.value.param == name
    assert caught.value.http_status == 400


def test_a_filter_given_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_filters([("model", "a"), ("model", "b")], of="calls")


def test_a_cursor_is_a_position_in_its_own_list_and_order() -> None:
    position = Position("calls", "desc", UUID(int=5), 3)
    cursor = encode_cursor(position)
    assert parse_filters([("cursor", cursor)], of="calls").after == position
    for of, order in (("tool-calls", "desc"), ("calls", "asc")):
        with pytest.raises(InvalidRequest):
            parse_filters([("cursor", cursor), ("order", order)], of=of)  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_a_forged_cursor_is_a_position_or_refused(data: bytes) -> None:
    forged = base64.urlsafe_b64encode(data).decode()
    try:
        got = parse_filters([("cursor", forged)], of="calls")
    except InvalidRequest:
        return
    assert got.after is None or isinstance(got.after.call_id, UUID)


@pytest.mark.parametrize(
    "inner",
    [
        ["calls", "desc", "x' or 1=1", 3],
        ["calls", "desc", str(UUID(int=1)), 2**40],
        ["calls", "desc"],
        {"a": 1},
    ],
)
def test_a_cursor_with_something_else_inside_is_refused(inner: object) -> None:
    forged = base64.urlsafe_b64encode(msgspec.msgpack.encode(inner)).decode()
    with pytest.raises(InvalidRequest):
        parse_filters([("cursor", forged)], of="calls")


def test_times_and_ids_agree() -> None:
    at = datetime(2026, 11, 21, 5, 6, 7, 89_000, tzinfo=UTC)
    assert created_at(first_id(at)) == at
    assert created_at(UUID(int=2**128 - 1)) is None


def test_json_is_ascii_with_escapes_for_what_text_cannot_hold() -> None:
    assert dump_json({"a": "\x00\ud800é"}) == b'{"a":"\\u0000\\ud800\\u00e9"}'
    assert number(float("nan")) is None
    assert payload("raw", b"\xff") == {"raw": "\\xff", "raw_base64": "/w=="}
    assert payload("raw", "é".encode()) == {"raw": "é", "raw_base64": None}


def test_a_value_out_of_range_does_not_pack() -> None:
    with pytest.raises(struct.error):
        column("int4", [2**31])
