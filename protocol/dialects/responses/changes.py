"""What a policy may have changed in a Responses request in two places; `protocol.policy_changes`
says why.

Tools that items of the input bring are in the list of tools and in their item: both must say the
same, for a provider of this dialect reads the items and one of another dialect the list.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.responses import tools_read
from protocol.dialects.responses.items import WITH_TOOLS
from protocol.dialects.responses.parts_read import result_text, text_of
from protocol.dialects.responses.read import INSTRUCTIONS, MODELLED
from protocol.request import (
    ChatRequest,
    OtherPart,
    Part,
    Reasoning,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests.conflicts import Changes, Unclear, refuse_names
from protocol.requests.fields import place_of


def _check(held: Tool | ToolUsePart, at: str) -> None:
    if isinstance(held, Tool):
        namespace = held.outer.get("namespace")
        if namespace is not None and not held.name.startswith(f"{namespace['name']}."):
            raise Unclear(f"{at}.name must begin with the name of its namespace")
        return
    if held.form == "function":
        return
    try:
        value = loads_arguments(held.arguments)
    except AmbiguousJson as error:
        raise Unclear(f"{at}.arguments: {error}") from error
    if held.form == "custom" and (value.keys() != {"input"} or not isinstance(value["input"], str)):
        raise Unclear(f'{at}.arguments of a custom tool are {{"input": text}}')


def _agree(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    refuse_names(after.extra, MODELLED)
    if after.web_search is not None:
        raise Unclear("web_search is of chat/completions: here a search is a tool")
    extra = dict(after.extra)
    changes: dict[str, Any] = {"extra": extra}
    if (
        before.user != after.user
        and extra.get("safety_identifier") == before.extra.get("safety_identifier") is not None
    ):
        # the newer name of the same thing
        extra["safety_identifier"] = after.user
        if after.user is None:
            del extra["safety_identifier"]
    if before.reasoning != after.reasoning:
        changes["reasoning"] = _as_effort(after.reasoning)
    agreed = _with_brought(before, msgspec.structs.replace(after, **changes))
    _check_items(agreed)
    return agreed


def _as_effort(reasoning: Reasoning | None) -> Reasoning | None:
    """The dialect has no number of tokens for it."""
    if reasoning is None:
        return None
    if reasoning.mode == "off" or reasoning.effort == "none":
        return Reasoning("off", "none", summary=reasoning.summary)
    if reasoning.budget_tokens is not None and reasoning.effort is None:
        raise Unclear("reasoning: here it is said by `effort`")
    return Reasoning("", reasoning.effort, summary=reasoning.summary)


# --- tools that items bring ---


def _lists(turns: tuple[Turn, ...]) -> Iterator[tuple[Part, list[Any]]]:
    """Yield each item with tools, and their objects."""
    for turn in turns:
        if turn.role == "user":
            for part in turn.parts:
                if isinstance(part, OtherPart) and part.kind in WITH_TOOLS:
                    yield part, part.body["tools"]
                elif (
                    isinstance(part, ToolResultPart)
                    and part.form == "typed"
                    and _kind(part) in WITH_TOOLS
                ):
                    yield part, part.extra.get("content", [])


def _kind(part: ToolResultPart) -> Any:
    return (part.extra.get("item") or {}).get("type")


def _check_items(request: ChatRequest) -> None:
    """A provider runs its tools wherever in the request they stand: none may be in an item that is
    not in the list, which policies read."""
    offered = {place_of(t) for t in request.tools if t.kind == "server"}
    bodies = (
        p.body
        for t in request.turns
        if t.role == "assistant"
        for p in t.parts
        if isinstance(p, OtherPart) and p.kind in WITH_TOOLS
    )
    for tools in (*_offered_lists(request), *(body.get("tools") for body in bodies)):
        for tool in tools_read.tools(
            tools if isinstance(tools, list) else [tools], "input[].tools"
        ):
            if tool.kind == "server" and place_of(tool) not in offered:
                raise Unclear(
                    f"tools: {tool.name[:60]!r} was taken away, and stands in an item of the"
                    " input, too"
                )


def _offered_lists(request: ChatRequest) -> list[list[Any]]:
    return [offered for _, offered in _lists(request.turns)]


def _with_brought(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    fields = tuple(
        tuple(t for t in request.tools if "item" in t.outer) for request in (before, after)
    )
    words = _offered_lists(before), _offered_lists(after)
    if words[0] == words[1]:
        return after if fields[0] == fields[1] else _rewritten(after, fields[0], fields[1])
    input_tools = {
        t.name: t
        for i, offered in enumerate(words[1])
        for t in tools_read.tools(offered, "input[].tools", item=i)
    }
    if fields[0] == fields[1]:
        request_tools = tuple(t for t in after.tools if "item" not in t.outer)
        return msgspec.structs.replace(after, tools=(*request_tools, *input_tools.values()))
    if any(input_tools.get(t.name) != t for t in fields[1]) or len(input_tools) != len(fields[1]):
        raise Unclear("tools and the items that bring them were both changed, to different things")
    return after


def _rewritten(after: ChatRequest, was: tuple[Tool, ...], now: tuple[Tool, ...]) -> ChatRequest:
    """The request with the tools of its items as the list has them."""
    if len({t.outer["item"] for t in now} - {t.outer["item"] for t in was}):
        raise Unclear("tools: an item that brings tools cannot be made")
    number = -1
    turns = []
    for turn in after.turns:
        parts: list[Part] = []
        for part in turn.parts:
            if any(part is held for held, _ in _lists((turn,))):
                number += 1
                part = _with_tools(part, [t for t in now if t.outer["item"] == number])
            parts.append(part)
        turns.append(
            turn
            if all(a is b for a, b in zip(parts, turn.parts, strict=True))
            else Turn(turn.role, tuple(parts), turn.extra)
        )
    return msgspec.structs.replace(after, turns=tuple(turns))


def _with_tools(part: Part, tools: list[Tool]) -> Part:
    written = write_tools(tools)
    if isinstance(part, OtherPart):
        return (
            part
            if part.body["tools"] == written
            else OtherPart(part.kind, part.body | {"tools": written}, part.dialect)
        )
    if not isinstance(part, ToolResultPart) or part.extra.get("content") == written:
        return part
    return msgspec.structs.replace(
        part, text=result_text(written, ""), extra=part.extra | {"content": written}
    )


def write_tools(tools: list[Tool]) -> list[dict[str, Any]]:
    """Return the objects of tools; neighbours of one namespace are in one object."""
    written: list[dict[str, Any]] = []
    for tool in tools:
        namespace = tool.outer.get("namespace")
        body = _write_tool(tool, namespace["name"] if namespace is not None else "")
        if namespace is None:
            written.append(body)
        elif (
            written
            and written[-1]["type"] == "namespace"
            and written[-1]["name"] == namespace["name"]
        ):
            written[-1]["tools"].append(body)
        else:
            written.append({"type": "namespace", **namespace, "tools": [body]})
    return written


def _write_tool(tool: Tool, namespace: str) -> dict[str, Any]:
    if tool.kind in ("client", "server"):
        return tool.extra
    described = {"description": tool.description} if tool.description else {}
    parameters = {"parameters": tool.schema} if tool.schema and tool.kind == "function" else {}
    name = tool.name.removeprefix(f"{namespace}.") if namespace else tool.name
    return {"type": tool.kind, "name": name, **described, **parameters, **tool.extra}


def _system_texts(messages: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    return tuple(
        m["content"] if m.get("type") == INSTRUCTIONS else text_of(m, "system_messages")
        for m in messages
    )


CHANGES = Changes(
    _agree,
    lambda request: request.system_messages or None,
    _system_texts,
    result_text,
    tools_read.read_tool,
    _check,
)
