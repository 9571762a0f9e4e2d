"""The comparison of two texts: both can be read back out of it, whatever they are, in bounded
time."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages.call.diff import Diff, DiffLine, diff
from pages.views import diff as comparison
from pages.views.diff import Pair
from tests.support.cpu import cpu_within

SMALL = st.text(alphabet="ab \n,", max_size=40)


@given(SMALL | st.text(max_size=60), SMALL | st.text(max_size=60))
def test_both_sides_can_be_read_back(old: str, new: str) -> None:
    found = diff(old, new)
    assert (found.side("-"), found.side("+")) == (old, new)
    assert found.is_same is (old == new)


@given(SMALL, SMALL, st.integers(0, 30))
def test_both_sides_can_be_read_back_however_little_may_be_compared(
    old: str, new: str, tokens: int
) -> None:
    found = diff(old, new, tokens=tokens)
    assert (found.side("-"), found.side("+")) == (old, new)


@given(SMALL)
def test_marked_words_are_what_changed(text: str) -> None:
    """What is not marked in a changed line stands on both sides, in the same order."""
    found = diff(f"x {text}", f"y {text}")
    kept = [
        "".join(
            part.text
            for line in found.lines
            if line.sign in (" ", sign)
            for part in line.parts
            if not part.changed
        )
        for sign in "-+"
    ]
    assert kept[0] == kept[1]


def marked(found: Diff) -> list[str]:
    """Each line with its marks."""

    def of(line: DiffLine) -> str:
        return line.sign + "".join(
            f"[{part.text}]" if part.changed else part.text for part in line.parts
        )

    return [of(line) for line in found.lines]


HOSTILE = {
    "nothing in common": ("a b " * 20_000, "c d " * 20_000),
    "one line": ("x" * 1_000_000, "x" * 500_000 + "y" + "x" * 500_000),
    "alternating": ("ab" * 200_000, "ba" * 200_000),
    "lines without a pair": (
        "\n".join(map(str, range(30_000))),
        "\n".join(map(str, range(30_000, 0, -1))),
    ),
    "blanks": (" " * 1_000_000, " " * 999_999 + "\n"),
    "words": ("w " * 9_000, "v " * 9_000),
    "one large line to many": ("z" * 2_000_000, "z\n" * 100_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_bounded_time(name: str) -> None:
    old, new = HOSTILE[name]
    gc.collect()  # what other tests left is not of these texts
    with cpu_within(2):
        found = diff(old, new)
    assert (found.side("-"), found.side("+")) == (old, new)


def test_it_says_when_it_gave_up() -> None:
    assert diff("a b c d e f", "u v w x y z").aligned
    assert not diff("a b c d e f", "u v w x y z", tokens=5).aligned
    clock = iter(range(10_000))
    assert not diff("a " * 400, "b " * 400, now=lambda: float(next(clock)), seconds=1).aligned


@pytest.mark.parametrize("view", ["inline", "side"])
@pytest.mark.parametrize("line", ["x" * 5_000, "a b " * 20, ""])
def test_all_blocks_of_a_page_share_its_room(view: str, line: str) -> None:
    """40 blocks of 300 lines of 2,000 characters were 24 million, in the one thread that makes the
    pages of all readers."""
    shown = comparison._Shown(view, is_all=False)
    old = "".join(f"{line}{number}\n" for number in range(400))
    made = [
        shown.block(Pair(number, "text", "replace", "", old, ""))
        for number in range(comparison.PAGE)
    ]
    lines = [
        [left for left, _ in block["pairs"]] if view == "side" else block["lines"] for block in made
    ]
    # no answer as JSON holds a line twice
    assert all(not block["lines" if view == "side" else "pairs"] for block in made)
    texts = [part["text"] for block in lines for one in block for part in one["parts"]]
    assert (
        100_000
        < sum(len(text) + comparison.PART_COST for text in texts)
        <= comparison.BUDGET + 3_000
    )
    for block, own in zip(made, lines, strict=True):
        assert len(own) <= comparison.LINES and (
            block["left_out"] or len(own) + block["more"] in (400, 401)
        )
        assert all(
            sum(len(part["text"]) for part in one["parts"]) <= comparison.CHARS for one in own
        )
        assert not (block["left_out"] and own)
    assert lines[0] and made[-1]["left_out"] and not made[-1]["same"]
