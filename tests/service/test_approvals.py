"""Tool calls that wait for people, over HTTP: who reads them, who decides, and what every wrong way
to decide comes to."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from db.read.approvals import ApprovalReader
from db.read.queries import AuditReader
from db.state.polling import Watch
from db.write.approvals import ApproverDecision, decide
from db.write.reviews import Auditor
from pages.audit.api import AuditApi
from protocol.bounds import MAX_DECISION_BYTES, MAX_HELD_BYTES
from protocol.errors import AuditUnavailable
from settings.config import Key, Role
from tests.support.checks.asking import ask, expire
from tests.support.checks.record import call_id, fresh_database, rows

ROLES: dict[str, tuple[Role, ...]] = {
    "dev": ("client", "approver"),
    "ann": ("approver",),
    "bob": ("approver",),
    "kim": ("auditor",),
    "boss": ("admin",),
    "mon": ("monitor",),
}
KEYS = {
    name.encode(): Key(name=name, sha256=f"{number:x}" * 64, roles=roles)
    for number, (name, roles) in enumerate(ROLES.items())
}
ANN = Auditor(KEYS[b"ann"].id, "ann")
APPROVE = {"decision": "approve"}


@pytest.fixture
async def client(reader: AuditReader) -> AsyncIterator[httpx2.AsyncClient]:
    audit = AuditApi(reader, lambda headers: KEYS.get(dict(headers).get(b"x-api-key", b"")))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=audit.app), base_url="http://audit"
    ) as opened:
        yield opened
    await audit.close()


async def say(
    client: httpx2.AsyncClient, who: str, approval_id: str, said: Any = APPROVE
) -> httpx2.Response:
    """Decide about a request, as the key of that name."""
    content = said if isinstance(said, bytes) else json.dumps(said).encode()
    return await client.post(
        f"/audit/approvals/{approval_id}", content=content, headers={"x-api-key": who}
    )


async def get(client: httpx2.AsyncClient, who: str, path: str = "") -> httpx2.Response:
    """Ask for the list, or for one of it."""
    return await client.get(f"/audit/approvals{path}", headers={"x-api-key": who})


async def test_one_is_listed_read_and_approved(url: str, client: httpx2.AsyncClient) -> None:
    assert ask(url, "apr_1", why="a \u202e b") == "apr_1"
    for who in ("ann", "kim", "boss"):
        (item,) = (await get(client, who, "?state=open")).json()["items"]
        assert (item["approval_id"], item["state"], item["tool"]) == ("apr_1", "open", "deploy")
        assert item["arguments"] == '{"to": "production"}' and 3500 < item["left_s"] <= 3600
    answer = await say(client, "ann", "apr_1", APPROVE | {"note": " looks right "})
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["decided_by"]) == ("approved", "ann")
    assert answer.json()["votes"][0]["note"] == "looks right" == answer.json()["note"]
    assert (await get(client, "kim", "?state=open")).json()["items"] == []
    assert (await get(client, "kim", "/apr_1")).json()["use_until"] is not None
    read = rows(url, "SELECT key, path FROM reads ORDER BY at")
    assert ("ann", "/audit/approvals/apr_1") in read and ("kim", "/audit/approvals") in read


async def test_only_approvers_decide_and_a_key_not_about_its_own_calls(
    url: str, client: httpx2.AsyncClient
) -> None:
    ask(url, "apr_1", key_id=KEYS[b"dev"].id)
    for who in ("kim", "boss", "mon", "dev"):
        refused = await say(client, who, "apr_1")
        assert refused.status_code == 403, who
        wanted = "own_call" if who == "dev" else "wrong_role"
        assert refused.json()["error"]["code"] == wanted
    assert (await say(client, "nobody", "apr_1")).status_code == 401
    assert (await get(client, "mon")).status_code == 403
    for path in ("/audit/calls", "/audit/export", "/audit/counts", "/audit/reviews"):
        assert (await client.get(path, headers={"x-api-key": "ann"})).status_code == 403, path
    assert rows(url, "SELECT count(*) FROM approval_votes") == [(0,)]


async def test_a_request_that_is_for_others_is_like_one_that_is_not_there(
    url: str, client: httpx2.AsyncClient
) -> None:
    ask(url, "apr_1", approvers="bob\ncarl")
    for answers in (
        [await get(client, "ann", path) for path in ("/apr_1", "/apr_none")],
        [await say(client, "ann", name) for name in ("apr_1", "apr_none", "apr_%00")],
    ):
        assert {answer.status_code for answer in answers} == {404}
        assert answers[0].content == answers[1].content
    assert (await get(client, "ann")).json()["items"] == []
    assert (await get(client, "kim", "/apr_1")).status_code == 200
    assert (await say(client, "bob", "apr_1")).json()["state"] == "approved"


@pytest.mark.parametrize(
    ("said", "param"),
    [
        (b"{", None),
        (b'{"decision": "approve", "decision": "deny"}', None),
        ({}, "decision"),
        ({"decision": "yes"}, "decision"),
        ({"decision": ["approve"]}, "decision"),
        (APPROVE | {"force": True}, "force"),
        (APPROVE | {"note": 1}, "note"),
        (APPROVE | {"note": "x" * 2_001}, "note"),
        ({"decision": "deny", "arguments": "{}"}, "arguments"),
        (APPROVE | {"arguments": {"to": "x"}}, "arguments"),
        (APPROVE | {"arguments": "[1]"}, "arguments"),
        (APPROVE | {"arguments": '{"a": 1} {"a": 2}'}, "arguments"),
        (APPROVE | {"arguments": '{"a": 1, "a": 2}'}, "arguments"),
        (APPROVE | {"arguments": '{"a": 1, "A": 2}'}, "arguments"),
        (APPROVE | {"arguments": '{"a": NaN}'}, "arguments"),
        (APPROVE | {"arguments": '{"a": ' * 70 + "1" + "}" * 70}, "arguments"),
        (APPROVE | {"arguments": '{"a": "%s"}' % ("x" * MAX_HELD_BYTES)}, "arguments"),
        (
            APPROVE | {"arguments": '{"a": "%s"}' % ("\u20ac" * (MAX_HELD_BYTES // 2))},
            "arguments",
        ),
    ],
)
async def test_what_is_wrong_with_a_decision_is_said_and_nothing_is_decided(
    url: str, client: httpx2.AsyncClient, said: Any, param: str | None
) -> None:
    ask(url, "apr_1")
    refused = await say(client, "ann", "apr_1", said)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert rows(url, "SELECT count(*) FROM approval_votes") == [(0,)]


async def test_a_decision_has_an_end_and_no_get(url: str, client: httpx2.AsyncClient) -> None:
    ask(url, "apr_1")
    large = await say(client, "ann", "apr_1", b" " * (MAX_DECISION_BYTES + 1))
    assert large.status_code == 413
    for method in ("PUT", "DELETE", "PATCH"):
        headers = {"x-api-key": "ann"}
        other = await client.request(method, "/audit/approvals/apr_1", headers=headers)
        assert other.status_code == 405
    read = await get(client, "ann", "/apr_1?decision=approve")
    assert read.status_code in (200, 400)
    for path in ("?state=old", "?limit=5", "?state=open&x=1"):
        assert (await get(client, "ann", path)).status_code == 400
    assert (await get(client, "ann", "?cursor=apr_none")).json()["items"] == []
    assert rows(url, "SELECT outcome FROM approvals") == [(None,)]


async def test_two_are_needed_and_both_for_the_same_arguments(
    url: str, client: httpx2.AsyncClient
) -> None:
    ask(url, "apr_1", need=2)
    first = await say(client, "ann", "apr_1", APPROVE | {"arguments": '{"to": "staging"}'})
    assert (first.json()["state"], first.json()["approved_by"]) == ("open", ["ann"])
    again = await say(client, "ann", "apr_1", APPROVE | {"arguments": '{"to": "staging"}'})
    assert again.status_code == 200, "a decision that is sent again changes nothing"
    other = await say(client, "ann", "apr_1")
    assert other.json()["error"]["code"] == "already_decided"
    assert (await say(client, "bob", "apr_1")).json()["state"] == "open", "for other arguments"
    ask(url, "apr_2", need=2)
    answer = first
    for who in ("ann", "bob"):
        answer = await say(client, who, "apr_2", APPROVE | {"arguments": '{"to": "staging"}'})
    assert answer.json()["state"] == "approved" and answer.json()["is_edited"]
    assert answer.json()["edited"] == '{"to": "staging"}'


async def test_those_who_approved_something_else_are_not_named(
    url: str, client: httpx2.AsyncClient
) -> None:
    ask(url, "apr_1", need=2)
    await say(client, "ann", "apr_1", APPROVE | {"arguments": '{"to": "staging"}'})
    for name in ("carl", "dora"):
        await decide(url, Auditor(f"id-{name}", name), "apr_1", ApproverDecision("approve"))
    item = (await get(client, "kim", "/apr_1")).json()
    assert (item["state"], item["decided_by"], item["is_edited"]) == (
        "approved",
        "carl, dora",
        False,
    )


async def test_who_decides_late_is_told_so(url: str, client: httpx2.AsyncClient) -> None:
    for name in ("apr_1", "apr_2", "apr_3"):
        ask(url, name)
    assert (await say(client, "ann", "apr_1", {"decision": "deny", "note": "no"})).json()[
        "state"
    ] == "denied"
    expire(url, "apr_2")
    await say(client, "ann", "apr_3")
    for name, words in (("apr_1", "denied"), ("apr_2", "expired"), ("apr_3", "approved")):
        late = await say(client, "bob", name, APPROVE | {"arguments": "{}"})
        assert late.status_code == 409 and words in late.json()["error"]["message"]
    assert (await get(client, "kim", "?state=expired")).json()["items"][0]["left_s"] == 0
    assert rows(url, "SELECT DISTINCT voter FROM approval_votes") == [("ann",)]


async def test_two_at_the_same_moment_get_one_outcome(url: str) -> None:
    others = [Auditor(f"id-{number}", f"n{number}") for number in range(6)]
    ask(url, "apr_1")
    outcomes = await asyncio.gather(
        *(
            decide(url, who, "apr_1", ApproverDecision("approve" if number % 2 else "deny"))
            for number, who in enumerate(others)
        ),
        return_exceptions=True,
    )
    assert sum(not isinstance(outcome, BaseException) for outcome in outcomes) == 1
    assert rows(url, "SELECT count(*) FROM approval_votes") == [(1,)]


async def test_a_database_that_is_not_migrated_knows_of_none(database_url: str) -> None:
    """And a worker goes on looking for its other calls."""
    with fresh_database(database_url, migrated=False) as nowhere:
        watch = Watch(nowhere)
        assert await watch.approvals([(call_id(), 1)]) == []
        await watch.close()


async def test_what_cannot_be_stored_is_said(url: str) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with pytest.raises(AuditUnavailable, match="safe to send it again"):
        await decide(nowhere, ANN, "apr_1", ApproverDecision("approve"), answer_s=2)


async def test_pages_of_the_list_and_what_happened_before(reader: AuditReader, url: str) -> None:
    for number in range(5):
        same = {"binding": f"b{number}", "without_policy": "same"} if number > 2 else {}
        ask(url, f"apr_{number}", call=call_id(), **same)
    approvals = ApprovalReader(reader.engine)
    first = await approvals.page(None, limit=3)
    second = await approvals.page(None, after=first["next_cursor"], limit=3)
    names = [item["approval_id"] for page in (first, second) for item in page["items"]]
    assert names == [f"apr_{number}" for number in (4, 3, 2, 1, 0)]
    assert second["next_cursor"] is None
    newest = await approvals.one("apr_4")
    assert newest is not None
    assert [(one["approval_id"], one["state"]) for one in newest["earlier"]] == [
        ("apr_3", "superseded")
    ]
    count, before = await approvals.changes()
    expire(url, "apr_0")
    assert count == 4 and await approvals.changes() != (count, before)
    assert (await approvals.changes())[0] == 3
