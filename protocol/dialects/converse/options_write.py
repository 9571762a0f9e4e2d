"""What is neither message nor tool, written for Converse: its own options, and the extra ones of
one family of models."""

from typing import Any, cast

from protocol.dialects.converse.models import MODELS, ModelRow
from protocol.dialects.models import nearest_effort
from protocol.dialects.turns_write import goes_on_without
from protocol.requests.fields import invalid
from protocol.requests.neutral import USUAL_TIERS, Effort, Option, find_option
from protocol.target import RequestNotes

_ROOM = 4096
"""Tokens of the answer beside those that are thought with, where the client named no limit."""
_MIN_BUDGET = 1024
_MIN_TOP_P = 0.95
"""Below it, top_p is refused beside a thinking budget."""
_CLIENTS = ("thinking", "cache_control")
"""Words of another vendor's that clients use everywhere; the first is for models of that vendor."""


def check_extra(draft: RequestNotes) -> None:
    """Note or refuse the fields that are not modelled. What only an operator may say (guardrails,
    tiers, metadata, prompts) is among the refused. Raises InvalidRequest."""
    for name, value in draft.request.extra.items():
        if name in _CLIENTS:
            continue
        if not isinstance(value, Option):
            invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
        elif value.meaning in ("harmless", "logprobs", "form", "summary"):
            draft.drop(name)
    if draft.request.user:
        draft.drop(draft.word("user"))
    for word, value in (
        ("verbosity", draft.request.verbosity),
        ("max_tool_calls", draft.request.max_tool_calls),
    ):
        if value is not None:
            draft.drop(draft.word(word))


def write_thinking(draft: RequestNotes, row: ModelRow, inference: dict[str, Any]) -> dict[str, Any]:
    """Write the limit of the answer, and return the fields that ask for thinking."""
    request, thinking = draft.request, draft.request.extra.get("thinking")
    if request.max_tokens is not None:
        inference["maxTokens"] = request.max_tokens
    if thinking is not None:
        if not isinstance(thinking, dict) or row.family != "claude":
            invalid("thinking cannot be sent to this model's provider", "thinking")
        return {"thinking": thinking}
    reasoning = request.reasoning
    effort = reasoning.effort if reasoning is not None else None
    budget = reasoning.budget_tokens if reasoning is not None else None
    if (effort is None and budget is None) or (reasoning is not None and reasoning.mode == "off"):
        return {}
    match row.thinking:
        case "budget":
            return _budget(
                draft, inference, budget or MODELS.budgets.get(cast("Effort", effort), 0), effort
            )
        case "adaptive":
            if effort in (None, "none"):
                return {} if effort is None else {"thinking": {"type": "disabled"}}
            chosen = nearest_effort(row.efforts, effort)
            return {"thinking": {"type": "adaptive"}, "output_config": {"effort": chosen}}
        case "nova" if effort is not None:
            if effort == "none":
                return {"reasoningConfig": {"type": "disabled"}}
            return {
                "reasoningConfig": {
                    "type": "enabled",
                    "maxReasoningEffort": nearest_effort(row.efforts, effort),
                }
            }
        case "effort" if effort not in (None, "none"):
            return {"reasoning_effort": nearest_effort(row.efforts, effort)}
    if effort != "none":
        draft.drop(draft.word("effort" if effort is not None else "thinking"))
    return {}


def _budget(
    draft: RequestNotes, inference: dict[str, Any], wanted: int, effort: str | None
) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    limit = inference.get("maxTokens") or _ROOM + wanted
    budget = min(wanted, limit - 1)
    if budget < _MIN_BUDGET or goes_on_without(draft.request, "converse", "reasoningContent"):
        draft.drop(draft.word("effort" if effort is not None else "thinking"))
        return {}
    inference["maxTokens"] = limit
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def thinks(fields: dict[str, Any]) -> bool:
    """Do `fields` make the model think by a budget? It then takes no forced call and no other
    sampling."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def write_sampling(
    draft: RequestNotes, row: ModelRow, inference: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Write temperature, top_p, top_k and stop sequences as far as the model takes them."""
    request, budget = draft.request, thinks(fields)
    temperature = None if request.temperature is None else min(1.0, max(0.0, request.temperature))
    both = row.sampling == "one" and temperature is not None
    values = (
        (
            "temperature",
            "temperature",
            temperature,
            row.sampling == "none" or (budget and temperature != 1),
        ),
        (
            "top_p",
            "topP",
            request.top_p,
            row.sampling == "none" or both or (budget and (request.top_p or 0) < _MIN_TOP_P),
        ),
    )
    for word, name, value, is_refused in values:
        if value is not None and is_refused:
            draft.drop(word)
        elif value is not None:
            inference[name] = value
    if (option := find_option(request.extra, "top_k")) is not None:
        if row.family == "claude" and row.sampling != "none" and not budget:
            fields["top_k"] = option[1].value
        elif row.family == "nova":
            fields["inferenceConfig"] = {"topK": option[1].value}
        else:
            draft.drop(option[0])
    stops = [s for s in request.stop if s.strip()]
    if stops:
        inference["stopSequences"] = stops
    if len(stops) < len(request.stop):
        draft.drop(draft.word("stop"))


def write_tier(draft: RequestNotes) -> dict[str, Any]:
    """Return how the request is to be served: what costs more is for the operator to say."""
    tier = find_option(draft.request.extra, "service_tier")
    if tier is None or tier[1].value in USUAL_TIERS:
        return {}
    if tier[1].value != "standard":
        draft.drop(tier[0])
    return {"serviceTier": {"type": "default"}}
