"""Content blocks on their way through the policies: provider-run calls, their results, attachments,
calls written as text."""

import pytest

from policy.base import (
    Policy,
    TextBlock,
)
from protocol.dialects.anthropic.cited import read_citation
from protocol.events import (
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStop,
    RawDelta,
    SignatureDelta,
    StopReason,
    TextDelta,
)
from protocol.records import BlockRecord
from protocol.request import (
    OtherPart,
    ResponseFormat,
    Tool,
    ToolChoice,
    Turn,
)
from tests.support.checks.block_runs import (
    SEARCH,
    Ask,
    Deny,
    NoSecrets,
    Rewrite,
    Run,
    Same,
    client,
    result,
    server,
    text,
)
from tests.support.json_values import Json

CITATION = {"type": "char_location", "cited_text": "secret"}


class Shout(Policy):
    def on_text(self, text: str, block: TextBlock) -> str:
        return text.upper()


@pytest.mark.parametrize(
    ("body", "executor"),
    [
        (SEARCH, "provider"),
        (SEARCH | {"caller": {"type": "direct"}}, "provider"),
        (SEARCH | {"caller": {"type": "code_execution_20250825", "tool_id": "s"}}, "nested"),
        ({"type": "mcp_tool_use", "server_name": "s"}, "mcp"),
    ],
)
def test_the_ledger_says_who_executes(body: Json, executor: str) -> None:
    assert Run().feed(*server(0, body=body)).rows("executor") == [(executor,)]


@pytest.mark.parametrize(
    "body",
    [
        SEARCH,
        {"type": "mcp_tool_use", "server_name": "s"},
        SEARCH | {"caller": {"type": "code_execution_20250825"}},
    ],
)
def test_a_denied_provider_call_ends_the_turn(body: Json) -> None:
    run = Run(Deny()).feed(*text(0, "Now:"), *server(1, arguments='{"q":"rm -rf"}', body=body))
    assert run.blocks.is_cut
    assert isinstance(run.end, MessageStop)
    assert run.end.stop_reason is StopReason.END_TURN
    assert run.kinds == ["text", "text"]
    notice = (
        "[Sluice blocked the tool call 'web_search' and withheld its result: the policy 'p' forbids"
        " it (deny: denied). "
    )
    assert (
        run.text
        == f"Now:\n\n{notice}The provider may have run it. Do not retry it in another form; ask the"
        " user. Call c.]"
    )
    assert run.rows("verdict", "released_arguments") == [("block", None)]


def test_nothing_behind_a_denied_provider_call_goes_out_though_it_came_before_the_verdict() -> None:
    run = (
        Run(Ask())
        .feed(*server(0), *result(1, "srvtoolu_0"), *text(2, "the secret is 42"), *client(3))
        .finish(StopReason.TOOL_USE)
    )
    assert run.out == []
    run.judge(0, 1.0)
    assert "42" not in run.text
    assert run.kinds == ["text"]
    assert isinstance(run.end, MessageStop)
    assert run.rows("name", "verdict", "reason") == [
        ("web_search", "block", "judge"),
        ("bash", "block", "after_denied"),
    ]
    run.judge(3, 0.0)
    assert run.kinds == ["text"], "a judgement after the end changes nothing"


def test_a_client_call_before_a_denied_provider_call_survives() -> None:
    run = Run(Deny()).feed(*client(0), *server(1, arguments='{"q":"rm"}'))
    assert run.kinds == ["tool_use", "text"]
    assert run.blocks.is_cut and run.blocks.calls.survivors == 1


def test_a_replacement_for_a_provider_call_is_a_block() -> None:
    run = Run(Rewrite()).feed(*server(0))
    assert run.rows("verdict", "reason") == [("block", "cannot_replace")]
    assert run.blocks.is_cut


def test_a_blocked_result_takes_its_call_with_it() -> None:
    run = (
        Run(NoSecrets())
        .feed(*server(0), *result(1, "srvtoolu_0", content="a secret"), *text(2, "on we go"))
        .finish()
    )
    assert run.kinds == ["text", "text"]
    notice = (
        "[Sluice blocked the result of the tool call 'web_search': the policy 'p' forbids it"
        " (no_secrets: secret). "
    )
    assert (
        run.text
        == f"{notice}The provider ran it. Do not retry it in another form; ask the user. Call c.]on"
        " we go"
    )
    verdicts = [(r.block, r.verdict, r.reason) for r in run.records if isinstance(r, BlockRecord)]
    assert (1, "block", "secret") in verdicts
    assert (0, "withheld", "secret") in verdicts


def test_a_result_blocked_before_its_call_is_judged_takes_it_too() -> None:
    run = (
        Run(NoSecrets(), Ask())
        .feed(*server(0), *result(1, "srvtoolu_0", content="a secret"))
        .finish()
    )
    run.judge(0, 0.0)
    assert run.kinds == ["text"]


HISTORY = (
    Turn(
        "assistant",
        (
            OtherPart(
                "server_tool_use",
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_9",
                    "name": "web_search",
                    "input": {"q": "rm"},
                },
                "anthropic",
            ),
        ),
    ),
)


