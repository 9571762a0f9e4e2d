"""The judge worker: takes questions from the arq queue, asks `demo-judge` or a model, stores the
answer as a fact of the call.

A fact is set once: whichever answer is first stays, so a question asked twice has one answer.
Whatever goes wrong is stored as a judgement with `error`, which the policy blocks. While it works
on a question the judge shows a heartbeat.

arq polls its queue every 0.5 s. Here a wake-up (an item of a list, BLPOP) wakes an idle judge when
a question comes; polling stays as the fallback. A judge that has an answer stores it and takes its
next job in one script. One judge gives 1,900 rule-based judgements a second.
"""

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from arq.connections import ArqRedis
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix
from arq.worker import Worker, func

from policy.preset_files import expanded
from protocol.bounds import MAX_JUDGE_QUEUE
from protocol.errors import StreamConnectionLost
from settings.config import DEMO_JUDGE
from settings.runtime import Runtime
from streams import heartbeats, judge_scripts, layout, lifecycle, metrics_port
from streams.connection import Connection, RedisError
from streams.metrics import Now, ProcessFigures
from streams.metrics_port import Exposition
from workers import process
from workers.judge import demo as demo_judge
from workers.judge.answering import Answered, Judge
from workers.judge.cache import CachedJudgements
from workers.judge_queue import (
    FUNCTION,
    LOST,
    Job,
    beat_key_of,
    deserialize,
    is_ours,
    job_id_of,
    open_pool,
    serialize,
    take_away,
)

log = logging.getLogger(__name__)
BEAT_S = 1.0
BEAT_TTL_MS = 3_000
BLOCKED_S = 10.0
_JOB_TIMEOUT_S = 660
_STORE_S, RETRY_S = 5.0, 0.1
_REJECTED_TTL_S = 604_800
_RETRY_TTL_S = 88_400
"""arq's own: how long it remembers how often a job was tried."""
UNREAD, UNHEARD, UNSEEN = (
    "the judge queue cannot be read",
    "the judges' wake-ups cannot be received",
    "the judge queue cannot be checked",
)
_encode = msgspec.json.Encoder().encode
_decode_job = msgspec.json.Decoder(Job).decode


@dataclass(frozen=True, slots=True)
class Taken:
    """A job that is this judge's: its id, text, how often it was taken, how long an answer is of
    use, and the value of its heartbeat."""

    job_id: str
    text: bytes
    tries: int
    left_s: float
    token: str


def _judged(answered: Answered) -> judge_scripts.JudgeAnswer:
    ask = answered.ask
    return judge_scripts.JudgeAnswer(
        call_id=ask.call_id,
        job_id=job_id_of(ask),
        field=layout.judgement_field(ask.block, ask.step),
        judgement=_encode(answered.judgement),
    )


