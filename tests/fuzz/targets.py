"""What is fuzzed: each target takes bytes and asserts what must hold for any bytes.

Everything but the bytes follows from them, so that an input that failed fails again.
"""

import json
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from db.write.fit_columns import fit
from db.write.rows import pack
from policy.session.effects import Respond
from protocol import codecs
from protocol.bytes.json_strict import AmbiguousJson, dumps, loads_arguments, loads_exact
from protocol.bytes.sse import EventSplitter, parse_event
from protocol.dialects import table as dialects
from protocol.errors import InvalidRequest, RemoteProtocolError
from protocol.events import (
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    Opaque,
    UpstreamFailed,
)
from protocol.records import Record, decode_records, encode_records
from protocol.request import DialectName
from protocol.requests import fields
from protocol.server_tools.data import table
from protocol.target import Target
from protocol.text_calls.scanner import CallScanner
from protocol.text_calls.words import TextCall, Thought
from tests.fuzz import binary, gemini, requests
from tests.fuzz.mutate import mutate
from tests.fuzz.views import (
    MAX_EVENT,
    UNKNOWN,
    DenyCalls,
    Drive,
    Way,
    encoded,
    merged,
    read_back,
    released,
)
from tests.support.checks.decoding import known, turns_of
from tests.support.checks.kinds import of_kind
from tests.support.checks.order import check_chat_frames, check_messages_frames
from tests.support.json_values import Json, as_json
from tests.support.upstreams import responses
from tests.support.upstreams.recordings import OWN, recordings

FOUND = Path(__file__).parent / "found"
DIALECTS: tuple[DialectName, ...] = ("openai", "anthropic")
UPSTREAMS: tuple[DialectName, ...] = (*DIALECTS, "responses")
MARK = "withheld from every client 7f3a"


