"""Marks that nobody can guess, one for each use: who sees one of them knows no other.

The gateway draws one random nonce for a call. It goes nowhere: what stands in a prompt is derived from it. A model that has no
native tools reads the mark of its tool results, and with it the client does; the judge of its calls must not be answered for by
whoever knows that one. HMAC (RFC 2104) with SHA-256; the same after a takeover.
"""

import hmac
from typing import Final

TOOLS: Final = "tools"
"""Around the results of tools that are written into a prompt."""
POLICIES: Final = "policies"
"""What policies know as `context.nonce`."""


def derived(nonce: str, use: str) -> str:
    """Return the mark for `use`: 32 hex digits."""
    return hmac.digest(nonce.encode(), use.encode(), "sha256").hex()[:32]


def for_question(nonce: str, block: int, step: int) -> str:
    """Return the mark of one question to a judge, from `context.nonce`."""
    return derived(nonce, f"judge:{block}:{step}")
