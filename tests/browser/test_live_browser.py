"""The live view in a browser: what is held is marked and then decided without reloading, and who
reads above is left in peace."""

import statistics
import time
from pathlib import Path

import pytest

from pages.call.tail import MOST_OF_LOGIN
from tests.browser.axe import over, shut_out
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.support.clients.followed_call import Call
from tests.support.servers.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(90)]
_HIDE = """hidden => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});
    document.dispatchEvent(new Event('visibilitychange')) }"""
_NOTE_CLOCKS = """() => { window.seen = []; const box = document.querySelector('[data-live-blocks]');
    new MutationObserver(() => { const found = [...box.textContent.matchAll(/@([0-9]+);/g)];
        for (const one of found.slice(seen.length)) seen.push([one[1], Date.now()]) })
        .observe(box, {subtree: true, characterData: true, childList: true}) }"""
LATE_MS = 250


def test_a_tool_call_is_marked_held_and_then_blocked_without_reloading(
    tab: Tab, product: Product
) -> None:
    tab.open("/debug")
    open_ = tab.page.locator("tr[data-call]")
    tab.page.get_by_text("live, once a second").wait_for()
    call = Call(product, "slowly with gap 700 ms delete everything with rm -rf")
    open_.filter(has_text=call.id[:8]).wait_for()
    assert open_.locator("td").all_inner_texts()[1:4] == ["dev", "demo", "default"]
    assert open_.locator(f"a[href='/debug/calls/{call.id}/live']").inner_text() == "Live"
    tab.open(f"/debug/calls/{call.id}/live")
    tab.evaluate("window.same = true")
    row = tab.page.locator("[data-live-blocks] section").nth(1)
    row.locator(".verdict", has_text="HELD").wait_for()
    assert (
        "waits for the rest of its arguments" in row.inner_text()
        and row.locator(".held").count() == 1
    )
    assert "HELD" in row.aria_snapshot()
    row.locator(".verdict", has_text="BLOCKED").wait_for()
    assert '{"command": "rm -rf /"}' in row.inner_text()
    row.locator(".got", has_text="Sluice blocked the tool call").wait_for()
    tab.page.get_by_text("The call has ended: complete. Its story has all of it.").wait_for()
    assert (
        tab.page.locator("[data-live-blocks] section").first.locator(".old").inner_text()
        == "Let me do that."
    )
    assert tab.evaluate("window.same === true"), "it was not loaded again"
    assert tab.page.locator("[role=status][data-live-say]").get_attribute("aria-live") == "polite"
    call.stop()


def test_who_scrolls_up_stays_there_and_is_told_how_much_is_new(tab: Tab, product: Product) -> None:
    call = Call(product, "slowly with gap 10 ms, long 3000")
    tab.page.set_viewport_size({"width": 390, "height": 400})
    tab.open(f"/debug/calls/{call.id}/live")
    tab.page.wait_for_function(
        "() => document.documentElement.scrollHeight > 3 * innerHeight && scrollY > innerHeight"
    )
    tab.evaluate("window.scrollTo(0, 0)")
    jump = tab.page.locator("[data-live-new] button")
    jump.wait_for()
    tab.page.wait_for_function(
        "() => parseInt(document.querySelector('[data-live-new] button').textContent) > 20"
    )
    assert tab.evaluate("scrollY") == 0
    jump.click()
    tab.page.wait_for_function(
        "() => innerHeight + scrollY >= document.documentElement.scrollHeight - 40"
    )
    tab.page.get_by_text("Stop following").click()
    tab.page.get_by_text("stopped").wait_for()
    call.stop()


def test_what_upstream_says_is_on_the_screen_at_once(tab: Tab, product: Product) -> None:
    call = Call(product, "slowly with gap 50 ms, long 60 clock")
    tab.open(f"/debug/calls/{call.id}/live")
    tab.evaluate(_NOTE_CLOCKS)
    tab.page.wait_for_function("() => seen.length >= 60")
    to_wall = time.time_ns() - time.monotonic_ns()
    # the first ones were there before the page was
    late = [at - (int(clock) + to_wall) / 1e6 for clock, at in tab.evaluate("seen")[-20:]]
    assert statistics.median(late) <= LATE_MS, late
    call.stop()


def test_seven_tabs_of_a_browser_load_because_hidden_ones_give_up_their_places(
    tab: Tab, product: Product
) -> None:
    """Of one browser, which opens six connections to a host at most."""
    call = Call(product, "slowly with gap 20 ms, long 3000")
    tabs = [tab, *(Tab(tab.page.context, product.url) for _ in range(MOST_OF_LOGIN + 1))]
    assert len(tabs) == 7
    for one in tabs:
        one.open(f"/debug/calls/{call.id}/live")
        one.page.locator("[data-live-state]", has_text="LIVE").wait_for()
        one.evaluate(_HIDE, one is not tabs[-1])
    first = tabs[0].page.locator("[data-live-blocks]")
    before = first.inner_text()
    tabs[0].evaluate(_HIDE, False)
    tabs[0].page.wait_for_function(
        "had => document.querySelector('[data-live-blocks]').textContent.length > had",
        arg=len(before) + 50,
    )
    assert "word1 word2 word3" in first.inner_text() and first.inner_text().count("word7 ") == 1
    for one in tabs[1:]:
        one.check()
    call.stop()


def test_an_open_call_shuts_nobody_out(new_tab: NewTab, product: Product, axe: Path) -> None:
    tab = new_tab(bypass_csp=True, size=(320, 800))
    call = Call(product, "slowly with gap 1500 ms delete everything with rm -rf")
    tab.open(f"/debug/calls/{call.id}/live")
    tab.page.locator("[data-live-blocks] .verdict", has_text="HELD").wait_for()
    assert over(tab) <= 0 and shut_out(tab, axe) == []
    call.stop()


def test_without_script_the_page_says_so(new_tab: NewTab, product: Product) -> None:
    tab = new_tab(js=False)
    call = Call(product, "slowly with gap 20 ms, long 3000")
    tab.open(f"/debug/calls/{call.id}/live")
    assert (
        "Following a call needs JavaScript" in tab.text
        and not tab.page.locator("[data-live]").is_visible()
    )
    call.stop()
