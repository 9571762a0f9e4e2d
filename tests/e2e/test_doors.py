"""Doors behind the running product: Azure, Vertex AI and Bedrock on loopback, for chat and
Responses clients and for a judge."""

import base64
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import psycopg
import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from psycopg import sql

from protocol.bytes import eventstream
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, ROOT, Product, base_config, parse_sse
from tests.support.upstreams import completions, converse, gemini, responses
from tests.support.upstreams.product import call_of, new_session, recorded_bytes
from tests.support.upstreams.replay import Asked, Replay, Reply, replaying

AZURE_KEY, INVOKE_ID, INVOKE_SECRET, INVOKE_TOKEN = (
    "azure-key-4713",
    "AKIAINVOKE4713",
    "invoke-secret-4713",
    "invoke-token-4713",
)
FILE_SECRET, FIRST, SECOND = "file-secret-4713", "session-token-one-4713", "session-token-two-4713"
GOOGLE_TOKEN = "ya29.token-4713"
SECRETS = [
    AZURE_KEY,
    INVOKE_ID,
    INVOKE_SECRET,
    INVOKE_TOKEN,
    "AKIAFILE4713",
    FILE_SECRET,
    FIRST,
    SECOND,
    GOOGLE_TOKEN,
    "PRIVATE KEY",
]
ENV = {
    "DOORS_AZURE_KEY": AZURE_KEY,
    "DOORS_ID": INVOKE_ID,
    "DOORS_SECRET": INVOKE_SECRET,
    "DOORS_TOKEN": INVOKE_TOKEN,
}
HARMLESS, HARMFUL = '{"city": "Oslo"}', '{"city": "x; rm -rf /"}'
TOKEN_AT = "from providers import google_token\ngoogle_token.TOKEN_URL = '{}/token'\n"
"""Where tokens come from is fixed; Python runs a file of this name at the start of each process."""
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
INVOKED: list[Json] = [
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "c",
            "content": [],
            "usage": {"input_tokens": 3, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I look."}},
    {"type": "content_block_stop", "index": 0},
    *(
        event
        for at, arguments in ((1, HARMLESS), (2, HARMFUL))
        for event in (
            {
                "type": "content_block_start",
                "index": at,
                "content_block": {
                    "type": "tool_use",
                    "id": f"toolu_{at}",
                    "name": "weather",
                    "input": {},
                },
            },
            {
                "type": "content_block_delta",
                "index": at,
                "delta": {"type": "input_json_delta", "partial_json": arguments},
            },
            {"type": "content_block_stop", "index": at},
        )
    ),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 9},
    },
    {"type": "message_stop"},
]


class Place(NamedTuple):
    """A product, who plays the providers, who gives tokens, and the file with the key that signs
    for Converse."""

    product: Product
    replay: Replay
    tokens: Replay
    keys: Path


def put_keys(file: Path, token: str) -> None:
    file.write_text(
        "[default]\naws_access_key_id = AKIAFILE4713\naws_secret_access_key ="
        f" {FILE_SECRET}\naws_session_token = {token}\n"
    )


