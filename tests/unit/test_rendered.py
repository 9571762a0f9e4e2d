"""What a worker releases in one step, and what one that took a call over does not release again."""

import json
import random
from typing import Any

import pytest

from policy.builtin.noop import Noop
from policy.session.effects import Output, SendUpstream
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.clients.answering import Answer
from tests.support.clients.readers import streamed_text
from tests.support.upstreams.cases import chunks
from workers.policy.call.rendered import pass_over, render


@pytest.mark.parametrize("client", CLIENTS)
def test_who_takes_over_goes_on_behind_all_that_may_be_out(client: DialectName, seed: int) -> None:
    """How many texts the last owner joined into a frame is not known: no frame's number may come
    twice, and no text."""
    chance = random.Random(seed)
    words = [f"w{n} " for n in range(40)]
    answer = Answer("openai", client, policies=[Noop()]).feed(
        chunks(*({"content": word} for word in words), finish="stop")
    )
    outputs: list[Output] = [
        output for output in answer.outputs if not isinstance(output, SendUpstream)
    ]
    request = answer.session.request
    assert request is not None

    def owner() -> Any:
        made = CLIENTS[client].encoder(request, call_id=answer.session.call.call_id, created=1)
        return lambda: made

    for _ in range(50):
        first, second = owner(), owner()
        at, out, taken = 0, b"", chance.randrange(1, len(outputs))
        while at < taken:
            step = chance.randint(1, taken - at)
            out += render(outputs[at : at + step], first).data
            at += step
        pass_over(outputs[:taken], second)
        whole = out + render(outputs[taken:], second).data
        assert streamed_text(client, whole) == "".join(words)
        numbers = [
            json.loads(line[6:]).get("sequence_number")
            for line in whole.split(b"\n")
            if line.startswith(b"data: {")
        ]
        if client == "responses":
            assert numbers == sorted(set(numbers)), (taken, numbers)
