"""generateContent answers to events: blocks, signatures, calls in pieces, how answers end; and ways
in which a call could slip by."""

from typing import Any

import pytest

from protocol import codecs
from protocol.citations import Citation
from protocol.dialects.table import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import (
    AttachmentDelta,
    BlockStart,
    BlockStop,
    MessageStop,
    SignatureDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
)
from tests.support.checks.decoding import turns_of
from tests.support.json_values import Json, as_json
from tests.support.upstreams.gemini import (
    USAGE,
    answer,
    body_of,
    call,
    calls_in,
    opaque,
    piece,
    said,
    stored_turn,
    stream,
    whole,
    write,
)

CODE = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
SEAL = "c2VhbA=="


def text(words: str, signature: str = "", **more: Any) -> Json:
    return {"text": words} | ({"thoughtSignature": signature} if signature else {}) | more


def ending(events: list[Any]) -> str:
    last = events[-1]
    return str(last.stop_reason) if isinstance(last, MessageStop) else f"failed: {last.kind}"


@pytest.mark.parametrize(
    ("parts", "blocks"),
    [
        ([text("a"), text("b")], [("text", "", "ab")]),
        ([text("t", thought=True), text("a")], [("thinking", "", "t"), ("text", "", "a")]),
        (
            [text("a"), text("b", SEAL), text("c")],
            [("text", "", "a"), ("text", "", "b"), ("text", "", "c")],
        ),
        ([text("a"), text("", SEAL)], [("text", "", "a")]),
        ([text("a"), text("", SEAL), text("b")], [("text", "", "a"), ("text", "", "b")]),
        (
            [call(city="x"), text("", SEAL)],
            [("tool_use", "weather", '{"city": "x"}'), ("other", "thoughtSignature", "")],
        ),
        ([call(), call()], [("tool_use", "weather", "{}")] * 2),
        ([{"functionCall": {"name": "f"}}], [("tool_use", "f", "{}")]),
        ([{"functionCall": {"name": "f", "args": None}}], [("tool_use", "f", "{}")]),
        # however a call is dressed up, it is one
        ([call() | {"thought": True}], [("tool_use", "weather", "{}")]),
        ([call() | {"text": ""}], [("tool_use", "weather", "{}")]),
        ([text("call:weather{}", thought=True)], [("thinking", "", "call:weather{}")]),
        (
            [CODE, RESULT],
            [
                ("server_tool_use", "code_execution", '{"language":"PYTHON","code":"print(1)"}'),
                ("other", "codeExecutionResult", ""),
            ],
        ),
        (
            [{"toolCall": {"id": "t", "toolType": "URL_CONTEXT", "args": {"u": 1}}}],
            [("server_tool_use", "web_fetch", '{"u":1}')],
        ),
        (
            [{"toolCall": {"id": "t", "toolType": "NEW_ONE"}}],
            [("server_tool_use", "new_one", "{}")],
        ),
        ([{"inlineData": {"mimeType": "image/png", "data": "aa"}}], [("other", "inlineData", "")]),
    ],
)
def test_parts_become_blocks_the_same_streamed_and_whole(
    parts: list[Json], blocks: list[tuple[str, str, str]]
) -> None:
    apart = [answer(part, finish=None) for part in parts]
    for events in (whole(*parts), stream(answer(*parts)), stream(*apart, answer())):
        assert said(events) == blocks
        starts, stops = (
            [e.index for e in events if isinstance(e, kind)] for kind in (BlockStart, BlockStop)
        )
        assert starts == stops == list(range(len(blocks)))


