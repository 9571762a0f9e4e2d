"""Ask a judge model about tool calls; everything unexpected blocks."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from policy import judging
from policy.base import ALLOW, AskJudge, Block, Context, Judgement, JudgeQuestion, Policy, ToolCall, Verdict, shown
from policy.patterns import NamePattern, Names


class Options(BaseModel):
    """Options of `tool_judge` in the configuration.

    `model` is the judge: `demo-judge` or a model of a configured upstream. `threshold`: from this probability of harm
    on, the call is blocked. `deadline_s`: without an answer by then it is blocked (default: `limits.judge_s`).
    `tail`, `tail_bytes`: how much of the conversation's end the judge sees. `tools`: names of the tools to judge.
    `max_arguments_bytes`: larger arguments are blocked unjudged, never cut.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: Annotated[str, Field(min_length=1)]
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.6
    deadline_s: Annotated[float, Field(gt=0, le=600)] | None = None
    tail: Annotated[int, Field(ge=0, le=100)] = 6
    tail_bytes: Annotated[int, Field(ge=0, le=2**20)] = 16_384
    tools: NamePattern | list[NamePattern] = "*"
    max_arguments_bytes: Annotated[int, Field(gt=0, le=2**20)] = 65_536


class ToolJudge(Policy):
    """Block tool calls that a judge model holds to be harmful with at least the probability `threshold`."""

    name = "tool_judge"
    asks = True
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = Options.model_validate(options)
        self._tools = Names(self.options.tools)
        self._tail = judging.Tail((), 0)

    def for_call(self, context: Context) -> Self:
        """Give the call the end of its conversation."""
        mine = super().for_call(context)
        mine._tail = judging.tail_of(context.request.turns, self.options.tail)
        return mine

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Ask about the call, if its tool is among those to judge."""
        options = self.options
        if not self._tools.means(call.name):
            return ALLOW
        if len(call.arguments.encode("utf-8", "surrogatepass")) > options.max_arguments_bytes:
            return Block("too_large", f"[Sluice: the tool call {shown(call.name)} was blocked: its arguments are too large to be judged]")
        return AskJudge(
            JudgeQuestion(
                model=options.model,
                system=judging.SYSTEM,
                prompt=judging.prompt(self.context.nonce, call, self._tail, tail_bytes=options.tail_bytes),
                nonce=self.context.nonce,
                threshold=options.threshold,
                deadline_s=options.deadline_s,
                call={"name": call.name, "arguments": call.arguments},
            )
        )

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Allow only on a probability below the threshold. The judge's words stay in the record: they may quote the attack."""
        if judgement.error:
            return Block(f"judge_{judgement.error}")
        if judgement.probability is None or not judgement.probability < self.options.threshold:
            return Block("judge")
        return ALLOW
