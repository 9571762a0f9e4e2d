"""The page of a call in a browser: found in three clicks, its words, its links, and what is copied."""

import pytest

from tests.browser.calls import Calls
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
IN_VIEW = "id => { const at = document.getElementById(id).getBoundingClientRect(); return at.top >= 0 && at.top < innerHeight }"


def test_the_blocked_call_is_three_clicks_away_and_its_link_leads_to_the_same_block(tab: Tab, new_tab: NewTab, made: Calls) -> None:
    tab.open("/debug")
    tab.page.click("nav a[data-go=t]")
    tab.page.locator(".tabs a[href*='verdict=block']").click()
    tab.page.locator("tr[data-row]", has_text="rm -rf").locator("a[data-open]").first.click()
    tab.page.wait_for_url("**/debug/calls/*")
    assert "asked for, never released" in tab.text and "rm -rf" in tab.text
    block = tab.path.rpartition("#")[2]
    tab.page.keyboard.press("y")
    tab.page.wait_for_function("() => document.querySelector('.toast').textContent === 'Link copied'")
    link = tab.evaluate("navigator.clipboard.readText()")
    assert f"at={block}" in link
    other = new_tab()
    other.page.goto(link)
    assert other.path.endswith(f"#{block}") and other.evaluate(IN_VIEW, block)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("allowed", ["2 allowed", "asked for, released unchanged", "ls -la"]),
        ("blocked", ["1 blocked", "asked for, never released", "The client got", "[Sluice did not let the tool call 'bash' run"]),
        ("judged", ["BLOCKED", "by judge", "demo-judge", "Was the judge right?"]),
        ("upper", ["1 replaced", "released, changed", "I AM THE DEMO MODEL"]),
        ("broken", ["failed", "what came of it was released", "The upstream ended its answer with an error"]),
    ],
)
def test_what_became_of_a_call_is_told_without_a_script(new_tab: NewTab, made: Calls, name: str, words: list[str]) -> None:
    tab = new_tab(js=False).open(f"/debug/calls/{made[name]}")
    assert [word for word in words if word not in tab.text] == []
    tab.open(f"/debug/calls/{made[name]}/diff")
    changed = tab.page.locator("article").count()
    assert changed == (0 if name in ("allowed", "broken") else 1), tab.text


def test_arguments_are_copied_as_they_are_stored(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['blocked']}")
    tab.page.click("text=Copy arguments")
    tab.page.wait_for_function("() => document.querySelector('.toast').textContent.startsWith('Copied')")
    assert tab.evaluate("navigator.clipboard.readText()") == '{"command": "rm -rf /"}'


def test_the_browsers_own_search_finds_the_last_word(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['long']}/text")
    assert tab.evaluate("find('client got: release')") and tab.evaluate("find('⟦end⟧')")
    tab.open(f"/debug/calls/{made['many']}?page=2")
    assert tab.evaluate("find('echo 59')")


def test_a_call_of_many_blocks_has_pages_and_a_link_to_each_block(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?limit=25&q=59")
    tab.page.locator("tr[data-row]", has_text="echo 59").locator("a[data-open]").first.click()
    tab.page.wait_for_url("**/debug/calls/*")
    block = tab.path.rpartition("#")[2]
    assert "of 60" in tab.text or "of 61" in tab.text
    assert "echo 59" in tab.page.inner_text(f"#{block}") and tab.evaluate(IN_VIEW, block)


def test_a_call_that_was_marked_says_so(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['judged']}")
    tab.page.fill("form.marks input[name=note]", "it was harmless")
    tab.page.click("form.marks button[value=wrong]")
    tab.page.wait_for_url("**/debug/calls/*#b*")
    assert "Marked wrong by dev: it was harmless" in tab.text.replace("\n", " ")


def test_keys_go_to_the_tabs_of_a_call(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['blocked']}")
    tab.page.keyboard.press("w")
    tab.page.wait_for_url("**/wire")
    tab.page.keyboard.press("d")
    tab.page.wait_for_url("**/diff")
