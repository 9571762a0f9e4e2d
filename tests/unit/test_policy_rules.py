import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from policy.base import ALLOW, Block, Executor, Replace, ToolCall, Verdict
from policy.builtin.arguments import plain_values, spellings, texts
from policy.builtin.tool_rules import ToolRules
from policy.effects import sql
from policy.effects.sql import NotOneStatement, check_dialect, kinds_of
from policy.patterns import NamePatterns, compile_re2, literal
from policy.schemas.schema_work import SchemaBudget
from policy.schemas.schemas import ToolSchemas, compile_client_schema, compile_schema
from protocol.request import Tool
from tests.support.checks.tool_rules import CONTEXT, RM, decide, reason
from tests.support.cpu import cpu_within
from tests.support.json_values import Json

SCHEMA: Json = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}


# --- deny ---


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command":"rm -rf /"}',
        '{"command":"rm\\u0020-rf /"}',
        '{"command":"\\u0072m -rf /"}',
        '{"a":{"b":[1,{"c":"x; rm -rf y"}]}}',
        '{"rm -rf /":1}',
        '{"argv":["rm","-rf","/"]}',
        '{"command":"\uff52\uff4d -rf /"}',
        '{"command":"r\u200bm -rf /"}',
    ],
)
def test_a_pattern_finds_every_decoded_string_and_key(arguments: str) -> None:
    assert reason(decide(arguments, deny=[{"argument_matches": RM}])) == "rule"


@pytest.mark.parametrize(
    "pattern",
    [
        "rm -rf",
        "a|b",
        "a.b",
        "(?i)rm",
        "x{2}",
        "a\\b",
        "^rm",
        "caf\u00e9",
        "[rm]",
        "100%",
        "a/b'c\"d;e",
        "it*",
        "$(x)",
        "a+b",
        "ab?",
    ],
)
def test_a_pattern_that_is_a_plain_text_finds_what_re2_finds(pattern: str) -> None:
    plain, compiled = literal(pattern), compile_re2(pattern)
    assert (plain is not None) == (pattern in ("rm -rf", "100%", "a/b'c\"d;e"))
    for text in (
        pattern,
        f"x{pattern}y",
        pattern.upper(),
        "ab",
        "sudo rm  -rf",
        "xx",
        "",
        "100",
        "a/b'c\"d;",
    ):
        assert plain is None or (plain in text) == (compiled.search(text) is not None)


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=8),
    st.text(max_size=20),
)
def test_plain_patterns_mean_themselves(pattern: str, around: str) -> None:
    if literal(pattern) is not None:
        for text in around, around + pattern + around, pattern.swapcase():
            assert (pattern in text) == (compile_re2(pattern).search(text) is not None)


def test_a_pattern_sees_the_exact_text_too() -> None:
    assert (
        reason(decide('{"count": 100000}', deny=[{"argument_matches": r'"count":\s*\d{6}'}]))
        == "rule"
    )
    assert (
        reason(
            decide('{"a":{"n":[1,2]}}', deny=[{"argument": "a", "argument_matches": r"\[1, 2\]"}])
        )
        == "rule"
    )


def test_a_rule_may_look_at_one_argument_only() -> None:
    deny = [{"argument": "command", "argument_matches": RM}]
    assert decide({"command": "ls", "note": "rm -rf"}, deny=deny) == ALLOW
    assert decide({"note": "rm -rf"}, deny=deny) == ALLOW
    assert reason(decide({"command": ["rm", "-rf"], "note": ""}, deny=deny)) == "rule"


def test_all_conditions_of_a_rule_must_hold() -> None:
    deny = [{"tool": "bash", "argument_matches": RM, "schema": {"required": ["force"]}}]
    assert decide({"command": "rm -rf"}, deny=deny) == ALLOW
    assert decide({"command": "rm -rf", "force": True}, name="zsh", deny=deny) == ALLOW
    assert reason(decide({"command": "rm -rf", "force": True}, deny=deny)) == "rule"


def test_conditions_set_to_nothing_are_no_conditions() -> None:
    assert (
        reason(decide({}, deny=[{"argument_matches": None, "schema": None, "sql": None}])) == "rule"
    )


def test_reason_and_message_are_the_rules_own() -> None:
    said = decide({}, deny=[{"reason": "night", "message": "not at night"}])
    assert said == Block("night", "not at night", "deny[0]")


