"""Answers of judges that are used again."""

import msgspec

from policy.base import Judgement, JudgeQuestion
from streams.connection import Connection
from tests.support.upstreams.judging import Client
from workers.judge.cache import CachedJudgements

MODEL = "small"


def question(cache: str, model: str = MODEL) -> JudgeQuestion:
    return JudgeQuestion(model, "system", "a prompt", "nonce", 0.5, None, {}, cache)


def judgement(probability: float = 0.25, error: str = "") -> Judgement:
    return Judgement(
        probability=probability, model=MODEL, prompt="old", reply="x" * 999, attempts=1, error=error
    )


async def test_an_answer_is_found_for_its_key_its_question_and_its_model_alone(
    connection: Connection,
) -> None:
    cache = CachedJudgements(connection)
    cache.keep(question("key:text"), judgement())
    found = await cache.find(question("key:text"))
    assert found is not None and (found.probability, found.prompt) == (0.25, "a prompt")
    assert (found.attempts, found.reply) == (0, "")
    for other in (question("other:text"), question("key:more"), question("key:text", "large")):
        assert await cache.find(other) is None
    cache.keep(question("key:bad"), judgement(error="invalid"))
    cache.keep(question(""), judgement())
    assert await cache.find(question("key:bad")) is await cache.find(question("")) is None


async def test_a_key_has_so_many_places_whatever_it_asks(
    connection: Connection, redis: Client
) -> None:
    cache = CachedJudgements(connection)
    for number in range(12_000):
        cache.keep(question(f"key:{number}"), judgement(number / 12_000))
    cache.keep(question("other:1"), judgement())
    newest = await cache.find(question("key:11999"))
    assert newest is not None and newest.probability == 11_999 / 12_000
    # what lost its place to another question is asked again
    found = [await cache.find(question(f"key:{number}")) for number in range(50)]
    assert {each.probability for each in found if each is not None} <= {
        n / 12_000 for n in range(50)
    }
    assert None in found and await cache.find(question("other:1")) is not None
    assert 3_000 < len(await redis.keys("*:judged:*")) <= 4_097


async def test_what_cannot_be_read_is_asked_again(connection: Connection, redis: Client) -> None:
    cache = CachedJudgements(connection)
    cache.keep(question("key:text"), judgement())
    assert await cache.find(question("key:text")) is not None
    [place] = await redis.keys("*:judged:*")
    for spoilt in (b"", b"{", msgspec.json.encode({"probability": "x"})):
        await redis.set(place, spoilt)
        assert await cache.find(question("key:text")) is None
