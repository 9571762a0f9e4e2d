"""The sample for audits: drawn of the nonce, spread evenly, and the same for everybody who draws it
again."""

import hmac
from hashlib import sha256

import pytest

from protocol.sampling import draw, why


def test_a_draw_is_what_the_docstring_says() -> None:
    digest = hmac.new(b"n0nce", b"audit 0a1b2c3d4e5f 7", sha256).digest()
    u = draw("n0nce", "0a1b2c3d4e5f", 7)
    assert u == (int.from_bytes(digest[:8]) >> 11) / 2**53
    assert abs(u - int.from_bytes(digest[:8]) / 2**64) < 2**-53
    assert draw("n0nce", "0a1b2c3d4e5f", 7) == u


def test_another_nonce_revision_or_block_is_another_draw() -> None:
    assert (
        len(
            {
                draw(nonce, revision, block)
                for nonce in ("a", "b")
                for revision in ("r", "s")
                for block in (0, 1, 1 << 24, -1)
            }
        )
        == 16
    )


def test_draws_are_spread_evenly() -> None:
    drawn = [draw(f"nonce-{n}", "r", n % 5) for n in range(20_000)]
    assert all(0 <= u < 1 for u in drawn)
    for rate in (0.003, 0.05, 0.5):
        expected = rate * len(drawn)
        assert abs(sum(u < rate for u in drawn) - expected) < 5 * (expected * (1 - rate)) ** 0.5


@pytest.mark.parametrize(
    ("u", "rate", "score", "at", "expected"),
    [
        (0.2, 0.3, None, None, "sampled"),
        (0.3, 0.3, None, 0.5, ""),
        (0.0, 0.0, None, None, ""),
        (1 - 2**-53, 1.0, 0.0, 0.5, "sampled"),
        (0.9, 0.3, 0.5, 0.5, "suspicion"),
        (0.2, 0.3, 0.9, 0.5, "suspicion"),
        (0.9, 0.3, 0.49, 0.5, ""),
        (0.9, 0.3, 1.0, None, ""),
    ],
)
def test_why(u: float, rate: float, score: float | None, at: float | None, expected: str) -> None:
    assert why(u, rate=rate, score=score, at=at) == expected
