"""Text in pages: nothing of it acts, nothing of it hides."""

import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from pages import escape
from pages.call import whole_text
from pages.escape import exact, seen, spelled
from tests.support.cpu import cpu_within

HIDDEN = [
    ("\x00", "\\u0000"),
    ("\x1b[2J", "\\u001b"),
    ("a\rb", "\\r"),
    ("\x7f", "\\u007f"),
    ("\x9b", "\\u009b"),
    ("\u202e", "\\u202e"),
    ("\u2066", "\\u2066"),
    ("\u061c", "\\u061c"),
    ("\u200b", "\\u200b"),
    ("\u200d", "\\u200d"),
    ("\ufeff", "\\ufeff"),
    ("\u2028", "\\u2028"),
    ("\U000e0041", "\\U000e0041"),
    ("\ud800", "\\ud800"),
    ("\u0378", "\\u0378"),
    ("\U000f0000", "\\U000f0000"),
    ("\u00ad", "\\u00ad"),
    ("\u3164", "\\u3164"),
    ("x\ufe0f", "\\ufe0f"),
    ("e" + "\u0301" * 9, "\\u0301"),
    (b"\xff".decode(errors="surrogateescape"), "\\xff"),
]


@pytest.mark.parametrize(("text", "spells"), HIDDEN)
def test_what_nobody_would_see_is_spelled_out_with_its_name(text: str, spells: str) -> None:
    assert re.search(rf'<span class="c" title="[^"<]+">(?:[^<]*){re.escape(spells)}', seen(text))
    assert spells in spelled(text)


def test_characters_are_odd_that_show_nothing_or_combine() -> None:
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    # every 37th: of all it takes half a minute
    for code in range(0, 0x110000, 37):
        one = chr(code)
        is_hidden = one not in "\n\t" and (
            unicodedata.category(one) in kinds or escape._UNSEEN.match(one) is not None
        )
        assert (re.match(f"[{escape.UNSEEN}]", one) is not None) == is_hidden, hex(code)
        assert (escape._ODD.match(one) is not None) == (
            is_hidden or unicodedata.category(one) in ("Mn", "Me")
        ), hex(code)


def test_many_different_characters_that_show_nothing_take_no_longer_than_as_many_of_one() -> None:
    many = "".join(map(chr, range(0x40000, 0x40000 + 100_000)))
    with cpu_within(5):
        for spell in (seen, spelled, whole_text.spell):
            assert len(spell(many)) > len(many)
        # compared one by one it takes a minute


def test_no_attribute_of_a_template_holds_an_element() -> None:
    for template in (Path(escape.__file__).parent / "templates").glob("*.html"):
        for attribute in re.findall(r'\s[a-z-]+="([^"]*)"', template.read_text()):
            assert not re.search(r"\{\{[^}]*\|\s*(cut|seen|json|time)\b", attribute), (
                template.name,
                attribute,
            )


@pytest.mark.parametrize(
    "text",
    [
        "plain\ntext\twith tabs",
        "zażółć gęślą jaźń",
        "日本語",
        "שלום",
        "❤️ 1️⃣",
        "e\u0301",
        "\u00a0",
    ],
)
def test_text_that_people_read_stays_as_it_is(text: str) -> None:
    assert seen(text) == text == spelled(text)


def test_a_cell_shows_newlines_and_tabs_as_what_they_are() -> None:
    assert re.sub("<[^>]*>", "", seen("a\nb\tc", line=True)) == "a\\nb\\tc"


@given(st.text())
def test_no_text_makes_an_element_other_than_the_span_of_what_is_spelled_out(text: str) -> None:
    rest = re.sub(r'<span class="c" title="[^"<>]*">[^<>"]*</span>', "", seen(text, line=True))
    assert not set("<>\"'") & set(rest)
    assert not set("<>\"'") & set(exact(text))


@given(st.text())
def test_what_is_spelled_out_is_printable(text: str) -> None:
    assert all(
        one.isprintable() or one in "\n\t\u00a0\u3000" or one.isspace() for one in spelled(text)
    )


def test_text_that_is_markup_already_is_not_escaped_twice() -> None:
    assert seen(Markup("<b>")) == "<b>"


def test_a_megabyte_of_plain_text_costs_little() -> None:
    text = "a<b> \n" * 170_000
    least = min(_seconds(text) for _ in range(5))
    assert least < 0.1, least


def test_markup_is_made_in_one_module_alone_and_no_template_switches_escaping_off() -> None:
    pages = Path(__file__).parents[2] / "pages"
    assert [path.name for path in pages.rglob("*.py") if "Markup" in path.read_text()] == [
        "escape.py"
    ]
    for path in (pages / "templates").iterdir():
        assert not re.search(
            r"\|\s*safe|autoescape|<script(?! src=\")|\son\w+=|\sstyle=|javascript:",
            path.read_text(),
        ), path


def _seconds(text: str) -> float:
    start = time.perf_counter()
    seen(text)
    return time.perf_counter() - start
