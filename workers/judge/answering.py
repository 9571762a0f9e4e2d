"""What a judge does with one question, wherever that comes from."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from policy.base import Judgement
from policy.judging.prompt import JudgementInvalid, parse_reply
from policy.session.effects import JudgeRequest
from protocol.errors import JudgeUnavailable
from settings.config import DEMO_JUDGE
from settings.runtime import Runtime
from streams.metrics import ProcessFigures, Span, Total
from workers.judge import demo as demo_judge
from workers.judge.cache import CachedJudgements
from workers.judge.model import JudgeModels, Trial
from workers.judge_queue import job_id_of

log = logging.getLogger(__name__)
_decode_ask = msgspec.json.Decoder(JudgeRequest).decode


@dataclass(frozen=True, slots=True)
class Answered:
    """A question that has its answer, which is still to be stored."""

    ask: JudgeRequest
    judgement: Judgement


class Judge:
    """What a judge does with one question."""

    def __init__(
        self,
        settings: Runtime,
        cache: CachedJudgements | None = None,
        figures: ProcessFigures | None = None,
    ) -> None:
        self.models = JudgeModels(settings.config)
        self._cache, self._figures = cache, figures or ProcessFigures()

    async def work(self, ctx: dict[str, Any], text: str) -> Answered:
        """Answer one job. Raises ValueError, RecursionError where it is not the question that its
        id names; else only when cancelled."""
        ask = _decode_ask(text)
        if ctx["job_id"] != job_id_of(ask):
            raise ValueError("the job is of another question than its id")
        return Answered(ask, await self.judge(ask, ctx["left_s"]))

    async def judge(self, ask: JudgeRequest, left_s: float) -> Judgement:
        """Ask for at most `left_s`, and return the judgement; everything unexpected becomes one
        with `error`."""
        question, trial, started, error = ask.question, Trial(), time.monotonic(), ""
        probability: float | None = None
        explanation = ""
        try:
            if left_s <= 0:
                raise TimeoutError
            async with asyncio.timeout(left_s):
                known = None if self._cache is None else await self._cache.find(question)
                if known is not None:
                    self._figures.add(Total.JUDGEMENTS, question.model, "cached")
                    return known
                if question.model == DEMO_JUDGE:
                    trial.attempts, trial.reply = 1, demo_judge.answer(question)
                else:
                    await self.models.ask(question, trial, left_s, ask.key_id)
            probability, explanation = parse_reply(trial.reply, question.nonce)
        except TimeoutError:
            error = "deadline"
        except JudgementInvalid as problem:
            explanation, error = problem.message, "invalid"
        except JudgeUnavailable as problem:
            explanation, error = problem.message, "unavailable"
        except Exception as problem:  # noqa: BLE001 - a judge that fails is an answer too: it blocks
            log.error(
                "judge failed", extra={"call_id": ask.call_id, "error": type(problem).__name__}
            )
            explanation, error = type(problem).__name__, "fault"
        seconds = time.monotonic() - started
        self._figures.add(Total.JUDGEMENTS, question.model, error or "answered")
        self._figures.observe(Span.JUDGE_SECONDS, seconds, question.model)
        judgement = Judgement(
            probability=probability,
            explanation=explanation,
            model=trial.model or question.model,
            prompt=question.prompt,
            reply=trial.reply,
            latency_ms=int(seconds * 1000),
            attempts=ask.attempt + trial.attempts,
            error=error,
            facts=trial.facts,
        )
        if self._cache is not None:
            # what a fallback said is no answer of the model that was wanted
            self._cache.keep(msgspec.structs.replace(question, model=judgement.model), judgement)
        return judgement
