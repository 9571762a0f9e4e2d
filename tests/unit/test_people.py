"""People decide about a call: the session by itself, and how a worker waits for them."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from policy.base import ALLOW, Approval, Ask, Block, Judgement, Policy, Replace, ToolCall, Verdict
from policy.builtin.control import Control
from policy.builtin.rule_options import ApprovalOptions
from policy.session.approvals import PeoplesAnswer, judgement_of
from policy.session.effects import SessionEffects
from policy.session.session import Session
from protocol.bounds import MAX_HELD_BYTES, MAX_HELD_CALLS_OF_KEY
from protocol.records import (
    ApprovalRecord,
    ApprovalUseRecord,
    BlockRecord,
    JudgementRecord,
    Record,
    ToolCallRecord,
)
from settings.config import Config
from settings.limits import Limits
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import DONE, REQUEST, call_chunk, chunk, texts
from tests.support.json_values import as_json
from tests.support.waiting import wait_until
from tests.support.worker_calls import call_info
from workers.policy.people import People

APPROVED = PeoplesAnswer("approved", "apr_1", "carol")


class Asks(Policy):
    """Asks people about everything, and lets nothing with `/etc` pass."""

    def on_tool_call(self, call: ToolCall) -> Verdict:
        if "/etc" in call.arguments:
            return Block("etc")
        return Ask("rule", rule="all", why="would run", approval=Approval(need=2))


class AsksAbout(Policy):
    """Asks people, in a way of its own, about arguments with some word."""

    def __init__(self, word: str, approval: Approval | None) -> None:
        self.about = (word, approval)

    def on_tool_call(self, call: ToolCall) -> Verdict:
        word, approval = self.about
        return Ask("rule", rule=word, approval=approval) if word in call.arguments else ALLOW


class Rewrites(Policy):
    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Replace('{"command": "ls -l"}') if call.value == {"command": "ls"} else ALLOW


def session_with(*policies: Policy, durable: bool = False, **more: Any) -> Session:
    call = call_info(
        "01a22da1-3439-7f5f-8f8c-4e8ee29d2f00",
        "openai",
        durable=durable,
        max_arguments_bytes=10**6,
        **more,
    )
    session = Session(call, policies or [Asks()], Config())
    session.begin(as_json(REQUEST))
    return session


def feed(session: Session, command: str = "ls") -> SessionEffects:
    return feed_arguments(session, json.dumps({"command": command}))


def feed_arguments(session: Session, arguments: str) -> SessionEffects:
    session.drain()
    raw = [call_chunk(0, "bash", arguments), chunk(finish="tool_calls"), DONE]
    for seq, one in enumerate(raw, 1):
        session.chunks(seq, [one])
    session.eof()
    return session.drain()


def answer(session: Session, effects: SessionEffects, said: PeoplesAnswer) -> list[Record]:
    [ask] = effects.asks
    assert ask.is_for_people
    session.judgement(ask.block, ask.step, judgement_of(said), 1)
    return session.drain().records


def test_the_question_is_a_record_and_its_use_goes_with_the_release() -> None:
    session = session_with()
    effects = feed(session)
    [asked] = of_kind(effects.records, ApprovalRecord)
    assert (asked.tool, asked.arguments, asked.need) == ("bash", b'{"command": "ls"}', 2)
    records = answer(session, effects, APPROVED)
    [use] = of_kind(records, ApprovalUseRecord)
    [call] = of_kind(records, ToolCallRecord)
    [judgement] = of_kind(records, JudgementRecord)
    assert use.approval_id == "apr_1" and call.notify, "under every durability"
    assert (call.verdict, call.reason, judgement.model) == ("allow", "approved", "people")
    session.committed(use.block, "approval_used", 2)
    after = session.drain()
    assert [(r.verdict, r.reason) for r in of_kind(after.records, BlockRecord)] == [
        ("block", "approval_used")
    ]
    assert session.state == "ENDED" and "another call used the approval" in texts(after.outputs)


def test_a_request_is_bound_to_all_that_it_says() -> None:
    def bindings(command: str = "ls", **more: Any) -> tuple[bytes, bytes]:
        session = session_with(**more)
        [asked] = of_kind(feed(session, command).records, ApprovalRecord)
        return asked.binding, asked.binding_without_policy

    same = bindings()
    assert bindings() == same
    assert bindings("ls ")[0] != same[0] and bindings(key_id="other")[0] != same[0]
    assert bindings(session="s", source="x-sluice-session")[0] != same[0]
    changed = bindings(revision="other")
    assert changed[0] != same[0] and changed[1] == same[1]


def test_it_is_bound_to_numbers_as_they_are_written() -> None:
    def binding(arguments: str) -> bytes:
        [asked] = of_kind(feed_arguments(session_with(), arguments).records, ApprovalRecord)
        return asked.binding

    bound = binding('{"a": 9007199254740992.0, "b": 1}')
    assert binding('{"b":1, "a":9007199254740992.0}') == bound, "it says the same"
    for other in ("9007199254740993.0", '"9007199254740992.0"', "9007199254740991"):
        assert binding(f'{{"a": {other}, "b": 1}}') != bound


@pytest.mark.parametrize(
    ("said", "reason", "words"),
    [
        (PeoplesAnswer("denied", "apr_1", "carol", "no"), "approval_denied", "carol denied it: no"),
        (PeoplesAnswer("pending", "apr_1"), "approval_pending", "/debug/approvals/apr_1"),
        (
            PeoplesAnswer("pending", "apr_1", is_policy_changed=True),
            "approval_pending",
            "an earlier approval is void, because the policy changed since",
        ),
        (PeoplesAnswer("expired", "apr_1"), "approval_expired", "nobody decided about approval"),
        (PeoplesAnswer("superseded", "apr_1"), "approval_superseded", "the policy changed while"),
        (PeoplesAnswer("full"), "approvals_full", "too many calls of this key"),
        (PeoplesAnswer("unavailable"), "approval_unavailable", "people could not be asked"),
    ],
)
def test_each_other_answer_blocks_and_says_which_it_was(
    said: PeoplesAnswer, reason: str, words: str
) -> None:
    session = session_with()
    effects = feed(session)
    [ask] = effects.asks
    session.judgement(ask.block, ask.step, judgement_of(said), 1)
    after = session.drain()
    [call] = of_kind(after.records, ToolCallRecord)
    assert (call.verdict, call.reason, call.released_arguments) == ("block", reason, None)
    assert words in texts(after.outputs) and session.state == "ENDED"


@pytest.mark.parametrize("reply", ["", "[]", '{"outcome": "yes"}', '{"approval_id": "x"}'])
def test_an_answer_that_is_none_blocks(reply: str) -> None:
    session = session_with()
    [ask] = feed(session).asks
    session.judgement(ask.block, ask.step, Judgement(probability=0.0, reply=reply), 1)
    [call] = of_kind(session.drain().records, ToolCallRecord)
    assert (call.verdict, call.reason) == ("block", "approval_unavailable")


def test_people_see_and_release_what_the_policies_made_of_the_call() -> None:
    session = session_with(Asks(), Rewrites())
    effects = feed(session)
    [asked] = of_kind(effects.records, ApprovalRecord)
    assert asked.arguments == b'{"command": "ls -l"}'
    [call] = of_kind(answer(session, effects, APPROVED), ToolCallRecord)
    assert (call.verdict, call.released_arguments) == ("replace", b'{"command": "ls -l"}')


def test_edited_arguments_pass_the_policies_again() -> None:
    for command, verdict in (("ls /tmp", "replace"), ("ls /etc", "block")):
        session = session_with()
        edited = json.dumps({"command": command})
        said = PeoplesAnswer("approved", "apr_1", "carol", edited=edited)
        records = answer(session, feed(session), said)
        [call] = of_kind(records, ToolCallRecord)
        assert call.verdict == verdict
        assert len(of_kind(records, ApprovalUseRecord)) == (verdict == "replace")


@pytest.mark.parametrize(
    ("first", "second", "need", "approvers"),
    [
        (Approval(), Approval(need=2, hold_s=5), 2, ""),
        (Approval(need=2, approvers=("a", "b", "c")), Approval(approvers=("c", "b")), 2, "b\nc"),
        (Approval(), Approval(approvers=("sec",)), 1, "sec"),
        (Approval(approvers=("a",)), Approval(approvers=("b",)), 0, ""),
        (Approval(), None, 0, ""),
        (None, Approval(), 0, ""),
    ],
)
def test_where_two_rules_ask_people_decide_for_both(
    first: Approval | None, second: Approval | None, need: int, approvers: str
) -> None:
    """Or nobody does, and the call is blocked."""
    records = feed(session_with(AsksAbout("ls", first), AsksAbout("ls", second))).records
    asked = of_kind(records, ApprovalRecord)
    assert [(one.need, one.approvers) for one in asked] == [(need, approvers)] * bool(need)
    assert [call.verdict for call in of_kind(records, ToolCallRecord)] == ["block"] * (not need)


def test_who_approves_alone_edits_nothing_that_takes_two() -> None:
    for command, verdict in (("ls prod", "block"), ("ls test", "replace")):
        session = session_with(AsksAbout("prod", Approval(need=2)), AsksAbout("ls", Approval()))
        edited = json.dumps({"command": command})
        said = PeoplesAnswer("approved", "apr_1", "carol", edited=edited)
        records = answer(session, feed(session, "ls staging"), said)
        assert [call.verdict for call in of_kind(records, ToolCallRecord)] == [verdict]
        assert len(of_kind(records, ApprovalUseRecord)) == (verdict == "replace")


def test_people_see_the_score_of_a_call_and_its_model_does_not() -> None:
    control = Control(monitors=[{"use": "shell"}], steps=[{"at": 0.1, "do": "ask"}])
    session = session_with(control)
    effects = feed(session, "rm -rf ./build")
    [asked], [ask] = of_kind(effects.records, ApprovalRecord), effects.asks
    assert asked.why == "scored 0.30, and the limit is 0.10"
    session.judgement(ask.block, ask.step, judgement_of(PeoplesAnswer("pending", "apr_1")), 1)
    notice = texts(session.drain().outputs)
    assert "approval apr_1" in notice and "0.30" not in notice and "limit" not in notice


@pytest.mark.parametrize("approvers", [["carol"], ["carol", "carol"]])
def test_more_approvals_than_approvers_are_refused(approvers: list[str]) -> None:
    with pytest.raises(ValidationError, match="names fewer people than `need`"):
        ApprovalOptions.model_validate({"need": 2, "approvers": approvers})
    assert ApprovalOptions(need=2).approvers == ()


def test_people_are_not_asked_about_what_they_cannot_see() -> None:
    session = session_with()
    effects = feed(session, "x" * MAX_HELD_BYTES)
    assert effects.asks == [] and of_kind(effects.records, ApprovalRecord) == []
    [call] = of_kind(effects.records, ToolCallRecord)
    assert (call.verdict, call.reason) == ("block", "cannot_hold")


class OnRecord:
    """What a worker finds on record: nothing, until something is put there."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    async def approvals(self, asks: list[tuple[str, int]]) -> list[dict[str, Any]]:
        return [row for row in self.rows if (row["call_id"], row["block"]) in asks]

    async def close(self) -> None:
        return None


