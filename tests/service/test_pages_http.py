"""The pages over HTTP through a gateway: logins, refusals, headers, and that nothing is shown of which no row says so."""

import contextlib
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.support.checks.record import fresh_database
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, digest

ADMIN = "sk-sluice-admin"
SAFE = {
    "x-content-type-options": "nosniff", "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer", "cache-control": "no-store",
}  # fmt: skip


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Iterator[Product]:
    """A gateway and its pages, over an empty record."""
    config = base_config()
    config["keys"].append({"name": "boss", "sha256": digest(ADMIN), "roles": ["admin"]})
    with fresh_database(database_url) as url, Product(tmp_path_factory.mktemp("pages"), redis_url, url, config) as made:
        made.start("gateway", "pages")
        yield made


def browser(product: Product) -> httpx.Client:
    """A browser that follows nothing by itself."""
    return httpx.Client(base_url=product.url, timeout=20, headers={"origin": product.url, "accept": "text/html"})


def log_in(product: Product, key: str, next_: str = "") -> httpx.Client:
    """A browser that is logged in."""
    made = browser(product)
    answer = made.post("/debug/login", data={"key": key, "next": next_})
    assert answer.status_code == 303, answer.text
    return made


@pytest.mark.parametrize("path", ["/debug", "/debug/calls", "/debug/nothing", "/debug/calls/x?y=%00z", "/debug/calls/%2e%2e", "/debug//x"])
def test_without_a_login_there_is_nothing(product: Product, path: str) -> None:
    with browser(product) as nobody:
        answer = nobody.get(path)
        assert answer.status_code in (303, 400) and not answer.cookies
        if answer.status_code == 303:
            assert answer.headers["location"].startswith("/debug/login") and answer.content == b""


def test_a_key_becomes_a_cookie_that_is_good_for_pages_alone(product: Product) -> None:
    with browser(product) as reader:
        first = reader.get("/debug/reads?limit=5")
        assert first.headers["location"] == "/debug/login?next=%2Fdebug%2Freads%3Flimit%3D5"
        assert KEY not in reader.get(first.headers["location"]).text
        answer = reader.post("/debug/login", data={"key": ADMIN, "next": "/debug/reads?limit=5"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/debug/reads?limit=5")
        said = answer.headers["set-cookie"]
        assert "Path=/debug;" in said and "HttpOnly" in said and "SameSite=Strict" in said and "Secure" not in said
        cookie = {"cookie": said.partition(";")[0]}
        for path in ("/audit/calls", "/v1/models", "/metrics"):
            assert reader.get(path, headers=cookie).status_code == 401


def test_a_key_that_may_not_read_is_refused(product: Product) -> None:
    with browser(product) as app:
        answer = app.post("/debug/login", data={"key": CLIENT_KEY})
        assert answer.status_code == 403 and "auditor" in answer.text and not answer.cookies


def test_headers_are_on_every_answer(product: Product) -> None:
    with contextlib.closing(log_in(product, KEY)) as reader:
        for method, path in (
            ("GET", "/debug/login"), ("GET", "/debug/none"), ("PUT", "/debug"), ("POST", "/debug/login"), ("GET", "/debug/calls?x=%00"),
            ("OPTIONS", "/debug/calls"), ("HEAD", "/debug"), ("GET", "/debug/static/x/app.css"), ("GET", "/debug?format=json"),
        ):  # fmt: skip
            answer = reader.request(method, path)
            assert dict(answer.headers).items() >= SAFE.items(), (method, path)
            assert answer.headers["content-security-policy"].startswith("default-src 'none'"), (method, path)
            assert answer.status_code < 500, (method, path)
        with httpx.Client(base_url=product.url) as stranger:
            answer = stranger.get("/debug", headers={"host": "evil.example"})
            assert answer.status_code == 421 and dict(answer.headers).items() >= SAFE.items()