def test_a_signature_stays_with_its_part() -> None:
    events = whole(
        text("t", SEAL, thought=True),
        text("a"),
        call(signature="AAAA"),
        call(),
        CODE | {"thoughtSignature": "BBBB"},
        text("", "CCCC"),
    )
    assert [(e.index, e.signature) for e in events if isinstance(e, SignatureDelta)] == [
        (0, SEAL),
        (2, "AAAA"),
        (4, "BBBB"),
        (5, "CCCC"),
    ]


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([piece(name="f", goes_on=True), piece("$.a", "x"), piece()], {"a": "x"}),
        (
            [
                piece(name="f"),
                piece("$.a", "x", text_goes_on=True),
                piece("$.a", "y"),
                piece(goes_on=False),
            ],
            {"a": "xy"},
        ),
        (
            [
                piece(name="f"),
                piece("$.a[0].b", 1),
                piece("$.a[0].c", True),
                piece("$.a[1]", None, goes_on=False),
            ],
            {"a": [{"b": 1, "c": True}, None]},
        ),
        ([piece("$['a b']", 0.5, goes_on=False, name="f")], {"a b": 0.5}),
        ([piece(name="f")], {}),
    ],
)
def test_a_call_in_pieces_is_told_once_it_is_complete(pieces: list[Json], arguments: Json) -> None:
    events = stream(*(answer(one, finish=None) for one in pieces), answer())
    assert calls_in(events) == [("f", arguments)] and ending(events) == "tool_use"


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(name="f"), piece("$.a", "x"), piece("$.a", "y")],  # said twice
        [
            piece(name="f"),
            piece("$.a", "x", text_goes_on=True),
            piece("$['a']", "y"),
        ],  # by two spellings
        [piece(name="f"), piece("$.a", "x"), piece("$.a.b", "y")],
        [piece(name="f"), piece("$.a.b", "x"), piece("$.a", "y")],
        [piece(name="f"), piece("$.a.b", "x"), piece("$.a[0]", "y")],
        [piece(name="f"), piece("$.a[1]", "x")],
        [piece(name="f"), piece("$.a[9999999]", "x")],
        [piece(name="f"), piece("$.a[0]", "x"), piece("$.a[00]", "y")],
        [piece(name="f"), piece("$.a[\u0660]", "x")],
        [piece(name="f"), piece("$", "x")],
        [piece(name="f"), piece("$[0]", "x")],
        [piece(name="f"), piece("$..a", "x")],
        [piece(name="f"), piece("$.a[*]", "x")],
        [piece(name="f"), piece("a", "x")],
        [piece(name="f"), piece("$" + ".a" * 500, "x")],
        [piece("$.a", "x")],  # of no call
        [piece(name="f"), piece(name="g")],
        [piece(name="f"), call("g")],
        [piece(name="f"), text("x")],
        [piece(name="f"), {"functionCall": {"args": {"a": 1}, "willContinue": True}}],
        [piece(name="f"), {"functionCall": {"partialArgs": [{"jsonPath": "$.a"}]}}],
        [
            piece(name="f"),
            {
                "functionCall": {
                    "partialArgs": [{"jsonPath": "$.a", "stringValue": "x", "numberValue": 1}]
                }
            },
        ],
        [
            piece(name="f"),
            {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "numberValue": "1"}]}},
        ],
        [piece(name="f"), {"functionCall": {"partialArgs": [{"stringValue": "1"}]}}],
        [piece(name="f"), {"functionCall": {"partialArgs": ["$.a"]}}],
    ],
)
def test_pieces_that_do_not_say_one_object_are_refused(pieces: list[Json]) -> None:
    with pytest.raises(RemoteProtocolError):
        stream(*(answer(one, finish=None) for one in pieces), answer())


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "SAFETY", "OTHER", None])
def test_a_call_in_pieces_that_another_end_cut_is_not_told(finish: str | None) -> None:
    events = stream(answer(piece(name="f"), finish=None), answer(piece("$.a", "x"), finish=finish))
    assert calls_in(events) == [] and ending(events) != "tool_use"


