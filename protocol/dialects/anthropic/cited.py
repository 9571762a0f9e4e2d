"""Citations of the Messages dialect, in neutral words."""

from typing import Any, Literal

from protocol.citations import Citation

_KINDS: dict[str, Literal["url", "char", "page", "block", "chunk"]] = {
    "web_search_result_location": "url",
    "char_location": "char",
    "page_location": "page",
    "content_block_location": "block",
    "search_result_location": "chunk",
}


def read_citation(value: dict[str, Any]) -> Citation:
    """Return the citation; of a type that is not known, what its names say. Its places are of a
    document, not of the text that cites it."""
    title = _word(value, "title") or _word(value, "document_title")
    return Citation(
        kind=_KINDS.get(_word(value, "type"), "chunk"),
        url=_word(value, "url") or _word(value, "source"),
        title=title,
        file_id=_word(value, "file_id"),
        cited_text=_word(value, "cited_text"),
        raw=value,
        dialect="anthropic",
    )


def _word(value: dict[str, Any], name: str) -> str:
    text = value.get(name)
    return text if isinstance(text, str) else ""
