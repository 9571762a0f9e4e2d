"""A person logs in to the pages at a provider, in a browser: there, back to the page that was asked
for, and out by the provider's word."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.oidc.product import beside_provider
from tests.support.servers.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, str]]:
    """A gateway and its pages, and the address of the provider."""
    with beside_provider(tmp_path_factory.mktemp("oidc"), redis_url, database_url) as both:
        yield both


def log_in(page: Page, name: str) -> None:
    """Go to the provider and fill in its forms."""
    page.get_by_role("link", name="Log in as yourself").click()
    page.locator("input[name=login]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.get_by_text("Continue").click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_person_comes_back_to_the_page_that_was_asked_for(
    browser: Browser, served: tuple[Product, str], theme: str
) -> None:
    product, issuer = served
    context = browser.new_context(color_scheme="dark" if theme == "dark" else "light")
    try:
        page = context.new_page()
        page.goto(f"{product.url}/debug/calls?limit=5")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        log_in(page, "ann")
        expect(page.get_by_role("heading", name="Calls")).to_be_visible()
        assert page.url == f"{product.url}/debug/calls?limit=5"
        expect(page.get_by_text("The person ann (oidc:ann)")).to_be_visible()
        assert page.evaluate("document.cookie") == ""
        # the login in progress is over; the provider's own are of this machine too
        ours = [cookie for cookie in context.cookies() if "sluice" in cookie["name"]]
        assert [(cookie["name"], cookie["sameSite"]) for cookie in ours] == [
            ("sluice_pages", "Strict")
        ]
        # logged out there, and so here
        page.goto(f"{issuer}/session/end")
        page.locator("button[name=logout]").click()
        page.wait_for_load_state()
        page.goto(f"{product.url}/debug/calls")
        expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    finally:
        context.close()


def test_whoever_has_no_role_is_shown_why(browser: Browser, served: tuple[Product, str]) -> None:
    product, _ = served
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{product.url}/debug")
        log_in(page, "nobody-bob")
        expect(page.get_by_role("alert")).to_contain_text("have no role here")
    finally:
        context.close()
