"""Which decisions a person is to look at: a sample that nobody can foresee, and that anybody with
the record can draw again.

The sample is drawn with the call's nonce. Neither the model nor the client knows it, so neither can
behave well only where somebody looks. It stands in the record from the beginning of the call
(`CallStart.nonce`), so nobody can choose afterwards what is looked at. Nothing here is random: a
worker that takes a call over draws the same.
"""

import hmac
from hashlib import sha256
from typing import Literal

Why = Literal["", "sampled", "suspicion"]
"""Why a decision is to be looked at; nothing: it is not."""
_BITS = 53
"""So many bits of the digest a float holds without rounding, which could make 1 of a number below
1."""


def draw(nonce: str, revision: str, block: int) -> float:
    """Return the number of a content block, from 0 to below 1, by which it is in the sample or not.

    It is the first 53 bits of HMAC-SHA256 under the nonce over the word `audit`, the policy
    revision and the block's number, with blanks between, divided by 2 to the power of 53.
    """
    digest = hmac.digest(nonce.encode(), f"audit {revision} {block}".encode(), sha256)
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)


def why(u: float, *, rate: float, score: float | None, at: float | None) -> Why:
    """Return why a decision with this draw and score is to be looked at. Suspicion comes first: who
    looks should know it."""
    if score is not None and at is not None and score >= at:
        return "suspicion"
    return "sampled" if u < rate else ""
