"""The page of a call's chunks holds every byte that the client got, in order, each with the chunk
or the decision it came from."""

import asyncio
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from db.read.queries import AuditReader
from db.seals.redact import redact
from protocol.dialects.table import CLIENTS
from protocol.records import (
    BlockRecord,
    EndRecord,
    EventRecord,
    Record,
    ReleaseRecord,
    ToolReleaseRecord,
)
from tests.support.checks.pages import all_pages, bytes_of, written_of
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    judgement_record,
    now_ms,
    tool_call_record,
)

PING = CLIENTS["anthropic"].keepalive


def out(
    call: str, number: int, payload: bytes, *, seq: int, at: int | None = None, covers: int = 1
) -> ReleaseRecord:
    """A release of some session outputs."""
    values = {
        "number": number,
        "number_next": number + covers,
        "at": now_ms() if at is None else at,
        "seq": seq,
    }
    return ReleaseRecord(call_id=call, payload=payload, sha256=sha256(payload).digest(), **values)


def ended(call: str, relayed: int, *, reason: str = "complete") -> EndRecord:
    """The end of a call that was relayed up to there."""
    return EndRecord(
        call_id=call, at=now_ms() + 99, state="ENDED", reason=reason, status=200, relayed=relayed
    )


def event(call: str, kind: str, number: int, detail: str) -> EventRecord:
    """What the gateway wrote besides."""
    return EventRecord(call_id=call, kind=kind, number=number, at=now_ms(), detail=detail)


def text_call(call: str) -> list[Record]:
    """Two releases of text, the last frames with the end of the upstream's stream, which is no
    chunk."""
    chunks = chunks_record(call, [b"1", b"2", b"3"])
    return [
        call_record(call),
        chunks,
        out(call, 1, b"a", seq=1),
        out(call, 2, b"b", seq=3),
        out(call, 3, b"[DONE]", seq=4),
        ended(call, 4),
    ]


def judged_call(call: str, *, verdict: str = "allow") -> list[Record]:
    """A tool call that waits for its judgement and its commit while nothing comes, and goes out
    behind the end of the upstream's stream."""
    released = tool_call_record(
        call, verdict=verdict, released_arguments=b"{}" if verdict == "allow" else None
    )
    return [
        call_record(call),
        chunks_record(call, [b"1"]),
        chunks_record(call, [b"2", b"3"], seq=2, verdict="hold", block=1),
        out(call, 1, b"text", seq=1),
        released,
        judgement_record(call),
        ToolReleaseRecord(call_id=call, block=1, at=now_ms() + 40),
        out(call, 2, b"tool call" if verdict == "allow" else b"(blocked)", seq=4, at=now_ms() + 41),
        out(call, 3, b"[DONE]", seq=4, at=now_ms() + 60),
        ended(call, 4),
    ]


def silent_call(call: str) -> list[Record]:
    """Keepalives before anything, between two releases, and behind the last before the gateway's
    own error."""
    return [
        call_record(call, dialect="anthropic"),
        chunks_record(call, [b"1", b"2"]),
        event(call, "keepalive", 1, "2"),
        out(call, 1, b"a", seq=1),
        event(call, "keepalive", 2, "1"),
        out(call, 2, b"b", seq=2),
        event(call, "keepalive", 3, "1"),
        event(call, "frame", 3, "event: error"),
        out(call, 3, b"never relayed", seq=3),
        ended(call, 3, reason="stream_timeout"),
    ]


def late_call(call: str) -> list[Record]:
    """An error whose headers could not be sent any more: its frame stands in place of its body."""
    records: list[Record] = [
        call_record(call),
        chunks_record(call, [b"1"]),
        out(call, 1, b"a", seq=1),
    ]
    return [
        *records,
        out(call, 2, b'{"error": 1}', seq=2),
        event(call, "late", 2, 'data: {"error": 1}'),
        ended(call, 3),
    ]


def continued_call(call: str) -> list[Record]:
    """Two upstream requests of one turn: the end of the first stream takes a number of its own."""
    first, second = (
        chunks_record(call, [b"1", b"2"]),
        chunks_record(call, [b"3", b"4"], seq=4, block=1),
    )
    releases = [
        out(call, 1, b"a", seq=2),
        out(call, 2, b"b", seq=3),
        out(call, 3, b"c", seq=4),
        out(call, 5, b"d", seq=6, covers=2),
    ]
    return [call_record(call), first, second, *releases, ended(call, 7)]


