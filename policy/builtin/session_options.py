"""Options of the policy `session_rules`."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from policy.builtin.rule_options import AskRule, Folder, Hosts, Project, Rule, StrictOptions
from policy.patterns import Pattern
from protocol.bounds import MAX_RULES

Label = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]


class LabelRule(Rule):
    """Which earlier calls set a label."""

    label: Label
    """The label, of `a-z`, `0-9` and `_`. Several rules may set one."""
    result_matches: Pattern | None = None
    """Only calls whose result, as the client sent it, contains this."""


class SessionRule(AskRule):
    """A rule about calls, by what the session did before."""

    if_: Annotated[tuple[Label, ...], Field(alias="if")] = ()
    """Labels that earlier calls must have set, all of them."""
    unless: tuple[Label, ...] = ()
    """Labels none of which an earlier call may have set."""
    within: Annotated[int, Field(ge=1)] | None = None
    """Look only at so many of the latest calls. Unset: at all."""
    max: Annotated[float, Field(ge=0)] | None = None
    """Block only calls with which there would be more than so many that the conditions match."""
    sum: str | None = None
    """The top-level argument with a number whose sum over these calls is held against `max`, in the
    place of how many they are. Anything else there blocks the call."""
    reason: Label = "session"
    """The reason in the record, of `a-z`, `0-9` and `_`."""

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if not (self.if_ or self.unless or self.max is not None) or (self.sum and self.max is None):
            raise ValueError(
                "say when it applies: give `if`, `unless` or `max`, and `sum` with `max`. A rule"
                " about one call alone is for `tool_rules`"
            )
        return self


class SessionRulesOptions(StrictOptions):
    """Options of `session_rules`."""

    labels: Annotated[tuple[LabelRule, ...], Field(max_length=MAX_RULES)] = ()
    """Which calls set which labels."""
    rules: Annotated[tuple[SessionRule, ...], Field(min_length=1, max_length=MAX_RULES)]
    """Block calls that match one of these rules."""
    project: Project = "auto"
    """As in `tool_rules`."""
    home: Folder = "~"
    """As in `tool_rules`."""
    hosts: Hosts = ()
    """As in `tool_rules`."""

    @model_validator(mode="after")
    def _labels_are_set(self) -> Self:
        known = {rule.label for rule in self.labels}
        for place, rule in enumerate(self.rules):
            if missing := {*rule.if_, *rule.unless} - known:
                raise ValueError(
                    f"rules.{place}: no rule of `labels` sets {min(missing)!r}: add one, or correct"
                    " the name"
                )
        return self
