"""Asks a model of a configured upstream for a judgement, in the upstream's dialect and in a form
that the model takes (`forms`).

Where requests go, with which headers and key, comes from the configuration alone.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

import msgspec

from policy.base import JudgeQuestion
from policy.judging.prompt import JudgementInvalid
from protocol.dialects.table import DIALECTS
from protocol.errors import (
    JudgeUnavailable,
    PipelineError,
    RemoteProtocolError,
    UpstreamTimeout,
    UpstreamTokenMissing,
    UpstreamUnreachable,
)
from protocol.records import JudgementFacts
from protocol.request import Endpoint
from providers.breaker import Breakers, Permit
from providers.doors.plain import Door, Sent
from providers.doors.table import open_door
from providers.http1 import Pool, UpstreamConnection
from settings.config import BUILT_IN, Config, Upstream
from workers.judge import request_forms as judge_forms
from workers.judge.request_forms import Asking, LearnedForms

ATTEMPTS = 3
_BACKOFF_S = 0.25
_MOST_BUSY = 8
"""Requests for one question that may be refused with 429: they are paced, and waiting in order is
no failure."""
_UNPACED = 1_000
_LONGEST_PAUSE_S = 30.0
_MAX_BODY = 2**20
_SILENCE_S = 5.0
"""A model that is silent so long, up to the deadline, has failed."""
_SILENT_S = 660.0
"""Longer than any deadline, which is what ends a judge that is silent."""


class Trial(msgspec.Struct):
    """The result of asking, also after an error: requests sent, the last raw reply, and notes for
    the audit log."""

    attempts: int = 0
    model: str = ""
    """The one that was asked last."""
    reply: str = ""
    facts: JudgementFacts = JudgementFacts()


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None
"""Past it no column holds it, and no JSON of ours."""


class _Usage(msgspec.Struct):
    """What an answer says it took, under the names of any dialect."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    input_tokens: _Count = None
    output_tokens: _Count = None


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


class _Again(Exception):
    """Worth another attempt: 5xx or no connection (status 0). `after_s` is what the upstream asked
    to wait, `answer` its body."""

    def __init__(
        self, message: str, after_s: float = 0.0, status: int = 0, answer: bytes = b""
    ) -> None:
        super().__init__(message)
        self.after_s, self.status, self.answer = after_s, status, answer


class _Busy(_Again):
    """429: the upstream has more questions than it takes."""