class JudgeWorker(Worker):
    """arq's worker with its own slots: each slot takes a job, answers it, and stores the answer in
    the script that takes the next job.

    With arq's own loop each worker tries the whole queue from its head, with three round trips for
    each job, so judges compete for every job, and each job costs three more: 5.9 ms of CPU for each
    judgement with 8 judges and 32 questions. `rejected` counts jobs that are not our JSON (a pickle
    is never unpickled).
    """

    def __init__(
        self,
        judge: Judge,
        pool: ArqRedis,
        redis: Connection,
        wake_ups: Connection,
        *,
        concurrency: int,
    ) -> None:
        super().__init__(
            [func(judge.work, name=FUNCTION)],
            queue_name=layout.JUDGE_QUEUE,
            redis_pool=pool,
            handle_signals=False,
            max_jobs=concurrency,
            job_timeout=_JOB_TIMEOUT_S,
            keep_result=0,
            max_tries=5,
            job_serializer=serialize,
            job_deserializer=deserialize,
            log_results=False,
        )
        self.rejected = 0
        self._redis, self._wake_ups = redis, wake_ups
        self._listening = asyncio.Lock()
        self._held: dict[str, Taken] = {}
        self._places, self._resting = set[asyncio.Task[None]](), set[asyncio.Task[Any] | None]()
        self._silent = set[str]()
        self._away = set[str]()
        """What failed since it last succeeded, of what is asked of Redis."""

    async def main(self) -> None:
        """Answer questions until cancelled or drained."""
        self._places = {
            asyncio.create_task(self._answer_questions(), name=f"place {n}")
            for n in range(self.max_jobs)
        }
        loops = {*self._places, asyncio.create_task(self._keep_alive(), name="beat")}
        try:
            # what goes wrong unexpectedly in one of them ends the worker
            await asyncio.gather(*loops)
        finally:
            self.allow_pick_jobs = False
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _answer_questions(self) -> None:
        """One place: one question after the other."""
        held: Taken | None = None
        answered: Answered | None = None
        was_rung = False
        try:
            while self.allow_pick_jobs or answered is not None:
                taken = await self._turn(answered, was_rung)
                self._let_go(held)
                held, answered, was_rung = taken, None, False
                if held is None:
                    was_rung = self.allow_pick_jobs and await self._rest()
                    continue
                self._hold(held)
                if self.allow_pick_jobs and (answered := await self._work(held)) is None:
                    self._let_go(held)
                    held = None
        finally:
            if held is not None:
                # stopped before its answer was there, or stored
                self.jobs_retried += 1
                self._let_go(held)
                for key in (in_progress_key_prefix + held.job_id, beat_key_of(held.job_id)):
                    self._redis.send_quiet("DEL", key)
                # it had its turn: before all others
                self._redis.send_quiet("ZADD", layout.JUDGE_TURNS, "-1", held.job_id)
                self._redis.send_quiet("EXPIRE", layout.JUDGE_TURNS, layout.JUDGE_TURNS_S)

    def _hold(self, job: Taken) -> None:
        # by token: in a failover Redis forgets that a job was taken, and another place here has it
        # too
        self._held[job.token] = job
        if (place := asyncio.current_task()) is not None:
            self.tasks[job.job_id] = place

    def _let_go(self, job: Taken | None) -> None:
        if job is not None:
            del self._held[job.token]
            self.tasks.pop(job.job_id, None)

    async def _turn(self, answered: Answered | None, was_rung: bool) -> Taken | None:
        """Store an answer and take the next job. Repeated until it is known to have been done; an
        answer, for `_STORE_S` at most."""
        token, until, is_first = secrets.token_hex(8), time.monotonic() + _STORE_S, True
        judged = _judged(answered) if answered is not None else None
        while self.allow_pick_jobs or judged is not None:
            try:
                turn = await judge_scripts.take_turn(
                    self._redis,
                    token,
                    take="no" if not self.allow_pick_jobs else "first" if is_first else "again",
                    was_woken=was_rung,
                    mark_ms=int(self.in_progress_timeout_s * 1000),
                    beat_ms=BEAT_TTL_MS,
                    max_tries=self.max_tries,
                    retry_s=_RETRY_TTL_S,
                    max_depth=2 * MAX_JUDGE_QUEUE,
                    answered=judged,
                )
            except (StreamConnectionLost, RedisError) as error:
                self._lost(UNREAD, error)
                is_first = False
                if judged is not None and time.monotonic() > until:
                    log.error("a judgement could not be stored", extra={"action": "forget"})
                    judged = answered = None
                await asyncio.sleep(RETRY_S)
                continue
            self._found(UNREAD)
            if answered is not None:
                # a second time it may be our own that is there
                self._note(answered, is_late=is_first and not turn.is_stored)
            if not turn.job_id:
                return None
            if turn.text is not None and is_ours(turn.job_id):
                # unknown, or text that lives for ever: who asked counts too
                left_s = turn.left_ms / 1000 if turn.left_ms >= 0 else _JOB_TIMEOUT_S
                left_s = min(left_s, _JOB_TIMEOUT_S)
                return Taken(turn.job_id.decode(), turn.text, turn.tries, left_s, token)
            await self._turn_away(turn.job_id)
            judged = answered = None
        return None

    def _lost(self, what: str, error: Exception) -> None:
        """Say once in an outage of Redis that this process cannot go on, whatever notices it, and
        however many places retry."""
        if not self._away:
            log.warning(what, extra={"error": type(error).__name__, "action": "wait"})
        self._away.add(what)

    def _found(self, what: str) -> None:
        if what in self._away:
            self._away.discard(what)
            if not self._away:
                log.info("the judge queue can be read again")

    def _note(self, answered: Answered, *, is_late: bool) -> None:
        """Count an answer, and tell of one that is of no use; the others are on record. A line for
        each was a tenth of a judge's CPU."""
        self.jobs_complete += 1
        judgement = answered.judgement
        if is_late or judgement.error:
            extra = {
                "call_id": answered.ask.call_id,
                "action": "late" if is_late else judgement.error,
                "latency_ms": judgement.latency_ms,
            }
            log.info("judged in vain", extra=extra)

    async def _work(self, job: Taken) -> Answered | None:
        """Answer a job as arq's `run_job` does, which asks Redis for what is known here. None where
        it is no question of ours."""
        try:
            asked = _decode_job(job.text)
            function = self.functions[asked.f]
            ctx = {**self.ctx, "job_id": job.job_id, "job_try": job.tries, "left_s": job.left_s}
            return cast(Answered, await function.coroutine(ctx, *asked.a, **asked.k))
        except (ValueError, TypeError, RecursionError):
            self.jobs_failed += 1
            await self._turn_away(job.job_id.encode())
            return None

    async def _rest(self) -> bool:
        """Wait for a wake-up, or as long as Redis may be asked to wait: arq's poll. One place
        listens at a time."""
        me = asyncio.current_task()
        self._resting.add(me)
        try:
            async with self._listening:
                woken = (
                    await self._wake_ups.call(
                        "BLPOP", layout.JUDGE_WAKE_UPS, str(self._wake_ups.block_ms / 1000)
                    )
                    is not None
                )
                self._found(UNHEARD)
                return woken
        except (StreamConnectionLost, RedisError) as error:
            self._lost(UNHEARD, error)
            await asyncio.sleep(0.2)
            return False
        finally:
            self._resting.discard(me)

    async def _keep_alive(self) -> None:
        """Show heartbeats for what is worked on, look around now and then, and keep arq's own
        record of health."""
        looked = 0.0
        # not for ever: arq's client may take a cancellation for a time-out
        while self.allow_pick_jobs or self._held:
            for job in list(self._held.values()):
                self._redis.send_quiet("SET", beat_key_of(job.job_id), job.token, "PX", BEAT_TTL_MS)
            try:
                if time.monotonic() - looked >= BEAT_TTL_MS / 1000:
                    looked = time.monotonic()
                    await self._look_around()
                await self.heart_beat()
                self._found(UNSEEN)
            except (*LOST, RedisError, StreamConnectionLost) as error:
                self._lost(UNSEEN, error)
            await asyncio.sleep(BEAT_S)

    async def _turn_away(self, job_id: bytes) -> None:
        """Take a job that is not ours off the queue; who took it off counts it. Should that get
        lost, it is met again."""
        try:
            is_off = await self._redis.call("ZREM", layout.JUDGE_QUEUE, job_id)
            self._redis.send_quiet("ZREM", layout.JUDGE_TURNS, job_id)
        except (StreamConnectionLost, RedisError):
            await asyncio.sleep(RETRY_S)
            return
        self._redis.send_quiet(
            "DEL",
            *(
                prefix.encode() + job_id
                for prefix in (job_key_prefix, in_progress_key_prefix, retry_key_prefix)
            ),
        )
        if is_off:
            self._reject()

    def _reject(self) -> None:
        """Count a job that is not ours, for all judges together."""
        self.rejected += 1
        self._redis.send_quiet("INCR", layout.JUDGE_REJECTED)
        self._redis.send_quiet("EXPIRE", layout.JUDGE_REJECTED, _REJECTED_TTL_S)
        log.error("a job that is not ours was rejected", extra={"action": "reject"})

    async def _look_around(self) -> None:
        """Now and then remove jobs whose judge is dead: arq would keep them for the longest time a
        job may take, and they count as waiting. A judge counts as dead if nobody here works on the
        job and its heartbeat was missing at two checks. Who needs the answer asks again
        (`JudgeQueue.died`)."""
        job_ids = await self._redis.call(
            "ZRANGEBYSCORE", layout.JUDGE_QUEUE, "-inf", "+inf", "LIMIT", 0, 2 * MAX_JUDGE_QUEUE
        )
        for job_id in job_ids:
            if not is_ours(job_id):
                await self._turn_away(job_id)
        held = {job.job_id for job in self._held.values()}
        ours = [
            job_id.decode() for job_id in job_ids if is_ours(job_id) and job_id.decode() not in held
        ]
        marks = (
            await self._redis.call("MGET", *(in_progress_key_prefix + job_id for job_id in ours))
            if ours
            else []
        )
        others = [job_id for job_id, mark in zip(ours, marks, strict=True) if mark is not None]
        beats = await self._redis.call("MGET", *map(beat_key_of, others)) if others else []
        silent = {job_id for job_id, beat in zip(others, beats, strict=True) if beat is None}
        for job_id in silent & self._silent:
            await take_away(self.pool, job_id)
        self._silent = silent

    async def drain(self, grace_s: float) -> None:
        """Take no more; give running jobs `grace_s`, then leave them to other judges."""
        self.allow_pick_jobs = False
        if running := self._places - self._resting:
            _, late = await asyncio.wait(running, timeout=grace_s)
            for place in late:
                place.cancel()
            await asyncio.gather(*late, return_exceptions=True)


