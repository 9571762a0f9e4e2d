"""Tools that providers run: refused unless the key has their family, added by union, with the
headers they need."""

import importlib.resources
import json
import re
from typing import Any, get_args

import pytest
from anthropic.types import AnthropicBetaParam, ToolUnionParam
from anthropic.types.beta import BetaToolUnionParam

from protocol.dialects.anthropic import key_permissions as server_tools
from protocol.dialects.openai_chat import key_permissions
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, Tool
from protocol.server_tools.data import betas, table, tool_type
from protocol.target import RequestNotes, Target
from tests.support.json_values import Json

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEARCH_2026 = {"type": "web_search_20260318", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
FUNCTION = {"name": "get_weather", "input_schema": {"type": "object"}}
SERVER = {"type": "url", "url": "https://mcp.example", "name": "notes"}
ALL = frozenset(table().families)


def draft(*families: str, **values: Any) -> RequestNotes:
    request = ChatRequest(dialect="anthropic", model="m", web_search=values.pop("web_search", None))
    return RequestNotes(
        request=request, target=Target(dialect="anthropic", families=frozenset(families), **values)
    )


def body(**changes: Any) -> Json:
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]} | changes


def user(*blocks: Json) -> Json:
    return body(messages=[{"role": "user", "content": list(blocks)}])


def test_the_data_has_the_shape_and_its_words_fit_together() -> None:
    families = set(table().families)
    names = [
        f"{row.prefix}_{version}" if version else row.prefix
        for row in table().tools
        for version in row.versions
    ]
    assert len(names) == len(set(names))
    for row in table().tools:
        assert (row.family in families) == (row.executor != "client")
        assert all(re.fullmatch(r"(20\d{6})?", version) for version in row.versions)
        assert {*row.betas, *row.nested, *row.inclusion} <= set(row.versions)
        assert all(name in betas() for choices in row.betas.values() for name in choices)
    for family in table().families.values():
        assert all(name in betas() for name in family.betas)
    assert {f for f in betas().values() if f} <= families
    assert {f for group in table().parameters.values() for f in group.values()} | set(
        table().openai_tools.values()
    ) <= families


@pytest.mark.parametrize("file", ["server_tools.json", "betas.json"])
def test_no_key_of_the_data_is_there_twice(file: str) -> None:
    def once(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        assert len(dict(pairs)) == len(pairs)
        return pairs

    json.loads(
        importlib.resources.files("protocol").joinpath("data", file).read_text(),
        object_pairs_hook=once,
    )


def types_of(union: Any) -> set[str]:
    found: set[str] = set()
    for item in get_args(union):
        hint = str(item.__annotations__["type"])
        found |= {word for word in re.findall(r"['\"]([a-z0-9_]+)['\"]", hint) if word != "custom"}
    return found


@pytest.mark.parametrize("union", [ToolUnionParam, BetaToolUnionParam])
def test_every_tool_type_of_the_official_sdk_is_known(union: Any) -> None:
    found = types_of(union)
    assert len(found) > 15
    assert {name for name in found if tool_type(name) is None} == set()


def test_every_beta_of_the_official_sdk_is_known() -> None:
    names = next(get_args(part) for part in get_args(AnthropicBetaParam) if get_args(part))
    assert len(names) > 50
    assert set(names) - set(betas()) == set()


GATED: list[tuple[Json, str, str]] = [
    *(
        ({"tools": [tool]}, family, "tools")
        for tool, family in ((SEARCH, "web_search"), (FETCH, "web_fetch"), (CODE, "code_execution"))
    ),
    (
        {"tools": [{"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}]},
        "tool_search",
        "tools",
    ),
    (
        {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "m"}]},
        "advisor",
        "tools",
    ),
    ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "notes"}]}, "mcp", "tools"),
    (
        {"tools": [FUNCTION | {"allowed_callers": ["code_execution_20250825"]}]},
        "code_execution",
        "tools",
    ),
    ({"mcp_servers": [SERVER]}, "mcp", "mcp_servers"),
    ({"container": "container_1"}, "code_execution", "container"),
    (
        {"container": {"id": None, "skills": [{"type": "anthropic", "skill_id": "pdf"}]}},
        "skills",
        "container",
    ),
    ({"fallbacks": "default"}, "fallback", "fallbacks"),
    ({"thread": {"type": "create"}}, "threads", "thread"),
    ({"workspace_id": "w"}, "account", "workspace_id"),
    (
        {
            "messages": user({"type": "document", "source": {"type": "file", "file_id": "f"}})[
                "messages"
            ]
        },
        "files",
        "messages",
    ),
    (
        {
            "messages": user(
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
                }
            )["messages"]
        },
        "files",
        "messages",
    ),
    (
        {"messages": user({"type": "container_upload", "file_id": "f"})["messages"]},
        "files",
        "messages",
    ),
    (
        {
            "messages": user(
                {
                    "type": "tool_addition",
                    "tool": {"type": "tool_definition", "definition": FUNCTION},
                }
            )["messages"]
        },
        "inline_tools",
        "messages",
    ),
    (
        {
            "messages": user(
                {
                    "type": "tool_addition",
                    "tool": {"type": "mcp_toolset_reference", "server_name": "n"},
                }
            )["messages"]
        },
        "mcp",
        "messages",
    ),
]


