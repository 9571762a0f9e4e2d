"""Lists as pages: what is asked for, and where their links lead."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self
from uuid import UUID

import pytest

from db.filters import Position, encode_cursor
from pages import listing
from pages.listing import Listing
from pages.page import PageRequest, SeeOther, Who
from protocol.errors import InvalidRequest

CALL = UUID("01a1fcc0-0000-7000-8000-000000000001")


def _asked(*query: tuple[str, str]) -> PageRequest:
    who = Who(key="dev", key_id="1", roles=frozenset({"auditor"}), login="x")
    return PageRequest(path="/debug/tool-calls", params={}, query=query, who=who, services=None)  # type: ignore[arg-type]  # it asks nobody


def _read(*query: tuple[str, str]) -> Listing:
    found = listing.read(_asked(*query), "tool-calls")
    assert isinstance(found, Listing)
    return found


@pytest.mark.parametrize(
    ("given", "before_s"),
    [("-15m", 900), ("-1h", 3600), ("-24h", 86400), ("-7d", 604800), ("-90s", 90)],
)
def test_a_time_before_now_becomes_absolute_in_the_address(given: str, before_s: int) -> None:
    found = listing.read(_asked(("key", "a b"), ("since", given)), "tool-calls")
    assert isinstance(found, SeeOther)
    before, _, value = found.to.partition("since=")
    assert before == "/debug/tool-calls?key=a+b&"
    at = datetime.fromisoformat(value.replace("%3A", ":"))
    assert abs(datetime.now(UTC) - timedelta(seconds=before_s) - at) < timedelta(seconds=3)


@pytest.mark.parametrize(
    ("given", "ends"),
    [("today", "T00%3A00%3A00Z"), ("14:00", "T14%3A00%3A00Z"), ("9:05:07", "T09%3A05%3A07Z")],
)
def test_a_time_of_today_becomes_absolute_too(given: str, ends: str) -> None:
    found = listing.read(_asked(("until", given)), "tool-calls")
    assert isinstance(found, SeeOther) and found.to.endswith(ends)


@pytest.mark.parametrize("given", ["2026-01-31", "2026-01-31 00:00", "2026-01-31T00:00:00"])
def test_a_time_without_a_zone_is_utc_and_says_so_in_the_address(given: str) -> None:
    found = listing.read(_asked(("key", "a"), ("since", given)), "tool-calls")
    assert (
        isinstance(found, SeeOther)
        and found.to == "/debug/tool-calls?key=a&since=2026-01-31T00%3A00%3A00Z"
    )


def _in_full(
    at: datetime, monkeypatch: pytest.MonkeyPatch, *query: tuple[str, str]
) -> dict[str, str]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromisoformat(at.isoformat())

    monkeypatch.setattr(listing, "datetime", Clock)
    return dict(listing.in_full(query))


def test_a_clock_time_is_the_last_one_that_has_been(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is on call at 00:10 asks for what was at 23:50."""
    now = datetime(2026, 11, 29, 0, 10, tzinfo=UTC)
    assert _in_full(now, monkeypatch, ("until", "00:05"), ("since", "23:50")) == {
        "until": "2026-11-29T00:05:00Z",
        "since": "2026-11-28T23:50:00Z",
    }
    assert (
        _in_full(now, monkeypatch, ("since", "2026-11-20T14:00:00+02:00"), ("until", "14:05"))[
            "until"
        ]
        == "2026-11-20T14:05:00Z"
    )
    assert _in_full(now, monkeypatch, ("until", "23:50")) == {"until": "2026-11-29T23:50:00Z"}
    # what cannot be a time stays, for the message that names it
    assert (
        _in_full(now, monkeypatch, ("since", "9999-12-31T23:59:59Z"), ("until", "00:01"))["until"]
        == "00:01"
    )


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("00:03", "2026-11-29T00:03:00Z", "2026-11-29T00:04:00Z"),
        ("14:03:07", "2026-11-28T14:03:07Z", "2026-11-28T14:03:08Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"),
        ("2026-01-31 14:03", "2026-01-31T14:03:00Z", "2026-01-31T14:04:00Z"),
        ("yesterday 9:03", "2026-11-28T09:03:00Z", "2026-11-28T09:04:00Z"),
        ("Today 00:05:01", "2026-11-29T00:05:01Z", "2026-11-29T00:05:02Z"),
        ("2026-01-31T14:03Z", "2026-01-31T14:03Z", "2026-01-31T14:04:00Z"),
    ],
)
def test_a_moment_in_the_search_box_is_that_minute(
    text: str, since: str, until: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_full(datetime(2026, 11, 29, 0, 10, tzinfo=UTC), monkeypatch)
    assert listing.moment(text) == (since, until)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "14",
        "24:00",
        "yesterday",
        "yesterday 25:00",
        "rm",
        "2026-13-01",
        "2026-01-3114:03",
        "9999-12-31",
        "T14:03",
        "14:03 rm",
    ],
)
def test_other_words_are_no_moment(text: str) -> None:
    assert listing.moment(text) is None


def test_absolute_times_stay() -> None:
    assert _read(("since", "2026-01-31T12:00:00Z")).raw_filters == {"since": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "201"),
        ("limit", "0"),
        ("limit", "1e9"),
        ("nobody", "x"),
        ("since", "-99999w"),
        ("since", "99:99"),
        ("verdict", "?"),
        ("cursor", "x"),
        ("cursor", encode_cursor(Position("calls", "desc", CALL, 0))),
        ("q", "..."),
        ("key", "x" * 1001),
    ],
)
def test_what_cannot_be_asked_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        _follow((name, value))
    assert raised.value.param == name


def _follow(query: tuple[str, str]) -> None:
    """As a browser: to where a redirect leads, too."""
    found = listing.read(_asked(query), "tool-calls")
    if isinstance(found, SeeOther):
        listing.read(
            _asked(("since", found.to.partition("since=")[2].replace("%3A", ":"))), "tool-calls"
        )


def test_a_chip_takes_its_filter_away_and_leaves_the_others() -> None:
    found = _read(
        ("key", "dev"),
        ("verdict", "block"),
        ("limit", "25"),
        ("cursor", encode_cursor(Position("tool-calls", "desc", CALL, 3))),
    )
    assert found.form((), ())["chips"] == [
        ("key", "dev", "/debug/tool-calls?verdict=block&limit=25"),
        ("verdict", "block", "/debug/tool-calls?key=dev&limit=25"),
    ]
    assert found.origin() == "tool-calls?key=dev&verdict=block"
    assert "cursor=" in found.here() and "cursor=" not in found.link()


def test_a_cursor_of_the_other_order_goes_back() -> None:
    newer = _read(("cursor", encode_cursor(Position("tool-calls", "asc", CALL, 3))))
    assert newer.is_back and newer.filters.order == "asc"
    older = _read(("cursor", encode_cursor(Position("tool-calls", "desc", CALL, 3))))
    assert not older.is_back and older.filters.after is not None
