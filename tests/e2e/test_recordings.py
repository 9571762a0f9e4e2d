"""Recorded provider answers through the running product: the SDKs of both dialects see the recorded facts, the record has every byte."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

import anthropic
import openai
import pytest

from protocol.records import to_bytes
from protocol.request import Dialect
from protocol.sse import EventSplitter
from tests.support.clients import DIALECTS, Mode, Said, ask
from tests.support.product import Product
from tests.support.recordings import Recording, expected, need_recordings, own, recordings
from tests.support.replay import Replay, Reply, stream
from tests.support.upstreams import MODEL, call_of, new_session, recorded_bytes, recorded_chunks, replayed

ALL = {r.name: r for r in recordings()}
STREAMS = [
    "anthropic/text-basic",
    "anthropic/tools-parallel-2",
    "anthropic/tool-no-args",
    "anthropic/usage-in-message-delta",
    "anthropic/json-tool-after-text",
    "anthropic/thinking",
    "anthropic/thinking-redacted",
    "openai/tools-parallel-2",
    "openai/length-usage",
    "openai/azure-first-chunk-no-choices",
    "openai/anthropic-compat-index-1",
    "openai/reasoning-tool-call",
    "openai/tool-call-without-index",
    "openai/search-preview-no-annotations",
    "openai/openrouter-reasoning-details-tool",
]
BODIES = ["anthropic/tools-parallel-4-json", "openai/tool-calls-without-id-json"]
BROKEN = ["openai/error-mid-stream-with-choices", "openai/error-event-failed-generation"]
ERRORS = ["anthropic/error-context-length", "anthropic/error-auth"]
TEXT_OWN = "Grüße, Welt\u2028\0 😀"
TOOLS_OWN = [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "CET"})]
OWN: dict[str, dict[str, Any]] = {
    "anthropic-text.sse": {"text": TEXT_OWN, "calls": [], "tokens": (27, 42), "stop": "stop_sequence"},
    "anthropic-tools-parallel.sse": {"text": "Both.", "calls": [*TOOLS_OWN, ("refresh", {})], "tokens": (27, 42), "stop": "tool_use"},
    "openai-text.sse": {"text": TEXT_OWN, "calls": [], "tokens": (20, 9), "stop": "stop"},
    "openai-tools-interleaved.sse": {"text": "Both.", "calls": TOOLS_OWN, "tokens": (20, 9), "stop": "tool_calls"},
}
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
STOP = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
Way = Literal["random", "events"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Iterator[tuple[Product, Replay]]:
    with replayed(tmp_path_factory.mktemp("product"), redis_url, database_url) as made:
        yield made


def send(place: tuple[Product, Replay], upstream: Dialect, client: Dialect, mode: Mode, session: str) -> Said:
    product, _ = place
    headers = {"x-sluice-policy": "noop", "x-sluice-session": session}
    return ask(product.url, client, mode, "go on", model=MODEL[upstream], headers=headers)


def assert_recorded(product: Product, session: str, body: bytes) -> None:
    assert recorded_bytes(product, call_of(product, session)["call_id"]) == body


def assert_events_recorded(product: Product, session: str, body: bytes) -> None:
    """Each event is one chunk, in PostgreSQL and in the audit API."""
    splitter = EventSplitter(2**24)
    events = [*splitter.feed(body), *splitter.finish()]
    call_id = call_of(product, session)["call_id"]
    assert recorded_chunks(product, call_id) == events
    listed: list[dict[str, Any]] = []
    cursor = None
    while listed == [] or cursor:
        page = product.audit(f"calls/{call_id}/chunks", limit=100, **({"cursor": cursor} if cursor else {}))
        listed, cursor = listed + page["items"], page["next_cursor"]
    assert [to_bytes(chunk["raw"]) for chunk in listed] == events
    assert [chunk["seq"] for chunk in listed] == sorted({chunk["seq"] for chunk in listed})


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def assert_facts(said: Said, client: Dialect, want: dict[str, Any]) -> None:
    assert said.plain_calls == want["calls"]
    assert len(said.text) == want["chars"]
    assert want["sha"] in (None, digest(said.text))
    assert len(said.thinking) == want["thinking"]
    table = FINISH if client == "openai" else STOP
    assert said.stop == table.get(want["stop"], want["stop"])
    if want["tokens"]:
        assert said.tokens == want["tokens"]
    assert all(c.id for c in said.calls) and len({c.id for c in said.calls}) == len(said.calls)


def is_length_for_the_helper(recording: Recording, client: Dialect, mode: Mode) -> bool:
    """The openai helper raises where the answer stops for its length."""
    return client == "openai" and mode == "helper" and expected(recording)["stop"] in ("length", "max_tokens")


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["iterate", "helper"])
@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream(place: tuple[Product, Replay], seed: int, name: str, mode: Mode, client: Dialect) -> None:
    need_recordings()
    recording, session = ALL[name], new_session()
    place[1].answer(stream(recording.body, cutting="random" if mode == "iterate" else "events", seed=seed))
    if is_length_for_the_helper(recording, client, mode):
        with pytest.raises(openai.LengthFinishReasonError):
            send(place, recording.dialect, client, mode, session)
    else:
        assert_facts(send(place, recording.dialect, client, mode, session), client, expected(recording))
    assert_events_recorded(place[0], session, recording.body)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("name", BODIES)
def test_a_recorded_body(place: tuple[Product, Replay], name: str, client: Dialect) -> None:
    need_recordings()
    recording, session = ALL[name], new_session()
    place[1].answer(Reply(recording.body))
    assert_facts(send(place, recording.dialect, client, "whole", session), client, expected(recording))
    assert_recorded(place[0], session, recording.body)


@pytest.mark.parametrize("client", DIALECTS)
def test_a_call_cut_by_max_tokens_is_never_approved(place: tuple[Product, Replay], client: Dialect) -> None:
    need_recordings()
    recording, session = ALL["anthropic/tool-input-truncated"], new_session()
    place[1].answer(stream(recording.body, cutting="events"))
    said = send(place, "anthropic", client, "iterate", session)
    assert said.calls == []
    facts = recording.facts
    assert digest(said.text[: facts["text_chars"]]) == facts["text_sha"]
    assert said.stop == ("length" if client == "openai" else "max_tokens")
    assert_recorded(place[0], session, recording.body)
    listed = place[0].audit("tool-calls", call_id=call_of(place[0], session)["call_id"])["items"]
    assert [(c["name"], c["verdict"]) for c in listed] == [("make_file", "block")]


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["iterate", "helper"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_recorded_error_inside_a_stream(place: tuple[Product, Replay], name: str, mode: Mode, client: Dialect) -> None:
    need_recordings()
    recording, session = ALL[name], new_session()
    place[1].answer(stream(recording.body, cutting="events"))
    kind: Any = openai.APIError if client == "openai" else anthropic.APIError
    with pytest.raises(kind) as raised:
        send(place, recording.dialect, client, mode, session)
    assert "failed_generation" not in str(raised.value.body)
    assert_recorded(place[0], session, recording.body)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["whole", "helper"])
@pytest.mark.parametrize("name", ERRORS)
def test_a_recorded_error_answer(place: tuple[Product, Replay], name: str, mode: Mode, client: Dialect) -> None:
    need_recordings()
    recording, session = ALL[name], new_session()
    status = recording.facts["http_status"]
    place[1].answer(Reply(recording.body, status=status))
    kind: Any = openai.APIStatusError if client == "openai" else anthropic.APIStatusError
    with pytest.raises(kind) as raised:
        send(place, recording.dialect, client, mode, session)
    # a refused key is the gateway's, not the client's
    assert raised.value.status_code == {401: 502}.get(status, status)
    assert_recorded(place[0], session, recording.body)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("mode", ["iterate", "helper"])
@pytest.mark.parametrize("name", OWN)
def test_a_stream_of_our_own(place: tuple[Product, Replay], seed: int, name: str, mode: Mode, client: Dialect) -> None:
    upstream: Dialect = "anthropic" if name.startswith("anthropic") else "openai"
    session, body, want = new_session(), own(name), OWN[name]
    place[1].answer(stream(body, cutting="random" if mode == "iterate" else "events", seed=seed))
    said = send(place, upstream, client, mode, session)
    table = FINISH if client == "openai" else STOP
    assert (said.text, said.plain_calls, said.tokens) == (want["text"], want["calls"], want["tokens"])
    assert said.stop == table.get(want["stop"], want["stop"])
    assert_events_recorded(place[0], session, body)