@pytest.mark.parametrize(("changes", "family", "param"), GATED)
def test_a_family_that_the_key_lacks_is_refused_by_name(
    changes: Json, family: str, param: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"'{family}' under `server_tools`") as caught:
        server_tools.apply(draft(*(ALL - {family})), body(**changes))
    assert caught.value.param == param


@pytest.mark.parametrize(("changes", "family", "param"), GATED)
def test_a_family_that_the_key_has_passes_unchanged(changes: Json, family: str, param: str) -> None:
    said = body(**changes)
    assert server_tools.apply(draft(*ALL), said) is False
    assert said == body(**changes)


def test_a_server_tool_defined_within_a_message_needs_its_family_too() -> None:
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": SEARCH}}
    with pytest.raises(InvalidRequest, match="'web_search'"):
        server_tools.apply(draft("inline_tools"), user(block))
    with pytest.raises(InvalidRequest, match="inline_tools"):
        server_tools.apply(draft("web_search"), user({"type": "tool_addition"}))


def test_tools_that_the_client_runs_are_always_allowed() -> None:
    tools = [
        {"type": f"{row.prefix}_{version}", **({"name": row.name} if row.name else {})}
        for row in table().tools
        if row.executor == "client"
        for version in row.versions[:1]
    ]
    tools = list({t.get("name", t["type"]): t for t in tools}.values())
    assert len(tools) >= 7
    assert server_tools.apply(draft(), body(tools=[FUNCTION, *tools])) is False


@pytest.mark.parametrize(
    "kind", ["web_search_20991231", "shell_20260101", "web_search", 7, ["custom"]]
)
def test_a_tool_type_that_is_not_known_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidRequest, match="does not know") as caught:
        server_tools.apply(draft(*ALL), body(tools=[{"type": kind, "name": "x"}]))
    assert caught.value.param == "tools"


def test_a_parameter_that_is_not_known_is_withheld_unless_the_operator_names_it() -> None:
    work, said = draft(*ALL), body(remote_tools=["x"])
    assert server_tools.apply(work, said) is True
    assert said == body() and work.dropped == ["remote_tools"]
    said = body(remote_tools=["x"])
    assert server_tools.apply(draft(unknown=frozenset(("parameter remote_tools",))), said) is False
    assert said == body(remote_tools=["x"])


def test_empty_parameters_need_no_family() -> None:
    said = body(mcp_servers=[], container=None, tools=None)
    assert server_tools.apply(draft(), said) is False


def test_the_recorded_container_of_a_continued_turn_passes() -> None:
    said = body(container="container_1")
    assert server_tools.apply(draft("web_search", container="container_1"), said) is False
    with pytest.raises(InvalidRequest, match="container"):
        server_tools.apply(
            draft("web_search", container="container_1"), body(container="container_2")
        )


def test_arguments_of_calls_are_not_taken_for_blocks() -> None:
    call = {
        "type": "tool_use",
        "id": "t",
        "name": "f",
        "input": {"type": "container_upload", "source": {"type": "file"}},
    }
    assert (
        server_tools.apply(draft(), body(messages=[{"role": "assistant", "content": [call]}]))
        is False
    )


def test_an_answers_own_upload_blocks_come_back_as_history() -> None:
    history = body(
        messages=[{"role": "assistant", "content": [{"type": "container_upload", "file_id": "f"}]}]
    )
    assert server_tools.apply(draft("code_execution"), history) is False


