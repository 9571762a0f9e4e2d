"""What the plain text of a call says that its client got."""

import re

from pages.call.whole_text import unspell

_GOT = re.compile(r"⟦client got: [^⟧]* bytes([^⟧]*)⟧\n(.*?)\n(?=⟦(?!U\+|byte ))", re.DOTALL)


def released_in(whole: str) -> bytes:
    """Read back the bytes that were relayed."""
    return b"".join(
        unspell(content) for more, content in _GOT.findall(whole) if "not relayed" not in more
    )
