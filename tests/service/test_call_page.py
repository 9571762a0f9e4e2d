"""The page of calls that are not as usual: hostile in every field, open, redacted, dropped, without
a beginning, very large."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import psycopg
import pytest

from db.connections import conninfo
from db.seals.redact import redact
from db.seals.seal import Sealer
from pages import links
from pages.call import story
from pages.page import Download
from pages.render import short
from protocol.conversations.histories import history
from protocol.errors import NotFound
from protocol.records import (
    WHY,
    AttemptRecord,
    BlockRecord,
    CallFacts,
    DecisionRecord,
    EndRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ScoreRecord,
    ToolCallRecord,
)
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    control_records,
    judgement_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.checks.whole_text import released_in
from tests.support.json_values import Json, as_json
from tests.support.servers.asked import Made, Pages
from tests.support.servers.asked import ask as ask_pages
from tests.support.servers.product import base_config
from tests.support.waiting import watched

TABS = (
    "",
    "/wire",
    "/wire?view=table",
    "/diff?all=1",
    "/diff?view=side&all=1&by=wire",
    "/request",
    "/blocks/0",
    "/blocks/1",
)
HOSTILE = (
    "<script>canary()</script>",
    "</script><script>canary()</script>",
    '"><img src=x onerror=canary()>',
    "' onmouseover='canary()",
    "</title><script>canary()</script>",
    "</pre></bdi><svg onload=canary()>",
    "javascript:canary()",
    "data:text/html,<script>canary()</script>",
    "<base href=//evil>",
    '<meta http-equiv="refresh" content="0;url=//evil">',
    "{{ 7*7 }}{% raw %}",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "\u202ecod.exe",
    "a\u2066b\u2069",
    "zero\u200bwidth\ufeff",
    "\U000e0041\U000e007f",
    "\x1b[31mred\x1b]8;;http://evil\x07",
    "nul\x00here",
    "\u2028\u2029",
    "lone \udc00 half",
    "e" + "\u0301" * 500,
    "=cmd|' /C calc'!A0",
)


def ask(url: str, work: Callable[[Pages], Awaitable[Made]]) -> Made:
    return ask_pages(url, base_config(), work)


def html_of(url: str, path: str) -> str:
    return ask(url, lambda pages: pages.page(path)).html


class Elements(HTMLParser):
    """Counts the elements of a page, and keeps its attributes' names."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("class", "c") not in attrs:
            # a character that is spelled out has an element of its own
            self.found[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def filled(call: str, text: str) -> list[Record]:
    """A call with the same text in each field that somebody outside chooses."""
    raw = text.encode("utf-8", "surrogatepass")
    body = f'data: {{"x": "{text}"}}\n\n'.encode("utf-8", "surrogatepass")
    return [
        call_record(call, session=text, model=text, key=text, policy=text, facts=CallFacts(text)),
        chunks_record(call, [body, raw], block=0),
        chunks_record(call, [raw], seq=3, verdict="hold", block=1),
        ReleaseRecord(
            call_id=call,
            number=1,
            number_next=2,
            at=now_ms(),
            seq=3,
            payload=raw,
            sha256=sha256(raw).digest(),
        ),
        BlockRecord(
            call_id=call,
            block=0,
            at=now_ms(),
            kind="text",
            verdict="block",
            reason=text,
            policy=text,
            rule=text,
        ),
        ToolCallRecord(
            call_id=call,
            block=1,
            index=0,
            at=now_ms(),
            tool_call_id=text,
            name=text,
            arguments=raw,
            released_arguments=raw + b"!",
            executor="client",
            form="native",
            verdict="replace",
            reason=text,
            policy=text,
            rule=text,
        ),
        JudgementRecord(
            call_id=call,
            block=1,
            step=0,
            at=now_ms(),
            model=text,
            policy=text,
            probability=0.9,
            threshold=0.6,
            explanation=text,
            prompt=raw,
            reply=raw,
            latency_ms=1,
            attempts=1,
        ),
        EventRecord(call_id=call, kind=WHY, number=1, at=now_ms(), detail=text),
        ScoreRecord(
            call_id=call,
            block=1,
            step=0,
            at=now_ms(),
            monitor=text,
            policy=text,
            value=0.5,
            dims="",
            why=text,
            error="",
        ),
        DecisionRecord(
            call_id=call,
            block=1,
            step=0,
            at=now_ms(),
            unit="call",
            attempt=0,
            policy=text,
            protocol="threshold",
            action=text,
            score=0.5,
            threshold=0.4,
            reason=text,
        ),
        EventRecord(call_id=call, kind="withheld", number=1, at=now_ms(), detail=text),
        EventRecord(
            call_id=call, kind="identified", number=0, at=now_ms(), detail=f'{{"source": "{text}"}}'
        ),
        EndRecord(
            call_id=call,
            at=now_ms() + 9,
            state="FAILED",
            reason="client_gone",
            status=200,
            stop_reason=text,
            relayed=2,
        ),
    ]


@pytest.mark.slow
def test_no_text_of_a_call_becomes_an_element(url: str) -> None:
    texts = ["harmless", *("~".join(HOSTILE[at : at + 6]) for at in range(0, len(HOSTILE), 6))]
    calls = {text: call_id(now_ms() + n) for n, text in enumerate(texts)}
    for text, call in calls.items():
        asyncio.run(
            insert(url, *filled(call, text), bodies={call: text.encode("utf-8", "surrogatepass")})
        )

    async def all_pages(pages: Pages) -> dict[tuple[str, str], str]:
        return {
            (text, tab): (await pages.page(f"/debug/calls/{call}{tab}")).html
            for text, call in calls.items()
            for tab in TABS
        }

    shown = ask(url, all_pages)
    for tab in TABS:
        twin = Elements(shown["harmless", tab])
        for text in texts[1:]:
            found = Elements(shown[text, tab])
            # comparisons mark words: how many depends on the text
            for marks in ("ins", "del", "span"):
                found.found.pop(marks, None)
                twin.found.pop(marks, None)
            assert set(found.found) <= set(twin.found) | {"td", "tr"}, (text, tab)
            assert found.found["script"] == twin.found[
                "script"
            ] and found.attributes <= twin.attributes | {"title", "id"}, (text, tab)
            assert not any(
                one in shown[text, tab] for one in "\x00\x1b\u202e\u2066\u200b\u2028\ufeff"
            ), (text, tab)


def test_the_plain_text_of_hostile_calls_has_no_control_characters(url: str) -> None:
    call, text = call_id(), "~".join(HOSTILE)
    asyncio.run(insert(url, *filled(call, text)))
    whole = ask(url, lambda pages: pages.file(f"/debug/calls/{call}/text")).decode()
    assert not any(one in whole for one in "\x00\x1b\r\u202e\u2066\u200b\u2028\ufeff")
    assert released_in(whole) == text.encode("utf-8", "surrogatepass")


def test_the_rows_of_a_story_are_made_beside_the_loop(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page with ten calls that were replaced each is compared for up to 50 ms."""
    call, made, seen = call_id(), story.rows, list[threading.Thread]()

    def rows_of(*given: Any) -> Any:
        seen.append(threading.current_thread())
        return made(*given)

    monkeypatch.setattr(story, "rows", rows_of)
    asyncio.run(insert(url, *whole_call(call)))
    for path in ("", "/blocks/1"):
        assert "bash" in html_of(url, f"/debug/calls/{call}{path}")
    assert len(seen) == 2 and threading.main_thread() not in seen


def test_an_open_call_shows_what_is_there(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *whole_call(call)[:3]))
    shown = ask(url, lambda pages: pages.page(f"/debug/calls/{call}"))
    assert "this is what is on record so far" in shown.html and {
        row["word"] for row in shown.values["rows"]
    } == {"HELD"}


def test_a_call_of_which_only_the_start_came_has_all_its_pages(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, call_record(call)))
    for tab in TABS[:6]:
        assert call in html_of(url, f"/debug/calls/{call}{tab}")
    assert "The model has said nothing yet" in html_of(url, f"/debug/calls/{call}")


def test_a_call_without_its_beginning_says_so(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *whole_call(call)[1:]))
    for tab in (*TABS[:6], "/blocks/1"):
        assert "beginning of this call is not on record" in html_of(
            url, f"/debug/calls/{call}{tab}"
        )
    assert b"call " in ask(url, lambda pages: pages.file(f"/debug/calls/{call}/text"))


def test_a_call_that_no_worker_began_says_so(url: str) -> None:
    call = call_id()
    asyncio.run(
        insert(
            url,
            EndRecord(call_id=call, at=now_ms(), state="FAILED", reason="unclaimed", status=503),
        )
    )
    assert "No policy worker ever began it" in html_of(url, f"/debug/calls/{call}")


@pytest.mark.slow
def test_a_redacted_call_says_who_took_its_content_and_why(url: str) -> None:
    call = call_id()
    asyncio.run(insert(url, *whole_call(call), bodies={call: b"{}"}))
    redact(url, UUID(call), "asked for by its author")
    for tab in TABS:
        assert "asked for by its author" in html_of(url, f"/debug/calls/{call}{tab}")


def test_a_dropped_call_has_a_page_that_says_so(url: str) -> None:
    call, unknown = call_id(now_ms() - 9 * 86_400_000), call_id(now_ms() - 9 * 86_400_000)
    asyncio.run(insert(url, *whole_call(call)))
    with Sealer(url) as sealer:
        sealer.seal([UUID(call)])
        sealer.checkpoint()
    rows(url, "SELECT sluice_drop_before((now() - interval '2 days')::date, 'old')")
    shown = ask(url, lambda pages: pages.page(f"/debug/calls/{call}"))
    assert shown.page.status == 404 and "was dropped on" in shown.html
    with pytest.raises(NotFound):
        ask(url, lambda pages: pages.page(f"/debug/calls/{unknown}"))


@pytest.mark.slow
def test_large_bytes_are_in_the_text_whole(url: str) -> None:
    """A release and a chunk past the slices in which they are read, cut within characters."""
    call, payload = call_id(), ("é€😀\x1b" * 70_000).encode()
    records: list[Record] = [
        call_record(call),
        chunks_record(call, [b"{" + b"x" * (2**20 + 7) + b"}"]),
    ]
    release = ReleaseRecord(
        call_id=call,
        number=0,
        number_next=1,
        at=now_ms(),
        seq=1,
        payload=payload,
        sha256=sha256(payload).digest(),
    )
    asyncio.run(
        insert(
            url,
            *records,
            release,
            EndRecord(
                call_id=call, at=now_ms(), state="ENDED", reason="complete", status=200, relayed=1
            ),
        )
    )
    whole = ask(url, lambda pages: pages.file(f"/debug/calls/{call}/text")).decode()
    assert released_in(whole) == payload and "x" * (2**20 + 7) in whole
    assert ask(url, lambda pages: pages.file(f"/debug/calls/{call}/releases/0/raw")) == payload
    assert len(ask(url, lambda pages: pages.file(f"/debug/calls/{call}/chunks/1/raw"))) == 2**20 + 9


def test_arguments_are_read_in_slices_whole_empty_or_not_at_all(url: str) -> None:
    call, large = call_id(), b'{"a": "%s"}' % (b"x" * (2**20 + 7) + b"end")
    asyncio.run(
        insert(
            url,
            call_record(call),
            tool_call_record(call, arguments=large, released_arguments=b""),
            judgement_record(call),
        )
    )
    path = f"/debug/calls/{call}/blocks/1"

    async def pieces(pages: Pages) -> list[bytes]:
        answer, _ = await pages.answer(f"{path}/raw")
        assert isinstance(answer, Download)
        return [piece async for piece in answer.pieces]

    made = ask(url, pieces)
    assert [len(piece) for piece in made] == [2**20, len(large) - 2**20] and b"".join(made) == large
    assert ask(url, lambda pages: pages.file(f"{path}/raw?of=released")) == b""
    assert ask(url, lambda pages: pages.file(f"{path}/raw?of=prompt"))
    for absent in (f"{path}/raw?of=reply&step=7", f"/debug/calls/{call}/blocks/2/raw"):
        with pytest.raises(NotFound):
            ask(url, lambda pages, absent=absent: pages.file(absent))  # type: ignore[misc]
    shown = ask(url, lambda pages: pages.page(f"{path}/evidence")).values["sides"]
    assert [(side["size"], side["sha256"]) for side in shown] == [
        (len(one), sha256(one).hexdigest()) for one in (large, b"")
    ]
    assert shown[0]["side"]["tail"].endswith('end"}')


@pytest.mark.slow
def test_the_export_of_large_bytes_holds_nobody_up(url: str) -> None:
    """As one line, 16 MB took half a second on the loop, and 2.3 s where they are no UTF-8: no
    other thread runs meanwhile either."""
    call, body, raw = call_id(), b"\x7f" * 2**23, b"\xff" * 2**22
    asyncio.run(insert(url, call_record(call), chunks_record(call, [raw]), bodies={call: body}))

    async def export(pages: Pages) -> tuple[bytes, float]:
        async with watched() as loop:
            return await pages.file(f"/debug/calls/{call}/export"), loop.longest_s

    whole, longest_s = ask(url, export)
    lines = {line["type"]: line for line in map(json.loads, whole.splitlines())}
    assert (lines["request"]["body"], lines["chunk"]["raw"]) == (body.decode(), "\\xff" * 2**22)
    assert longest_s < 0.25


@pytest.mark.slow
def test_many_tool_calls_are_paged_and_said_to_be(url: str) -> None:
    call = call_id()
    tools: list[Any] = [
        tool_call_record(call, block=n, index=n, tool_call_id=f"t{n}", arguments=b"x" * 500)
        for n in range(400)
    ]
    chunks = [
        chunks_record(call, [b"data: x\n\n"], seq=n + 1, verdict="hold", block=n)
        for n in range(400)
    ]
    asyncio.run(insert(url, call_record(call), *tools, *chunks))
    first = ask(url, lambda pages: pages.page(f"/debug/calls/{call}"))
    assert "Blocks 1 to 40 of 400" in first.html and len(first.html.encode()) < 100_000
    numbers: list[int] = []
    for page in range(1, first.values["pager"]["pages"] + 1):
        shown = ask(url, lambda pages, page=page: pages.page(f"/debug/calls/{call}?page={page}"))  # type: ignore[misc]
        numbers += [row["number"] for row in shown.values["rows"]]
    assert numbers == list(range(400))
    # a link to a block names it, because no fragment chooses a page
    far = ask(url, lambda pages: pages.page(links.place(call, 217).partition("#")[0]))
    assert 217 in [row["number"] for row in far.values["rows"]] and 'id="b217"' in far.html


def test_scores_decisions_and_attempts_are_told(url: str) -> None:
    call = call_id()
    other = AttemptRecord(
        call_id=call,
        segment=0,
        attempt=1,
        at=now_ms(),
        kind="defer",
        upstream="openai",
        model="trusted",
        first_seq=4,
        end_seq=5,
        chosen=False,
    )
    asyncio.run(insert(url, *whole_call(call), *control_records(call), other))
    shown = ask(url, lambda pages: pages.page(f"/debug/calls/{call}"))
    row = next(row for row in shown.values["rows"] if row["number"] == 1)
    assert [(score["monitor"], score["value"]) for score in row["scores"]] == [("shell", 0.97)]
    assert row["decisions"][0]["action"] == "block" and "deletes a tree" in shown.html
    assert (
        "Answers of upstreams" in shown.html
        and "trusted" in shown.html
        and "discarded" in shown.html
    )


def test_a_request_says_which_turns_the_call_before_had(url: str) -> None:
    first, second = call_id(now_ms()), call_id(now_ms() + 5)
    turns = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"turn {n}"} for n in range(9)
    ]
    bodies = {
        call: as_json({"model": "m", "messages": turns[:n]})
        for call, n in ((first, 7), (second, 9))
    }
    asyncio.run(insert(url, call_record(first), call_record(second), bodies=bodies))
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        for call, body in bodies.items():
            found = history(body)
            connection.execute(
                "INSERT INTO histories (call_id, session, turns, marks, offsets, preview, is_side) "
                "VALUES (%s, 's-1', %s, %s, %s, '', false) ON CONFLICT DO NOTHING",
                (call, found.turns, found.marks, found.offsets),
            )
    shown = ask(url, lambda pages: pages.page(f"/debug/calls/{second}/request"))
    assert [turn["number"] for turn in shown.values["request"]["open"]] == [8, 7] and shown.values[
        "parent"
    ] == first
    assert f"call {short(first)}" in shown.html and len(shown.values["request"]["folded"]) == 7


@pytest.mark.slow
def test_each_tab_keeps_the_list_that_its_call_was_opened_from(url: str) -> None:
    calls = [call_id(now_ms() - n * 1000) for n in range(3)]
    for call in calls:
        many = [
            BlockRecord(
                call_id=call,
                block=b,
                at=now_ms(),
                kind="text",
                verdict="allow",
                reason="",
                policy="",
            )
            for b in range(links.BLOCKS + 1)
        ]
        asyncio.run(insert(url, call_record(call), *many, chunks_record(call, [b"x"] * 201)))
    lines = (
        "SELECT %s, 'g', n, now(), 'policy', 'called', ''::bytea FROM generate_series(1, 7) n"
        " RETURNING 1"
    )
    rows(
        url,
        f"INSERT INTO debug_logs (call_id, process, n, at, type, event, detail) {lines}",
        calls[1],
    )
    kept = "from=calls%3Fkey%3Ddev"

    async def all_tabs(pages: Pages) -> Json:
        paths = ("", "/request", "/wire", "/diff", "/hooks", "/proof")
        return {
            path: (await pages.page(f"/debug/calls/{calls[1]}{path}?{kept}")).values
            for path in paths
        }

    for path, shown in ask(url, all_tabs).items():
        way = {"before": calls[0], "next": calls[2]}
        assert shown["beside"] == {
            name: f"/debug/calls/{call}{path}?{kept}" for name, call in way.items()
        } | {"of": "list"}, path
        assert {to.partition("?")[2] for name, to, *_ in shown["tabs"] if name != "Text"} == {kept}
        assert {name: said for name, _, _, said, _ in shown["tabs"]}["Hooks"] == "7"
        if path in ("", "/wire"):
            assert kept in shown["pager"]["after"]
        if path == "/wire":
            assert all(kept in to for _, to, _ in shown["views"])
        if path == "/diff":
            assert all(kept in to for group in shown["choices"] for _, to, _ in group)
        if path == "/hooks":
            assert all(kept in to for _, to, *_ in shown["types"])
