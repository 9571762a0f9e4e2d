"""What stands in the place of a value that comes back: a name that only the key can make, the same
for the same value in every call of an API key. Nothing is stored.

No brackets, which models drop; safe in JSON, in a shell and in a URL. Must not know: who may have a
value back.
"""

import hmac
import re

PLACEHOLDER = re.compile(r"SLUICE_[A-Z]{4,8}_[0-9a-f]{16}(?![0-9a-zA-Z])", re.ASCII)


def masked(kind: str) -> str:
    """What stands in the place of a value that does not come back."""
    return f"REDACTED_{kind.upper()}"


def placeholder(key: bytes, api_key: str, kind: str, value: str) -> str:
    """Return the name of a value, which other API keys have another name for."""
    return f"SLUICE_{kind.upper()}_{fingerprint(key, api_key, kind, value)}"


def fingerprint(key: bytes, *parts: str) -> str:
    """Return 16 hex digits that say whether two values are the same, to who has the key."""
    message = "\0".join(parts).encode(errors="replace")
    return hmac.digest(key, message, "sha256").hex()[:16]
