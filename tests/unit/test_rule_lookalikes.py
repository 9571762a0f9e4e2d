"""What only looks like the name, key or value of a rule: denied as if it were, allowed only if it
is."""

from typing import Any

import pytest

from policy.base import ALLOW
from policy.session.session import Session
from protocol.bounds import MAX_FOLDED_BYTES, MAX_RULE_TEXTS
from protocol.records import ToolCallRecord
from protocol.request import Tool
from settings.config import Config
from tests.support.checks.tool_rules import RM, decide, reason
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info


def test_an_allow_pattern_must_cover_keys_and_find_something() -> None:
    """Finding 20: a key may hold what is run, and what is empty says nothing."""
    allow = [{"tool": "bash", "argument": "command", "argument_matches": "ls|-l"}]
    assert decide({"command": ["ls", "-l"], "other": {}}, allow=allow) == ALLOW
    values: list[Any] = [[], {}, {"rm -rf /": "ls"}, ["ls", []], [[{}]]]
    for value in values:
        assert reason(decide({"command": value}, allow=allow)) == "not_allowed"
    everything = [{"argument_matches": "ls"}]
    known = Tool("bash", schema={"properties": {"command": {}}})
    assert decide({"command": "ls"}, tool=known, allow=everything) == ALLOW
    others: list[Json] = [
        {"$(reboot)": []},
        {},
        {"$(reboot)": "ls"},
        {"command": {"command": "ls"}},
        {"command": []},
    ]
    for arguments in others:
        assert reason(decide(arguments, tool=known, allow=everything)) == "not_allowed"
    # without a tool that says so, a key is a text like any other
    assert reason(decide({"command": "ls"}, allow=everything)) == "not_allowed"


ALIKE = [
    "Command",
    "COMMAND",
    " command",
    "command\u200b",
    "\uff43ommand",
    "com\u00admand",
    "command\x7f",
]


@pytest.mark.parametrize("key", ALIKE)
def test_a_key_that_looks_like_the_named_one_is_denied_and_not_allowed(key: str) -> None:
    """Finding 8: Go's encoding/json and .NET's web defaults match names without case."""
    deny = [{"argument": "command", "argument_matches": RM}]
    assert reason(decide({key: "rm -rf /"}, deny=deny)) == "rule"
    assert decide({key: "ls"}, deny=deny) == ALLOW
    allow = [{"argument": "command", "argument_matches": "ls"}]
    assert reason(decide({key: "ls"}, allow=allow)) == "not_allowed"
    assert reason(decide({"command": "ls", key: "x"}, allow=allow)) == "not_allowed"
    assert decide({"command": "ls", "comment": "x"}, allow=allow) == ALLOW
    select = {"argument": "command", "kinds": ["select"], "dialect": "postgres"}
    assert (
        reason(decide({"command": "select 1", key: "drop table t"}, allow=[{"sql": select}]))
        == "not_allowed"
    )
    assert (
        reason(decide({key: "drop table t"}, deny=[{"sql": select | {"kinds": ["drop"]}}]))
        == "rule"
    )


def test_a_key_that_looks_like_one_of_the_schemas_is_held_against_it() -> None:
    few = {"properties": {"order": {"properties": {"cents": {"maximum": 100}}}}}
    assert decide({"order": {"cents": 5}}, allow=[{"schema": few}]) == ALLOW
    assert reason(decide({"order": {"Cents": 100_000}}, allow=[{"schema": few}])) == "not_allowed"
    many = {
        "properties": {"order": {"properties": {"cents": {"minimum": 100}}, "required": ["cents"]}},
        "required": ["order"],
    }
    assert reason(decide({"Order": {"Cents": 100_000}}, deny=[{"schema": many}])) == "rule"
    assert decide({"Order": {"Cents": 1}, "list": [{"x": 1}]}, deny=[{"schema": many}]) == ALLOW
    tool = Tool("bash", schema=few)
    assert (
        reason(decide({"order": {"Cents": 100_000}}, tool=tool, validate_schema=True)) == "schema"
    )
    assert decide({"order": {"cents": 1}, "any": [1]}, tool=tool, validate_schema=True) == ALLOW


