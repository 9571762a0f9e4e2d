"""What a policy may have changed in a chat/completions request in two places;
`protocol.policy_changes` says why."""

from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.dialects.openai_chat.messages_read import result_text
from protocol.dialects.openai_chat.messages_read import texts as system_texts
from protocol.dialects.openai_chat.read import MODELLED, refuse_many_answers
from protocol.dialects.openai_chat.tools_read import read_tool
from protocol.dialects.openai_options import effort_of
from protocol.request import ChatRequest, Reasoning, Tool, ToolUsePart
from protocol.requests.conflicts import Changes, Unclear, follow, refuse_names

_EFFORT_WORDS = ("thinking", "reasoning", "enable_thinking", "thinking_budget", "include_reasoning")
"""Words of vendors for what `reasoning_effort` says."""


def _check(held: Tool | ToolUsePart, at: str) -> None:
    if isinstance(held, Tool) or held.form != "custom":
        return
    try:
        value = loads_arguments(held.arguments)
    except AmbiguousJson as error:
        raise Unclear(f"{at}.arguments: {error}") from error
    if value.keys() != {"input"} or not isinstance(value["input"], str):
        raise Unclear(f'{at}.arguments of a custom tool are {{"input": text}}')


def _agree(before: ChatRequest, after: ChatRequest) -> ChatRequest:
    refuse_names(after.extra, MODELLED)
    if (before.verbosity, before.max_tool_calls) != (after.verbosity, after.max_tool_calls):
        raise Unclear("verbosity and max_tool_calls are of Responses")
    refuse_many_answers(after.extra)
    extra = dict(after.extra)
    changes: dict[str, Any] = {"extra": extra}
    limit = (before.extra.get("max_completion_tokens"), extra.get("max_completion_tokens"))
    if (
        which := follow("max_tokens", (before.max_tokens, after.max_tokens), limit)
    ) is False and limit[1] is not None:
        _put(extra, "max_completion_tokens", after.max_tokens)
    elif which:
        changes["max_tokens"] = limit[1]
    if (
        before.user != after.user
        and extra.get("safety_identifier") == before.extra.get("safety_identifier") is not None
    ):
        # the newer name of the same thing
        _put(extra, "safety_identifier", after.user)
    if before.reasoning != after.reasoning:
        changes["reasoning"] = _as_effort(after.reasoning)
        for name in _EFFORT_WORDS:
            if name in extra and extra[name] == before.extra.get(name):
                del extra[name]
    if after.response_format is not None and "response_format" in extra:
        if extra["response_format"] != before.extra.get("response_format"):
            raise Unclear(
                "response_format and what says the same in `extra` were both changed, to different"
                " things"
            )
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
        effort = effort_of(reasoning.budget_tokens)
    return None if effort is None else Reasoning("", effort)


CHANGES = Changes(
    _agree,
    lambda request: request.system_messages or None,
    system_texts,
    result_text,
    read_tool,
    _check,
)
