"""The end of a candidate: of a piece of text that may be a call, while it arrives. Brackets are
counted outside strings, or the tag is looked for that closes it."""

import re

_STRUCTURE = re.compile(r"""[{}\[\]"'\\]""")


class CandidateEnd:
    """Where the search for the end of a held candidate stands. `close` is the tag that ends it, or
    empty: brackets do.

    `name`: the text before it says that it is the arguments of this call. `is_code`: it is a list
    of calls as code.
    """

    __slots__ = (
        "at",
        "close",
        "end",
        "is_code",
        "name",
        "opened",
        "quote",
        "quotes",
        "spans",
        "stack",
        "start",
    )

    def __init__(
        self,
        at: int,
        *,
        close: str = "",
        stack: str = "",
        quotes: str = '"',
        name: str = "",
        is_code: bool = False,
    ) -> None:
        self.at, self.close, self.quotes, self.quote = at, close, quotes, ""
        self.name, self.is_code = name, is_code
        self.stack = list(stack)
        self.start, self.end = 0, -1
        self.opened: list[int] = []
        self.spans: list[tuple[int, int]] = []

    def look(self, held: str) -> None:
        """Search on for the end in what is held; each character is searched once."""
        if self.end < 0:
            self.end = self._tag_end(held) if self.close else self._brackets_end(held)

    def _tag_end(self, held: str) -> int:
        start = max(self.at - len(self.close), 0)
        match = pattern_of(self.close).search(held, start) if self.close != "\0" else None
        if match is None:
            self.at = len(held)
            return -1
        end = held.find(">", match.start())
        return end + 1 if end >= 0 else -1

    def _brackets_end(self, held: str) -> int:
        at, quote, stack = self.at, self.quote, self.stack
        while (match := _STRUCTURE.search(held, at)) is not None:
            sign, at = match[0], match.end()
            if quote:
                if sign == "\\":
                    if at >= len(held):
                        at -= 1
                        break
                    at += 1
                elif sign == quote:
                    quote = ""
            elif sign in self.quotes:
                quote = sign
            elif sign in "{[":
                stack.append(sign)
                if sign == "{":
                    self.opened.append(at - 1)
            elif sign in "}]":
                if stack:
                    stack.pop()
                if sign == "}" and self.opened:
                    self.spans.append((self.opened.pop(), at))
                if not stack:
                    self.at, self.quote = at, quote
                    return at
        else:
            at = len(held)
        self.at, self.quote = at, quote
        return -1


def pattern_of(text: str) -> re.Pattern[str]:
    """Return what finds `text` in upper or lower case."""
    # not by `lower`: some letters are two in lower case
    return re.compile(re.escape(text), re.IGNORECASE)
