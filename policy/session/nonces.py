"""Marks that nobody can guess, one for each use: who sees one of them knows no other.

The gateway draws one random nonce for a call. It goes nowhere: what stands in a prompt is derived from it. A model that has no
native tools reads the mark of its tool results, and with it the client does; the judge of its calls must not be answered for by
whoever knows that one. Keyed BLAKE2b (RFC 7693), which takes a sixth of OpenSSL's HMAC; the same after a takeover.
"""

from hashlib import blake2b
from typing import Final

TOOLS: Final = "tools"
"""Around the results of tools that are written into a prompt."""
POLICIES: Final = "policies"
"""What policies know as `context.nonce`."""


def derived(nonce: str, use: str) -> str:
    """Return the mark for `use`: 32 hex digits."""
    return blake2b(use.encode(), key=nonce.encode(), digest_size=16).hexdigest()


def for_question(nonce: str, block: int, step: int) -> str:
    """Return the mark of one question to a judge, from `context.nonce`."""
    return derived(nonce, f"judge:{block}:{step}")
