"""Options of the policy `session_rules`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from policy.builtin.rule_options import Folder, Hosts, Project, Rule, StrictOptions
from policy.effects.places import AUTO
from policy.patterns import Pattern
from protocol.bounds import MAX_RULES

Label = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]


class LabelRule(Rule):
    """Which earlier calls set a label."""

    label: Label
    """The label, of `a-z`, `0-9` and `_`. Several rules may set one."""
    result_matches: Pattern | None = None
    """Only calls whose result, as the client sent it, contains this."""


class Total(StrictOptions):
    """A sum over calls."""

    argument: str
    """The top-level argument with the number. Anything else there blocks the call."""
    max: Annotated[float, Field(ge=0)]
    """The highest sum, with the present call."""


class SessionRule(Rule):
    """A rule about calls, by what the session did before."""

    if_: Annotated[tuple[Label, ...], Field(alias="if")] = ()
    """Labels that earlier calls must have set, all of them."""
    unless: tuple[Label, ...] = ()
    """Labels none of which an earlier call may have set."""
    at_least: Annotated[int, Field(ge=1)] = 1
    """By so many calls each of `if`."""
    within: Annotated[int, Field(ge=1)] | None = None
    """Look only at so many of the latest calls. Unset: at all."""
    max_calls: Annotated[int, Field(ge=0)] | None = None
    """Block only calls beyond so many that the rule's conditions match."""
    total: Total | None = None
    """Block only calls with which this sum over calls that the conditions match is too high."""
    reason: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")] = "session"
    """The reason in the record, of `a-z`, `0-9` and `_`."""
    message: str = ""
    """What the notice tells the client."""

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if not (self.if_ or self.unless or self.max_calls is not None or self.total):
            raise ValueError(
                "say when it applies: give `if`, `unless`, `max_calls` or `total`. A rule about one"
                " call alone is for `tool_rules`"
            )
        return self


class SessionRulesOptions(StrictOptions):
    """Options of `session_rules`."""

    labels: Annotated[tuple[LabelRule, ...], Field(max_length=MAX_RULES)] = ()
    """Which calls set which labels."""
    rules: Annotated[tuple[SessionRule, ...], Field(min_length=1, max_length=MAX_RULES)]
    """Block calls that match one of these rules."""
    project: Project = AUTO
    """As in `tool_rules`."""
    home: Folder = "~"
    """As in `tool_rules`."""
    hosts: Hosts = ()
    """As in `tool_rules`."""

    @model_validator(mode="after")
    def _labels_are_set(self) -> Self:
        known = {rule.label for rule in self.labels}
        for place, rule in enumerate(self.rules):
            for label in (*rule.if_, *rule.unless):
                if label not in known:
                    raise ValueError(
                        f"rules.{place}: no rule of `labels` sets {label!r}: add one, or correct"
                        " the name"
                    )
        return self
