"""Answers for judges: from the models themselves, from a file of recorded answers, or none.

A recorded answer is found by a hash of its model and prompt, without the mark in the prompt, which
is different in each question.
"""

import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from policy.base import Judgement, JudgeQuestion
from protocol.records import JudgementFacts
from settings.config import DEMO_JUDGE, Config
from settings.runtime import Runtime
from sluice.check.sessions import CALL_ID
from sluice.check.trial import demo_judgement
from sluice.errors import SettingsError
from sluice.eval.play import CaseOutcome, Playing

JudgeMode = Literal["live", "recorded", "off"]
MODES: tuple[JudgeMode, ...] = ("live", "recorded", "off")
_MARK = "<mark>"
NOT_RECORDED = "not_recorded"


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recorded answer: one JSON object a line. `repeat`: the round, where a run has several."""

    key: str
    model: str
    probability: float | None = None
    explanation: str = ""
    error: str = ""
    latency_ms: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    repeat: int = 0


def key_of(question: JudgeQuestion) -> str:
    """The name of a question, which is the same in each run."""
    parts = (
        question.model,
        *(
            text.replace(question.nonce, _MARK) if question.nonce else text
            for text in (question.system, question.prompt)
        ),
    )
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Judges:
    """Answers the questions of a run. `answer` returns what is known immediately; `ask` waits for a
    model."""

    def __init__(
        self, mode: JudgeMode, config: Config, *, recorded: Path | None = None, keeps: bool = False
    ) -> None:
        self.mode, self._config, self._keeps = mode, config, keeps
        self._known = _read(recorded) if recorded is not None else {}
        self.recorded: list[Recorded] = []
        self._judge: Any = None

    def needs_waiting(self, question: JudgeQuestion) -> bool:
        """Must this one be waited for?"""
        return self.mode == "live" and question.model != DEMO_JUDGE

    def answer(self, question: JudgeQuestion, repeat: int) -> Judgement | None:
        """Return the answer to what need not be waited for; None: nobody is asked."""
        if self.mode == "off":
            return None
        if self.mode == "recorded":
            return self._recorded(question, repeat)
        return self._keep(question, _demo(question), repeat)

    def _recorded(self, question: JudgeQuestion, repeat: int) -> Judgement:
        key = key_of(question)
        judgement = self._known.get((key, repeat)) or self._known.get((key, 0))
        if judgement is None:
            return Judgement(model=question.model, error=NOT_RECORDED)
        return Judgement(
            probability=judgement.probability,
            explanation=judgement.explanation,
            model=question.model,
            error=judgement.error,
            latency_ms=judgement.latency_ms,
            attempts=1,
            facts=JudgementFacts(judgement.input_tokens, judgement.output_tokens),
        )

    async def ask(self, question: JudgeQuestion, repeat: int) -> Judgement | None:
        """Return the answer to any question: a model is asked by the code of the judge workers."""
        if not self.needs_waiting(question):
            return self.answer(question, repeat)
        from policy.session.effects import JudgeRequest
        from workers.judge.answering import Judge

        if self._judge is None:
            # the reason stands in each judgement
            logging.getLogger("workers.judge").setLevel(logging.CRITICAL)
            self._judge = Judge(Runtime(config=self._config, redis_url="", database_url=""))
        left_s = (
            question.deadline_s if question.deadline_s is not None else self._config.limits.judge_s
        )
        judgement: Judgement = await self._judge.judge(
            JudgeRequest(CALL_ID, 0, 0, question), left_s
        )
        return self._keep(question, judgement, repeat)

    async def close(self) -> None:
        """Close the connections to judge models."""
        if self._judge is not None:
            await self._judge.models.close()

    def _keep(self, question: JudgeQuestion, judgement: Judgement, repeat: int) -> Judgement:
        if self._keeps:
            self.recorded.append(
                Recorded(
                    key_of(question),
                    question.model,
                    judgement.probability,
                    judgement.explanation,
                    judgement.error,
                    judgement.latency_ms,
                    judgement.facts.input_tokens,
                    judgement.facts.output_tokens,
                    repeat,
                )
            )
        return judgement


def _demo(question: JudgeQuestion) -> Judgement:
    """The built-in judge's answer."""
    judgement = demo_judgement(question)
    assert judgement is not None
    return judgement


def finish(playing: Playing, judges: Judges, repeat: int) -> CaseOutcome:
    """Play to the end where no question must be waited for."""
    try:
        question = next(playing)
        while True:
            question = playing.send(judges.answer(question, repeat))
    except StopIteration as stop:
        outcome: CaseOutcome = stop.value
        return outcome


async def finish_later(playing: Playing, judges: Judges, repeat: int) -> CaseOutcome:
    """Play to the end, waiting for judges."""
    try:
        question = next(playing)
        while True:
            question = playing.send(await judges.ask(question, repeat))
    except StopIteration as stop:
        outcome: CaseOutcome = stop.value
        return outcome


def _read(path: Path) -> dict[tuple[str, int], Recorded]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise SettingsError(
            f"the recorded judgements {path} cannot be read: {error.strerror}"
        ) from None
    judgements = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            judgement = msgspec.json.decode(line, type=Recorded)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SettingsError(
                f"{path} line {number}: it is no recorded judgement ({error}): `--record` writes"
                " them"
            ) from None
        judgements[judgement.key, judgement.repeat] = judgement
    return judgements


def open_file(path: Path) -> None:
    """Make the file, if it is not there. Raises SettingsError where it cannot be written."""
    try:
        path.open("ab").close()
    except OSError as error:
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError) -> SettingsError:
    return SettingsError(f"--record: {path} cannot be written: {error.strerror}")


def write(path: Path, judgements: Iterable[Recorded]) -> None:
    """Write recorded judgements, sorted, so that two runs with the same answers write the same file
    but for times."""
    lines = sorted(msgspec.json.encode(judgement) for judgement in judgements)
    try:
        path.write_bytes(b"".join(line + b"\n" for line in dict.fromkeys(lines)))
    except OSError as error:
        raise _unwritten(path, error) from None
