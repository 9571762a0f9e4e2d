"""What the configuration says about server tools, betas and unmodelled things: taken as it stands,
or refused at start with its place."""

import json

import pytest

from protocol.server_tools.data import table
from settings.config import DEMO_MODELS, Config
from sluice.errors import SettingsError
from sluice.settings import parse_config

SHA = "0" * 64
BASE = """
upstreams:
  a: {dialect: anthropic, base_url: "https://a.example"}
  o: {dialect: openai, base_url: "https://o.example/v1"}
"""
SEARCH = (
    '{type: web_search_20250305, name: web_search, max_uses: 3, allowed_domains: ["docs.example"]}'
)
SERVER = '{type: url, name: tracker, url: "https://mcp.example/sse", authorization_token: t}'


def read(text: str) -> Config:
    return parse_config(BASE + text, "x.yaml")


def route(tools: str = "", servers: str = "", upstream: str = "a") -> str:
    return (
        f'models: [{{match: "claude-*", upstream: {upstream}, server_tools: [{tools}], mcp_servers:'
        f" [{servers}]}}]"
    )


@pytest.mark.parametrize("family", sorted(table().families))
def test_a_key_may_name_every_family(family: str) -> None:
    assert read(f"keys: [{{name: k, sha256: '{SHA}', server_tools: [{family}]}}]").keys[
        0
    ].server_tools == (family,)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"keys: [{{name: k, sha256: '{SHA}', server_tools: [web_serach]}}]",
            "line 5: keys.0.server_tools: 'web_serach' is no family of server tools; there are ",
        ),
        ("limits: {unsent_bytes: 65536}", "limits.unsent_bytes: must be at least 262144"),
        (route("{name: web_search}"), "models.0: 'None' is no type of a server tool"),
        (
            route("{type: web_search_20990101, name: web_search}"),
            "models.0: 'web_search_20990101' is no type of a server tool",
        ),
        (
            route("{type: bash_20250124, name: bash}"),
            "models.0: 'bash_20250124' is no type of a server tool",
        ),
        (
            route("{type: web_search_20250305}"),
            "models.0: web_search_20250305 needs the name 'web_search'",
        ),
        (
            route("{type: web_search_20250305, name: search}"),
            "models.0: web_search_20250305 needs the name 'web_search'",
        ),
        (
            route(f"{SEARCH}, {{type: web_search_20260209, name: web_search}}"),
            "models.0: the tool 'web_search' is there twice",
        ),
        (
            route("{type: mcp_toolset, mcp_server_name: other}", SERVER),
            "models.0: mcp_toolset needs an mcp_server_name that is among mcp_servers",
        ),
        (route("{type: mcp_toolset}"), "models.0: mcp_toolset needs an mcp_server_name"),
        (route("web_search"), "models.0.server_tools.0: "),
        (
            route(SEARCH, upstream="o"),
            (
                "models.0.server_tools: only upstreams of the dialect anthropic take server tools,"
                " and 'o' is not one"
            ),
        ),
        (
            route("", SERVER, upstream="o"),
            "models.0.mcp_servers: only upstreams of the dialect anthropic take server tools",
        ),
        (
            route("", '{type: url, url: "https://mcp.example"}'),
            "models.0: an MCP server needs a name",
        ),
        (
            route("", '{type: url, name: 7, url: "https://mcp.example"}'),
            "models.0: an MCP server needs a name",
        ),
        (
            route("", '{name: t, url: "https://mcp.example"}'),
            "models.0: the MCP server 't' needs `type: url`",
        ),
        (
            route("", "{type: url, name: t}"),
            "models.0: the MCP server 't' needs a url of https or http",
        ),
        (
            route("", "{type: url, name: t, url: 7}"),
            "models.0: the MCP server 't' needs a url of https or http",
        ),
        (
            route("", '{type: url, name: t, url: "file:///etc/passwd"}'),
            "models.0: the MCP server 't' needs a url of https or http",
        ),
        (
            route("", '{type: url, name: t, url: "https://"}'),
            "models.0: the MCP server 't' needs a url of https or http",
        ),
        (
            route("", '{type: url, name: t, url: "https://[x"}'),
            "models.0: the MCP server 't' needs a url of https or http",
        ),
        (route("", f"{SERVER}, {SERVER}"), "models.0: the MCP server 'tracker' is there twice"),
        ("betas: [ok-1, 'not ok']", "x.yaml line 5: betas.1: "),
        ("betas: ['a,b']", "x.yaml line 5: betas.0: "),
        ("unknown: ['']", "x.yaml line 5: unknown.0: name what was withheld as the record does"),
        ("unknown: [block foo, ' x']", "x.yaml line 5: unknown.1: name what was withheld"),
        (
            "unknown: [block]\nunknowns: []",
            "x.yaml line 6: unknowns: is not known; did you mean 'unknown'?",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_start_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(text)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("upstream", "accepted"),
    [
        ({"dialect": "openai", "native_tools": False, "guided": "vllm"}, True),
        ({"dialect": "openai", "native_tools": False}, True),
        ({"dialect": "openai", "guided": "vllm"}, False),
        ({"dialect": "anthropic", "native_tools": False, "guided": "openai"}, False),
        ({"dialect": "openai", "native_tools": False, "guided": "other"}, False),
    ],
)
def test_guided_is_for_prompted_tools_of_chat_completions(
    upstream: dict[str, object], accepted: bool
) -> None:
    text = f"upstreams: {{u: {json.dumps(upstream | {'base_url': 'http://u.example/v1'})}}}"
    if accepted:
        assert parse_config(text, "x.yaml").upstreams["u"].guided == upstream.get("guided", "")
    else:
        with pytest.raises(SettingsError, match=r"x\.yaml line 1: upstreams\.u.*guided"):
            parse_config(text, "x.yaml")


