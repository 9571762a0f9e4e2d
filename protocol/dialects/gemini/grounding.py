"""The grounding of an answer: its pages and passages as citations, and evidence of searches that no
part shows.

Gemini counts places in bytes of UTF-8, sometimes in code points, and sends the text that it means
with them. A place is kept only where that text stands there; a longer text that stands elsewhere
once is found.
"""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.citations import Citation

_KINDS = {
    "web": "url",
    "maps": "url",
    "image": "url",
    "citation": "url",
    "retrievedContext": "chunk",
}
_Place = tuple[int, int]
_MIN_SEARCHED, _MAX_SEARCHED = 16, 1 << 22
"""Characters of a passage that is looked for where its place is wrong, and of all texts that are
searched."""


def citations(metadata: dict[str, Any], text: str, before: int) -> list[Citation]:
    """Return the citations of `text`, which `before` bytes of other texts preceded. Sources that no
    place names come without one."""
    sources = [_source(chunk) for chunk in _objects(metadata.get("groundingChunks"))]
    supports = _objects(metadata.get("groundingSupports"))
    places = _places(supports, text, before)
    citation_list: list[Citation] = []
    used: set[int] = set()
    for support, (start, end) in zip(supports, places, strict=True):
        indices = support.get("groundingChunkIndices")
        for number in indices if isinstance(indices, list) else ():
            if (
                isinstance(number, int)
                and not isinstance(number, bool)
                and 0 <= number < len(sources)
            ):
                used.add(number)
                kind, url, title, raw = sources[number]
                cited = text[start:end] if start >= 0 else ""
                citation_list.append(
                    Citation(
                        kind=kind,
                        url=url,
                        title=title,
                        start=start,
                        end=end,
                        cited_text=cited,
                        raw=raw,
                        dialect="gemini",
                    )
                )
    for number, (kind, url, title, raw) in enumerate(sources):
        if number not in used:
            citation_list.append(
                Citation(kind=kind, url=url, title=title, raw=raw, dialect="gemini")
            )
    return citation_list