async def run(settings: Runtime) -> None:
    """Run one judge worker until SIGTERM."""
    demo_judge.check_canary()
    # arq logs the arguments of jobs, which are prompts
    logging.getLogger("arq.worker").setLevel(logging.WARNING)
    stopping = asyncio.Event()
    lifecycle.on_stop(stopping.set)
    process.watch_loop(BLOCKED_S)
    warn_about_models(settings)
    await serve(settings, stopping)


async def serve(settings: Runtime, stopping: asyncio.Event) -> None:
    """Take questions until `stopping` is set, then finish those begun within `limits.drain_s`."""
    name = settings.name or f"{socket.gethostname()}-{os.getpid()}"
    url, silent_s = settings.redis_url, settings.config.limits.redis_silent_s
    redis, wake_ups = (
        Connection(url, name="judge", silent_s=silent_s),
        Connection(url, name="judge-wake-ups", silent_s=silent_s),
    )
    pool = open_pool(url, connections=4 * settings.concurrency + 4, silent_s=silent_s)
    await asyncio.gather(redis.open(), wake_ups.open())
    figures = ProcessFigures()
    judge = Judge(settings, CachedJudgements(redis), figures)

    def states() -> dict[str, int]:
        return judge.models.breakers.states(time.monotonic())

    figures.reads.append(
        lambda: ((Now.UPSTREAM_STATE, (model,), state) for model, state in states().items())
    )
    worker = JudgeWorker(judge, pool, redis, wake_ups, concurrency=settings.concurrency)

    def shown() -> list[tuple[str, str]]:
        resting = [(heartbeats.RESTING, model) for model, state in states().items() if state]
        return heartbeats.shown_by("judge", name, is_stopping=stopping.is_set()) + resting

    grace_s, until = settings.config.limits.drain_s, math.inf

    async def stop() -> None:
        nonlocal until
        await stopping.wait()
        until = time.monotonic() + grace_s
        await process.stay_for_calls(
            redis, "judge", name, shards=settings.config.shards, grace_s=grace_s
        )

    loops = [
        asyncio.create_task(worker.main(), name="judge"),
        asyncio.create_task(
            process.send_heartbeats(redis, shown, alive_file=settings.alive_file), name="heartbeats"
        ),
        asyncio.create_task(stop(), name="stop"),
    ]
    process.tell_ready(settings)
    log.info("judge worker ready", extra={"worker": name})
    try:
        async with metrics_port.listening(settings, lambda: Exposition(figures, "judge")):
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        await worker.drain(max(0.0, min(grace_s, until - time.monotonic())))
        await heartbeats.withdraw(redis, *shown())
        for task in done:
            task.result()
    finally:
        for task in loops:
            task.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        # also when it was cancelled: a job that went on would ask its model over a session that
        # nobody closes
        await worker.drain(0)
        await asyncio.gather(
            judge.models.close(),
            redis.close(),
            wake_ups.close(),
            pool.aclose(close_connection_pool=True),
        )


def warn_about_models(settings: Runtime) -> None:
    """Say which judge models of the configuration no upstream serves: their questions are answered
    with an error."""
    for series, steps in settings.config.policies.items():
        for step in expanded(steps):
            judges = step.options.get("judges") or (step.options.get("model"),)
            for model in judges if step.use in ("tool_judge", "text_judge") else ():
                if (
                    model != DEMO_JUDGE
                    and settings.config.route(str(model)) not in settings.config.upstreams
                ):
                    log.warning(
                        "no upstream is configured for a judge model",
                        extra={"policy": series, "model": model},
                    )
