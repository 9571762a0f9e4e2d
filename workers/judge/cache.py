"""What judges answered before, in Redis: the same text under the same rule is asked about once a day.

Only judge workers know of it: for a call its judgement is a fact like any other, also where it comes
from here (`attempts` is 0 then). Redis away, or an entry that cannot be read: the judge is asked.
"""

from hashlib import blake2b

import msgspec

from policy.base import Judgement, JudgeQuestion
from protocol.errors import StreamConnectionLost
from protocol.records import JudgementFacts
from streams import layout
from streams.connection import Connection, RedisError

_decode = msgspec.json.Decoder(Judgement).decode
_encode = msgspec.json.Encoder().encode


class CachedJudgements:
    """The valid answers of the last day, by question, model and key."""

    def __init__(self, redis: Connection) -> None:
        self._redis = redis

    async def find(self, question: JudgeQuestion) -> Judgement | None:
        """Return the answer that was given to this question before, if there is one."""
        place, asked = _place(question)
        try:
            value = await self._redis.call("GET", place) if question.cache else None
            known = None if value is None else _decode(value)
        except (StreamConnectionLost, RedisError, msgspec.MsgspecError):
            return None
        if known is None or known.prompt != asked:
            return None
        return msgspec.structs.replace(known, prompt=question.prompt, attempts=0)

    def keep(self, question: JudgeQuestion, judgement: Judgement) -> None:
        """Keep a valid answer, without what it came as. Should that fail, the judge is asked
        again."""
        if question.cache and not judgement.error:
            place, asked = _place(question)
            kept = msgspec.structs.replace(
                judgement, prompt=asked, reply="", facts=JudgementFacts()
            )
            self._redis.send_quiet("SETEX", place, layout.CACHED_JUDGEMENT_S, _encode(kept))


def _place(question: JudgeQuestion) -> tuple[str, str]:
    """Where the answer to a question is, and what stands there for the question: no key takes more
    than its places."""
    key, _, asked = question.cache.partition(":")
    digest = blake2b(f"{asked}:{question.model}".encode("utf-8", "surrogatepass"), digest_size=16)
    return layout.cached_judgement_key(key, digest.hexdigest()), digest.hexdigest()