class JudgePace:
    """Limits the questions that an upstream is asked at once: a 429 halves the limit, and a number
    of answers raises it by one.

    Without it, the busiest process would make the upstream refuse everybody's questions. Waiting
    questions are asked in order.
    """

    def __init__(self) -> None:
        self._most, self._running, self._not_before = float(_UNPACED), 0, 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def places(self) -> int:
        """How many may be asked at once."""
        return max(1, int(self._most))

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place and hold it; `_Busy` that is raised inside takes places away."""
        await self._enter()
        try:
            if (pause_s := self._not_before - time.monotonic()) > 0:
                await asyncio.sleep(pause_s)
            yield
            self._most = min(_UNPACED, self._most + 1 / self.places)
        except _Busy as error:
            self._most = max(1.0, min(self._most, self._running) / 2)
            self._not_before = max(
                self._not_before,
                time.monotonic() + min(max(error.after_s, _BACKOFF_S), _LONGEST_PAUSE_S),
            )
            raise
        finally:
            self._leave()

    async def _enter(self) -> None:
        if not self._waiting and self._running < self.places:
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # it had just been given its place
                self._leave()
            raise

    def _leave(self) -> None:
        self._running -= 1
        while self._waiting and self._running < self.places:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)


class _Reply:
    """Takes a provider's answer: status, the wait it asks for, and the whole body."""

    def __init__(self) -> None:
        self.status, self.retry_after, self.body = 0, "", b""
        self.headers: Mapping[bytes, bytes] = {}

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Keep what is of interest."""
        self.status, self.retry_after = status, headers.get(b"retry-after", b"").decode("latin-1")
        self.headers = headers

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        """Take some of the body. Raises JudgementInvalid past the bound."""
        self.body += data
        if len(self.body) > _MAX_BODY:
            raise JudgementInvalid("the judge's answer is too large")

    def on_end(self) -> None:
        """Nothing is left to do."""


class JudgeModels:
    """The models of the configured upstreams, with one connection pool."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._paces: dict[str, JudgePace] = {}
        self._forms = LearnedForms()
        self._doors: dict[str, Door] = {}
        self.breakers = Breakers(f"{socket.gethostname()} {os.getpid()}")
        """By model."""
        self._pool = Pool(
            connect_s=config.limits.connect_s, first_byte_s=_SILENT_S, idle_s=_SILENT_S
        )

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()
        for door in self._doors.values():
            await door.close()

    async def ask(
        self, question: JudgeQuestion, trial: Trial, left_s: float, key: str = ""
    ) -> None:
        """Ask for a call of this key until there is a reply, which goes into `trial`. A model that
        has a `fallback` gets half of the time, which is the caller's to keep; then that is asked.

        Raises JudgeUnavailable, JudgementInvalid.
        """
        trial.model, fallback = question.model, question.fallback
        try:
            async with asyncio.timeout(left_s / 2 if fallback else None):
                await self._ask(question, trial, key)
        except (JudgeUnavailable, TimeoutError):
            if not fallback:
                raise
            trial.model = fallback
            await self._ask(msgspec.structs.replace(question, model=fallback), trial, key)

    async def _ask(self, question: JudgeQuestion, trial: Trial, key: str) -> None:
        """Ask one model until there is a reply.

        Raises JudgeUnavailable after the last attempt, at once where asking again cannot help;
        JudgementInvalid where the answer has no reply in it.
        """
        name = self._config.route(question.model)
        if name is None or name in BUILT_IN:
            raise JudgeUnavailable(
                f"no upstream is configured for the judge model {question.model!r}"
            )
        upstream = self._config.upstreams[name]
        asking = self._forms.begin(name, upstream, question.model)
        model = self._config.judge_model(question.model)
        sent = msgspec.structs.replace(question, model=model)
        pace, busy, failed = self._paces.setdefault(name, JudgePace()), 0, 0
        while True:
            body = judge_forms.request_body(upstream.dialect, sent, asking)
            try:
                async with pace.turn():
                    permit = self._permit(name, question.model, key)
                    trial.attempts += 1
                    status, answer = await self._post(name, upstream, model, body, permit)
            except _Busy as error:
                busy += 1
                if busy >= _MOST_BUSY:
                    raise JudgeUnavailable(f"{error} ({trial.attempts} attempts)") from error
                continue
            except _Again as error:
                if asking.refused(error.status, error.answer):
                    continue
                failed += 1
                if failed >= ATTEMPTS:
                    raise JudgeUnavailable(
                        f"{error}{_in_forms(asking)} ({trial.attempts} attempts)"
                    ) from error
                asking.failed(error.status)
                await asyncio.sleep(max(error.after_s, _BACKOFF_S * 2 ** (failed - 1)))
                continue
            if status == 200:
                trial.facts = _facts(answer)
                trial.reply = judge_forms.reply_text(upstream.dialect, asking.form, answer)
                asking.taken()
                return
            if not asking.refused(status, answer):
                raise JudgeUnavailable(
                    f"the judge's upstream answered with status {status}{_in_forms(asking)}"
                )

    def _permit(self, name: str, model: str, key: str) -> Permit:
        """Raises JudgeUnavailable where a model has failed too often to be asked now."""
        if not self._config.upstreams[name].breaker:
            return Permit(None, key, time.monotonic())
        permit = self.breakers.ask(model, key, time.monotonic())
        if isinstance(permit, Permit):
            return permit
        raise JudgeUnavailable(
            f"the judge model {model!r} failed too often and is left alone for {permit:.0f} s more"
        )

    def _door(self, name: str, upstream: Upstream) -> Door:
        """Return an upstream's door: the kept one where it holds tokens, else a new one, as its key
        may have changed."""
        door = self._doors.get(name)
        if door is None or door.is_fixed:
            door = self._doors[name] = open_door(upstream)
        return door

    async def _sent(
        self, door: Door, endpoint: Endpoint, body: bytes, permit: Permit
    ) -> tuple[Sent, _Reply]:
        sent, reply, outcome = await door.request(endpoint, body, ()), _Reply(), ""
        try:
            await self._pool.post(sent.origin, sent.head, sent.body, reply)
            outcome = str(reply.status)
        except PipelineError as error:
            outcome = error.error_code
            raise
        except asyncio.CancelledError:
            # by the question's deadline, up to which the model had its time
            if time.monotonic() - permit.begun >= _SILENCE_S:
                outcome = UpstreamTimeout.code
            raise
        finally:
            permit.done(outcome, time.monotonic())
        return sent, reply

    async def _post(
        self, name: str, upstream: Upstream, model: str, body: bytes, permit: Permit
    ) -> tuple[int, bytes]:
        dialect, door = DIALECTS[upstream.dialect], self._door(name, upstream)
        endpoint = dialect.asked(dialect.answers, model)
        try:
            sent, reply = await self._sent(door, endpoint, body, permit)
            if sent.let_in is not None and door.is_stale(reply.status, reply.headers, sent.let_in):
                _, reply = await self._sent(door, endpoint, body, permit)
        except UpstreamTokenMissing as error:
            raise _Again(f"the judge's upstream cannot be asked: {error.message}") from error
        except (UpstreamTimeout, UpstreamUnreachable, RemoteProtocolError) as error:
            raise _Again(f"the judge's upstream did not answer: {error.message}") from error
        if reply.status == 429 or reply.status >= 500:
            again = _Busy if reply.status == 429 else _Again
            raise again(
                f"the judge's upstream answered with status {reply.status}",
                _seconds(reply.retry_after),
                reply.status,
                reply.body,
            )
        return reply.status, reply.body


def _facts(answer: bytes) -> JudgementFacts:
    """Notes about an answer. An answer with another way of counting has no numbers, and may still
    be a reply."""
    try:
        used = msgspec.json.decode(answer, type=_Counted).usage or _Usage()
    except (ValueError, RecursionError):
        return JudgementFacts()
    counts = ((used.input_tokens, used.prompt_tokens), (used.output_tokens, used.completion_tokens))
    return JudgementFacts(*(count if count is not None else other for count, other in counts))


def _in_forms(asking: Asking) -> str:
    """What to add to an error where more than one form was tried."""
    return f"; it was asked in the forms {', '.join(asking.tried)}" if len(asking.tried) > 1 else ""


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 600.0)
    except ValueError:
        return 0.0
