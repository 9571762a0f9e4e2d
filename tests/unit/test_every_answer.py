"""What each client gets of every kind of block: a row is what a provider said, a cell what the
client's official SDK has of it."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from policy.base import Policy
from protocol.citations import Citation
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.events import (
    ArgumentsDelta,
    AttachmentDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    SignatureDelta,
    StopReason,
    TextDelta,
)
from protocol.request import ChatRequest
from tests.support.checks.block_runs import Deny, Run
from tests.support.clients.sdk import anthropic_answer, openai_answer, responses_answer
from tests.support.json_values import Json

CALL = "01990000-0000-7000-8000-00000000abcd"
INCLUDE = [
    "reasoning.encrypted_content",
    "web_search_call.results",
    "file_search_call.results",
    "code_interpreter_call.outputs",
    "message.output_text.logprobs",
]


# --- what a client has of an answer, in words ---


def of_chat(answer: Any) -> list[str]:
    [choice] = answer.choices
    said = choice.message.model_dump(exclude_none=True)
    assert said.pop("role") == "assistant"
    calls = [
        f"call {c['id']} {c['function']['name']} {c['function']['arguments']}"
        for c in said.pop("tool_calls", [])
    ]
    pages = [f"page {a['url_citation']['url']}" for a in said.pop("annotations", [])]
    said.pop("parsed", None)
    probable = ["logprobs"] if choice.logprobs is not None else []
    return [
        *(f"{name}: {value}" for name, value in said.items() if value),
        *calls,
        *pages,
        *probable,
    ]


def of_messages(answer: Any) -> list[str]:
    found = []
    for block in answer.content:
        said = block.model_dump(exclude_none=True)
        kind = said.pop("type")
        match kind:
            case "text":
                cited = [c["type"] for c in said.get("citations") or []]
                found.append(" ".join((f"text: {said['text']}", *cited)))
            case "thinking":
                found.append(f"thinking: {said['thinking']} ({said['signature']})")
            case "tool_use" | "server_tool_use" | "mcp_tool_use":
                found.append(f"{kind} {said['id']} {said['name']} {json.dumps(said['input'])}")
            case _:
                found.append(f"{kind} of {said['tool_use_id']}" if "tool_use_id" in said else kind)
    return found


def of_responses(answer: Any) -> list[str]:
    assert answer.status == "completed"
    found = []
    for item in answer.output:
        said = item.model_dump(exclude_none=True)
        match said["type"]:
            case "message":
                for part in said["content"]:
                    more = [a["type"] for a in part.get("annotations", [])] + ["logprobs"] * bool(
                        part.get("logprobs")
                    )
                    found.append(
                        " ".join(
                            (f"{part['type']}: {part.get('text', part.get('refusal'))}", *more)
                        )
                    )
            case "reasoning":
                texts = [p["text"] for p in [*said["summary"], *(said.get("content") or [])]]
                found.append(f"reasoning: {'|'.join(texts)} ({said.get('encrypted_content', '')})")
            case "function_call" | "mcp_call" | "mcp_approval_request":
                told = (
                    said.get("call_id", ""),
                    said["name"],
                    said["arguments"],
                    *([said["output"]] if "output" in said else []),
                )
                found.append(" ".join((said["type"], *filter(None, told))))
            case kind:
                found.append(
                    " ".join((kind, *(f"{n}={json.dumps(said[n])}" for n in FIELDS if n in said)))
                )
    return found


NOTICE = re.compile(r"\[Sluice (blocked|withheld) [^]]* Call c\.\]")
FIELDS = ("action", "results", "code", "outputs", "result", "queries", "tools")


def beside(body: bytes) -> list[str]:
    """What is in the object `sluice`: in the last frame that has one, which the SDKs hand on and do
    not keep."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if b'"sluice":' in line]
    said: Json = json.loads(lines[-1]) if lines else {}
    own: Json = said.get("response", said).get("sluice") or {}
    told = []
    for name in ("blocks", "provider_calls", "citations", "annotations"):
        for one in own.get(name, []):
            told.append(
                f"sluice {name}: {one.get('type', '')} {one.get('name', '')}"
                f" {json.dumps(one['input']) if 'input' in one else ''}".strip()
            )
    return told


