"""`texts` and `map_texts` reach every string and key of a request but words of the protocol, in
both dialects."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.base import Policy
from policy.loading import load
from policy.session.effects import Respond
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, DialectName
from protocol.request_texts import map_texts
from protocol.request_texts import texts as texts_of
from settings.config import PolicyStep
from tests.support.checks.approving import approving
from tests.support.clients.changed import MODEL, sent_by
from tests.support.json_values import Json
from tests.support.request_codecs import read_request

ARGUMENTS = '{"command":"r\\u006d","deep":{"er":["x"]}}'
PNG = "iVBORw0KGgo="
SCHEMA = {
    "type": "object",
    "title": "a title",
    "properties": {
        "command": {
            "type": ["string", "null"],
            "description": "what to run",
            "enum": ["ls", "pwd"],
            "$ref": "#/$defs/word",
        }
    },
    "required": ["command"],
    "$defs": {
        "word": {
            "type": "string",
            "pattern": "^a",
            "default": "dear",
            "examples": [{"key": "word"}],
        }
    },
}
BODIES: dict[DialectName, Json] = {
    "openai": {
        "model": "gpt-5-x",
        "stop": ["halt"],
        "user": "alice",
        "safety_identifier": "alice2",
        "metadata": {"team": "red"},
        "prompt_cache_key": "mine",
        "prediction": {"type": "content", "content": [{"type": "text", "text": "foreseen"}]},
        "logit_bias": {"5": 1},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "description": "how to answer", "schema": SCHEMA},
        },
        "messages": [
            {
                "role": "system",
                "name": "boss",
                "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "good"}],
            },
            {
                "role": "user",
                "name": "bob",
                "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": {"url": "https://example.com/a.png", "detail": "low"},
                    },
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                    {
                        "type": "file",
                        "file": {
                            "filename": "plan.pdf",
                            "file_data": "data:application/pdf;base64,JVBERi0=",
                        },
                    },
                ],
            },
            {
                "role": "assistant",
                "content": "said",
                "refusal": "no",
                "reasoning_content": "thought",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "thought more", "signature": "c2ln"}
                ],
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {
                            "name": "bash",
                            "arguments": '{"command":"r\\u006d","deep":{"er":["x"]}}',
                        },
                    },
                    {
                        "id": "c2",
                        "type": "custom",
                        "custom": {"name": "free", "input": "free text"},
                    },
                    {
                        "id": "c3",
                        "type": "function",
                        "function": {"name": "bash", "arguments": "no JSON"},
                    },
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "text", "text": "re"}, {"type": "text", "text": "sult"}],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "plain result"},
            {"role": "tool", "tool_call_id": "c3", "content": "third result"},
            {"role": "system", "content": "later system"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "runs", "parameters": SCHEMA},
            },
            {
                "type": "custom",
                "custom": {
                    "name": "free",
                    "description": "free form",
                    "format": {
                        "type": "grammar",
                        "grammar": {"syntax": "lark", "definition": 'start: "a"'},
                    },
                },
            },
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "bash"}}],
            },
        },
    },
    "anthropic": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "stop_sequences": ["halt"],
        "metadata": {"user_id": "alice"},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
        "system": [
            {"type": "text", "text": "be good", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "one "},
                    {"type": "text", "text": "two"},
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://example.com/a.png"},
                    },
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                    },
                    {
                        "type": "document",
                        "title": "a plan",
                        "context": "about it",
                        "citations": {"enabled": True},
                        "source": {
                            "type": "text",
                            "media_type": "text/plain",
                            "data": "the whole document",
                        },
                    },
                    {
                        "type": "search_result",
                        "title": "hit",
                        "source": "https://e.com",
                        "content": [{"type": "text", "text": "a page"}],
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                    {"type": "text", "text": "said"},
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "bash",
                        "input": {"command": "rm", "deep": {"er": ["x"]}},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "re"},
                            {"type": "text", "text": "sult"},
                            {
                                "type": "document",
                                "title": "in it",
                                "source": {
                                    "type": "text",
                                    "media_type": "text/plain",
                                    "data": "deeper",
                                },
                            },
                        ],
                    }
                ],
            },
        ],
        "tools": [
            {
                "name": "bash",
                "description": "runs",
                "input_schema": SCHEMA,
                "input_examples": [{"command": "ls"}],
            },
            {
                "type": "text_editor_20250728",
                "name": "str_replace_based_edit_tool",
                "max_characters": 500,
            },
        ],
        "tool_choice": {"type": "tool", "name": "bash"},
    },
}
MARK = "Project Falcon"
NO_TEXT = {("model",)}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all strings; `KEY` at the end stands for the last key itself."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    elif isinstance(value, str):
        yield path


def marked(body: Json, path: tuple[Any, ...]) -> Json:
    body = json.loads(json.dumps(body))
    held: Any = body
    for step in path[:-1]:
        held = held[step]
    held[path[-1]] = MARK
    return body


def read(dialect: DialectName, body: Json) -> ChatRequest | None:
    try:
        return read_request(dialect, body)
    except InvalidRequest:
        return None


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_every_string_of_a_request_is_among_its_texts(dialect: DialectName) -> None:
    body, refused, seen = BODIES[dialect], [], 0
    for path in leaves(body):
        if path in NO_TEXT:
            continue
        request = read(dialect, marked(body, path))
        if request is None:
            refused.append(path)
            continue
        seen += 1
        assert any(MARK in text for text in texts_of(request)), path
        assert MARK not in repr(map_texts(request, lambda text: text.replace(MARK, "it"))), path
    # words of the protocol, of which the reader takes no others
    assert seen > 40 and all(path[-1] in ("type", "role", "mode") for path in refused), refused


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_every_key_that_somebody_chose_is_among_them(dialect: DialectName) -> None:
    texts = set(texts_of(read_request(dialect, BODIES[dialect])))
    assert {"command", "deep", "er", "word", "key"} <= texts
    assert not texts & {
        "type",
        "role",
        "properties",
        "image_url",
        "low",
        "base64",
        "image/png",
        "object",
        PNG,
        "json_schema",
        "ephemeral",
        "1h",
    }


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_texts_that_are_read_as_one_are_asked_about_as_one(dialect: DialectName) -> None:
    texts = list(texts_of(read_request(dialect, BODIES[dialect])))
    assert "one two" in texts and "rm" in texts and any(t.startswith("result") for t in texts)


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_nothing_changed_is_nothing_changed(client: DialectName, upstream: DialectName) -> None:
    policy = approving(lambda r: map_texts(r, lambda text: text))
    assert body_of(client, upstream, policy) == body_of(client, upstream, Policy())


def body_of(client: DialectName, upstream: DialectName, policy: Policy) -> Json:
    body = {**BODIES[client], "model": MODEL[upstream]}
    if client != upstream:
        body = json.loads(json.dumps(body).replace('"arguments": "no JSON"', '"arguments": "{}"'))
        for name in ("prediction", "logit_bias", "metadata"):
            body.pop(name, None)
        if client == "openai":
            del body["tools"][1]["custom"]["format"]
    sent = sent_by(client, upstream, policy, body=body)
    assert not isinstance(sent, Respond), sent.body
    return sent


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_the_form_stays_whatever_becomes_of_the_texts(
    client: DialectName, upstream: DialectName
) -> None:
    def shouted(text: str) -> str:
        return text.upper() if not text.startswith("https:") else text

    sent = body_of(client, upstream, approving(lambda r: map_texts(r, shouted)))
    said = json.dumps(sent)
    for word in (
        "be good",
        '"said',
        '"sult"',
        "what to run",
        "halt",
        "alice",
        "a plan",
        "deep",
        '"bash"',
    ):
        assert word not in said
    for word in (
        "BE GOOD" if client == "anthropic" else "BE ",
        "SAID",
        "WHAT TO RUN",
        "HALT",
        "DEEP",
        '"BASH"',
        "PLAN",
    ):
        assert word in said


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_a_phrase_over_two_parts_does_not_stay(client: DialectName, upstream: DialectName) -> None:
    sent = body_of(
        client,
        upstream,
        approving(
            lambda r: map_texts(
                r, lambda text: text.replace("one two", "***").replace("result", "***")
            )
        ),
    )
    said = json.dumps(sent)
    assert '"one "' not in said and '"sult"' not in said and said.count("***") >= 2


def test_keys_that_become_one_are_refused() -> None:
    request = read_request("openai", BODIES["openai"])
    with pytest.raises(ValueError, match="two keys"):
        map_texts(request, lambda text: "x")


def test_the_example_on_the_page_keeps_its_word(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "run" / "policies.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "projects.py").write_text(code, encoding="utf-8")
    step = PolicyStep.model_validate({"use": "projects:NoProjects", "name": "Project Falcon"})
    [policy], _ = load([step], search_path=[str(tmp_path)], session_version="1")
    asked = {"messages": [{"role": "user", "content": "Project Falcon is go"}]}
    sent = sent_by("openai", "openai", policy, body=asked)
    assert isinstance(sent, dict) and sent["messages"] == [
        {"role": "user", "content": "the project is go"}
    ]
    tool = {"type": "function", "function": {"name": "Project Falcon"}}
    assert isinstance(sent_by("openai", "openai", policy, body=asked | {"tools": [tool]}), Respond)


def test_the_page_names_every_field_of_a_request() -> None:
    page = (
        (Path(__file__).parents[2] / "docs" / "run" / "policies.md")
        .read_text(encoding="utf-8")
        .split("\n## Requests\n")[1]
        .split("\n## ")[0]
    )
    assert [name for name in ChatRequest.__struct_fields__ if f"`{name}`" not in page] == []