KINDS: dict[str, tuple[Any, bytes, list[int | None]]] = {
    # what the client got, and the chunk of each piece
    "text": (text_call, b"ab[DONE]", [1, 3, 3]),
    "allowed": (judged_call, b"texttool call[DONE]", [1, 3, 3]),
    "blocked": (lambda call: judged_call(call, verdict="block"), b"text(blocked)[DONE]", [1, 3, 3]),
    "refused": (
        lambda c: [
            call_record(c),
            out(c, 0, b'{"error": 1}', seq=0),
            ended(c, 1, reason="invalid"),
        ],
        b'{"error": 1}',
        [None],
    ),
    "not streamed": (
        lambda c: [call_record(c), chunks_record(c, [b"{}"]), out(c, 1, b"{}", seq=2), ended(c, 2)],
        b"{}",
        [1],
    ),
    "keepalives and a frame": (
        silent_call,
        PING * 2 + b"a" + PING + b"b" + PING + b"event: error",
        [1, 1, 2, 2, 2, 2, 2],
    ),
    "late": (late_call, b'adata: {"error": 1}', [1, 1, 1]),
    "continued": (continued_call, b"abcd", [2, 2, 4, 5]),
    "frame only": (
        lambda c: [
            call_record(c),
            event(c, "frame", 0, "no"),
            ended(c, 0, reason="stream_timeout"),
        ],
        b"no",
        [None],
    ),
    "open": (lambda c: text_call(c)[:-1], b"", [1, 3, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_every_byte_is_on_a_page(url: str, kind: str, limit: int, order: str) -> None:
    made, relayed, chunks = KINDS[kind]
    call = call_id()
    asyncio.run(insert(url, *made(call)))
    pages = asyncio.run(all_pages(url, call, limit=limit, order=order))
    written = written_of(pages)
    assert bytes_of(written) == relayed
    assert [piece["chunk"] for piece in written] == chunks
    assert all(len(page["items"]) <= limit for page in pages)


def test_a_piece_says_what_it_came_from(url: str) -> None:
    call = call_id()
    asyncio.run(
        insert(
            url,
            *judged_call(call),
            BlockRecord(
                call_id=call,
                block=0,
                at=now_ms(),
                kind="text",
                verdict="allow",
                reason="",
                policy="",
            ),
        )
    )
    pieces = written_of(asyncio.run(all_pages(url, call)))
    assert [
        (p["kind"], p["number"], p["seq"], p["chunk"], p["blocks"], p["relayed"]) for p in pieces
    ] == [
        ("release", 1, 1, 1, [0], True),
        ("release", 2, 4, 3, [0, 1], True),
        ("release", 3, 4, 3, [], True),
    ]


def test_what_was_not_relayed_and_what_is_not_known_is_said(url: str) -> None:
    """A worker that gave a call up does not know what was relayed; an open call has no end yet."""
    lost, still_open, silent = call_id(), call_id(), call_id()
    asyncio.run(insert(url, *text_call(lost)[:-1], ended(lost, -1, reason="gateway_lost")))
    asyncio.run(insert(url, *text_call(still_open)[:-1]))
    asyncio.run(insert(url, *silent_call(silent)))
    for call in (lost, still_open):
        assert [piece["relayed"] for piece in written_of(asyncio.run(all_pages(url, call)))] == [
            None
        ] * 3
    assert [
        p["number"]
        for p in written_of(asyncio.run(all_pages(url, silent)))
        if p["relayed"] is False
    ] == [3]


def test_a_verdict_chooses_chunks_and_what_is_theirs(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *judged_call(call)))
    [page] = asyncio.run(all_pages(url, call, verdict="allow"))
    assert [item["seq"] for item in page["items"]] == [1, 2, 3]
    other = call_id()
    records: list[Record] = [
        call_record(other),
        out(other, 0, b"first", seq=0),
        chunks_record(other, [b"1"]),
        out(other, 1, b"a", seq=1),
    ]
    asyncio.run(
        insert(
            url,
            *records,
            chunks_record(other, [b"2"], seq=2, verdict="block"),
            out(other, 2, b"b", seq=2),
        )
    )
    [page] = asyncio.run(all_pages(url, other, verdict="block"))
    assert page["released"] == [] and [p["payload"] for p in page["items"][0]["released"]] == ["b"]
    assert [
        page["released"][0]["payload"] for page in asyncio.run(all_pages(url, other, limit=1))[:1]
    ] == ["first"]


def test_a_redacted_call_has_its_pages_still(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *silent_call(call)))
    redact(url, UUID(call), "asked for")
    pieces = written_of(asyncio.run(all_pages(url, call)))
    assert [piece["kind"] for piece in pieces] == [
        "keepalive",
        "release",
        "keepalive",
        "release",
        "keepalive",
        "frame",
        "release",
    ]
    assert bytes_of(pieces) == b""


def test_keepalives_are_no_released_bytes(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *silent_call(call)))

    async def read() -> Any:
        reader = AuditReader.open(url)
        try:
            return await reader.call(UUID(call))
        finally:
            await reader.close()

    assert asyncio.run(read())["released_bytes"] == len(b"ab" + b"never relayed")
