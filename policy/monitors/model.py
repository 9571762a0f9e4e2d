"""The monitor `model`: asks a judge model how likely it is that a tool call does harm.

How much of the conversation the judge sees is configurable (`policy.judging.view.View`). The more
it sees, the better it knows what the user wanted, and the more it reads from those who may want to
persuade it. Used by the policies `control` and `tool_judge`."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from policy.base import AskJudge, Context, Judgement, JudgeQuestion, ToolCall
from policy.judging import prompt as judging
from policy.judging import view as judge_view
from policy.judging.answer_so_far import size_of
from policy.judging.view import View
from policy.monitors.base import Monitor
from policy.scores import Score
from protocol.bounds import MAX_ANSWER_BYTES, MAX_RUBRIC_CHARS, MAX_TOOL_BYTES
from protocol.request import ChatRequest, Tool


class ModelOptions(BaseModel):
    """Options of the monitor `model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    model: Annotated[str, Field(min_length=1)]
    """The judge: `demo-judge`, or a model that `models` routes to an upstream."""
    view: View = "calls"
    """What the judge sees besides the call: `call`, nothing; `calls`, the user's messages and the
    agent's calls; `tail`, everything in the last turns; `turn`, everything since the user's last
    message (docs/run/monitors.md#views)."""
    deadline_s: Annotated[float, Field(gt=0, le=600)] | None = None
    """How long to wait for an answer. Without one there is no score, which counts as the worst.
    Unset: `limits.judge_s`."""
    tail: Annotated[int, Field(ge=0, le=100)] = 6
    """How many of the last turns in `view` the judge sees."""
    tail_bytes: Annotated[int, Field(ge=0, le=2**20)] = 32_768
    """How many bytes of those turns."""
    system_bytes: Annotated[int, Field(ge=0, le=2**20)] = 16_384
    """How many bytes of the system prompt; 0 for none."""
    max_arguments_bytes: Annotated[int, Field(gt=0, le=2**20)] = 65_536
    """The largest arguments that are judged. Larger ones get no score; they are never cut."""
    answer_bytes: Annotated[int, Field(ge=0, le=MAX_ANSWER_BYTES)] = 65_536
    """The same for all earlier calls of the same answer together."""
    rubric: Annotated[str, Field(max_length=MAX_RUBRIC_CHARS)] = ""
    """What the judge goes by, in your words, in place of Sluice's."""
    needs_user: bool = False
    """Give no score if the conversation has no message from the user."""
    needs_calls: bool = False
    """Give no score if arguments of the agent's calls had to be cut in the turns shown."""

    @model_validator(mode="after")
    def _needs_what_it_sees(self) -> Self:
        if self.view == "call" and (self.needs_user or self.needs_calls):
            raise ValueError(
                "`needs_user` and `needs_calls` need a view that shows the conversation, not `call`"
            )
        return self


_Conversation = tuple[judge_view.Seen, judging.ShownObject, tuple[str, ...]]
"""A conversation as it is shown, sealed, and as it may be read."""


class ModelMonitor(Monitor):
    """Scores a call by the probability of harm that a judge model gives it."""

    name = "model"
    asks = True

    def __init__(self, **options: object) -> None:
        self.options = ModelOptions.model_validate(options)
        self._history: judge_view.KnownTurns | None = None
        self._view: _Conversation | None = None
        self._sizes: dict[str, tuple[Tool, int]] = {}

    @classmethod
    def of(cls, options: ModelOptions, threshold: float) -> Self:
        """Return a monitor with options that were read before."""
        made = cls(model="judge")
        made.options, made.threshold = options, threshold
        return made

    def for_call(self, context: Context) -> Self:
        """Give the call the end of its conversation."""
        clone = super().for_call(context)
        clone.on_request(context.request)
        clone._sizes = {}
        return clone

    def on_request(self, request: ChatRequest) -> None:
        """Keep what the policies before made of it: that is what the model reads."""
        options = self.options
        shown = judge_view.of_view(request, options.view)
        tail = judge_view.MOST_TURNS if options.view == "turn" else options.tail
        self._history, self._view = judge_view.keep(shown, tail, options.system_bytes), None

    def _conversation(self) -> _Conversation:
        """The conversation as all questions of the call show it, made for the first."""
        if self._view is None:
            assert self._history is not None
            view = judge_view.view(self._history, self.options.tail_bytes)
            # what it was made of may be megabytes
            self._history, self._view = (
                None,
                (
                    view,
                    judging.sealed(view.json),
                    judging.readings(view.json),
                ),
            )
        return self._view

    def on_call(self, call: ToolCall, context: Context) -> Score | AskJudge:
        """Ask about the call, if everything that it depends on can be shown."""
        options = self.options
        if problem := self._too_large(call):
            return Score(self.name, None, error=problem)
        view, conversation, view_reads = self._conversation()
        if options.needs_user and not view.has_user:
            return Score(self.name, None, error="no_user")
        if options.needs_calls and not view.calls_whole:
            return Score(self.name, None, error="history_too_large")
        subject = judging.subject(call, options.view)
        # nobody can guess the nonce: whoever writes it has learned it
        if any(call.nonce in text for text in (*view_reads, *judging.readings(subject))):
            return Score(self.name, None, error="nonce")
        return AskJudge(
            JudgeQuestion(
                model=options.model,
                system=judging.system(options.view, options.rubric),
                prompt=judging.prompt(call.nonce, conversation, judging.sealed(subject)),
                nonce=call.nonce,
                threshold=self.threshold,
                deadline_s=options.deadline_s,
                call={"name": call.name, "arguments": call.arguments},
            )
        )

    def _too_large(self, call: ToolCall) -> str:
        """What of the call is too large to be judged."""
        options = self.options
        if size_of(call.arguments) > options.max_arguments_bytes:
            return "too_large"
        if self._size_of(call.tool) > MAX_TOOL_BYTES:
            return "tool_too_large"
        is_shown_whole = call.before.is_whole and call.before.size <= options.answer_bytes
        return "" if is_shown_whole or options.view == "call" else "answer_too_large"

    def _size_of(self, tool: Tool | None) -> int:
        """What a tool's definition takes; made once, for it may be a megabyte and be called a
        hundred times."""
        if tool is None:
            return 0
        known = self._sizes.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._sizes[tool.name] = (tool, judging.size_of_tool(tool))
        return known[1]

    def on_answer(self, call: ToolCall, judgement: Judgement) -> Score:
        """The probability is the score. The judge's words stay in the record: they may quote the
        attack."""
        error = judgement.error or ("" if judgement.probability is not None else "invalid")
        return Score(
            self.name,
            None if error else judgement.probability,
            why=judgement.explanation,
            error=error,
            latency_ms=judgement.latency_ms,
            input_tokens=judgement.facts.input_tokens,
            output_tokens=judgement.facts.output_tokens,
        )
