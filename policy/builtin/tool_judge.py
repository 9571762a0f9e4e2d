"""Asks judge models about tool calls; everything unexpected blocks. The questions are those of the
monitor `model`, the answers those of a panel.

Its score is the recorded judgement and its decision the call's verdict: it leaves no rows in
`scores` and `decisions`.
"""

from typing import Annotated, Self

from pydantic import Field

from policy.base import (
    ALLOW,
    AskJudge,
    Block,
    Context,
    Judgement,
    JudgeQuestion,
    Policy,
    ToolCall,
    Verdict,
)
from policy.builtin.arguments import Looks
from policy.builtin.compiled_rules import CompiledRule, weight_of
from policy.builtin.rule_options import Folder, Hosts, Project, Rule
from policy.claims.claims import NO_CLAIMS
from policy.effects.places import AUTO, places_of
from policy.judging import panel
from policy.judging.view import View
from policy.monitors import model
from policy.monitors.model import ModelMonitor
from policy.patterns import NamePattern, NamePatterns
from protocol.bounds import MAX_RULES
from protocol.request import ChatRequest


class ToolJudgeOptions(panel.PanelOptions, model.ModelOptions):
    """Options of `tool_judge`. A call that gets no score is blocked."""

    view: View = "tail"
    """What the judge sees besides the call, as for the monitor `model`."""
    tools: NamePattern | list[NamePattern] = "*"
    """Names of the tools to judge. Calls of other tools are allowed."""
    only: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] | None = None
    """Judge only calls that match one of these rules, which work like `deny` rules, and those about
    which a rule of `ask` asks. Other calls are allowed. Unset: judge all."""
    project: Project = "auto"
    """As in `tool_rules`, for rules about effects."""
    home: Folder = "~"
    """As in `tool_rules`."""
    hosts: Hosts = ()
    """As in `tool_rules`."""


class ToolJudge(Policy):
    """Block tool calls that a judge model rates as harmful with a probability of at least
    `threshold`."""

    name = "tool_judge"
    asks = True
    answers = True
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = ToolJudgeOptions.model_validate(options)
        self._tools = NamePatterns(self.options.tools)
        only = self.options.only
        self._only = None if only is None else [CompiledRule(rule) for rule in only]
        self._claims = NO_CLAIMS
        self.reads_project = self.options.project == AUTO and any(
            rule.reads_effects for rule in only or ()
        )
        self.weight = max(type(self).weight, weight_of(only or ()))
        self._monitor = ModelMonitor.of(self.options, self.options.threshold)
        self.asks_again = self.options.escalate is not None

    def for_call(self, context: Context) -> Self:
        """Give the call the end of its conversation."""
        clone = super().for_call(context)
        clone._monitor = self._monitor.for_call(context)
        clone._claims = context.claims
        return clone

    def why_idle(self) -> str:
        """Where it is about no tool, or about no call, nobody is asked."""
        if self.options.tools == [] or self.options.only == ():
            return (
                "`tools` or `only` is empty, so no call is judged: name something, or take the"
                " option out"
            )
        return ""

    def on_request(self, request: ChatRequest) -> None:
        """Keep what the policies before made of it: that is what the model reads."""
        if request is not self.context.request:
            self._monitor.on_request(request)

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Ask about the call, if its tool is among those to judge and everything that it depends on
        can be shown."""
        if not self._tools.means(call.name):
            return ALLOW
        if self._only is not None and not call.is_asked:
            options = self.options
            looks = Looks(
                call, places_of(options.project, options.home, options.hosts, self._claims)
            )
            # what nobody can know of a call is a reason to ask
            if not any(
                rule.denies(call, looks) or (rule.asks_effects_of(call) and looks.touch.unsure)
                for rule in self._only
            ):
                return ALLOW
        return panel.ask(self.options.models, self._question(call), self.options.fallback)

    def _question(self, call: ToolCall) -> JudgeQuestion | Block:
        outcome = self._monitor.on_call(call, self.context)
        if isinstance(outcome, AskJudge):
            return outcome.question
        return Block(outcome.error, detail="for its judge" if outcome.error == "too_large" else "")

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Allow only where the judges do."""
        return panel.decide(self.options, judgement, lambda: self._question(call))
