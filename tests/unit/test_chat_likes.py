"""Vendors whose API is like chat/completions: what each does otherwise, as rows
(docs/change/protocol.md), and the recordings of them."""

import json
import random
import re
from hashlib import sha256
from typing import Any

import pytest

from protocol import codecs
from protocol.citations import Citation
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    Event,
    MessageStop,
    Opaque,
    RawDelta,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest, DialectName
from protocol.target import Target
from tests.support.checks.decoding import by_block, decode
from tests.support.checks.kinds import of_kind
from tests.support.clients.sdk import openai_answer
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request
from tests.support.upstreams.dialect_recordings import dialect_recordings, need_dialect_recordings

APIS = ("openai-like", "azure-openai")


RECORDED = {r.name: r for r in dialect_recordings() if r.name.startswith(APIS)}
STREAMS = sorted(name for name, r in RECORDED.items() if not r.facts.get("error"))
ERRORS = sorted(RECORDED.keys() - STREAMS)


def chunks(*said: Json) -> list[Event]:
    return decode(
        "openai",
        [b"data: " + as_json(one) + b"\n\n" for one in said] + [b"data: [DONE]\n\n"],
    )


def one(
    delta: Json,
    finish: str | None = None,
    choice: Json | None = None,
    **fields: Any,
) -> Json:
    return {
        "id": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **(choice or {})}],
        **fields,
    }


def text(events: list[Event], kind: BlockKind = BlockKind.TEXT) -> str:
    places = {e.index for e in events if isinstance(e, BlockStart) and e.kind is kind}
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.index in places)


def calls(events: list[Event]) -> list[tuple[str, str, str]]:
    begun = {
        e.index: e for e in events if isinstance(e, BlockStart) and e.kind is BlockKind.TOOL_USE
    }
    said = {
        i: "".join(e.text for e in events if isinstance(e, ArgumentsDelta) and e.index == i)
        for i in begun
    }
    return [(start.id, start.name, said[i]) for i, start in begun.items()]


def begun(id: str, name: str, arguments: str = "") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def more(arguments: str) -> Json:
    return {"function": {"arguments": arguments}}


