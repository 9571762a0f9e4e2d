"""A recorded answer of Invoke: unwrapped, it is a stream of Messages, however it is cut; spoilt at
any byte, it is refused or cut."""

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import MessageStop, TextDelta, UpstreamFailed
from providers.doors.bedrock import Unwrapped
from tests.support.checks.kinds import of_kind

FOLDER = Path(__file__).parents[3] / "shared" / "dialect-streams"
NAME = "bedrock-invoke/invoke-claude3-stream.eventstream"


@pytest.fixture
def recorded() -> bytes:
    if not (FOLDER / NAME).exists():
        if os.environ.get("CI"):
            pytest.fail("../shared/dialect-streams is missing")
        pytest.skip("../shared/dialect-streams is missing")
    return (FOLDER / NAME).read_bytes()


def decoded(raw: bytes, cuts: list[int]) -> list[Any]:
    splitter, decoder = Unwrapped(2**20), DIALECTS["anthropic"].decoder()
    chunks = [
        chunk
        for low, high in zip([0, *cuts], [*cuts, len(raw)], strict=True)
        for chunk in splitter.feed(raw[low:high])
    ]
    return [
        event for chunk in [*chunks, *splitter.finish()] for event in decoder.feed(chunk)
    ] + decoder.finish()


def test_it_says_what_is_known_of_it(recorded: bytes) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    random_ = random.Random(seed)
    entries = json.loads((FOLDER / "expected.json").read_bytes())["entries"]
    facts = next(one["facts"] for one in entries if NAME.startswith(one["name"] + "."))
    whole = decoded(recorded, [])
    [stop] = of_kind(whole, MessageStop)
    text = "".join(one.text for one in whole if isinstance(one, TextDelta))
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()[:16]) == (
        facts["text_chars"],
        facts["text_sha"],
    )
    assert stop.stop_reason == facts["stop_reason"]
    assert {
        "input_tokens": stop.usage.input_tokens,
        "output_tokens": stop.usage.output_tokens,
    } == facts["usage"]
    for _ in range(20):
        assert decoded(recorded, sorted(random_.sample(range(1, len(recorded)), 30))) == whole
    assert decoded(recorded, list(range(1, len(recorded)))) == whole


def test_a_spoilt_byte_is_never_an_end_that_was_not_there(recorded: bytes) -> None:
    random_ = random.Random(11)
    for at in random_.sample(range(len(recorded)), 150):
        spoilt = bytearray(recorded)
        spoilt[at] ^= 1 << random_.randrange(8)
        with pytest.raises(RemoteProtocolError):
            decoded(bytes(spoilt), [])
        try:
            last = decoded(recorded[:at], [])[-1]
        except RemoteProtocolError:
            continue
        assert isinstance(last, UpstreamFailed)
