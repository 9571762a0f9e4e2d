"""Calls whose arguments come from the user or from what a tool printed, and their score."""

import json
from typing import Any

from policy.base import Context, ToolCall
from policy.monitors.provenance import Provenance
from policy.scores import Score
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart, Turn
from tests.support.json_values import Json

EVIL = "mallory@evil.example"


def asked(
    words: str,
    *results: str | tuple[str, str],
    system: tuple[str, ...] = (),
    more: tuple[Turn, ...] = (),
) -> ChatRequest:
    """A request in which tools gave these results; `get_mails` where no other tool is named."""
    turns = [Turn("user", (TextPart(words),))]
    for number, result in enumerate(results):
        tool, text = result if isinstance(result, tuple) else ("get_mails", result)
        turns.append(
            Turn(
                "assistant",
                (
                    TextPart(f"I call. {EVIL} said-by-model@x.example"),
                    ToolUsePart(f"c{number}", tool, "{}"),
                ),
            )
        )
        turns.append(Turn("user", (ToolResultPart(f"c{number}", text),)))
    return ChatRequest(dialect="openai", model="m", system=system, turns=(*turns, *more))


def scored(
    request: ChatRequest, tool: str, options: Json | None = None, /, **arguments: Any
) -> Score | None:
    context = Context("c", "n", "k", "s", request)
    call = ToolCall(0, 0, "i", tool, json.dumps(arguments), arguments, None)
    return Provenance(**(options or {})).for_call(context).on_call(call, context.without_history())


def value(
    request: ChatRequest, tool: str, options: Json | None = None, /, **arguments: Any
) -> float | None:
    found = scored(request, tool, options, **arguments)
    return None if found is None else found.value
