"""What is neither message nor tool in a request that crosses, written for chat/completions
(docs/change/protocol.md 1.10)."""

from typing import Any

from protocol.dialects.models import OpenAiModelRow, nearest_effort
from protocol.dialects.openai_options import wanted_effort, write_sampling, write_user
from protocol.requests.fields import invalid
from protocol.requests.neutral import USUAL_TIERS, Option
from protocol.target import RequestNotes

MAX_STOPS = 4


def write_options(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any]:
    """Return the fields. Raises InvalidRequest naming what cannot be expressed."""
    request = draft.request
    body: dict[str, Any] = _extra(draft, row)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.max_tokens is not None:
        body["max_completion_tokens" if row.completion_tokens else "max_tokens"] = (
            request.max_tokens
        )
    body |= write_sampling(draft, row)
    if len(request.stop) > MAX_STOPS:
        invalid(
            f"this model's provider takes at most {MAX_STOPS} stop sequences", draft.word("stop")
        )
    if request.stop:
        body["stop"] = list(request.stop)
    body |= write_user(request, row)
    if request.verbosity is not None and row.vendor:
        body["verbosity"] = request.verbosity
    elif request.verbosity is not None:
        draft.drop(draft.word("verbosity"))
    if request.max_tool_calls is not None:
        draft.drop("max_tool_calls")
    if (effort := _effort(draft, row)) is not None:
        body["reasoning_effort"] = effort
    return body


def _extra(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in draft.request.extra.items():
        if not isinstance(value, Option):
            invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
        if value.meaning == "service_tier" and row.vendor:
            body["service_tier"] = "default" if value.value == "standard" else value.value
        elif value.meaning == "logprobs":
            body |= {"logprobs": True, **({"top_logprobs": value.value} if value.value else {})}
        elif value.meaning != "service_tier" or value.value not in USUAL_TIERS:
            draft.drop(name)
    return body


def _effort(draft: RequestNotes, row: OpenAiModelRow) -> str | None:
    """Return reasoning_effort for thinking and output_config.effort, noting what this model has no
    word for."""
    request = draft.request
    reasoning = request.reasoning
    if reasoning is None:
        return None
    wanted = wanted_effort(reasoning)
    if not row.efforts:
        if reasoning.mode in ("budget", "adaptive"):
            draft.drop(draft.word("thinking"))
        if reasoning.effort is not None:
            draft.drop(draft.word("effort"))
        return None
    nearest = None if wanted is None else nearest_effort(row.efforts, wanted)
    if wanted == "none" != nearest:
        draft.drop(draft.word("thinking"))
    return nearest
