"""Kept answers on a real PostgreSQL: found for their own key alone, waited for, and bounded."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import sqlalchemy.event

import db.read.call.answer_rows
import db.read.call.answers
import db.read.call.places
from db.connections import conninfo
from db.read.call.answers import AnswerReader
from db.write.insert import AuditInserter
from protocol.bounds import LOOKUPS_AT_ONCE
from protocol.dialects.turns import WantedTurns, pack_turns
from protocol.records import EndRecord, Record, ReleaseRecord
from protocol.stored_answers import WantedAnswers, unpack
from streams.round_robin import RoundRobin
from tests.support.checks.record import call_id, call_record, now_ms
from tests.support.checks.recorded_turns import insert, turn_of
from tests.support.json_values import Json, as_json
from tests.support.waiting import wait_until
from workers.policy.recorded_turns import TurnLookup

BODY_BYTES = 2**20


@pytest.fixture
async def reader(url: str) -> AsyncIterator[AnswerReader]:
    found = AnswerReader.open(url, "responses", max_bytes=BODY_BYTES)
    yield found
    await found.close()


def identity(call: str) -> str:
    return f"resp_{call.replace('-', '')}"


def released(call: str, text: str, **changes: Any) -> Record:
    said = {
        "type": "message",
        "role": "assistant",
        "id": f"msg_{call.replace('-', '')}_0",
        "content": [{"type": "output_text", "text": text}],
    }
    used = {"type": "function_call", "call_id": f"call_{text}", "name": "f", "arguments": "{}"}
    payload = as_json(
        {"id": identity(call), "status": "completed", "output": [{"type": "reasoning"}, said, used]}
        | changes
    )
    return ReleaseRecord(
        call_id=call, number=0, number_next=9, at=now_ms(), seq=9, payload=payload, sha256=b""
    )


async def keep(
    url: str,
    call: str,
    text: str,
    *,
    previous: str = "",
    key: str = "k",
    has_body: bool = True,
    **said: Any,
) -> str:
    """Put an answer on record; returns its id."""
    body = {"model": "m", "input": f"asked {text}", "previous_response_id": previous or None} | said
    end = EndRecord(
        call_id=call, at=int(time.time() * 1000), state="ENDED", reason="complete", status=200
    )
    records = [call_record(call, key=key, dialect="responses"), released(call, text), end]
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, {call: as_json(body)} if has_body else {})
    return identity(call)


async def chain(url: str, length: int, **said: Any) -> str:
    last = ""
    for number in range(length):
        last = await keep(
            url, call_id(now_ms() - 1000 + number), str(number), previous=last, **said
        )
    return last


def previous(one: str) -> WantedAnswers:
    return WantedAnswers("responses", one)


async def test_a_conversation_is_put_together_in_its_order(url: str, reader: AnswerReader) -> None:
    found = await reader.find("k", previous(await chain(url, 3)))
    texts = [
        item["content"] if item["type"] == "message" else item["call_id"] for item in found.before
    ]
    said = [text if isinstance(text, str) else text[0]["text"] for text in texts]
    assert (
        said == ["asked 0", "0", "call_0", "asked 1", "1", "call_1", "asked 2", "2", "call_2"]
        and not found.missing
    )
    assert sorted(found.calls) == ["call_0", "call_1", "call_2"] and found.answers == 3


async def test_only_its_own_kept_answers_are_a_keys(
    url: str, reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another key's, one that was not to be kept, one whose request is gone by retention, one that
    failed, and those that never were."""
    monkeypatch.setattr(db.read.call.answer_rows, "FIND_S", 0.05)
    failed = call_id()
    async with AuditInserter(url) as inserter:
        records = [
            call_record(failed, key="k", dialect="responses"),
            released(failed, "x", status="failed"),
        ]
        assert not await inserter.insert(records, {failed: b"{}"})
    none = [
        await keep(url, call_id(), "x", key="other"),
        await keep(url, call_id(), "x", store=False),
        identity(failed),
        await keep(url, call_id(), "x", has_body=False),
        identity(call_id()),
        identity(call_id(now_ms() - 10**9)),
        "resp_f" + "f" * 31,
        "resp_x",
    ]
    for one in none:
        assert (await reader.find("k", previous(one))).missing == "previous", one
        assert await reader.find_by_id("k", one) is None
        after = await keep(url, call_id(now_ms() + 1000), "y", previous=one)
        assert (await reader.find("k", previous(after))).missing == "previous", (
            "nor is what goes on with it"
        )


