"""The lists of the pages on a real PostgreSQL: rows as cells show them, pages both ways,
neighbours, the search box."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qsl
from uuid import UUID

import pytest

from db.debug_switches import DebugSwitches
from db.engine import open_engine
from db.labels import Labels
from db.read.early_refusals import door_by_day
from db.read.queries import AuditReader
from pages import listing
from pages.page import Answer, Download, Page, PageRequest, SeeOther, Services, View, Who
from pages.render import render
from pages.views import labels, lists, search
from protocol.errors import InvalidRequest, NotFound
from protocol.records import ToolReleaseRecord
from settings.config import Config, Key
from settings.runtime import Runtime
from sluice.eval import dataset
from tests.support.checks.reading import end_record, insert
from tests.support.checks.record import (
    call_id,
    call_record,
    judgement_record,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)

LONG = b'{"command": "' + b"\xe2\x82\xac" * 100_000 + b'"}'


@pytest.fixture
async def reader(url: str) -> AsyncIterator[AuditReader]:
    opened = AuditReader(open_engine(url, read_only=False))
    yield opened
    await opened.close()


def _asked(reader: AuditReader, to: str) -> PageRequest:
    path, _, query = to.partition("#")[0].partition("?")
    services = Services(_SETTINGS, reader, Labels(reader.engine), DebugSwitches(reader.engine))
    who = Who(key="dev", key_id="1", roles=frozenset({"auditor"}), login="x")
    return PageRequest(
        path=path, params={}, query=parse_qsl(query), who=who, services=services, token="t"
    )


_KEY = Key(name="of-the-file", sha256="0" * 64)
_SETTINGS = Runtime(config=Config.model_validate({"keys": [_KEY]}), redis_url="", database_url="")


async def _page(reader: AuditReader, view: View, to: str) -> Page:
    answer: Answer = await view(_asked(reader, to))
    assert isinstance(answer, Page), answer
    assert render(answer, _asked(reader, to)).startswith(b"<!doctype html>")
    return answer


async def test_a_cell_has_the_beginning_of_what_is_long_and_its_length(
    url: str, reader: AuditReader
) -> None:
    call = call_id()
    await insert(url, call_record(call), tool_call_record(call, arguments=LONG))
    page = await _page(reader, lists.tool_calls, "/debug/tool-calls")
    [item] = page.values["items"]
    assert len(item["arguments"]) < 1000 and item["arguments_bytes"] == len(LONG)
    html = render(page, _asked(reader, "/debug/tool-calls")).decode()
    assert html.count("€") == 160 - len('{"command": "') and "300 kB, first 160 characters" in html
    assert page.shown is not None and page.shown.call_ids == (UUID(call),) and page.shown.rows == 1


async def test_pages_go_both_ways_while_rows_come_in(url: str, reader: AuditReader) -> None:
    calls = [call_id(now_ms() - n * 1000) for n in range(7)]
    await insert(
        url,
        *(
            record
            for call in calls
            for record in (
                call_record(call),
                tool_call_record(call, block=1),
                tool_call_record(call, block=2),
            )
        ),
    )
    ways = [(call, block) for call in calls for block in (2, 1)]

    def places(page: Page) -> list[tuple[str, int]]:
        return [(item["call_id"], item["block"]) for item in page.values["items"]]

    first = await _page(reader, lists.tool_calls, "/debug/tool-calls?limit=4")
    assert (places(first), first.values["pager"]["newer"], first.values["pager"]["newest"]) == (
        ways[:4],
        None,
        None,
    )
    second = await _page(reader, lists.tool_calls, first.values["pager"]["older"])
    third = await _page(reader, lists.tool_calls, second.values["pager"]["older"])
    assert (places(second), places(third)) == (ways[4:8], ways[8:12])
    await insert(url, *(tool_call_record(call_id(now_ms() + n), block=1) for n in (1, 2, 3)))
    again = await _page(reader, lists.tool_calls, third.values["pager"]["newer"])
    assert places(again) == ways[4:8]
    above = await _page(reader, lists.tool_calls, again.values["pager"]["newer"])
    assert places(above) == ways[:4]
    newest = await lists.tool_calls(_asked(reader, above.values["pager"]["newer"]))
    assert newest == SeeOther("/debug/tool-calls?limit=4")
    last = await _page(reader, lists.tool_calls, third.values["pager"]["older"])
    assert (
        places(last) == ways[12:]
        and last.values["pager"]["older"] is None
        and not last.values["pager"]["more"]
    )


async def test_oldest_first_pages_the_other_way_round(url: str, reader: AuditReader) -> None:
    calls = sorted(call_id(now_ms() - n * 1000) for n in range(5))
    await insert(url, *map(call_record, calls))
    first = await _page(reader, lists.calls, "/debug/calls?order=asc&limit=2")
    assert [item["call_id"] for item in first.values["items"]] == calls[:2] and first.values[
        "pager"
    ]["older"] is None
    # what the form of filters sends too
    assert first.values["keep"] == {"order": "asc", "limit": "2"}
    second = await _page(reader, lists.calls, first.values["pager"]["newer"])
    assert [item["call_id"] for item in second.values["items"]] == calls[2:4]
    back = await lists.calls(_asked(reader, second.values["pager"]["older"]))
    assert back == SeeOther("/debug/calls?order=asc&limit=2")


@pytest.mark.parametrize(
    ("view", "path"), [(lists.calls, "/debug/calls"), (lists.tool_calls, "/debug/tool-calls")]
)
async def test_lists_are_in_the_order_of_the_time_that_they_show(
    url: str, reader: AuditReader, view: View, path: str
) -> None:
    calls = sorted((call_id(now_ms() - n * 1000) for n in range(3)), reverse=True)
    # the newest is open, and what the oldest did was decided last
    decided = [tool_call_record(call, at=now_ms() + n * 10_000) for n, call in enumerate(calls)]
    await insert(
        url, *map(call_record, calls), *decided, *(end_record(call, "FAILED") for call in calls[1:])
    )
    page = await _page(reader, view, path)
    shown = re.findall(
        r'<tr data-row.*?<time datetime="([^"]+)"',
        render(page, _asked(reader, path)).decode(),
        re.DOTALL,
    )
    assert (
        [item["call_id"] for item in page.values["items"]] == calls
        and shown == sorted(shown, reverse=True)
        and len(shown) == 3
    )


async def test_what_was_never_released_says_so_and_when_its_notice_went_out(
    url: str, reader: AuditReader
) -> None:
    """The record has a row for the notice, too."""
    blocked, passed = call_id(now_ms()), call_id(now_ms() - 1000)
    for call, verdict in ((blocked, "block"), (passed, "allow")):
        released = ToolReleaseRecord(call_id=call, block=1, at=now_ms() + 6)
        await insert(url, call_record(call), tool_call_record(call, verdict=verdict), released)
    page = await _page(reader, lists.tool_calls, "/debug/tool-calls")
    first, second = page.values["items"]
    assert (
        first["released_at"] is None is second["notice_at"]
        and first["notice_at"]
        and second["released_at"]
    )
    html = render(page, _asked(reader, "/debug/tool-calls")).decode()
    [of_blocked, of_passed] = re.findall(r'data-l="Released"[^>]*>(.*?)</td>', html, re.DOTALL)
    assert "never" in of_blocked and "notice after" in of_blocked and of_passed.startswith("after ")


async def test_rules_can_be_labelled_and_labels_are_data_for_eval(
    url: str, reader: AuditReader, tmp_path: Path
) -> None:
    verdicts = {"block": "wrong", "allow": "wrong", "replace": "right", "withheld": "right"}
    calls = {verdict: call_id(now_ms() - 1000 * n) for n, verdict in enumerate(verdicts)}
    for verdict, call in calls.items():
        await insert(url, call_record(call), tool_call_record(call, verdict=verdict, rule="no-rm"))
        form = {verdicts[verdict]: f"{call}-1", "note": "as said"}
        await labels.label(replace(_asked(reader, "/debug/labels"), form=form))
    page = await _page(reader, lists.tool_calls, "/debug/tool-calls?label=wrong")
    assert [item["verdict"] for item in page.values["items"]] == ["block", "allow"]
    answer = await lists.tool_calls(_asked(reader, "/debug/tool-calls?format=eval"))
    assert (
        isinstance(answer, Download)
        and answer.shown is not None
        and len(answer.shown.call_ids) == 3
    )
    file = tmp_path / "labelled.jsonl"
    file.write_bytes(b"".join([piece async for piece in answer.pieces]))
    found = {
        case.id.removesuffix("-1"): (case.label, case.call.tool, case.why)
        for case in dataset.read([file]).cases
    }
    labelled = {"block": "benign", "allow": "harmful", "replace": "harmful"}
    assert found == {
        calls[verdict]: (label, "bash", "as said") for verdict, label in labelled.items()
    }


async def test_words_are_found_by_their_beginnings_and_rules_by_their_names(
    url: str, reader: AuditReader
) -> None:
    call = call_id()
    await insert(
        url,
        call_record(call),
        tool_call_record(call, arguments=b'{"command": "kubectl delete"}', rule="no-deletes"),
    )
    for text, hits in (
        ("kube", 1),
        ("kubectl del", 1),
        ("no-deletes", 1),
        ("ubectl", 0),
        ("ku", 0),
        ("kube nothing", 0),
    ):
        found = await _page(reader, search.search, f"/debug/search?q={text}")
        assert len(found.values["items"]) == hits, text


async def test_texts_of_users_and_models_are_found_in_the_newest_requests(
    url: str, reader: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ["hello", 'please "wipe" the café', "other"]
    calls = [call_id(now_ms() - 1000 * n) for n in range(3)]
    bodies = {
        call: (
            json.dumps(
                {"messages": [{"role": "user", "content": text}]}, ensure_ascii=n == 1
            ).encode()
        )
        for n, (call, text) in enumerate(zip(calls, said, strict=True))
    }
    await insert(url, *map(call_record, calls), bodies=bodies)
    page = await _page(reader, search.search, '/debug/search?q="wipe" the café&in=texts')
    [item] = page.values["texts"]["items"]
    assert (
        item["call_id"] == calls[1]
        and "wipe" in item["around"]
        and page.shown is not None
        and page.shown.call_ids == [UUID(calls[1])]
    )
    monkeypatch.setattr("db.read.call.texts.MOST", 1)
    page = await _page(reader, search.search, "/debug/search?q=wipe&in=texts")
    assert page.values["texts"]["items"] == [] and page.values["texts"]["looked"] == 1


async def test_judged_decisions_that_passed_can_be_asked_for(url: str, reader: AuditReader) -> None:
    refused, passed, unjudged = (call_id(now_ms() - n * 1000) for n in range(3))
    for call, verdict in ((refused, "block"), (passed, "allow"), (unjudged, "allow")):
        await insert(url, call_record(call), tool_call_record(call, verdict=verdict))
    await insert(url, judgement_record(refused), judgement_record(passed))
    for query, wanted in (
        ("", [refused]),
        ("?verdict=block", [refused]),
        ("?verdict=allow", [passed]),
        ("?verdict=replace", []),
    ):
        page = await _page(reader, lists.judge_blocks, f"/debug/judge-blocks{query}")
        assert [item["call_id"] for item in page.values["items"]] == wanted, query


async def test_labels_are_kept_and_the_newest_counts(url: str, reader: AuditReader) -> None:
    one, other = (call_id(now_ms() - n * 1000) for n in range(2))
    for call in (one, other):
        await insert(url, call_record(call), tool_call_record(call), judgement_record(call))

    async def say(**form: str) -> str:
        answer = await labels.label(replace(_asked(reader, "/debug/labels"), form=form))
        assert isinstance(answer, SeeOther)
        return answer.to

    back = "/debug/judge-blocks?key=dev"
    assert await say(right=f"{one}-1", back=back) == f"{back}&said={one}-1#r{one}-1"
    assert (
        await say(wrong=f"{one}-1", note=" asked for <b>\u202e\x00 ", back=f"{back}&said=x")
        == f"{back}#r{one}-1"
    )
    assert await say(call_id=other, block="1", label="unsure") == f"/debug/calls/{other}#b1"
    assert (
        await say(unsure=f"{other}-1", back="//evil.example") == f"/debug?said={other}-1#r{other}-1"
    )
    page = await _page(reader, lists.judge_blocks, "/debug/judge-blocks?label=wrong")
    [item] = page.values["items"]
    assert item["label"] == {
        "label": "wrong",
        "note": "asked for <b>\u202e\x00",
        "key": "dev",
        "at": item["label"]["at"],
    }
    assert (await _page(reader, lists.judge_blocks, "/debug/judge-blocks?label=right")).values[
        "items"
    ] == []
    answer = await lists.judge_blocks(
        _asked(reader, "/debug/judge-blocks?label=unsure&format=jsonl")
    )
    assert isinstance(answer, Download)
    lines = [json.loads(line) async for line in answer.pieces]
    assert [line.get("call_id") for line in lines] == [other, None] and lines[0]["judge"][
        "prompt"
    ] == "is it harmful?"
    assert lines[1] == {"type": "end", "lines": 1, "next_cursor": None}


@pytest.mark.parametrize(
    "form",
    [
        {"label": "good", "call_id": "CALL", "block": "1"},
        {"right": "CALL-x"},
        {"right": "CALL"},
        {"right": "x-1"},
        {},
        {"right": "CALL-1", "note": "x" * 2001},
    ],
)
async def test_a_label_that_is_none_is_refused(
    url: str, reader: AuditReader, form: dict[str, str]
) -> None:
    call = call_id()
    await insert(url, call_record(call))
    given = {name: value.replace("CALL", call) for name, value in form.items()}
    with pytest.raises(InvalidRequest):
        await labels.label(replace(_asked(reader, "/debug/labels"), form=given))
    with pytest.raises(NotFound):
        await labels.label(
            replace(_asked(reader, "/debug/labels"), form={"right": f"{call_id()}-1"})
        )


async def test_only_what_was_decided_has_labels_and_not_without_end(
    url: str, reader: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("db.labels.MAX_LABELS", 2)
    call = call_id()
    await insert(url, call_record(call), tool_call_record(call, block=1))
    asked = _asked(reader, "/debug/labels")
    with pytest.raises(NotFound):
        await labels.label(replace(asked, form={"right": f"{call}-2"}))
    for _ in range(2):
        await labels.label(replace(asked, form={"wrong": f"{call}-1"}))
    with pytest.raises(InvalidRequest, match="labels of this key already"):
        await labels.label(replace(asked, form={"wrong": f"{call}-1"}))
    # who said much does not have the last word
    other = replace(asked.who, key="other", key_id="other")
    await labels.label(replace(asked, who=other, form={"right": f"{call}-1"}))
    assert (await asked.services.labels.newest([(UUID(call), 1)]))[UUID(call), 1]["key"] == "other"


async def test_what_the_door_refused_of_a_key_is_counted_by_day(
    url: str, reader: AuditReader
) -> None:
    counts = [
        ("g1", "dev", "2026-11-19T23:59:00Z", 5),
        ("g1", "dev", "2026-11-20T10:00:00Z", 7),
        ("g1", "dev", "2026-11-21T10:00:00Z", 8),
    ]
    counts += [
        ("g1", "dev", "2026-11-21T11:00:00Z", 12),
        ("g2", "dev", "2026-11-21T11:00:00Z", 1),
        ("g1", "app", "2026-11-21T11:00:00Z", 9),
    ]
    for row in counts:
        rows(
            url,
            "INSERT INTO door_counts (gateway, key, code, minute, n) VALUES (%s, %s, '403"
            " wrong_role', %s, %s) RETURNING 1",
            *row,
        )
    since, until = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)
    assert await door_by_day(reader.engine, since, until, key="dev") == {
        "2026-11-20": 2,
        "2026-11-21": 6,
    }
    assert await door_by_day(reader.engine, since, until, key="nobody") == {}


async def test_the_judge_leads_to_what_it_blocked(reader: AuditReader) -> None:
    assert await lists.judge(_asked(reader, "/debug/judge?key=dev")) == SeeOther(
        "/debug/judge-blocks?key=dev"
    )


async def test_a_call_has_neighbours_in_the_list_that_it_was_opened_from(
    url: str, reader: AuditReader
) -> None:
    calls = sorted((call_id(now_ms() - n * 1000) for n in range(4)), reverse=True)
    for n, call in enumerate(calls):
        await insert(
            url,
            call_record(call),
            *(
                tool_call_record(call, block=b, verdict="allow" if n == 1 else "block")
                for b in (1, 2)
            ),
        )

    async def beside(origin: str, call: str) -> list[str | None]:
        return list(await listing.neighbours(reader, origin, UUID(call)))

    assert await beside("calls", calls[1]) == [calls[0], calls[2]]
    assert await beside("tool-calls?verdict=block", calls[2]) == [calls[0], calls[3]]
    assert await beside("calls?order=asc", calls[0]) == [None, calls[1]]
    for wrong in (
        "",
        "nothing",
        "calls?nobody=1",
        "calls?since=x",
        "calls?" + "&".join(f"a{n}=1" for n in range(99)),
    ):
        assert await beside(wrong, calls[1]) == [None, None]


async def test_the_search_box_knows_what_has_a_name(url: str, reader: AuditReader) -> None:
    call = call_id()
    await insert(url, *whole_call(call))
    found = {}
    for text in (call, call[:23].upper(), "toolu_1", "s-1", "dev", "of-the-file", "build"):
        found[text] = await search.search(_asked(reader, f"/debug/search?q={text}"))
    [tool_call] = (await _page(reader, lists.tool_calls, "/debug/tool-calls")).values["items"]
    assert found[call] == found[call[:23].upper()] == SeeOther(f"/debug/calls/{call}")
    assert await search.search(
        _asked(reader, f"/debug/search?q={tool_call['tool_call_id']}")
    ) == SeeOther(f"/debug/calls/{call}#b{tool_call['block']}")
    assert found["s-1"] == SeeOther("/debug/sessions/dev/s-1") and found["dev"] == SeeOther(
        "/debug/keys/dev"
    )
    assert found["of-the-file"] == SeeOther("/debug/keys/of-the-file")
    words = found["build"]
    assert isinstance(words, Page) and [item["call_id"] for item in words.values["items"]] == [call]
    for nothing in ("", "...", "nowhere", str(UUID(int=7))):
        page = await _page(reader, search.search, f"/debug/search?q={nothing}")
        assert not page.values["items"] and (page.shown is None or not page.shown.rows)


async def test_a_beginning_that_several_calls_have_lists_them(
    url: str, reader: AuditReader
) -> None:
    for n in (1, 2):
        await insert(url, call_record(f"01990000-0001-7000-8000-00000000000{n}"))
    await insert(
        url,
        call_record(call_id(), key="other", session="s-1"),
        call_record(call_id(), key="dev", session="s-1"),
    )
    both = await search.search(_asked(reader, "/debug/search?q=s-1"))
    assert both == SeeOther("/debug/sessions?session=s-1"), "two keys have a session of this name"
    answer = await search.search(_asked(reader, "/debug/search?q=01990000"))
    assert isinstance(answer, SeeOther)
    page = await _page(reader, lists.calls, answer.to)
    assert len(page.values["items"]) == 2


@pytest.mark.slow
async def test_nothing_matches_is_another_page_than_nothing_recorded(reader: AuditReader) -> None:
    for view, path in (
        (lists.calls, "/debug/calls"),
        (lists.tool_calls, "/debug/tool-calls"),
        (lists.judge_blocks, "/debug/judge-blocks"),
    ):
        for query, words in (
            ("", b"Nothing recorded yet"),
            ("?key=x&since=2026-01-01T00:00:00Z", b"Nothing matches"),
        ):
            asked = _asked(reader, path + query)
            answer = await view(asked)
            assert isinstance(answer, Page) and words in render(answer, asked)
