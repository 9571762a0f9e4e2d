"""Access tokens: one question at a time, the old one while it holds, failures remembered; what is
signed for them, what no error says."""

import asyncio
import json
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from protocol.errors import UpstreamTokenMissing
from providers import google_token, tokens
from providers.doors import azure
from providers.doors.table import open_door
from providers.tokens import Token, Tokens
from settings.config import Upstream
from tests.support.json_values import Json

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: Any) -> str:
    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def unpacked(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Giver:
    """Gives numbered tokens that hold 100 s, or fails."""

    def __init__(self) -> None:
        self.asked, self.is_down = 0, False

    async def __call__(self) -> Token:
        self.asked += 1
        await asyncio.sleep(0.01)
        if self.is_down:
            raise UpstreamTokenMissing("down")
        return Token(f"t{self.asked}", 100.0)


async def test_a_hundred_requests_ask_once_and_the_old_token_serves_while_it_holds() -> None:
    clock, give = Clock(), Giver()
    held = Tokens(give, clock=clock)
    assert (
        set(await asyncio.gather(*(held.get() for _ in range(100)))) == {"t1"} and give.asked == 1
    )
    clock.now = 79.0
    assert await held.get() == "t1" and give.asked == 1
    clock.now = 81.0
    assert set(await asyncio.gather(*(held.get() for _ in range(100)))) == {"t1"}
    await asyncio.sleep(0.05)
    assert await held.get() == "t2" and give.asked == 2 and held.known == ("t2", "t1")


async def test_a_failure_is_remembered_and_then_asked_again() -> None:
    clock, give = Clock(), Giver()
    held = Tokens(give, clock=clock)
    give.is_down = True
    for _ in range(50):
        with pytest.raises(UpstreamTokenMissing, match="down"):
            await held.get()
    assert give.asked == 1
    give.is_down, clock.now = False, tokens.FAILED_S + 1
    assert await held.get() == "t2"
    # it fails while the old one still holds: nobody sees it
    give.is_down, clock.now = True, clock.now + 85
    assert await held.get() == "t2"
    await asyncio.sleep(0.05)
    assert await held.get() == "t2" and give.asked == 3
    clock.now += 10
    with pytest.raises(UpstreamTokenMissing):
        await held.get()


async def test_who_asked_first_may_go_away() -> None:
    held = Tokens(give := Giver(), clock=Clock())
    first, second = asyncio.ensure_future(held.get()), asyncio.ensure_future(held.get())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "t1" and give.asked == 1


async def test_a_refused_token_is_asked_for_anew_unless_it_is_young() -> None:
    clock, give = Clock(), Giver()
    held = Tokens(give, clock=clock)
    assert not held.refused(await held.get())
    clock.now = 61.0
    assert held.refused("t1") and await held.get() == "t2"
    assert held.refused("t1") and not held.refused("t2") and give.asked == 2


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A server in the place of Google's and Entra's; the list holds what is to be answered (status,
    body), then what was asked."""
    said = list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            status, answer = said.pop(0)
            said.append((self.path, parse_qs(body)))
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # so that closing it waits for the threads, which close their connections
    server.daemon_threads = False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(google_token, "TOKEN_URL", f"{url}/token")
    monkeypatch.setattr(azure, "LOGIN", url)
    yield said
    server.shutdown()
    server.server_close()


def key_file(folder: Path, **changed: Any) -> str:
    held = {
        "type": "service_account",
        "client_email": "me@p.example",
        "private_key": pem(RSA),
        "private_key_id": "k1",
        "token_uri": "http://evil.example/token",
    }
    file = folder / "key.json"
    file.write_text(json.dumps(held | changed))
    return str(file)


async def let_in(settings: Json) -> dict[str, str]:
    door = open_door(Upstream.model_validate(settings))
    try:
        return await door.authorization()
    finally:
        await door.close()


def vertex(file: str) -> Json:
    return {
        "dialect": "anthropic",
        "door": "vertex",
        "project": "p",
        "location": "global",
        "credentials_file": file,
    }


async def test_a_service_account_gets_a_token_and_its_file_does_not_say_where(
    google: list[Any], tmp_path: Path
) -> None:
    google.append((200, b'{"access_token": "tok", "expires_in": 3599, "token_type": "Bearer"}'))
    assert await let_in(vertex(key_file(tmp_path))) == {"authorization": "Bearer tok"}
    [(path, form)] = google
    assert path == "/token" and form["grant_type"] == [
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    ]
    [text] = form["assertion"]
    signed, _, signature = text.rpartition(".")
    RSA.public_key().verify(unpacked(signature), signed.encode(), PKCS1v15(), SHA256())
    header, claims = (json.loads(unpacked(part)) for part in signed.split("."))
    assert (
        header == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
        and claims["aud"] == google_token.TOKEN_URL
    )
    assert (
        claims["iss"] == "me@p.example"
        and claims["exp"] - claims["iat"] == 3600
        and abs(claims["iat"] - time.time()) < 60
    )
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"


async def test_an_application_of_entra_gets_a_token(
    google: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_SECRET", "app-secret&x")
    settings = {
        "dialect": "openai",
        "door": "azure",
        "base_url": "https://r.azure.com",
        "tenant": "t.example",
        "client_id": "app",
        "client_secret_env": "APP_SECRET",
    }
    google.append((200, b'{"access_token": "tok", "expires_in": "3599"}'))
    assert await let_in(settings) == {"authorization": "Bearer tok"}
    assert google == [
        (
            "/t.example/oauth2/v2.0/token",
            {
                "grant_type": ["client_credentials"],
                "client_id": ["app"],
                "client_secret": ["app-secret&x"],
                "scope": ["https://ai.azure.com/.default"],
            },
        )
    ]
    google[:] = [
        (
            401,
            b'{"error": "invalid_client", "error_description": "AADSTS7000215: not app-secret&x"}',
        )
    ]
    with pytest.raises(
        UpstreamTokenMissing, match=r"status 401 \(invalid_client, AADSTS7000215\)"
    ) as refused:
        await let_in(settings)
    assert "app-secret" not in refused.value.message


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (
            400,
            b'{"error": "invalid_grant", "error_description": "SECRET"}',
            r"status 400 \(invalid_grant\)",
        ),
        (500, b"<html>SECRET", "status 500$"),
        (302, b"", "status 302$"),
        (200, b"{}", "holds no access token"),
        (200, b'{"access_token": "a\\nb: c", "expires_in": 10}', "that can be sent"),
        (200, b'{"access_token": "SECRET", "expires_in": -1}', "that can be sent"),
        (200, b"[" * 10_000, "holds no access token"),
        (200, b" " * 100_000, "too large"),
    ],
)
async def test_no_token_is_an_error_that_shows_nothing(
    google: list[Any], tmp_path: Path, status: int, body: bytes, sentence: str
) -> None:
    google.append((status, body))
    with pytest.raises(UpstreamTokenMissing, match=sentence) as refused:
        await let_in(vertex(key_file(tmp_path)))
    assert "SECRET" not in refused.value.message and "assertion" not in refused.value.message


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"type": "authorized_user"},
            (
                "holds credentials of the kind 'authorized_user'; what is taken is the key of a"
                " service account"
            ),
        ),
        ({"type": "a b\nc"}, "holds credentials of no kind"),
        ({"private_key": "SECRET"}, "a private_key that cannot be read"),
        (
            {"private_key": pem(ec.generate_private_key(ec.SECP256R1()))},
            "a private_key that is none of RSA",
        ),
        ({"client_email": ""}, "client_email or private_key is missing"),
        ({"private_key": 5}, "it is not JSON of that form"),
    ],
)
async def test_other_credentials_are_refused_in_plain_words(
    tmp_path: Path, changed: Json, sentence: str
) -> None:
    file = key_file(tmp_path, **changed)
    with pytest.raises(ValueError, match=sentence) as refused:
        google_token.read_account(file)
    assert "SECRET" not in str(refused.value)
    with pytest.raises(UpstreamTokenMissing, match=sentence):
        await let_in(vertex(file))
