"""People log in to the pages at a provider of OpenID Connect: and not with what it did not say, did
not say to us, or did not say now."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
from joserfc import jwk

from db.page_sessions import Person
from db.write.insert import AuditInserter
from pages.http.login import MOST_WRONG
from pages.http.oidc.provider import Provider
from pages.http.oidc.tokens import LoginRefused
from settings.login import Oidc
from tests.support.checks.logins import browser
from tests.support.checks.record import fresh_database, whole_call
from tests.support.json_values import Json
from tests.support.oidc.lying import CLIENT, SECRET, LyingProvider, forged
from tests.support.oidc.product import asked_of, product_with
from tests.support.servers.product import KEY, Product

OIDC, DONE, LOGOUT = "/debug/login/oidc", "/debug/login/oidc/done", "/debug/login/oidc/logout"
NAVIGATED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
NAVIGATED |= {"sec-fetch-dest": "document"}
_EVENT = "http://schemas.openid.net/event/backchannel-logout"
CALL = "01990000-0001-7000-8000-00000000abcd"
ADDRESSES = 120
_addresses = iter(range(ADDRESSES))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, LyingProvider]]:
    """A gateway and its pages, and the provider."""
    folder = tmp_path_factory.mktemp("oidc")

    async def insert(url: str) -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(whole_call(CALL), {CALL: b'{"messages": []}'})

    with (
        LyingProvider() as provider,
        fresh_database(database_url) as url,
        product_with(folder, redis_url, url, provider.issuer, SECRET) as product,
    ):
        config = product.config_file.read_text().replace(
            "pages:\n", "pages:\n  trusted_proxies: [127.0.0.1]\n"
        )
        product.config_file.write_text(config)
        asyncio.run(insert(url))
        product.start("gateway", "pages")
        with browser(product) as known:
            # of which many may be wrong, beyond the bound for all
            for number in range(ADDRESSES):
                known.headers["x-forwarded-for"] = address(number)
                assert known.post("/debug/login", data={"key": KEY}).status_code == 303
        yield product, provider


@pytest.fixture
def product(served: tuple[Product, LyingProvider]) -> Product:
    return served[0]


@pytest.fixture
def provider(served: tuple[Product, LyingProvider]) -> LyingProvider:
    served[1].behave()
    return served[1]


def visitor(product: Product) -> httpx.Client:
    """A browser at an address of its own."""
    made = browser(product)
    made.headers["x-forwarded-for"] = address(next(_addresses))
    return made


def address(number: int) -> str:
    return f"10.1.0.{number}"


def answered(
    visitor: httpx.Client, provider: LyingProvider, subject: str = "ann", **more: str
) -> httpx.Response:
    """Log in, up to the answer to what the provider sends a browser back with."""
    asked = asked_of(visitor.get(OIDC, params={"next": more.pop("next", "")}))
    answer = {"code": provider.code(asked, subject), "state": asked["state"]} | more
    return visitor.get(DONE, params=answer, headers=NAVIGATED)


def is_in(visitor: httpx.Client) -> bool:
    """Is this browser logged in?"""
    return visitor.get("/debug/calls").status_code == 200


def test_a_person_logs_in_and_the_record_names_them(
    product: Product, provider: LyingProvider
) -> None:
    with visitor(product) as ann:
        first = ann.get("/debug/login?next=/debug/calls")
        assert f'href="{product.url}{OIDC}?next=%2Fdebug%2Fcalls"' in first.text
        answer = answered(ann, provider, next="/debug/calls?limit=5")
        assert answer.status_code == 200 and 'url=/debug/calls?limit=5"' in answer.text
        cookies = answer.headers.get_list("set-cookie")
        assert any("sluice_pages=" in one and "SameSite=Strict" in one for one in cookies)
        assert any("sluice_pages_login=;" in one and "Max-Age=0" in one for one in cookies)
        page = ann.get("/debug/calls?limit=5")
        assert page.status_code == 200 and "The person ann (oidc:ann)" in page.text
        assert ann.get("/debug/reads").status_code == 403
        token = re.search(r'name="token" value="([0-9a-f]{64})"', page.text)
        assert token
        label = {"token": token[1], "wrong": f"{CALL}-1", "back": "/debug/judge-blocks"}
        assert ann.post("/debug/labels", data=label).status_code == 303
        assert ann.post("/debug/labels", data=label | {"token": "0" * 64}).status_code == 403
    with psycopg.connect(product.database_url) as owner:
        labels = owner.execute("SELECT key, label FROM labels").fetchall()
        assert labels == [("The person ann (oidc:ann)", "wrong")]
        row = owner.execute("SELECT key, key_id FROM reads ORDER BY at DESC LIMIT 1").fetchone()
        assert row is not None and row[0] == "The person ann (oidc:ann)"
        login = owner.execute(
            "SELECT issuer, sid, roles, left(encode(sha256(key_sha256), 'hex'), 16),"
            " extract(epoch FROM until - created_at) FROM page_sessions WHERE person <> ''"
        ).fetchall()
        assert login == [(provider.issuer, "sid-ann", ["auditor"], row[1], 3600)]


def test_a_login_ends_with_its_time_and_with_its_provider(
    product: Product, provider: LyingProvider
) -> None:
    for change in ("until = now()", "seen_at = now() - interval '2 hours'", "issuer = 'x'"):
        with visitor(product) as ann:
            assert answered(ann, provider, "zoe").status_code == 200 and is_in(ann)
            with psycopg.connect(product.database_url, autocommit=True) as owner:
                where = "WHERE person LIKE '%(oidc:zoe)'"
                owner.execute(f"UPDATE page_sessions SET {change} {where}".encode())
            assert not is_in(ann), change


def test_roles_are_those_of_the_claim(product: Product, provider: LyingProvider) -> None:
    provider.change = lambda claims: claims | {"groups": ["strangers", "admins"]}
    with visitor(product) as boss:
        assert answered(boss, provider, "boss").status_code == 200
        assert boss.get("/debug/reads").status_code == 200
    provider.change = lambda claims: claims | {"groups": ["deciders"]}
    with visitor(product) as decider:
        assert answered(decider, provider, "ann").status_code == 200
        assert decider.get("/debug/approvals").status_code == 200
        assert decider.get("/debug/calls").status_code == 403
    for groups in (
        [],
        ["strangers"],
        "strangers",
        None,
        {"readers": 1},
        [["readers"]],
    ):
        provider.change = lambda claims, groups=groups: claims | {"groups": groups}  # type: ignore[misc]
        with visitor(product) as nobody:
            answer = answered(nobody, provider)
            assert answer.status_code == 403 and "role" in answer.text and not is_in(nobody)


def test_what_an_id_token_lacks_is_asked_for_and_must_be_of_the_same_person(
    product: Product, provider: LyingProvider
) -> None:
    provider.change = lambda claims: {
        name: value for name, value in claims.items() if name not in ("name", "groups")
    }
    provider.userinfo = {"sub": "ben", "name": "Ben", "groups": "readers"}
    with visitor(product) as ben:
        assert answered(ben, provider, "ben").status_code == 200
        assert "Ben (oidc:ben)" in ben.get("/debug/calls").text
    with visitor(product) as eve:
        answer = answered(eve, provider, "eve")
        assert answer.status_code == 403 and "no role" in answer.text and not is_in(eve)


def off(**claims: Any) -> Callable[[LyingProvider], None]:
    """Tokens with these claims instead; None: without."""

    def lie(provider: LyingProvider) -> None:
        provider.change = lambda right: {
            name: value for name, value in (right | claims).items() if value is not None
        }

    return lie


def moved(**seconds: int) -> Callable[[LyingProvider], None]:
    """Tokens with times so far from now."""

    def lie(provider: LyingProvider) -> None:
        provider.change = lambda right: right | {name: at(s) for name, s in seconds.items()}

    return lie


def at(seconds: int) -> int:
    return int(time.time()) + seconds


def by_key(kid: str, kind: str = "RSA", size: str | int = 2048) -> Callable[[LyingProvider], None]:
    """Tokens signed by a key that nobody published."""

    def lie(provider: LyingProvider) -> None:
        key = jwk.JWKRegistry.generate_key(kind, size, {"kid": kid})
        alg = {"RSA": "RS256", "EC": "ES256"}[kind]
        provider.sign = lambda claims: provider.signed(claims, key, alg)

    return lie


def as_forged(
    alg: str, secret: Callable[[LyingProvider], bytes] = lambda _: b""
) -> Callable[[LyingProvider], None]:
    """Tokens with another kind of signature."""

    def lie(provider: LyingProvider) -> None:
        provider.sign = lambda claims: forged(claims, alg, secret(provider))

    return lie


def public(provider: LyingProvider) -> bytes:
    """The key that anybody can read, as somebody may take it for a secret."""
    assert isinstance(provider.key, jwk.RSAKey)
    return provider.key.as_pem(private=False)


LIES: dict[str, Callable[[LyingProvider], None]] = {
    "another issuer": off(iss="https://evil.example"),
    "an issuer with a slash": off(iss="http://127.0.0.1/"),
    "no issuer": off(iss=None),
    "another audience": off(aud="other"),
    "no audience": off(aud=None),
    "two audiences and no party": off(aud=[CLIENT, "other"]),
    "another party": off(aud=[CLIENT, "other"], azp="other"),
    "another party alone": off(azp="other"),
    "another nonce": off(nonce="n" * 43),
    "no nonce": off(nonce=None),
    "an old token": moved(exp=-300),
    "no end": off(exp=None),
    "an end that is no time": off(exp=float("nan")),
    "an end that is a text": off(exp="never"),
    "a token of tomorrow": moved(iat=86_400),
    "no beginning": off(iat=None),
    "not valid yet": moved(nbf=86_400),
    "no subject": off(sub=None),
    "an empty subject": off(sub=""),
    "a subject that is a list": off(sub=["ann"]),
    "a subject with a line": off(sub="ann\nben"),
    "a long subject": off(sub="a" * 256),
    "no signature": as_forged("none"),
    "a signature that is missing": as_forged("RS256"),
    "the public key as a secret": as_forged("HS256", public),
    "the client's secret": as_forged("HS256", lambda _: SECRET.encode()),
    "another's key of that name": by_key("first"),
    "a key that nobody published": by_key("other"),
    "a key of another kind": by_key("first", "EC", "P-256"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_wrong_lets_nobody_in(
    product: Product, provider: LyingProvider, lie: str
) -> None:
    LIES[lie](provider)
    with visitor(product) as ann:
        answer = answered(ann, provider)
        assert answer.status_code == 400 and "<h1>Log in</h1>" in answer.text, lie
        assert not is_in(ann), lie
    assert "Traceback" not in product.logs()


def test_clocks_may_differ_by_a_minute(product: Product, provider: LyingProvider) -> None:
    now = int(time.time())
    for change in ({"exp": now - 30}, {"iat": now + 30, "nbf": now + 30}):
        off(**change)(provider)
        with visitor(product) as ann:
            assert answered(ann, provider).status_code == 200 and is_in(ann)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"code": "x"},
        {"state": ""},
        {"state": "s" * 43},
        {"iss": "https://evil.example"},
        {"error": "access_denied"},
        {"code": "never-issued"},
    ],
)
def test_an_answer_that_is_not_the_provider_s_logs_nobody_in(
    product: Product, provider: LyingProvider, answer: dict[str, str]
) -> None:
    with visitor(product) as ann:
        asked = asked_of(ann.get(OIDC))
        sent = {"code": provider.code(asked), "state": asked["state"], **answer} if answer else {}
        if "error" in sent:
            del sent["code"]
        refused = ann.get(DONE, params=sent, headers=NAVIGATED)
        assert refused.status_code == 400 and not is_in(ann)
        assert answer.get("error", "") in refused.text and answer.get("error", "") in product.logs()
        twice = f"{DONE}?code=a&code=b&state={asked['state']}"
        assert ann.get(twice, headers=NAVIGATED).status_code == 400


def test_a_stolen_code_is_of_no_use_elsewhere(product: Product, provider: LyingProvider) -> None:
    with visitor(product) as ann, visitor(product) as eve:
        asked, of_eve = asked_of(ann.get(OIDC)), asked_of(eve.get(OIDC))
        code = provider.code(asked)
        for state in (asked["state"], of_eve["state"]):
            stolen = eve.get(DONE, params={"code": code, "state": state}, headers=NAVIGATED)
            assert stolen.status_code == 400 and not is_in(eve)
        # nor is a browser with no login under way logged in as somebody else
        answer = {"code": provider.code(of_eve, "eve"), "state": of_eve["state"]}
        assert ann.get(DONE, params=answer, headers=NAVIGATED).status_code == 400
        assert not is_in(ann)


def test_an_answer_counts_once(product: Product, provider: LyingProvider) -> None:
    with visitor(product) as ann:
        asked = asked_of(ann.get(OIDC))
        answer = {"code": provider.code(asked), "state": asked["state"]}
        assert ann.get(DONE, params=answer, headers=NAVIGATED).status_code == 200
        assert ann.get(DONE, params=answer, headers=NAVIGATED).status_code == 400
        assert is_in(ann)


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/debug/../v1",
        DONE,
        OIDC,
        LOGOUT,
    ],
)
def test_a_login_leads_to_no_other_site(
    product: Product, provider: LyingProvider, target: str
) -> None:
    with visitor(product) as ann:
        answer = answered(ann, provider, next=target)
        assert answer.status_code == 200 and 'content="0;url=/debug"' in answer.text
        # the cookie is the browser's own, which may change it
    with visitor(product) as ann:
        asked = asked_of(ann.get(OIDC))
        flow = ann.cookies["sluice_pages_login"].partition(".")[0]
        ann.cookies.clear()
        sent = {"code": provider.code(asked), "state": asked["state"]}
        changed = {**NAVIGATED, "cookie": f"sluice_pages_login={flow}.https%3A%2F%2Fevil.example"}
        answer = ann.get(DONE, params=sent, headers=changed)
        assert answer.status_code == 200 and "evil" not in answer.text


def test_what_failed_too_often_waits(product: Product, provider: LyingProvider) -> None:
    off(nonce="n")(provider)
    with visitor(product) as eve:
        for _ in range(MOST_WRONG):
            assert answered(eve, provider).status_code == 400
        asked = len(provider.asked)
        assert answered(eve, provider).status_code == 429 and len(provider.asked) == asked


def logout(product: Product, provider: LyingProvider, **claims: Any) -> httpx.Response:
    """The provider says that somebody is logged out; None: without that claim."""
    token = provider.claims("ann", events={_EVENT: {}}, jti="1") | claims
    return say(product, provider.signed({k: v for k, v in token.items() if v is not None}))


def say(product: Product, token: str) -> httpx.Response:
    return httpx.post(f"{product.url}{LOGOUT}", data={"logout_token": token})


def test_the_provider_ends_logins(product: Product, provider: LyingProvider) -> None:
    with visitor(product) as ann, visitor(product) as ben, visitor(product) as key:
        assert key.post("/debug/login", data={"key": KEY}).status_code == 303
        for person, name in ((ann, "ann"), (ben, "ben")):
            assert answered(person, provider, name).status_code == 200 and is_in(person)
        assert logout(product, provider, sid="another").status_code == 200 and is_in(ann)
        done = logout(product, provider)
        assert done.status_code == 200 and done.headers["cache-control"] == "no-store"
        assert not is_in(ann) and is_in(ben) and is_in(key)
        assert logout(product, provider, sub=None, sid="sid-ben").status_code == 200
        assert not is_in(ben) and is_in(key)


def test_what_ended_a_login_ends_none_that_began_later(
    product: Product, provider: LyingProvider
) -> None:
    with visitor(product) as ann:
        assert answered(ann, provider).status_code == 200
        assert logout(product, provider, iat=at(-400)).status_code == 200 and is_in(ann)


def test_nobody_else_ends_a_login(product: Product, provider: LyingProvider) -> None:
    other = jwk.generate_key("RSA", 2048, {"kid": "first"})
    right = provider.claims("ann", events={_EVENT: {}})
    with visitor(product) as ann:
        assert answered(ann, provider).status_code == 200
        lies: list[Json] = [
            {"iss": "https://evil.example"},
            {"aud": "other"},
            {"nonce": "n"},
            {"events": None},
            {"events": {}},
            {"iat": at(3_600)},
            {"iat": None},
            {"exp": at(-300)},
            {"sub": None},
            {"sub": 7},
        ]
        for claims in lies:
            assert logout(product, provider, **claims).status_code == 400, claims
        for token in (
            provider.signed(right, other),
            forged(right, "none"),
            forged(right, "HS256", public(provider)),
            "",
            "a.b.c",
            "[" * 15_000,
            f"{'W1tbW1tb' * 5_000}.e30.",
        ):
            assert say(product, token).status_code == 400
        assert is_in(ann)
    assert httpx.get(f"{product.url}{LOGOUT}").status_code == 405
    assert "Traceback" not in product.logs()


async def test_other_keys_are_read_when_a_token_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with LyingProvider() as lying:
        oidc = Oidc(
            issuer=lying.issuer,
            client_id=CLIENT,
            client_secret_file=str(tmp_path / "secret"),
            roles={"readers": ("auditor",)},
        )
        provider = Provider(oidc)

        async def log_in() -> Person:
            asked = {"redirect_uri": "r", "code_verifier": "verifier"}
            challenge = "iMnq5o6zALKXGivsnlom_0F5_WYda32GHkxlV7mq7hQ"
            wanted = {"nonce": "n", "code_challenge": challenge, "redirect_uri": "r"}
            return await provider.person(asked | {"code": lying.code(wanted)}, "n")

        assert (await log_in()).roles == ["auditor"]
        lying.key = jwk.generate_key("EC", "P-256", {"kid": "second", "use": "sig"})
        lying.sign = lambda claims: lying.signed(claims, alg="ES256")
        lying.published = [{"kty": "new"}, "text", lying.key.as_dict(private=False)]
        asked = lying.asked.count("/jwks")
        # whoever sends such tokens cannot make it ask all the time
        for _ in range(3):
            with pytest.raises(LoginRefused):
                await log_in()
        assert lying.asked.count("/jwks") == asked
        monkeypatch.setattr("pages.http.oidc.provider.FRESH_S", 0.0)
        assert (await log_in()).sid == "sid-ann"
