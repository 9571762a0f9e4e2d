"""A policy's change of a request arrives: every field, in each of the four directions, returned or
made in place; or it is refused."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from policy.base import Policy
from policy.session.effects import Respond
from protocol.request import (
    ChatRequest,
    ConversationState,
    DialectName,
    OtherPart,
    Reasoning,
    ResponseFormat,
    TextPart,
    Tool,
    ToolChoice,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from tests.support.checks.approving import SCHEMA, approving
from tests.support.clients.changed import BODIES, MODEL, every_way, sent_by, texts
from tests.support.json_values import Json

OTHER = {
    "type": "object",
    "properties": {"b": {"type": "string"}},
    "required": ["b"],
    "additionalProperties": False,
}


def replacing(**changes: Any) -> Callable[[ChatRequest], ChatRequest]:
    return lambda request: msgspec.structs.replace(request, **changes)


def at(body: Json, path: str) -> Any:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def by(openai: Any, anthropic: Any) -> Callable[[DialectName, DialectName, Json], bool]:
    """A check by the dialect of the upstream."""
    return lambda client, upstream, body: bool(
        (openai if upstream == "openai" else anthropic)(body)
    )


def new_turns(request: ChatRequest) -> tuple[Turn, ...]:
    return (
        Turn("user", (TextPart("new question"),)),
        Turn("assistant", (TextPart("new answer"), ToolUsePart("c1", "bash", '{"new":1}'))),
        Turn("user", (ToolResultPart("c1", "new result", is_error=True),)),
    )


def has_new_turns(body: Json) -> bool:
    said = texts(body["messages"])
    is_error = '"is_error": true' in said or "[error] new result" in said
    return (
        all(word in said for word in ("new question", "new answer", "new result"))
        and "old question" not in said
        and is_error
    )


Check = Callable[[DialectName, DialectName, Json], bool]
Change = Callable[[ChatRequest], Any]


def names(body: Json) -> list[str]:
    return [t.get("name") or t["function"]["name"] for t in body.get("tools", ())]


CHANGES: dict[str, list[tuple[Change, Check]]] = {
    "model": [
        (
            lambda r: msgspec.structs.replace(r, model=r.model + "-new"),
            lambda c, u, b: b["model"] == MODEL[u] + "-new",
        )
    ],
    "system": [
        (
            replacing(system=("new system",)),
            lambda c, u, b: "new system" in texts(b) and "old system" not in texts(b),
        ),
        (replacing(system=()), lambda c, u, b: "old system" not in texts(b)),
        (
            replacing(system=("new system",), system_messages=()),
            lambda c, u, b: "new system" in texts(b) and "old system" not in texts(b),
        ),
    ],
    "turns": [
        (lambda r: msgspec.structs.replace(r, turns=new_turns(r)), lambda c, u, b: has_new_turns(b))
    ],
    "tools": [
        (
            lambda r: msgspec.structs.replace(r, tools=r.tools[1:]),
            lambda c, u, b: names(b) == ["read"],
        ),
        (
            lambda r: msgspec.structs.replace(r, tools=(Tool("new", "new words", SCHEMA),)),
            lambda c, u, b: names(b) == ["new"],
        ),
        (
            lambda r: msgspec.structs.replace(
                r, tools=tuple(msgspec.structs.replace(t, description="new words") for t in r.tools)
            ),
            lambda c, u, b: (
                texts(b["tools"]).count("new words") == 2 and '"old"' not in texts(b["tools"])
            ),
        ),
        (
            lambda r: msgspec.structs.replace(
                r, tools=tuple(msgspec.structs.replace(t, schema=OTHER) for t in r.tools)
            ),
            lambda c, u, b: '"b"' in texts(b["tools"]) and '"command"' not in texts(b["tools"]),
        ),
    ],
    "tool_choice": [
        (
            replacing(tool_choice=ToolChoice("none")),
            by(lambda b: b["tool_choice"] == "none", lambda b: b["tool_choice"]["type"] == "none"),
        ),
        (
            replacing(tool_choice=ToolChoice("tool", "read"), reasoning=None, response_format=None),
            by(
                lambda b: b["tool_choice"] == {"type": "function", "function": {"name": "read"}},
                lambda b: b["tool_choice"]["type"] == "tool" and b["tool_choice"]["name"] == "read",
            ),
        ),
        (
            replacing(tool_choice=ToolChoice("auto", allowed=("read",))),
            lambda c, u, b: (
                names(b) == ["read"]
                or at(b, "tool_choice.allowed_tools.tools")
                == [{"type": "function", "function": {"name": "read"}}]
            ),
        ),
        (
            replacing(tool_choice=None),
            lambda c, u, b: b.get("tool_choice") in (None, {"type": "auto"}),
        ),
    ],
    "parallel_tool_calls": [
        (
            replacing(parallel_tool_calls=False),
            by(
                lambda b: b["parallel_tool_calls"] is False,
                lambda b: b["tool_choice"]["disable_parallel_tool_use"] is True,
            ),
        )
    ],
    "max_tokens": [
        (
            replacing(max_tokens=3_000),
            lambda c, u, b: {b.get("max_tokens"), b.get("max_completion_tokens")} == {3_000, None},
        ),
        (
            replacing(max_tokens=None, reasoning=None),
            by(
                lambda b: "max_tokens" not in b and "max_completion_tokens" not in b,
                lambda b: b["max_tokens"] == 4_096,
            ),
        ),
    ],
    "temperature": [
        (
            replacing(temperature=0.5, reasoning=None, top_p=None, model="gpt-4o-x"),
            lambda c, u, b: b.get("temperature") == 0.5,
        ),
        (replacing(temperature=None), lambda c, u, b: "temperature" not in b),
    ],
    "top_p": [
        (
            replacing(top_p=0.97, reasoning=None, temperature=None, model="gpt-4o-x"),
            lambda c, u, b: b.get("top_p") == 0.97,
        ),
        (replacing(top_p=None), lambda c, u, b: "top_p" not in b),
    ],
    "stop": [
        (
            replacing(stop=("new stop",)),
            lambda c, u, b: (b.get("stop") or b.get("stop_sequences")) == ["new stop"],
        ),
        (replacing(stop=()), lambda c, u, b: "old stop" not in texts(b)),
    ],
    "user": [
        (
            replacing(user="anon"),
            lambda c, u, b: "alice" not in texts(b) and user_of(c, u, b) == "anon",
        ),
        (
            replacing(user=None),
            lambda c, u, b: (
                "alice" not in texts(b) and user_of(c, u, b) is None and "metadata" not in b
            ),
        ),
    ],
    "response_format": [
        (
            replacing(
                response_format=ResponseFormat(
                    "json_schema", "new_answer", OTHER, None, "new words"
                )
            ),
            lambda c, u, b: '"b"' in texts(b) and '"a"' not in texts(b) and "new words" in texts(b),
        ),
        (
            replacing(response_format=None),
            lambda c, u, b: (
                '"a"' not in texts(b)
                and "response_format" not in b
                and not at(b, "output_config.format")
            ),
        ),
    ],
    "reasoning": [
        (replacing(reasoning=None), lambda c, u, b: thought(b) == (None, None)),
        (
            replacing(reasoning=Reasoning("off")),
            lambda c, u, b: thought(b) in (("disabled", None), (None, "none"), (None, "minimal")),
        ),
        (
            replacing(reasoning=Reasoning("", "low")),
            lambda c, u, b: thought(b) in ((None, "low"), ("enabled", None)),
        ),
        (
            replacing(reasoning=Reasoning("budget", None, 1_500)),
            lambda c, u, b: (
                thought(b) in ((None, "low"), ("enabled", None))
                and at(b, "thinking.budget_tokens") in (None, 1_500, 1_024, 2_048)
            ),
        ),
    ],
    "web_search": [
        (
            replacing(web_search={"search_context_size": "low"}),
            lambda c, u, b: c == "openai" and "search" in texts(b),
        )
    ],
    "extra": [
        (
            lambda r: msgspec.structs.replace(
                r, extra={k: v for k, v in r.extra.items() if k == "system"}
            ),
            lambda c, u, b: (
                not {
                    "seed",
                    "metadata",
                    "thinking",
                    "output_config",
                    "max_completion_tokens",
                }
                & b.keys()
                or crossed(c, u)
            ),
        ),
        (
            lambda r: msgspec.structs.replace(
                r, extra=r.extra | ({"top_k": 7} if r.dialect == "anthropic" else {"seed": 7})
            ),
            lambda c, u, b: 7 in b.values() or c != u,
        ),
    ],
    "system_messages": [
        (
            replacing(system_messages=({"role": "system", "content": "new system"},)),
            lambda c, u, b: (
                c == "openai" and "new system" in texts(b) and "old system" not in texts(b)
            ),
        )
    ],
    "dialect": [
        (
            lambda r: msgspec.structs.replace(
                r, dialect="anthropic" if r.dialect == "openai" else "openai"
            ),
            lambda c, u, b: False,
        )
    ],
    "stream": [(replacing(stream=True), lambda c, u, b: False)],
    "include_usage": [(replacing(include_usage=True), lambda c, u, b: False)],
    "is_as_written": [(replacing(is_as_written=False), lambda c, u, b: False)],
    "legacy_functions": [(replacing(legacy_functions=True), lambda c, u, b: False)],
    "state": [(replacing(state=ConversationState("resp_1")), lambda c, u, b: False)],
    "verbosity": [(replacing(verbosity="low"), lambda c, u, b: False)],
    "max_tool_calls": [(replacing(max_tool_calls=3), lambda c, u, b: False)],
    "echo": [(replacing(echo={"a": 1}), lambda c, u, b: "a" not in b)],
}
REFUSED = {
    "dialect",
    "stream",
    "include_usage",
    "is_as_written",
    "legacy_functions",
    "state",
    "verbosity",
    "max_tool_calls",
}
"""Fields that a policy cannot change: the client's answer is written by them."""
OF_CHAT = {"web_search", "system_messages"}
"""Fields that only chat/completions has."""


