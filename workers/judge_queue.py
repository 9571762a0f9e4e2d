"""The asking side of the judge pool: puts questions on the arq queue and notices judges that died
over one.

arq owns the queue and its keys; jobs are JSON on both sides, never pickle. In addition, a wake-up
(a token on a list) reaches an idle judge at once, because arq itself only polls. Each question is
one job per attempt, so asking twice is one job.
"""

import asyncio
import time
from typing import Any, Literal

import msgspec
from arq.connections import ArqRedis, RedisSettings
from arq.constants import in_progress_key_prefix, job_key_prefix, retry_key_prefix
from arq.jobs import serialize_job
from redis.exceptions import RedisError

from policy.session.effects import JudgeRequest
from protocol.bounds import MAX_JUDGE_QUEUE
from protocol.errors import JudgeUnavailable, StreamConnectionLost
from streams import connection, judge_scripts, layout
from streams.script_outcomes import Outcome

FUNCTION = "judge"
LOST = (RedisError, OSError, RuntimeError)
"""What arq's client raises when Redis goes away; uvloop's own for a connection that closed under it
is a RuntimeError."""
MAX_ATTEMPTS = 3
_RETRY_S = 0.2
_encode = msgspec.json.Encoder().encode


class Job(msgspec.Struct, forbid_unknown_fields=True):
    """An arq job in arq's own names: try, function, arguments, keyword arguments, and when it was
    put there (Unix ms)."""

    t: int | None
    f: Literal["judge"]
    a: tuple[str]
    k: dict[str, Any]
    et: int


def serialize(job: dict[str, Any]) -> bytes:
    """Encode an arq job or result as JSON; what JSON cannot hold (an exception) becomes its type's
    name."""
    return msgspec.json.encode(job, enc_hook=lambda value: type(value).__name__)


def deserialize(blob: bytes) -> dict[str, Any]:
    """Decode an arq job or result. Raises msgspec.DecodeError on anything that is not JSON, a
    pickle for one."""
    return msgspec.json.decode(blob, type=dict[str, Any])


def job_id_of(request: JudgeRequest) -> str:
    """The id of the job of a question."""
    return layout.judge_job_id(request.call_id, request.block, request.step, request.attempt)


def _place(request: JudgeRequest) -> tuple[str, int, int]:
    return request.call_id, request.block, request.step


def is_ours(job_id: bytes) -> bool:
    """Is this the id of a question of ours?"""
    call_id, *numbers = job_id.decode(errors="replace").split(":")
    return (
        layout.is_call_id(call_id)
        and len(numbers) == 3
        and all(n.isascii() and n.isdigit() for n in numbers)
    )


def open_pool(redis_url: str, *, connections: int = 256, silent_s: float = 5.0) -> ArqRedis:
    """Return arq's client for `redis_url`; it connects when first used, and fails a command that
    has no answer for `silent_s`."""
    at = RedisSettings.from_dsn(redis_url)
    place: dict[str, Any] = (
        {"unix_socket_path": at.unix_socket_path}
        if at.unix_socket_path
        else {"host": at.host, "port": at.port, "ssl": at.ssl}
    )
    return ArqRedis(
        **place,
        db=at.database,
        username=at.username,
        password=at.password,
        socket_connect_timeout=min(2.0, silent_s),
        socket_timeout=silent_s,
        max_connections=connections,
        job_serializer=serialize,
        job_deserializer=deserialize,
        default_queue_name=layout.JUDGE_QUEUE,
    )


def keys_of(job_id: str) -> tuple[str, str, str]:
    """What arq keeps of a job beside its place in the queue."""
    return job_key_prefix + job_id, in_progress_key_prefix + job_id, retry_key_prefix + job_id


def beat_key_of(job_id: str) -> str:
    """The key of the heartbeat of whoever works on a job."""
    call_id, block, step, _ = job_id.split(":")
    return layout.judge_beat_key(call_id, int(block), int(step))


async def take_away(pool: ArqRedis, job_id: str) -> None:
    """Take a job off the queue, with all that arq keeps of it. Raises RedisError, OSError."""
    async with pool.pipeline(transaction=True) as pipe:
        pipe.zrem(layout.JUDGE_QUEUE, job_id)
        pipe.zrem(layout.JUDGE_TURNS, job_id)
        pipe.delete(*keys_of(job_id))
        await pipe.execute()


