"""Ask a judge model about tool calls; everything unexpected blocks."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from policy import judge_view, judging
from policy.answer import size_of
from policy.base import ALLOW, AskJudge, Block, Context, Judgement, JudgeQuestion, Policy, ToolCall, Verdict
from policy.patterns import NamePattern, Names
from protocol.bounds import MAX_ANSWER_BYTES, MAX_TOOL_BYTES
from protocol.request import ChatRequest, Tool


class Options(BaseModel):
    """Options of `tool_judge`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: Annotated[str, Field(min_length=1)]
    """The judge: `demo-judge`, or a model that `models` routes to an upstream."""
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.6
    """From this probability of harm on the call is blocked."""
    deadline_s: Annotated[float, Field(gt=0, le=600)] | None = None
    """Without an answer by then the call is blocked. Unset: `limits.judge_s`."""
    tail: Annotated[int, Field(ge=0, le=100)] = 6
    """How many of the last turns the judge sees."""
    tail_bytes: Annotated[int, Field(ge=0, le=2**20)] = 32_768
    """How many bytes of those turns."""
    system_bytes: Annotated[int, Field(ge=0, le=2**20)] = 16_384
    """How many bytes of the system prompt; 0 for none."""
    tools: NamePattern | list[NamePattern] = "*"
    """Names of the tools to judge; calls of others are allowed."""
    max_arguments_bytes: Annotated[int, Field(gt=0, le=2**20)] = 65_536
    """Larger arguments are blocked unjudged, never cut."""
    answer_bytes: Annotated[int, Field(ge=0, le=MAX_ANSWER_BYTES)] = 65_536
    """The same for the calls before in the same answer, together."""
    needs_user: bool = False
    """Block where the conversation has no word of the user."""
    needs_calls: bool = False
    """Block where arguments of the agent's calls in the turns shown had to be cut."""


_Conversation = tuple[judge_view.View, judging.Shown, tuple[str, ...]]
"""A conversation as it is shown, sealed, and as it may be read."""


class ToolJudge(Policy):
    """Block tool calls that a judge model holds to be harmful with at least the probability `threshold`."""

    name = "tool_judge"
    asks = True
    keeps_request = False

    def __init__(self, **options: object) -> None:
        self.options = Options.model_validate(options)
        self._tools = Names(self.options.tools)
        self._kept: judge_view.Kept | None = None
        self._view: _Conversation | None = None
        self._sizes: dict[str, tuple[Tool, int]] = {}

    def for_call(self, context: Context) -> Self:
        """Give the call the end of its conversation."""
        mine = super().for_call(context)
        mine._keep(context.request)
        mine._sizes = {}
        return mine

    def on_request(self, request: ChatRequest) -> None:
        """Keep what the policies before made of it: that is what the model reads."""
        if request is not self.context.request:
            self._keep(request)

    def _keep(self, request: ChatRequest) -> None:
        self._kept, self._view = judge_view.keep(request, self.options.tail, self.options.system_bytes), None

    def _conversation(self) -> _Conversation:
        """The conversation as all questions of the call show it, made for the first."""
        if self._view is None:
            assert self._kept is not None
            view = judge_view.view(self._kept, self.options.tail_bytes)
            # what it was made of may be megabytes
            self._kept, self._view = None, (view, judging.sealed(view.json), judging.readings(view.json))
        return self._view

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Ask about the call, if its tool is among those to judge and everything that it depends on can be shown."""
        options = self.options
        if not self._tools.means(call.name):
            return ALLOW
        if size_of(call.arguments) > options.max_arguments_bytes:
            return Block("too_large", detail="for its judge")
        if self._size_of(call.tool) > MAX_TOOL_BYTES:
            return Block("tool_too_large")
        if not call.before.is_whole or call.before.size > options.answer_bytes:
            return Block("answer_too_large")
        view, conversation, view_reads = self._conversation()
        if options.needs_user and not view.has_user:
            return Block("no_user")
        if options.needs_calls and not view.calls_whole:
            return Block("history_too_large")
        subject = judging.subject(call)
        # nobody can know the nonce: whoever says it was told
        if any(call.nonce in text for text in (*view_reads, *judging.readings(subject))):
            return Block("nonce")
        return AskJudge(
            JudgeQuestion(
                model=options.model,
                system=judging.SYSTEM,
                prompt=judging.prompt(call.nonce, conversation, judging.sealed(subject)),
                nonce=call.nonce,
                threshold=options.threshold,
                deadline_s=options.deadline_s,
                call={"name": call.name, "arguments": call.arguments},
            )
        )

    def _size_of(self, tool: Tool | None) -> int:
        """What a tool's definition takes; made once, for it may be a megabyte and be called a hundred times."""
        if tool is None:
            return 0
        known = self._sizes.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._sizes[tool.name] = (tool, judging.size_of_tool(tool))
        return known[1]

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Allow only on a probability below the threshold. The judge's words stay in the record: they may quote the attack."""
        if judgement.error:
            return Block(f"judge_{judgement.error}")
        probability, threshold = judgement.probability, self.options.threshold
        if probability is None:
            return Block("judge")
        if not probability < threshold:
            return Block("judge", detail=f"{_figure(probability)}, the limit is {_figure(threshold)}")
        return ALLOW


def _figure(probability: float) -> str:
    """With two digits behind the point, and with more only where there are more: a limit must not look as if it were not reached."""
    return f"{probability:.2f}" if round(probability, 2) == probability else f"{probability:.4g}"
