"""What is asked of a provider of OpenID Connect, within which bounds, and what of its answers
counts: one that does not answer as it must lets nobody in."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from joserfc import jwk
from pydantic import ValidationError
from starlette.requests import Request

from db.page_sessions import PageSessions
from pages.http.login import Logins
from pages.http.oidc import fetch as fetching
from pages.http.oidc import provider as providing
from pages.http.oidc.endpoints import OidcPages
from pages.http.oidc.fetch import MAX_ANSWER_BYTES, ProviderAway, fetch
from pages.http.oidc.provider import Provider
from pages.http.oidc.tokens import LoginRefused, person_of, verified
from pages.http.request_checks import Head, Site
from pages.http.visit import begin_visit
from settings.config import Config
from settings.login import Oidc
from sluice.config_file import parse_config
from sluice.errors import SettingsError
from tests.support.json_values import Json
from tests.support.oidc.lying import CLIENT, SECRET, LyingProvider

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def oidc_of(issuer: str, tmp_path: Path, **more: Any) -> Oidc:
    """The configuration of a provider."""
    (tmp_path / "secret").write_text(SECRET)
    settings = {"issuer": issuer, "client_id": CLIENT, "roles": {"readers": ["auditor"]}}
    return Oidc.model_validate(settings | {"client_secret_file": str(tmp_path / "secret")} | more)


async def served(answer: Answer) -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def raw(text: bytes, *, stays: bool = False) -> Answer:
    """Answer every request with these bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        if stays:
            await reader.read()
        writer.close()

    return answer


def head(length: int, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        head(10) + b"{",
        head(2) + b"[]",
        head(4) + b"null",
        head(3) + b"{},",
        head(0),
        head(MAX_ANSWER_BYTES + 1) + b" " * (MAX_ANSWER_BYTES + 1),
        head(100_000) + b"[" * 100_000,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    server, url = await served(raw(answer))
    async with server:
        with pytest.raises(ProviderAway):
            await fetch(url, {})


async def test_a_provider_has_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "ANSWER_S", 0.2)
    for begun in (b"", b"HTTP/1.1 200 OK\r\n", head(10) + b"{"):
        server, url = await served(raw(begun, stays=True))
        async with server:
            with pytest.raises(ProviderAway, match="TimeoutError"):
                await fetch(url, {})
    with pytest.raises(ProviderAway):
        await fetch("http://127.0.0.1:1/x", {})


@pytest.mark.parametrize("url", ["https://[abc/", "https://127.0.0.1:x/", "https://a@127.0.0.1/"])
async def test_an_address_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(ProviderAway):
        await fetch(url, {})


async def test_who_waits_for_a_provider_that_hangs_waits_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "ANSWER_S", 0.2)
    monkeypatch.setattr(providing, "FRESH_S", 0.1)
    asked = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    server, url = await served(hang)
    async with server:
        provider = Provider(oidc_of(url, tmp_path))
        waited = await asyncio.gather(
            *(provider.login_url({}) for _ in range(20)), return_exceptions=True
        )
    assert asked == 1
    assert {str(one) for one in waited} == {"the provider cannot be asked now (TimeoutError)"}


async def test_a_redirect_is_not_followed() -> None:
    to = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 2\r\n\r\n{}"
    server, url = await served(raw(to))
    async with server:
        assert await fetch(url, {}) == {}


@pytest.fixture
async def lying() -> AsyncIterator[LyingProvider]:
    with LyingProvider() as made:
        yield made


DISCOVERED: list[Json] = [
    {"issuer": "https://evil.example"},
    {"issuer": None},
    {"jwks_uri": None},
    {"jwks_uri": ["x"]},
    {"jwks_uri": "file:///etc/passwd"},
    {"jwks_uri": "http://127.0.0.1 /x"},
    {"authorization_endpoint": "javascript:alert(1)"},
    {"authorization_endpoint": "http://127.0.0.1/\r\nset-cookie: a=b"},
    {"authorization_endpoint": "http://idp.example/"},
]