class JudgeQueue:
    """Asks judges, over a connection that its owner opens and closes; what is rare goes through
    arq's client.

    Bounded: past `max_depth` waiting questions an ask raises JudgeUnavailable at once, a key past
    its share too (`judge_scripts.ask`).
    """

    def __init__(
        self,
        redis_url: str,
        redis: connection.Connection,
        *,
        max_depth: int = MAX_JUDGE_QUEUE,
        silent_s: float = 5.0,
    ) -> None:
        self._redis, self._pool, self._max_depth = (
            redis,
            open_pool(redis_url, silent_s=silent_s),
            max_depth,
        )
        self._attempts: dict[tuple[str, int, int], tuple[int, float]] = {}

    async def ask(self, request: JudgeRequest, within_s: float, *, key: str = "") -> None:
        """Enqueue a question of a client's `key`, whose answer is of use `within_s` of the first
        attempt; tries again while Redis is away.

        Raises JudgeUnavailable past depth, share, deadline.
        """
        until = time.monotonic() + within_s
        if request.attempt:
            until = self._attempts.get(_place(request), (0, until))[1]
        while (left_s := until - time.monotonic()) > 0:
            try:
                await self._enqueue(request, left_s, key)
            except (StreamConnectionLost, connection.RedisError):
                await asyncio.sleep(min(_RETRY_S, left_s))
                continue
            self._remember(request, until)
            return
        raise JudgeUnavailable("the question could not be put to a judge before its deadline")

    async def _enqueue(self, request: JudgeRequest, left_s: float, key: str) -> None:
        """Put it there as arq's `enqueue_job` does, in one step: its five, with the depth and the
        wake-up, cost 1 ms of CPU a question.

        Through arq's client that one step was still half of what asking cost.
        """
        job = serialize_job(
            FUNCTION,
            (_encode(request).decode(),),
            {},
            None,
            time.time_ns() // 1_000_000,
            serializer=serialize,
        )
        outcome = await judge_scripts.ask(
            self._redis,
            job_id_of(request),
            job,
            key=key,
            expires_ms=max(1, int(left_s * 1000)),
            max_depth=self._max_depth,
        )
        if outcome == Outcome.KEY:
            raise JudgeUnavailable(
                "this key has used its share of the questions that may wait for a judge"
            )
        if outcome != Outcome.OK:
            raise JudgeUnavailable(f"{self._max_depth} questions are already waiting for a judge")

    def _remember(self, request: JudgeRequest, until: float) -> None:
        self._attempts[_place(request)] = (request.attempt, until)
        if len(self._attempts) > 2 * self._max_depth:
            # answered asks are never reported here; the half that is due first goes, and at worst
            # an ask begins at attempt 0 again
            newest = sorted(self._attempts.items(), key=lambda item: item[1][1])[
                len(self._attempts) // 2 :
            ]
            self._attempts = dict(newest)

    async def died(self, call_id: str, block: int, step: int) -> int | None:
        """Return the number of the next attempt if the judge of this question died without an
        answer, else None.

        Dead means: no heartbeat at two checks within a tenth of a second (a judge sends its first
        heartbeat just after it takes the job), no answer, and the job is in progress or gone. The
        job of the dead attempt is removed.
        """
        attempt = self._attempts.get((call_id, block, step), (0, 0.0))[0]
        if attempt + 1 >= MAX_ATTEMPTS:
            return None
        job_id = layout.judge_job_id(call_id, block, step, attempt)
        try:
            for pause in (0.1, 0.0):
                if not await self._has_no_judge(call_id, block, step, job_id):
                    return None
                await asyncio.sleep(pause)
            await take_away(self._pool, job_id)
        except LOST:
            return None
        return attempt + 1

    async def _has_no_judge(self, call_id: str, block: int, step: int, job_id: str) -> bool:
        async with self._pool.pipeline(transaction=False) as pipe:
            pipe.exists(layout.judge_beat_key(call_id, block, step))
            pipe.hexists(layout.facts_key(call_id), layout.judgement_field(block, step))
            pipe.exists(in_progress_key_prefix + job_id)
            pipe.zscore(layout.JUDGE_QUEUE, job_id)
            pipe.exists(job_key_prefix + job_id)
            heartbeat, answered, begun, queued, known = await pipe.execute()
        waits = queued is not None and known and not begun
        return not (heartbeat or answered or waits)

    async def close(self) -> None:
        """Close arq's client."""
        await self._pool.aclose(close_connection_pool=True)
