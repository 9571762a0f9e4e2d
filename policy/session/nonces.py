"""Unguessable marks, one for each use: knowing one reveals no other.

The gateway draws one random nonce for a call and keeps it secret; marks in prompts are derived from
it. A model without native tools, and with it the client, reads the mark of its tool results;
knowing that mark must not help to forge the answer of a judge. Derived by keyed BLAKE2b (RFC 7693),
which takes a sixth of the time of OpenSSL's HMAC. The marks are the same after a takeover.
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
