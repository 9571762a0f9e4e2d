"""Evidence of one tool call or block: a page to print, and the file that verifies without a
database; and a call's place in the tree."""

import asyncio
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from db.engine import reading
from db.read.call.chunk_pages import read_slices
from db.read.call.story import BlockDetails, Overview, read_details, read_overview
from db.read.json_rows import release_times
from db.read.json_rows import time as iso
from db.seals import checkpoints
from db.seals.evidence import CODE, make
from db.seals.findings import Report
from db.seals.proof import Evidence
from db.seals.state import seals_of
from db.seals.verify import verify_part
from pages import links
from pages.call import arguments
from pages.page import Download, Page, PageRequest, Route, ShownContent, sliced
from pages.render import short
from pages.views.call import call_of, check_query, frame, number_of, overview_of
from protocol.errors import AuditUnavailable, InvalidRequest, NotFound
from protocol.records import to_text

_MOST = 64 * 1024
"""Bytes of an explanation or reply that the page shows."""
_JUDGED = ("step", "model", "policy", "probability", "threshold", "latency_ms", "attempts", "error")


async def show_evidence(asked: PageRequest) -> Page:
    """What is on record of a block, what vouches for it, and what verification says now."""
    call_id, number, size = await _named(asked)
    reader = asked.services.reader
    async with reading(reader.engine) as connection:
        overview = await read_overview(connection, call_id)
        if overview is None or number not in overview.numbers:
            raise NotFound(f"no block {number} of call {call_id} is on record", param="block")
        details = await read_details(connection, call_id, [number], most=_MOST, tail=0)
    sides = (
        [await _side(asked, call_id, number, of) for of in ("arguments", "released")]
        if number in overview.tools
        else []
    )
    proof, why = await _proof(asked, call_id, number, size)
    seals = await asyncio.to_thread(seals_of, reader.url, call_id, within_s=_within_s(asked))
    tool = overview.tools.get(number)
    name = str(tool.name or "") if tool is not None else ""
    values = {
        "call_id": str(call_id),
        "number": number,
        "name": name,
        "facts": _facts(overview, number),
        "times": _times(overview, number),
        "judgements": _judgements(overview, details, number),
        "sides": [side for side in sides if side],
        "seal": _item(seals[-1:]),
        "proof": proof,
        "why": why,
        "verified": await verified(asked, call_id),
        "file": links.evidence(call_id, number, "file", size=size),
        "printed": {"at": iso(datetime.now(UTC)), "key": asked.who.key, "key_id": asked.who.key_id},
    }
    title = f"evidence · {name or 'block'} #{number} · {short(str(call_id))}"
    return Page(
        template="evidence.html", title=title, values=values, shown=ShownContent((call_id,), 1)
    )


async def evidence_file(asked: PageRequest) -> Download:
    """The file. Raises InvalidRequest with a sentence where there is none."""
    call_id, number, size = await _named(asked)
    made = await _make(asked, call_id, number, size)
    data = await asyncio.to_thread(made.dump)
    name = f"evidence-{call_id}-{number}.json"
    return Download(
        pieces=sliced(data),
        media_type="application/json",
        filename=name,
        shown=ShownContent((call_id,), 1),
    )


async def show_proof(asked: PageRequest) -> Page:
    """A call's seals, their places in the tree, and what verification says now."""
    call_id = await call_of(asked)
    check_query(asked, "from")
    overview = await overview_of(asked, call_id)
    seals = await asyncio.to_thread(
        seals_of, asked.services.reader.url, call_id, within_s=_within_s(asked)
    )
    values = {
        **await frame(asked, overview, "proof"),
        "seals": [_item([seal]) for seal in seals],
        "verified": await verified(asked, call_id),
        "numbers": [
            [number, _label(overview, number)]
            for number in overview.numbers
            if number in overview.tools or number in overview.blocks
        ],
    }
    return Page(
        template="call_proof.html",
        title=f"proof · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), len(seals)),
    )


async def verified(asked: PageRequest, call_id: UUID) -> dict[str, Any]:
    """Verify the rows of a call, and the checkpoints around its seals: `ok` is None where that
    could not be determined."""
    at, report = iso(datetime.now(UTC)), await verify(asked, call_id=call_id)
    if isinstance(report, str):
        return {"ok": None, "at": at, "sentence": report, "findings": []}
    findings = [str(finding) for finding in report.findings]
    if report.unsealed and not report.calls:
        return {
            "ok": None,
            "at": at,
            "sentence": "The call has no seal yet, so there is nothing to compare with.",
            "findings": findings,
        }
    facts = [f"{report.rows:,} rows of the call as they were sealed"]
    facts += (
        ["the checkpoints around its seals"]
        if report.checkpoints
        else ["no checkpoint near its seals was looked at"]
    )
    facts += ["its content was redacted"] if report.redacted else []
    facts += ["it is incomplete"] if report.incomplete_calls else []
    sentence = (
        f"It fits: {', '.join(facts)}."
        if report.ok
        else f"It does not fit: {report.damages:,} found."
    )
    return {"ok": report.ok, "at": at, "sentence": sentence, "findings": findings}


async def verify(
    asked: PageRequest, *, call_id: UUID | None = None, low: UUID | None = None
) -> Report | str:
    """Verify the rows of a call, or of all from an id on; return why not in words where that cannot
    be done now."""
    url, within_s = asked.services.reader.url, _within_s(asked)
    try:
        return await asyncio.to_thread(
            verify_part, url, call_id=call_id, low=low, high=None, within_s=within_s
        )
    except (AuditUnavailable, InvalidRequest, NotFound) as error:
        return f"It could not be verified now: {error.message}."


