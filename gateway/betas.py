"""Names of beta features as clients send them, in the header `anthropic-beta`."""

import re
from collections.abc import Iterable

from protocol.bounds import MAX_BETAS

BETAS = b"anthropic-beta"
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,100}")


def client_betas(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Return the names that a request's headers carry (several headers, comma lists), each once;
    odd ones and those past 64 are ignored.

    Whether a name goes upstream is decided later, by the translation.
    """
    names: dict[str, None] = {}
    for header, value in headers:
        if header != BETAS:
            continue
        for part in value.split(b","):
            name = part.strip()
            if len(names) == MAX_BETAS:
                return tuple(names)
            if _NAME.fullmatch(name) is not None:
                names[name.decode()] = None
    return tuple(names)