HI, STOP = one({"content": "hi"}), one({}, "stop")
QUIRKS: list[tuple[str, list[Json], Json]] = [
    (
        "Mistral: lists of thinking and text",
        [
            one(
                {
                    "content": [
                        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                        {"type": "text", "text": "hi"},
                    ]
                }
            ),
            STOP,
        ],
        {"text": "hi", "thinking": "hm"},
    ),
    (
        "Mistral: padding",
        [one({"content": "h"}, p="a"), one({"content": "i"}, p="abcd"), STOP],
        {"text": "hi"},
    ),
    (
        "a call without index, arguments as an object",
        [
            one(
                {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]},
                "tool_calls",
            )
        ],
        {"calls": [("c", "f", '{"a":1}')]},
    ),
    (
        "Moonshot: fragments without index go on at their position",
        [
            one({"tool_calls": [begun("a", "f"), begun("b", "g")]}),
            one({"tool_calls": [more('{"x"'), more('{"y"')]}),
            one({"tool_calls": [more(":1}"), more(":2}")]}, "tool_calls"),
        ],
        {"calls": [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]},
    ),
    (
        "Moonshot: only later fragments have an index",
        [
            one({"tool_calls": [begun("a", "f", "{"), begun("b", "g", "[")]}),
            one(
                {"tool_calls": [{"index": 1, **more("]")}, {"index": 0, **more("}")}]}, "tool_calls"
            ),
        ],
        {"calls": [("a", "f", "{}"), ("b", "g", "[]")]},
    ),
    (
        "a lone fragment goes on with the last call",
        [
            one({"tool_calls": [begun("a", "f", "{}"), begun("b", "g", "{")]}),
            one({"tool_calls": [more("}")]}, "tool_calls"),
        ],
        {"calls": [("a", "f", "{}"), ("b", "g", "{}")]},
    ),
    (
        "calls without index in chunks of their own",
        [
            one({"tool_calls": [begun("a", "f", "{}")]}),
            one({"tool_calls": [begun("b", "g"), begun("c", "h")]}),
            one({"tool_calls": [more('{"y":2}'), more("{}")]}),
            one({"tool_calls": [begun("", "i", "{}"), begun("", "i", "{}")]}, "tool_calls"),
        ],
        {
            "calls": [
                ("a", "f", "{}"),
                ("b", "g", '{"y":2}'),
                ("c", "h", "{}"),
                ("", "i", "{}"),
                ("", "i", "{}"),
            ]
        },
    ),
    (
        "an index after calls without one begins another",
        [
            one({"tool_calls": [begun("a", "f", "{}")]}),
            one({"tool_calls": [{"index": 0, **begun("b", "g", "{}")}]}, "tool_calls"),
        ],
        {"calls": [("a", "f", "{}"), ("b", "g", "{}")]},
    ),
    (
        "llama.cpp: ids may be empty",
        [
            one(
                {
                    "tool_calls": [
                        {"index": 0, "id": "", "function": {"name": "f", "arguments": "{}"}}
                    ]
                },
                "tool_calls",
            )
        ],
        {"calls": [("", "f", "{}")]},
    ),
    (
        "Kimi of before: usage in the choice",
        [HI, one({}, "stop", {"usage": {"prompt_tokens": 3, "completion_tokens": 2}})],
        {"text": "hi", "usage": Usage(3, 2)},
    ),
    (
        "Groq's compound models: usage under x_groq alone",
        [
            HI,
            one(
                {},
                "stop",
                x_groq={
                    "usage": {
                        "queue_time": 0.2,
                        "prompt_tokens": 3,
                        "completion_tokens": 2,
                        "total_tokens": 5,
                    }
                },
            ),
        ],
        {"usage": Usage(3, 2)},
    ),
    (
        "Groq: usage under x_groq too",
        [
            HI,
            one(
                {},
                "stop",
                usage={"prompt_tokens": 3, "completion_tokens": 2},
                x_groq={"usage": {"prompt_tokens": 9, "completion_tokens": 9}},
            ),
        ],
        {"usage": Usage(3, 2)},
    ),
    (
        "Moonshot: cached tokens beside the details",
        [
            HI,
            one({}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8}),
        ],
        {"usage": Usage(1, 2, 8)},
    ),
    (
        "DeepSeek: cached tokens beside the details",
        [
            HI,
            one(
                {},
                "stop",
                usage={
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "prompt_cache_hit_tokens": 8,
                    "prompt_cache_miss_tokens": 1,
                },
            ),
        ],
        {"usage": Usage(1, 2, 8)},
    ),
    (
        "both: what the details say counts",
        [
            HI,
            one(
                {},
                "stop",
                usage={
                    "prompt_tokens": 9,
                    "completion_tokens": 2,
                    "cached_tokens": 8,
                    "prompt_tokens_details": {"cached_tokens": 0},
                },
            ),
        ],
        {"usage": Usage(9, 2, 0)},
    ),
    (
        "xAI: reasoning counted apart",
        [
            HI,
            one(
                {},
                "stop",
                usage={
                    "prompt_tokens": 3,
                    "completion_tokens": 2,
                    "total_tokens": 12,
                    "completion_tokens_details": {"reasoning_tokens": 7},
                },
            ),
        ],
        {"usage": Usage(3, 9, None, None, 7)},
    ),
    (
        "OpenAI: reasoning counted in",
        [
            HI,
            one(
                {},
                "stop",
                usage={
                    "prompt_tokens": 3,
                    "completion_tokens": 9,
                    "total_tokens": 12,
                    "completion_tokens_details": {"reasoning_tokens": 7},
                },
            ),
        ],
        {"usage": Usage(3, 9, None, None, 7)},
    ),
    (
        "vLLM: stop_reason is a number",
        [HI, one({}, "stop", {"stop_reason": 128001})],
        {"text": "hi"},
    ),
    (
        "DeepSeek: out of resources is a failure",
        [HI, one({}, "insufficient_system_resource")],
        {"failed": "api_error"},
    ),
    ("Z.ai: its network failed", [HI, one({}, "network_error")], {"failed": "api_error"}),
    ("Z.ai: its filter stepped in", [HI, one({}, "sensitive")], {"stop": StopReason.REFUSAL}),
    (
        "Z.ai: the context is full",
        [HI, one({}, "model_context_window_exceeded")],
        {"stop": StopReason.CONTEXT_WINDOW},
    ),
    (
        "Azure: filtered behind the text",
        [HI, one({}, "content_filter", {"content_filter_offsets": {"check_offset": 1}})],
        {"stop": StopReason.REFUSAL},
    ),
    (
        "Azure: filters before the first choice",
        [
            {
                "id": "",
                "model": "",
                "choices": [],
                "prompt_filter_results": [
                    {
                        "prompt_index": 0,
                        "content_filter_results": {"hate": {"filtered": False, "severity": "safe"}},
                    }
                ],
            },
            HI,
            STOP,
        ],
        {"text": "hi"},
    ),
    (
        "vLLM, Mistral: an error without another object around it",
        [
            HI,
            {
                "object": "error",
                "message": "too long",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
        ],
        {"failed": "invalid_request_error"},
    ),
    (
        "Azure: an error in an answer that says 200",
        [{"error": {"message": "filtered", "code": "content_filter", "status": 400}}],
        {"failed": "invalid_request_error"},
    ),
]


