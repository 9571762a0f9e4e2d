"""What a policy's change of a request means, so that it goes out the same to a provider of either dialect.

Theory. Some things stand in two places of a ChatRequest: in a field of its own, and as they came in `extra` or `system_messages`,
with words that the field does not have. Where a policy changed one of the two, that is what it meant, and the other follows. Where it
changed both to different things, or said what its dialect has no place for, nothing is guessed: the request is refused.

Must not know: policies, providers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from protocol.anthropic import read as anthropic_request_read
from protocol.errors import InvalidRequest
from protocol.fields import refuse_twins
from protocol.json_strict import AmbiguousJson, loads_arguments
from protocol.openai_chat import messages_read as openai_messages_read
from protocol.openai_chat import read as openai_request_read
from protocol.openai_chat import tools_read as openai_tools_read
from protocol.request import ChatRequest, OtherPart, Part, Reasoning, ResponseFormat, TextPart, Tool, ToolResultPart, ToolUsePart, Turn

_FORM = ("dialect", "stream", "include_usage", "legacy_functions")
"""What the client's answer is written by."""
_EFFORT_WORDS = ("thinking", "reasoning", "enable_thinking", "thinking_budget", "include_reasoning")
"""Words of vendors for what `reasoning_effort` says."""
_BUDGETS = ((2048, "low"), (8192, "medium"))
_MODES = {"off": "disabled", "budget": "enabled", "adaptive": "adaptive"}
_OWN_NAMES = {
    TextPart: frozenset(("type", "text")),
    ToolUsePart: frozenset(("id", "type", "function", "custom", "name", "input", "arguments")),
    ToolResultPart: frozenset(("role", "type", "tool_call_id", "tool_use_id", "is_error")),
    Turn: frozenset(("role", "content", "tool_calls", "function_call")),
    Tool: frozenset(("name", "description", "parameters", "input_schema")),
}
_PLACES: dict[str, tuple[type[Part], ...]] = {
    "system": (TextPart,), "user": (TextPart, ToolResultPart, OtherPart), "assistant": (TextPart, ToolUsePart, OtherPart),
}  # fmt: skip


class Unclear(ValueError):
    """The change cannot be sent as it was meant; the message says which, without the request's content."""


