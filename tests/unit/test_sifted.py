"""A sifted pattern finds what the pattern finds."""

import re

import pytest

from policy.effects.shell.programs import patterns
from policy.effects.shell.programs.quick_patterns import Sifted
from tests.support.checks.kinds import of_kind

WORDS = r"(?:\bos\.system|\bsh|[\"']run[\"'])\s*\("


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print(1)",
        "os.system('x')",
        "wash(1); sh(2)",
        "wash(1)",
        "'run' ('x') os.system(y)",
        "macos.system(1)",
    ],
)
def test_it_finds_the_places_of_the_pattern(text: str) -> None:
    sifted, exact = Sifted(WORDS), re.compile(WORDS)
    assert [found.span() for found in sifted.finditer(text)] == [
        found.span() for found in exact.finditer(text)
    ]
    one, first = sifted.search(text), exact.search(text)
    assert (one and one.span()) == (first and first.span())


def test_no_edge_stands_where_something_must_not_stand() -> None:
    """Without it more would be refused, and less be found."""
    sifted = of_kind(vars(patterns).values(), Sifted)
    assert len(sifted) == 6
    for pattern in sifted:
        refused = re.findall(r"\(\?<?!([^)]*)", pattern.pattern)
        assert not any(r"\b" in inner for inner in refused)