SDKS: dict[str, tuple[Callable[..., Any], Callable[[Any], list[str]]]] = {
    "openai": (openai_answer, of_chat),
    "anthropic": (anthropic_answer, of_messages),
    "responses": (responses_answer, of_responses),
}


# --- what a provider said ---


def block(index: int, kind: BlockKind, *inside: Event, **start: Any) -> list[Event]:
    return [BlockStart(index, kind, **start), *inside, BlockStop(index)]


def text(index: int, said: str, *more: Event, **start: Any) -> list[Event]:
    return block(index, BlockKind.TEXT, TextDelta(index, said), *more, **start)


def thought(index: int, said: str, *more: Event, **start: Any) -> list[Event]:
    return block(
        index, BlockKind.THINKING, *([TextDelta(index, said)] if said else []), *more, **start
    )


def call(
    index: int,
    name: str,
    arguments: str,
    *more: Event,
    kind: BlockKind = BlockKind.TOOL_USE,
    **start: Any,
) -> list[Event]:
    return block(
        index,
        kind,
        ArgumentsDelta(index, arguments),
        *more,
        **{"id": f"c{index}", "name": name, **start},
    )


def ran(index: int, name: str, arguments: str, body: Json) -> list[Event]:
    return call(index, name, arguments, kind=BlockKind.SERVER_TOOL_USE, body=body)


def other(index: int, kind: str, **body: Any) -> list[Event]:
    return block(index, BlockKind.OTHER, name=kind, body={"type": kind, **body})


def item(index: int, kind: str, name: str, arguments: str, **result: Any) -> list[Event]:
    """A call of the provider's and what came of it, in one item of Responses."""
    own = {"server_label": "box"} if kind == "mcp_call" else {}
    return [
        *ran(index, name, arguments, {"type": kind, **own}),
        *other(index + 1, f"{kind}_result", tool_use_id=f"c{index}", status="completed", **result),
    ]


def cites(index: int, **said: Any) -> Event:
    return AttachmentDelta(index, "citation", Citation(**said))


def page(raw: Json, dialect: str) -> Event:
    return cites(
        0, kind="url", url="https://a.example/", title="A", start=0, end=2, raw=raw, dialect=dialect
    )