@pytest.mark.parametrize(
    "part",
    [
        call() | {"text": "x"},
        call() | CODE,
        CODE | RESULT,
        call() | {"inlineData": {}},
        {"functionCall": {}},
        {"functionCall": {"args": {}}},
        {"functionCall": {"name": "f", "args": []}},
        {"functionCall": {"name": "f", "args": "{}"}},
        {"functionCall": {"name": 1}},
        {"text": 1},
        {
            "functionCall": (
                {"name": "f", "args": {}, "partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}]}
                | {"args": {"a": 1}}
            )
        },
    ],
)
def test_a_part_of_two_contents_or_of_none_that_can_be_read_is_refused(
    part: Json,
) -> None:
    with pytest.raises(RemoteProtocolError):
        whole(part)
    with pytest.raises(RemoteProtocolError):
        stream(answer(part))


def test_another_candidate_is_withheld_whole() -> None:
    chunk = answer(text("a"))
    for other in (answer(call())["candidates"][0], answer(call(), index=1)["candidates"][0]):
        events = stream(chunk | {"candidates": [*chunk["candidates"], other]})
        assert said(events) == [("text", "", "a")] and opaque(events) == ["candidate"]
    assert (
        calls_in(
            stream(answer(text("a"), finish=None), answer(call(), index=1, finish=None), answer())
        )
        == []
    )


def test_what_is_not_modelled_is_named_and_withheld() -> None:
    part = {"text": "a", "newContent": {"functionCall": {"name": "f"}}}
    events = stream(answer(part, newField="x", logprobsResult={"a": 1}) | {"newTop": [1]})
    assert said(events) == [("text", "", "a")]
    assert set(opaque(events)) == {
        "field newTop",
        "candidate field newField",
        "part field newContent",
        "candidate field logprobs_result",
    }


@pytest.mark.parametrize(
    ("finish", "has_call", "end"),
    [
        ("STOP", False, "end_turn"),
        ("STOP", True, "tool_use"),
        ("MAX_TOKENS", False, "max_tokens"),
        ("MAX_TOKENS", True, "max_tokens"),
        *[
            (word, False, "refusal")
            for word in (
                "SAFETY",
                "RECITATION",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "MODEL_ARMOR",
                "LANGUAGE",
            )
        ],
        *[
            (word, False, "failed: api_error")
            for word in (
                "MALFORMED_FUNCTION_CALL",
                "UNEXPECTED_TOOL_CALL",
                "OTHER",
                "CONTINUATION",
                "NEW",
            )
        ],
        ("FINISH_REASON_UNSPECIFIED", False, "failed: api_error"),
        (None, False, "failed: api_error"),
    ],
)
def test_each_finish_reason_ends_as_the_page_says(
    finish: str | None, has_call: bool, end: str
) -> None:
    parts = [call()] if has_call else [text("a")]
    assert ending(stream(answer(*parts, finish=finish))) == end


def test_a_refusal_says_why_and_never_ends_as_if_it_were_an_answer() -> None:
    blocked = {
        "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"},
        "usageMetadata": {},
    }
    for events in (stream(blocked), codecs.decode_whole("gemini", as_json(blocked))):
        assert isinstance(stop := events[-1], MessageStop)
        assert (stop.stop_reason, stop.explanation) == (StopReason.REFUSAL, "no")
    assert (
        isinstance(stop := stream(answer(finish="SAFETY"))[-1], MessageStop)
        and stop.explanation == "SAFETY"
    )
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole("gemini", b"{}")
    assert isinstance(stream({"usageMetadata": USAGE})[-1], UpstreamFailed)


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m"}, "rate_limit_error"),
        ({"code": 503, "message": "m"}, "overloaded_error"),
        ({"status": "UNAVAILABLE", "message": "m"}, "overloaded_error"),
        (
            {"code": 400, "message": "m", "details": [{"reason": "API_KEY_INVALID"}]},
            "authentication_error",
        ),
        ({"code": "x", "details": [1]}, "api_error"),
    ],
)
def test_an_error_inside_a_stream_ends_it(error: Json, kind: str, as_list: bool) -> None:
    chunk: Any = [{"error": error}] if as_list else {"error": error}
    events = stream(answer(text("a"), finish=None), chunk, answer(call()))
    assert [e.kind for e in events if isinstance(e, UpstreamFailed)] == [kind]
    assert calls_in(events) == [] and opaque(events) == ["data after the end"]


