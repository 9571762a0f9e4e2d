"""The faults of others (docs/change/protocol.md 3) that show only between processes; the rest is in
tests/unit/test_bug_cases.py.

Cases 8 and 13 with the record behind them are in test_stored_turns, more of case 7 in
test_continued_turns.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import openai
import pytest

from protocol.request import DialectName
from tests.support.checks.conformance import configuration
from tests.support.clients.sdk_calls import DIALECTS, MODES, Mode, ask
from tests.support.servers.product import Product
from tests.support.upstreams.cases import began, chunks, client_call, frames, piece, text
from tests.support.upstreams.frames import delta, end, start
from tests.support.upstreams.product import MODEL, call_of, new_session, recorded_bytes, replayed
from tests.support.upstreams.replay import Replay, Reply, stream

HALF = [
    start(1, type="tool_use", id="toolu_1", name="weather", input={}),
    delta(1, "input_json_delta", partial_json='{"city": "Par'),
]
SO_FAR: dict[DialectName, bytes] = {
    "anthropic": frames(began(), *text(0, "So far."), *HALF),
    "openai": chunks(
        {"content": "So far."},
        piece(0, '{"city": "Par', "call_1", "weather"),
        finish=None,
        done=False,
    ),
}
GENERATION = '{"name": "wipe_disk", "arguments": {"path": "/"}}'
REJECTED = {
    "error": {
        "message": "tool call validation failed: wipe_disk",
        "code": "tool_use_failed",
        "failed_generation": GENERATION,
    }
}


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, Replay]]:
    with replayed(
        tmp_path_factory.mktemp("product"), redis_url, database_url, configuration
    ) as made:
        yield made


def failing(
    place: tuple[Product, Replay],
    upstream: DialectName,
    client: DialectName,
    mode: Mode,
    reply: Reply,
) -> tuple[Any, dict[str, Any]]:
    """What the SDK raises, and the call on record."""
    product, replay = place
    session = new_session()
    replay.answer(reply)
    kind: Any = (openai.APIError, anthropic.APIError)
    with pytest.raises(kind) as raised:
        ask(
            product.url,
            client,
            mode,
            "go",
            model=MODEL[upstream],
            headers={"x-sluice-session": session, "x-sluice-policy": "noop"},
        )
    return raised.value, call_of(product, session)


@pytest.mark.slow
@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("mode", ["iterate", "helper"])
@pytest.mark.parametrize("ending", ["", "cut"])
def test_case_06_a_connection_that_breaks_is_an_error_and_on_record_as_one(
    place: tuple[Product, Replay],
    ending: Literal["", "cut"],
    mode: Mode,
    upstream: DialectName,
    client: DialectName,
) -> None:
    error, call = failing(
        place, upstream, client, mode, stream(SO_FAR[upstream], cutting="events", ending=ending)
    )
    assert (
        error.body["error"]["type"] == "api_error"
        if client == "anthropic"
        else error.body["type"] == "api_error"
    )
    assert call["state"] == "FAILED"
    assert recorded_bytes(place[0], call["call_id"]) == SO_FAR[upstream]
    # half a call is never one
    assert place[0].audit("tool-calls", call_id=call["call_id"], verdict="allow")["items"] == []


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["iterate", "helper"])
def test_case_14_a_spliced_message_is_on_record_as_failed(
    place: tuple[Product, Replay], mode: Mode, client: DialectName
) -> None:
    body = frames(
        began(id="msg_1"),
        *text(0, "Hi"),
        *HALF,
        began(id="msg_2"),
        *client_call(0, "toolu_2", "weather", {"city": "Rome"}),
        *end(),
    )
    _, call = failing(place, "anthropic", client, mode, stream(body, cutting="events"))
    assert call["state"] == "FAILED"
    assert place[0].audit("tool-calls", call_id=call["call_id"], verdict="allow")["items"] == []


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", MODES)
def test_case_16_a_rejected_call_is_on_record_and_nowhere_else(
    place: tuple[Product, Replay], mode: Mode, client: DialectName
) -> None:
    payload = json.dumps(REJECTED).encode()
    head = chunks({"role": "assistant", "reasoning": "Hm."}, finish=None, done=False)
    reply = (
        Reply(payload, status=400)
        if mode == "whole"
        else stream(head + b"event: error\ndata: " + payload + b"\n\n", cutting="events")
    )
    error, call = failing(place, "openai", client, mode, reply)
    assert "wipe_disk" not in str(error.body) and "failed_generation" not in str(error.body)
    assert b"failed_generation" in recorded_bytes(place[0], call["call_id"])