def service_account(file: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    said = {
        "type": "service_account",
        "client_email": "gate@p.example",
        "private_key": key.private_bytes(*form).decode(),
    }
    file.write_text(json.dumps(said))


def configuration(folder: Path, url: str) -> Json:
    """An upstream behind each door, and a judge behind one that signs."""
    config = base_config()
    bedrock = {"door": "bedrock", "region": "eu-central-1", "base_url": url}
    signing = {
        "access_key_env": "DOORS_ID",
        "secret_key_env": "DOORS_SECRET",
        "session_token_env": "DOORS_TOKEN",
    }
    azure = {"door": "azure", "base_url": url, "api_key_env": "DOORS_AZURE_KEY"}
    config["upstreams"] = {
        "deployment": (
            azure | {"dialect": "openai", "deployment": "four", "api_version": "2024-10-21"}
        ),
        "azure": azure | {"dialect": "responses"},
        "vertex": {
            "dialect": "gemini",
            "door": "vertex",
            "project": "p",
            "location": "europe-west1",
            "base_url": url,
        }
        | {"credentials_file": str(folder / "google.json")},
        "converse": bedrock | {"dialect": "converse", "credentials_file": str(folder / "keys")},
        "invoke": bedrock | signing | {"dialect": "anthropic"},
        "nowhere": (
            bedrock
            | signing
            | {
                "dialect": "converse",
                "base_url": "https://bedrock-runtime.xx-nowhere-1.invalid",
            }
        ),
    }
    models = {
        "deployment": "four",
        "azure": "gpt-5",
        "vertex": gemini.MODEL,
        "converse": "eu.amazon.nova:0",
        "invoke": "claude-x:0",
    }
    config["models"] = [
        {"names": [model], "upstream": name}
        for name, model in (models | {"nowhere": "lost"}).items()
    ]
    config["policies"]["judged"] = [
        {"use": "tool_judge", "model": "eu.amazon.nova:0", "threshold": 0.6}
    ]
    config["policies"]["default"] = config["policies"]["default"][:1]
    config["keys"][0]["policies"].append("judged")
    return config


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    """The product, with every secret where its processes look for it."""
    folder = tmp_path_factory.mktemp("doors")
    put_keys(folder / "keys", FIRST)
    service_account(folder / "google.json")
    with replaying() as replay, replaying() as tokens:
        tokens.answer(
            Reply(
                as_json({"access_token": GOOGLE_TOKEN, "expires_in": 3600, "token_type": "Bearer"})
            )
        )
        (folder / "sitecustomize.py").write_text(TOKEN_AT.format(tokens.url))
        with Product(folder, redis_url, database_url, configuration(folder, replay.url)) as product:
            product.start("audit", "policy", "pages")
            product.start(
                "gateway",
                "judge",
                env=ENV | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
            )
            yield Place(product, replay, tokens, folder / "keys")


def invoked() -> bytes:
    """An answer of Invoke: each event in a binary message."""
    said = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    packed = (base64.b64encode(as_json(event)).decode() for event in INVOKED)
    return b"".join(eventstream.message(said, as_json({"bytes": one, "p": "ab"})) for one in packed)


def events_of_converse() -> bytes:
    held: list[converse.Event] = [
        converse.begun(),
        converse.piece(0, text="I look."),
        converse.stopped(0),
    ]
    for at, arguments in ((1, HARMLESS), (2, HARMFUL)):
        held += [
            converse.call(at, f"tooluse_{at}", "weather"),
            converse.piece(at, toolUse={"input": arguments}),
            converse.stopped(at),
        ]
    return converse.written(*held, *converse.ended("tool_use"))


def of_azure_deployment() -> bytes:
    calls = [
        {
            "index": n,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "weather", "arguments": arguments},
        }
        for n, arguments in enumerate((HARMLESS, HARMFUL))
    ]
    parts = [
        completions.chunk(role="assistant", content="I look."),
        *(completions.chunk(tool_calls=[call]) for call in calls),
    ]
    return completions.body_of(*parts, completions.chunk("tool_calls"))


def of_azure() -> bytes:
    calls = [
        responses.function_call(f"call_{n}", "weather", arguments)
        for n, arguments in enumerate((HARMLESS, HARMFUL))
    ]
    return responses.frames(responses.events([responses.message("I look."), *calls]))


def of_vertex() -> bytes:
    calls = [gemini.call("weather", **json.loads(arguments)) for arguments in (HARMLESS, HARMFUL)]
    return gemini.body_of(
        *(gemini.answer(part, finish=None) for part in ({"text": "I look."}, *calls)),
        gemini.answer(),
    )


