"""Asks judge models whether text breaks a rule in plain words; everything unexpected blocks.

It sees windows of an answer, the newest words of the user and the results of tools, each as a
`ToolCall` without a name; and calls that are written as text. What it asks depends on that text
alone, so judges may find their answer in a cache.
"""

import json
from hashlib import blake2b
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from policy.base import (
    ALLOW,
    Block,
    Judgement,
    JudgeQuestion,
    Policy,
    TextPiece,
    TextSource,
    ToolCall,
    Verdict,
    WindowSize,
)
from policy.judging import panel
from policy.judging import prompt as judging
from protocol.bounds import MAX_JUDGED_CHARS, MAX_REVIEWED, MAX_RUBRIC_CHARS


class WindowOptions(BaseModel, extra="forbid", frozen=True):
    """Where answers are cut, in characters: at the next end of a sentence or line."""

    chars: Annotated[int, Field(ge=40, le=16_384)] | Literal["all"] = 800
    """The least length of a window; the most is half as much again. `all`: the whole block."""
    first: Annotated[int, Field(ge=1, le=16_384)] = 240
    """The same of the first window of a block."""
    overlap: Annotated[int, Field(ge=0, le=4_096)] = 200
    """Characters before a window that are shown with it."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.chars != "all" and max(self.first, self.overlap) > self.chars:
            raise ValueError("`first` and `overlap` must be at most `chars`")
        return self


class TextJudgeOptions(panel.PanelOptions):
    """Options of `text_judge`. Text that gets no judgement is blocked."""

    rule: Annotated[str, Field(min_length=1, max_length=MAX_RUBRIC_CHARS)]
    """What no text may do, in plain words."""
    rubric: Annotated[str, Field(max_length=MAX_RUBRIC_CHARS)] = ""
    """What judges are told before the rule, in place of Sluice's words."""
    on: Annotated[tuple[TextSource, ...], Field(min_length=1)] = ("answer",)
    """The model's answer and reasoning, the user's newest words, results of the client's tools."""
    window: WindowOptions = WindowOptions()
    """How answers are cut. The first policy that judges them counts."""
    max_questions: Annotated[int, Field(ge=1, le=MAX_REVIEWED)] = 64
    """Questions of a call about each of these; what needs more is blocked."""
    deadline_s: Annotated[float, Field(gt=0, le=600)] | None = None
    """Unset: `limits.judge_s`."""
    cache: bool = True
    """Use a judge's answer to the same text, rule and key for 24 hours."""


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


class TextJudge(Policy):
    """Block text that judge models rate as breaking a rule."""

    name = "text_judge"
    asks = True
    keeps_request = False
    after_block = ("window", "block", "turn")

    def __init__(self, **options: object) -> None:
        self.options = made = TextJudgeOptions.model_validate(options)
        self.asks_again = made.escalate is not None
        self.judges_text = made.on
        self._system = judging.system_of_text(made.rule, made.rubric)
        if "answer" in made.on:
            size = made.window
            chars = size.chars if size.chars != "all" else 0
            self.window = WindowSize(chars, size.first, size.overlap)

    def on_tool_call(self, call: ToolCall) -> Verdict:
        """Ask about a text, if it is of a kind to judge and not too large."""
        piece, options = call.text, self.options
        if piece is None or piece.source not in options.on or not piece.text.strip():
            return ALLOW
        if len(piece.text) > MAX_JUDGED_CHARS:
            most = f"{MAX_JUDGED_CHARS:,}"
            return Block("too_large", f"it has more characters than a judge is shown ({most})")
        questions = len(options.models) + self.asks_again
        if (piece.number + 1) * questions > options.max_questions:
            return Block("judge_budget")
        return panel.ask(options.models, self._question(call), options.fallback)

    def _question(self, call: ToolCall) -> JudgeQuestion | Block:
        piece, options = call.text or TextPiece(""), self.options
        subject = judging.subject_of_text(piece)
        if any(call.nonce in text for text in judging.readings(subject)):
            return Block("nonce")
        key, asked = (_digest(text) for text in (self.context.key, f"{self._system}\0{subject}"))
        return JudgeQuestion(
            model="",
            system=self._system,
            prompt=judging.prompt(call.nonce, judging.sealed(subject), of=judging.OF_TEXT),
            nonce=call.nonce,
            threshold=options.threshold,
            deadline_s=options.deadline_s,
            call={
                "arguments": json.dumps({"text": piece.text}),
                "rule": options.rule,
            },
            cache=f"{key}:{asked}" if options.cache else "",
        )

    def on_judgement(self, call: ToolCall, judgement: Judgement) -> Verdict:
        """Allow only where the judges do."""
        return panel.decide(self.options, judgement, lambda: self._question(call))
