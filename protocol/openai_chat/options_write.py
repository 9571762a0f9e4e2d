"""What is neither message nor tool in a Messages request, written for chat/completions (docs/protocol.md 1.10).

The client's anthropic-beta names are not for this provider and are left aside: what they switch on is in the body, and is noted there.
"""

from hashlib import sha256
from typing import Any

from protocol.fields import invalid
from protocol.openai_chat.models import ModelRow
from protocol.target import Draft

MAX_STOPS = 4
_MAX_USER = 64
_DROPPED = frozenset(("top_k", "diagnostics", "fallback_credit_token"))
"""What this dialect has no word for, and whose absence changes no meaning."""
_READ = frozenset(("system", "thinking", "output_format", "betas", "anthropic_beta"))
"""What is written elsewhere."""
_THINKING = ("enabled", "adaptive", "between_tools", "disabled")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_BUDGETS = ((2048, "low"), (8192, "medium"))
"""Thinking tokens up to which an effort is meant; beyond, it is high."""


def write_options(draft: Draft, row: ModelRow) -> dict[str, Any]:
    """Return the fields. Raises InvalidRequest naming what cannot be said."""
    request = draft.request
    body: dict[str, Any] = _extra(draft, row)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if request.max_tokens is not None:
        body["max_completion_tokens" if row.completion_tokens else "max_tokens"] = request.max_tokens
    for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
        if value is not None and (row.sampling or value == 1):
            body[name] = value
        elif value is not None:
            draft.drop(name)
    if len(request.stop) > MAX_STOPS:
        invalid(f"this model's provider takes at most {MAX_STOPS} stop sequences", "stop_sequences")
    if request.stop:
        body["stop"] = list(request.stop)
    if request.user:
        # the vendor's field is shorter than what applications write there
        user = request.user if len(request.user) <= _MAX_USER else sha256(request.user.encode("utf-8", "replace")).hexdigest()
        body["safety_identifier" if row.vendor else "user"] = user
    if (effort := _effort(draft, row)) is not None:
        body["reasoning_effort"] = effort
    return body


def _extra(draft: Draft, row: ModelRow) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in draft.request.extra.items():
        if value in (None, "", [], {}) or name in _READ:
            continue
        match name:
            case "metadata":
                if len(value) > ("user_id" in value):
                    draft.drop("metadata")
            case "service_tier":
                _service_tier(draft, row, value, body)
            case "output_config":
                _output_config(draft, value)
            case "context_management":
                _context_management(draft, value)
            case "cache_control":
                draft.drop("cache_control")
            case "speed" if value in ("standard", "fast"):
                if value == "fast":
                    draft.drop("speed")
            case _ if name in _DROPPED:
                draft.drop(name)
            case _:
                invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
    return body


def _service_tier(draft: Draft, row: ModelRow, value: Any, body: dict[str, Any]) -> None:
    if value not in ("auto", "standard_only"):
        invalid("service_tier must be auto or standard_only", "service_tier")
    if row.vendor:
        body["service_tier"] = "auto" if value == "auto" else "default"
    elif value != "auto":
        draft.drop("service_tier")


def _output_config(draft: Draft, value: dict[str, Any]) -> None:
    for name, said in value.items():
        if name == "task_budget" and said is not None:
            draft.drop("output_config.task_budget")
        elif name not in ("effort", "format", "task_budget"):
            invalid(f"output_config.{name[:60]} cannot be sent to this model's provider", "output_config")


def _context_management(draft: Draft, value: Any) -> None:
    """Earlier thinking is not sent anyway; edits of anything else change what the model reads, and nobody here would make them."""
    edits = value.get("edits") if isinstance(value, dict) else None
    if not isinstance(edits, list) or not all(isinstance(e, dict) and str(e.get("type")).startswith("clear_thinking_") for e in edits):
        invalid("context_management with other edits than of thinking cannot be sent to this model's provider", "context_management")
    draft.drop("context_management")


def _effort(draft: Draft, row: ModelRow) -> str | None:
    """Return reasoning_effort for thinking and output_config.effort, noting what this model has no word for."""
    request = draft.request
    thinking, reasoning = request.extra.get("thinking"), request.reasoning
    if isinstance(thinking, dict) and thinking.get("type") not in _THINKING:
        invalid(f"thinking.type must be one of {', '.join(_THINKING)}", "thinking")
    if reasoning is None:
        return None
    if reasoning.effort is not None and reasoning.effort not in _EFFORTS:
        invalid(f"output_config.effort must be one of {', '.join(_EFFORTS)}", "output_config")
    wanted = reasoning.effort
    if reasoning.mode == "off":
        wanted = "none"
    elif wanted is None and reasoning.budget_tokens is not None:
        wanted = next((effort for limit, effort in _BUDGETS if (reasoning.budget_tokens or 0) <= limit), "high")
    if not row.efforts:
        if reasoning.mode in ("budget", "adaptive"):
            draft.drop("thinking")
        if reasoning.effort is not None:
            draft.drop("output_config.effort")
        return None
    found = None if wanted is None else row.nearest_effort(wanted)
    if wanted == "none" != found:
        draft.drop("thinking")
    return found
