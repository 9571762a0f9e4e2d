"""Annotations of chat/completions, in neutral words."""

from typing import Any

from protocol.citations import Citation

MAX_SOURCES = 200
"""The most pages that one answer cites."""


def read_citation(entry: dict[str, Any]) -> Citation:
    """Return the citation of an annotation that `attached.are_annotations` took. Places are of the
    whole content."""
    cited = entry["url_citation"]
    url, title, text = (cited.get(name) or "" for name in ("url", "title", "content"))
    start, end = (
        (
            value
            if isinstance(value := cited.get(name), int)
            and not isinstance(value, bool)
            and value >= 0
            else -1
        )
        for name in ("start_index", "end_index")
    )
    return Citation(
        kind="url",
        url=url,
        title=title,
        start=start,
        end=end,
        cited_text=text,
        raw=entry,
        dialect="openai",
    )


def read_sources(pages: Any, results: Any) -> list[Citation]:
    """Return the pages that a vendor listed outside the text (Perplexity's `search_results`, or
    addresses alone as xAI has them)."""
    titles: dict[str, str] = {}
    for search_result in results[:MAX_SOURCES] if isinstance(results, list) else ():
        if isinstance(search_result, dict) and isinstance(search_result.get("url"), str):
            titles[search_result["url"]] = (
                search_result["title"] if isinstance(search_result.get("title"), str) else ""
            )
    urls = (
        [url for url in pages[:MAX_SOURCES] if isinstance(url, str)]
        if isinstance(pages, list)
        else []
    )
    citations: list[Citation] = []
    for url in dict.fromkeys((*urls, *titles)):
        title = titles.get(url, "")
        raw = {
            "type": "url_citation",
            "url_citation": {"url": url, "title": title, "start_index": 0, "end_index": 0},
        }
        citations.append(
            Citation(kind="url", url=url, title=title, raw=raw, dialect="openai", is_listed=True)
        )
    return citations


def _place(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1