def row(call_id: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "call_id": call_id,
        "block": 0,
        "approval_id": "apr_1",
        "outcome": None,
        "decided_by": "",
        "note": "",
        "edited": None,
        "is_expired": False,
        "is_policy_changed": False,
        "waits_s": 0.0,
    }
    return found | more


async def test_a_key_has_a_share_of_the_calls_that_a_worker_lets_wait() -> None:
    record, facts = OnRecord(), dict[str, str]()

    async def set_fact(call: Any, field: str, value: bytes) -> None:
        facts[call.id] = json.loads(json.loads(value)["reply"])["outcome"]

    calls: Any = SimpleNamespace(
        is_over=lambda _: False, spawn=lambda job, _: asyncio.ensure_future(job)
    )
    people = People(record, Limits(commit_s=0.2), calls, set_fact)  # type: ignore[arg-type]
    session = session_with()
    [ask] = feed(session).asks

    class Call:
        def __init__(self, key: str, n: int) -> None:
            self.id, self.start = f"{key}{n}", SimpleNamespace(key=key, numbers={})

    made = [Call(key, n) for key in ("a", "b") for n in range(MAX_HELD_CALLS_OF_KEY + 1)]
    record.rows = [row(call.id) for call in made if call.id != "b0"]
    for call in made:
        people.wait_for(call, ask)  # type: ignore[arg-type]
    last = f"{MAX_HELD_CALLS_OF_KEY}"
    # what is not on record in time cannot be decided
    await wait_until(lambda: len(facts) == 3, what="those past the share, and one that is lost")
    assert facts == {f"a{last}": "pending", f"b{last}": "pending", "b0": "unavailable"}
    record.rows[0] |= {"outcome": "denied"}
    await wait_until(lambda: facts.get("a0") == "denied", what="the decision is seen")
    await people.close()
