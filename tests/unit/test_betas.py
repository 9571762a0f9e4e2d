"""The anthropic-beta header: what is read from clients, and what goes upstream."""

import pytest

from gateway.call.request import client_betas
from providers.endpoints import joined

BETA = b"anthropic-beta"


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        ([], ()),
        ([(BETA, b"a-1")], ("a-1",)),
        (
            [(BETA, b"a-1, b-2,c-3"), (b"x-other", b"no"), (BETA, b"d.4_x")],
            ("a-1", "b-2", "c-3", "d.4_x"),
        ),
        ([(BETA, b"a-1,a-1"), (BETA, b"a-1")], ("a-1",)),
        ([(BETA, b",, ,")], ()),
        ([(BETA, b"a b,c\r\nd,e:f,\xe9,ok")], ("ok",)),
        ([(BETA, b"a" * 100 + b"," + b"b" * 101)], ("a" * 100,)),
    ],
)
def test_names_are_read_from_every_header_and_list_and_odd_ones_ignored(
    headers: list[tuple[bytes, bytes]], names: tuple[str, ...]
) -> None:
    assert client_betas(headers) == names


def test_at_most_64_names_are_taken() -> None:
    assert client_betas([(BETA, b",".join(b"n%d" % n for n in range(1000)))]) == tuple(
        f"n{n}" for n in range(64)
    )


@pytest.mark.parametrize(
    ("configured", "betas", "value"),
    [
        ("", ("b", "a"), "b,a"),
        ("x, y", (), "x,y"),
        ("x,y", ("y", "z"), "x,y,z"),
        (" x ,", ("x",), "x"),
    ],
)
def test_the_operators_names_stay_and_the_requests_are_added(
    configured: str, betas: tuple[str, ...], value: str
) -> None:
    assert joined(configured, betas) == value
