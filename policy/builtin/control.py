"""The policy `control`: monitors measure each tool call, a protocol decides what to do about their
scores.

Rules that find a call critical come first, then the monitors that need no judge, then those that
ask a judge, one after the other, as long as their answer can still change something. Every path
ends in a verdict with its choice, for the record. A monitor that fails counts as the worst score.
Nothing here can let pass what another policy of the series blocks: all must allow.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from policy import protocols
from policy.base import (
    Allow,
    Ask,
    AskJudge,
    Block,
    Context,
    Defer,
    Judgement,
    Policy,
    ToolCall,
    Verdict,
)
from policy.builtin.arguments import Looks
from policy.builtin.compiled_rules import CompiledRule, weight_of
from policy.builtin.control_options import ControlOptions, MonitorStep, StepOptions
from policy.claims.claims import NO_CLAIMS
from policy.effects.places import AUTO, places_of
from policy.effects.touch import load_parser
from policy.monitors.base import Monitor
from policy.monitors.table import MONITORS
from policy.protocols import ProtocolStep, Sum, combined, figure, reached
from policy.scores import AuditRule, ProtocolChoice, Score
from protocol.bounds import MAX_ASKS
from protocol.errors import TookTooLong
from protocol.request import ChatRequest
from settings.config_faults import did_you_mean

log = logging.getLogger(__name__)


class _Watch(NamedTuple):
    """A monitor in its series."""

    name: str
    at: float | None
    monitor: Monitor


class _Run:
    """How far the monitors are with one call."""

    __slots__ = ("next", "scores")

    def __init__(self) -> None:
        self.next = 0
        self.scores: list[Score] = []


def _made(steps: Sequence[MonitorStep]) -> list[_Watch]:
    """The monitors, those that ask last. Raises ValidationError with the place of each mistake."""
    made, wrong = [], list[InitErrorDetails]()
    for place, step in enumerate(steps):
        kind = MONITORS.get(step.use)
        if kind is None:
            near = did_you_mean(step.use, MONITORS)
            wrong.append(
                _fault(
                    ValueError(f"{step.use!r} is no monitor ({', '.join(sorted(MONITORS))}){near}"),
                    step.use,
                    place,
                    "use",
                )
            )
            continue
        try:
            made.append(_Watch(step.called, step.at, kind(**(step.model_extra or {}))))
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                details: InitErrorDetails = {
                    "type": problem["type"],
                    "loc": ("monitors", place, *problem["loc"]),
                    "input": problem["input"],
                    "ctx": problem.get("ctx", {}),
                }
                wrong.append(details)
        except ValueError as error:
            wrong.append(_fault(error, step.use, place))
    if wrong:
        raise ValidationError.from_exception_data("Options", wrong)
    if sum(watch.monitor.asks for watch in made) > MAX_ASKS:
        raise ValueError(f"at most {MAX_ASKS} monitors can ask a judge about one call")
    return sorted(made, key=lambda watch: watch.monitor.asks)


def _fault(error: ValueError, value: object, *place: int | str) -> InitErrorDetails:
    return {
        "type": "value_error",
        "loc": ("monitors", *place),
        "input": value,
        "ctx": {"error": error},
    }


class Control(Policy):
    """Let monitors score tool calls, and a protocol act on the scores."""

    name = "control"
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = settings = ControlOptions.model_validate(options)
        self._watches = _made(settings.monitors)
        steps = settings.steps or (
            [StepOptions(at=settings.threshold, do="block")]
            if settings.threshold is not None
            else []
        )
        self._sum = Sum(settings.combine, settings.weights, settings.intercept)
        self._steps = tuple(ProtocolStep(step.at, step.do, step.model) for step in steps)
        self._check_reach()
        self._top = max((step.at for step in self._steps), default=None)
        self._claims = NO_CLAIMS
        self.reads_project = any(watch.monitor.reads_project for watch in self._watches) or (
            settings.project == AUTO and any(rule.reads_effects for rule in settings.critical)
        )
        if any(rule.reads_effects for rule in settings.critical):
            load_parser()
        self._critical = [
            (CompiledRule(rule), rule.name or f"critical[{place}]")
            for place, rule in enumerate(settings.critical)
        ]
        self._kind = (
            "threshold"
            if settings.threshold is not None
            else "steps"
            if settings.monitors
            else "critical"
        )
        self._audit = None
        if (audit := settings.audit) is not None:
            self._audit = AuditRule(
                audit.rate, audit.at, None if audit.budget is None else audit.budget.count
            )
        asking = [watch.monitor for watch in self._watches if watch.monitor.asks]
        for monitor in asking:
            monitor.threshold = min((step.at for step in self._steps), default=1.0)
        self.asks, self.asks_again = bool(asking), len(asking) > 1
        self.weight = max(
            [weight_of(settings.critical), *(watch.monitor.weight for watch in self._watches)]
        )
        models = [step.model for step in self._steps] + [
            settings.on_critical.model if settings.critical else ""
        ]
        self.defers_to = () if settings.observe else tuple(dict.fromkeys(filter(None, models)))
        self.release = settings.release
        self.is_noop = settings.observe
        self._runs: dict[int, _Run] = {}

    def _check_reach(self) -> None:
        """Refuse monitors that would never measure, and steps that no score could reach. Raises
        ValidationError with their place."""
        wrong, highest = list[InitErrorDetails](), 0.0
        measuring: list[str] = []
        names = [step.called for step in self.options.monitors]
        for watch in self._watches:
            if watch.at is not None and watch.at > highest:
                before = (
                    f"come to {figure(highest)} at most"
                    if measuring
                    else "are none (those that ask a judge stand last)"
                )
                error = ValueError(
                    f"the monitors before it {before}, so it never measures: take `at` out, or put"
                    " another before it"
                )
                wrong.append(_fault(error, watch.at, names.index(watch.name), "at"))
                continue
            measuring.append(watch.name)
            highest = max(highest, protocols.highest(self._sum, measuring))
        for number, step in enumerate(self._steps if self._watches else ()):
            if step.at > highest:
                place: tuple[int | str, ...] = (
                    ("steps", number, "at") if self.options.steps else ("threshold",)
                )
                error = ValueError(
                    f"no score reaches it: all monitors together come to {figure(highest)} at most"
                )
                wrong.append(
                    {"type": "value_error", "loc": place, "input": step.at, "ctx": {"error": error}}
                )
        if wrong:
            raise ValidationError.from_exception_data("Options", wrong)

    def why_idle(self) -> str:
        """Without a step that does something, and without critical calls, nothing comes of the
        scores."""
        if self.options.observe:
            return "`observe: true` allows everything"
        if self._critical or any(step.do != "allow" for step in self._steps):
            return ""
        return (
            "nothing is done about its scores: give `threshold`, `steps` that block, ask or defer, or"
            " `critical`"
        )

    def for_call(self, context: Context) -> Self:
        """Give the call monitors of its own."""
        clone = super().for_call(context)
        clone._watches = [
            watch._replace(monitor=watch.monitor.for_call(context)) for watch in self._watches
        ]
        # some know only by the request how long they take
        clone.weight = max([self.weight, *(watch.monitor.weight for watch in clone._watches)])
        clone._runs = {}
        clone._claims = context.claims
        return clone

    def on_request(self, request: ChatRequest) -> None:
        """Show the monitors what the policies before made of it."""
        if request is not self.context.request:
            for watch in self._watches:
                watch.monitor.on_request(request)

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Look whether the call is critical, then measure it."""
        # the model that is trusted with critical calls may make them; what is blocked is so whoever
        # makes it
        if self._critical and not (call.is_deferred and self.options.on_critical.do == "defer"):
            options = self.options
            looks = Looks(
                call, places_of(options.project, options.home, options.hosts, self._claims)
            )
            for rule, name in self._critical:
                if rule.denies(call, looks) or rule.overlooks(call, looks):
                    step = ProtocolStep(
                        1.0, self.options.on_critical.do, self.options.on_critical.model
                    )
                    return self._verdict(
                        call,
                        step,
                        ProtocolChoice("critical", step.do, reason=name),
                        "critical",
                        name,
                    )
        return self._measure(call, _Run())

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Take the answer for the monitor that asked, and go on with those behind it."""
        run = self._runs.pop(call.block, None)
        if run is None:
            # nobody asked
            return Block("fault")
        watch = self._watches[run.next]
        outcome = self._heard(watch, watch.monitor.on_answer, call, judgement)
        if isinstance(outcome, AskJudge):
            outcome = Score(watch.name, None, error="asked_again")
        self._take(watch, run, outcome)
        return self._measure(call, run)

    def _measure(self, call: ToolCall, run: _Run) -> Verdict:
        """Ask the remaining monitors; return the verdict once all have answered."""
        for watch in self._watches[run.next :]:
            if not self._is_wanted(watch, run.scores):
                run.next += 1
                continue
            outcome = self._heard(watch, watch.monitor.on_call, call, self.context)
            if isinstance(outcome, AskJudge):
                self._runs[call.block] = run
                return outcome
            self._take(watch, run, outcome)
        return self._decide(call, tuple(run.scores))

    def _is_wanted(self, watch: _Watch, scores: Sequence[Score]) -> bool:
        """Can what it says change anything, and is it to say something here at all?"""
        if watch.at is None and not watch.monitor.asks:
            return True
        so_far = combined(scores, self._sum, ignores_faults=self.options.on_fault == "ignore")
        if watch.at is not None and (so_far is None or so_far < watch.at):
            return False
        # the highest score only goes up: past the last step nobody needs to be asked
        is_settled = (
            self._sum.how == "max"
            and so_far is not None
            and self._top is not None
            and so_far >= self._top
        )
        return not (watch.monitor.asks and is_settled and not self.options.observe)

    def _heard(
        self, watch: _Watch, hook: Callable[..., object], *args: object
    ) -> Score | AskJudge | None:
        """What a monitor says; a fault where it fails, or says what is nothing of these."""
        try:
            outcome = hook(*args)
            if outcome is None or (watch.monitor.asks and isinstance(outcome, AskJudge)):
                return outcome
            if isinstance(outcome, Score):
                return protocols.sound(outcome, watch.name)
            problem = "said_nothing_of_use"
        except TookTooLong:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it raised, it has measured nothing
            # without its text, which can hold prompts
            problem = type(error).__name__
        return Score(watch.name, None, error=problem)

    def _take(self, watch: _Watch, run: _Run, score: Score | None) -> None:
        run.next += 1
        if score is None:
            return
        if score.error or score.value is None:
            score = (
                score if score.error else Score(watch.name, None, score.dims, score.why, "no_value")
            )
            log.warning(
                "monitor fault",
                extra={
                    "monitor": watch.name,
                    "call_id": self.context.call_id,
                    "error": score.error,
                    "action": self.options.on_fault,
                },
            )
        run.scores.append(score)

    def _decide(self, call: ToolCall, scores: tuple[Score, ...]) -> Verdict:
        ignores = self.options.on_fault == "ignore"
        score = combined(scores, self._sum, ignores_faults=ignores)
        step = reached(self._steps, score)
        is_fault = (
            step.do != "allow"
            and reached(self._steps, combined(scores, self._sum, ignores_faults=True)) != step
        )
        reason = "monitor_fault" if is_fault else "score"
        is_step = step is not protocols.ALLOW
        choice = ProtocolChoice(
            self._kind,
            step.do,
            scores,
            score,
            step.at if is_step else None,
            reason if step.do != "allow" else "",
        )
        detail = (
            f"{figure(score)}, the limit is {figure(step.at)}"
            if score is not None and is_step
            else ""
        )
        return self._verdict(call, step, choice, reason, "", detail)

    def _verdict(
        self,
        call: ToolCall,
        step: ProtocolStep,
        choice: ProtocolChoice,
        reason: str,
        rule: str,
        detail: str = "",
    ) -> Verdict:
        """Carry out a step, as far as it can be with this call: one that already runs, or was
        deferred before, is blocked instead."""
        options = self.options
        do = step.do
        if do == "defer" and (call.is_deferred or call.executor != "client"):
            do = "block"
        kind = "observe" if options.observe else choice.protocol
        choice = ProtocolChoice(
            kind, do, choice.scores, choice.score, choice.threshold, choice.reason, self._audit
        )
        if options.observe or do == "allow":
            return Allow(choice)
        if do == "defer":
            return Defer(step.model, reason, options.message, rule, choice)
        if do == "ask":
            approval = options.approval.as_asked()
            return Ask(reason, options.message, rule, choice=choice, approval=approval)
        return Block(reason, options.message, rule, detail, options.feedback, choice)
