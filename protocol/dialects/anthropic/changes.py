"""What a policy may have changed in a Messages request in two places; `protocol.policy_changes`
says why."""

from typing import Any

import msgspec

from protocol.dialects.anthropic.read import (
    MODELLED,
    read_reasoning,
    read_response_format,
    read_system,
    read_tool,
    result_text,
)
from protocol.request import ChatRequest, Reasoning, ResponseFormat, Tool, ToolUsePart
from protocol.requests.conflicts import Changes, Unclear, follow, refuse_names

_MODES = {"off": "disabled", "budget": "enabled", "adaptive": "adaptive"}


def _check(held: Tool | ToolUsePart, at: str) -> None:
    if isinstance(held, Tool) and held.extra.get("type") not in ("custom", None):
        raise Unclear(f"{at}.extra has what has a field of its own")
    if isinstance(held, Tool) and held.outer:
        raise Unclear(f"{at}.outer is of chat/completions")


def _agree(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    refuse_names(after.extra, MODELLED)
    if (before.verbosity, before.max_tool_calls) != (after.verbosity, after.max_tool_calls):
        raise Unclear("verbosity and max_tool_calls are of Responses")
    if after.web_search is not None or after.system_messages:
        raise Unclear(
            "web_search and system_messages are of chat/completions: here a search is a tool, the"
            " system prompt `system`"
        )
    extra = dict(after.extra)
    user = (_user(before.extra), _user(extra))
    if (which := follow("user", (before.user, after.user), user)) is False:
        _write(extra, "metadata", "user_id", after.user)
    elif which:
        after = msgspec.structs.replace(after, user=user[1])
    thought = (read_reasoning(before.extra), read_reasoning(extra))
    if (which := follow("reasoning", (before.reasoning, after.reasoning), thought)) is False:
        _write_reasoning(extra, after.reasoning)
    elif which:
        after = msgspec.structs.replace(after, reasoning=thought[1])
    form = (read_response_format(before.extra), read_response_format(extra))
    if (
        which := follow("response_format", (before.response_format, after.response_format), form)
    ) is False:
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
    fields = {k: v for k, v in held.items() if k != key} if isinstance(held, dict) else {}
    if value is not None:
        fields[key] = value
    extra.pop(name, None)
    if fields:
        extra[name] = fields


def _write_reasoning(extra: dict[str, Any], reasoning: Reasoning | None) -> None:
    mode = (
        "off"
        if reasoning is not None and reasoning.effort == "none"
        else reasoning.mode
        if reasoning is not None
        else ""
    )
    effort = reasoning.effort if reasoning is not None and reasoning.effort != "none" else None
    _write(extra, "output_config", "effort", effort)
    held = extra.pop("thinking", None)
    if not mode:
        return
    was = read_reasoning({"thinking": held})
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


CHANGES = Changes(
    _agree, lambda request: request.extra.get("system"), read_system, result_text, read_tool, _check
)
