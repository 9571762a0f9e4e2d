"""What is neither message nor tool in a request that crosses, written for the Messages dialect
(docs/change/protocol.md 1.1, 1.9)."""

from hashlib import sha256
from typing import Any, cast

from protocol.dialects.anthropic.models import MODELS, ModelRow
from protocol.dialects.models import nearest_effort
from protocol.dialects.turns_write import goes_on_without
from protocol.requests.fields import invalid
from protocol.requests.neutral import USUAL_TIERS, Effort, Option, find_option
from protocol.target import RequestNotes

DEFAULT_MAX_TOKENS = 4096
"""What a request gets that names none: the dialect requires one, and a model's own limit would be
an expensive default."""
_MIN_BUDGET = 1024
_MIN_TOP_P = 0.95
"""Below it, top_p is refused beside a thinking budget."""
_VENDOR = ("thinking", "cache_control", "context_management", "container", "mcp_servers", "betas")
"""Words of the Messages dialect that clients may use here, too. Which of them a key may is decided
over the finished body."""


def write_extra(draft: RequestNotes) -> dict[str, Any]:
    """Return the vendor's words among the fields that are not modelled, and note or refuse the
    rest. Raises InvalidRequest."""
    body: dict[str, Any] = {}
    for name, value in draft.request.extra.items():
        if name in _VENDOR and not isinstance(value, Option):
            body[name] = value
        elif not isinstance(value, Option):
            invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
        elif value.meaning in ("cache", "logprobs", "harmless"):
            draft.drop(name)
    if draft.request.verbosity is not None:
        draft.drop(draft.word("verbosity"))
    if draft.request.max_tool_calls is not None:
        draft.drop("max_tool_calls")
    return body


def write_thinking(draft: RequestNotes, row: ModelRow, body: dict[str, Any]) -> None:
    """Write max_tokens, thinking and effort. What `body` says of thinking in the vendor's own words
    counts first."""
    effort = draft.request.reasoning.effort if draft.request.reasoning is not None else None
    limit = draft.request.max_tokens
    if row.max_output and limit is not None and limit > row.max_output:
        draft.drop(draft.word("max_tokens"))
        limit = row.max_output
    thinking = body.get("thinking")
    if thinking is not None and not isinstance(thinking, dict):
        invalid("thinking must be an object", "thinking")
    room = DEFAULT_MAX_TOKENS + _budget(effort)
    body["max_tokens"] = limit or min(room, row.max_output or room)
    if effort is None:
        return
    if thinking is not None or row.thinking == "adaptive":
        _write_adaptive(draft, row, body, effort)
    elif effort == "none":
        if row.thinking == "budget":
            body["thinking"] = {"type": "disabled"}
    else:
        _write_budget(draft, row, body, effort)


def _budget(effort: str | None) -> int:
    return MODELS.budgets.get(cast("Effort", effort), 0)


def _write_adaptive(draft: RequestNotes, row: ModelRow, body: dict[str, Any], effort: str) -> None:
    if effort == "none":
        body.setdefault("thinking", {"type": "disabled"})
        return
    if row.thinking == "adaptive":
        body.setdefault("thinking", {"type": "adaptive", "display": "summarized"})
    if row.efforts:
        body["output_config"] = {"effort": nearest_effort(row.efforts, effort)}
    else:
        draft.drop(draft.word("effort"))


def _write_budget(draft: RequestNotes, row: ModelRow, body: dict[str, Any], effort: str) -> None:
    budget = min(_budget(effort), body["max_tokens"] - 1)
    if (
        row.thinking == "none"
        or budget < _MIN_BUDGET
        or goes_on_without(draft.request, "anthropic", "thinking", "redacted_thinking")
    ):
        draft.drop(draft.word("effort"))
    else:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def thinks_by_budget(body: dict[str, Any]) -> bool:
    """Does `body` give the model a number of tokens to think? It then takes no forced call and no
    other sampling."""
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def write_sampling(draft: RequestNotes, row: ModelRow, body: dict[str, Any]) -> None:
    """Write temperature, top_p, top_k and stop sequences as far as the model takes them."""
    request, budget = draft.request, thinks_by_budget(body)
    top_k = option[1].value if (option := find_option(request.extra, "top_k")) is not None else None
    values: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": top_k,
    }
    if request.temperature is not None:
        values["temperature"] = min(1.0, max(0.0, request.temperature))
    is_either = row.sampling == "one" and request.temperature is not None
    refused = {
        "temperature": row.sampling == "none" or (budget and values["temperature"] != 1),
        "top_p": (
            row.sampling == "none" or (budget and (request.top_p or 0) < _MIN_TOP_P) or is_either
        ),
        "top_k": row.sampling == "none" or budget,
    }
    for name, value in values.items():
        if value is not None and refused[name]:
            draft.drop(name)
        elif value is not None:
            body[name] = value
    stops = [s for s in request.stop if s.strip()]
    if stops:
        body["stop_sequences"] = stops
    if len(stops) < len(request.stop):
        draft.drop(draft.word("stop"))


def write_account(draft: RequestNotes, body: dict[str, Any]) -> None:
    """Write whom the request is for and how it is to be served."""
    request = draft.request
    if request.user:
        # the vendor asks for an opaque value, and clients put e-mail addresses there
        body["metadata"] = {"user_id": sha256(request.user.encode("utf-8", "replace")).hexdigest()}
    if (tier := find_option(request.extra, "service_tier")) is not None:
        body["service_tier"] = "auto" if tier[1].value in USUAL_TIERS else "standard_only"
        if tier[1].value not in (*USUAL_TIERS, "standard"):
            draft.drop(tier[0])
