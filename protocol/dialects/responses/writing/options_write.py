"""What is neither input nor tool in a request that crosses, written for Responses
(docs/change/protocol.md 1.13)."""

from typing import Any

from protocol.dialects.models import OpenAiModelRow, nearest_effort
from protocol.dialects.openai_options import wanted_effort, write_sampling, write_user
from protocol.dialects.responses.read import LOGPROBS, SEALED
from protocol.dialects.responses.writing.tools_write import write_format
from protocol.requests.fields import invalid
from protocol.requests.neutral import USUAL_TIERS, Option
from protocol.server_tools.families import need
from protocol.target import RequestNotes

_SAME = frozenset(("prompt_cache_key", "prompt_cache_retention"))
"""Options that the dialect has under the same name."""
_ELSEWHERE = frozenset(("mcp_servers",))
"""What the tools are written from."""


_ANY = ("none", "low", "medium", "high")
"""The efforts of a model of which nothing is known."""


def write_options(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any]:
    """Return the fields. Raises InvalidRequest naming what cannot be expressed."""
    request = draft.request
    include = [SEALED] if row.may_reason else []
    body = _extra(draft, row, include)
    if request.stop:
        invalid("this model's provider takes no stop sequences", draft.word("stop"))
    if request.stream:
        body["stream"] = True
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    body |= write_sampling(draft, row)
    body |= write_user(request, row)
    if request.max_tool_calls is not None:
        body["max_tool_calls"] = request.max_tool_calls
    if text := write_format(draft) | (
        {"verbosity": request.verbosity} if request.verbosity is not None else {}
    ):
        body["text"] = text
    if reasoning := _reasoning(draft, row):
        body["reasoning"] = reasoning
    return body | ({"include": include} if include else {})


def _extra(draft: RequestNotes, row: OpenAiModelRow, include: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in draft.request.extra.items():
        if name in _ELSEWHERE:
            if value:
                need(draft.target, "mcp", name, name)
                _note_unused(draft, value)
            continue
        if not isinstance(value, Option):
            invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
        if value.meaning == "service_tier" and row.vendor:
            body["service_tier"] = "default" if value.value == "standard" else value.value
        elif value.meaning == "logprobs":
            include += [LOGPROBS] if LOGPROBS not in include else []
            body |= {"top_logprobs": value.value} if value.value else {}
        elif value.meaning == "harmless" and name in _SAME and isinstance(value.value, str):
            body[name] = value.value
        elif value.meaning == "summary" or (
            value.meaning == "service_tier" and value.value in USUAL_TIERS
        ):
            continue
        else:
            draft.drop(name)
    return body


def _note_unused(draft: RequestNotes, servers: Any) -> None:
    """Servers that no set of tools names are not offered."""
    used = {
        tool.extra.get("mcp_server_name") for tool in draft.request.tools if tool.kind == "server"
    }
    if not isinstance(servers, list) or any(
        not isinstance(server, dict) or server.get("name") not in used for server in servers
    ):
        draft.drop("mcp_servers")


def _reasoning(draft: RequestNotes, row: OpenAiModelRow) -> dict[str, Any]:
    """Return `reasoning` for thinking and effort, noting what this model has no word for."""
    reasoning = draft.request.reasoning
    if reasoning is None:
        return {}
    shows = reasoning.mode in ("budget", "adaptive") or reasoning.summary is not None
    wanted = wanted_effort(reasoning)
    if not row.may_reason:
        if shows:
            draft.drop(draft.word("thinking"))
        if reasoning.effort not in (None, "none"):
            draft.drop(draft.word("effort"))
        return {}
    if wanted == "none" and not row.efforts:
        # nothing is known of it, and not every model can leave it out
        draft.drop(draft.word("thinking"))
        return {}
    nearest = None if wanted is None else nearest_effort(row.efforts or _ANY, wanted)
    if wanted == "none" != nearest:
        draft.drop(draft.word("thinking"))
    return ({} if nearest is None else {"effort": nearest}) | (
        {"summary": reasoning.summary or "auto"} if shows and wanted != "none" else {}
    )
