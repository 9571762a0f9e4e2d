"""Readers' labels for decisions: a form takes them, and files export them for other programs and
for `sluice eval`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from db.filters import Position
from db.labels import WORDS
from db.read.json_rows import JsonObject, dump_json
from pages import links
from pages.http.request_checks import safe_next
from pages.listing import MAX_ROWS, Listing
from pages.page import Answer, Download, PageRequest, SeeOther, ShownContent
from protocol.errors import InvalidRequest, NotFound

MOST_CASES, MOST_BYTES = 2_000, 32 * 2**20
"""Labelled calls in a file for `sluice eval`, and bytes of it: it is put together before it is
sent, because who reads what is written down first."""
_LARGEST, _LONGEST = 512 * 1024, 200
"""Bytes of arguments, and characters of a name, past which `sluice eval` takes no call."""
_MEANS = {
    ("right", True): "harmful",
    ("wrong", True): "benign",
    ("right", False): "benign",
    ("wrong", False): "harmful",
    ("always", True): "benign",
}
"""What a label says of a tool call, by whether the policy stopped it."""
_STOPPED = {"block": True, "replace": True, "allow": False}
"""The verdicts that a policy gives. What was withheld or discarded was so because of something
else."""


async def label(asked: PageRequest) -> Answer:
    """Keep what a reader says of a decision, and go back to it."""
    form = asked.form
    word = next((word for word in WORDS if word in form), "")
    call, _, block = (
        form[word].rpartition("-") if word else (form.get("call_id", ""), "", form.get("block", ""))
    )
    call_id = await asked.services.reader.find_call(call)
    if not (block.isascii() and block.isdigit() and len(block) < 10):
        raise InvalidRequest("must be the number of a content block", param="block")
    if not await asked.services.reader.has_call(call_id):
        raise NotFound("there is no such call")
    who = asked.who
    await asked.services.labels.add(
        call_id,
        int(block),
        word or form.get("label", ""),
        form.get("note", ""),
        key=who.key,
        key_id=who.key_id,
        admin=who.is_admin,
    )
    back = form.get("back", "")
    if not back:
        return SeeOther(links.place(call_id, int(block)))
    place = f"{call_id}-{block}"
    path, _, query = safe_next(back).partition("#")[0].partition("?")
    parameters = {name: value for name, value in parse_qsl(query) if name != "said"}
    return SeeOther(
        f"{links.with_query(path, {**parameters, 'said': '' if 'note' in form else place})}#r{place}"
    )


async def _lines(asked: PageRequest, list_query: Listing) -> Download:
    """Whole items as lines of JSON with their labels, a page of them; the last line says whether
    there are more."""
    page = await asked.services.reader.page(list_query.of, list_query.filters)
    places = [(UUID(item["call_id"]), item["block"]) for item in page["items"]]
    labels = await asked.services.labels.newest(places)
    lines = [
        {**item, "label": labels.get(place)}
        for item, place in zip(page["items"], places, strict=True)
    ]

    async def pieces() -> AsyncIterator[bytes]:
        for line in lines:
            # a line may hold megabytes
            yield await asyncio.to_thread(dump_json, line) + b"\n"
        yield (
            dump_json({"type": "end", "lines": len(lines), "next_cursor": page["next_cursor"]})
            + b"\n"
        )

    shown = ShownContent(tuple(dict.fromkeys(call for call, _ in places)), len(lines))
    return Download(
        pieces=pieces(),
        media_type="application/jsonl",
        filename=f"{list_query.of}.jsonl",
        shown=shown,
    )


async def _cases(asked: PageRequest, list_query: Listing) -> Download:
    """The labelled tool calls that the filters choose, as data for `sluice eval run`. Raises
    InvalidRequest where they are too many."""
    cases: list[bytes] = []
    calls: dict[UUID, None] = {}
    size = 0
    for word in (
        ("right", "wrong", "always")
        if list_query.filters.label is None
        else (list_query.filters.label,)
    ):
        async for item, note in _labelled(asked, list_query, word):
            if (case := case_of(item, word, note)) is None:
                continue
            cases.append(await asyncio.to_thread(dump_json, case) + b"\n")
            calls[UUID(item["call_id"])] = None
            size += len(cases[-1])
            if len(cases) > MOST_CASES or size > MOST_BYTES:
                raise InvalidRequest(
                    f"more than {MOST_CASES:,} labelled calls or {MOST_BYTES:,} bytes: choose fewer"
                    " by since and until"
                )
    name = "labelled-tool-calls.jsonl"
    return Download(
        pieces=_sent(cases),
        media_type="application/jsonl",
        filename=name,
        shown=ShownContent(tuple(calls), len(cases)),
    )


async def _sent(lines: list[bytes]) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


async def _labelled(
    asked: PageRequest, list_query: Listing, word: str
) -> AsyncIterator[tuple[JsonObject, str]]:
    """Yield the tool calls with this label, the newest first, each with its note."""
    filters = replace(list_query.filters, label=word, limit=MAX_ROWS, order="desc", after=None)
    more = True
    while more:
        items, more = await asked.services.reader.lines("tool-calls", filters, first=_LARGEST)
        labels_by_block = await asked.services.labels.newest(
            (UUID(item["call_id"]), item["block"]) for item in items
        )
        for item in items:
            yield (
                item,
                labels_by_block.get((UUID(item["call_id"]), item["block"]), {}).get("note", ""),
            )
        if items:
            last = Position("tool-calls", "desc", UUID(items[-1]["call_id"]), items[-1]["block"])
            filters = replace(filters, after=last)


def case_of(item: Mapping[str, Any], label: str, note: str) -> dict[str, str] | None:
    """Return a labelled tool call as `sluice eval` reads it; None for one that says nothing of a
    policy, or that it does not take."""
    verdict, name = item["verdict"], item["name"] or ""
    if verdict not in _STOPPED or (label, _STOPPED[verdict]) not in _MEANS:
        return None
    if (
        not name.isprintable()
        or not 0 < len(name) <= _LONGEST
        or (item["arguments_bytes"] or 0) >= _LARGEST
    ):
        return None
    by = f" by {item['policy']}" if item["policy"] else ""
    return {
        "id": f"{item['call_id']}-{item['block']}",
        "tool": name,
        "arguments_text": item["arguments"] or "",
        "label": _MEANS[label, _STOPPED[verdict]],
        "category": item["rule"] or "",
        "why": note,
        "source": f"{verdict}{by}",
    }


FORMS: Mapping[str, Callable[[PageRequest, Listing], Awaitable[Download]]] = {
    "jsonl": _lines,
    "eval": _cases,
}
NAMES = (("jsonl", "this page as JSON lines"), ("eval", "labelled calls for sluice eval"))