async def test_a_conversation_is_bounded(
    url: str, reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = await chain(url, 4)
    monkeypatch.setattr(db.read.call.answers, "MAX_CHAINED", 3)
    assert (await reader.find("k", previous(last))).missing == "answers"
    large = await chain(url, 2, instructions="x" * (BODY_BYTES // 2))
    assert (await reader.find("k", previous(large))).missing == "bytes"


async def test_an_answer_that_is_still_being_written_is_waited_for(
    url: str, reader: AnswerReader
) -> None:
    call = call_id()
    looking = asyncio.create_task(reader.find("k", previous(identity(call))))
    await asyncio.sleep(0.1)
    assert not looking.done()
    await keep(url, call, "late")
    assert (await looking).calls == ["call_late"]


async def test_a_large_request_is_waited_for_behind_the_end_of_its_call(
    url: str, reader: AnswerReader
) -> None:
    call = call_id()
    await keep(url, call, "soon", has_body=False)
    looking = asyncio.create_task(reader.find("k", previous(identity(call))))
    await asyncio.sleep(0.1)
    assert not looking.done()
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert([], {call: b'{"input": "asked"}'})
    assert (await looking).calls == ["call_soon"]


async def test_an_item_is_found_by_its_id_in_a_call_of_this_key(
    url: str, reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db.read.call.answer_rows, "FIND_S", 0.1)
    call = call_id()
    await keep(url, call, "x")
    name = f"msg_{call.replace('-', '')}_0"
    assert (await reader.find("k", WantedAnswers("responses", "", (name,)))).items[name]["content"][
        0
    ]["text"] == "x"
    for key, one in (("other", name), ("k", name[:-1] + "7"), ("k", "msg_1")):
        found = await reader.find(key, WantedAnswers("responses", "", (one,)))
        assert (found.missing, found.item) == ("item", one)


async def test_only_references_are_filled(url: str, reader: AnswerReader) -> None:
    """An item with the id of a large one stays as it was: else a thousand of them were a thousand
    large ones, past the bound."""
    large, own = call_id(now_ms() - 2000), "x" * 1000
    await keep(url, large, own)
    name = f"msg_{large.replace('-', '')}_0"
    same = {"type": "message", "role": "user", "id": name, "content": "a"}
    last = await keep(
        url,
        call_id(now_ms() - 1000),
        "y",
        input=[{"type": "item_reference", "id": name}, *[same] * 2000],
    )
    found, kept = await reader.find("k", previous(last)), await reader.find_by_id("k", last)
    assert kept is not None
    for before in (found.before, (await reader.input_of("k", kept)).before):
        assert before[0]["content"][0]["text"] == own and before[1:2001] == [same] * 2000


async def ask_first(
    url: str, *, key: str = "k", answer: str = "completed", **said: Any
) -> tuple[str, Json]:
    """Put an answer on record in which a provider asks before it runs a call; returns the
    question's id, and the question."""
    call = call_id()
    question = {
        "type": "mcp_approval_request",
        "id": f"mcpr_{call.replace('-', '')}_0",
        "name": "f",
        "arguments": "{}",
        "server_label": "b",
    }
    payload = as_json({"id": identity(call), "status": answer, "output": [question]})
    released = ReleaseRecord(
        call_id=call, number=0, number_next=9, at=now_ms(), seq=9, payload=payload, sha256=b""
    )
    records: list[Record] = [call_record(call, key=key, dialect="responses"), released]
    async with AuditInserter(url) as inserter:
        body = {call: as_json({"model": "m", "input": "x"} | said)} if said else {}
        assert not await inserter.insert(records, body)
    return question["id"], question


async def test_a_question_is_found_where_this_key_was_given_it(
    url: str, reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of an answer that is not kept, or whose request is gone: nobody gets to see more of
    it."""
    monkeypatch.setattr(db.read.call.answer_rows, "FIND_S", 0.05)
    good = [
        await ask_first(url, store=True),
        await ask_first(url, store=False),
        await ask_first(url),
    ]
    for name, question in good:
        assert (await reader.find("k", WantedAnswers("responses", "", (), (name,)))).questions == {
            name: question
        }
    first, fifth = good[0][0], (await ask_first(url, answer="failed"))[0]
    bad = [
        (await ask_first(url, key="other"))[0],
        fifth,
        first[:-1] + "7",
        "mcpr_own",
        first.upper(),
        f"mcpr_{call_id().replace('-', '')}_0",
    ]
    for name in bad:
        found = await reader.find("k", WantedAnswers("responses", "", (), (first, name)))
        assert not found.missing and list(found.questions) == [first], name


async def test_approvals_of_a_conversation_are_looked_up_with_it(
    url: str, reader: AnswerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, question = await ask_first(url, store=True)
    yes = {"type": "mcp_approval_response", "approval_request_id": name, "approve": True}
    later = await keep(
        url, call_id(now_ms() + 1000), "y", previous=identity(name[5:-2]), input=[yes]
    )
    found = await reader.find("k", previous(later))
    assert found.questions == {name: question} and question in found.before and yes in found.before
    monkeypatch.setattr(db.read.call.answers, "MAX_LOOKUPS", 1)
    others = [(await ask_first(url))[0] for _ in range(2)]
    assert (
        len((await reader.find("k", WantedAnswers("responses", "", (), tuple(others)))).questions)
        == 1
    )


async def test_without_a_database_the_record_is_away() -> None:
    away = AnswerReader.open("postgresql://nobody@127.0.0.1:1/none", "responses", max_bytes=1)
    assert (await away.find("k", previous(identity(call_id())))).missing == "away"
    await away.close()


async def test_a_long_conversation_is_read_in_a_few_queries(url: str, reader: AnswerReader) -> None:
    last = await chain(url, 40)
    asked: list[str] = []
    sqlalchemy.event.listen(
        reader._engine.sync_engine, "before_cursor_execute", lambda *args: asked.append(args[2])
    )
    assert (await reader.find("k", previous(last))).answers == 40
    assert len(asked) <= 5, asked


async def test_of_an_answer_of_many_releases_only_the_last_is_looked_at(
    url: str, reader: AnswerReader
) -> None:
    mine = await keep(url, call_id(), "x")
    insert = """INSERT INTO releases (call_id, number, number_next, at, seq, payload, sha256)
        SELECT call_id, -n, number_next, at, seq, payload, sha256 FROM releases, generate_series(1, 3000) n"""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        connection.execute(insert)
        asked: list[tuple[Any, Any]] = []
        sqlalchemy.event.listen(
            reader._engine.sync_engine,
            "before_cursor_execute",
            lambda *args: asked.append(args[2:4]),
        )
        assert await reader.find_by_id("k", mine) is not None
        plans = [
            connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {one}".encode(), values).fetchone()
            for one, values in asked
        ]
    assert [read_of("releases", plan[0][0]["Plan"]) for plan in plans if plan] == [1, 1]


def read_of(table: str, plan: Json) -> float:
    """How many rows of a table and its partitions a plan, as it ran, took or threw away."""
    mine = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    is_of = plan.get("Relation Name", "").startswith(table)
    return (mine if is_of else 0.0) + sum(read_of(table, one) for one in plan.get("Plans", ()))


async def test_a_guess_that_was_wrong_once_is_not_made_again(
    url: str, reader: AnswerReader
) -> None:
    """Each request of a conversation could lead it to megabytes that are not gone on with."""
    other, last = await keep(url, call_id(now_ms() - 5000), "other"), ""
    for number in range(5):
        decoy = {"previous_response_id": other}
        last = await keep(
            url, call_id(now_ms() - 1000 + number), str(number), previous=last, model=decoy
        )
    asked: list[str] = []
    sqlalchemy.event.listen(
        reader._engine.sync_engine, "before_cursor_execute", lambda *args: asked.append(args[2])
    )
    assert (await reader.find("k", previous(last))).answers == 5
    assert sum("RECURSIVE" in one for one in asked) == 1


@pytest.mark.parametrize("held", [0, 2**30])
async def test_a_lookup_that_has_read_much_keeps_its_place_while_it_waits(
    url: str, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Many of one key would else hold a conversation each."""
    monkeypatch.setattr(db.read.call.places, "HELD_BYTES", held)
    monkeypatch.setattr(db.read.call.answer_rows, "FIND_S", 0.3)
    places = RoundRobin(LOOKUPS_AT_ONCE, most=1)
    reader = AnswerReader.open(url, "responses", max_bytes=BODY_BYTES, turn=places.place)
    mine = await keep(url, call_id(), "x", previous=identity(call_id(now_ms() - 5)))
    finding = asyncio.create_task(reader.find("k", previous(mine)))
    await wait_until(lambda: reader._rows._waiting["k"], what="it waits for the answer before")
    free = set()
    while not finding.done():
        free.add(places.free)
        await asyncio.sleep(0)
    assert (await finding).missing == "previous"
    assert (LOOKUPS_AT_ONCE in free) == bool(held)
    await reader.close()


async def test_a_lookup_has_its_place_until_its_fact_is_charged(url: str) -> None:
    """Turns and answers likewise: what is read is megabytes, and another key waits for none of
    it."""
    lookup, busy, go = TurnLookup(url, durable=True, max_bytes=BODY_BYTES), 0, asyncio.Event()
    mine = await keep(url, call_id(), "x")
    await insert(url, *turn_of(call_id()))

    async def charge(_: bytes) -> bool:
        nonlocal busy
        busy += 1
        await go.wait()
        return False

    async def refuse(_: bytes) -> bool:
        return False

    turns = [
        lookup.find("k", WantedTurns("anthropic", ("toolu_1",)), charge=charge) for _ in range(4)
    ]
    greedy = [
        asyncio.create_task(one)
        for one in (*turns, lookup.find_answers("k", previous(mine), charge=charge))
    ]
    await wait_until(lambda: busy == 1, what="the key has its place")
    never = previous(identity(call_id(now_ms() - 10**9)))
    assert unpack(await lookup.find_answers("other", never, charge=refuse)).missing == "previous", (
        "no memory is no reason"
    )
    assert busy == 1
    go.set()
    *none, refused = await asyncio.gather(*greedy)
    assert (
        none == [pack_turns([], ["memory"])] * 4
        and unpack(refused).missing == "memory"
        and busy == 5
    )
    await lookup.close()


async def test_what_only_looks_like_the_answer_before_leads_nowhere(
    url: str, reader: AnswerReader
) -> None:
    """PostgreSQL's guess is the first field of that name, also one that is nested: what is gone on
    with is read of the request."""
    other = await keep(url, call_id(now_ms() - 5000), "other")
    first = await keep(url, call_id(now_ms() - 1000), "first")
    decoy = {"metadata": {"previous_response_id": other}}
    call = call_id(now_ms() - 900)
    body = as_json(
        {"model": "m"} | decoy | {"input": "asked second", "previous_response_id": first}
    )
    async with AuditInserter(url) as inserter:
        end = EndRecord(
            call_id=call, at=int(time.time() * 1000), state="ENDED", reason="complete", status=200
        )
        await inserter.insert(
            [call_record(call, key="k", dialect="responses"), released(call, "second"), end],
            {call: body},
        )
    found = await reader.find(
        "k", previous(await keep(url, call_id(now_ms()), "third", previous=identity(call)))
    )
    assert not found.missing and found.calls == ["call_first", "call_second", "call_third"]


@pytest.mark.slow
async def test_a_key_has_one_of_the_places_for_lookups(url: str) -> None:
    """24 lookups of ids that never were wait at their key's expense: another key's is answered at
    once."""
    places = RoundRobin(LOOKUPS_AT_ONCE, most=1)
    most = 0

    @contextlib.asynccontextmanager
    async def turn(key: str) -> AsyncIterator[None]:
        nonlocal most
        async with places.place(key):
            most = max(most, places._of.get("greedy", 0))
            yield

    reader = AnswerReader.open(url, "responses", max_bytes=BODY_BYTES, turn=turn)
    mine = await keep(url, call_id(), "x", key="innocent")
    greedy = [
        asyncio.create_task(reader.find_by_id("greedy", identity(call_id()))) for _ in range(24)
    ]
    await asyncio.sleep(0)
    assert await reader.find_by_id("innocent", mine) is not None
    assert not all(task.done() for task in greedy), "it waited for none of them"
    assert await asyncio.gather(*greedy) == [None] * 24 and most == 1
    await reader.close()
