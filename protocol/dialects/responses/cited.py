"""Annotations of Responses: citations in neutral words."""

from typing import Any

from protocol.citations import Citation

_KINDS = {
    "url_citation": "url",
    "file_citation": "file",
    "container_file_citation": "file",
    "file_path": "file",
}


def read_citation(value: Any) -> Citation | None:
    """Return the citation that an annotation is, None where it is none that is modelled."""
    kind = _KINDS.get(str(value.get("type"))) if isinstance(value, dict) else None
    if kind is None:
        return None
    start, end = (_place(value.get(name)) for name in ("start_index", "end_index"))
    if kind == "url":
        return Citation(
            kind="url",
            url=_word(value.get("url")),
            title=_word(value.get("title")),
            start=start,
            end=end,
            raw=value,
            dialect="responses",
        )
    if "index" in value:
        # a file is named behind the text that it is the source of
        start = end = _place(value["index"])
    title, file_id = _word(value.get("filename")), _word(value.get("file_id"))
    return Citation(
        kind="file",
        title=title,
        file_id=file_id,
        start=start,
        end=end,
        raw=value,
        dialect="responses",
    )


def _place(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