PENDING = {"executor": "mcp_pending", "item": "mcp_approval_request", "server_label": "box"}
SEARCHED = [
    {
        "type": "web_search_result",
        "url": "https://a.example/",
        "title": "A",
        "encrypted_content": "e",
    }
]
PAGE = {
    "type": "url_citation",
    "url": "https://a.example/",
    "title": "A",
    "start_index": 0,
    "end_index": 2,
}
CHAT_PAGE = {
    "type": "url_citation",
    "url_citation": {"url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 2},
}
CHARS = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": "d",
    "start_char_index": 0,
    "end_char_index": 1,
}
PROBABLE = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}]}
CODE = {"type": "server_tool_use"}
ROWS: dict[str, tuple[str, list[Event], Sequence[Policy]]] = {
    "text": ("openai", text(0, "Hi"), ()),
    "two texts": ("anthropic", [*text(0, "Hi"), *text(1, " there")], ()),
    "two parts of a message": (
        "responses",
        [*text(0, "Hi", body={"item": 0}), *text(1, " there", body={"item": 0})],
        (),
    ),
    "an empty text with a signature": (
        "gemini",
        [*text(0, "Hi"), *block(1, BlockKind.TEXT, SignatureDelta(1, "c2ln"))],
        (),
    ),
    "refusal": ("openai", text(0, "No.", name="refusal"), ()),
    "refusal of responses": ("responses", text(0, "No.", name="refusal", body={"item": 0}), ()),
    "log probabilities": ("openai", text(0, "Hi", AttachmentDelta(0, "logprobs", PROBABLE)), ()),
    "thinking, signed": (
        "anthropic",
        [*thought(0, "Hm.", SignatureDelta(0, "c2ln")), *text(1, "Hi")],
        (),
    ),
    "thinking, sealed": (
        "anthropic",
        [*other(0, "redacted_thinking", data="c2Vh"), *text(1, "Hi")],
        (),
    ),
    "thinking of chat": (
        "openai",
        [*thought(0, "Hm.", name="reasoning_content"), *text(1, "Hi")],
        (),
    ),
    "thinking of responses": (
        "responses",
        [
            *thought(0, "A", body={"item": 0, "part": "summary_text"}),
            *thought(1, "B", SignatureDelta(1, "c2Vh"), body={"item": 0, "part": "summary_text"}),
            *text(2, "Hi", body={"item": 1}),
        ],
        (),
    ),
    "thinking of responses, sealed": (
        "responses",
        [
            *thought(0, "", SignatureDelta(0, "c2Vh"), body={"item": 0, "part": "summary_text"}),
            *text(1, "Hi"),
        ],
        (),
    ),
    "thinking of converse": (
        "converse",
        [*thought(0, "Hm.", SignatureDelta(0, "c2ln")), *text(1, "Hi")],
        (),
    ),
    "call": ("openai", [*text(0, "Hi"), *call(1, "f", '{"a":1.10}'), *call(2, "g", "")], ()),
    "call, signed": ("gemini", call(0, "f", "{}", SignatureDelta(0, "c2ln")), ()),
    "call of responses": ("responses", call(0, "f", "{}", body={"item": 3}), ()),
    "search of anthropic": (
        "anthropic",
        [
            *ran(0, "web_search", '{"query":"q"}', CODE),
            *other(1, "web_search_tool_result", tool_use_id="c0", content=SEARCHED),
        ],
        (),
    ),
    "mcp of anthropic": (
        "anthropic",
        [
            *ran(0, "f", "{}", {"type": "mcp_tool_use", "server_name": "box"}),
            *other(
                1,
                "mcp_tool_result",
                tool_use_id="c0",
                is_error=False,
                content=[{"type": "text", "text": "r"}],
            ),
        ],
        (),
    ),
    "compaction": ("anthropic", [*other(0, "compaction", content="so far"), *text(1, "Hi")], ()),
    "search of responses": (
        "responses",
        item(
            0,
            "web_search_call",
            "web_search",
            '{"type":"search","query":"q"}',
            results=[{"url": "https://a.example/"}],
        ),
        (),
    ),
    "files of responses": (
        "responses",
        item(0, "file_search_call", "file_search", '{"queries":["q"]}', results=None),
        (),
    ),
    "code of responses": (
        "responses",
        item(
            0,
            "code_interpreter_call",
            "code_interpreter",
            '{"code":"1"}',
            outputs=[{"type": "logs", "logs": "1"}],
        ),
        (),
    ),
    "mcp of responses": (
        "responses",
        item(0, "mcp_call", "f", '{"a":1}', output="r", error=None),
        (),
    ),
    "image of responses": (
        "responses",
        item(0, "image_generation_call", "image_generation", "{}", result="iVBO"),
        (),
    ),
    "mcp tools of responses": (
        "responses",
        [*other(0, "mcp_list_tools", server_label="box", tools=[], error=None), *text(1, "Hi")],
        (),
    ),
    "code of gemini": (
        "gemini",
        [
            *ran(0, "code_execution", '{"code":"1"}', CODE),
            *other(1, "code_execution_tool_result", tool_use_id="c0", content="1"),
        ],
        (),
    ),
    "search of chat": ("openai", ran(0, "web_search", "{}", CODE), ()),
    "a page": ("responses", text(0, "Hi", page(PAGE, "responses"), body={"item": 0}), ()),
    "a page of chat": ("openai", text(0, "Hi", page(CHAT_PAGE, "openai")), ()),
    "a document": (
        "anthropic",
        text(
            0,
            "Hi",
            cites(0, kind="char", title="d", cited_text="x", raw=CHARS, dialect="anthropic"),
        ),
        (),
    ),
    "a chunk": (
        "gemini",
        text(0, "Hi", cites(0, kind="chunk", title="d", raw={"kind": "chunk"}, dialect="gemini")),
        (),
    ),
    "a question": ("responses", call(0, "f", "{}", body=PENDING), ()),
    "a question that is blocked": (
        "responses",
        [*call(0, "rm", "{}", body=PENDING), *text(1, "Hi")],
        (Deny(),),
    ),
    "what nobody knows": (
        "anthropic",
        [*block(0, BlockKind.OPAQUE, name="crystal"), *text(1, "Hi")],
        (),
    ),
    "a call that is blocked": (
        "openai",
        [*text(0, "Hi"), *call(1, "rm", "{}"), *call(2, "f", "{}")],
        (Deny(),),
    ),
    "a provider's call that is blocked": (
        "anthropic",
        [
            *text(0, "Hi"),
            *ran(1, "rm", "{}", CODE),
            *other(2, "rm_tool_result", tool_use_id="c1", content="x"),
        ],
        (Deny(),),
    ),
}
WANT: dict[str, dict[str, list[str]]] = {
    "text": {
        "openai": ["content: Hi"],
        "anthropic": ["text: Hi"],
        "responses": ["output_text: Hi"],
    },
    "two texts": {
        "openai": ["content: Hi there"],
        "anthropic": ["text: Hi", "text:  there"],
        "responses": ["output_text: Hi", "output_text:  there"],
    },
    "two parts of a message": {
        "openai": ["content: Hi there"],
        "anthropic": ["text: Hi", "text:  there"],
        "responses": ["output_text: Hi", "output_text:  there"],
    },
    "an empty text with a signature": {
        "openai": ["content: Hi"],
        "anthropic": ["text: Hi", "text: "],
        "responses": ["output_text: Hi", "output_text: "],
    },
    "refusal": {
        "openai": ["refusal: No."],
        "anthropic": ["text: No."],
        "responses": ["refusal: No."],
    },
    "refusal of responses": {
        "openai": ["refusal: No."],
        "anthropic": ["text: No."],
        "responses": ["refusal: No."],
    },
    "log probabilities": {
        "openai": ["content: Hi", "logprobs"],
        "anthropic": ["text: Hi"],
        "responses": ["output_text: Hi logprobs"],
    },
    "thinking, signed": {
        "openai": ["content: Hi", "reasoning_content: Hm."],
        "anthropic": ["thinking: Hm. (c2ln)", "text: Hi"],
        "responses": ["reasoning: Hm. ()", "output_text: Hi"],
    },
    "thinking, sealed": {
        "openai": ["content: Hi"],
        "anthropic": ["redacted_thinking", "text: Hi"],
        "responses": ["output_text: Hi"],
    },
    "thinking of chat": {
        "openai": ["content: Hi", "reasoning_content: Hm."],
        "anthropic": ["thinking: Hm. (unsigned-by-sluice)", "text: Hi"],
        "responses": ["reasoning: Hm. ()", "output_text: Hi"],
    },
    "thinking of responses": {
        "openai": ["content: Hi", "reasoning_content: AB"],
        "anthropic": [
            "thinking: A (unsigned-by-sluice)",
            "thinking: B (unsigned-by-sluice)",
            "text: Hi",
        ],
        "responses": ["reasoning: A|B (c2Vh)", "output_text: Hi"],
    },
    "thinking of responses, sealed": {
        "openai": ["content: Hi"],
        "anthropic": ["text: Hi"],
        "responses": ["reasoning:  (c2Vh)", "output_text: Hi"],
    },
    "thinking of converse": {
        "openai": ["content: Hi", "reasoning_content: Hm."],
        "anthropic": ["thinking: Hm. (unsigned-by-sluice)", "text: Hi"],
        "responses": ["reasoning: Hm. ()", "output_text: Hi"],
    },
    "call": {
        "openai": ["content: Hi", 'call c1 f {"a":1.10}', "call c2 g {}"],
        "anthropic": ["text: Hi", 'tool_use c1 f {"a": 1.1}', "tool_use c2 g {}"],
        "responses": ["output_text: Hi", 'function_call c1 f {"a":1.10}', "function_call c2 g {}"],
    },
    "call, signed": {
        "openai": ["call c0 f {}"],
        "anthropic": ["tool_use c0 f {}"],
        "responses": ["function_call c0 f {}"],
    },
    "call of responses": {
        "openai": ["call c0 f {}"],
        "anthropic": ["tool_use c0 f {}"],
        "responses": ["function_call c0 f {}"],
    },
    "search of anthropic": {
        "openai": [
            'sluice blocks: server_tool_use web_search {"query": "q"}',
            "sluice blocks: web_search_tool_result",
        ],
        "anthropic": [
            'server_tool_use c0 web_search {"query": "q"}',
            "web_search_tool_result of c0",
        ],
        "responses": [
            'sluice blocks: server_tool_use web_search {"query": "q"}',
            "sluice blocks: web_search_tool_result",
        ],
    },
    "mcp of anthropic": {
        "openai": ["sluice blocks: mcp_tool_use f {}", "sluice blocks: mcp_tool_result"],
        "anthropic": ["mcp_tool_use c0 f {}", "mcp_tool_result of c0"],
        "responses": ["sluice blocks: mcp_tool_use f {}", "sluice blocks: mcp_tool_result"],
    },
    "compaction": {
        "openai": ["content: Hi", "sluice blocks: compaction"],
        "anthropic": ["compaction", "text: Hi"],
        "responses": ["output_text: Hi", "sluice blocks: compaction"],
    },
    "search of responses": {
        "openai": [
            'sluice blocks: web_search_call web_search {"type": "search", "query": "q"}',
            "sluice blocks: web_search_call_result",
        ],
        "anthropic": [
            'sluice provider_calls:  web_search "{\\"type\\":\\"search\\",\\"query\\":\\"q\\"}"'
        ],
        "responses": [
            'web_search_call action={"type": "search", "query": "q"} results=[{"url":'
            ' "https://a.example/"}]'
        ],
    },
    "files of responses": {
        "openai": [
            'sluice blocks: file_search_call file_search {"queries": ["q"]}',
            "sluice blocks: file_search_call_result",
        ],
        "anthropic": ['sluice provider_calls:  file_search "{\\"queries\\":[\\"q\\"]}"'],
        "responses": ['file_search_call queries=["q"]'],
    },
    "code of responses": {
        "openai": [
            'sluice blocks: code_interpreter_call code_interpreter {"code": "1"}',
            "sluice blocks: code_interpreter_call_result",
        ],
        "anthropic": ['sluice provider_calls:  code_interpreter "{\\"code\\":\\"1\\"}"'],
        "responses": ['code_interpreter_call code="1" outputs=[{"logs": "1", "type": "logs"}]'],
    },
    "mcp of responses": {
        "openai": ['sluice blocks: mcp_call f {"a": 1}', "sluice blocks: mcp_call_result"],
        "anthropic": ['sluice provider_calls:  f "{\\"a\\":1}"'],
        "responses": ['mcp_call f {"a":1} r'],
    },
    "image of responses": {
        "openai": [
            "sluice blocks: image_generation_call image_generation {}",
            "sluice blocks: image_generation_call_result",
        ],
        "anthropic": ['sluice provider_calls:  image_generation "{}"'],
        "responses": ['image_generation_call result="iVBO"'],
    },
    "mcp tools of responses": {
        "openai": ["content: Hi", "sluice blocks: mcp_list_tools"],
        "anthropic": ["text: Hi"],
        "responses": ["mcp_list_tools tools=[]", "output_text: Hi"],
    },
    "code of gemini": {
        "openai": [
            'sluice blocks: server_tool_use code_execution {"code": "1"}',
            "sluice blocks: code_execution_tool_result",
        ],
        "anthropic": ['sluice provider_calls:  code_execution "{\\"code\\":\\"1\\"}"'],
        "responses": [
            'sluice blocks: server_tool_use code_execution {"code": "1"}',
            "sluice blocks: code_execution_tool_result",
        ],
    },
    "search of chat": {
        "openai": [],
        "anthropic": ['sluice provider_calls:  web_search "{}"'],
        "responses": ["sluice blocks: server_tool_use web_search {}"],
    },
    "a page": {
        "openai": ["content: Hi", "page https://a.example/"],
        "anthropic": ["text: Hi", "sluice annotations: url_citation"],
        "responses": ["output_text: Hi url_citation"],
    },
    "a page of chat": {
        "openai": ["content: Hi", "page https://a.example/"],
        "anthropic": ["text: Hi", "sluice annotations: url_citation"],
        "responses": ["output_text: Hi url_citation"],
    },
    "a document": {
        "openai": ["content: Hi", "sluice citations:"],
        "anthropic": ["text: Hi char_location"],
        "responses": ["output_text: Hi", "sluice citations:"],
    },
    "a chunk": {
        "openai": ["content: Hi", "sluice citations:"],
        "anthropic": ["text: Hi", "sluice annotations:"],
        "responses": ["output_text: Hi", "sluice citations:"],
    },
    "a question": {
        "openai": ["content: [blocked]"],
        "anthropic": ["text: [blocked]"],
        "responses": ["mcp_approval_request f {}"],
    },
    "a question that is blocked": {
        "openai": ["content: [blocked]Hi"],
        "anthropic": ["text: [blocked]", "text: Hi"],
        "responses": ["output_text: [blocked]", "output_text: Hi"],
    },
    "what nobody knows": {
        "openai": ["content: Hi"],
        "anthropic": ["text: Hi"],
        "responses": ["output_text: Hi"],
    },
    "a call that is blocked": {
        "openai": ["content: Hi\n\n[blocked]", "call c2 f {}"],
        "anthropic": ["text: Hi", "text: \n\n[blocked]", "tool_use c2 f {}"],
        "responses": ["output_text: Hi", "output_text: \n\n[blocked]", "function_call c2 f {}"],
    },
    "a provider's call that is blocked": {
        "openai": ["content: Hi\n\n[blocked]"],
        "anthropic": ["text: Hi", "text: \n\n[blocked]"],
        "responses": ["output_text: Hi", "output_text: \n\n[blocked]"],
    },
}


