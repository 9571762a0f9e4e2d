"""Programs are notified of what waits for people: signed, without secrets, once, and whatever
others do."""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from db.connections import conninfo
from db.write.approvals import ApproverDecision, decide
from db.write.reviews import Auditor
from settings.approvals import Approvals
from settings.config import Config
from settings.runtime import Runtime
from tests.support.checks.asking import ask, expire
from tests.support.checks.record import rows
from tests.support.servers.receiver import Posted, Receiver, receiver
from tests.support.waiting import wait_until
from workers.audit import notices
from workers.audit.notices import MAX_ANSWER_BYTES, PREVIEW_CHARS, NoticeSender

TRIES = 5
PUBLIC = "https://sluice.example/pages"
GITHUB = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hJ3lM6"
ANN = Auditor("id-ann", "ann")


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK_SECRET", "s3")
    with receiver() as made:
        yield made


@pytest.fixture
def other() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def target(hook: Receiver, name: str = "ops", **changes: Any) -> dict[str, Any]:
    """Where to post to, as the configuration says."""
    return {"name": name, "url": f"{hook.url}/in/?k=1", "secret_env": "HOOK_SECRET", **changes}


def slack(hook: Receiver) -> dict[str, Any]:
    return target(hook, "chat", form="slack", secret_env="")


