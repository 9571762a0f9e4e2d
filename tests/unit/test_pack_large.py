"""Commands in pieces are the same bytes, and their large arguments are not copied."""

import pytest

from streams.connection import pack, pack_large

LARGE = b"x" * 70_000


@pytest.mark.parametrize(
    "args",
    [
        ("SET", "k", LARGE, "PX", 600_000),
        ("SET", "k", LARGE),
        ("SET", "k", b"small", "PX", 1),
        (LARGE, LARGE, 7),
        ("SET", "k\u00e9", b"", -1),
        ("APPEND", "x" * 70_000, LARGE),
    ],
)
def test_the_bytes_are_those_of_the_ordinary_way(args: tuple[str | bytes | int, ...]) -> None:
    assert b"".join(pack_large(*args)) == pack(*args)


def test_a_large_argument_is_itself_a_piece() -> None:
    assert any(piece is LARGE for piece in pack_large("SET", "k", LARGE, "PX", 5))
