"""The live view in a browser: what is held is marked and then decided without reloading, and who reads above is left in peace."""

import pytest

from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.service.test_live import Call
from tests.support.servers.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(90)]


def test_a_tool_call_is_marked_held_and_then_blocked_without_reloading(tab: Tab, product: Product) -> None:
    tab.open("/debug/calls")
    call = Call(product, "slowly with gap 700 ms delete everything with rm -rf")
    tab.open(f"/debug/calls/{call.id}/live")
    tab.evaluate("window.same = true")
    row = tab.page.locator("[data-live-blocks] section").nth(1)
    row.locator(".verdict", has_text="HELD").wait_for()
    assert "waits for the rest of its arguments" in row.inner_text() and row.locator(".held").count() == 1
    row.locator(".verdict", has_text="BLOCKED").wait_for()
    assert '{"command": "rm -rf /"}' in row.inner_text()
    row.locator(".got", has_text="Sluice did not let the tool call").wait_for()
    tab.page.get_by_text("The call has ended: complete. Its story has all of it.").wait_for()
    assert tab.page.locator("[data-live-blocks] section").first.locator(".old").inner_text() == "Let me do that."
    assert tab.evaluate("window.same === true"), "it was not loaded again"
    assert tab.page.locator("[role=status][data-live-say]").get_attribute("aria-live") == "polite"
    call.stop()


def test_who_scrolls_up_stays_there_and_is_told_how_much_is_new(tab: Tab, product: Product) -> None:
    call = Call(product, "slowly with gap 10 ms, long 3000")
    tab.page.set_viewport_size({"width": 390, "height": 400})
    tab.open(f"/debug/calls/{call.id}/live")
    tab.page.wait_for_function("() => document.documentElement.scrollHeight > 3 * innerHeight && scrollY > innerHeight")
    tab.evaluate("window.scrollTo(0, 0)")
    jump = tab.page.locator("[data-live-new] button")
    jump.wait_for()
    tab.page.wait_for_function("() => parseInt(document.querySelector('[data-live-new] button').textContent) > 20")
    assert tab.evaluate("scrollY") == 0
    jump.click()
    tab.page.wait_for_function("() => innerHeight + scrollY >= document.documentElement.scrollHeight - 40")
    tab.page.get_by_text("Stop following").click()
    tab.page.get_by_text("stopped").wait_for()
    call.stop()


def test_without_script_the_page_says_so(new_tab: NewTab, product: Product) -> None:
    tab = new_tab(js=False)
    call = Call(product, "slowly with gap 20 ms, long 3000")
    tab.open(f"/debug/calls/{call.id}/live")
    assert "Following a call needs JavaScript" in tab.text and not tab.page.locator("[data-live]").is_visible()
    call.stop()
