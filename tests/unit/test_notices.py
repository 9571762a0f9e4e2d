"""What a client reads in place of what it does not get: by cause, by the setting `notices`, in both
dialects; and the rule on record."""

import json
from typing import Any

import pytest

from policy.base import (
    ALLOW,
    Block,
    Context,
    Judgement,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.builtin.tool_judge import ToolJudge
from policy.builtin.tool_rules import ToolRules
from policy.session.answer.blocks import CallBlocks
from policy.session.answer.outbox import Outbox
from policy.session.answer.text_call_search import holds_call
from policy.session.chain import Chain
from policy.session.effects import Respond
from policy.session.session import Session
from protocol.dialects.table import CLIENTS
from protocol.records import (
    BlockRecord,
    EventRecord,
    ToolCallRecord,
)
from protocol.request import ChatRequest, DialectName, Tool
from settings.config import Config, NoticeForm
from tests.support.checks.block_runs import Run, client, server, text
from tests.support.clients.answering import CONFIG, Answer
from tests.support.clients.sdk import responses_answer
from tests.support.clients.sdk_answers import WAYS, sent
from tests.support.json_values import Json, as_json
from tests.support.upstreams.chat_words import CALL as BASH
from tests.support.upstreams.chat_words import STOP, TOOLS
from tests.support.upstreams.chat_words import stream as chunks
from tests.support.upstreams.many_calls import completion
from tests.support.worker_calls import call_info

CALL = "01a202bb-4a21-7000-8000-000000000001"
ASK = "It was not executed. Do not retry it in another form; ask the user."
LATER = "It was not executed. Try again later."
SETUP = "(a fault in the setup, not in the call)"
TOOL = Tool("bash", "", {"type": "object", "properties": {"command": {"type": "string"}}})


class Says(Policy):
    """Says the same of every tool call and text."""

    name = "says"

    def __init__(self, said: Verdict, *, texts: bool = False) -> None:
        self.said, self.texts = (said,), texts

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return ALLOW if self.texts else self.said[0]

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        return (
            self.said[0]
            if self.texts and isinstance(self.said[0], Block) and "secret" in text
            else text
        )


class Noted(Run):
    """Blocks of the call `CALL` under the series `strict`, with notices of some form."""

    def __init__(
        self,
        *policies: Policy,
        form: NoticeForm = "full",
        dialect: DialectName = "anthropic",
        durable: bool = False,
    ) -> None:
        super().__init__(*policies, dialect=dialect)
        asked = ChatRequest(dialect=dialect, model="m", tools=(TOOL,))
        call = call_info(
            CALL,
            dialect,
            endpoint="messages",
            policy="strict",
            durable=durable,
            max_arguments_bytes=10_000,
        )
        self.outbox = Outbox(call, form)
        self.blocks = CallBlocks(
            self.outbox, Chain(policies, Context(CALL, "n", "k", "", asked)), asked
        )
        self.blocks.look_at(asked, dialect)

    def judged(self, judgement: Judgement) -> "Noted":
        self.blocks.judgement(0, 0, judgement, 5)
        self.collect()
        return self

    @property
    def rules(self) -> list[str | None]:
        return [r.rule for r in self.records if isinstance(r, ToolCallRecord | BlockRecord)]


def said(*policies: Policy, arguments: str = '{"command": "rm"}', form: NoticeForm = "full") -> str:
    """The notice in place of a denied call, without the words that all of them have."""
    run = Noted(*policies, form=form).feed(*client(0, "bash", arguments)).finish()
    return framed(run.text)


def framed(notice: str) -> str:
    begins, ends = "[Sluice blocked the tool call 'bash': ", f" Call {CALL}.]"
    assert notice.startswith(begins) and notice.endswith(ends), notice
    return notice.removeprefix(begins).removesuffix(ends)


def rules(*deny: Json, **options: Any) -> ToolRules:
    return ToolRules(deny=deny, **options)


def judge(threshold: float = 0.6) -> ToolJudge:
    return ToolJudge(model="demo-judge", threshold=threshold)


def words(content: str) -> bytes:
    """A streamed answer that says something and calls the tool."""
    said = {"content": content} if content else {}
    return chunks(
        {"choices": [{"index": 0, "delta": {**said, "tool_calls": [BASH]}}]},
        {"choices": [{**STOP, "finish_reason": "tool_calls"}]},
    )


def test_options_of_the_rules_say_what_they_are() -> None:
    assert said(rules(allow=[{"tool": "x"}])) == f"no rule of the policy 'strict' allows it. {ASK}"
    unsure = said(rules({"does": {"effects": ["delete"]}}), arguments='{"command": "eval $x"}')
    assert unsure.startswith(
        "its text does not show everything it would do, and the policy 'strict' blocks such calls."
        " It cannot be read in full: a text that is known only when it runs. It was not executed. "
    )
    misfit = said(rules(validate_schema=True), arguments='{"command": 1}')
    assert (
        misfit
        == "its arguments do not fit the tool's schema. It was not executed. Correct the arguments."
    )
    replaced = said(rules({"decision": "replace", "arguments": {"command": 1}}))
    assert replaced.startswith(
        "a policy replaced its arguments with ones that do not fit the tool's schema. It was not"
        " executed. "
    )
    assert replaced.endswith(
        "This is a fault in the setup, not in the call: tell the user. Blocked by rule 'deny[0]' of"
        " the policy 'strict'."
    )


@pytest.mark.parametrize(
    ("judgement", "threshold", "cause"),
    [
        (Judgement(probability=0.97), 0.6, f"judged harmful (0.97, the limit is 0.60). {ASK}"),
        (Judgement(probability=0.6001), 0.6, f"judged harmful (0.6001, the limit is 0.60). {ASK}"),
        (Judgement(probability=1), 0.001, f"judged harmful (1.00, the limit is 0.001). {ASK}"),
        (Judgement(), 0.6, f"judged harmful. {ASK}"),
        (Judgement(error="unavailable"), 0.6, f"no judge could be asked {SETUP}. {LATER}"),
        (Judgement(error="deadline"), 0.6, f"the judge did not answer in time {SETUP}. {LATER}"),
        (Judgement(error="invalid"), 0.6, f"the judge's answer could not be used {SETUP}. {LATER}"),
        (Judgement(error="fault"), 0.6, f"the judge failed {SETUP}. {LATER}"),
    ],
)
def test_a_judge_block_says_the_figures_and_a_missing_judge_whose_fault_it_is(
    judgement: Judgement, threshold: float, cause: str
) -> None:
    assert framed(Noted(judge(threshold)).feed(*client(0)).judged(judgement).finish().text) == cause


def test_blocked_text_says_so() -> None:
    run = (
        Noted(Says(Block("words", rule="w"), texts=True))
        .feed(*text(0, "Well, ", "a secret"))
        .finish()
    )
    notice = (
        "[Sluice blocked text here: rule 'w' of the policy 'strict' (words). Do not retry it in"
        " another form; ask the user."
    )
    assert run.text == f"Well, \n\n{notice} Call {CALL}.]"
    assert run.rules == ["w"]
    other = Noted(Says(Block("too_large"), texts=True)).feed(*text(0, "a secret")).finish().text
    assert other.startswith(
        "[Sluice blocked text here: the policy 'strict' forbids it (says: too_large). "
    )
    assert (
        Noted(Says(Block("words"), texts=True), form="silent")
        .feed(*text(0, "Well, ", "a secret"))
        .finish()
        .text
        == "Well, "
    )


def test_plain_hides_rule_policy_and_figures() -> None:
    hidden = (
        said(rules({"name": "no-deletes", "reason": "rm"}), form="plain"),
        said(Says(Block("odd", detail="0.3")), form="plain"),
        said(rules(allow=[{"tool": "x"}]), form="plain"),
        framed(
            Noted(judge(), form="plain")
            .feed(*client(0))
            .judged(Judgement(probability=0.97))
            .finish()
            .text
        ),
    )
    assert hidden == (
        f"the policy forbids it. {ASK}",
        f"the policy forbids it. {ASK}",
        f"no rule allows it. {ASK}",
        f"judged harmful. {ASK}",
    )


def test_silent_says_no_more_than_that_it_did_not_run() -> None:
    run = (
        Noted(rules({"message": "Not here."}), form="silent")
        .feed(*text(0, "Now."), *client(1))
        .finish()
    )
    assert run.text == "Now.\n\n[not executed]"
    assert Noted(rules({}), form="silent").feed(*server(0)).text == "[withheld]"


class Refuses(Policy):
    name = "refuses"

    def __init__(self, message: str = "") -> None:
        self.message = message

    def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
        return Block("words", self.message)


@pytest.mark.parametrize(
    ("form", "message", "told", "noted"),
    [
        ("full", "", "the policy 'refuses' blocked this request: words", []),
        (
            "plain",
            "",
            "a policy blocked this request",
            ["0: the policy 'refuses' blocked this request: words"],
        ),
        ("plain", "Not here.", "Not here.", []),
        ("silent", "Not here.", "a policy blocked this request", ["0: Not here."]),
    ],
)
def test_the_error_for_a_blocked_request_says_as_much_as_notices_do(
    form: NoticeForm, message: str, told: str, noted: list[str]
) -> None:
    """Why is on record all the same."""
    session = Session(
        call_info(CALL, policy="strict", durable=True, max_arguments_bytes=100),
        [Refuses(message)],
        Config(notices=form),
    )
    session.begin(as_json({"model": "demo", "messages": [{"role": "user", "content": "x"}]}))
    taken = session.drain()
    [out] = taken.outputs
    assert isinstance(out, Respond) and json.loads(out.body)["error"]["message"] == told
    assert [r.detail for r in taken.records if isinstance(r, EventRecord)] == noted


@pytest.mark.parametrize("form", ["full", "plain", "silent"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("content", ["", "Let me do that."])
def test_every_client_takes_the_answer_and_reads_of_the_call(
    form: NoticeForm, client: DialectName, streams: bool, content: str
) -> None:
    config = CONFIG.model_copy(update={"notices": form})
    for way in WAYS[client][streams] if client in WAYS else (None,):
        answer = Answer(
            "openai",
            client,
            streams=streams,
            policies=[rules({"name": "no-deletes"})],
            config=config,
            tools=TOOLS[client],
        )
        answer.feed(words(content) if streams else completion(content or None, 1), streams=streams)
        told = json.dumps(
            answer.read(way)
            if way
            else sent(responses_answer(answer.data, stream=streams))["output"]
        )
        assert (
            "not executed]" in told or "It was not executed. " in told,
            "no-deletes" in told,
        ) == (True, form == "full"), told
        assert ("\\n\\n[" in told) == bool(content), "clients join it to what stands before"
        assert "tool_use" not in told and '"name": "bash"' not in told


def test_no_notice_is_taken_for_a_call_by_a_client_that_reads_them_out_of_text() -> None:
    for form in ("full", "plain", "silent"):
        for policy in (rules({"name": "a"}), rules(allow=[]), judge(), Says(Block("odd"))):
            assert not holds_call(
                Noted(policy, form=form)
                .feed(*client(0))
                .judged(Judgement(probability=1))
                .finish()
                .text
            )


# --- the rule on record ---


def test_the_rule_is_on_record_of_blocks_and_replacements() -> None:
    assert Noted(rules({"name": "no-deletes"})).feed(*client(0)).rules == ["no-deletes"]
    assert Noted(rules({"decision": "replace", "arguments": {}})).feed(*client(0)).rules == [
        "deny[0]"
    ]
    assert Noted(rules(allow=[])).feed(*client(0)).rules == ["allow"]
    assert Noted(rules(validate_schema=True)).feed(*client(0, "other")).rules == ["validate_schema"]
    assert Noted(rules({"tool": "x"})).feed(*client(0)).rules == [None]
    assert Noted(judge()).feed(*client(0)).judged(Judgement(probability=1)).rules == [None]


def test_two_rules_may_not_have_one_name() -> None:
    with pytest.raises(ValueError, match="two rules have the name 'a'"):
        rules({"name": "a"}, {"name": "b"}, {"name": "a"})
    for name in ("", "a b", "x" * 65, "[deny]"):
        with pytest.raises(ValueError, match="name"):
            rules({"name": name})


@pytest.mark.parametrize("name", ["allow", "validate_schema"])
def test_a_rule_cannot_have_the_name_that_the_record_gives_an_option(name: str) -> None:
    with pytest.raises(ValueError, match=f"no rule can have the name '{name}'"):
        rules({"name": name})


@pytest.mark.parametrize("said", [Block("x", rule="r" * 129), Replace("{}", rule="a\nb")])
def test_a_rule_that_is_no_name_is_a_fault_of_its_policy(said: Verdict) -> None:
    run = Noted(Says(said)).feed(*client(0))
    assert run.rows("verdict", "reason", "rule") == [("block", "fault", None)]