EVENTS = converse.STREAM_TYPE
DOORS: dict[str, tuple[str, Any, str, str]] = {
    "deployment": (
        "four",
        of_azure_deployment,
        "text/event-stream",
        "/openai/deployments/four/chat/completions?api-version=2024-10-21",
    ),
    "azure": ("gpt-5", of_azure, "text/event-stream", "/openai/v1/responses"),
    "vertex": (
        gemini.MODEL,
        of_vertex,
        "text/event-stream",
        f"/v1/projects/p/locations/europe-west1/publishers/google/models/{gemini.MODEL}:streamGenerateContent?alt=sse",
    ),
    "converse": (
        "eu.amazon.nova:0",
        events_of_converse,
        EVENTS,
        "/model/eu.amazon.nova%3A0/converse-stream",
    ),
    "invoke": ("claude-x:0", invoked, EVENTS, "/model/claude-x%3A0/invoke-with-response-stream"),
}
"""Model, what the provider answers, of which type, and where it is asked."""


def asking(client: str, model: str, *, streams: bool = True) -> tuple[str, Json]:
    """The path and the body of a client's request."""
    about = {"name": "weather", "parameters": PARAMETERS}
    if client == "chat":
        messages = [{"role": "user", "content": "Oslo?"}]
        tools: list[Any] = [{"type": "function", "function": about}]
        return "/v1/chat/completions", {
            "model": model,
            "stream": streams,
            "messages": messages,
            "tools": tools,
        }
    return "/v1/responses", {
        "model": model,
        "stream": streams,
        "input": "Oslo?",
        "tools": [{"type": "function", **about}],
    }


def ask(
    place: Place,
    client: str,
    model: str,
    session: str = "",
    policy: str = "default",
    *,
    streams: bool = True,
) -> httpx.Response:
    path, body = asking(client, model, streams=streams)
    headers = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-session": session or new_session(),
        "x-sluice-policy": policy,
    }
    return httpx.post(place.product.url + path, json=body, headers=headers, timeout=20)


def calls_in(client: str, answer: bytes) -> list[Any]:
    """The arguments of each call that a client got."""
    events = parse_sse(answer)
    if client == "responses":
        return [
            json.loads(item["arguments"])
            for item in events[-1]["response"]["output"]
            if item["type"] == "function_call"
        ]
    found: dict[int, str] = {}
    for call in (
        c
        for e in events
        for choice in e["choices"]
        for c in choice["delta"].get("tool_calls") or ()
    ):
        found[call["index"]] = found.get(call["index"], "") + call["function"].get("arguments", "")
    return [json.loads(text) for text in found.values()]


def signature_of(asked: Asked, key: Credentials, monkeypatch: pytest.MonkeyPatch) -> str:
    """The header with which botocore would have signed this request, at the same time."""
    at = datetime.strptime(asked.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *_args, **_kwargs: at)
    headers = {
        "content-type": asked.headers["content-type"],
        "x-amz-content-sha256": asked.headers["x-amz-content-sha256"],
    }
    request = AWSRequest(
        "POST", f"http://{asked.headers['host']}{asked.target}", headers=headers, data=asked.raw
    )
    auth.SigV4Auth(key, "bedrock", "eu-central-1").add_auth(request)
    return str(request.headers["Authorization"])


