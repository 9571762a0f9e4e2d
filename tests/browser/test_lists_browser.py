"""The lists in a browser: filters, chips, times, pages both ways, keys, themes, labels."""

import re

import pytest

from pages.render import short
from tests.browser.calls import Calls
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]


def test_a_shared_link_with_a_relative_time_means_the_same_tomorrow(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?since=-15m&verdict=block")
    assert re.fullmatch(
        r"/debug/tool-calls\?since=\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\dZ&verdict=block", tab.path
    ), tab.path
    rows = tab.page.locator("tr[data-row]")
    assert rows.count() >= 2
    assert all("blocked" in text for text in rows.all_inner_texts())


def test_a_form_leaves_out_what_is_empty_and_a_chip_takes_away(tab: Tab, made: Calls) -> None:
    tab.open("/debug/calls")
    tab.page.fill("input[name=key]", "dev")
    tab.page.select_option("select[name=state]", "FAILED")
    tab.page.click("button.primary")
    tab.page.wait_for_url("**/debug/calls?*")
    assert tab.path == "/debug/calls?state=FAILED&key=dev"
    assert {"client_gone", "ended"}.isdisjoint(
        tab.page.locator("tbody td:nth-child(2)").all_inner_texts()
    )
    assert tab.follow("[aria-label='Remove the filter state']") == "/debug/calls?key=dev"


def test_pages_go_older_and_newer_by_key_and_by_link(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?limit=25")
    first = tab.page.locator("tr[data-row]").first.get_attribute("id")
    assert "more follow" in tab.page.inner_text(".pager")
    tab.follow("text=Older ›")
    second = tab.page.locator("tr[data-row]").first.get_attribute("id")
    assert second != first
    tab.press_to_go("[")
    assert tab.page.locator("tr[data-row]").first.get_attribute("id") == first
    tab.press_to_go("]")
    assert tab.page.locator("tr[data-row]").first.get_attribute("id") == second


def test_keys_move_open_search_and_help(tab: Tab, made: Calls) -> None:
    tab.open("/debug/calls")
    for _ in range(2):
        tab.page.keyboard.press("j")
    assert (
        tab.evaluate(
            "[...document.querySelectorAll('tr[data-row]')].findIndex(row => row.matches('.at'))"
        )
        == 1
    )
    tab.page.keyboard.press("?")
    assert tab.page.locator("#help").is_visible()
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "find"
    tab.page.keyboard.type("jjj")
    assert tab.page.input_value("#find") == "jjj"
    tab.page.keyboard.press("Escape")
    tab.evaluate("document.activeElement.blur()")
    tab.page.keyboard.press("g")
    tab.page.keyboard.press("j")
    tab.page.wait_for_url("**/debug/judge-blocks")


def test_enter_opens_the_row(tab: Tab, made: Calls) -> None:
    tab.open("/debug/calls?call_id=" + made["blocked"])
    tab.page.keyboard.press("j")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**/debug/calls/{made['blocked']}*")


def test_keys_can_be_switched_off(tab: Tab, made: Calls) -> None:
    tab.open("/debug/calls")
    tab.page.keyboard.press("?")
    tab.page.click("[data-keys-switch]")
    tab.page.keyboard.press("Escape")
    tab.open("/debug/calls")
    tab.page.keyboard.press("j")
    assert tab.page.locator("tr.at").count() == 0


def test_a_time_has_its_zone_and_says_both(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(zone="Asia/Kathmandu").open("/debug/calls")
    time = tab.page.locator("tbody time").first
    utc = time.inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", utc), utc
    tab.page.click("[data-zone-switch]")
    local = time.inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+05:45", local), local
    assert utc.replace(" ", "T") in (time.get_attribute("title") or "") and local in (
        time.get_attribute("title") or ""
    )
    tab.open("/debug/calls")
    assert tab.page.locator("tbody time").first.inner_text() == local


def test_the_theme_follows_the_system_until_somebody_chooses(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(dark=True).open("/debug/calls")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(back)
    tab.page.click("[data-theme-switch]")
    light = tab.evaluate(back)
    tab.open("/debug/tool-calls")
    assert tab.evaluate(back) == light != dark


@pytest.mark.parametrize("js", [True, False], ids=["js", "no-js"])
def test_a_reader_labels_a_decision_and_says_why(new_tab: NewTab, made: Calls, js: bool) -> None:
    tab = new_tab(js=js).open(f"/debug/judge-blocks?call_id={made['judged']}")
    row = tab.page.locator("tr[data-row]")
    assert "0.97" in row.inner_text() and "0.60" in row.inner_text()
    row.get_by_role("button", name="Wrong").click()
    assert "wrong" in row.inner_text()
    tab.page.fill("input[name=note]", "it was <b>asked</b> for")
    tab.page.click("text=Keep")
    assert "it was <b>asked</b> for" in row.inner_text()
    tab.open("/debug/judge-blocks?label=right")
    assert "Nothing matches" in tab.text
    row.first.wait_for(state="detached")


def test_the_search_box_finds_by_name(tab: Tab, made: Calls) -> None:
    for text, to in (
        (made["blocked"][:23], f"/debug/calls/{made['blocked']}"),
        (short(made["blocked"]), f"/debug/calls/{made['blocked']}"),
        ("s-1", "/debug/sessions/dev/s-1"),
        ("dev", "/debug/keys/dev"),
    ):
        tab.open("/debug/calls")
        tab.page.fill("#find", text)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_url(f"**{to}")


def test_empty_is_not_failed(tab: Tab, made: Calls) -> None:
    tab.open("/debug/calls?session=none&since=2026-01-01")
    assert (
        "Nothing matches" in tab.text
        and tab.page.get_by_role("link", name="all of it").count() == 1
    )
    tab.open("/debug/calls?nobody=1", status=400)
    assert "nobody" in tab.text