def test_web_search_options_of_a_crossing_client_name_their_own_parameter() -> None:
    with pytest.raises(InvalidRequest) as caught:
        server_tools.apply(draft(web_search={}), body(tools=[SEARCH]))
    assert caught.value.param == "web_search_options"


def test_web_tools_run_no_code_where_code_may_not_run() -> None:
    said = body(tools=[dict(SEARCH_2026)])
    assert server_tools.apply(draft("web_search"), said) is True
    assert said["tools"] == [SEARCH_2026 | {"allowed_callers": ["direct"]}]
    said = body(tools=[SEARCH_2026])
    assert server_tools.apply(draft("web_search", "code_execution"), said) is False
    with pytest.raises(InvalidRequest, match="code_execution"):
        server_tools.apply(
            draft("web_search"),
            body(tools=[SEARCH_2026 | {"allowed_callers": ["code_execution_20260120"]}]),
        )


def test_nested_calls_stay_in_the_answer() -> None:
    work, said = draft(*ALL), body(tools=[SEARCH_2026 | {"response_inclusion": "excluded"}])
    assert server_tools.apply(work, said) is True
    assert said["tools"] == [SEARCH_2026 | {"response_inclusion": "full"}]
    assert work.dropped == ["response_inclusion"]


def test_the_operators_tools_come_after_the_clients_and_replace_no_list() -> None:
    said = body(tools=[FUNCTION, CODE])
    assert server_tools.apply(draft(*ALL, added_tools=(SEARCH, FETCH)), said) is True
    assert said["tools"] == [FUNCTION, CODE, SEARCH, FETCH]
    said = body()
    assert (
        server_tools.apply(
            draft("web_search", added_tools=(SEARCH, FETCH, {"type": "web_search_20991231"})), said
        )
        is True
    )
    assert said["tools"] == [SEARCH]


def test_added_tools_without_the_family_leave_the_request_as_it_is() -> None:
    said = body(tools=[FUNCTION])
    assert (
        server_tools.apply(draft(added_tools=(SEARCH,), added_mcp_servers=(SERVER,)), said) is False
    )
    nested = SEARCH_2026 | {"allowed_callers": ["code_execution_20260120"]}
    assert server_tools.apply(draft("web_search", added_tools=(nested,)), said) is False


def test_the_operators_definition_of_the_same_tool_counts() -> None:
    own = SEARCH | {
        "max_uses": 9,
        "blocked_domains": ["a.example"],
        "cache_control": {"type": "ephemeral"},
    }
    added = SEARCH_2026 | {"max_uses": 5, "allowed_domains": ["b.example"]}
    said = body(tools=[own, FUNCTION])
    assert server_tools.apply(draft(*ALL, added_tools=(added,)), said) is True
    assert said["tools"] == [added | {"cache_control": {"type": "ephemeral"}}, FUNCTION]
    said = body(tools=[own])
    server_tools.apply(draft(*ALL, added_tools=(SEARCH | {"max_uses": 20},)), said)
    assert said["tools"] == [own]


def test_a_name_that_the_operators_tool_needs_is_refused() -> None:
    for tool in (
        FUNCTION | {"name": "web_search"},
        {"type": "custom", **FUNCTION, "name": "web_search"},
    ):
        with pytest.raises(InvalidRequest, match="web_search") as caught:
            server_tools.apply(draft("web_search", added_tools=(SEARCH,)), body(tools=[tool]))
        assert caught.value.param == "tools"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        server_tools.apply(draft(), body(tools=[FUNCTION, FUNCTION | {"description": "another"}]))


def test_the_operators_mcp_servers_are_added_with_their_toolset_and_header() -> None:
    work, said = draft("mcp", added_mcp_servers=(SERVER,)), body(tools=[FUNCTION])
    assert server_tools.apply(work, said) is True
    assert said["mcp_servers"] == [SERVER]
    assert said["tools"] == [FUNCTION, {"type": "mcp_toolset", "mcp_server_name": "notes"}]
    assert work.betas == ["mcp-client-2025-11-20"]
    other = SERVER | {"name": "other"}
    said = body(mcp_servers=[other, SERVER | {"authorization_token": "client's"}])
    server_tools.apply(draft("mcp", added_mcp_servers=(SERVER,)), said)
    assert said["mcp_servers"] == [other, SERVER]
    with pytest.raises(InvalidRequest) as caught:
        server_tools.apply(
            draft("mcp", added_mcp_servers=(SERVER,)),
            body(mcp_servers=[SERVER | {"url": "https://evil.example"}]),
        )
    assert caught.value.param == "mcp_servers"
    legacy = body(mcp_servers=[])
    server_tools.apply(
        draft("mcp", added_mcp_servers=(SERVER,), betas=("mcp-client-2025-04-04",)), legacy
    )
    assert "tools" not in legacy


