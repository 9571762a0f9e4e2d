"""The response header that names the request parameters which could not be kept, so that nothing
vanishes silently."""

import re
from collections.abc import Sequence

HEADER = "x-sluice-dropped"
MAX_BYTES = 500
_ODD = re.compile(r"[^A-Za-z0-9_.:\[\] -]")
_MORE = "..."


def header_value(names: Sequence[str]) -> str:
    """Return the names separated by commas, in ASCII, odd characters as `?`; past 500 bytes the
    rest is `...`."""
    value = ""
    for position, name in enumerate(names):
        item = ("," if position else "") + _ODD.sub("?", name)
        if len(value) + len(item) > MAX_BYTES - len("," + _MORE):
            return value + ("," if position else "") + _MORE
        value += item
    return value
