"""The grounding of an answer: its pages and passages as citations, and evidence of searches that no
part shows.

Gemini counts places in bytes of UTF-8, sometimes in code points, and sends the text that it means
with them. A place is kept only where that text stands there; a longer text that stands elsewhere
once is found.
"""

from typing import Any

from protocol.citations import Citation
from protocol.json_strict import dumps

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
    sources = [_source(one) for one in _objects(metadata.get("groundingChunks"))]
    supports = _objects(metadata.get("groundingSupports"))
    places = _places(supports, text, before)
    found: list[Citation] = []
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
                found.append(
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
            found.append(Citation(kind=kind, url=url, title=title, raw=raw, dialect="gemini"))
    return found


def merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the metadata of a stream's chunks merged into one: some repeat all, some hold only
    what is new. Linear in what they hold."""
    if len(found) == 1:
        return found[0]
    places: dict[bytes, int] = {}
    sources: list[dict[str, Any]] = []
    supports: dict[bytes, dict[str, Any]] = {}
    numbers: list[int] = []
    for metadata in found:
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
            one = {"segment": support.get("segment"), "groundingChunkIndices": known}
            supports.setdefault(dumps(one), one)
    return {"groundingChunks": sources, "groundingSupports": list(supports.values())}


def searches(metadata: dict[str, Any], *, has_fetched: bool) -> dict[str, list[str]]:
    """Return the tools that this is evidence of, by our names, and what each was asked. A fetched
    page is a source without a search."""
    found: dict[str, list[str]] = {}
    words, asked = (_words(metadata.get(name)) for name in ("webSearchQueries", "retrievalQueries"))
    words += _words(metadata.get("imageSearchQueries"))
    kinds = {
        kind
        for chunk in _objects(metadata.get("groundingChunks"))
        for kind in _KINDS
        if kind in chunk
    }
    if words or (kinds & {"web", "image"} and not has_fetched):
        found["web_search"] = words
    if asked or "retrievedContext" in kinds:
        found["file_search"] = asked
    if "maps" in kinds:
        found["google_maps"] = []
    return found


def _words(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


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
    if not all(isinstance(found, list) for found in lists):
        return None
    found = [one for found in lists for one in found or ()]
    if not all(isinstance(one, dict) and isinstance(one.get("uri", ""), str) for one in found):
        return None
    told = [{"citation": one} for one in found if one.get("uri")]
    return {"groundingChunks": told} if told or not found else None


def fetched(metadata: Any) -> str:
    """Return the arguments of a fetch that this is evidence of, "" where it is none."""
    pages = _objects(metadata.get("urlMetadata")) if isinstance(metadata, dict) else []
    urls = [page["retrievedUrl"] for page in pages if isinstance(page.get("retrievedUrl"), str)]
    return dumps({"urls": urls}).decode() if urls else ""


def _objects(value: Any) -> list[dict[str, Any]]:
    return (
        [one if isinstance(one, dict) else {} for one in value] if isinstance(value, list) else []
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
        start, end, said = (
            segment.get("startIndex") or 0,
            segment.get("endIndex"),
            segment.get("text"),
        )
        if (
            type(start) is not int
            or type(end) is not int
            or not isinstance(said, str)
            or not 0 <= start < end
        ):
            start, end, said = -1, -1, ""
        wanted.append((start, end, said))
    offsets = {
        place - base
        for start, end, said in wanted
        if said
        for place in (start, end)
        for base in (before, 0)
    }
    points = _code_points(text, offsets)
    found: list[_Place] = []
    left = _MAX_SEARCHED
    for start, end, said in wanted:
        place = (-1, -1)
        for base in (before, 0):
            first, last = points.get(start - base, -1), points.get(end - base, -1)
            if (
                said
                and first >= 0
                and last >= 0
                and last - first == len(said)
                and text.startswith(said, first)
            ):
                place = (first, last)
                break
        else:
            if said and end - start == len(said) and text.startswith(said, start):
                # some are code points
                place = (start, end)
            elif len(said) >= _MIN_SEARCHED and left >= len(text):
                left -= len(text)
                place = _found(said, text)
        found.append(place)
    return found


def _found(said: str, text: str) -> _Place:
    """The only place where it stands."""
    first = text.find(said)
    return (first, first + len(said)) if first >= 0 and text.find(said, first + 1) < 0 else (-1, -1)


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
