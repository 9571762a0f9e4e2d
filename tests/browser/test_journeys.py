"""Whole ways of readers through the pages, from the login on."""

import re

import pytest

from tests.browser.calls import Calls
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.support.servers.product import CLIENT_KEY, KEY

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]


def test_wrong_key_right_key_and_the_page_that_was_asked_for(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(key=None)
    tab.open("/debug/tool-calls?verdict=block#x")
    assert tab.path.startswith("/debug/login?next=") and "bash" not in tab.text
    tab.page.fill("#key", CLIENT_KEY)
    tab.page.click("main button")
    assert "auditor" in tab.page.get_by_role("alert").inner_text()
    tab.page.fill("#key", KEY)
    tab.page.click("main button")
    tab.page.wait_for_url("**/debug/tool-calls?verdict=block*")
    assert "rm -rf /" in tab.text
    assert not any(KEY in url for url in tab.asked) and KEY not in tab.page.content()


def test_a_refused_call_is_three_clicks_away_and_its_link_shows_others_the_same_block(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab()
    tab.open("/debug")
    tab.page.get_by_role("link", name="Tools").click()
    tab.page.get_by_role("link", name="Blocked").click()
    tab.page.locator("tr[data-row]", has_text="rm -rf").locator(f"a[data-open][href*='{made['blocked']}']").click()
    tab.page.wait_for_url(f"**/debug/calls/{made['blocked']}*")
    assert tab.path.endswith("#b1")
    _sees_the_refusal(tab)
    tab.page.keyboard.press("y")
    tab.page.wait_for_function("() => document.querySelector('.toast').textContent !== ''")
    link = str(tab.evaluate("navigator.clipboard.readText()"))
    assert link.endswith("?at=b1"), link
    other = new_tab(key=None)
    other.open(link.removeprefix(other.origin))
    other.page.fill("#key", KEY)
    other.page.click("main button")
    other.page.wait_for_url(f"**/debug/calls/{made['blocked']}#b1")
    _sees_the_refusal(other)


def _sees_the_refusal(tab: Tab) -> None:
    block = tab.page.locator("#b1")
    said = block.inner_text()
    assert "asked for, never released" in said and "rm -rf /" in said and re.search("blocked", said, re.IGNORECASE), said
    assert "Sluice did not let the tool call 'bash' run" in said
    box = block.bounding_box()
    assert box is not None and 0 <= box["y"] < tab.evaluate("innerHeight")


def test_the_same_way_by_keyboard_alone(tab: Tab, made: Calls) -> None:
    tab.open("/debug")
    for key in ("g", "t"):
        tab.page.keyboard.press(key)
    tab.page.wait_for_url("**/debug/tool-calls")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type(made["blocked"])
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**/debug/calls/{made['blocked']}")
    focused = "getComputedStyle(document.activeElement).outlineStyle"
    tab.page.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip" and tab.evaluate(focused) != "none"
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("j")
    assert tab.page.locator(".at").get_attribute("id") == "b1"
    tab.page.keyboard.press("d")
    tab.page.wait_for_url("**/diff*")


def test_back_leads_to_the_same_rows_at_the_same_place(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?limit=25&key=dev")
    tab.page.click("text=Older ›")
    rows = "[...document.querySelectorAll('tr[data-row]')].map(row => row.id)"
    second = tab.evaluate(rows)
    tab.page.click("text=Older ›")
    third = tab.evaluate(rows)
    tab.evaluate("window.scrollTo(0, 600)")
    tab.page.locator("a[data-open]").nth(12).click()
    tab.page.wait_for_url("**/debug/calls/**")
    tab.page.go_back()
    tab.page.wait_for_url("**/debug/tool-calls?**")
    in_view = "id => { const at = document.getElementById(id).getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight }"
    tab.page.wait_for_function(in_view, arg=third[12])
    assert tab.evaluate(rows) == third
    tab.page.go_back()
    tab.page.wait_for_function(f"first => {rows}[0] === first", arg=second[0])
    assert tab.evaluate(rows) == second


def test_each_outcome_has_its_own_words(tab: Tab, made: Calls) -> None:
    for name, words in (
        ("allowed", ["released, unchanged", "ls -la"]),
        ("blocked", ["asked for, never released", "rm -rf /", "by rule"]),
        ("judged", ["asked for, never released", "0.97", "0.60", "demo-judge"]),
        ("upper", ["replaced"]),
        ("broken", ["failed"]),
    ):
        tab.open(f"/debug/calls/{made[name]}")
        text = tab.page.inner_text("main").lower()
        assert all(word.lower() in text for word in words), (name, words, text[:1500])


def test_logged_out_is_logged_out(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(key=None)
    tab.open("/debug/login")
    tab.page.fill("#key", KEY)
    tab.page.click("main button")
    tab.page.wait_for_url("**/debug")
    tab.open(f"/debug/calls/{made['blocked']}")
    tab.page.click(".menu summary")
    tab.page.get_by_role("button", name="Log out").click()
    tab.page.wait_for_url("**/debug/login*")
    tab.page.go_back()
    tab.page.wait_for_url("**/debug/login*")
    assert "rm -rf" not in tab.text


def test_a_printed_call_has_no_navigation_and_all_of_its_words(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['blocked']}")
    tab.page.emulate_media(media="print")
    assert not tab.page.locator(".head").is_visible() and not tab.page.locator(".tabs").first.is_visible()
    assert tab.page.locator("#b1").is_visible()
    assert tab.page.pdf().startswith(b"%PDF")


def test_find_in_page_finds_a_word_of_the_last_block(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['many']}")
    while tab.page.get_by_role("link", name="After ›").count():
        with tab.page.expect_navigation():
            tab.page.get_by_role("link", name="After ›").first.click()
    assert tab.evaluate("window.find('echo 59')")
