"""A dialect of its own, `tests.support.toy`, through the running product: as client and as
upstream, crossed with the shipped ones."""

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from protocol import codecs
from protocol.bytes.sse import EventSplitter
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.events import (
    ArgumentsDelta,
    BlockKind,
    BlockStart,
    BlockStop,
    Event,
    MessageStart,
    MessageStop,
    StopReason,
    TextDelta,
    UpstreamFailed,
    Usage,
)
from protocol.request import ChatRequest, TextPart, Tool, ToolResultPart, ToolUsePart, Turn
from protocol.target import Target
from tests.support import toy
from tests.support.servers.product import KEY, ROOT, Product, base_config
from tests.support.upstreams.product import Place, call_of
from tests.support.upstreams.replay import Reply, replaying, stream

REGISTERS = (
    "from protocol.dialects.table import CLIENTS, DIALECTS; from tests.support import toy; "
    "DIALECTS[toy.DIALECT.name] = CLIENTS[toy.DIALECT.name] = toy.DIALECT\n"
)
"""The one line in the table, which has two views of it; Python runs a file of this name at the
start of each process."""
PATHS = {"toy": "/toy/ask", "openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
ASKED = {"toy": "/toy-1/ask", "openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
PAIRS = [
    ("toy", "toy"),
    ("toy", "openai"),
    ("toy", "anthropic"),
    ("openai", "toy"),
    ("anthropic", "toy"),
]
TOOL = Tool("bash", schema={"type": "object", "properties": {"command": {"type": "string"}}})
HISTORY = (
    Turn("user", (TextPart("list them"),)),
    Turn("assistant", (TextPart("so be it"), ToolUsePart("call_1", "bash", '{"command": "ls"}'))),
    Turn("user", (ToolResultPart("call_1", "a b c"), TextPart("and now?"))),
)


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    """The product with three upstreams, one of each dialect, all the replay server."""
    folder: Path = tmp_path_factory.mktemp("toy")
    (folder / "sitecustomize.py").write_text(REGISTERS)
    with pytest.MonkeyPatch.context() as patch, replaying() as replay:
        patch.setitem(DIALECTS, "toy", toy.DIALECT)
        patch.setitem(CLIENTS, "toy", toy.DIALECT)
        config = base_config()
        bases = {name: replay.url + one.client_base for name, one in DIALECTS.items()}
        config["upstreams"] = {
            name: {"dialect": name, "base_url": bases[name], "api_key_env": "TOY_KEY"}
            for name in DIALECTS
        }
        config["models"] = [{"match": f"{name}-*", "upstream": name} for name in DIALECTS]
        config["demo"] = True
        with Product(folder, redis_url, database_url, config) as product:
            env = {
                "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
                "TOY_KEY": "sk-toy-provider-key",
            }
            product.start("audit", "judge", "gateway", "policy", "pages", env=env)
            yield product, replay


def answer(dialect: str, command: str, *, streams: bool) -> Reply:
    """An upstream's answer: a text in two pieces and a call."""
    request = ChatRequest(dialect=dialect, model="m", stream=streams, include_usage=True)
    events: list[Event] = [
        MessageStart("u1", "m", Usage(7, 1)),
        BlockStart(0, BlockKind.TEXT),
        TextDelta(0, "Good "),
        TextDelta(0, "day."),
        BlockStop(0),
        BlockStart(1, BlockKind.TOOL_USE, id="call_9", name="bash"),
        ArgumentsDelta(1, '{"command": '),
        ArgumentsDelta(1, json.dumps(command) + "}"),
        BlockStop(1),
        MessageStop(StopReason.TOOL_USE, Usage(7, 5)),
    ]
    body = CLIENTS[dialect].encoder(request, call_id="up", created=1).encode(events)
    return stream(body, cutting="random", seed=3) if streams else Reply(body)


def ask(product: Product, client: str, model: str, *, streams: bool) -> tuple[httpx.Response, str]:
    """Ask in the client's dialect; the request is written by that dialect's own writer."""
    request = ChatRequest(
        dialect=client, model=model, stream=streams, turns=HISTORY, tools=(TOOL,), max_tokens=100
    )
    body = codecs.encode_request(request, Target(dialect=client)).body
    session = f"toy-{secrets.token_hex(6)}"
    head = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-session": session,
        "content-type": "application/json",
    }
    return httpx.post(product.url + PATHS[client], content=body, headers=head, timeout=20), session


def events_of(client: str, got: httpx.Response) -> list[Event]:
    """What came, as the client's dialect reads it."""
    if not got.headers["content-type"].startswith("text/event-stream"):
        return codecs.decode_whole(client, got.content)
    decoder, splitter = DIALECTS[client].decoder(), EventSplitter(2**20)
    return [
        e for chunk in splitter.feed(got.content) for e in decoder.feed(chunk)
    ] + decoder.finish()


def said(events: list[Event]) -> tuple[str, str, str]:
    """The text, the calls' arguments and why it ended."""
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    arguments = "".join(e.text for e in events if isinstance(e, ArgumentsDelta))
    return text, arguments, next(str(e.stop_reason) for e in events if isinstance(e, MessageStop))


@pytest.mark.slow
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_an_answer_crosses(place: Place, client: str, upstream: str, streams: bool) -> None:
    product, replay = place
    replay.answer(answer(upstream, "ls -l", streams=streams))
    got, session = ask(product, client, f"{upstream}-1", streams=streams)
    assert got.status_code == 200, got.text
    text, arguments, why = said(events_of(client, got))
    assert (text, json.loads(arguments), why) == ("Good day.", {"command": "ls -l"}, "tool_use")
    [identity] = [
        e.id
        for e in events_of(client, got)
        if isinstance(e, BlockStart) and e.kind is BlockKind.TOOL_USE
    ]
    # block 1 of this call
    assert (
        len(identity) == 32 and identity.endswith("1")
        if DIALECTS[upstream].ids == "mint"
        else identity == "call_9"
    )
    [asked] = replay.asked
    path = "/toy-1/tell" if upstream == "toy" and streams else ASKED[upstream]
    assert asked.path == path and "sk-toy-provider-key" in str(asked.headers)
    sent = CLIENTS[upstream].decode_request(asked.raw)
    assert (sent.model, sent.stream, sent.tools[0].name) == (f"{upstream}-1", streams, "bash")
    parts: list[Any] = [part for turn in sent.turns for part in turn.parts]
    assert [p.text for p in parts if isinstance(p, TextPart)] == [
        "list them",
        "so be it",
        "and now?",
    ]
    assert [json.loads(p.arguments) for p in parts if isinstance(p, ToolUsePart)] == [
        {"command": "ls"}
    ]
    assert [p.text for p in parts if isinstance(p, ToolResultPart)] == ["a b c"]
    call = call_of(product, session)
    assert (call["dialect"], call["endpoint"], call["upstream"], call["state"]) == (
        client,
        DIALECTS[client].answers,
        upstream,
        "ENDED",
    )


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_a_blocked_call_is_not_released(
    place: Place, client: str, upstream: str, streams: bool
) -> None:
    product, replay = place
    replay.answer(answer(upstream, "rm -rf /", streams=streams))
    got, _ = ask(product, client, f"{upstream}-1", streams=streams)
    text, arguments, why = said(events_of(client, got))
    assert (
        got.status_code == 200
        and arguments == ""
        and why == "end_turn"
        and text.startswith("Good day.")
    )
    assert b"call_9" not in got.content


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_an_upstreams_error_is_told_in_the_clients_dialect(
    place: Place, client: str, upstream: str
) -> None:
    product, replay = place
    body = CLIENTS[upstream].failed_response(
        UpstreamFailed("rate_limit_error", "slower please", 429)
    )[2]
    replay.answer(Reply(body, status=429))
    got, _ = ask(product, client, f"{upstream}-1", streams=True)
    assert got.status_code == 429
    failed = DIALECTS[client].decode_error(429, got.content, None)
    assert (failed.kind, failed.message) == ("rate_limit_error", "slower please")


def test_what_is_served_names_its_path(place: Place) -> None:
    product, _ = place
    assert {"method": "POST", "path": "/toy/ask", "what": "the toy's API"} in httpx.get(
        product.url, timeout=5
    ).json()["serves"]
    assert "POST /toy/ask" in httpx.get(f"{product.url}/nowhere", timeout=5).text


def test_own_errors_are_told_in_the_dialect_of_the_path(place: Place) -> None:
    product, _ = place
    no_key = httpx.post(f"{product.url}/toy/ask", json={}, timeout=5)
    assert no_key.status_code == 401 and no_key.json()["wrong"] == "invalid_api_key"
    bad = httpx.post(
        f"{product.url}/toy/ask",
        json={"turns": 1},
        headers={"authorization": f"Bearer {KEY}"},
        timeout=5,
    )
    assert bad.status_code == 400 and bad.json() == {
        "wrong": "invalid_request",
        "why": "this is no request of the toy",
    }
