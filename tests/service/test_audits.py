"""Decisions that a person is to look at: the queue with its budget, reviews over HTTP and by
command, and the sample drawn again."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest
from sqlalchemy import make_url
from typer.testing import CliRunner

import db.read.queries
import db.read.sample_check
from db.connections import conninfo
from db.filters import Filters
from db.read.queries import AuditReader
from db.seals.redact import drop_before, redact
from db.seals.seal import Sealer
from db.write.insert import AuditInserter
from db.write.reviews import Auditor, Review, add_review
from pages.audit.api import AuditApi
from protocol.errors import AuditUnavailable, Conflict, NotFound
from protocol.records import DecisionRecord, Record
from protocol.sampling import draw
from settings.config import Key
from sluice.audit import audit_cli
from tests.support.checks.reading import DAY_MS, end_record, insert
from tests.support.checks.record import (
    call_id,
    call_record,
    control_records,
    now_ms,
    rows,
    tool_call_record,
)
from tests.support.json_values import Json

REVISION = "0a1b2c3d4e5f"
KEYS = {
    b"kim": Key(name="kim", sha256="0" * 64, roles=("auditor",)),
    b"lee": Key(name="lee", sha256="1" * 64, roles=("auditor",)),
}


def decision(call: str, **changes: Any) -> DecisionRecord:
    """The record of a decision on block 1 that suspicion chose, right by its draw."""
    values: dict[str, Any] = {
        "block": 1,
        "step": 0,
        "at": now_ms(),
        "unit": "call",
        "attempt": 0,
        "policy": "control",
        "protocol": "threshold",
        "action": "allow",
        "score": 0.7,
        "threshold": None,
        "reason": "",
        "audit": "suspicion",
        "audit_rate": 0.01,
        "audit_at": 0.5,
        "audit_budget": 50,
    } | changes
    return DecisionRecord(
        call_id=call, **({"u": draw(nonce(call), REVISION, values["block"])} | values)
    )


def nonce(call: str) -> str:
    return f"nonce-{call}"


def one(
    call: str, *blocks: int, key: str = "dev", policy: str = "default", **changes: Any
) -> list[Record]:
    """A call with tool calls and decisions on them."""
    start = json.dumps({"nonce": nonce(call)})
    begun = call_record(
        call, key=key, key_id=f"id-{key}", policy=policy, policy_revision=REVISION, start=start
    )
    found: list[Record] = [begun, end_record(call, "ENDED")]
    for block in blocks or (1,):
        found += [tool_call_record(call, block=block), decision(call, block=block, **changes)]
    return found


async def seal(url: str, *records: Record) -> None:
    """Store records and seal their calls, as audit writers do."""
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, {})
    await asyncio.to_thread(seal_all, url, {record.call_id for record in records})


def seal_all(url: str, calls: Iterable[str]) -> None:
    with Sealer(url) as sealer:
        sealer.seal(map(UUID, calls))


def states(url: str, **where: str) -> dict[tuple[str, str], int]:
    """How many there are by why and state."""
    chosen = " AND ".join(["true", *(f"{name} = '{value}'" for name, value in where.items())])
    return dict(rows(url, f"SELECT (why, state), count(*) FROM audits WHERE {chosen} GROUP BY 1"))


async def test_a_flagged_decision_is_queued_once_when_its_call_is_sealed(url: str) -> None:
    call = call_id()
    records = one(call)
    await insert(url, *records, bodies={})
    assert states(url) == {}, "not before it is sealed: its rows may not all be there"
    await seal(url, *records)
    await seal(
        url, *records, tool_call_record(call, block=9), decision(call, block=8, audit="", score=0.1)
    )
    seal_all(url, [call])
    assert rows(
        url,
        "SELECT call_id::text, block, policy, key, key_id, why, score, budget, state, day FROM"
        " audits",
    ) == [
        (
            call,
            1,
            "default",
            "dev",
            "id-dev",
            "suspicion",
            0.7,
            50,
            "waiting",
            datetime.fromtimestamp(now_ms() / 1000, UTC).date(),
        )
    ]
    assert rows(url, "SELECT count(*) FROM seals") == [(2,)]


async def test_a_decision_that_comes_after_the_seal_is_queued_too(url: str) -> None:
    call = call_id()
    await seal(url, call_record(call, policy_revision=REVISION))
    await seal(url, decision(call))
    assert states(url) == {("suspicion", "waiting"): 1}


async def test_there_is_no_seal_without_its_rows_of_the_queue(url: str) -> None:
    call = call_id()
    await insert(url, *one(call), bodies={})
    rows(url, "ALTER FUNCTION sluice_queue_audits(uuid[]) RENAME TO broken")
    with pytest.raises(AuditUnavailable):
        await asyncio.to_thread(seal_all, url, [call])
    assert rows(url, "SELECT count(*) FROM seals") == [(0,)], "so somebody seals it again"
    rows(url, "ALTER FUNCTION broken(uuid[]) RENAME TO sluice_queue_audits")
    await asyncio.to_thread(seal_all, url, [call])
    assert states(url) == {("suspicion", "waiting"): 1}


async def test_of_several_steps_on_a_block_the_most_suspicious_is_queued(url: str) -> None:
    call = call_id()
    await seal(
        url,
        *one(call),
        decision(call, step=1, score=0.9),
        decision(call, step=2, audit="sampled", score=1.0, u=0.001),
    )
    assert rows(url, "SELECT step, why, score FROM audits") == [(1, "suspicion", 0.9)]


async def test_a_budget_is_of_a_key_a_policy_and_a_day(url: str) -> None:
    calls = {name: call_id() for name in ("mine", "other key", "other policy")}
    yesterday = call_id(now_ms() - DAY_MS)
    await seal(url, *one(calls["mine"], *range(9), audit_budget=2))
    await seal(
        url,
        *one(calls["other key"], *range(9), key="eve", audit_budget=2),
        *one(yesterday, *range(9), audit_budget=2),
    )
    await seal(url, *one(calls["other policy"], *range(9), policy="strict", audit_budget=2))
    for of in (*calls.values(), yesterday):
        assert states(url, call_id=of) == {
            ("suspicion", "waiting"): 2,
            ("suspicion", "over_budget"): 7,
        }


async def test_noise_of_a_hostile_key_neither_ends_the_sample_nor_hides_what_is_worse(
    url: str,
) -> None:
    noise, late = call_id(now_ms() - 2), call_id(now_ms() - 1)
    await seal(url, *one(noise, *range(60), score=0.55, audit_budget=10))
    assert states(url) == {("suspicion", "waiting"): 10, ("suspicion", "over_budget"): 50}
    # in the afternoon: the attack, and what the sample draws
    await seal(
        url,
        *one(late, 1, score=0.99, audit_budget=10),
        *(
            decision(late, block=n, audit="sampled", score=0.0, u=0.001 * n, audit_budget=10)
            for n in range(20, 40)
        ),
    )
    assert states(url, call_id=late) == {
        ("suspicion", "waiting"): 1,
        ("sampled", "waiting"): 5,
        ("sampled", "over_budget"): 15,
    }
    assert states(url, call_id=noise)["suspicion", "waiting"] == 4
    # of the sample the lowest draws, whenever they came
    assert [
        block
        for (block,) in rows(
            url, "SELECT block FROM audits WHERE why = 'sampled' AND state = 'waiting' ORDER BY 1"
        )
    ] == [
        20,
        21,
        22,
        23,
        24,
    ]
    other = call_id()
    await seal(url, *one(other, 1, audit="sampled", score=0.0, u=0.0001, audit_budget=10))
    assert states(url, call_id=other) == {("sampled", "waiting"): 1} and states(
        url, state="waiting"
    ) == {
        ("suspicion", "waiting"): 5,
        ("sampled", "waiting"): 5,
    }


async def test_equal_scores_are_chosen_by_lot_not_by_time(url: str) -> None:
    early, late = call_id(now_ms() - 1), call_id()
    await seal(url, *one(early, *range(40), score=1.0, audit_budget=20))
    await seal(url, *one(late, *range(40), score=1.0, audit_budget=20))
    waiting = (
        states(url, call_id=early)["suspicion", "waiting"],
        states(url, call_id=late)["suspicion", "waiting"],
    )
    assert sum(waiting) == 20 and min(waiting) >= 2


async def test_what_is_reviewed_is_spent_and_what_has_no_budget_waits(url: str) -> None:
    first, second, free = call_id(now_ms() - 1), call_id(), call_id()
    await seal(url, *one(first, 1, 2, score=0.6, audit_budget=2))
    for block in (1, 2):
        assert await add_review(url, Auditor("k", "kim"), Review(UUID(first), block, "honest"))
    await seal(
        url,
        *one(second, 1, 2, score=0.9, audit_budget=2),
        *one(free, *range(30), key="free", audit_budget=None),
    )
    assert states(url, key="dev") == {("suspicion", "reviewed"): 2, ("suspicion", "over_budget"): 2}
    assert states(url, key="free") == {("suspicion", "waiting"): 30}
    none = call_id()
    await seal(url, *one(none, 1, key="none", audit_budget=0))
    assert states(url, key="none") == {("suspicion", "over_budget"): 1}
    assert await add_review(url, Auditor("k", "kim"), Review(UUID(none), 1, "unclear")), (
        "somebody may look all the same"
    )


@pytest.mark.slow
async def test_two_writers_at_once_keep_to_the_budget_while_somebody_reviews(url: str) -> None:
    calls = [call_id() for _ in range(24)]
    await insert(
        url, *(record for call in calls for record in one(call, 1, 2, audit_budget=7)), bodies={}
    )

    def work(mine: list[str]) -> None:
        for call in mine:
            seal_all(url, [call])

    async def review() -> None:
        for call in calls[::2]:
            with contextlib.suppress(NotFound):
                await add_review(url, Auditor("k", "kim"), Review(UUID(call), 1, "honest"))

    # each call by three of them, in different orders
    orders = (calls, calls[::-1], calls[::2] + calls[1::2])
    await asyncio.gather(*(asyncio.to_thread(work, mine) for mine in orders), review())
    # what was over the budget may have been reviewed since: the next call says what that leaves
    await seal(url, *one(call_id(), 1, audit_budget=7))
    found = states(url)
    assert sum(found.values()) == 49
    assert found.get(("suspicion", "waiting"), 0) == max(
        0, 7 - found.get(("suspicion", "reviewed"), 0)
    )


@pytest.fixture
async def client(reader: AuditReader) -> AsyncIterator[httpx2.AsyncClient]:
    audit = AuditApi(reader, lambda headers: KEYS.get(dict(headers).get(b"x-api-key", b"")))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=audit.app),
        base_url="http://audit",
        headers={"x-api-key": "kim"},
    ) as opened:
        yield opened
    await audit.close()


async def test_the_queue_is_listed_and_labelled_over_http(
    url: str, client: httpx2.AsyncClient
) -> None:
    call = call_id()
    await seal(url, *one(call, 1, 2, audit_budget=1, u=0.5))
    told = (await client.get("/audit/reviews?state=waiting")).json()
    [item] = told["items"]
    assert (
        told["counts"] == {"waiting": 1, "reviewed": 0, "over_budget": 1}
        and told["next_cursor"] is None
    )
    assert (item["call_id"], item["block"], item["why"], item["score"], item["name"]) == (
        call,
        1,
        "suspicion",
        0.7,
        "bash",
    )
    assert (item["arguments"], item["verdict"], item["reviews"]) == (
        '{"command": "rm -rf /tmp/build"}',
        "block",
        [],
    )
    path = f"/audit/reviews/{call[:13]}/1"
    answer = await client.post(path, json={"label": "attack", "note": " it deletes\x00 "})
    assert answer.status_code == 201, answer.text
    item = answer.json()
    assert (item["state"], item["label"], item["agreed"]) == ("reviewed", "attack", None)
    assert [(said["auditor"], said["label"], said["note"]) for said in item["reviews"]] == [
        ("kim", "attack", "it deletes\x00")
    ]
    # again: nothing is added
    again = await client.post(path, json={"note": "it deletes\x00", "label": "attack"})
    assert (again.status_code, again.json()) == (200, item)
    lee = {"x-api-key": "lee"}
    refused = await client.post(path, json={"label": "honest"}, headers=lee)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_reviewed")
    both = (await client.post(path, json={"label": "honest", "second": True}, headers=lee)).json()
    assert (both["label"], both["agreed"], [said["label"] for said in both["reviews"]]) == (
        None,
        False,
        ["attack", "honest"],
    )
    # somebody changes their mind: both words stay, the newest counts
    changed = (await client.post(path, json={"label": "honest"})).json()
    assert (changed["label"], changed["agreed"], len(changed["reviews"])) == ("honest", True, 3)
    assert rows(url, "SELECT number, auditor FROM audit_reviews ORDER BY 1") == [
        (1, "kim"),
        (2, "lee"),
        (3, "kim"),
    ]
    assert (await client.get("/audit/reviews?state=waiting")).json()["counts"] == {
        "waiting": 0,
        "reviewed": 1,
        "over_budget": 1,
    }


async def test_what_is_wrong_with_a_review_is_said(url: str, client: httpx2.AsyncClient) -> None:
    call = call_id()
    await seal(url, *one(call))
    path = f"/audit/reviews/{call}/1"
    for body, status, code, param in (
        (b"", 400, "invalid_json", None),
        (b'["honest"]', 400, "invalid_json", None),
        (b'{"label": "honest", "label": "attack"}', 400, "invalid_json", None),
        (b"{}", 400, "invalid_request", "label"),
        (b'{"label": "harmful"}', 400, "invalid_request", "label"),
        (b'{"label": ["honest"]}', 400, "invalid_request", "label"),
        (b'{"label": "honest", "note": 5}', 400, "invalid_request", "note"),
        (b'{"label": "honest", "note": "' + b"x" * 2001 + b'"}', 400, "invalid_request", "note"),
        (b'{"label": "honest", "second": 1}', 400, "invalid_request", "second"),
        (b'{"label": "honest", "notes": ""}', 400, "invalid_request", "notes"),
        (b'{"label": "honest", "note": "' + b"x" * 40_000 + b'"}', 413, "request_too_large", None),
    ):
        answer = await client.post(path, content=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (status, code, param), body[
            :60
        ]
    for where, status, code in (
        (f"/audit/reviews/{call}/2", 404, "not_audited"),
        (f"/audit/reviews/{call}/x", 404, "not_audited"),
        (f"/audit/reviews/{call}/{2**31}", 404, "not_audited"),
        (f"/audit/reviews/{call_id()}/1", 404, "not_audited"),
        ("/audit/reviews/nothing/1", 404, "not_found"),
        ("/audit/reviews", 405, "method_not_allowed"),
    ):
        answer = await client.post(where, json={"label": "honest"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), where
    wrong = await client.get(path)
    assert wrong.status_code == 405 and "POST is" in wrong.json()["error"]["message"]
    assert (
        await client.post(path, json={"label": "honest"}, headers={"x-api-key": "none"})
    ).status_code == 401
    assert rows(url, "SELECT count(*) FROM audit_reviews") == [(0,)]


@pytest.mark.slow
async def test_filters_and_pages_of_the_queue(
    url: str, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [call_id(now_ms() - 10 + n) for n in range(5)]
    for n, call in enumerate(calls):
        await seal(
            url,
            *one(
                call,
                1,
                2,
                key="eve" if n == 4 else "dev\ufffe",
                audit="sampled" if n == 3 else "suspicion",
            ),
        )

    async def keys(query: str) -> list[tuple[str, int]]:
        found, cursor = [], ""
        while True:
            told = (await client.get(f"/audit/reviews?{query}&cursor={cursor}")).json()
            found += [(item["call_id"], item["block"]) for item in told["items"]]
            if not (cursor := told["next_cursor"] or ""):
                return found

    whole = [(call, block) for call in calls for block in (1, 2)]
    assert await keys("order=asc&limit=3") == whole and await keys("limit=4") == whole[::-1]
    assert (
        await keys("key=eve&order=asc") == whole[8:]
        and await keys("key_id=id-eve") == whole[8:][::-1]
    )
    assert await keys("key=dev%EF%BF%BE&why=sampled&order=asc") == whole[6:8]
    assert (
        await keys(f"call_id={calls[0]}&order=asc") == whole[:2] and await keys("policy=none") == []
    )
    assert (
        await keys("state=over_budget") == []
        and len(await keys("state=WAITING&since=2020-01-01&until=2100-01-01")) == 10
    )
    monkeypatch.setattr(db.read.queries, "PAGE_BYTES", 40)
    assert await keys("order=asc&limit=5") == whole, "a page ends early where arguments are long"
    for query, param in (
        ("state=ACTIVE", "state"),
        ("why=me", "why"),
        ("verdict=allow", "verdict"),
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
    ):
        error = (await client.get(f"/audit/reviews?{query}")).json()["error"]
        assert (error["code"], error["param"]) == ("invalid_request", param)


async def test_two_auditors_at_once_do_not_overlook_each_other(url: str) -> None:
    call = call_id()
    await seal(url, *one(call))
    said = [
        add_review(url, Auditor(str(n), f"auditor {n}"), Review(UUID(call), 1, "honest"))
        for n in range(8)
    ]
    found = await asyncio.gather(*said, return_exceptions=True)
    assert [one for one in found if one is True] == [True] and sum(
        isinstance(one, Conflict) for one in found
    ) == 7
    assert rows(url, "SELECT count(*) FROM audit_reviews") == [(1,)]


async def test_reviews_of_a_decision_are_bounded(url: str) -> None:
    call = call_id()
    await seal(url, *one(call))
    values = "SELECT %s, 1, n, 'k', 'kim', 'honest', n::text FROM generate_series(1, %s) n"
    rows(
        url,
        "INSERT INTO audit_reviews (call_id, block, number, auditor_id, auditor, label, note)"
        f" {values}",
        call,
        100,
    )
    with pytest.raises(Conflict):
        await add_review(url, Auditor("k", "kim"), Review(UUID(call), 1, "attack"))


def ask(url: str, call: str) -> None:
    """Ask people about a tool call of it."""
    rows(
        url,
        "SELECT sluice_ask_people('apr_' || %s, %s, 0, 60, 60, 60, '', '', 'k', '', '', '', '', 'bash',"
        " '', 'client', 'password', '', '', 1, '')",
        call,
        call,
    )


async def test_redaction_takes_the_notes_and_retention_all_of_it(url: str) -> None:
    old, new = call_id(now_ms() - 3 * DAY_MS), call_id()
    for call in (old, new):
        await seal(
            url,
            *one(call),
        )
        await add_review(
            url, Auditor("k", "kim"), Review(UUID(call), 1, "attack", "it said: password")
        )
        ask(url, call)
    await asyncio.to_thread(redact, url, UUID(new), "asked for")
    assert rows(url, "SELECT call_id::text FROM approvals") == [(old,)]
    assert rows(url, "SELECT label, note FROM audit_reviews ORDER BY call_id") == [
        ("attack", "it said: password"),
        ("attack", ""),
    ]
    with Sealer(url) as sealer:
        sealer.checkpoint()
    assert (
        drop_before(
            url, datetime.fromtimestamp(now_ms() / 1000, UTC).date(), "old", redis_time=time.time
        )
        == 1
    )
    assert (
        rows(url, "SELECT call_id::text FROM audits")
        == rows(url, "SELECT call_id::text FROM audit_reviews")
        == [(new,)]
    )
    assert rows(url, "SELECT count(*)::int FROM approvals") == [(0,)]


async def test_the_sample_is_drawn_again_from_the_record(
    url: str, reader: AuditReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db.read.sample_check, "PAGE", 3)
    calls = [call_id(now_ms() - n) for n in range(4)]
    quiet = call_id()
    for call in calls:
        await seal(url, *one(call, 1, 2, 3))
    rare: Json = {"audit": "", "score": 0.1, "audit_rate": 0.0}
    await seal(
        url,
        *one(quiet, 1, **rare),
        decision(quiet, block=5, audit="", audit_rate=None, audit_at=None, u=None),
    )
    lost = call_id()
    await seal(url, decision(lost, u=0.5), *one(call_id(), 2**40))
    filters = Filters()
    told = await reader.draws(filters)
    assert told == {
        "ok": True,
        "decisions": 15,
        "sampled": 0,
        "suspicion": 14,
        "unknown": 2,
        "wrong": 0,
        "items": [],
    }
    rows(url, "UPDATE decisions SET u = 0.25 WHERE call_id = %s AND block = 1", calls[0])
    rows(url, "UPDATE decisions SET audit = '' WHERE call_id = %s AND block = 2", calls[1])
    rows(url, "DELETE FROM audits WHERE call_id = %s AND block = 3", calls[2])
    rows(url, "UPDATE decisions SET audit = 'sampled' WHERE call_id = %s", quiet)
    told = await reader.draws(filters)
    assert not told["ok"] and told["wrong"] == 6
    assert {(item["call_id"], item["block"], item["what"]) for item in told["items"]} == {
        (calls[0], 1, "its draw 0.25 is not that of the call's nonce"),
        (calls[1], 2, "it is not to be looked at, and by its draw and score suspicion"),
        (calls[1], 2, "it is in the queue, and no decision put it there"),
        (calls[2], 3, "it is to be looked at, and not in the queue"),
        (quiet, 1, "it is sampled, and by its draw and score not to be looked at"),
        (quiet, 1, "it is to be looked at, and not in the queue"),
    }
    assert (await reader.draws(Filters(call_id=UUID(calls[3]))))["ok"]


def run(*arguments: str, given: str = "") -> Any:
    return CliRunner().invoke(audit_cli.app, ["review", *arguments], input=given)


@pytest.mark.slow
def test_the_command_lists_shows_and_labels(url: str) -> None:
    call, other = call_id(), call_id(now_ms() - 5)
    asyncio.run(seal(url, *one(call, 1, 2), *one(other, 1, key="eve")))
    listed = run()
    lines = listed.stdout.splitlines()
    assert (
        listed.exit_code == 0
        and len(lines) == 4
        and lines[0].split("\t")[:3] == ["decided_at", "call_id", "block"]
    )
    assert "3 waiting, 0 reviewed, 0 over the budget" in listed.stderr
    assert len(json.loads(run("--json", "--key", "eve").stdout)["items"]) == 1
    asyncio.run(insert(url, *control_records(call)[::2], bodies={}))
    shown = run(call[:13])
    assert (
        "score        block 1: shell 0.97: deletes a tree" in shown.stdout
        and "attempt      0 (first) by gpt-x at openai" in shown.stdout
    )
    assert (
        "protocol     block 1: threshold: allow, 0.70, a person is to look at it: suspicion"
        in shown.stdout
    )
    assert (
        shown.exit_code == 0
        and shown.stdout.count("to be looked at: block") == 2
        and "rm -rf /tmp/build" in shown.stdout
    )
    assert [item["block"] for item in json.loads(run(call, "--json").stdout)["decisions"]] == [1, 2]
    several = run(call, "--label", "attack")
    assert several.exit_code == 2 and "1, 2" in several.stderr
    done = run(
        call, "--block", "2", "--label", "attack", "--note", "it deletes", "--auditor", "kim"
    )
    assert (done.exit_code, done.stdout) == (0, "labelled attack\n")
    assert (
        run(
            call, "--block", "2", "--label", "attack", "--note", "it deletes", "--auditor", "kim"
        ).stdout
        == "it was labelled attack already\n"
    )
    refused = run(call, "--block", "2", "--label", "honest", "--auditor", "lee")
    assert refused.exit_code == 2 and "second" in refused.stderr
    assert (
        json.loads(
            run(
                call, "--block", "2", "--label", "honest", "--auditor", "lee", "--second", "--json"
            ).stdout
        )["added"]
        is True
    )
    assert "kim: attack it deletes" in run(call, "--block", "2").stdout
    assert run("--state", "reviewed").stdout.splitlines()[1].split("\t")[6:9] == [
        "reviewed",
        "",
        "false",
    ]
    for wrong, code in (
        (("--label", "attack"), 2),
        ((call, "--note", "x"), 2),
        ((call, "--label", "bad"), 2),
        ((call, "--state", "waiting"), 2),
        ((call, "--check"), 2),
        ((call, "--block", "7"), 1),
        ((call_id(),), 1),
        (("--state", "ACTIVE"), 2),
    ):
        failed = run(*wrong)
        assert failed.exit_code == code and failed.stderr.startswith("sluice: "), wrong
    checked = run("--check")
    assert (checked.exit_code, checked.stdout) == (
        0,
        "ok: 3 decisions, 0 sampled, 3 for suspicion\n",
    )
    rows(url, "DELETE FROM audits WHERE call_id = %s", other)
    checked = run("--check")
    assert (
        checked.exit_code == 1
        and f"call {other}, block 1: it is to be looked at, and not in the queue" in checked.stdout
    )
    assert json.loads(run("--check", "--json").stdout)["wrong"] == 1


@pytest.mark.slow
def test_only_a_terminal_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = call_id()
    asyncio.run(seal(url, *one(call)))
    assert "honest, attack" not in run(call, given="attack\n\n").stderr
    monkeypatch.setattr("sluice.audit.review_cli._may_ask", lambda: True)
    asked = run(call, "--auditor", "kim", given="maybe\nat\nit deletes\n")
    assert (
        asked.exit_code == 0
        and "must be one of honest, attack, unclear" in asked.stderr
        and "labelled attack" in asked.stderr
    )
    assert rows(url, "SELECT auditor, label, note FROM audit_reviews") == [
        ("kim", "attack", "it deletes")
    ]
    # another auditor is asked without what the first said
    asked = run(call, "--auditor", "lee", given="h\n\ny\n")
    assert (
        asked.exit_code == 0
        and "kim: (its label" in asked.stdout
        and "it deletes" not in asked.stdout.partition("to be looked at")[2]
    )
    assert rows(url, "SELECT auditor, label FROM audit_reviews ORDER BY number") == [
        ("kim", "attack"),
        ("lee", "honest"),
    ]
    assert run(call, given="\n").exit_code == 0 and run(call).exit_code == 1


def test_doctor_says_that_reviews_wait(url: str) -> None:
    from db.state.health import reviews

    assert reviews(url) == []
    asyncio.run(seal(url, *one(call_id(), 1, 2)))
    [(state, said)] = reviews(url)
    assert state == "ok" and said.startswith(
        "2 decisions wait for a person to look at, the first since "
    )


def test_nobody_writes_the_queue_but_by_the_functions(url: str) -> None:
    call = call_id()
    asyncio.run(seal(url, *one(call)))
    review = "SELECT sluice_review(%s, 1, 'k', 'kim', 'attack', '', false)"
    may = {
        "sluice_reader": (False, False),
        "sluice_writer": (True, False),
        "sluice_reviewer": (False, True),
    }
    for role, rights in may.items():
        for statement, allowed in zip(
            ("SELECT sluice_queue_audits(ARRAY[%s]::uuid[])", review), rights, strict=True
        ):
            with psycopg.connect(conninfo(url), autocommit=True) as connection:
                connection.execute(f"SET ROLE {role}".encode())
                with (
                    contextlib.nullcontext()
                    if allowed
                    else pytest.raises(psycopg.errors.InsufficientPrivilege)
                ):
                    connection.execute(statement.encode(), (UUID(call),))
        for table in ("audits", "audit_reviews"):
            assert rows(
                url,
                f"SELECT has_table_privilege('{role}', '{table}', 'INSERT, UPDATE, DELETE,"
                " TRUNCATE')",
            ) == [(False,)]
    assert states(url) == {("suspicion", "reviewed"): 1}


async def test_a_gateway_whose_login_lacks_the_role_says_so(url: str) -> None:
    call = call_id()
    await seal(url, *one(call))
    role = f"nobody_{call[:8]}"
    rows(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    try:
        mine = make_url(url).set(username=role, password="x").render_as_string(hide_password=False)
        with pytest.raises(AuditUnavailable, match="sluice_reviewer"):
            await add_review(mine, Auditor("k", "kim"), Review(UUID(call), 1, "honest"))
    finally:
        rows(url, f"DROP ROLE {role}")