async def _named(asked: PageRequest) -> tuple[UUID, int, int | None]:
    call_id, number = await call_of(asked), number_of(asked.params["block"], "block")
    check_query(asked, "size")
    size = asked.one("size")
    return call_id, number, number_of(size, "size") if size else None


async def _make(asked: PageRequest, call_id: UUID, number: int, size: int | None) -> Evidence:
    return await asyncio.to_thread(
        make, asked.services.reader.url, call_id, number, size=size, within_s=_within_s(asked)
    )


async def _proof(
    asked: PageRequest, call_id: UUID, number: int, size: int | None
) -> tuple[dict[str, Any] | None, str]:
    """What leads from the call to a checkpoint; or why nothing does."""
    try:
        made = await _make(asked, call_id, number, size)
    except (InvalidRequest, AuditUnavailable) as error:
        if isinstance(error, InvalidRequest) and error.error_code != CODE:
            raise
        return None, error.message
    checkpoint = checkpoints.parse(made.checkpoint)
    return {
        "checkpoint": made.checkpoint,
        "size": checkpoint.size,
        "at": checkpoint.at,
        "root": checkpoint.root.hex(),
        "is_signed": not made.checkpoint.endswith("\n\n"),
        "sha256": made.sha256.hex(),
        "path": [digest.hex() for digest in made.path],
    }, ""


def _within_s(asked: PageRequest) -> float:
    return asked.services.settings.config.limits.audit_read_s


async def _side(asked: PageRequest, call_id: UUID, number: int, of: str) -> dict[str, Any] | None:
    digest, first, last, length, is_there = sha256(), b"", b"", 0, False
    # slice by slice: it may be megabytes, of which the page shows the ends
    async for piece in read_slices(asked.services.reader, call_id, of, number):
        digest.update(piece)
        first += piece[: arguments.WHOLE - len(first)]
        last = (last + piece)[-arguments.ENDS :]
        length, is_there = length + len(piece), True
    if not is_there:
        return None
    tail = last if length > arguments.WHOLE else None
    side = arguments.one_side(arguments.shown(first, tail, length, arguments.WHOLE))
    name = "Asked for" if of == "arguments" else "Released"
    return {"name": name, "of": of, "size": length, "sha256": digest.hexdigest(), "side": side}


def _label(overview: Overview, number: int) -> str:
    tool = overview.tools.get(number)
    return str(tool.name or "tool call") if tool is not None else str(overview.blocks[number].kind)


def _facts(overview: Overview, number: int) -> list[list[Any]]:
    """Names and values, as they are in the record; a later word on a tool call stands beside the
    first."""
    call, tool, block = overview.call, overview.tools.get(number), overview.blocks.get(number)
    facts: list[list[Any]] = []
    if tool is not None:
        facts += [
            ["Tool", tool.name],
            ["Tool call id", tool.tool_call_id],
            ["Runs at", tool.executor],
            ["Form", tool.form],
        ]
    for row, later in ((tool, False), (block, tool is not None)):
        if row is not None:
            word = "Later verdict" if later else "Verdict"
            facts += [
                [word, row.verdict],
                [f"{word} by policy", row.policy],
                [f"{word}, rule", row.rule],
                [f"{word}, reason", row.reason],
            ]
    facts += [["Why", overview.whys.get(number)]]
    facts += [
        ["Policies", call["policy"]],
        ["Policy revision", call["policy_revision"]],
        ["Policy set", call["policy_set"]],
    ]
    facts += [
        ["Key", call["key"]],
        ["Key id", call["key_id"]],
        ["Session", call["session"]],
        ["Model", call["model"]],
    ]
    facts += [["Upstream", call["upstream"]], ["Gateway", call["gateway"]]]
    return [[name, value] for name, value in facts if value not in (None, "")]


def _times(overview: Overview, number: int) -> list[list[Any]]:
    tool, block = overview.tools.get(number), overview.blocks.get(number)
    times = [["Call began", overview.call["created_at"]]]
    if (span := overview.spans.get(number)) is not None:
        times += [["First chunk", iso(span.first_at)], ["Last chunk", iso(span.last_at)]]
    if tool is not None:
        went = release_times((block or tool).verdict, tool.released_at)
        times += [
            ["Decided", iso(tool.at)],
            ["Released", went["released_at"]],
            ["Notice sent in its place", went["notice_at"]],
        ]
    if block is not None:
        times += [["Decided again" if tool is not None else "Decided", iso(block.at)]]
    times += [["Call ended", overview.call["ended_at"]]]
    return [[name, at] for name, at in times if at]


def _judgements(overview: Overview, details: BlockDetails, number: int) -> list[dict[str, Any]]:
    texts = {row.step: row for row in details.judgements.get(number, [])}
    rows = []
    for judgement in overview.judged:
        if judgement.block != number:
            continue
        answer = texts.get(judgement.step)
        rows.append(
            {
                **{name: getattr(judgement, name) for name in _JUDGED},
                "at": iso(judgement.at),
                "explanation": answer.explanation if answer else "",
                "reply": to_text(bytes(answer.reply or b"")) if answer else "",
                "reply_size": answer.reply_size if answer else 0,
            }
        )
    return rows


def _item(seals: list[dict[str, Any]]) -> dict[str, Any] | None:
    return {**seals[0], "at": iso(seals[0]["at"])} if seals else None


_CALL = f"{links.CALLS}/{{call_id}}"
ROUTES = (
    Route(f"{_CALL}/blocks/{{block}}/evidence", show_evidence),
    Route(f"{_CALL}/blocks/{{block}}/evidence/file", evidence_file),
    Route(f"{_CALL}/proof", show_proof),
)
