"""What is neither message nor tool in a request that crosses, written for Gemini
(docs/change/protocol.md 1.15)."""

from typing import Any

from protocol.dialects.gemini.models import MODELS, ModelRow
from protocol.dialects.models import nearest_effort
from protocol.requests.fields import invalid
from protocol.requests.neutral import EFFORTS, USUAL_TIERS, Option, find_option
from protocol.target import RequestNotes

MAX_STOPS = 5
_MAX_TEMPERATURE = 2.0
_NUMBERS = {
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "seed": "seed",
}
"""What the dialect has words for, by the words of chat/completions."""
_LEVELS = ((2048, "low"), (8192, "medium"))
"""Thinking tokens up to which a level is meant; beyond, it is high."""


def write_options(draft: RequestNotes, row: ModelRow) -> dict[str, Any]:
    """Return generationConfig. Raises InvalidRequest naming what cannot be expressed."""
    request = draft.request
    config: dict[str, Any] = _extra(draft)
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        config["temperature"] = min(_MAX_TEMPERATURE, max(0.0, request.temperature))
        if config["temperature"] != request.temperature:
            draft.drop("temperature")
    if request.top_p is not None:
        config["topP"] = request.top_p
    if len(request.stop) > MAX_STOPS:
        invalid(
            f"this model's provider takes at most {MAX_STOPS} stop sequences", draft.word("stop")
        )
    if stops := [stop for stop in request.stop if stop]:
        config["stopSequences"] = stops
    for name in ("user", "verbosity", "max_tool_calls"):
        if getattr(request, name) is not None:
            draft.drop(draft.word(name))
    if thinking := _thinking(draft, row):
        config["thinkingConfig"] = thinking
    return config


def _extra(draft: RequestNotes) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name, value in draft.request.extra.items():
        if not isinstance(value, Option):
            invalid(f"{name[:60]} cannot be sent to this model's provider", name[:60])
        number = value.value
        if name in _NUMBERS and number is not None:
            if isinstance(number, bool) or not isinstance(number, int | float):
                invalid(f"{name} must be a number", name)
            config[_NUMBERS[name]] = number
        elif value.meaning != "top_k" and not (
            value.meaning == "service_tier" and number in USUAL_TIERS
        ):
            draft.drop(name)
    if (top_k := find_option(draft.request.extra, "top_k")) is not None:
        config["topK"] = top_k[1].value
    return config


def _thinking(draft: RequestNotes, row: ModelRow) -> dict[str, Any]:
    """thinkingConfig: a level or a number of tokens, never both. Thoughts are shown to who asked
    for some."""
    reasoning = draft.request.reasoning
    if reasoning is None:
        return {}
    effort = reasoning.effort
    if reasoning.mode == "off" or (effort == "none" and not reasoning.mode):
        return _off(draft, row)
    if effort not in (None, *EFFORTS):
        effort = None
        draft.drop(draft.word("effort"))
    if row.thinking == "none":
        draft.drop(draft.word("effort" if effort is not None else "thinking"))
        return {}
    shown: dict[str, Any] = {"includeThoughts": True}
    tokens = reasoning.budget_tokens
    if row.thinking == "level":
        if effort is None and tokens is not None:
            effort = next((level for limit, level in _LEVELS if tokens <= limit), "high")
        return shown | (
            {} if effort is None else {"thinkingLevel": nearest_effort(row.levels, effort).upper()}
        )
    if tokens is None:
        tokens = -1 if effort is None else MODELS.budgets[effort]
    return shown | {
        "thinkingBudget": tokens if tokens < 0 else min(row.most, max(row.least, tokens))
    }


def _off(draft: RequestNotes, row: ModelRow) -> dict[str, Any]:
    """The least that the model can think, noted where that is something."""
    if row.thinking == "none":
        return {}
    if row.thinking == "budget":
        if not row.off:
            draft.drop(draft.word("thinking"))
        return {"thinkingBudget": 0 if row.off else row.least}
    draft.drop(draft.word("thinking"))
    return {"thinkingLevel": row.levels[0].upper()}