class FuzzTarget(msgspec.Struct, frozen=True):
    """`check` raises where something does not hold."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


def rng_of(data: bytes) -> random.Random:
    """The choices that go with an input."""
    return random.Random(zlib.crc32(data))


def cut(data: bytes, rng: random.Random) -> list[bytes]:
    """Cut bytes anywhere."""
    if rng.random() < 0.2:
        return [data[i : i + 1] for i in range(len(data))]
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(12)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


# --- streams ---


def events_of(pieces: list[bytes]) -> list[bytes] | None:
    """The SSE events of a stream that comes in pieces; None where one is too large."""
    splitter = EventSplitter(MAX_EVENT)
    try:
        found = [event for piece in pieces for event in splitter.feed(piece)]
    except RemoteProtocolError:
        return None
    return found + splitter.finish()


def check_splitter(data: bytes) -> None:
    """No byte is lost or added, wherever the bytes are cut."""
    whole, apart = events_of([data]), events_of(cut(data, rng_of(data)))
    assert b"".join(whole or []) == b"".join(apart or [])
    assert whole is None or b"".join(whole) == data
    assert said_in(whole) == said_in(apart)


def said_in(chunks: list[bytes] | None) -> list[tuple[str, bytes]] | None:
    """What SSE events say: a line feed that comes after its carriage return is a chunk of its own,
    and says nothing."""
    return (
        None if chunks is None else [parse_event(chunk) for chunk in chunks if chunk.strip(b"\r\n")]
    )


def decoded(dialect: DialectName, chunks: list[bytes], unknown: frozenset[str]) -> list[Event]:
    """The events of chunks up to what the dialect forbids, which is a failure; after that the
    decoder says nothing more."""
    decoder, events = dialects.DIALECTS[dialect].decoder(unknown), list[Event]()
    try:
        for chunk in chunks:
            events += decoder.feed(chunk)
        return events + decoder.finish()
    except RemoteProtocolError as error:
        assert decoder.finish() == []
        return [*events, UpstreamFailed("api_error", error.message)]


def check_stream(dialect: DialectName, data: bytes) -> None:
    """A stream decodes or is refused; what a session makes of it is one whole message or one error,
    the same however it came."""
    check_splitter(data)
    rng = rng_of(data)
    chunks = events_of([data]) or []
    unknown = frozenset(UNKNOWN) if rng.random() < 0.3 else frozenset[str]()
    assert decoded(dialect, chunks, unknown) == decoded(
        dialect, events_of(cut(data, rng)) or [], unknown
    )
    way = Way.chosen(dialect, rng)
    at_once, one_by_one = (Drive(way, rng).stream(chunks, size) for size in (len(chunks) + 1, 1))
    # where a verdict cuts the turn, how much came of blocks that were open before the denied call
    # is chance; no provider sends that
    if dialect == "openai" or not are_interleaved(decoded(dialect, chunks, unknown)):
        assert at_once.digest == one_by_one.digest
    if dialects.DIALECTS[dialect].turns is not None:
        turn = turns_of(dialect).TurnBuilder()
        for chunk in chunks:
            turn.feed(chunk)
        turn.finish()
    check_released(way, at_once)


def are_interleaved(events: list[Event]) -> bool:
    """Does a block begin while another is open?"""
    is_open = False
    for event in events:
        if isinstance(event, BlockStart):
            if is_open:
                return True
            is_open = True
        elif isinstance(event, BlockStop):
            is_open = False
    return False


def check_whole(dialect: DialectName, data: bytes) -> None:
    """A whole answer likewise."""
    rng = rng_of(data)
    way = Way.chosen(dialect, rng)
    if dialects.DIALECTS[dialect].turns is not None:
        turns_of(dialect).TurnBuilder().body(data)
    check_released(way, Drive(way, rng).whole(data))


def check_released(way: Way, drive: Drive) -> None:
    """What is released ends once, can be written, is in order, and reads back as what it was; a
    call that is denied is not in it."""
    outputs, session = drive.outputs, drive.session
    ends = [
        o
        for o in outputs
        if not isinstance(o, Event) or isinstance(o, MessageStop | UpstreamFailed)
    ]
    assert len(ends) == 1 and outputs[-1] is ends[0]
    events = [o for o in outputs if isinstance(o, Event)]
    if len(events) != len(outputs):
        assert isinstance(outputs[-1], Respond) and json.loads(outputs[-1].body)
        assert not (way.stream and events), "an answer that began is not followed by a whole one"
        return
    data = encoded(session, way, events)
    failed = isinstance(events[-1], UpstreamFailed)
    if way.stream:
        (check_chat_frames if way.client == "openai" else check_messages_frames)(data)
    if failed and not way.stream:
        return
    view = read_back(way, data)
    found = merged(view)
    assert isinstance(found["end"], UpstreamFailed) == failed
    if DenyCalls in way.policies:
        kinds = {b["start"].kind for b in found["blocks"]}
        assert not kinds & {BlockKind.TOOL_USE, BlockKind.SERVER_TOOL_USE}
        texts = [b["text"] for b in found["blocks"] if b["start"].kind is BlockKind.TEXT]
        assert not any(map(calls_in, texts)), "a call that a parser finds in the text"
    if not failed:
        again = read_back(way, encoded(session, way, known(view)))
        assert merged(again) == found


def recorded(dialect: DialectName, data: bytes) -> list[Record]:
    """What a session records of a stream with odd names in it."""
    rng = rng_of(data)
    chunks = events_of([data]) or []
    return Drive(Way.chosen(dialect, rng), rng).stream(chunks, len(chunks) + 1).records


def check_records(dialect: DialectName, data: bytes) -> None:
    """All that a session holds is encoded, comes back as it was, and fits its tables with nothing
    set aside."""
    records = recorded(dialect, data)
    assert decode_records(encode_records(records)) == records
    pack([fitted for record in records for fitted in fit(record)], {})


def odd_seeds(dialect: DialectName) -> list[bytes]:
    """Streams in which names, ids and numbers are what no column holds."""
    odd = (b'"bash\\ud83d"', b'"\\u0000"', b'"' + b"x" * 3000 + b'"', b'"\\ufffe\\udc00"')
    large = b"123456789012345678901234567890"
    streams = stream_seeds(dialect)[:12]
    named = [
        re.sub(rb'(?<="name":)\s*"[^"]*"', lambda _, one=one: one, stream)  # type: ignore[misc]
        for stream in streams
        for one in odd
    ]
    known = [
        re.sub(rb'(?<="id":)\s*"[^"]*"', lambda _, one=one: one, stream)  # type: ignore[misc]
        for stream in streams
        for one in odd
    ]
    counted = [
        re.sub(rb'(?<=_tokens":)\s*\d+|(?<="index":)\s*\d+', large, stream) for stream in streams
    ]
    return named + known + counted


def calls_in(text: str) -> list[TextCall]:
    """The calls that the text holds."""
    scanner = CallScanner(None, reasoning=False)
    return of_kind([*scanner.feed(text), *scanner.finish()], TextCall)


def check_withheld(data: bytes) -> None:
    """Whatever is put where nothing is modelled is said to be withheld, and is in nothing that an
    encoder writes."""
    rng = rng_of(data)
    dialect: DialectName = rng.choice(DIALECTS)
    stream = rng.choice(stream_seeds(dialect))
    lines = stream.decode().split("\n")
    at = [n for n, line in enumerate(lines) if line.startswith("data: {")]
    number = rng.choice(at)
    frame = json.loads(lines[number][6:])
    if not plant(dialect, frame, rng):
        return
    lines[number] = "data: " + json.dumps(frame)
    chunks = events_of(["\n".join(lines).encode()]) or []
    events = decoded(dialect, chunks, frozenset())
    assert any(isinstance(e, Opaque | UpstreamFailed) for e in events), "it is not on record"
    assert not [e for e in events if isinstance(e, Opaque) and MARK in e.what]
    for client in DIALECTS:
        for is_stream in (True, False):
            way = Way(client, is_stream, {}, f"{dialect}-x")
            session = way.session()
            session.chunks(1, chunks)
            session.eof()
            released_events, responses = released(session)
            written = encoded(session, way, released_events) + b"".join(
                r.body + r.frame for r in responses
            )
            assert MARK.encode() not in written


def plant(dialect: DialectName, frame: Json, rng: random.Random) -> bool:
    """Put the mark into a frame where nothing is modelled; False where this frame has no such
    place."""
    holders = [frame]
    if dialect == "openai":
        for choice in frame.get("choices") or []:
            holders += [
                choice,
                *([choice["delta"]] if isinstance(choice.get("delta"), dict) else []),
            ]
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                holders += [call, *([call["function"]] if call.get("function") else [])]
    else:
        holders += [
            frame[name] for name in ("message", "delta") if isinstance(frame.get(name), dict)
        ]
        block = frame.get("content_block")
        if isinstance(block, dict) and block.get("type") in ("text", "thinking"):
            holders.append(block)
        if rng.random() < 0.3 and frame.get("type") in (
            "content_block_delta",
            "content_block_start",
        ):
            name = "delta" if "delta" in frame else "content_block"
            frame[name] = {
                "type": "novelty",
                "text": MARK,
                "thinking": MARK,
                "partial_json": MARK,
                "input": {"x": MARK},
            }
            return True
        if rng.random() < 0.1:
            frame["type"], frame["novelty"] = "novelty", MARK
            return True
    rng.choice(holders)["novelty"] = rng.choice(
        [MARK, [MARK], {"text": MARK}, {"content": [{"type": "text", "text": MARK}]}]
    )
    return True


# --- requests ---


def check_request(dialect: DialectName, data: bytes) -> None:
    """A request is read or refused; what is written from it is read again by its dialect, and says
    the same the second time."""
    rng = rng_of(data)
    endpoints = {
        "openai": ["chat"],
        "anthropic": ["messages", "count_tokens"],
        "responses": ["responses"],
    }
    endpoint: Any = rng.choice(endpoints[dialect])
    try:
        request = dialects.CLIENTS[dialect].decode_request(data, endpoint=endpoint)
    except InvalidRequest:
        return
    families = frozenset(table().families) if rng.random() < 0.7 else frozenset[str]()
    target = Target(
        dialect=rng.choice(UPSTREAMS),
        native_tools=rng.random() < 0.8,
        families=families,
        nonce="nonce",
    )
    try:
        written = codecs.encode_request(request, target, changed=True)
    except InvalidRequest:
        return
    assert codecs.encode_request(request, target, changed=True) == written
    assert written.body is not None
    body = json.loads(written.body)
    assert not fields.ROUTING & body.keys()
    assert all(isinstance(name, str) for name in written.dropped)
    again = dialects.CLIENTS[target.dialect].decode_request(
        written.body, endpoint="count_tokens" if target.dialect == "anthropic" else None
    )
    if target.dialect == dialect and target.native_tools:
        second = json.loads(codecs.encode_request(again, target, changed=True).body or b"")
        for one in (body, second):
            # a set, in whatever order
            one["include"] = sorted(one.get("include") or ())
        assert second == body


def check_gemini_request(data: bytes) -> None:
    """A client's request goes to Gemini in fields that the official SDK has, or not at all."""
    rng = rng_of(data)
    client: DialectName = rng.choice(DIALECTS)
    try:
        request = dialects.CLIENTS[client].decode_request(
            data, endpoint=dialects.DIALECTS[client].answers
        )
        request = msgspec.structs.replace(request, model=rng.choice(gemini.MODELS))
        families = frozenset(table().families) if rng.random() < 0.7 else frozenset[str]()
        written = codecs.encode_request(
            request, Target(dialect="gemini", families=families, nonce="nonce"), changed=True
        )
    except InvalidRequest:
        return
    assert written.body is not None
    gemini.check(json.loads(written.body))


