"""What a hook returns is what it says, or a fault; what a hook does to what it is given, nobody
else sees."""

import asyncio
import copy
import json
import logging
from collections.abc import Callable
from typing import Any, Self

import msgspec
import pytest

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Context,
    Judgement,
    JudgeQuestion,
    OtherBlock,
    Policy,
    Replace,
    TextBlock,
    ToolCall,
    Verdict,
)
from policy.builtin.control import Control
from policy.builtin.tool_rules import ToolRules
from policy.session import hook_checks
from policy.session.chain import Chain
from policy.session.decision import Decision
from protocol.bounds import MAX_ASKS, MAX_MESSAGE_CHARS, MAX_REASON_CHARS
from protocol.bytes.json_strict import loads_arguments
from protocol.events import BlockKind
from protocol.records import BlockRecord, ToolCallRecord
from protocol.request import ChatRequest, OtherPart, Tool, ToolChoice, Turn
from tests.support.checks.kinds import of_kind
from tests.support.checks.session_runs import DONE, call_chunk, chunk, make, run
from tests.support.json_values import Json

QUESTION = JudgeQuestion("demo-judge", "s", "p", "n", 0.5, None, {"name": "x"})
RING: Json = {}
RING["again"] = RING
TWICE: list[Any] = []
for _ in range(100):
    TWICE = [TWICE, TWICE]


class Says(Policy):
    """Returns one thing, or raises it."""

    name = "says"
    asks = True

    def __init__(self, said: Callable[[], Any]) -> None:
        self.said = said

    def for_call(self, context: Context) -> Self:
        """Share the test's own function."""
        mine = copy.copy(self)
        mine.context = context
        return mine

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return self.said()  # type: ignore[no-any-return]

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        return self.said()  # type: ignore[no-any-return]

    def on_other(self, block: OtherBlock) -> Verdict:
        return self.said()  # type: ignore[no-any-return]

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return self.said()  # type: ignore[no-any-return]


class OnRequest(Policy):
    name = "on_request"

    def __init__(self, said: Callable[[ChatRequest], Any]) -> None:
        self.said = said

    def for_call(self, context: Context) -> Self:
        """Share the test's own function."""
        mine = copy.copy(self)
        mine.context = context
        return mine

    def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
        return self.said(request)  # type: ignore[no-any-return]


def chain(*policies: Policy) -> Chain:
    return Chain(policies, Context("c", "n", "k", "", ChatRequest(dialect="openai", model="m")))


def decided(
    *policies: Policy, arguments: str = '{"command":"ls"}', tool: Tool | None = None
) -> Decision:
    decision = Decision(
        chain(*policies), ToolCall(0, 0, "c", "bash", arguments, loads_arguments(arguments), tool)
    )
    decision.advance()
    return decision


def question(**changes: Any) -> AskJudge:
    return AskJudge(msgspec.structs.replace(QUESTION, **changes))


def raising(error: BaseException) -> Callable[[], Any]:
    def said() -> Any:
        raise error

    return said


BAD_BLOCKS = {
    "Block(5)": Block(5),  # type: ignore[arg-type]
    "Block(None)": Block(None),  # type: ignore[arg-type]
    "a list as message": Block("x", ["y"]),  # type: ignore[arg-type]
    "surrogate in the reason": Block("a\ud800"),
    "surrogate in the message": Block("a", "b\udfff"),
    "a reason without end": Block("a" * (MAX_REASON_CHARS + 1)),
    "a message without end": Block("a", "b" * (MAX_MESSAGE_CHARS + 1)),
    "the class": Block,
}
BAD_VERDICTS: Json = BAD_BLOCKS | {
    "Replace(None)": Replace(None),  # type: ignore[arg-type]
    "Replace({})": Replace({}),  # type: ignore[arg-type]
    "Replace with a reason of bytes": Replace("{}", b"x"),  # type: ignore[arg-type]
    "AskJudge(None)": AskJudge(None),  # type: ignore[arg-type]
    "AskJudge(ALLOW)": AskJudge(ALLOW),  # type: ignore[arg-type]
    "a model that is none": question(model=None),
    "a prompt of bytes": question(prompt=b"p"),
    "a surrogate in the prompt": question(prompt="\ud800"),
    "a threshold of text": question(threshold="0.5"),
    "a threshold that is no number": question(threshold=float("nan")),
    "a deadline of text": question(deadline_s="1"),
    "a deadline before now": question(deadline_s=-1.0),
    "a deadline of nothing": question(deadline_s=0.0),
    "a call that is no dict": question(call=None),
    "a call of numbers": question(call={"name": 5}),
    "None": None,
    "text": "allow",
}


