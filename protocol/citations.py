"""The sources that a text cites, independent of any dialect."""

from typing import Any, Literal

import msgspec


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """One citation. `start` and `end` are code points of the block's text, -1 where it names no
    place.

    `raw` is the source dialect's object, for clients of the same one, whose name `dialect` is.
    """

    kind: Literal["url", "file", "char", "page", "block", "chunk"]
    url: str = ""
    title: str = ""
    file_id: str = ""
    start: int = -1
    end: int = -1
    cited_text: str = ""
    raw: dict[str, Any] = {}
    dialect: str = ""
    is_listed: bool = False
    """Did it come in a list outside the text, which clients of the same dialect read?"""

    @property
    def source_object(self) -> dict[str, Any]:
        """The source's own object; where it has none for one citation, an annotation as OpenAI's
        dialects have it."""
        return self.raw or {
            "type": "url_citation",
            "url": self.url,
            "title": self.title,
            "start_index": self.start,
            "end_index": self.end,
        }
