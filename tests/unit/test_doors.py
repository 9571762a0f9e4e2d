"""Doors: which request each makes of a dialect's, against a table and against what the vendors' own
SDKs send."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anthropic
import httpx2
import openai
import pytest

from protocol.dialects.table import DIALECTS
from protocol.errors import InvalidRequest, UpstreamTokenMissing
from providers import sigv4
from providers.doors import bedrock, vertex
from providers.doors.azure import EntraDoor
from providers.doors.plain import LARGE_BYTES, Door
from providers.doors.table import open_door
from providers.doors.vertex import VertexDoor
from providers.sigv4 import AwsKey
from providers.tokens import Token
from settings.config import Upstream
from tests.support.json_values import Json, as_json

MESSAGES = {
    "model": "claude-x@1:0",
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "hi"}],
}
PAID = {"api_key_env": "DOOR_KEY"}
KEY, GIVEN = "the-secret-key", "Bearer the-token"
GOOGLE, AMAZON = (
    "europe-west1-aiplatform.googleapis.com",
    "bedrock-runtime.eu-central-1.amazonaws.com",
)
FOUNDRY = "res.services.ai.azure.com"
AZURE = {"door": "azure", "base_url": "https://res.openai.azure.com/", "api_key_env": "DOOR_KEY"}
ENTRA = {
    "door": "azure",
    "base_url": "https://r.azure.com",
    "tenant": "t",
    "client_id": "c",
    "client_secret_env": "DOOR_KEY",
}
VERTEX = {
    "door": "vertex",
    "project": "p-1",
    "location": "europe-west1",
    "credentials_file": "/nowhere",
}
BEARER = {"door": "bedrock", "region": "eu-central-1", "api_key_env": "DOOR_KEY"}
SIGNED = {
    "door": "bedrock",
    "region": "eu-central-1",
    "access_key_env": "DOOR_ID",
    "secret_key_env": "DOOR_KEY",
}
CLAUDE = "/model/claude-x%401%3A0"
PUBLISHER = "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_KEY", KEY)
    monkeypatch.setenv("DOOR_ID", "AKIAEXAMPLE")

    async def ask(_door: Door) -> Token:
        return Token("the-token", 3600.0)

    monkeypatch.setattr(VertexDoor, "ask", ask)
    monkeypatch.setattr(EntraDoor, "ask", ask)


def made(
    settings: Json, endpoint: str, body: Any = None, betas: tuple[str, ...] = ()
) -> tuple[str, str, dict[str, str], Any]:
    """The host and the target of a request, its headers, and its body as JSON."""

    async def ask() -> tuple[str, str, dict[str, str], Any]:
        door = open_door(Upstream.model_validate(settings))
        sent = await door.request(
            endpoint, as_json(body if body is not None else {"model": "m"}), betas
        )
        await door.close()
        line, *lines = sent.head.decode().removesuffix("content-length: ").split("\r\n")
        method, target, version = line.split(" ")
        assert (method, version) == ("POST", "HTTP/1.1")
        headers = dict(one.split(": ", 1) for one in lines if one)
        assert headers["content-type"] == "application/json"
        return sent.origin.host, target, headers, json.loads(sent.body)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("settings", "endpoint", "host", "target", "name", "value"),
    [
        (
            AZURE | {"dialect": "openai"},
            "chat",
            "res.openai.azure.com",
            "/openai/v1/chat/completions",
            "api-key",
            KEY,
        ),
        (
            AZURE | {"dialect": "openai", "api_version": "preview"},
            "chat",
            "res.openai.azure.com",
            "/openai/v1/chat/completions?api-version=preview",
            "api-key",
            KEY,
        ),
        (
            AZURE | {"dialect": "openai", "deployment": "d-1", "api_version": "2024-10-21"},
            "chat",
            "res.openai.azure.com",
            "/openai/deployments/d-1/chat/completions?api-version=2024-10-21",
            "api-key",
            KEY,
        ),
        (
            AZURE
            | {
                "dialect": "openai",
                "base_url": "https://res.services.ai.azure.com/models",
                "api_version": "2024-05-01-preview",
            },
            "chat",
            FOUNDRY,
            "/models/chat/completions?api-version=2024-05-01-preview",
            "api-key",
            KEY,
        ),
        (
            AZURE | {"dialect": "anthropic", "base_url": "https://res.services.ai.azure.com"},
            "messages",
            FOUNDRY,
            "/anthropic/v1/messages",
            "x-api-key",
            KEY,
        ),
        (
            AZURE | {"dialect": "anthropic"},
            "count_tokens",
            "res.openai.azure.com",
            "/anthropic/v1/messages/count_tokens",
            "x-api-key",
            KEY,
        ),
        (
            ENTRA | {"dialect": "openai"},
            "chat",
            "r.azure.com",
            "/openai/v1/chat/completions",
            "authorization",
            GIVEN,
        ),
        (
            VERTEX | {"dialect": "anthropic"},
            "messages",
            GOOGLE,
            f"{PUBLISHER}/m:rawPredict",
            "authorization",
            GIVEN,
        ),
        (
            VERTEX | {"dialect": "anthropic"},
            "count_tokens",
            GOOGLE,
            f"{PUBLISHER}/count-tokens:rawPredict",
            "authorization",
            GIVEN,
        ),
        (
            VERTEX | {"dialect": "anthropic", "location": "global"},
            "messages",
            "aiplatform.googleapis.com",
            f"{PUBLISHER.replace('europe-west1', 'global')}/m:rawPredict",
            "authorization",
            GIVEN,
        ),
        (
            VERTEX | {"dialect": "anthropic", "location": "eu"},
            "messages",
            "aiplatform.eu.rep.googleapis.com",
            f"{PUBLISHER.replace('europe-west1', 'eu')}/m:rawPredict",
            "authorization",
            GIVEN,
        ),
        (
            BEARER | {"dialect": "anthropic"},
            "messages",
            AMAZON,
            "/model/m/invoke",
            "authorization",
            f"Bearer {KEY}",
        ),
        (
            BEARER | {"dialect": "openai", "service": "bedrock-mantle"},
            "chat",
            "bedrock-mantle.eu-central-1.api.aws",
            "/v1/chat/completions",
            "authorization",
            f"Bearer {KEY}",
        ),
        (
            BEARER | {"dialect": "anthropic", "service": "bedrock-mantle"},
            "messages",
            "bedrock-mantle.eu-central-1.api.aws",
            "/anthropic/v1/messages",
            "authorization",
            f"Bearer {KEY}",
        ),
        (
            {
                "dialect": "openai",
                "base_url": "https://h/v1?a=b%20c",
                "api_key_env": "DOOR_KEY",
                "key_header": "X-Key",
            },
            "chat",
            "h",
            "/v1/chat/completions?a=b%20c",
            "x-key",
            KEY,
        ),
        (
            {
                "dialect": "anthropic",
                "base_url": "https://h/x/v1?a=b",
                "key_header": "Authorization",
                **PAID,
            },
            "messages",
            "h",
            "/x/v1/messages?a=b",
            "authorization",
            f"Bearer {KEY}",
        ),
    ],
)
def test_where_a_request_goes_and_what_lets_it_in(
    settings: Json, endpoint: str, host: str, target: str, name: str, value: str
) -> None:
    there, asked, headers, _ = made(settings, endpoint)
    assert (there, asked, headers[name]) == (host, target, value)
    others = {"authorization", "api-key", "x-api-key", "x-key"} - {name}
    assert not others & headers.keys()


@pytest.mark.parametrize(
    ("settings", "endpoint", "target"),
    [
        (
            BEARER | {"dialect": "converse"},
            "converse-stream a/b:c@1",
            "/model/a%2Fb%3Ac%401/converse-stream",
        ),
        (
            VERTEX | {"dialect": "gemini"},
            "stream a/b@1",
            "/v1/projects/p-1/locations/europe-west1/publishers/google/models/a%2Fb@1:streamGenerateContent?alt=sse",
        ),
        (
            AZURE | {"dialect": "responses", "api_version": "preview"},
            "responses",
            "/openai/v1/responses?api-version=preview",
        ),
        (
            BEARER | {"dialect": "responses", "service": "bedrock-mantle"},
            "responses",
            "/openai/v1/responses",
        ),
    ],
)
def test_the_other_dialects_keep_their_body_and_a_model_is_one_part(
    settings: Json, endpoint: str, target: str
) -> None:
    _, asked, _, body = made(settings, endpoint, {"model": "a/b", "stream": True})
    assert asked == target and body == {"model": "a/b", "stream": True}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("betas", [(), ("b-1", "b-2")])
def test_claude_in_its_envelopes(is_stream: bool, betas: tuple[str, ...]) -> None:
    body = (
        MESSAGES
        | ({"stream": True} if is_stream else {})
        | {"anthropic_version": "mine", "anthropic_beta": ["of-the-client"]}
    )
    rest = {"max_tokens": 5, "messages": MESSAGES["messages"]}
    _, target, headers, sent = made(
        SIGNED | {"dialect": "anthropic", "headers": {"anthropic-beta": "own"}},
        "messages",
        body,
        betas,
    )
    assert target == f"{CLAUDE}/invoke{'-with-response-stream' if is_stream else ''}"
    assert sent == rest | {
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["own", *betas],
    }
    assert "anthropic-beta" not in headers and "anthropic-version" not in headers
    assert headers["authorization"].startswith(
        "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/"
    ) and KEY not in str(headers)
    _, target, headers, sent = made(
        VERTEX | {"dialect": "anthropic"}, "messages", MESSAGES | {"stream": is_stream}, betas
    )
    assert target == f"{PUBLISHER}/claude-x@1:0:{'streamRawPredict' if is_stream else 'rawPredict'}"
    assert sent == rest | {"stream": is_stream, "anthropic_version": "vertex-2023-10-16"}
    assert headers.get("anthropic-beta", "") == ",".join(betas)


@pytest.mark.parametrize(
    "settings",
    [
        SIGNED | {"dialect": "anthropic"},
        SIGNED | {"dialect": "converse"},
        VERTEX | {"dialect": "anthropic"},
    ],
)
@pytest.mark.parametrize(("size", "is_apart"), [(0, False), (LARGE_BYTES + 1, True)])
def test_who_goes_through_a_large_body_keeps_nobody_waiting(
    settings: Json, size: int, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MB took 34 ms of the event loop, and on a busy machine 380."""
    body = MESSAGES | {
        "stream": True,
        "messages": [{"role": "user", "content": 'ä\\"' + "x" * size}],
    }
    threads = list[int]()

    def noting(real: Any) -> Any:
        def note(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.get_ident())
            return real(*args, **kwargs)

        return note

    for module, name in ((bedrock, "fields_of"), (vertex, "fields_of"), (sigv4, "sha256")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    *_, sent = made(
        settings, "converse m" if settings["dialect"] == "converse" else "messages", body
    )
    assert threads and {thread != threading.get_ident() for thread in threads} == {is_apart}
    assert sent["messages"] == body["messages"]


@pytest.mark.parametrize("model", ["..", ".", "", "a\nb", 5])
def test_a_model_that_no_path_can_hold_is_refused(model: Any) -> None:
    for settings in (BEARER, VERTEX):
        with pytest.raises(InvalidRequest, match="cannot stand in the path"):
            made(settings | {"dialect": "anthropic"}, "messages", MESSAGES | {"model": model})


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_vendors_own_clients_send_the_same(
    is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Any]()

    def answer(request: Any) -> Any:
        seen.append(request)
        raise RuntimeError("seen")

    monkeypatch.setattr(anthropic._base_client.SyncAPIClient, "_should_retry", lambda *_: False)

    def client() -> Any:
        return httpx2.Client(transport=httpx2.MockTransport(answer))

    asked = MESSAGES | {"stream": is_stream}
    theirs: list[tuple[Any, Json, str]] = [
        (
            anthropic.AnthropicVertex(
                region="europe-west1",
                project_id="p-1",
                access_token="t",
                http_client=client(),
                max_retries=0,
            ),
            VERTEX | {"dialect": "anthropic"},
            "messages",
        ),
        (
            anthropic.AnthropicBedrock(
                aws_region="eu-central-1", api_key=KEY, http_client=client(), max_retries=0
            ),
            BEARER | {"dialect": "anthropic"},
            "messages",
        ),
    ]
    for one, settings, endpoint in theirs:
        with pytest.raises(Exception, match=r"Connection error|seen"):
            one.messages.create(**asked)
        host, target, _, body = made(settings, endpoint, asked)
        request = seen.pop()
        # theirs leaves `:` as it is, which is the same path
        there = request.url.raw_path.decode()
        assert (host, unquote(target)) == (request.url.host, unquote(there)) and target.count(
            "/"
        ) == there.count("/")
        # the version is the installed SDK's
        version = json.loads(request.content)["anthropic_version"]
        assert body | {"anthropic_version": version} == json.loads(request.content)
    azure = openai.AzureOpenAI(
        azure_endpoint=AZURE["base_url"],
        api_key=KEY,
        api_version="2024-10-21",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    )
    with pytest.raises(Exception, match=r"Connection error|seen"):
        azure.chat.completions.create(model="d-1", messages=[{"role": "user", "content": "hi"}])
    request = seen.pop()
    settings = AZURE | {"dialect": "openai", "deployment": "d-1", "api_version": "2024-10-21"}
    host, target, headers, _ = made(settings, "chat", json.loads(request.content))
    assert (host, target, headers["api-key"]) == (
        request.url.host,
        request.url.raw_path.decode(),
        request.headers["api-key"],
    )


def test_keys_that_sign_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    upstream = Upstream.model_validate(
        {
            "dialect": "anthropic",
            "door": "bedrock",
            "region": "eu-central-1",
            "credentials_file": str(file),
        }
    )
    for text, sentence in (
        (None, "No such file"),
        ("x", "has not the form"),
        ("[other]\na = b\n", r"has no aws_access_key_id"),
        ("[default]\naws_access_key_id = SECRET\n", "has no aws_access_key_id"),
    ):
        if text is not None:
            file.write_text(text)
        with pytest.raises(UpstreamTokenMissing, match=sentence) as refused:
            bedrock.read_key(upstream)
        assert "SECRET" not in refused.value.message
    file.write_text(
        "[default]\naws_access_key_id = I\naws_secret_access_key = S%(x)s\naws_session_token = T\n"
    )
    assert bedrock.read_key(upstream) == AwsKey("I", "S%(x)s", "T")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DOOR_ID", "AKIÄSECRET"),
        ("DOOR_ID", "AKIA SECRET"),
        ("DOOR_ID", "AKIA/SECRET"),
        ("DOOR_ID", "AKIA,SECRET"),
        ("DOOR_TOKEN", "SECRET…"),
        ("DOOR_TOKEN", "SEC\x7fRET"),
        ("DOOR_TOKEN", "SECRET SECRET"),
    ],
)
def test_a_key_that_no_header_can_hold_is_refused_where_it_is_read(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"DOOR_ID": "AKIA-_.1", "DOOR_KEY": "SÄCRET/+,", "DOOR_TOKEN": "a/b+c=="}
    file = tmp_path / "keys"
    names = {
        "DOOR_ID": "aws_access_key_id",
        "DOOR_KEY": "aws_secret_access_key",
        "DOOR_TOKEN": "aws_session_token",
    }
    in_variables = Upstream.model_validate(
        SIGNED | {"dialect": "converse", "session_token_env": "DOOR_TOKEN"}
    )
    in_file = Upstream.model_validate(
        {
            "dialect": "converse",
            "door": "bedrock",
            "region": "eu-central-1",
            "credentials_file": str(file),
        }
    )
    for values in (right, right | {name: value}):
        for variable, one in values.items():
            monkeypatch.setenv(variable, one)
        file.write_text(
            "[default]\n"
            + "".join(f"{names[variable]} = {one}\n" for variable, one in values.items())
        )
        for upstream, place in (
            (in_variables, f"the variable {name}"),
            (in_file, f"{file}: {names[name]}"),
        ):
            if values is right:
                assert bedrock.read_key(upstream) == AwsKey(*right.values())
                continue
            with pytest.raises(UpstreamTokenMissing, match="no request can be signed") as refused:
                bedrock.read_key(upstream)
            assert place in refused.value.message and "SECRET" not in refused.value.message