@pytest.mark.parametrize("name", BAD_VERDICTS)
@pytest.mark.parametrize("hook", ["on_tool_call", "on_judgement"])
def test_a_verdict_with_a_wrong_field_is_a_fault(name: str, hook: str) -> None:
    said = [QUESTION] if hook == "on_judgement" else []
    decision = decided(Says(lambda: AskJudge(said.pop()) if said else BAD_VERDICTS[name]))
    if hook == "on_judgement":
        decision.advance(Judgement(probability=0))
    assert decision.decided is not None
    assert (decision.decided.verdict, decision.decided.reason, decision.decided.policy) == (
        "block",
        "fault",
        "says",
    )


@pytest.mark.parametrize("name", BAD_BLOCKS)
def test_a_block_with_a_wrong_field_is_a_fault_of_text_and_of_what_is_carried_whole(
    name: str,
) -> None:
    said, _ = chain(Says(lambda: BAD_BLOCKS[name])).on_text("x", TextBlock(0, BlockKind.TEXT))
    other, _ = chain(Says(lambda: BAD_BLOCKS[name])).on_other(OtherBlock(0, "x", {}))
    assert said == other == Block("fault")


@pytest.mark.parametrize(
    "said",
    [
        ALLOW,
        Block("x"),
        Block("x", "y"),
        Replace("{}"),
        Replace("{}", "r"),
        AskJudge(QUESTION),
        question(deadline_s=1),
    ],
)
def test_a_sound_verdict_is_none(said: Any) -> None:
    assert hook_checks.problem(said) == ""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        BaseException("x"),
        RecursionError(),
        MemoryError(),
    ],
)
def test_whatever_a_hook_raises_is_a_fault_of_its_call(error: BaseException) -> None:
    policy = Says(raising(error))
    decision = decided(policy)
    assert decision.decided is not None and decision.decided.reason == "fault"
    assert chain(policy).on_text("x", TextBlock(0, BlockKind.TEXT))[0] == Block("fault")
    assert chain(policy).on_other(OtherBlock(0, "x", {}))[0] == Block("fault")
    asked = ChatRequest(dialect="openai", model="m")
    assert chain(OnRequest(lambda _: raising(error)())).on_request(asked)[0] == Block("fault")


def test_ctrl_c_is_no_fault() -> None:
    with pytest.raises(KeyboardInterrupt):
        decided(Says(raising(KeyboardInterrupt())))


def test_a_call_blocked_by_nonsense_is_on_record_whole() -> None:
    session = make([Says(lambda: Block(5))])  # type: ignore[arg-type]
    records = session.drain().records
    for number, raw in enumerate(
        [call_chunk(0, "bash", '{"command":"ls"}'), chunk(finish="tool_calls"), DONE], start=1
    ):
        session.chunks(number, [raw])
        records += session.drain().records
    [row] = of_kind(records, ToolCallRecord)
    assert (row.verdict, row.reason, row.released_arguments) == ("block", "fault", None)
    for record in records:
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=type(record)) == record


def test_the_log_names_the_wrong_field_and_not_its_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    decided(Says(lambda: question(threshold="hunter2")))
    [record] = caplog.records
    assert vars(record)["error"] == "AskJudge.question.threshold has a wrong type"