def merged(metadata_list: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a stream's chunks merged into one: some repeat all, some hold only
    what is new. Linear in what they hold."""
    if len(metadata_list) == 1:
        return metadata_list[0]
    places: dict[bytes, int] = {}
    sources: list[dict[str, Any]] = []
    supports: dict[bytes, dict[str, Any]] = {}
    numbers: list[int] = []
    for metadata in metadata_list:
        chunks = _objects(metadata.get("groundingChunks"))
        for chunk in chunks:
            if places.setdefault(dumps(chunk), len(sources)) == len(sources):
                sources.append(chunk)
        numbers = [places[dumps(chunk)] for chunk in chunks] or numbers
        for support in _objects(metadata.get("groundingSupports")):
            named = support.get("groundingChunkIndices")
            known = (
                [numbers[n] for n in named if type(n) is int and 0 <= n < len(numbers)]
                if isinstance(named, list)
                else []
            )
            merged_support = {"segment": support.get("segment"), "groundingChunkIndices": known}
            supports.setdefault(dumps(merged_support), merged_support)
    return {"groundingChunks": sources, "groundingSupports": list(supports.values())}


def searches(metadata: dict[str, Any], *, has_fetched: bool) -> dict[str, list[str]]:
    """Return the tools that this is evidence of, by our names, and what each was asked. A fetched
    page is a source without a search."""
    queries_by_tool: dict[str, list[str]] = {}
    words, asked = (_words(metadata.get(name)) for name in ("webSearchQueries", "retrievalQueries"))
    words += _words(metadata.get("imageSearchQueries"))
    kinds = {
        kind
        for chunk in _objects(metadata.get("groundingChunks"))
        for kind in _KINDS
        if kind in chunk
    }
    if words or (kinds & {"web", "image"} and not has_fetched):
        queries_by_tool["web_search"] = words
    if asked or "retrievedContext" in kinds:
        queries_by_tool["file_search"] = asked
    if "maps" in kinds:
        queries_by_tool["google_maps"] = []
    return queries_by_tool


def _words(value: Any) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def recited(metadata: Any) -> dict[str, Any] | None:
    """Return what `citationMetadata` says as sources, None where it is something else. No text
    beside its places tells if they fit.

    What has no address beside others that do (a licence, a title alone) is left out.
    """
    lists = (
        [metadata.get(name) or [] for name in ("citationSources", "citations")]
        if isinstance(metadata, dict)
        else [None]
    )
    if not all(isinstance(sources, list) for sources in lists):
        return None
    sources = [source for sources in lists for source in sources or ()]
    if not all(
        isinstance(source, dict) and isinstance(source.get("uri", ""), str) for source in sources
    ):
        return None
    chunks = [{"citation": source} for source in sources if source.get("uri")]
    return {"groundingChunks": chunks} if chunks or not sources else None


def fetched(metadata: Any) -> str:
    """Return the arguments of a fetch that this is evidence of, "" where it is none."""
    pages = _objects(metadata.get("urlMetadata")) if isinstance(metadata, dict) else []
    urls = [page["retrievedUrl"] for page in pages if isinstance(page.get("retrievedUrl"), str)]
    return dumps({"urls": urls}).decode() if urls else ""


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [element if isinstance(element, dict) else {} for element in value]
        if isinstance(value, list)
        else []
    )


def _source(chunk: dict[str, Any]) -> tuple[Any, str, str, dict[str, Any]]:
    for name, kind in _KINDS.items():
        if isinstance(source := chunk.get(name), dict):
            url, title = (
                v if isinstance(v := source.get(n), str) else "" for n in ("uri", "title")
            )
            return kind, url, title, chunk
    return "chunk", "", "", chunk


def _places(supports: list[dict[str, Any]], text: str, before: int) -> list[_Place]:
    """The place of each support in code points, (-1, -1) where its text does not stand there."""
    wanted: list[tuple[int, int, str]] = []
    for support in supports:
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        start, end, segment_text = (
            segment.get("startIndex") or 0,
            segment.get("endIndex"),
            segment.get("text"),
        )
        if (
            type(start) is not int
            or type(end) is not int
            or not isinstance(segment_text, str)
            or not 0 <= start < end
        ):
            start, end, segment_text = -1, -1, ""
        wanted.append((start, end, segment_text))
    offsets = {
        place - base
        for start, end, segment_text in wanted
        if segment_text
        for place in (start, end)
        for base in (before, 0)
    }
    points = _code_points(text, offsets)
    places: list[_Place] = []
    left = _MAX_SEARCHED
    for start, end, segment_text in wanted:
        place = (-1, -1)
        for base in (before, 0):
            first, last = points.get(start - base, -1), points.get(end - base, -1)
            if (
                segment_text
                and first >= 0
                and last >= 0
                and last - first == len(segment_text)
                and text.startswith(segment_text, first)
            ):
                place = (first, last)
                break
        else:
            if (
                segment_text
                and end - start == len(segment_text)
                and text.startswith(segment_text, start)
            ):
                # some are code points
                place = (start, end)
            elif len(segment_text) >= _MIN_SEARCHED and left >= len(text):
                left -= len(text)
                place = _found(segment_text, text)
        places.append(place)
    return places


def _found(segment_text: str, text: str) -> _Place:
    """The only place where it stands."""
    first = text.find(segment_text)
    return (
        (first, first + len(segment_text))
        if first >= 0 and text.find(segment_text, first + 1) < 0
        else (-1, -1)
    )


def _code_points(text: str, offsets: set[int]) -> dict[int, int]:
    """The code point at each of these bytes, where one begins there; one way through the text."""
    data = text.encode("utf-8", "surrogatepass")
    points: dict[int, int] = {}
    at = count = 0
    for offset in sorted(offsets):
        if not 0 <= offset <= len(data) or (offset < len(data) and data[offset] & 0xC0 == 0x80):
            continue
        count += len(data[at:offset].decode("utf-8", "surrogatepass"))
        at = offset
        points[offset] = count
    return points
