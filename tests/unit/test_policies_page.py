import json
import re
from pathlib import Path
from typing import Any

import pytest

from policy.base import Allow, Block, Context, Policy, Replace, ToolCall
from policy.loading import BUILT_IN, load
from protocol.request import ChatRequest, Tool
from sluice.config_file import parse
from tests.support.json_values import Json

RUN = Path(__file__).parents[2] / "docs" / "run"
PAGE = "".join(
    (RUN / f"{name}.md").read_text(encoding="utf-8") for name in ("monitors", "policies")
)
CONTEXT = Context("call", "nonce", "key", "", ChatRequest(dialect="openai", model="demo"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def load_page(tmp_path: Path, text: str) -> dict[str, list[Policy]]:
    (tmp_path / "guards.py").write_text(blocks("python")[0], encoding="utf-8")
    config = parse(text, "page.yaml").config
    assert config is not None
    return {
        name: load(steps, search_path=[str(tmp_path)], session_version="1", redact_key="k" * 32)[0]
        for name, steps in config.policies.items()
    }


def call(name: str, **value: Any) -> ToolCall:
    return ToolCall(
        0, 0, "id", name, json.dumps(value), value, Tool(name, schema={"type": "object"})
    )


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_configuration_on_the_page_loads(tmp_path: Path, text: str) -> None:
    assert all(load_page(tmp_path, text).values())


def test_the_users_policy_has_twenty_lines_and_decides(tmp_path: Path) -> None:
    [code] = blocks("python")
    assert len(code.strip().splitlines()) <= 20
    [policy] = load_page(tmp_path, blocks("yaml")[-1])["default"]
    policy = policy.for_call(CONTEXT)
    assert policy.on_tool_call(call("read_file", path="/srv/project/notes/a-1.txt")) == Allow()


ODD: list[Json] = [
    {"path": path}
    for path in (
        "/etc/passwd",
        "../../etc/passwd",
        "/srv/project/../../etc/passwd",
        "/srv/projects/x",
        "/srv/project",
        "~/.ssh/id_rsa",
        "$HOME/.ssh/id_rsa",
        "file:///etc/passwd",
        " /etc/passwd",
        "/srv/project/a\n",
        "/srv/project/..\\..\\etc",
        "C:\\Windows",
        "/srv/project/%2e%2e/x",
        "/srv/project/.env",
        "/srv/project/a/./b",
        "/srv/project//etc",
        "",
        ["/etc/passwd"],
        {"x": "/etc/passwd"},
        None,
        1,
    )
]
ODD += [
    {"file_path": "/etc/passwd"},
    {"Path": "/etc/passwd"},
    {},
    {"path": "/srv/project/a", "file_path": "/etc/passwd"},
]


@pytest.mark.parametrize("value", ODD)
def test_the_users_policy_blocks_what_it_does_not_understand(tmp_path: Path, value: Json) -> None:
    """Finding C10: the example that authors copy."""
    [policy] = load_page(tmp_path, blocks("yaml")[-1])["default"]
    assert isinstance(policy.for_call(CONTEXT).on_tool_call(call("read_file", **value)), Block)
    assert isinstance(
        policy.for_call(CONTEXT).on_tool_call(call("bash", path="/srv/project/a")), Block
    )


def test_the_rules_on_the_page_decide_as_it_says(tmp_path: Path) -> None:
    [rules] = load_page(tmp_path, next(b for b in blocks("yaml") if "allow:" in b))["rules"]
    rules = rules.for_call(CONTEXT)
    decided = {
        "ls": rules.on_tool_call(call("bash", command="ls -la")),
        "rm": rules.on_tool_call(call("bash", command="ls -la; rm -rf /")),
        "select": rules.on_tool_call(call("query", sql="select 1")),
        "delete": rules.on_tool_call(
            call("query", sql="with x as (delete from t returning *) select * from x")
        ),
        "secret": rules.on_tool_call(call("read_file", path="/app/.env")),
        "unknown": rules.on_tool_call(call("launch")),
    }
    assert {k: v.reason if isinstance(v, Block) else "" for k, v in decided.items()} == {
        "ls": "",
        "rm": "not_allowed",
        "select": "",
        "delete": "not_allowed",
        "secret": "secrets",
        "unknown": "not_allowed",
    }


def test_the_replacement_on_the_page_is_made(tmp_path: Path) -> None:
    text = next(b for b in blocks("yaml") if "allow:" in b)
    [rules] = load_page(tmp_path, text)["rules"]
    said = rules.for_call(CONTEXT).on_tool_call(call("send_mail", to="x"))
    assert said == Replace(
        '{"to": "outbox@example.org", "text": "held for review"}', "rule", "mail"
    )


def test_every_built_in_has_a_section() -> None:
    assert [name for name in BUILT_IN if f"\n## {name}\n" not in PAGE] == []