def test_a_block_wins_over_a_replacement_and_so_does_the_allow_list() -> None:
    replace = {"decision": "replace", "arguments": {"command": "true"}, "reason": "calmed"}
    assert decide({"command": "x"}, deny=[replace]) == Replace(
        '{"command": "true"}', "calmed", "deny[0]"
    )
    assert reason(decide({"command": "x"}, deny=[replace, {"reason": "no"}])) == "no"
    assert reason(decide({"command": "x"}, deny=[replace], allow=[])) == "not_allowed"
    assert decide({"command": "x"}, deny=[replace], allow=[{}]) == Replace(
        '{"command": "true"}', "calmed", "deny[0]"
    )


# --- allow ---


def test_what_no_allow_rule_matches_is_blocked() -> None:
    allow = [{"tool": ["read_*", {"re2": "list_[a-z]+"}]}]
    said = {
        name: reason(decide({}, name=name, allow=allow))
        for name in ("read_file", "list_all", "list_2", "xread_file", "READ_FILE", "")
    }
    assert said == {
        "read_file": "",
        "list_all": "",
        "list_2": "not_allowed",
        "xread_file": "not_allowed",
        "READ_FILE": "not_allowed",
        "": "not_allowed",
    }


def test_an_allow_pattern_must_cover_every_value() -> None:
    allow = [{"argument_matches": "ls( -l)?|[0-9]+"}]
    tool = Tool("bash", schema={"properties": {"command": {}, "n": {}, "a": {}}})
    assert decide({"command": "ls -l", "n": 3}, tool=tool, allow=allow) == ALLOW
    for arguments in (
        {"command": "ls -l; rm"},
        {"command": "ls", "then": "rm"},
        {"command": "ls\n"},
        {"a": ["ls", {"b": "x"}]},
        {"a": None},
    ):
        assert reason(decide(arguments, tool=tool, allow=allow)) == "not_allowed"


def test_an_allow_rule_for_a_missing_argument_does_not_match() -> None:
    allow = [{"argument": "command", "argument_matches": ".*"}]
    assert decide({"command": "x"}, allow=allow) == ALLOW
    assert reason(decide({"other": "x"}, allow=allow)) == "not_allowed"


def test_an_allow_rule_by_schema() -> None:
    allow = [{"schema": SCHEMA}]
    assert decide({"command": "x"}, allow=allow) == ALLOW
    assert reason(decide({"command": 1}, allow=allow)) == "not_allowed"


# --- the tool's own schema ---


def test_arguments_must_fit_the_tools_schema_where_asked() -> None:
    tool = Tool("bash", schema=SCHEMA)
    assert decide({"command": "x"}, tool=tool, validate_schema=True) == ALLOW
    assert reason(decide({"command": 1}, tool=tool, validate_schema=True)) == "schema"
    assert reason(decide({"command": "x"}, tool=None, validate_schema=True)) == "schema"
    assert (
        reason(
            decide(
                {"command": "x"},
                tool=Tool("bash", schema={"type": "nonsense"}),
                validate_schema=True,
            )
        )
        == "schema"
    )


def test_a_schema_is_compiled_once_per_call_and_not_shared() -> None:
    policy = ToolRules(validate_schema=True)
    first, second = policy.for_call(CONTEXT), policy.for_call(CONTEXT)
    strict, loose = Tool("bash", schema=SCHEMA), Tool("bash", schema={})
    call = ToolCall(0, 0, "id", "bash", "{}", {}, strict)
    assert [reason(first.on_tool_call(call)) for _ in range(2)] == ["schema", "schema"]
    assert second.on_tool_call(ToolCall(0, 0, "id", "bash", "{}", {}, loose)) == ALLOW


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1/schema", "file:///etc/passwd", "other.json"])
def test_schemas_fetch_nothing(uri: str) -> None:
    with pytest.raises(ValueError, match="another document"):
        compile_client_schema({"$ref": uri}, SchemaBudget())
    assert ToolSchemas().is_valid(Tool("bash", schema={"$ref": uri}), {}) is None


@pytest.mark.case("J9")
def test_a_clients_pattern_cannot_run_for_long() -> None:
    schema = {"properties": {"a": {"pattern": "^(?=a)(a|a)*$"}}}
    with pytest.raises(ValueError, match="regex"):
        compile_schema(schema)
    with cpu_within(1):
        assert (
            compile_client_schema(schema, SchemaBudget()).is_valid(
                {"a": "a" * 60 + "!"}, SchemaBudget()
            )
            is False
        )


