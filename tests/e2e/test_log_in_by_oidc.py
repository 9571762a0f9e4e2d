"""People log in to the pages at a provider that is in wide use, as a browser does it there and
back; and what it says of them later holds."""

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import urljoin

import httpx2 as httpx
import psycopg
import pytest

from tests.support.oidc.product import beside_provider
from tests.support.servers.product import Product
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, str]]:
    """A gateway and its pages, and the address of the provider."""
    with beside_provider(tmp_path_factory.mktemp("oidc"), redis_url, database_url) as both:
        yield both


def log_in(product: Product, browser: httpx.Client, name: str, target: str) -> httpx.Response:
    """Go to the provider, fill in its forms, and come back."""
    login = browser.get(target)
    link = re.search(r'href="([^"]*/debug/login/oidc[^"]*)"', login.text)
    assert link, login.text
    page = browser.get(unescape(link[1]))
    for _ in range(3):
        if str(page.url).startswith(product.url):
            break
        form = re.search(r'<form[^>]* action="([^"]+)"', page.text)
        assert form, page.text
        prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
        assert prompt, page.text
        page = browser.post(
            urljoin(str(page.url), unescape(form[1])),
            data={"prompt": prompt[1], "login": name, "password": "any"},
        )
    return page


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    """A browser, as far as that goes without scripts."""
    headers = {"accept": "text/html", "sec-fetch-site": "cross-site"}
    headers |= {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    with httpx.Client(headers=headers, follow_redirects=True, timeout=20) as made:
        yield made


def test_a_person_logs_in_and_is_logged_out_by_the_provider(
    served: tuple[Product, str], browser: httpx.Client
) -> None:
    product, issuer = served
    target = f"{product.url}/debug/login?next=/debug/calls"
    page = log_in(product, browser, "ann", target)
    assert page.status_code == 200 and 'url=/debug/calls"' in page.text, page.text
    page = browser.get(f"{product.url}/debug/calls?again=1")
    assert page.status_code == 200 and "The person ann (oidc:ann)" in page.text
    with psycopg.connect(product.database_url) as owner:
        reads = owner.execute("SELECT DISTINCT key FROM reads").fetchall()
        assert reads == [("The person ann (oidc:ann)",)]
    # the form that asks whether to log out at the provider
    asked = browser.get(f"{issuer}/session/end")
    secret = re.search(r'name="xsrf" value="(\w+)"', asked.text)
    assert secret, asked.text
    done = browser.post(f"{issuer}/session/end/confirm", data={"xsrf": secret[1], "logout": "yes"})
    assert done.status_code == 200, done.text
    wait_for(lambda: "<h1>Log in</h1>" in browser.get(f"{product.url}/debug/calls?again=1").text)


def test_roles_are_those_of_the_provider_s_groups(
    served: tuple[Product, str], browser: httpx.Client
) -> None:
    product, _ = served
    log_in(product, browser, "admin-eve", f"{product.url}/debug/login")
    assert browser.get(f"{product.url}/debug/reads?again=1").status_code == 200


def test_a_person_without_a_role_is_not_let_in(
    served: tuple[Product, str], browser: httpx.Client
) -> None:
    product, _ = served
    page = log_in(product, browser, "nobody-bob", f"{product.url}/debug/login")
    assert page.status_code == 403 and "no role here" in page.text
    assert "<h1>Log in</h1>" in browser.get(f"{product.url}/debug/calls?again=1").text