# --- text and JSON ---


def check_scanner(data: bytes) -> None:
    """Nothing is lost or added, and the same is found wherever the text is cut."""
    text, rng = data.decode("utf-8", "surrogateescape"), rng_of(data)
    names = rng.choice([None, frozenset(("bash", "get_weather"))])
    reasoning = rng.random() < 0.5
    places = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(12)))
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    whole = scanned([text], names, reasoning=reasoning)
    assert "".join(said for _, said in whole) == text
    assert scanned(pieces, names, reasoning=reasoning) == whole


def scanned(
    pieces: list[str], names: frozenset[str] | None, *, reasoning: bool
) -> list[tuple[Any, str]]:
    """What is found, with neighbours of one kind joined."""
    scanner = CallScanner(names, reasoning=reasoning)
    found: list[tuple[Any, str]] = []
    for piece in [p for text in pieces for p in scanner.feed(text)] + scanner.finish():
        kind: Any = piece if isinstance(piece, TextCall) else type(piece)
        raw = piece if isinstance(piece, str) else piece.raw
        if isinstance(piece, TextCall):
            loads_or_fail(piece)
        if found and found[-1][0] is kind and kind in (str, Thought):
            found[-1] = (kind, found[-1][1] + raw)
        else:
            found.append((kind, raw))
    return found