@pytest.mark.parametrize("discovered", DISCOVERED)
async def test_a_discovery_document_that_is_wrong_sends_nobody_anywhere(
    lying: LyingProvider, tmp_path: Path, discovered: Json
) -> None:
    lying.discovery = discovered
    with pytest.raises(ProviderAway):
        await Provider(oidc_of(lying.issuer, tmp_path)).login_url({})


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (404, b"{}")),
        ("/.well-known/openid-configuration", (302, b"http://127.0.0.1:1/")),
        ("/jwks", (200, b"{}")),
        ("/jwks", (200, b'{"keys": {"a": 1}}')),
        ("/jwks", (500, json.dumps({"keys": []}).encode())),
    ],
)
async def test_without_keys_nobody_gets_in_and_it_is_not_asked_all_the_time(
    lying: LyingProvider, tmp_path: Path, path: str, answer: tuple[int, bytes]
) -> None:
    lying.bodies[path] = answer
    provider = Provider(oidc_of(lying.issuer, tmp_path))
    refused = await asyncio.gather(
        *(provider.logout("a.b.c") for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(error, ProviderAway) for error in refused)
    assert lying.asked.count(path) == 1


async def test_a_key_that_is_not_understood_takes_away_no_other(
    lying: LyingProvider, tmp_path: Path
) -> None:
    lying.published[:0] = [{"kty": "OKP", "crv": "X999", "x": "AAAA"}, {"kid": "q"}, 7, "x"]
    events: Json = {"http://schemas.openid.net/event/backchannel-logout": {}}
    token = lying.signed(lying.claims("ann", events=events))
    logout = await Provider(oidc_of(lying.issuer, tmp_path)).logout(token)
    assert logout["subject"] == "ann"


ASKED = {"code": "c", "redirect_uri": "r", "code_verifier": "v"}


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (200, b"{}"), (401, b'{"error": "invalid_client"}')]
)
async def test_a_token_endpoint_that_fails_lets_nobody_in(
    lying: LyingProvider, tmp_path: Path, answer: tuple[int, bytes]
) -> None:
    lying.bodies["/token"] = answer
    with pytest.raises(LoginRefused, match="invalid_client" if answer[0] == 401 else "None"):
        await Provider(oidc_of(lying.issuer, tmp_path)).person(ASKED, "n")


async def test_without_userinfo_an_id_token_without_roles_is_of_somebody_without(
    lying: LyingProvider, tmp_path: Path
) -> None:
    lying.discovery = {"userinfo_endpoint": None}
    lying.change = lambda claims: {k: v for k, v in claims.items() if k != "groups"}
    hashed = urlsafe_b64encode(sha256(b"v").digest()).decode().rstrip("=")
    code = lying.code({"code_challenge": hashed, "redirect_uri": "r", "nonce": "n"})
    person = await Provider(oidc_of(lying.issuer, tmp_path)).person(ASKED | {"code": code}, "n")
    assert (person.name, person.roles) == ("The person ann (oidc:ann)", [])


