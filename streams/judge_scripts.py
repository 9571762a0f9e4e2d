"""The judge queue, which is arq's, with round-robin turns for API keys.

The scripts touch shard 00 and the calls that questions are of. Those of a call have keys that are
made of its id.
"""

import asyncio
from typing import Literal, NamedTuple

from streams import layout
from streams.connection import Argument, Connection

_QUEUE = [layout.JUDGE_QUEUE, layout.JUDGE_WAKE_UPS, layout.JUDGE_TURNS, layout.JUDGE_SHARES]
_MAX_WAKE_UPS = 64


def ask(
    redis: Connection, job_id: str, job: bytes, *, key: str, expires_ms: int, max_depth: int
) -> asyncio.Future[bytes]:
    """Put a job of arq's on the judge queue, once, and wake a judge. QUEUE: it is full; KEY: the
    client's key has its share of it.

    Keys of clients take turns (start-time fair queueing): a question's turn is the one after its
    key's last, or the present one; lower turns are taken first. So a key that asks a thousand
    questions is as far ahead as any other with its next. A key may have as many waiting as there is
    room left, so that however many fill the queue, each leaves room for one more. arq's queue
    itself stays in order of time.
    """
    return redis.script(
        "judge_ask",
        _QUEUE,
        [job_id, job, expires_ms, max_depth, _MAX_WAKE_UPS, key, layout.JUDGE_TURNS_S],
    )


class JudgeAnswer(NamedTuple):
    """A judgement on its way to its call, and the job that it ends."""

    call_id: str
    job_id: str
    field: str
    judgement: bytes


class JudgeTurn(NamedTuple):
    """What came of a judge's turn: whether its answer was stored (it was the first), and the job
    that it has now, if there is one.

    An id that is not ours comes without a text, to be turned away. `left_ms` is what is left of the
    life of the job, on Redis' clock: as long as an answer is of use.
    """

    is_stored: bool
    job_id: bytes = b""
    text: bytes | None = None
    tries: int = 0
    left_ms: int = 0


async def take_turn(
    redis: Connection,
    token: str,
    *,
    take: Literal["no", "first", "again"],
    was_woken: bool,
    mark_ms: int,
    beat_ms: int,
    max_tries: int,
    retry_s: int,
    max_depth: int,
    answered: JudgeAnswer | None = None,
) -> JudgeTurn:
    """Store a judge's last answer and take its job off the queue, then take the job whose turn it
    is, with the first heartbeat; `again` where the answer to this was lost.

    One round trip a judgement; with the answer, arq's `run_job`, the heartbeat and the end of the
    job on their own there were four. Where the question has its answer, another judge works on it
    (no model is asked twice), the text is gone or it was tried too often, the job goes.
    """
    keys = _QUEUE
    args: list[Argument] = [
        token,
        take,
        int(was_woken),
        mark_ms,
        beat_ms,
        max_tries,
        retry_s,
        max_depth,
    ]
    if answered is not None:
        call_id = answered.call_id
        keys = [*_QUEUE, layout.facts_key(call_id), layout.call_key(call_id)]
        args += (answered.job_id, layout.facts_channel(call_id), answered.field, answered.judgement)
    is_stored, *job = await redis.script("judge_turn", keys, args)
    return JudgeTurn(bool(is_stored), *job)
