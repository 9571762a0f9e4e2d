"""Text folded for comparison: what it becomes, and that no text takes long."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.bytes import folding
from protocol.bytes.folding import fold, is_plain, nfkc, without_unseen
from tests.support.cpu import cpu_within


@given(st.text(max_size=40))
def test_short_text_is_folded_as_unicode_says(text: str) -> None:
    assert nfkc(text) == unicodedata.normalize("NFKC", text.replace("\ufdfa", ""))


@pytest.mark.parametrize(
    "length", [folding._PIECE - 1, folding._PIECE, folding._PIECE + 1, 3 * folding._PIECE]
)
def test_pieces_are_cut_where_nothing_joins(length: int) -> None:
    for text in ("x" * length + "e\u0301 " + "\u2460" * 9, ("e\u0301 " * length)[: 2 * length]):
        assert nfkc(text) == unicodedata.normalize("NFKC", text)


def test_every_mark_that_is_sorted_is_known() -> None:
    def is_mark(c: int) -> bool:
        return (
            not 0xD800 <= c < 0xE000
            and unicodedata.combining(unicodedata.normalize("NFKD", chr(c))[0]) > 0
        )

    assert [c for c in range(0x110000) if is_mark(c)] == list(folding.mark_points())


def test_what_nobody_sees_is_gone_or_a_blank() -> None:
    assert without_unseen("r\u200bm\u2028-rf") == ["rm-rf", "rm -rf"]
    assert without_unseen("r\x7fm\x00") == ["rm"]
    assert without_unseen("\uff52m\u3000x") == ["rm x"]
    assert [fold(w) for w in (" Command\n", "\uff43ommand\u200b", "STRASSE", "stra\u00dfe")] == [
        "command",
        "command",
        "strasse",
        "strasse",
    ]
    assert [is_plain(t) for t in ("a\tb\r\n", "a\x0b", "\x7f", "\u00e9", "")] == [
        True,
        False,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "unit",
    [
        "\u0301\u0316",
        "\u0f73",
        "a" + "\u0301\u0316" * 15,
        "\ufdfa",
        "\ufdfb",
        "\u3316",
        "\u200b",
        "a\x85",
        "\u1100\u1161",
        "\u0301a",
    ],
)
def test_any_text_takes_linear_time(unit: str) -> None:
    """`unicodedata.normalize` takes a second for 64 kB of the first, and four for twice as much."""
    text = unit * (200_000 // len(unit))
    with cpu_within(2):
        without_unseen(text), fold(text)