# --- SQL ---


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("select 1", {"select"}),
        ("select 1;", {"select"}),
        ("values (1)", {"select"}),
        ("(select 1) union select 2", {"select"}),
        ("insert into t values (1)", {"insert"}),
        ("insert into t select * from u", {"insert", "select"}),
        ("update t set a = 1", {"update"}),
        ("with x as (delete from t returning *) select * from x", {"select", "delete"}),
        ("with x as (select 1) insert into t select * from x", {"insert", "select"}),
        ("select * into t from u", {"select", "create"}),
        ("select 1 for update", {"select", "lock"}),
        ("create table t as select 1", {"create", "select"}),
        ("drop\n/**/table t", {"drop"}),
        ("truncate t", {"truncate"}),
        ("grant all on t to u", {"grant"}),
        ("copy t to '/tmp/x'", {"copy"}),
        ("merge into t using s on t.a = s.a when matched then delete", {"merge", "delete"}),
    ],
)
def test_kinds_include_those_of_every_part(text: str, kinds: set[str]) -> None:
    assert kinds_of(text, "postgres") == kinds


@pytest.mark.parametrize(
    "text",
    [
        "do $$ begin end $$",
        "call f()",
        "vacuum",
        "select 1 /*! union select 2 */",
        "select '\0'",
        "(" * 3000,
        "select " + "1+" * 40_000 + "1",
        "hello",
        "1",
    ],
)
def test_what_is_not_one_known_statement_is_refused(text: str) -> None:
    with pytest.raises(NotOneStatement):
        kinds_of(text, "postgres")


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("select 1, {#\n x 1} into outfile '/tmp/x' -- #} 2", "mysql"),
        ("select 1 --\u00a0x into outfile '/tmp/x'", "mysql"),
        ("select 1 -- \r 'x\n; drop table t -- '", "sqlite"),
        ("select 1 /*M!100000 into outfile '/tmp/x' */", "mysql"),
        ("select 1 shutdown", "tsql"),
        ("select a from t SHUTDOWN", "fabric"),
        ("select a from t commit", "tsql"),
    ],
)
def test_what_a_database_reads_differently_is_refused(text: str, dialect: str) -> None:
    with pytest.raises(NotOneStatement):
        kinds_of(text, dialect)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("select a from t [shutdown]", "tsql"),
        ("select 1 shutdown", "postgres"),
        ("select 1\r\nfrom t", "mysql"),
    ],
)
def test_what_only_looks_alike_is_read(text: str, dialect: str) -> None:
    assert kinds_of(text, dialect) == {"select"}


@given(st.text(max_size=60))
def test_any_text_gives_kinds_or_a_refusal(text: str) -> None:
    with contextlib.suppress(NotOneStatement):
        assert kinds_of(text, "postgres")


@pytest.mark.parametrize(
    ("arguments", "allowed", "denied"),
    [
        ({"sql": "select 1"}, True, False),
        ({"sql": "drop table t"}, False, True),
        ({"sql": "select 1; select 2"}, False, True),
        ({"sql": "what"}, False, True),
        ({"sql": ["select 1"]}, False, True),
        ({"other": 1}, False, False),
    ],
)
def test_sql_that_cannot_be_decided_is_blocked_either_way(
    arguments: Json, allowed: bool, denied: bool
) -> None:
    select = {"argument": "sql", "kinds": ["select"], "dialect": "postgres"}
    drop = {"argument": "sql", "kinds": ["drop"], "dialect": "postgres"}
    assert (decide(arguments, allow=[{"sql": select}]) == ALLOW) is allowed
    assert isinstance(decide(arguments, deny=[{"sql": drop}]), Block) is denied


def test_a_nested_statement_without_a_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sql._kinds(), exp.Delete)
    with pytest.raises(NotOneStatement, match="unknown kind"):
        kinds_of("with x as (delete from t returning *) select * from x", "postgres")


def test_dialects_read_strings_their_own_way() -> None:
    trick = "select 'a\\' ; drop table t -- '"
    with pytest.raises(NotOneStatement):
        kinds_of(trick, "postgres")
    assert kinds_of(trick, check_dialect("MySQL")) == {"select"}


# --- pieces ---


@pytest.mark.case("J10")
def test_names_match_whole() -> None:
    assert [NamePatterns("a?c*").match(n) for n in ("abc", "abcd\n", "ac", "xabc")] == [
        True,
        True,
        False,
        False,
    ]
    assert NamePatterns("a.c").match("abc") is False