@contextlib.asynccontextmanager
async def sending(url: str, *targets: dict[str, Any]) -> AsyncIterator[asyncio.Task[None]]:
    """What an audit writer does to notify them."""
    config = Config.model_validate({"approvals": {"public_url": PUBLIC, "notify": targets}})
    made = NoticeSender(Runtime(config=config, redis_url="", database_url=url), every_s=0.02)
    task = asyncio.create_task(made.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def posted(hook: Receiver, count: int) -> list[Posted]:
    """What was posted, once it is so much."""
    await wait_until(lambda: len(hook.posted) >= count)
    return hook.posted


async def settled(url: str, count: int) -> None:
    """Wait until so many notices are done."""
    await wait_until(lambda: len(done(url)) == count)


def done(url: str) -> list[Any]:
    return rows(url, "SELECT about, tries, sent FROM approval_notices WHERE due IS NULL")


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The lines about notices that were not taken."""
    return [record for record in caplog.records if record.name == notices.__name__]


def read(post: Posted) -> Any:
    """The body of a signed post, whose signature is right."""
    signed = f"{post.headers['x-sluice-timestamp']}.".encode() + post.body
    made = hmac.new(b"s3", signed, hashlib.sha256).hexdigest()
    assert post.headers["x-sluice-signature"] == f"v1={made}"
    return json.loads(post.body)


async def test_they_hear_that_people_are_asked_and_what_became_of_it(
    url: str, hook: Receiver, other: Receiver
) -> None:
    arguments = json.dumps({"token": GITHUB, "text": "x" * 2_000}).encode()
    async with sending(url, target(hook), slack(other)):
        ask(url, "apr_1", arguments=arguments, why=f"sends {GITHUB} <!channel> \u202e")
        [asked] = await posted(hook, 1)
        assert (asked.path, asked.headers["content-type"]) == ("/in/?k=1", "application/json")
        body = read(asked)
        assert (body["event"], body["state"], body["tool"]) == ("asked", "open", "deploy")
        assert (body["key"], body["session"], body["rule"]) == ("dev", "s-1", "deploys")
        assert body["url"] == f"{PUBLIC}/debug/approvals/apr_1"
        assert len(body["preview"]) == PREVIEW_CHARS and "[github]" in body["preview"]
        await decide(url, ANN, "apr_1", ApproverDecision("approve"))
        ended = read((await posted(hook, 2))[1])
        assert (ended["event"], ended["state"], ended["decided_by"]) == ("ended", "approved", "ann")
        words = [json.loads(post.body) for post in await posted(other, 2)]
        await settled(url, 2)
    assert [*words[0]] == ["text"] and "x-sluice-signature" not in other.posted[0].headers
    assert "&lt;!channel&gt; \\u202e" in words[0]["text"] and "\u202e" not in words[0]["text"]
    assert words[0]["text"].endswith(f"\n{PUBLIC}/debug/approvals/apr_1")
    assert "was approved by ann" in words[1]["text"]
    assert GITHUB.encode() not in b"".join(post.body for post in hook.posted + other.posted)
    assert sorted(done(url)) == [("asked", 1, ["ops", "chat"]), ("ended", 1, ["ops", "chat"])]


async def test_no_half_of_a_secret_is_sent(url: str, hook: Receiver, other: Receiver) -> None:
    async with sending(url, target(hook), slack(other)):
        ask(url, "apr_1", why="x" * (PREVIEW_CHARS - 30) + f" {GITHUB}")
        posts = await posted(hook, 1) + await posted(other, 1)
    assert b"ghp_" not in b"".join(post.body for post in posts)


@pytest.mark.parametrize("state", ["denied", "superseded", "expired"])
async def test_they_hear_of_every_end(url: str, hook: Receiver, state: str) -> None:
    async with sending(url, target(hook)):
        ask(url, "apr_1", without_policy="same")
        await posted(hook, 1)
        if state == "denied":
            await decide(url, ANN, "apr_1", ApproverDecision("deny"))
        elif state == "superseded":
            ask(url, "apr_2", without_policy="same")
        else:
            expire(url, "apr_1")
            rows(url, "UPDATE approval_notices SET due = now() WHERE about = 'ended'")
        await wait_until(lambda: state in {read(post)["state"] for post in hook.posted})


async def test_what_ended_before_anybody_heard_of_it_is_sent_as_that(
    url: str, hook: Receiver
) -> None:
    ask(url, "apr_1")
    await decide(url, ANN, "apr_1", ApproverDecision("deny"))
    async with sending(url, target(hook)):
        await settled(url, 2)
    assert [read(post)["event"] for post in hook.posted] == ["ended"]


async def test_nobody_hears_of_what_is_not_committed(url: str, hook: Receiver) -> None:
    with psycopg.connect(conninfo(url)) as connection:
        copied = (
            "INSERT INTO approvals SELECT 'apr_2', call_id, 2, at, expires_at, use_within,"
            " deny_for, binding, binding_without_policy, key, key_id, session, policy, revision,"
            " tool, server, executor, arguments, rule, why, need, approvers FROM approvals"
        )
        async with sending(url, target(hook)):
            ask(url, "apr_1")
            await posted(hook, 1)
            connection.execute(copied)
            ask(url, "apr_3", without_policy="x", binding="x")
            await posted(hook, 2)
            assert {read(post)["approval_id"] for post in hook.posted} == {"apr_1", "apr_3"}
            connection.commit()
            await posted(hook, 3)


@pytest.mark.parametrize("fault", ["status", "redirect", "large", "away", "no secret"])
async def test_what_is_not_taken_is_tried_five_times_and_holds_up_nobody(
    url: str,
    hook: Receiver,
    other: Receiver,
    fault: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = target(hook)
    match fault:
        case "status":
            hook.status = 500
        case "redirect":
            hook.status, hook.headers = 307, {"location": f"{other.url}/elsewhere"}
        case "large":
            hook.body = b"x" * (MAX_ANSWER_BYTES + 1)
        case "away":
            wrong["url"] = "http://127.0.0.1:1/in"
        case _:
            monkeypatch.delenv("HOOK_SECRET")
    with caplog.at_level(logging.WARNING):
        async with sending(url, wrong, slack(other)):
            ask(url, "apr_1", arguments=b'{"to": "nowhere-else"}')
            for tries in range(1, TRIES + 1):
                await wait_until(
                    lambda: (
                        len(failures(caplog)) == tries  # noqa: B023 - it is awaited in this turn
                        and rows(url, "SELECT 1 FROM approval_notices WHERE sent <> '{}'")
                    )
                )
                pause = rows(
                    url,
                    "SELECT round(extract(epoch FROM due - now())) FROM approval_notices"
                    " WHERE about = 'asked'",
                )[0][0]
                assert pause is None if tries == TRIES else pause > 10 * 4 ** (tries - 1)
                if tries < TRIES:
                    rows(url, "UPDATE approval_notices SET due = now() WHERE about = 'asked'")
    assert len(other.posted) == 1, "who took it does not get it again"
    assert len(hook.posted) == (0 if fault in ("away", "no secret") else TRIES)
    assert (
        len(failures(caplog)) == TRIES
        and "nowhere-else" not in caplog.text
        and "s3" not in caplog.text
    )


async def test_who_never_answers_holds_up_nobody(
    url: str, hook: Receiver, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "POST_S", 60.0)
    hook.may_answer.clear()
    async with sending(url, target(hook), slack(other)):
        for number in range(5):
            ask(url, f"apr_{number}", binding=f"{number}")
            await posted(other, number + 1)
        await posted(hook, 5)
        assert done(url) == []


async def test_a_writer_that_ends_while_it_sends_loses_none_and_two_send_each_once(
    url: str, hook: Receiver
) -> None:
    hook.may_answer.clear()
    async with sending(url, target(hook)):
        ask(url, "apr_1")
        await posted(hook, 1)
    hook.may_answer.set()
    rows(url, "UPDATE approval_notices SET due = now() WHERE about = 'asked'")
    async with sending(url, target(hook)), sending(url, target(hook)):
        await posted(hook, 2)
        for number in range(10):
            ask(url, f"apr_b{number}", session=f"{number}")
        await settled(url, 11)
    assert len(hook.posted) == 12


async def test_what_is_long_over_is_not_sent(url: str, hook: Receiver) -> None:
    ask(url, "apr_1")
    rows(url, "UPDATE approval_notices SET due = now() - interval '2 hours'")
    async with sending(url, target(hook)):
        ask(url, "apr_2")
        await settled(url, 1)
    assert [read(post)["approval_id"] for post in hook.posted] == ["apr_2"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"notify": [{"name": "a", "url": "http://h/", "secret_env": "S"}]}, "public_url"),
        ({"public_url": PUBLIC, "notify": [{"name": "a", "url": "http://h/"}]}, "secret_env"),
        ({"public_url": PUBLIC, "notify": [{"name": "a", "url": "ftp://h/"}]}, "another scheme"),
        ({"public_url": PUBLIC, "notify": [{"name": "a", "url": "http://h/\u00e9"}]}, "pattern"),
        (
            {
                "public_url": PUBLIC,
                "notify": [{"name": "a", "url": "http://h/", "form": "slack"}] * 2,
            },
            "same name",
        ),
        ({"public_url": "sluice.example"}, "public_url"),
        ({"public_url": PUBLIC + "/"}, "public_url"),
    ],
)
def test_a_wrong_configuration_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Approvals.model_validate(wrong)