@pytest.mark.parametrize(("what", "said", "want"), QUIRKS, ids=[q[0] for q in QUIRKS])
def test_what_a_vendor_does_otherwise_is_read(what: str, said: list[Json], want: Json) -> None:
    events = chunks(*said)
    stop = events[-1]
    found: Json = {
        "text": text(events),
        "thinking": text(events, BlockKind.THINKING),
        "calls": calls(events),
    }
    if isinstance(stop, MessageStop):
        found |= {"stop": stop.stop_reason, "usage": stop.usage}
    elif isinstance(stop, UpstreamFailed):
        found["failed"] = stop.kind
    assert {name: found.get(name) for name in want} == want
    assert not of_kind(events, Opaque)


BESIDE: Json = {
    "time_info": {"queue_time": 0.002, "created": 1779146781.78},
    "timings": {"predicted_n": 3},
    "request_id": "20260701073925df",
    "generationId": "gen_01M0",
    "metadata": {"weight_version": "default"},
}


def test_together_says_the_text_twice_and_it_is_left_out_where_it_is_the_same() -> None:
    def said(content: str | None, text: str, end: str | None = None) -> Json:
        return one(
            {"token_id": 14, "role": "assistant", "content": content},
            end,
            {"text": text, "seed": None},
        )

    events = chunks(said("h", "h"), said("i", "i"), said("", "", "stop"))
    assert not of_kind(events, Opaque)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "hi"
    other = chunks(said("h", "h"), said("i", "something else"), said(None, "", "stop"))
    assert [e.what for e in other if isinstance(e, Opaque)] == ["choice field text"]


@pytest.mark.parametrize("field", ["moderation", "x_groq", "provider", *BESIDE])
def test_what_stands_beside_the_answer_and_is_no_word_is_withheld_by_name(field: str) -> None:
    told = {"results": [{"categories": {"hate/threatening": False}, "reason": "some prose"}]}
    said = [HI, one({}, "stop", **({} if field == "provider" else {field: told}))]
    said[0] = {**HI, "provider": "A whole sentence."} if field == "provider" else HI
    assert [e.what for e in chunks(*said) if isinstance(e, Opaque)] == [f"field {field}"]
    named = DIALECTS["openai"].decoder(frozenset((f"field {field}",)))
    events = [e for c in said for e in named.feed(b"data: " + as_json(c) + b"\n\n")]
    assert [e.body[field] for e in events if isinstance(e, RawDelta)] == [
        said[0].get(field) or told
    ]


def test_pages_beside_the_text_are_citations_and_the_search_is_on_record() -> None:
    results = [{"title": "A", "url": "https://a", "snippet": "x"}]
    pages: Json = {"citations": ["https://a", "https://b"], "search_results": results}
    last = one(
        {"content": ""}, "stop", {"message": {"role": "assistant", "content": "hi"}}, **pages
    ) | {"object": "chat.completion.done"}
    events = chunks(one({"content": "hi"}, **pages), last)
    cited = [e.value for e in events if isinstance(e, AttachmentDelta)]
    assert all(isinstance(c, Citation) for c in cited) and [(c.url, c.title) for c in cited] == [
        ("https://a", "A"),
        ("https://b", ""),
    ]
    (ran,) = (
        e for e in events if isinstance(e, BlockStart) and e.kind is BlockKind.SERVER_TOOL_USE
    )
    assert ran.name == "web_search" and not of_kind(events, Opaque)
    xai = chunks(HI, one({}, "stop", citations=["https://a"]))
    assert [e.value.url for e in xai if isinstance(e, AttachmentDelta)] == ["https://a"]
    late = chunks(HI, STOP, one({}, citations=["https://a"]))
    assert [e.what for e in late if isinstance(e, Opaque)] == ["field citations"], (
        "no text is open for it"
    )