def loads_or_fail(call: TextCall) -> None:
    """The arguments are an object's JSON where the scanner says so."""
    try:
        loads_arguments(call.arguments)
    except AmbiguousJson:
        assert not call.strict


def check_json(data: bytes) -> None:
    """Arguments that pass are read alike by other parsers; exact JSON is written back with the same
    values."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        value = loads_arguments(text)
    except AmbiguousJson:
        pass
    else:
        assert json.loads(text) == value == msgspec.json.decode(dumps(value))
    try:
        exact = loads_exact(data)
    except ValueError:
        return
    assert dumps(loads_exact(dumps(exact))) == dumps(exact)


def check_error(dialect: DialectName, data: bytes) -> None:
    """Every error answer of an upstream becomes one of ours."""
    rng = rng_of(data)
    failed = dialects.DIALECTS[dialect].decode_error(
        rng.choice([400, 401, 404, 413, 429, 500, 529, 599]), data, rng.choice([None, "1", "x\n"])
    )
    for client in DIALECTS:
        way = Way(client, rng.random() < 0.5, {}, f"{dialect}-x")
        session = way.session()
        session.drain()
        session.error_status(failed.status, data, "")
        _, responses = released(session)
        assert len(responses) == 1 and 400 <= responses[0].status < 600
        assert set(json.loads(responses[0].body)) <= {"type", "error", "request_id"}


# --- seeds ---


def stream_seeds(dialect: DialectName) -> list[bytes]:
    """Our own streams and those beside the repository."""
    own = [path.read_bytes() for path in sorted(OWN.glob(f"{dialect}-*.sse"))]
    return own + [
        r.body
        for r in recordings()
        if r.dialect == dialect and r.is_stream and len(r.body) < 20_000
    ]


def responses_items() -> list[list[Json]]:
    """Answers of Responses, as their items."""
    kinds = [
        responses.reasoning("gAAA", "One.", "Two."),
        responses.message("Hello you", phase="commentary"),
        responses.function_call("call_1", "bash", '{"command": "ls"}'),
        {"type": "custom_tool_call", "call_id": "call_2", "name": "bash", "input": "ls"},
        {
            "type": "web_search_call",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
            "results": [{"url": "u"}],
        },
        {
            "type": "mcp_call",
            "name": "bash",
            "server_label": "box",
            "arguments": "{}",
            "output": "found",
        },
        {"type": "mcp_approval_request", "name": "bash", "server_label": "box", "arguments": "{}"},
        {
            "type": "shell_call",
            "call_id": "call_3",
            "action": {"commands": ["ls"]},
            "environment": {"type": "local"},
        },
        {"type": "program", "call_id": "call_4", "code": "x", "fingerprint": "gAAA"},
    ]
    return [[kind] for kind in kinds] + [kinds[:3], kinds[3:6], kinds]


def responses_streams() -> list[bytes]:
    """Those as streams."""
    return [responses.frames(responses.events(items)) for items in responses_items()]


def responses_wholes() -> list[bytes]:
    """And whole."""
    return [as_json(responses.response(items)) for items in responses_items()]


def whole_seeds(dialect: DialectName) -> list[bytes]:
    """Whole answers: those beside the repository, and what the encoders make of our streams."""
    found = [
        r.body
        for r in recordings()
        if r.dialect == dialect and not r.is_stream and len(r.body) < 40_000
    ]
    for upstream in DIALECTS:
        for stream in stream_seeds(upstream)[:12]:
            way = Way(dialect, False, {}, f"{upstream}-x")
            session = way.session()
            session.chunks(1, events_of([stream]) or [])
            session.eof()
            events, _ = released(session)
            if (
                events
                and isinstance(events[0], MessageStart)
                and isinstance(events[-1], MessageStop)
            ):
                found.append(encoded(session, way, events))
    return found


def text_seeds() -> list[bytes]:
    """Text in which a parser may find calls."""
    call = b'{"name": "bash", "arguments": {"command": "ls"}}'
    forms = [
        b"Hello. " + call,
        b"<tool_call>" + call + b"</tool_call>",
        b"```json\n[" + call + b"]\n```",
        b"[TOOL_CALLS] [" + call + b"]",
    ]
    forms += [
        b"<think>" + call + b"</think>Hi",
        b"<function=bash><parameter=command>ls</parameter></function>",
        b"{'name': 'bash', 'args': {}}",
    ]
    return [
        *forms,
        b'{"tool_calls": [{"function": {"name": "bash", "arguments": "{\\"a\\": 1}"}}]}',
        b'say "name": "x" and { more }',
    ]


TARGETS = {
    t.name: t
    for t in [
        FuzzTarget("sse", check_splitter, lambda: [s for d in DIALECTS for s in stream_seeds(d)]),
        FuzzTarget(
            "openai-stream",
            lambda data: check_stream("openai", data),
            lambda: stream_seeds("openai"),
        ),
        FuzzTarget(
            "anthropic-stream",
            lambda data: check_stream("anthropic", data),
            lambda: stream_seeds("anthropic"),
        ),
        FuzzTarget("gemini-stream", lambda data: check_stream("gemini", data), gemini.streams),
        FuzzTarget("gemini-whole", lambda data: check_whole("gemini", data), gemini.answers),
        FuzzTarget(
            "gemini-request",
            check_gemini_request,
            lambda: [s for d in DIALECTS for s in requests.seeds(d)],
        ),
        FuzzTarget(
            "openai-whole", lambda data: check_whole("openai", data), lambda: whole_seeds("openai")
        ),
        FuzzTarget(
            "anthropic-whole",
            lambda data: check_whole("anthropic", data),
            lambda: whole_seeds("anthropic"),
        ),
        FuzzTarget(
            "responses-stream", lambda data: check_stream("responses", data), responses_streams
        ),
        FuzzTarget(
            "responses-whole", lambda data: check_whole("responses", data), responses_wholes
        ),
        FuzzTarget(
            "openai-records",
            lambda data: check_records("openai", data),
            lambda: odd_seeds("openai"),
        ),
        FuzzTarget(
            "anthropic-records",
            lambda data: check_records("anthropic", data),
            lambda: odd_seeds("anthropic"),
        ),
        FuzzTarget("eventstream", binary.check_binary, binary.binary_seeds),
        FuzzTarget("converse-stream", binary.check_messages, binary.message_seeds),
        FuzzTarget("converse-written", binary.check_written, lambda: requests.seeds("openai")),
        FuzzTarget("withheld", check_withheld, lambda: [b"%d" % n for n in range(50)]),
        FuzzTarget(
            "openai-request",
            lambda data: check_request("openai", data),
            lambda: requests.seeds("openai"),
        ),
        FuzzTarget(
            "anthropic-request",
            lambda data: check_request("anthropic", data),
            lambda: requests.seeds("anthropic"),
        ),
        FuzzTarget(
            "responses-request",
            lambda data: check_request("responses", data),
            lambda: requests.seeds("responses"),
        ),
        FuzzTarget("text-calls", check_scanner, text_seeds),
        FuzzTarget(
            "json",
            check_json,
            lambda: [
                b'{"a": [1, -0.0, 1e3, "\\u00e9\\ud83d\\ude00", null, {"b": {}}]}',
                b"{}",
                b'{"a": 1}',
            ],
        ),
        FuzzTarget(
            "openai-error",
            lambda data: check_error("openai", data),
            lambda: requests.errors("openai"),
        ),
        FuzzTarget(
            "anthropic-error",
            lambda data: check_error("anthropic", data),
            lambda: requests.errors("anthropic"),
        ),
    ]
}


def found(name: str) -> list[bytes]:
    """Inputs that once failed."""
    return [path.read_bytes() for path in sorted(FOUND.glob(f"{name}.*"))]


def damaged(target: FuzzTarget, seeds: list[bytes], rng: random.Random) -> bytes:
    """A new input for a target."""
    if target.name == "withheld":
        return b"%d" % rng.randrange(1 << 60)
    return mutate(rng.choice(seeds), seeds, rng)
