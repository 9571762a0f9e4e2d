"""Scores and choices: what a monitor measures of a tool call, and what a protocol makes of it.
Values for the record."""

from typing import Literal

import msgspec

Unit = Literal["call", "turn"]
"""What a protocol decides about: one call, or the rest of the turn."""


class Score(msgspec.Struct, frozen=True):
    """What a monitor measured. `value` is from 0 to 1, higher is worse; None: it has none, and
    `error` says why.

    `dims` are its further measurements, by name. `why` is for the record and for auditors: it may
    quote the call, and never reaches the client. A judge's cost is filled in by whoever received
    the answer.
    """

    monitor: str
    value: float | None
    dims: dict[str, float] = {}
    why: str = ""
    error: str = ""
    latency_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class AuditRule(msgspec.Struct, frozen=True):
    """Which decisions a person should look at: so many by lot, all from a score on; at most so many
    a day."""

    rate: float = 0.0
    at: float | None = None
    budget: int | None = None


class ProtocolChoice(msgspec.Struct, frozen=True):
    """What a protocol decided about a call, and by which scores. It goes into the record with the
    verdict that carries it.

    `action` is what the protocol wanted, which may be more than the verdict says: one that only
    observes allows all the same. `score` is that of all monitors together, `threshold` the step
    that it reached. `audit` is the rule by which a person should look at it: who records the choice
    draws (`protocol.sampling`), for no policy may depend on the lot.
    """

    protocol: str
    action: str
    scores: tuple[Score, ...] = ()
    score: float | None = None
    threshold: float | None = None
    reason: str = ""
    audit: AuditRule | None = None
    unit: Unit = "call"