def test_texts_and_scalars() -> None:
    value = {"k": ["a", "b", {"x": 1.5}], "n": None}
    assert sorted(texts(value)) == sorted(
        ["k", "n", "a", "b", "x", "a b", "a b 1.5", "a b 1.5 null", "a b null"]
    )
    assert sorted(plain_values(value) or ()) == ["1.5", "a", "b", "k", "n", "null", "x"]
    assert spellings("plain") == ["plain"]
    assert spellings("é") == ["é"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"deny": [{"argument_matches": "("}]}, "not valid RE2"),
        ({"deny": [{"argument_matches": r"(a)\1"}]}, "not valid RE2"),
        ({"deny": [{"argument_matches": "x" * 20_000}]}, "longer than"),
        ({"deny": [{"argument_matches": "((a{100}){100}){100}"}]}, "not valid RE2"),
        ({"deny": [{"tool": {"re2": "(?=a)"}}]}, "not valid RE2"),
        ({"deny": [{"schema": {"type": "nonsense"}}]}, "schema"),
        ({"deny": [{"schema": {"pattern": "(?=a)"}}]}, "regex"),
        ({"deny": [{"argument": "a"}]}, "needs `argument_matches`"),
        ({"deny": [{"decision": "replace"}]}, "go together"),
        ({"deny": [{"arguments": {}}]}, "go together"),
        ({"deny": [{"reason": "Not a word"}]}, "pattern"),
        ({"allow": [{"decision": "block"}]}, "Extra inputs"),
        (
            {"allow": [{"sql": {"argument": "a", "kinds": ["select"], "dialect": "klingon"}}]},
            "klingon",
        ),
        ({"allow": [{"sql": {"argument": "a", "kinds": ["select"]}}]}, "dialect"),
        ({"alow": []}, "Extra inputs"),
    ],
)
def test_bad_options_are_refused_at_load(options: Json, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        ToolRules(**options)


@pytest.mark.case("J9")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_explode_elsewhere_are_linear(pattern: str) -> None:
    with cpu_within(2):
        decide({"command": "a" * 50_000 + "!"}, deny=[{"argument_matches": pattern}])


# --- who runs the call ---


def run_by(
    executor: Executor, name: str = "web_search", tool: Tool | None = None, **options: Any
) -> Verdict:
    policy = ToolRules(**options).for_call(CONTEXT)
    return policy.on_tool_call(
        ToolCall(0, 0, "id", name, '{"query":"x"}', {"query": "x"}, tool, executor)
    )


EXECUTORS: list[Executor] = ["client", "provider", "mcp", "nested"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_rule_may_be_about_calls_of_one_executor_or_of_some(executor: Executor) -> None:
    assert reason(run_by(executor, deny=[{"executor": "mcp", "reason": "no_mcp"}])) == (
        "no_mcp" if executor == "mcp" else ""
    )
    some = reason(run_by(executor, deny=[{"executor": ["mcp", "nested"]}]))
    assert some == ("rule" if executor in ("mcp", "nested") else "")
    assert reason(run_by(executor, deny=[{"tool": "web_*"}])) == "rule"
    assert reason(run_by(executor, deny=[{"tool": "other", "executor": EXECUTORS}])) == ""


def test_a_rule_may_be_about_the_calls_of_one_mcp_server() -> None:
    rules = ToolRules(deny=[{"tool": "*", "server": "box*"}]).for_call(CONTEXT)
    calls = [
        ToolCall(0, 0, "i", "x", "{}", {}, None, "mcp", server) for server in ("box-1", "shelf", "")
    ]
    assert [reason(rules.on_tool_call(c)) for c in calls] == ["rule", "", ""]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_allow_list_covers_calls_that_the_provider_runs(executor: Executor) -> None:
    assert reason(run_by(executor, allow=[{"tool": "bash"}])) == "not_allowed"
    assert reason(run_by(executor, allow=[{"tool": "web_*"}])) == ""
    only = [{"tool": "web_*", "executor": ["provider", "nested"]}]
    assert reason(run_by(executor, allow=only)) == (
        "" if executor in ("provider", "nested") else "not_allowed"
    )


@pytest.mark.parametrize("executor", EXECUTORS)
def test_only_the_clients_calls_are_held_against_their_declaration(executor: Executor) -> None:
    expected = "schema" if executor == "client" else ""
    strict = Tool("web_search", schema={"type": "object", "required": ["q"]})
    assert reason(run_by(executor, validate_schema=True)) == expected
    assert reason(run_by(executor, tool=strict, validate_schema=True)) == expected
    # a client has nothing to run a server tool with
    assert (
        reason(run_by(executor, tool=Tool("web_search", kind="server"), validate_schema=True))
        == expected
    )


@pytest.mark.parametrize("executor", ["somebody", [], ["client", "somebody"], 1])
def test_an_unknown_executor_is_refused_at_load(executor: Any) -> None:
    with pytest.raises(ValueError, match="executor"):
        ToolRules(deny=[{"executor": executor}])