def answered(
    client: str, source: str, events: Sequence[Event], policies: Sequence[Policy], *, stream: bool
) -> list[str]:
    run = Run(*policies, dialect=client, upstream=source)
    run.feed(*events)
    has_calls = any(isinstance(e, BlockStart) and e.kind is BlockKind.TOOL_USE for e in run.out)
    run.finish(StopReason.TOOL_USE if has_calls else StopReason.END_TURN)
    assert isinstance(run.end, MessageStop)
    request = ChatRequest(dialect=client, model="m", stream=stream, echo={"include": INCLUDE})
    encoder = CLIENTS[client].encoder(request, call_id=CALL, created=1)
    answer = [MessageStart("up", "m", extra={"dialect": source}), *run.out, run.end]
    accumulate, told = SDKS[client]
    # each is encoded as it is released
    body = b"".join(encoder.encode([event]) for event in answer)
    found = [*told(accumulate(body, stream=stream)), *beside(body)]
    return [NOTICE.sub(r"[\1]", one) for one in found]


def got(client: str, name: str, *, stream: bool) -> list[str]:
    source, events, policies = ROWS[name]
    return answered(client, source, events, policies, stream=stream)


@pytest.mark.parametrize("name", ROWS)
def test_every_client_gets_of_every_block_what_the_table_says(name: str) -> None:
    for stream in (True, False):
        assert {client: got(client, name, stream=stream) for client in CLIENTS} == WANT[name], (
            stream
        )