def test_an_expired_token_is_worth_another_try_if_there_is_another(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    form = (
        "[default]\naws_access_key_id = AKIA\naws_secret_access_key = SSSSSSSS\naws_session_token ="
        " {}\n"
    )
    file.write_text(form.format("token-1"))
    settings = {
        "dialect": "anthropic",
        "door": "bedrock",
        "region": "eu-central-1",
        "credentials_file": str(file),
    }
    expired = {b"x-amzn-errortype": b"ExpiredTokenException:http://internal"}

    async def run() -> None:
        door = open_door(Upstream.model_validate(settings))
        body = as_json(MESSAGES)
        first = await door.request("messages", body, ())
        assert b"x-amz-security-token: token-1" in first.head
        assert not door.is_stale(403, expired, first.let_in)
        file.write_text(form.format("token-2"))
        assert not door.is_stale(403, {}, first.let_in) and not door.is_stale(
            200, expired, first.let_in
        )
        assert door.is_stale(403, expired, first.let_in)
        # another request that was let in with the old one: somebody has read it again
        assert door.is_stale(403, expired, first.let_in)
        second = await door.request("messages", body, ())
        assert b"x-amz-security-token: token-2" in second.head and not door.is_stale(
            403, expired, second.let_in
        )
        assert {b"token-1", b"token-2", b"SSSSSSSS"} <= set(door.secrets)

    asyncio.run(run())


def test_errors_of_the_service_are_told_in_the_words_of_the_dialect() -> None:
    door, body = (
        open_door(Upstream.model_validate(BEARER | {"dialect": "anthropic"})),
        b'{"message":"no such model"}',
    )
    for status, kind, expected in (
        (403, b"AccessDeniedException", "authentication_error"),
        (400, b"ValidationException", "invalid_request_error"),
        (429, b"ThrottlingException:x", "rate_limit_error"),
        (503, b"", "overloaded_error"),
    ):
        told = DIALECTS["anthropic"].decode_error(
            status, door.error(status, {b"x-amzn-errortype": kind}, body), None
        )
        assert (told.kind, told.message, told.status) == (expected, "no such model", status)
    assert door.error(500, {}, b"<html>") == b"<html>"