NAMES = [
    "bash",
    "Bash",
    " bash",
    "bash\n",
    "functions.bash",
    "default_api:bash",
    "functions.Bash:0",
    "bash<|channel|>x",
    "b\u00adash",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_deny_rule_takes_a_name_for_what_it_may_mean_and_an_allow_rule_exactly(name: str) -> None:
    """Finding 21."""
    assert reason(decide({}, name=name, deny=[{"tool": "bash"}])) == "rule"
    assert reason(decide({}, name=name, deny=[{"tool": {"re2": "B[a]sh"}}])) == "rule"
    assert reason(decide({}, name=name, allow=[{"tool": "bash"}])) == (
        "" if name == "bash" else "not_allowed"
    )
    assert decide({}, name="my_" + name.strip(), deny=[{"tool": "bash"}]) == ALLOW


HIDDEN: list[Json] = [
    {"c": "r\x7fm -rf /x"},
    {"c": "r\x00m -rf /x"},
    {"c": "r\x08m -rf"},
    *({"c": f"rm{blank}-rf"} for blank in "\u2028\u2029\x85\ufeff\x0b\x1c\x1f\u1680\u3000"),
    {"c": "r\u200bm\u2028-rf"},
    {"command": "rm", "args": ["-rf", "/"]},
    {"a": [["rm"], ["-rf"]]},
    {"a": {"b": [[["rm"], "-rf"]], "c": 1}},
    {"a": [{"x": "rm"}, {"x": "-rf"}]},
    {"a": {"n": "rm"}, "b": {"n": "-rf"}},
    {"a": ["r\uff4d", ["-rf"]]},
]


@pytest.mark.parametrize("arguments", HIDDEN)
def test_a_pattern_finds_what_is_hidden_or_spread(arguments: Json) -> None:
    """Finding C8: `bash` drops NUL from its input, `split` splits at separators, tools join their
    lists."""
    assert reason(decide(arguments, deny=[{"argument_matches": RM}])) == "rule"
    if len(arguments) == 1:
        assert (
            reason(
                decide(
                    arguments, deny=[{"argument": next(iter(arguments)), "argument_matches": RM}]
                )
            )
            == "rule"
        )


def test_numbers_of_a_list_are_words_of_it() -> None:
    assert (
        reason(decide({"argv": ["kill", -9, "1"]}, deny=[{"argument_matches": "kill -9 1"}]))
        == "rule"
    )


def test_a_pattern_with_anchors_sees_each_list_and_object_for_itself() -> None:
    for arguments in (
        {"a": "x", "b": ["rm", "-rf"]},
        {"a": {"x": "rm", "y": "-rf"}, "b": 1},
        {"b": 1, "a": [["rm"], ["-rf"]]},
    ):
        assert reason(decide(arguments, deny=[{"argument_matches": r"^rm -rf$"}])) == "rule"


def test_more_than_rules_look_at_is_denied_and_not_allowed() -> None:
    many: list[Json] = [
        {"a": ["x"] * (MAX_RULE_TEXTS + 1)},
        {"a": "\u4e00" * MAX_FOLDED_BYTES},
    ]
    for arguments in many:
        assert reason(decide(arguments, deny=[{"argument_matches": RM}])) == "rule"
        assert reason(decide(arguments, deny=[{"argument": "a", "argument_matches": RM}])) == "rule"
    few = {"a": ["x"] * (MAX_RULE_TEXTS - 2)}
    assert decide(few, deny=[{"argument_matches": RM}]) == ALLOW
    allow = [{"argument": "a", "argument_matches": "x"}]
    assert decide(few, allow=allow) == ALLOW
    assert reason(decide({"a": ["x"] * (MAX_RULE_TEXTS + 1)}, allow=allow)) == "not_allowed"


def test_the_vendors_tools_are_held_against_what_their_vendor_says() -> None:
    """Finding C13."""
    bash = Tool("bash", kind="client", extra={"type": "bash_20250124"})
    assert decide({"command": "ls"}, tool=bash, validate_schema=True) == ALLOW
    for arguments in ({"cmd": "rm", "x": [1]}, {"command": ["rm"]}, {"Command": "rm"}):
        assert reason(decide(arguments, tool=bash, validate_schema=True)) == "schema"
    unknown = Tool("bash", kind="client", extra={"type": "bash_of_tomorrow"})
    assert reason(decide({"command": "ls"}, tool=unknown, validate_schema=True)) == "schema"


def test_a_session_blocks_what_programs_read_differently_but_for_tools_that_are_exact() -> None:
    """Finding 8, whatever the policies; the configuration names the tools."""
    text = '{"env": {"path": "ls", "Path": "rm -rf /"}}'
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    call = {"index": 0, "id": "c", "function": {"name": "bash", "arguments": text}}
    chunks: list[Json] = [
        {"delta": {"tool_calls": [call]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    reasons = []
    for config in (
        Config(),
        Config(exact_keys=("bash",)),
        Config(exact_keys=("other",), exact_integers=("bash",)),
    ):
        session = Session(
            call_info("a" * 32, durable=True, max_arguments_bytes=8 << 20),
            [],
            config,
        )
        session.begin(as_json(body))
        for seq, choice in enumerate(chunks, 1):
            session.chunks(
                seq,
                [
                    b"data: "
                    + as_json({"id": "x", "model": "m", "choices": [{"index": 0} | choice]})
                    + b"\n\n"
                ],
            )
        reasons += [
            record.reason
            for record in session.drain().records
            if isinstance(record, ToolCallRecord)
        ]
    assert reasons == ["ambiguous_json", "", "ambiguous_json"]
