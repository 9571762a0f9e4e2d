"""Annotations of chat/completions, in neutral words."""

from typing import Any

from protocol.citations import Citation


def read_citation(entry: dict[str, Any]) -> Citation:
    """Return the citation of an annotation that `attached.are_annotations` took. Places are of the whole content."""
    cited = entry["url_citation"]
    url, title, text = (cited.get(name) or "" for name in ("url", "title", "content"))
    start, end = (
        value if isinstance(value := cited.get(name), int) and not isinstance(value, bool) and value >= 0 else -1
        for name in ("start_index", "end_index")
    )
    return Citation(kind="url", url=url, title=title, start=start, end=end, cited_text=text, raw=entry, dialect="openai")


def _place(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1