def crossed(client: DialectName, upstream: DialectName) -> bool:
    return client != upstream


def thought(body: Json) -> tuple[Any, Any]:
    return at(body, "thinking.type"), at(body, "output_config.effort") or body.get(
        "reasoning_effort"
    )


def user_of(client: DialectName, upstream: DialectName, body: Json) -> Any:
    found = (
        at(body, "metadata.user_id")
        if upstream == "anthropic"
        else body.get("user") or body.get("safety_identifier")
    )
    if (client, upstream) == ("openai", "anthropic") and found is not None:
        # a digest, as the vendor asks
        return {digest("anon"): "anon", digest("alice"): "alice"}[found]
    return found


def digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


CASES = [(name, number) for name, changes in CHANGES.items() for number in range(len(changes))]


def test_the_table_has_every_field() -> None:
    assert CHANGES.keys() == set(ChatRequest.__struct_fields__)


@every_way
def test_nothing_changed_goes_out_as_it_came(client: DialectName, upstream: DialectName) -> None:
    for policy in (
        approving(lambda request: request),
        approving(lambda request: msgspec.structs.replace(request)),
        Policy(),
    ):
        assert sent_by(client, upstream, policy) == sent_by(client, upstream)


@every_way
@pytest.mark.parametrize(("field", "number"), CASES)
def test_a_replaced_value_is_what_goes_out(
    field: str, number: int, client: DialectName, upstream: DialectName
) -> None:
    change, check = CHANGES[field][number]
    model = {"model": "gpt-4o-x"} if upstream == "openai" else {}
    if field in ("temperature", "top_p") and upstream == "anthropic":
        # the change names a model of the other vendor
        whole = change
        change = lambda r: msgspec.structs.replace(whole(r), model=r.model)  # noqa: E731
    body = {**BODIES[client], **(model if field in ("temperature", "top_p") else {})}
    if field == "reasoning":
        # in the middle of a tool loop the API refuses to begin to think
        body["messages"] = [{"role": "user", "content": "old question"}]
    sent = sent_by(client, upstream, approving(change), body=body)
    if field in REFUSED or (field in OF_CHAT and client == "anthropic"):
        assert (
            isinstance(sent, Respond)
            and sent.status == 403
            and b"changed the request in a way that cannot be sent" in sent.body
        )
        return
    if field == "web_search" and isinstance(sent, Respond):
        # this model cannot search: said by name
        assert b"web_search" in sent.body
        return
    assert not isinstance(sent, Respond), sent.body
    assert check(client, upstream, sent), sent