@pytest.mark.parametrize(
    "last", [STOP, one({"content": "!"}, "stop")], ids=["alone", "beside text"]
)
def test_pages_that_come_before_the_text_are_citations_of_it(last: Json) -> None:
    pages = [
        {
            "type": "url_citation",
            "url_citation": {"url": f"https://{n}", "title": n, "start_index": 0, "end_index": 0},
        }
        for n in "ab"
    ]
    events = chunks(*[one({"content": "", "annotations": [page]}) for page in pages], HI, last)
    assert [e.value.url for e in events if isinstance(e, AttachmentDelta)] == [
        "https://a",
        "https://b",
    ]
    assert [e.kind for e in events if isinstance(e, BlockStart)] == [BlockKind.TEXT]


@pytest.mark.parametrize("stream", [True, False])
def test_log_probabilities_of_reasoning_go_with_it(stream: bool) -> None:
    def of(*tokens: str) -> list[Json]:
        return [
            {"token": t, "logprob": -0.1, "bytes": list(t.encode()), "top_logprobs": []}
            for t in tokens
        ]

    said = [
        one(
            {"reasoning_content": "h"},
            None,
            {"logprobs": {"reasoning_content": of("h"), "content": None}},
        ),
        one(
            {"reasoning_content": "m", "content": "h"},
            None,
            {"logprobs": {"reasoning_content": of("m"), "content": of("h")}},
        ),
        one({"content": "i"}, "stop", {"logprobs": {"content": of("i")}}),
    ]
    message, entries = (
        {"reasoning_content": "hm", "content": "hi"},
        {
            "reasoning_content": of("h", "m"),
            "content": of("h", "i"),
        },
    )
    whole = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": entries}
    events = (
        chunks(*said)
        if stream
        else codecs.decode_whole("openai", as_json({"id": "m", "choices": [whole]}))
    )
    assert not of_kind(events, Opaque)
    for streamed in (True, False):
        request = ChatRequest(dialect="openai", model="m", stream=streamed)
        answer = openai_answer(
            CLIENTS["openai"].encoder(request, call_id="c", created=1).encode(by_block(events)),
            stream=streamed,
        )
        found = answer.choices[0].model_dump()["logprobs"]
        assert [t["token"] for t in found["content"]] == ["h", "i"]
        assert streamed or [t["token"] for t in found["reasoning_content"]] == ["h", "m"]
    for client in ("anthropic", "responses"):
        CLIENTS[client].encoder(
            ChatRequest(dialect=client, model="m", stream=True), call_id="c", created=1
        ).encode(by_block(events))
    lied = chunks(
        one({"reasoning_content": "h"}, "stop", {"logprobs": {"reasoning_content": of("other")}})
    )
    assert [e.what for e in lied if isinstance(e, Opaque)] == ["logprobs"]


def asked(model: str, dialect: str = "openai", **fields: Any) -> Any:
    body = {
        "model": model,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "hi"}],
        **fields,
    }
    request = read_request(dialect, body)
    return lambda *families: codecs.encode_request(
        request, Target(dialect="openai", families=frozenset(families))
    )