REQUESTS: dict[str, Callable[[ChatRequest], Any]] = {
    "a dict": lambda r: {"model": r.model},
    "text": lambda r: "x",
    "model None": lambda r: msgspec.structs.replace(r, model=None),
    "tools as a list": lambda r: msgspec.structs.replace(r, tools=list(r.tools)),
    "a tool as a dict": lambda r: msgspec.structs.replace(r, tools=({"name": "x"},)),
    "a kind of tool that is none": lambda r: msgspec.structs.replace(
        r,
        tools=(Tool("x", kind="nope"),),  # type: ignore[arg-type]
    ),
    "turns as a list": lambda r: msgspec.structs.replace(r, turns=list(r.turns)),
    "a turn's text": lambda r: msgspec.structs.replace(r, turns=(Turn("user", "hi"),)),  # type: ignore[arg-type]
    "a part's body": lambda r: msgspec.structs.replace(
        r,
        turns=(Turn("user", (OtherPart("x", None, "openai"),)),),  # type: ignore[arg-type]
    ),
    "system as text": lambda r: msgspec.structs.replace(r, system="be good"),
    "temperature of text": lambda r: msgspec.structs.replace(r, temperature="0"),
    "temperature that is no number": lambda r: msgspec.structs.replace(r, temperature=float("nan")),
    "stream None": lambda r: msgspec.structs.replace(r, stream=None),
    "max_tokens of true": lambda r: msgspec.structs.replace(r, max_tokens=True),
    "a choice's mode": lambda r: msgspec.structs.replace(r, tool_choice=ToolChoice("maybe")),  # type: ignore[arg-type]
    "a set in extra": lambda r: msgspec.structs.replace(r, extra={"x": {1}}),
    "a number as key": lambda r: msgspec.structs.replace(r, extra={"x": {1: 2}}),
    "a ring": lambda r: msgspec.structs.replace(r, extra=RING),
    "a list twice in each": lambda r: msgspec.structs.replace(r, extra={"x": TWICE}),
    "a surrogate": lambda r: msgspec.structs.replace(r, system=("\ud800",)),
    "a surrogate in extra": lambda r: msgspec.structs.replace(r, extra={"x": ["\ud800"]}),
    "infinity in extra": lambda r: msgspec.structs.replace(r, extra={"x": float("inf")}),
    "an edit in place of a wrong type": lambda r: r.extra.update({"x": {1}}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_with_a_wrong_type_inside_is_a_fault(name: str) -> None:
    asked = ChatRequest(dialect="openai", model="m", tools=(Tool("bash"),))
    said, who = chain(OnRequest(REQUESTS[name])).on_request(asked)
    assert said == Block("fault") and who == "on_request"


# --- what a hook is given is its own ---


class Spoils(Policy):
    """Changes in place what it is given, and lets it pass."""

    name = "spoils"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        call.value.pop("command", None)
        call.value.setdefault("deep", {})["x"] = 1
        if call.tool is not None:
            call.tool.schema.clear()
            call.tool.extra["x"] = 1
        for request in self.context.request, self.context.approved:
            request.extra["x"] = 1
            for tool in request.tools:
                tool.schema.clear()
        return ALLOW

    def on_other(self, block: OtherBlock) -> Verdict:
        block.body.clear()
        return ALLOW


RM = {"deny": [{"tool": "*", "argument": "command", "argument_matches": "rm -rf"}]}


def test_a_policy_cannot_hide_arguments_from_the_next() -> None:
    decision = decided(Spoils(), ToolRules(**RM), arguments='{"command":"rm -rf /"}')
    assert decision.decided is not None and (decision.decided.verdict, decision.decided.policy) == (
        "block",
        "tool_rules",
    )


def test_a_policy_cannot_change_the_schema_that_the_next_one_sees() -> None:
    tool = Tool("bash", schema={"type": "object", "properties": {"command": {"enum": ["ls"]}}})
    decision = decided(
        Spoils(), ToolRules(validate_schema=True), arguments='{"command":"rm"}', tool=tool
    )
    assert decision.decided is not None and decision.decided.reason == "schema"
    assert tool.schema["properties"]["command"] == {"enum": ["ls"]} and tool.extra == {}


def test_what_is_carried_whole_is_released_as_it_came() -> None:
    block = OtherBlock(0, "x", {"a": {"b": 1}})
    assert chain(Spoils()).on_other(block) == (ALLOW, "")
    assert block.body == {"a": {"b": 1}}


def test_a_value_may_be_changed_for_a_replacement() -> None:
    class Limit(Policy):
        def on_tool_call(self, call: ToolCall) -> Verdict:
            call.value["limit"] = 10
            return Replace(json.dumps(call.value))

    decision = decided(Limit(), ToolRules(**RM))
    assert (
        decision.decided is not None
        and decision.decided.arguments == '{"command": "ls", "limit": 10}'
    )


# --- a replacement is shown to the rules again ---


class Expands(Policy):
    """Writes out what stands for something."""

    name = "expands"

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return (
            Replace(call.arguments.replace("$CLEAN", "rm -rf /"))
            if "$CLEAN" in call.arguments
            else ALLOW
        )


class JudgeReplaces(Policy):
    name = "judge_replaces"
    asks = True

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(QUESTION)

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return Replace('{"command":"rm -rf /"}')


class Judged(Policy):
    """Asks a judge about the calls that its word is in, and allows what the judge allows."""

    name = "judged"
    asks = True

    def __init__(self, word: str) -> None:
        self.word = word

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return AskJudge(QUESTION) if self.word in call.arguments else ALLOW

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        return ALLOW


def test_a_replacement_is_shown_to_the_rules_of_a_policy_that_asked_a_judge() -> None:
    judge = {"use": "model", "model": "m", "view": "call"}
    control = Control(
        critical=[{"tool": "*", "argument": "command", "argument_matches": "rm -rf"}],
        on_critical={"do": "block"},
        monitors=[judge],
        threshold=0.5,
    )
    for arguments, verdict in ('{"command":"$CLEAN"}', "block"), ('{"command":"echo"}', "allow"):
        decision = decided(control, Expands(), arguments=arguments)
        assert decision.questions
        decision.advance(Judgement(probability=0, reply='{"harm": 0}'))
        assert decision.decided is not None and decision.decided.verdict == verdict, (
            decision.decided
        )


def test_a_judge_that_answered_is_not_asked_again_and_one_that_was_not_asked_is_missing() -> None:
    asked = decided(Judged("C"), Expands(), arguments='{"command":"C $CLEAN"}')
    asked.advance(Judgement(probability=0))
    assert asked.decided is not None and asked.decided.arguments == '{"command":"C rm -rf /"}'
    unasked = decided(Judged("rm"), Expands(), arguments='{"command":"$CLEAN"}')
    assert unasked.decided is not None
    assert (unasked.decided.verdict, unasked.decided.reason, unasked.decided.policy) == (
        "block",
        "conflict",
        "judged",
    )
    other = decided(Judged("rm"), Expands(), arguments='{"command":"ls"}')
    assert other.decided is not None and other.decided.verdict == "allow"


class Sets(Policy):
    """Wants arguments of its own."""

    def __init__(self, arguments: str) -> None:
        self.arguments = arguments

    def on_tool_call(self, call: ToolCall) -> Verdict:
        return Replace(self.arguments) if call.arguments != self.arguments else ALLOW


def test_a_replacement_is_shown_to_the_rules_before_it() -> None:
    decision = decided(ToolRules(**RM), Expands(), arguments='{"command":"$CLEAN"}')
    assert decision.decided is not None
    assert (decision.decided.verdict, decision.decided.policy, decision.decided.arguments) == (
        "block",
        "tool_rules",
        None,
    )


def test_so_is_one_after_a_judgement() -> None:
    decision = decided(ToolRules(**RM), JudgeReplaces())
    decision.advance(Judgement(probability=0))
    assert decision.decided is not None
    assert (decision.decided.verdict, decision.decided.policy) == ("block", "tool_rules")


def test_a_replacement_that_the_rules_allow_passes() -> None:
    decision = decided(ToolRules(deny=[{"tool": "x"}]), Expands(), arguments='{"command":"$CLEAN"}')
    assert decision.decided is not None
    assert (decision.decided.verdict, decision.decided.arguments) == (
        "replace",
        '{"command":"rm -rf /"}',
    )


def test_two_that_want_different_arguments_block() -> None:
    decision = decided(Sets('{"a":1}'), Sets('{"a":2}'))
    assert decision.decided is not None and (decision.decided.verdict, decision.decided.reason) == (
        "block",
        "conflict",
    )
    agreed = decided(Sets('{"a":1}'), Sets('{"a":1}'))
    assert agreed.decided is not None and agreed.decided.verdict == "replace"


def test_a_policy_that_asks_without_end_is_stopped() -> None:
    decision = decided(Says(lambda: AskJudge(QUESTION)))
    asks = 0
    while decision.decided is None:
        asks += 1
        assert decision.questions and decision.step == asks - 1
        decision.advance(Judgement(probability=0))
    assert asks == MAX_ASKS and decision.decided.reason == "too_many_asks"


def test_a_fault_is_told_from_the_verdict_of_the_block_on_record() -> None:
    session = make([Says(lambda: Block(None))])  # type: ignore[arg-type]
    run(session, [chunk({"content": "hi"})])
    session.chunks(2, [chunk(finish="stop"), DONE])
    assert not [
        r for r in session.drain().records if isinstance(r, BlockRecord) and r.verdict == "allow"
    ]
