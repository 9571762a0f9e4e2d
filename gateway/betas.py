"""Names of beta features in the header `anthropic-beta`: as clients send them, and as they go upstream."""

import re
from collections.abc import Iterable

MAX_NAMES = 64
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,100}")


def client_betas(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Return the names that a request's headers carry (several headers, comma lists), each once; odd ones and those past 64 are ignored.

    Whether a name goes upstream is decided later, by the translation.
    """
    names: dict[str, None] = {}
    for header, value in headers:
        if header != b"anthropic-beta":
            continue
        for part in value.split(b","):
            name = part.strip()
            if len(names) == MAX_NAMES:
                return tuple(names)
            if _NAME.fullmatch(name) is not None:
                names[name.decode()] = None
    return tuple(names)


def joined(configured: str, betas: Iterable[str]) -> str:
    """Return the header's value: the operator's names first, then those of the request, each once. Nothing is replaced."""
    names = [name.strip() for name in configured.split(",")]
    return ",".join(dict.fromkeys(name for name in [*names, *betas] if name))