UNCLEAR: dict[str, tuple[str, Change]] = {
    "a modelled name in extra": (
        "anthropic",
        lambda r: msgspec.structs.replace(r, extra=r.extra | {"temperature": 0}),
    ),
    "several answers": ("openai", lambda r: msgspec.structs.replace(r, extra=r.extra | {"n": 2})),
    "user twice": (
        "anthropic",
        lambda r: msgspec.structs.replace(
            r, user="a", extra=r.extra | {"metadata": {"user_id": "b"}}
        ),
    ),
    "reasoning twice": (
        "anthropic",
        lambda r: msgspec.structs.replace(
            r, reasoning=None, extra=r.extra | {"thinking": {"type": "adaptive"}}
        ),
    ),
    "system twice": (
        "anthropic",
        lambda r: msgspec.structs.replace(
            r, system=("a",), extra=r.extra | {"system": [{"type": "text", "text": "b"}]}
        ),
    ),
    "system taken from extra": (
        "anthropic",
        lambda r: msgspec.structs.replace(
            r, extra={k: v for k, v in r.extra.items() if k != "system"}
        ),
    ),
    "system messages taken away": ("openai", replacing(system_messages=())),
    "an image in the system prompt": (
        "openai",
        replacing(system_messages=({"role": "system", "content": [{"type": "image_url"}]},)),
    ),
    "json_object for Messages": (
        "anthropic",
        replacing(response_format=ResponseFormat("json_object")),
    ),
    "a budget without number": ("anthropic", replacing(reasoning=Reasoning("budget"))),
    "a typed tool's schema": (
        "anthropic",
        replacing(
            tools=(
                Tool(
                    "bash",
                    schema=SCHEMA,
                    extra={"type": "bash_20250124", "name": "bash"},
                    kind="client",
                ),
            )
        ),
    ),
    "a tool without name": ("openai", replacing(tools=(Tool(""),))),
    "a schema in extra": ("openai", replacing(tools=(Tool("x", extra={"parameters": {}}),))),
    "outer of the other dialect": (
        "anthropic",
        replacing(tools=(Tool("x", schema=SCHEMA, outer={"x": 1}),)),
    ),
    "an image in a system turn": (
        "openai",
        replacing(
            turns=(Turn("system", (OtherPart("image_url", {"type": "image_url"}, "openai"),)),)
        ),
    ),
    "a result of the assistant": (
        "openai",
        replacing(turns=(Turn("assistant", (ToolResultPart("c", "x"),)),)),
    ),
    "a call of the user": (
        "anthropic",
        replacing(turns=(Turn("user", (ToolUsePart("c", "x", "{}"),)),)),
    ),
    "a kind that is not its body's": (
        "openai",
        replacing(turns=(Turn("user", (OtherPart("file", {"type": "image_url"}, "openai"),)),)),
    ),
    "a part of the other dialect": (
        "openai",
        replacing(turns=(Turn("user", (OtherPart("image", {"type": "image"}, "anthropic"),)),)),
    ),
    "text in extra": ("openai", replacing(turns=(Turn("user", (TextPart("a", {"text": "b"}),)),))),
    "a role in extra": (
        "openai",
        replacing(turns=(Turn("user", (TextPart("a"),), {"role": "system"}),)),
    ),
    "a custom call's arguments": (
        "openai",
        replacing(turns=(Turn("assistant", (ToolUsePart("c", "x", "{}", form="custom"),)),)),
    ),
    "a custom call that is no JSON": (
        "openai",
        replacing(turns=(Turn("assistant", (ToolUsePart("c", "x", "{", form="custom"),)),)),
    ),
    "a result twice": (
        "openai",
        lambda r: msgspec.structs.replace(
            r,
            turns=(
                Turn(
                    "user",
                    (
                        ToolResultPart(
                            "c1", "a", extra={"content": [{"type": "text", "text": "b"}]}
                        ),
                    ),
                ),
            ),
        ),
    ),
    "no model": ("openai", replacing(model="")),
}


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("change", UNCLEAR)
def test_a_change_that_has_two_meanings_is_refused(change: str, upstream: DialectName) -> None:
    client, how = UNCLEAR[change]
    sent = sent_by(client, upstream, approving(how))
    assert isinstance(sent, Respond) and sent.status == 403, sent
    assert b"changed the request in a way that cannot be sent" in sent.body


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
def test_what_is_counted_is_what_a_policy_left(upstream: DialectName) -> None:
    client: DialectName = "anthropic"
    policy = approving(
        replacing(system=("new system",), turns=(Turn("user", (TextPart("new question"),)),))
    )
    sent = sent_by(client, upstream, policy, endpoint="count_tokens")
    if upstream == "openai":
        assert isinstance(sent, Respond) and sent.status == 200
        plain = sent_by(client, upstream, endpoint="count_tokens")
        assert (
            isinstance(plain, Respond)
            and json.loads(sent.body)["input_tokens"] < json.loads(plain.body)["input_tokens"]
        )
        return
    assert (
        "new question" in texts(sent)
        and "old question" not in texts(sent)
        and "old system" not in texts(sent)
    )


@every_way
def test_two_tools_of_one_name_are_refused_from_a_policy_too(
    client: DialectName, upstream: DialectName
) -> None:
    """Clients' are refused when they are read: a call could be held against the one and run as the
    other."""
    sent = sent_by(
        client,
        upstream,
        approving(lambda request: msgspec.structs.replace(request, tools=request.tools[:1] * 2)),
    )
    assert (
        isinstance(sent, Respond)
        and sent.status == 403
        and b"two tools have the same name" in sent.body
    )
