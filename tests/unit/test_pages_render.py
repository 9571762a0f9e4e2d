"""The environment of the templates: what its filters make of numbers, times, JSON and long text."""

import json
import re
from datetime import UTC, datetime
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from pages.assets import address, assets
from pages.http import plain_pages
from pages.page import Page, PageRequest, Services, Who
from pages.pretty import pretty
from pages.render import _environment, cut, duration, render_outside, size, thousands
from settings.defaults import VERSION

CSS_BYTES, JS_BYTES = 15_000, 15_500


def _shown(source: str, **values: object) -> str:
    return _environment().from_string(source).render(values)


def test_sizes_counts_and_durations_read_as_people_write_them() -> None:
    assert [size(value) for value in (0, 999, 1000, 4100, 1_234_567, 212_000_000, None)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "4.1 kB",
        "1.2 MB",
        "212 MB",
        "",
    ]
    assert [thousands(value) for value in (12, 1204, None)] == ["12", "1,204", ""]
    assert [duration(value) for value in (0.42, 3, 812, 4780, 61_000, 7_260_000)] == [
        "0.4 ms",
        "3 ms",
        "812 ms",
        "4.78 s",
        "1 min 1 s",
        "2 h 1 min",
    ]


@pytest.mark.parametrize(
    "at", [datetime(2026, 11, 22, 14, 3, 7, 120_000, UTC), "2026-11-22T14:03:07.120Z"]
)
def test_a_time_is_an_element_with_its_zone(at: object) -> None:
    assert (
        _shown("{{ at|time }}", at=at)
        == '<time datetime="2026-11-22T14:03:07.120Z"><span class="day">2026-11-22</span>'
        " 14:03:07.120Z</time>"
    )
    assert ">14:03:07.120Z<" in _shown("{{ at|time('clock') }}", at=at)


def test_no_time_is_nothing() -> None:
    assert _shown("{{ at|time }}", at=None) == ""


def test_a_long_text_says_how_long_it_is() -> None:
    assert (
        str(cut("x" * 161)) == "x" * 160 + '<span class="cut">… 161 B, first 160 characters</span>'
    )
    assert cut("<" * 160) == "&lt;" * 160
    assert "2.0 kB" in str(cut(b"\xff" * 2000))


def test_text_without_a_filter_is_escaped_and_spelled_out_too() -> None:
    assert _shown("{{ x }}", x="<b>\u202e") == "&lt;b&gt;\\u202e"


def test_a_name_that_the_view_forgot_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        _shown("{{ nothing }}")


def test_json_is_shown_in_the_order_in_which_it_was_sent() -> None:
    text = '{"b":1.50,"a":[],"a":[true, {"x":"\\u0041\\""}]}'
    found = pretty(text)
    assert found is not None
    assert (
        "".join(piece.text for piece in found)
        == '{\n  "b": 1.50,\n  "a": [],\n  "a": [\n    true,\n    {\n      "x": "\\u0041\\""\n   '
        " }\n  ]\n}"
    )
    assert [piece.text for piece in found if piece.kind == "key"] == ['"b"', '"a"', '"a"', '"x"']
    assert pretty("{no json") is None and pretty("[" * 60_000) is None


_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(_VALUES, st.sampled_from([None, 1]))
def test_pretty_json_is_the_same_json(value: object, indent: int | None) -> None:
    found = pretty(json.dumps(value, indent=indent))
    assert found is not None and json.loads("".join(piece.text for piece in found)) == value


def test_pages_of_those_outside_have_a_head_without_links() -> None:
    html = render_outside("base.html", "Log in", {}).decode()
    assert "<title>Log in · Sluice</title>" in html and "<nav" not in html and "app.css" in html
    assert f"Sluice {VERSION}<" in html


def test_a_page_that_failed_says_what_the_doctor_found() -> None:
    found = [{"what": "database", "state": "failed", "said": "PostgreSQL <b>does not answer"}]
    page = plain_pages.failed(503, "not now", "ab12", again="/debug/calls", doctor=found).decode()
    assert "database, failed: PostgreSQL &lt;b&gt;does not answer" in page and "Try again" in page
    assert "doctor" not in plain_pages.failed(503, "not now", "ab12").decode()


def test_who_reads_and_where_is_in_the_head() -> None:
    from pages.render import render

    who = Who(key="de<v", key_id="1", roles=frozenset({"admin"}), login="x")
    asked = PageRequest(
        path="/debug/calls",
        params={},
        query=(),
        who=who,
        services=_NOBODY,
        zone="local",
        token="t<k",
    )
    html = render(Page(template="base.html", title="</title><b>", values={}), asked).decode()
    assert (
        'data-zone="local"' in html and "de&lt;v" in html and "t&lt;k" in html and "<b>" not in html
    )
    assert (
        html.count("aria-current") == 1
        and '<a href="/debug/calls" data-go="c" aria-current="page">Calls</a>' in html
    )


_NOBODY: Services = None  # type: ignore[assignment]  # no page of these asks anything


def test_the_addresses_of_assets_hold_what_is_in_them_and_they_are_small() -> None:
    bodies = {asset.path.rpartition("/")[2]: asset.body for asset in assets().values()}
    assert {address("app.css"), address("app.js"), address("icon.svg")} <= set(assets())
    sheets = {name: len(body) for name, body in bodies.items() if name.endswith(".css")}
    common = sheets.pop("app.css")
    # a page has the common sheet and at most one of its own, and likewise scripts
    assert max(common + own for own in (0, *sheets.values())) <= CSS_BYTES, (common, sheets)
    scripts = {name: len(body) for name, body in bodies.items() if name.endswith(".js")}
    assert scripts.pop("app.js") + max(scripts.values()) <= JS_BYTES, scripts


def test_the_script_parses_no_html() -> None:
    scripts = [
        one.read_text()
        for one in resources.files("pages").joinpath("static").iterdir()
        if one.name.endswith(".js")
    ]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "DOMParser",
        "new Function",
    ):
        assert not any(word in script for script in scripts)


_CSS = "".join(asset.body.decode() for asset in assets().values() if asset.path.endswith(".css"))
_COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+):light-dark\((#\w+),(#\w+)\)", _CSS)
}
_TINTS = ("tint", "ok-t", "no-t", "swap-t", "wait-t", "off-t")


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(name: str, ground: str, theme: int) -> float:
    darker, lighter = sorted(_luminance(_COLOURS[one][theme]) for one in (name, ground))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_borders_and_signs_can_be_told_from_what_is_behind_them(theme: int) -> None:
    texts = ("ink", "soft", "link", "ok", "no", "swap", "wait", "off")
    # a row under the pointer has the ground `tint`, and a verdict its own
    pairs = {(name, ground): 4.5 for name in texts for ground in ("bg", "card", *_TINTS)} | {
        ("card", "link"): 4.5,
        ("card", "ink"): 4.5,
    }
    # edges of fields and buttons, the focus, and what is drawn in bars, whose ground is `line`
    pairs |= {
        (name, ground): 3.0
        for name in ("edge", "focus")
        for ground in ("bg", "card", "line", *_TINTS)
    }
    pairs |= {(name, "line"): 3.0 for name in texts}
    weak = {
        pair: round(_contrast(*pair, theme), 2)
        for pair, least in pairs.items()
        if _contrast(*pair, theme) < least
    }
    assert not weak
    # what is half there has no contrast that could be told
    assert not re.findall(r"[^}]*\{[^}]*opacity:0?\.[0-6]", _CSS)
