"""What to do about scores: how those of several monitors are combined, and which step the result
reaches.

Pure and total: there is an action for all scores, and a monitor that failed counts as the worst.
Must not know: calls, monitors, how an action is carried out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from policy.scores import Score
from protocol.bounds import MAX_DIMS, MAX_NAME_CHARS, MAX_WHY_CHARS

Combine = Literal["max", "mean", "weights", "logit"]
Do = Literal["allow", "ask", "block", "defer"]
"""What a step does. `allow` is for marking scores that are worth nothing but a row."""
_MAX_EXPONENT = 700.0


class ProtocolStep(NamedTuple):
    """From the score `at` upwards, `do` this; `model` takes over."""

    at: float
    do: Do
    model: str = ""


ALLOW = ProtocolStep(0.0, "allow")


class Sum(NamedTuple):
    """How scores are combined: the weights by monitor are those of a mean, or the coefficients of a
    logistic sum with this intercept."""

    how: Combine = "max"
    weights: Mapping[str, float] = {}
    intercept: float = 0.0


def sound(score: Score, name: str) -> Score:
    """Return a monitor's score under the name that it has in its series; one that cannot be is a
    fault. Long words are cut."""
    value, error = score.value, score.error
    if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
        value, error = None, error or "out_of_range"
    if error:
        # a word for the record, which stays when a call is redacted
        value, error = (
            None,
            (
                error
                if error.isascii() and error.isidentifier() and len(error) <= MAX_NAME_CHARS
                else "fault"
            ),
        )
    dims = {
        str(key): float(value)
        for key, value in list(score.dims.items())[:MAX_DIMS]
        if math.isfinite(value)
    }
    return Score(
        name,
        None if value is None else float(value),
        dims,
        score.why[:MAX_WHY_CHARS],
        error,
        score.latency_ms,
        score.input_tokens,
        score.output_tokens,
    )


def combined(scores: Sequence[Score], by: Sum, *, ignores_faults: bool = False) -> float | None:
    """Return what the scores come to, from 0 to 1; None where no monitor had anything to say.

    A score with an error, or without a value, counts 1.0, unless faults are ignored: then it counts
    for nothing.
    """
    heard = [score for score in scores if score.value is not None or not ignores_faults]
    values = [(score.monitor, 1.0 if score.value is None else score.value) for score in heard]
    if not values:
        return None
    match by.how:
        case "max":
            return max(value for _, value in values)
        case "mean":
            return _within(sum(value for _, value in values) / len(values), values)
        case "weights":
            total = sum(by.weights.get(name, 1.0) for name, _ in values)
            # nobody whose word counts has spoken: then the worst word of the others does
            weighted = sum(by.weights.get(name, 1.0) * value for name, value in values)
            heard_of = [entry for entry in values if by.weights.get(entry[0], 1.0) > 0]
            return (
                _within(weighted / total, heard_of)
                if total > 0
                else max(value for _, value in values)
            )
        case "logit":
            # what lowers the sum lowers nothing where its monitor failed
            terms = [
                by.weights.get(entry.monitor, 0.0) * (1.0 if entry.value is None else entry.value)
                for entry in heard
            ]
            exponent = by.intercept + sum(
                max(term, 0.0) if entry.value is None else term
                for entry, term in zip(heard, terms, strict=True)
            )
            return 1.0 / (1.0 + math.exp(min(_MAX_EXPONENT, -max(-_MAX_EXPONENT, exponent))))


def highest(by: Sum, monitors: Sequence[str]) -> float:
    """Return the most that scores of some of these monitors can come to."""
    if by.how != "logit":
        return 1.0
    return max(
        combined([Score(name, float(by.weights.get(name, 0.0) > 0)) for name in monitors], by)
        or 0.0,
        0.0,
    )


def _within(mean: float, values: Sequence[tuple[str, float]]) -> float:
    """The mean, which rounding must not put below all values: three scores at a step reach it
    together."""
    return min(1.0, max(mean, min(value for _, value in values)))


def reached(steps: Sequence[ProtocolStep], score: float | None) -> ProtocolStep:
    """Return the strongest step that a score reaches: of those from it on downwards the highest."""
    if score is None:
        return ALLOW
    return max(
        (step for step in steps if score >= step.at), key=lambda step: step.at, default=ALLOW
    )


def figure(score: float) -> str:
    """With two digits behind the point, and with more only where there are more: a limit must not
    look as if it were not reached."""
    return f"{score:.2f}" if round(score, 2) == score else f"{score:.4g}"