async def test_a_secret_that_is_missing_is_said(
    lying: LyingProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oidc = oidc_of(lying.issuer, tmp_path)
    (tmp_path / "secret").unlink()
    by_name = {"client_secret_file": None, "client_secret_env": "OIDC_SECRET"}
    monkeypatch.delenv("OIDC_SECRET", raising=False)
    with pytest.raises(ProviderAway, match="secret is not where"):
        await Provider(oidc).person(ASKED, "n")
    oidc = oidc_of(lying.issuer, tmp_path, **by_name)
    with pytest.raises(ProviderAway, match="secret is not where"):
        await Provider(oidc).person(ASKED, "n")
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    with pytest.raises(LoginRefused, match="invalid_grant"):
        await Provider(oidc).person(ASKED, "n")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"issuer": "http://idp.example"}, "issuer"),
        ({"issuer": "https://idp.example/?a=b"}, "issuer"),
        ({"issuer": "https://user@idp.example"}, "issuer"),
        ({"client_secret_file": None}, "client_secret_env or with client_secret_file"),
        ({"client_secret_env": "SECRET"}, "client_secret_env or with client_secret_file"),
        ({"roles": {}}, "roles"),
        ({"roles": {"readers": ["client"]}}, "roles"),
        ({"login_s": 43_201}, "login_s"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    tmp_path: Path, changed: Json, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        oidc_of(changed.pop("issuer", "https://idp.example"), tmp_path, **changed)


def test_people_need_an_address_to_come_back_to(tmp_path: Path) -> None:
    oidc = oidc_of("https://idp.example", tmp_path).model_dump(mode="json")
    file = json.dumps({"login": {"oidc": oidc}})
    with pytest.raises(SettingsError, match=r"pages\.url"):
        parse_config(file, "a file")
    url = {"pages": {"url": "https://sluice.example"}, "login": {"oidc": oidc}}
    assert isinstance(parse_config(json.dumps(url), "a file"), Config)


async def test_what_is_wrong_with_a_token_is_said(lying: LyingProvider, tmp_path: Path) -> None:
    oidc, keys = oidc_of(lying.issuer, tmp_path), jwk.KeySet([lying.key])
    right = lying.signed(lying.claims("ann"))
    for token, fault in (
        (right[:-6] + "AAAAAA", "BadSignatureError"),
        ("a.b.c", "Invalid header"),
        (lying.signed(lying.claims("ann", aud="other")), "'aud'"),
    ):
        with pytest.raises(LoginRefused, match=f"is not valid: .*{fault}"):
            verified(token, keys, oidc)


async def test_a_claim_is_found_by_its_name_or_on_the_way_to_it(
    lying: LyingProvider, tmp_path: Path
) -> None:
    about = {"aud": CLIENT, "sub": "ann", "https://idp.example/roles": ["readers"]}
    for claim, claims in (
        ("https://idp.example/roles", about),
        (
            "realm_access.roles",
            {"aud": CLIENT, "sub": "ann", "realm_access": {"roles": ["readers"]}},
        ),
        ("a.b.c", {"aud": CLIENT, "sub": "ann", "a": {"b.c": "readers"}}),
    ):
        oidc = oidc_of(lying.issuer, tmp_path, roles_claim=claim)
        assert person_of(claims, oidc).roles == ["auditor"]
    for wrong in (
        {"aud": CLIENT, "sub": "ann", "realm_access": ["readers"]},
        {"aud": CLIENT, "sub": "ann", "realm_access": None},
    ):
        oidc = oidc_of(lying.issuer, tmp_path, roles_claim="realm_access.roles")
        assert person_of(wrong, oidc).roles == []


@pytest.mark.parametrize("name", [None, "", "  ", "a\u202eb", "a\nb", "x" * 256, 7, ["Ann"]])
async def test_a_name_that_cannot_be_shown_is_the_subject(
    lying: LyingProvider, tmp_path: Path, name: object
) -> None:
    claims = {"aud": CLIENT, "sub": "ann", "groups": "readers", "name": name, "sid": name}
    person = person_of(claims, oidc_of(lying.issuer, tmp_path))
    assert (person.name, person.sid) == ("(oidc:ann)", "")


class NoSessions(PageSessions):
    """Logins that nobody looks at."""

    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("url", "name", "more"),
    [
        ("https://sluice.example", "__Secure-sluice_pages_login", "; HttpOnly; Secure"),
        ("http://127.0.0.1:8080", "sluice_pages_login", "; HttpOnly"),
    ],
)
async def test_a_login_in_progress_is_a_cookie_of_the_browser(
    lying: LyingProvider, tmp_path: Path, url: str, name: str, more: str
) -> None:
    sessions = NoSessions()
    pages = OidcPages(oidc_of(lying.issuer, tmp_path), url, Logins((), sessions), sessions)
    scope: Json = {"type": "http", "method": "GET"}
    visit = begin_visit(scope)
    visit.site = Site(url, is_secure=url.startswith("https"), is_loopback=False)
    visit.head = Head("GET", "/debug/login/oidc", [("next", "/debug/calls?a=b;c&d=%2F")], {}, "")
    response = await pages.begin(Request(scope))
    cookie, _, attributes = response.headers["set-cookie"].partition(";")
    assert attributes == f" Path=/debug; Max-Age=600; SameSite=Lax{more}"
    key, _, value = cookie.partition("=")
    flow, _, target = value.partition(".")
    assert key == name and unquote(target) == "/debug/calls?a=b;c&d=%2F" and ";" not in target
    asked = dict(parse_qsl(urlsplit(response.headers["location"]).query))
    hashed = urlsafe_b64encode(sha256(flow.encode()).digest()).decode().rstrip("=")
    assert asked["code_challenge"] == hashed and flow not in asked.values()
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    assert (asked["scope"], asked["redirect_uri"]) == (
        "openid profile",
        f"{url}/debug/login/oidc/done",
    )
    lying.bodies["/.well-known/openid-configuration"] = (500, b"")
    pages = OidcPages(oidc_of(lying.issuer, tmp_path), url, Logins((), sessions), sessions)
    refused = await pages.begin(Request(scope))
    assert refused.status_code == 502 and "set-cookie" not in refused.headers
    # a key does without the provider
    page = bytes(refused.body).decode()
    assert "the provider cannot be asked now" in page and 'name="key"' in page