@pytest.mark.parametrize(
    ("status", "body", "kind", "after"),
    [
        (
            400,
            {"code": 400, "details": [{"@type": "x", "reason": "API_KEY_INVALID"}]},
            "authentication_error",
            None,
        ),
        (400, {"code": 400, "message": "bad"}, "invalid_request_error", None),
        (403, {"code": 403, "details": [{"reason": "BILLING_DISABLED"}]}, "billing_error", None),
        (429, {"code": 429, "details": [{"retryDelay": "34.4s"}]}, "rate_limit_error", "35"),
        (429, {"code": 429, "details": [{"retryDelay": "5s"}, 7]}, "rate_limit_error", "5"),
        (429, {"code": 429, "details": [{"retryDelay": "a while"}]}, "rate_limit_error", None),
        (500, "what", "api_error", None),
    ],
)
def test_an_error_answer_is_read(status: int, body: Any, kind: str, after: str | None) -> None:
    for payload in ({"error": body}, [{"error": body}]):
        failed = DIALECTS["gemini"].decode_error(status, as_json(payload), None)
        assert (failed.kind, failed.status, failed.retry_after) == (kind, status, after)
    assert DIALECTS["gemini"].decode_error(503, b"<html>", None).kind == "overloaded_error"


# --- sources ---

SOURCES = [
    {"web": {"uri": "https://a.example", "title": "A"}},
    {"web": {"uri": "https://b.example", "title": "B"}},
]


def support(start: int, end: int, words: str, *numbers: int) -> Json:
    return {
        "segment": {"startIndex": start, "endIndex": end, "text": words},
        "groundingChunkIndices": list(numbers),
    }


def cited(events: list[Any]) -> list[tuple[str, int, int]]:
    values = [e.value for e in events if isinstance(e, AttachmentDelta)]
    assert all(isinstance(v, Citation) and v.dialect == "gemini" for v in values)
    return [(v.url, v.start, v.end) for v in values]


def test_places_are_code_points_and_only_where_the_text_stands_there() -> None:
    metadata = {
        "groundingChunks": SOURCES,
        "webSearchQueries": ["q"],
        "groundingSupports": [
            support(0, 9, "Gr\u00fc\u00dfe \U0001f600"[:6], 0),
            support(3, 9, "\u00fc\u00dfe", 1),
            support(0, 2, "Gr", 0, 1, 7, -1, True),
        ],
    }
    events = stream(
        answer(text("Gr\u00fc"), finish=None),
        answer(text("\u00dfe \U0001f600"), groundingMetadata=metadata),
    )
    assert cited(events) == [
        ("https://a.example", -1, -1),
        ("https://b.example", -1, -1),
        ("https://a.example", 0, 2),
        ("https://b.example", 0, 2),
    ]
    metadata["groundingSupports"] = [
        support(7, 12, "e \U0001f600"[:3], 0),
        support(6, 7, "e", 1),
        support(8, 12, "\U0001f600", 1),
        support(3, 6, "\u00fc", 1),
    ]
    assert cited(
        stream(answer(text("Gr\u00fc\u00dfe \U0001f600"), groundingMetadata=metadata))
    ) == [
        ("https://a.example", -1, -1),
        ("https://b.example", 4, 5),
        ("https://b.example", 6, 7),
        ("https://b.example", -1, -1),
    ]


@pytest.mark.parametrize(
    ("words", "said_there", "place"),
    [
        ("\u00fc\u00df is it.", support(3, 5, "is"), (3, 5)),  # in code points
        ('"The first words of the page"', support(0, 27, "The first words of the page"), (1, 28)),
        (
            "The first words of it. The first words of it.",
            support(3, 25, "The first words of it."),
            (-1, -1),
        ),
        ("The first words.", support(9, 12, "The"), (-1, -1)),
    ],
)
def test_a_passage_whose_place_is_off_is_looked_for(
    words: str, said_there: Json, place: tuple[int, int]
) -> None:
    metadata = {
        "groundingChunks": SOURCES[:1],
        "groundingSupports": [said_there | {"groundingChunkIndices": [0]}],
    }
    assert cited(stream(answer(text(words), groundingMetadata=metadata))) == [
        ("https://a.example", *place)
    ]