def assert_let_in(asked: Asked, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match door:
        case "deployment" | "azure":
            assert asked.headers["api-key"] == AZURE_KEY and "authorization" not in asked.headers
        case "vertex":
            assert asked.headers["authorization"] == f"Bearer {GOOGLE_TOKEN}"
        case "converse":
            key = Credentials("AKIAFILE4713", FILE_SECRET, FIRST)
            assert asked.headers["authorization"] == signature_of(asked, key, monkeypatch)
        case _:
            key = Credentials(INVOKE_ID, INVOKE_SECRET, INVOKE_TOKEN)
            assert asked.headers["authorization"] == signature_of(asked, key, monkeypatch)
            assert (
                asked.body["anthropic_version"] == "bedrock-2023-05-31"
                and "model" not in asked.body
            )


@pytest.mark.slow
@pytest.mark.parametrize("client", ["chat", "responses"])
@pytest.mark.parametrize("door", DOORS)
def test_one_call_passes_and_one_is_blocked(
    place: Place, door: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, make, kind, target = DOORS[door]
    session, body = new_session(), make()
    place.replay.answer(Reply(body, content_type=kind, cutting="random", seed=len(door)))
    got = ask(place, client, model, session)
    assert got.status_code == 200 and b"ook." in got.content, got.text
    assert calls_in(client, got.content) == [{"city": "Oslo"}] and b"rm -rf" not in got.content
    [asked] = place.replay.asked
    assert asked.target == target
    assert_let_in(asked, door, monkeypatch)
    call = call_of(place.product, session)
    rows = place.product.audit("tool-calls", session=session)["items"]
    assert sorted((json.loads(row["arguments"])["city"], row["verdict"]) for row in rows) == [
        ("Oslo", "allow"),
        ("x; rm -rf /", "block"),
    ]
    raw = recorded_bytes(place.product, call["call_id"])
    if door == "invoke":
        assert parse_sse(raw) == INVOKED
    else:
        assert raw == body


def test_a_judge_is_asked_over_a_door_that_signs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(asked: bytes) -> bytes:
        nonce = re.findall(rb"<envelope ([0-9a-f]+)>", asked)[0].decode()
        given = {
            "nonce": nonce,
            "probability": 0.9 if b"rm -rf" in asked.split(b"<envelope")[-1] else 0.1,
            "explanation": "so it is",
        }
        content = [{"toolUse": {"toolUseId": "j", "name": "judgement", "input": given}}]
        ended = {"stopReason": "tool_use", "usage": {"inputTokens": 3, "outputTokens": 2}}
        return as_json(ended | {"output": {"message": {"role": "assistant", "content": content}}})

    place.replay.answer(Reply(invoked(), content_type=EVENTS), Reply(make=judged))
    got = ask(place, "chat", "claude-x:0", policy="judged")
    # what the first call says stands in the second one's question
    assert (
        calls_in("chat", got.content) == [{"city": "Oslo"}]
        and b"judged harmful (0.90" in got.content
    ), got.text
    _, *asked = place.replay.asked
    assert {one.target for one in asked} == {"/model/eu.amazon.nova%3A0/converse"} and len(
        asked
    ) == 2
    for one in asked:
        assert one.headers["authorization"] == signature_of(
            one, Credentials("AKIAFILE4713", FILE_SECRET, FIRST), monkeypatch
        )


@pytest.mark.slow
def test_an_expired_token_is_read_again_and_no_secret_is_kept(place: Place) -> None:
    """The file is replaced while the product runs, so this comes last; then all that it kept and
    wrote is looked through."""
    said = as_json({"message": f"{FIRST}, {FILE_SECRET} and AKIAFILE4713 have expired"})
    expired = Reply(said, status=403, headers={"x-amzn-errortype": "ExpiredTokenException"})
    place.replay.answer(expired)
    session = new_session()
    got = ask(place, "chat", "eu.amazon.nova:0", session)
    assert got.status_code == 502 and len(place.replay.asked) == 1, got.text
    call_of(place.product, session)
    put_keys(place.keys, SECOND)
    session = new_session()
    place.replay.answer(expired, Reply(events_of_converse(), content_type=EVENTS))
    got = ask(place, "chat", "eu.amazon.nova:0", session)
    assert calls_in("chat", got.content) == [{"city": "Oslo"}], got.text
    assert [one.headers["x-amz-security-token"] for one in place.replay.asked] == [FIRST, SECOND]
    call_of(place.product, session)
    assert b"[key]" in kept(place.product) and not [
        one for one in SECRETS if one.encode() in kept(place.product)
    ]
    logs = "".join(log.read_text(errors="replace") for log in place.product.folder.glob("*.log"))
    assert logs and not [one for one in SECRETS if one in logs]


def kept(product: Product) -> bytes:
    """Every value of every row."""
    with psycopg.connect(product.database_url) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'"
        ).fetchall()
        rows = [
            row
            for table in tables
            for row in connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table))
            )
        ]
    return b"\n".join(
        value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row
    )
