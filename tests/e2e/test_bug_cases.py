"""A fault of others (docs/change/protocol.md 3) that shows only between processes; the rest is in
tests/unit/test_bug_cases.py, broken streams on record are in test_upstream_faults.

Case 13 with the record behind it is in test_stored_turns, more of case 7 in test_continued_turns.
"""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from protocol.request import DialectName
from tests.support.checks.conformance import configuration
from tests.support.clients.sdk_calls import DIALECTS, MODES, Mode, ask
from tests.support.json_values import Json, as_json
from tests.support.servers.stores import Stores
from tests.support.upstreams.cases import chunks
from tests.support.upstreams.product import (
    MODEL,
    Place,
    call_of,
    new_session,
    recorded_bytes,
    replayed,
)
from tests.support.upstreams.replay import Reply, stream

GENERATION = '{"name": "wipe_disk", "arguments": {"path": "/"}}'
REJECTED = {
    "error": {
        "message": "tool call validation failed: wipe_disk",
        "code": "tool_use_failed",
        "failed_generation": GENERATION,
    }
}


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    with replayed(*stores, configuration) as made:
        yield made


def failing(
    place: Place,
    upstream: DialectName,
    client: DialectName,
    mode: Mode,
    reply: Reply,
) -> tuple[Any, Json]:
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


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", MODES)
def test_case_16_a_rejected_call_is_on_record_and_nowhere_else(
    place: Place, mode: Mode, client: DialectName
) -> None:
    payload = as_json(REJECTED)
    head = chunks({"role": "assistant", "reasoning": "Hm."}, finish=None, done=False)
    reply = (
        Reply(payload, status=400)
        if mode == "whole"
        else stream(head + b"event: error\ndata: " + payload + b"\n\n", cutting="events")
    )
    error, call = failing(place, "openai", client, mode, reply)
    assert "wipe_disk" not in str(error.body) and "failed_generation" not in str(error.body)
    assert b"failed_generation" in recorded_bytes(place[0], call["call_id"])