MODELS = (
    "perplexity/sonar-pro",
    "gpt-4o-search-preview",
    "openai/gpt-4o-mini-search-preview",
    "gpt-5-search-api",
    "groq/compound-mini",
    "o3-deep-research",
    "x/O4-mini-deep-research",
    "any/model:online",
    "jina-deepsearch-v1",
)


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_always_searches_needs_the_family_at_every_upstream(
    model: str, target: DialectName
) -> None:
    request = read_request(
        "openai", {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    )
    with pytest.raises(
        InvalidRequest,
        match=re.escape(f"{model!r} (the provider searches the web) is not allowed with this key"),
    ):
        codecs.encode_request(request, Target(dialect=target))
    families = frozenset(("web_search", "web_fetch", "code_execution"))
    codecs.encode_request(request, Target(dialect=target, families=families))


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_model_without_tools_takes_none(dialect: str) -> None:
    tool = (
        {"name": "f", "input_schema": {"type": "object"}}
        if dialect == "anthropic"
        else {"type": "function", "function": {"name": "f"}}
    )
    with pytest.raises(InvalidRequest, match="takes no tools"):
        asked("sonar", dialect, tools=[tool])("web_search")


def test_mistral_gets_ids_of_nine_letters_and_digits() -> None:
    given = ("toolu_01ab", "toolu_01ac", "a1b2c3d4e")
    turns: list[Json] = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in given],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": i, "content": "x"} for i in given],
        },
    ]
    messages = [{"role": "user", "content": "hi"}, *turns]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    written = json.loads(
        asked("mistral-large-latest", "anthropic", messages=messages, tools=tools)().body
    )["messages"]
    ids = [call["id"] for message in written for call in message.get("tool_calls", ())]
    assert (
        ids == [m["tool_call_id"] for m in written if m["role"] == "tool"]
        and len(set(ids)) == 3
        and ids[2] == "a1b2c3d4e"
    )
    assert all(len(i) == 9 and i.isalnum() for i in ids)


@pytest.mark.parametrize(
    ("model", "roles"),
    [("mistralai/devstral-2", ["tool", "assistant", "user"]), ("qwen3", ["tool", "user"])],
)
def test_mistral_gets_an_answer_between_results_and_what_a_user_says_next(
    model: str, roles: list[str]
) -> None:
    use, said = (
        {"type": "tool_use", "id": "a1b2c3d4e", "name": "f", "input": {}},
        {
            "type": "text",
            "text": "go on",
        },
    )
    came = {"type": "tool_result", "tool_use_id": "a1b2c3d4e", "content": "x"}
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [use]}]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    for last, wanted in (([came, said], roles), ([came], ["tool"])):
        body = asked(
            model, "anthropic", messages=[*turns, {"role": "user", "content": last}], tools=tools
        )().body
        assert [m["role"] for m in json.loads(body)["messages"][2:]] == wanted


@pytest.mark.parametrize("name", STREAMS or ["none"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_recordings_of_vendors_are_what_their_facts_say(name: str, cut: bool) -> None:
    need_dialect_recordings()
    body, facts = RECORDED[name].body, RECORDED[name].facts
    seed = random.randrange(10**9)
    print("seed", seed)
    places = (
        sorted(random.Random(seed).sample(range(1, len(body)), min(40, len(body) - 1)))
        if cut
        else []
    )
    events = decode(
        "openai", [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    )
    said = text(events)
    assert (len(said), len(text(events, BlockKind.THINKING))) == (
        facts["text_chars"],
        facts.get("thinking_chars", 0),
    )
    assert not said or sha256(said.encode()).hexdigest()[:16] == facts["text_sha"]
    wanted = [(c["name"], c["arguments"]) for c in facts["calls"]]
    assert [(n, json.loads(a)) for _, n, a in calls(events)] == wanted
    stop = events[-1]
    assert isinstance(stop, MessageStop) and stop.stop_reason == facts["stop_reason_neutral"]
    for field, count in (facts.get("usage_neutral") or {}).items():
        assert (getattr(stop.usage, field) or 0) == (count or 0), field


def test_an_error_without_another_object_around_it_is_one_in_a_whole_answer() -> None:
    body = (
        b'{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}'
    )
    assert codecs.decode_whole("openai", body) == [
        UpstreamFailed("invalid_request_error", "too long")
    ]


@pytest.mark.parametrize("name", ERRORS or ["none"])
def test_recorded_errors_are_errors_whatever_the_status(name: str) -> None:
    need_dialect_recordings()
    body, status = RECORDED[name].body, RECORDED[name].facts["http_status"]
    if status == 200:
        (failed,) = codecs.decode_whole("openai", body)
    else:
        failed = DIALECTS["openai"].decode_error(status, body, None)
    assert isinstance(failed, UpstreamFailed)
    assert failed.kind == (
        "invalid_request_error" if name.endswith("filtered") else "authentication_error"
    )