def test_a_search_that_no_part_shows_is_told_once() -> None:
    metadata = {"groundingChunks": SOURCES, "webSearchQueries": ["q"]}
    evidence = ("server_tool_use", "web_search", '{"queries":["q"]}')
    events = stream(
        answer(text("a"), finish=None, groundingMetadata=metadata),
        answer(groundingMetadata=metadata),
    )
    assert said(events) == [("text", "", "a"), evidence] and cited(events)[:2] == [
        ("https://a.example", -1, -1),
        ("https://b.example", -1, -1),
    ]
    shown = {"toolCall": {"id": "t", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}}
    assert evidence not in said(stream(answer(shown, text("a"), groundingMetadata=metadata)))
    fetched = {"urlMetadata": [{"retrievedUrl": "https://a.example"}]}
    assert said(whole(text("a"), urlContextMetadata=fetched))[-1] == (
        "server_tool_use",
        "web_fetch",
        '{"urls":["https://a.example"]}',
    )


WEB, FILE, PLACE = (
    SOURCES[0],
    {"retrievedContext": {"text": "t", "fileSearchStore": "s"}},
    {"maps": {"uri": "https://m.example"}},
)


@pytest.mark.parametrize(
    ("metadata", "more", "evidence"),
    [
        ({"groundingChunks": [WEB]}, {}, [("web_search", '{"queries":[]}')]),
        ({"groundingChunks": [FILE]}, {}, [("file_search", '{"queries":[]}')]),
        (
            {"groundingChunks": [FILE], "retrievalQueries": ["q"]},
            {},
            [("file_search", '{"queries":["q"]}')],
        ),
        ({"groundingChunks": [PLACE]}, {}, [("google_maps", '{"queries":[]}')]),
        # a page that was fetched is a source, too: nobody searched for it
        (
            {"groundingChunks": [WEB]},
            {"urlMetadata": [{"retrievedUrl": "u"}]},
            [("web_fetch", '{"urls":["u"]}')],
        ),
        (
            {"groundingChunks": [WEB], "webSearchQueries": ["q"]},
            {"urlMetadata": [{"retrievedUrl": "u"}]},
            [("web_search", '{"queries":["q"]}'), ("web_fetch", '{"urls":["u"]}')],
        ),
        ({}, {}, []),
    ],
)
def test_what_no_part_shows_is_told_by_what_it_was(
    metadata: Json, more: Json, evidence: list[tuple[str, str]]
) -> None:
    events = whole(text("a"), groundingMetadata=metadata, urlContextMetadata=more)
    assert [
        (name, arguments) for kind, name, arguments in said(events) if kind == "server_tool_use"
    ] == evidence


@pytest.mark.parametrize("name", ["citationSources", "citations"])
def test_what_was_said_by_heart_names_its_sources(name: str) -> None:
    one = {"startIndex": 0, "endIndex": 1, "uri": "https://a.example", "license": "mit"}
    first, last = (
        answer(text("a"), finish=None, citationMetadata={name: [one]}),
        answer(text("b"), citationMetadata={name: [one]}),
    )
    events = stream(first, last)
    assert (
        cited(events) == [("https://a.example", -1, -1)]
        and opaque(events) == []
        and said(events) == [("text", "", "ab")]
    )
    assert opaque(whole(text("a"), citationMetadata={name: []})) == []
    for odd in ({name: [{"license": "mit"}]}, {name: {"uri": "u"}}, ["u"], "u"):
        assert opaque(whole(text("a"), citationMetadata=odd)) == [
            "candidate field citation_metadata"
        ]


SAID_AT_ONCE = {
    "groundingChunks": SOURCES,
    "groundingSupports": [support(0, 9, "Here it i", 0), support(5, 10, "it is", 1)],
}