def test_betas_are_an_ordered_set_of_the_clients_and_the_needed() -> None:
    work = draft(
        "web_fetch",
        "skills",
        "code_execution",
        "files",
        betas=("context-1m-2025-08-07, pdfs-2024-09-25", "pdfs-2024-09-25"),
    )
    said = user({"type": "document", "source": {"type": "file", "file_id": "f"}}) | {
        "tools": [FETCH, {"type": "computer_20250124", "name": "computer"}],
        "container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]},
        "context_management": {"edits": []},
    }
    assert server_tools.apply(work, said) is False
    assert work.betas == [
        "context-1m-2025-08-07",
        "pdfs-2024-09-25",
        "files-api-2025-04-14",
        "web-fetch-2025-09-10",
        "computer-use-2025-01-24",
        "skills-2025-10-02",
        "context-management-2025-06-27",
    ]
    assert work.dropped == []


def test_a_need_that_the_client_already_meets_adds_nothing() -> None:
    work = draft("mcp", betas=("mcp-client-2025-04-04",))
    server_tools.apply(work, body(mcp_servers=[SERVER]))
    assert work.betas == ["mcp-client-2025-04-04"]


def test_betas_that_may_not_pass_are_left_out_and_noted() -> None:
    work = draft(
        betas=(
            "new-thing-2027-01-01",
            "own-thing",
            "mcp-client-2025-11-20",
            "bad name\x7f",
            "compact-2026-01-12",
        ),
        allowed_betas=frozenset(("own-thing", "mcp-client-2025-11-20", "bad name\x7f")),
    )
    assert server_tools.apply(work, body()) is False
    assert work.betas == ["own-thing", "compact-2026-01-12"]
    assert work.dropped == [
        "anthropic-beta: new-thing-2027-01-01",
        "anthropic-beta: mcp-client-2025-11-20",
        "anthropic-beta",
    ]


def test_betas_in_the_body_go_the_same_way() -> None:
    work, said = (
        draft(),
        body(anthropic_beta=["pdfs-2024-09-25", "mcp-client-2025-11-20"], betas=None),
    )
    assert server_tools.apply(work, said) is True
    assert (
        said == body()
        and work.betas == ["pdfs-2024-09-25"]
        and work.dropped == ["anthropic-beta: mcp-client-2025-11-20"]
    )
    with pytest.raises(InvalidRequest):
        server_tools.apply(draft(), body(betas="x"))


@pytest.mark.parametrize(
    "tool", ["x", FUNCTION | {"allowed_callers": "direct"}, FUNCTION | {"allowed_callers": [7]}]
)
def test_malformed_tools_are_refused(tool: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        server_tools.apply(draft(*ALL), body(tools=[tool]))
    assert caught.value.param == "tools"


OPENAI_GATED: list[tuple[Json, str]] = [
    ({"web_search": {}}, "web_search_options"),
    ({"extra": {"plugins": [{"id": "web"}]}}, "plugins"),
    ({"extra": {"search_parameters": {"mode": "on"}}}, "search_parameters"),
    ({"extra": {"models": ["a", "b"]}}, "models"),
    ({"tools": (Tool("x", kind="server", extra={"type": "code_interpreter"}),)}, "tools"),
    ({"tools": (Tool("x", kind="server", extra={"type": "brand_new"}),)}, "tools"),
]


@pytest.mark.parametrize(("values", "param"), OPENAI_GATED)
def test_chat_completions_requests_are_gated_too(values: Json, param: str) -> None:
    request = ChatRequest(dialect="openai", model="m", **values)
    with pytest.raises(InvalidRequest) as caught:
        key_permissions.check(request, Target(dialect="openai"))
    assert caught.value.param == param
    if "brand_new" not in str(values):
        key_permissions.check(request, Target(dialect="openai", families=ALL))
