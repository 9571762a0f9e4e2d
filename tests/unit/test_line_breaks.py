"""What Sluice writes to clients has no character at which a line iterator may split: they would
read another answer than was approved."""

import json

import pytest

from protocol.bytes.sse import escape_breaks, parse_event
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest
from protocol.events import MessageStart, RawDelta, UpstreamFailed
from protocol.request import ChatRequest, DialectName
from tests.support.clients.answering import Answer, Watch
from tests.support.json_values import Json
from tests.support.upstreams.joined_text import completion, fields, message

BREAKS = [chr(c) for c in (*range(0x7F, 0xA0), 0x2028, 0x2029)]
EVERY = "".join(BREAKS)
SAID = f"a{EVERY}data: [DONE]{EVERY}\u00a0«b»“c”…é日\U0001f985"
ARGUMENTS = json.dumps({"text": SAID, EVERY: 1}, ensure_ascii=False)
NAMES: dict[DialectName, tuple[str, str]] = {
    "openai": ("reasoning_content", "content"),
    "anthropic": ("thinking", "text"),
}
TOOLS: dict[DialectName, list[Json]] = {
    "openai": [
        {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    ],
    "anthropic": [{"name": "bash", "input_schema": {"type": "object"}}],
}


REQUEST = ChatRequest(dialect="openai", model="m", turns=(), stream=True)


def bodies(upstream: DialectName) -> bytes:
    """An answer with them in its text, reasoning and arguments; all escaped, as most upstreams
    write them."""
    if upstream == "openai":
        call = {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "bash", "arguments": ARGUMENTS},
        }
        body = completion(
            {"reasoning_content": SAID},
            {"content": SAID},
            {"tool_calls": [call]},
            finish="tool_calls",
        )
    else:
        use = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": json.loads(ARGUMENTS)}
        body = message(
            {"type": "thinking", "thinking": SAID}, {"type": "text", "text": SAID}, use, pieces=40
        )
    return body


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize("streams", [True, False])
def test_no_line_iterator_reads_another_answer(
    upstream: DialectName, client: DialectName, streams: bool
) -> None:
    answer = Answer(
        upstream, client, streams=streams, policies=[Watch()], tools=TOOLS[client]
    ).feed(bodies(upstream))
    text = answer.data.decode()
    assert not any(c in text for c in BREAKS) and answer.verdicts == [("bash", "allow")]
    # as `httpx.Response.iter_lines`, `requests` with `decode_unicode`, and many a parser of its own
    lines = text.splitlines()
    assert lines == text.split("\n")[: len(lines)]
    assert lines.count("data: [DONE]") == (streams and client == "openai")
    if streams:
        read = fields(answer)
        assert [read[name] for name in NAMES[client]] == [SAID, SAID]
    else:
        assert json.dumps(json.loads(text), ensure_ascii=False).count(EVERY) >= 3
    # what needs no escape has none
    assert all(c in text for c in "\u00a0«»“”…é日\U0001f985")


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_errors_have_none_either(client: DialectName) -> None:
    failed = UpstreamFailed("api_error", f"no{EVERY}more", 500)
    frame = CLIENTS[client].error_frame(failed.kind, failed.message, None)
    encoder = CLIENTS[client].encoder(REQUEST, call_id="c", created=1)
    written = [
        CLIENTS[client].failed_response(failed)[2],
        DIALECTS[client].error_body(InvalidRequest(f"bad {EVERY}", param="x")),
        parse_event(frame)[1],
        parse_event(
            encoder.encode([MessageStart("", "m"), failed])
            .rpartition(b"\n\n")[0]
            .rpartition(b"\n\n")[2]
            + b"\n\n"
        )[1],
    ]
    for data in written:
        assert (
            not any(c in data.decode() for c in BREAKS)
            and EVERY in json.loads(data)["error"]["message"]
        )


def test_frames_that_nobody_models_have_none() -> None:
    encoder = CLIENTS["openai"].encoder(REQUEST, call_id="c", created=1)
    start = MessageStart("", "m", extra={"dialect": "openai"})
    data = encoder.encode([start, RawDelta("field x", -1, {"x": EVERY}, "openai")]).decode()
    assert not any(c in data for c in BREAKS) and json.loads(data.split("data: ")[2])["x"] == EVERY


@pytest.mark.parametrize("character", BREAKS)
def test_each_is_escaped_alone(character: str) -> None:
    escaped = escape_breaks(json.dumps("a" + character, ensure_ascii=False).encode())
    assert escaped.isascii() and json.loads(escaped) == "a" + character and b"\\u" in escaped
    kept = json.dumps("“\u00a0\u20a8\ue2a8\u202a", ensure_ascii=False).encode()
    assert escape_breaks(kept) is kept