def test_names_that_pass_are_taken_as_they_stand() -> None:
    config = read("unknown: [block foo, event bar.baz, parameter x]\nbetas: [own-2026-01-01]")
    assert (config.unknown, config.betas) == (
        ("block foo", "event bar.baz", "parameter x"),
        ("own-2026-01-01",),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'upstreams: {demo: {dialect: openai, base_url: "http://a"}}',
            "upstreams.demo: 'demo' is the built-in upstream",
        ),
        (
            "limits: {body_bytes: 1000, upload_bytes: 1999}",
            "upload_bytes must be at least twice body_bytes",
        ),
        ('upstreams: {o: {dialect: openai, base_url: "http://a", calls: 0}}', "calls"),
    ],
)
def test_what_cannot_be_is_refused_at_start(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        parse_config(text, "x.yaml")


NAMES = """
models:
  - {match: "gpt-*", upstream: o, names: [gpt-4o, house-model]}
  - {names: ["claude-5[1m]"], upstream: a}
  - {match: plain, upstream: o}
"""


def test_a_route_takes_the_models_it_names_and_they_are_listed() -> None:
    config = read(NAMES)
    assert config.listed_models == ("gpt-4o", "house-model", "claude-5[1m]", "plain")
    assert [
        config.route(m) for m in ("gpt-4o", "gpt-other", "house-model", "claude-5[1m]", "claude-51")
    ] == ["o", "o", "o", "a", None]
    # a pattern alone means what it meant, and names nothing
    assert read('models: [{match: "gpt-*", upstream: o}]').listed_models == ()
    assert read("").listed_models == tuple(DEMO_MODELS)


def test_who_asks_for_an_unknown_model_is_told_the_patterns() -> None:
    assert (
        read(NAMES)
        .unknown_model("x")
        .endswith(
            "there is no model 'x' here; GET /v1/models lists them; names that match 'gpt-*'"
            " work too"
        )
    )
    assert (
        read("").unknown_model("x" * 999)
        == f"there is no model '{'x' * 100}' here; GET /v1/models lists them"
    )
    many = json.dumps([{"match": f"{'y' * 500}{n}-*", "upstream": "o"} for n in range(1000)])
    said = read(f"models: {many}").unknown_model("x")
    assert len(said) < 1_000 and said.endswith(" and 990 more patterns work too")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "models: [{upstream: o}]",
            "models.0: a route needs `match` (a pattern), `names` (a list of model names), or both",
        ),
        (
            'models: [{names: ["gpt-*"], upstream: o}]',
            "models.0.names.0: 'gpt-*' is a pattern, not a name: write it under `match`",
        ),
        (
            "models: [{names: [''], upstream: o}]",
            "models.0.names.0: a model's name has 1 to 200 visible characters",
        ),
        (
            "models: [{names: [x], upstream: none}]",
            "line 5: models.0.upstream: the upstream 'none' is not under upstreams",
        ),
        (
            "demo: true\nmodels: [{names: [demo], upstream: o}]",
            "line 6: models.0.names.0: 'demo' is a built-in model here",
        ),
        (
            'models: [{match: "*", upstream: o}, {names: [x], upstream: a}]',
            (
                "line 5: models.1.names.0: 'x' would go to 'o', as the route '*' stands first: move"
                " it below"
            ),
        ),
    ],
)
def test_a_name_that_would_not_go_where_it_stands_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(text)
    assert sentence in str(raised.value)


def test_how_judges_of_an_upstream_answer_is_one_of_what_its_dialect_has() -> None:
    given = 'upstreams: {{u: {{dialect: {}, base_url: "http://u.example", judge_reply: {}}}}}'
    assert (
        parse_config(given.format("openai", "json_object"), "x.yaml").upstreams["u"].judge_reply
        == "json_object"
    )
    assert parse_config(BASE, "x.yaml").upstreams["o"].judge_reply is None
    with pytest.raises(
        SettingsError,
        match=(
            "is for the dialects openai, responses and gemini; anthropic has tool, json_schema and"
            " text"
        ),
    ):
        parse_config(given.format("anthropic", "json_object"), "x.yaml")
