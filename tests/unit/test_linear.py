"""What grows with a request or an answer grows in proportion: counted in calls of functions, which
no busy machine changes."""

from collections.abc import Callable

import pytest

from bench.histories import history
from policy.session.session import Session
from protocol.conversations.histories import typed
from settings.config import Config
from tests.support.cpu import counted
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info

CALL = "01990000-0000-7000-8000-000000000000"


def session() -> Session:
    return Session(
        call_info(CALL, durable=True, max_arguments_bytes=8 << 20),
        [],
        Config(),
    )


def chunks(kind: str, count: int) -> list[bytes]:
    deltas: list[Json] = [{"content": "x"}] * count
    if kind == "arguments":
        head = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": "'}}
        deltas = [
            {"tool_calls": [head]},
            *([{"tool_calls": [{"index": 0, "function": {"arguments": "y" * 100}}]}] * count),
        ]
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": '"}'}}]})
    bodies = [
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    bodies.append(
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    )
    return [*(b"data: " + as_json(b) + b"\n\n" for b in bodies), b"data: [DONE]\n\n"]


def test_a_history_twice_as_long_is_read_with_twice_the_calls() -> None:
    def begun(size: int) -> Callable[[], object]:
        body = history("demo", size)
        return lambda: session().begin(body)

    begun(20_000)()
    less, more = counted(begun(200_000)), counted(begun(400_000))
    assert 1.7 < more / less < 2.3


@pytest.mark.parametrize("kind", ["text", "arguments"])
def test_an_answer_twice_as_long_takes_twice_the_calls(kind: str) -> None:
    def fed(count: int) -> Callable[[], object]:
        one, given = session(), chunks(kind, count)
        one.begin(
            as_json(
                {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "x"}]}
            )
        )

        def feed() -> None:
            for seq, chunk in enumerate(given, 1):
                one.chunks(seq, [chunk])
                one.drain()

        return feed

    fed(10)()
    less, more = counted(fed(2_000)), counted(fed(4_000))
    assert 1.8 < more / less < 2.2


def test_a_text_of_nothing_but_signs_is_looked_through_at_once() -> None:
    # each "<" may begin what an agent put in; on a page there are thousands of such texts
    assert typed("<" * 200) == "<" * 160 + "…"
    assert counted(lambda: typed("<" * 40_000)) < 50