def reconciled(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    """Return `after`, in which what stands twice agrees. Raises Unclear."""
    for name in _FORM:
        if getattr(before, name) != getattr(after, name):
            raise Unclear(f"{name} is the client's to choose: its answer is written by it")
    if not after.model or len(after.model) > 200:
        raise Unclear("model is no name")
    try:
        after = _anthropic(before, after) if after.dialect == "anthropic" else _openai(before, after)
        _check_tools(after)
        return msgspec.structs.replace(after, turns=tuple(_turns(before, after)))
    except InvalidRequest as error:
        raise Unclear(error.message) from error


def _follow(name: str, fields: tuple[Any, Any], words: tuple[Any, Any]) -> bool | None:
    """Which of the two was changed, each given before and after: True the words beside the field, False the field, None neither.

    Both, to the same thing, is neither.
    """
    if words[0] == words[1]:
        return None if fields[0] == fields[1] else False
    if fields[0] == fields[1]:
        return True
    if fields[1] != words[1]:
        raise Unclear(f"{name} and what says the same in `extra` were both changed, to different things")
    return None


# --- Messages ---


def _anthropic(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    _refuse_names(after.extra, anthropic_request_read.MODELLED)
    if after.web_search is not None or after.system_messages:
        raise Unclear("web_search and system_messages are of chat/completions: here a search is a tool, the system prompt `system`")
    extra = dict(after.extra)
    after = _system(before, after)
    user = (_user(before.extra), _user(extra))
    if (which := _follow("user", (before.user, after.user), user)) is False:
        _write(extra, "metadata", "user_id", after.user)
    elif which:
        after = msgspec.structs.replace(after, user=user[1])
    thought = (anthropic_request_read.read_reasoning(before.extra), anthropic_request_read.read_reasoning(extra))
    if (which := _follow("reasoning", (before.reasoning, after.reasoning), thought)) is False:
        _write_reasoning(extra, after.reasoning)
    elif which:
        after = msgspec.structs.replace(after, reasoning=thought[1])
    form = (anthropic_request_read.read_response_format(before.extra), anthropic_request_read.read_response_format(extra))
    if (which := _follow("response_format", (before.response_format, after.response_format), form)) is False:
        _write_format(extra, after.response_format)
    elif which:
        after = msgspec.structs.replace(after, response_format=form[1])
    return msgspec.structs.replace(after, extra=extra)


def _user(extra: dict[str, Any]) -> Any:
    metadata = extra.get("metadata")
    return metadata.get("user_id") if isinstance(metadata, dict) else None


def _write(extra: dict[str, Any], name: str, key: str, value: Any) -> None:
    """Write one word into an object of `extra`, which goes where nothing is left in it."""
    held = extra.get(name)
    rest = {k: v for k, v in held.items() if k != key} if isinstance(held, dict) else {}
    if value is not None:
        rest[key] = value
    extra.pop(name, None)
    if rest:
        extra[name] = rest


def _write_reasoning(extra: dict[str, Any], reasoning: Reasoning | None) -> None:
    mode = "off" if reasoning is not None and reasoning.effort == "none" else reasoning.mode if reasoning is not None else ""
    effort = reasoning.effort if reasoning is not None and reasoning.effort != "none" else None
    _write(extra, "output_config", "effort", effort)
    held = extra.pop("thinking", None)
    if not mode:
        return
    was = anthropic_request_read.read_reasoning({"thinking": held})
    thinking = dict(held) if was is not None and was.mode == mode else {"type": _MODES[mode]}
    if mode == "budget":
        if reasoning is None or reasoning.budget_tokens is None:
            raise Unclear("reasoning of the mode budget needs budget_tokens")
        thinking["budget_tokens"] = reasoning.budget_tokens
    extra["thinking"] = thinking


def _write_format(extra: dict[str, Any], form: ResponseFormat | None) -> None:
    extra.pop("output_format", None)
    if form is None:
        _write(extra, "output_config", "format", None)
        return
    if form.mode != "json_schema":
        raise Unclear("response_format: the Messages dialect has json_schema alone")
    schema = {"description": form.description} | form.schema if form.description else form.schema
    _write(extra, "output_config", "format", {"type": "json_schema", "schema": schema})


# --- chat/completions ---


def _openai(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    _refuse_names(after.extra, openai_request_read.MODELLED)
    openai_request_read.refuse_many_answers(after.extra)
    extra = dict(after.extra)
    changes: dict[str, Any] = {"extra": extra}
    after = _system(before, after)
    limit = (before.extra.get("max_completion_tokens"), extra.get("max_completion_tokens"))
    if (which := _follow("max_tokens", (before.max_tokens, after.max_tokens), limit)) is False and limit[1] is not None:
        _put(extra, "max_completion_tokens", after.max_tokens)
    elif which:
        changes["max_tokens"] = limit[1]
    if before.user != after.user and extra.get("safety_identifier") == before.extra.get("safety_identifier") is not None:
        # the newer name of the same thing
        _put(extra, "safety_identifier", after.user)
    if before.reasoning != after.reasoning:
        changes["reasoning"] = _as_effort(after.reasoning)
        for name in _EFFORT_WORDS:
            if name in extra and extra[name] == before.extra.get(name):
                del extra[name]
    if after.response_format is not None and "response_format" in extra:
        if extra["response_format"] != before.extra.get("response_format"):
            raise Unclear("response_format and what says the same in `extra` were both changed, to different things")
        del extra["response_format"]
    return msgspec.structs.replace(after, **changes)


def _put(extra: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        del extra[name]
    else:
        extra[name] = value


def _as_effort(reasoning: Reasoning | None) -> Reasoning | None:
    """The dialect has one word for it, `reasoning_effort`."""
    if reasoning is None or reasoning.effort == "none" or reasoning.mode == "off":
        return None if reasoning is None else Reasoning("off", "none")
    effort = reasoning.effort
    if effort is None and reasoning.budget_tokens is not None:
        tokens = reasoning.budget_tokens
        effort = next((word for most, word in _BUDGETS if tokens <= most), "high")
    return None if effort is None else Reasoning("", effort)


# --- both ---


def _refuse_names(extra: dict[str, Any], modelled: frozenset[str]) -> None:
    for name in extra:
        if name in modelled:
            raise Unclear(f"extra[{name!r}]: that has a field of its own")


def _system(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    """The system prompt as texts, and as it came: with what its parts carry besides."""
    read: Callable[[ChatRequest], Any]
    said: tuple[str, ...]
    if after.dialect == "anthropic":
        read = lambda r: r.extra.get("system")  # noqa: E731 - one of two, side by side
    else:
        read = lambda r: r.system_messages or None  # noqa: E731
    came, comes = read(before), read(after)
    if came == comes:
        return after
    if comes is None:
        if after.system == before.system:
            raise Unclear("the system prompt as it came was taken away, and `system` was not changed: say in `system` what is meant")
        return after
    said = anthropic_request_read.read_system(comes) if after.dialect == "anthropic" else openai_messages_read.texts(comes)
    if _follow("system", (before.system, after.system), (None, said)):
        return msgspec.structs.replace(after, system=said)
    return after


def _check_tools(request: ChatRequest) -> None:
    refuse_twins(request.tools)
    for position, tool in enumerate(request.tools):
        at = f"tools[{position}]"
        if not tool.name:
            raise Unclear(f"{at} has no name")
        if tool.kind in ("client", "server"):
            read = anthropic_request_read.read_tool if request.dialect == "anthropic" else openai_tools_read.read_tool
            if read(tool.extra, position) != tool:
                raise Unclear(f"{at} is of a provider's own type: what it is stands in its `extra` alone")
        elif not _OWN_NAMES[Tool].isdisjoint(tool.extra) or (
            request.dialect == "anthropic" and tool.extra.get("type") not in ("custom", None)
        ):
            raise Unclear(f"{at}.extra has what has a field of its own")
        elif request.dialect == "anthropic" and tool.outer:
            raise Unclear(f"{at}.outer is of chat/completions")
        if request.legacy_functions and tool.kind != "function":
            raise Unclear(f"{at}: this client offers functions alone")


def _turns(before: ChatRequest, after: ChatRequest) -> Iterator[Turn]:
    results: dict[str, ToolResultPart] | None = None
    known = set(map(id, before.turns))
    for position, turn in enumerate(after.turns):
        if id(turn) in known:
            yield turn
            continue
        at, parts = f"turns[{position}]", list(turn.parts)
        _check_extra(turn, at)
        for number, part in enumerate(turn.parts):
            _check_part(part, turn, before, f"{at}.parts[{number}]")
            if type(part) is ToolResultPart and isinstance(part.extra.get("content"), list):
                if results is None:
                    results = {p.tool_call_id: p for t in before.turns for p in t.parts if type(p) is ToolResultPart}
                parts[number] = _result(results.get(part.tool_call_id), part, after)
        yield Turn(turn.role, tuple(parts), turn.extra)


def _check_extra(held: TextPart | ToolUsePart | ToolResultPart | Turn, at: str) -> None:
    if held.extra and not _OWN_NAMES[type(held)].isdisjoint(held.extra):
        raise Unclear(f"{at}.extra has what has a field of its own")


def _check_part(part: Part, turn: Turn, request: ChatRequest, at: str) -> None:
    if type(part) not in _PLACES[turn.role]:
        raise Unclear(f"{at}: a turn of the role {turn.role} cannot hold a {type(part).__name__}")
    if isinstance(part, OtherPart):
        if part.body.get("type") != part.kind:
            raise Unclear(f"{at}: `kind` is not the type that its body has")
        # a turn that goes on holds what upstream sent, as it was
        if part.dialect != request.dialect and not any(part in t.parts for t in request.turns):
            raise Unclear(f"{at} is of the other dialect")
        return
    _check_extra(part, at)
    if isinstance(part, ToolUsePart) and part.form == "custom" and request.dialect == "openai":
        try:
            value = loads_arguments(part.arguments)
        except AmbiguousJson as error:
            raise Unclear(f"{at}.arguments: {error}") from error
        if value.keys() != {"input"} or not isinstance(value["input"], str):
            raise Unclear(f'{at}.arguments of a custom tool are {{"input": text}}')


def _result(before: ToolResultPart | None, after: ToolResultPart, request: ChatRequest) -> ToolResultPart:
    """A result's text, and the parts it came as: where a policy rewrote the text, that is all that goes out."""
    read = anthropic_request_read.result_text if request.dialect == "anthropic" else openai_messages_read.result_text
    said = read(after.extra["content"], "")
    if said == after.text or (before is not None and after.extra["content"] == before.extra.get("content")):
        return after
    if before is not None and after.text == before.text:
        return msgspec.structs.replace(after, text=said)
    raise Unclear("the text of a tool's result and its parts were both changed, to different things")