@pytest.mark.parametrize(
    "pieces",
    [
        [{}, {}, SAID_AT_ONCE],
        [{"webSearchQueries": ["q"]}, {"groundingChunks": SOURCES[:1]}, SAID_AT_ONCE],
        [SAID_AT_ONCE, SAID_AT_ONCE, SAID_AT_ONCE],
        [
            {"groundingChunks": SOURCES[:1], "groundingSupports": [support(0, 9, "Here it i", 0)]},
            {"groundingChunks": SOURCES[1:], "groundingSupports": [support(5, 10, "it is", 0)]},
            {},
        ],
        [
            {"groundingChunks": SOURCES},
            {"groundingSupports": SAID_AT_ONCE["groundingSupports"]},
            {},
        ],
    ],
)
def test_sources_said_in_several_chunks_are_told_once_and_split_no_text(
    pieces: list[Json],
) -> None:
    fetched = {"urlMetadata": [{"retrievedUrl": "u"}]}
    chunks = [
        answer(text(words), finish=finish, groundingMetadata=piece, urlContextMetadata=fetched)
        for words, finish, piece in zip(
            ("Here ", "it ", "is"), (None, None, "STOP"), pieces, strict=True
        )
    ]
    events = stream(*chunks)
    assert said(events)[0] == ("text", "", "Here it is") and opaque(events) == []
    assert cited(events) == [("https://a.example", 0, 9), ("https://b.example", 5, 10)]


@pytest.mark.parametrize(
    "chunks",
    [
        [answer(call(signature=SEAL), groundingMetadata={"groundingChunks": SOURCES})],
        [
            answer(text("a"), call(signature=SEAL), finish=None),
            answer(groundingMetadata={"groundingChunks": SOURCES}),
        ],
    ],
)
def test_sources_without_an_open_text_are_carried_and_the_turn_keeps_its_seal(
    chunks: list[Json],
) -> None:
    events = stream(*chunks)
    [body] = [e.body for e in events if isinstance(e, BlockStart) and e.name == "annotations"]
    assert body is not None and body["annotations"] == SOURCES and opaque(events) == []
    asked = {"role": "user", "content": "hi"}
    called = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    back = [
        asked,
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    at = next(e.index for e in events if isinstance(e, BlockStart) and e.kind == "tool_use")
    sent, _ = write(
        {"messages": back}, stored=[stored_turn(body_of(*chunks), ids=("c1",), blocks=(at,))]
    )
    parts = sent["contents"][1]["parts"]
    assert [p["thoughtSignature"] for p in parts if "functionCall" in p] == [SEAL]
    assert all(set(p) <= {"text", "functionCall", "thoughtSignature"} for p in parts)


@pytest.mark.parametrize(
    "metadata",
    [
        {"groundingChunks": 1, "groundingSupports": [1, {}]},
        {"groundingSupports": [{"segment": []}], "groundingChunks": [0, {"web": 1}]},
    ],
)
def test_odd_metadata_breaks_nothing(metadata: Json) -> None:
    assert said(stream(answer(text("a"), groundingMetadata=metadata)))[0] == ("text", "", "a")


def test_text_goes_on_by_the_short_way_and_a_bad_chunk_ends_all() -> None:
    decoder = DIALECTS["gemini"].decoder()
    chunks = [body_of(answer(text(word), finish=None)) for word in "abc"]
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["a", "b", "c"]
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"data: {\n\n")
    assert decoder.finish() == []


def test_arguments_that_are_not_utf8_are_refused_streamed_and_whole() -> None:
    body = as_json(answer(call(city="x"))).replace(b'"x"', b'"\xff"')
    with pytest.raises(RemoteProtocolError):
        codecs.decode_whole("gemini", body)
    with pytest.raises(RemoteProtocolError):
        DIALECTS["gemini"].decoder().feed(b"data: " + body + b"\n\n")
    turn = turns_of("gemini").TurnBuilder()
    turn.take(body)
    assert turn.is_broken