def test_every_kind_of_block_has_a_row() -> None:
    starts = [
        event for _, events, _ in ROWS.values() for event in events if isinstance(event, BlockStart)
    ]
    assert {start.kind for start in starts} == set(BlockKind) and WANT.keys() == ROWS.keys()
    assert {source for source, _, _ in ROWS.values()} == set(DIALECTS)


def moved(events: Sequence[Event], by: int) -> list[Event]:
    """The blocks behind others of the same answer: numbers and ids are told once."""
    found = []
    for event in events:
        changes: Json = {"index": event.index + by} if hasattr(event, "index") else {}
        if isinstance(event, BlockStart):
            body = dict(event.body or {})
            body |= {"item": body["item"] + by} if isinstance(body.get("item"), int) else {}
            body |= {"tool_use_id": f"{body['tool_use_id']}_{by}"} if "tool_use_id" in body else {}
            changes |= {"body": body or None, "id": f"{event.id}_{by}" if event.id else ""}
        found.append(msgspec.structs.replace(event, **changes))
    return found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("source", DIALECTS)
def test_all_of_them_in_one_answer_are_the_same_streamed_and_whole(
    source: str, client: str
) -> None:
    names = [
        name for name, (dialect, _, policies) in ROWS.items() if dialect == source and not policies
    ]
    random.Random(f"{source} {client}").shuffle(names)
    events = [
        event for place, name in enumerate(names) for event in moved(ROWS[name][1], 10 * place)
    ]
    streamed, whole = (
        answered(client, source, events, (), stream=stream) for stream in (True, False)
    )
    assert streamed == whole and streamed, names