def test_the_result_of_a_call_in_an_earlier_answer_is_withheld_where_the_call_is_denied() -> None:
    run = Run(Deny(), turns=HISTORY).feed(*result(0, "srvtoolu_9"), *text(1, "so"))
    assert run.blocks.is_cut
    assert run.kinds == ["text"]
    assert run.rows("name", "arguments", "verdict", "executor") == [
        ("web_search", b'{"q":"rm"}', "block", "provider")
    ]


@pytest.mark.parametrize(
    ("kind", "name"), [("web_search_tool_result", "web_search"), ("mcp_tool_result", "mcp")]
)
def test_a_result_of_a_call_nobody_knows_is_decided_by_its_name(kind: str, name: str) -> None:
    assert Run(Deny(name)).feed(*result(0, "srvtoolu_x", kind)).rows("name", "verdict") == [
        (name, "block")
    ]
    assert Run(Deny()).feed(*result(0, "srvtoolu_x", kind)).out == result(0, "srvtoolu_x", kind)


# --- attachments ---

CITED: list[Event] = [
    BlockStart(0, BlockKind.TEXT),
    TextDelta(0, "as he said"),
    AttachmentDelta(0, "citation", read_citation(CITATION)),
    BlockStop(0),
]


@pytest.mark.case("U7")
def test_changed_text_loses_what_vouches_for_it() -> None:
    signed: list[Event] = [
        BlockStart(1, BlockKind.THINKING),
        TextDelta(1, "hm"),
        SignatureDelta(1, "sig"),
        BlockStop(1),
    ]
    run = Run(Shout()).feed(*CITED, *signed)
    assert not [e for e in run.out if isinstance(e, AttachmentDelta | SignatureDelta)]
    assert run.text == "AS HE SAIDHM"
    assert run.notes("withheld") == ["1: citation", "1: signature"]


@pytest.mark.case("U7")
def test_a_citation_is_decided_as_a_block_of_its_own() -> None:
    run = Run(NoSecrets()).feed(*CITED)
    assert [type(e) for e in run.out] == [BlockStart, TextDelta, BlockStop]
    assert run.notes("withheld") == ["1: citation: secret (no_secrets)"]


@pytest.mark.case("U7")
def test_logprobs_do_not_pass_a_policy_that_reads_text() -> None:
    events: list[Event] = [
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "a"),
        AttachmentDelta(0, "logprobs", {}),
        BlockStop(0),
    ]
    assert Run().feed(*events).out == events
    assert len(Run(Same()).feed(*events).out) == 3


def test_a_frame_that_the_setting_names_passes_in_its_own_dialect_alone() -> None:
    raw = RawDelta("event foo", -1, {"type": "foo"}, "anthropic")
    assert Run().feed(raw, *CITED).out == [raw, *CITED]
    crossed = Run(dialect="openai").feed(raw)
    assert crossed.out == []
    assert crossed.notes("withheld") == ["1: event foo"]


# --- calls ---


def test_a_call_outside_the_allowed_tools_is_blocked() -> None:
    run = Run(
        tools=(Tool("bash"), Tool("ls")), tool_choice=ToolChoice("auto", allowed=("ls",))
    ).feed(*client(0), *client(1, "ls"))
    assert run.rows("name", "verdict", "reason") == [
        ("bash", "block", "tool_choice"),
        ("ls", "allow", ""),
    ]


SUSPECT = '<tool_call>{"name": "bash", "arguments": {"command": "rm -rf /"}}</tool_call>'


def test_text_that_a_client_would_parse_as_a_call_is_decided_as_one() -> None:
    run = Run(Deny()).feed(*text(0, "Sure. ", SUSPECT, " Done.")).finish()
    notice = (
        "[Sluice blocked the tool call 'bash': the policy 'p' forbids it (deny: denied). It was not"
        " executed. "
    )
    assert (
        run.text == f"Sure. {notice}Do not retry it in another form; ask the user. Call c.] Done."
    )
    assert run.kinds == ["text"]
    assert run.rows("name", "form", "executor", "verdict") == [
        ("bash", "prompt", "client", "block")
    ]


def test_what_follows_a_suspect_waits_for_its_verdict() -> None:
    run = Run(Ask()).feed(*text(0, "a ", SUSPECT, " b"), *text(1, "c")).finish()
    assert run.text == "a "
    key = run.asks[0].block
    run.judge(key, 0.0)
    assert run.text == "a " + SUSPECT + " bc"
    assert [type(e) for e in run.out].count(BlockStop) == 2
    assert isinstance(run.end, MessageStop)


def test_a_suspect_waits_for_its_commit() -> None:
    run = Run(Deny("never"), durable=True).feed(*text(0, SUSPECT)).finish()
    assert run.text == ""
    run.blocks.committed(run.waits[0], "", 5)
    run.collect()
    assert run.text == SUSPECT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"n": 1}', "it fits its schema"),
        ('{"n": "1"}', "it does not fit its schema"),
        ("one", "it is not JSON"),
    ],
)
def test_an_answer_is_checked_against_the_clients_own_schema(answer: str, said: str) -> None:
    form = ResponseFormat(
        "json_schema",
        "n",
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 1}},
            "required": ["n"],
        },
    )
    run = Run(dialect="openai", response_format=form).feed(*text(0, answer)).finish()
    assert run.notes("answer") == [f"-1: {said}"]
    same = (
        Run(dialect="openai", upstream="openai", response_format=form)
        .feed(*text(0, answer))
        .finish()
    )
    assert same.notes("answer") == []
