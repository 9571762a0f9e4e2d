"""The page of a call in a browser: what is copied, its pages, and what readers say of it."""

import pytest

from tests.browser.calls import Calls
from tests.browser.tab import Tab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
IN_VIEW = (
    "id => { const at = document.getElementById(id).getBoundingClientRect(); return at.top >= 0 &&"
    " at.top < innerHeight }"
)


def test_arguments_are_copied_as_they_are_stored(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['blocked']}")
    tab.page.click("text=Copy arguments")
    tab.page.wait_for_function(
        "() => document.querySelector('.toast').textContent.startsWith('Copied')"
    )
    assert tab.evaluate("navigator.clipboard.readText()") == '{"command": "rm -rf /"}'


def test_a_call_of_many_blocks_has_pages_and_a_link_to_each_block(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?limit=25&q=59")
    tab.page.locator("tr[data-row]", has_text="echo 59").locator("a[data-open]").first.click()
    tab.page.wait_for_url("**/debug/calls/*")
    block = tab.path.rpartition("#")[2]
    assert "of 60" in tab.text or "of 61" in tab.text
    assert "echo 59" in tab.page.inner_text(f"#{block}") and tab.evaluate(IN_VIEW, block)


def test_a_call_that_was_labelled_says_so(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['judged']}")
    tab.page.fill("form.labels input[name=note]", "it was harmless")
    tab.page.click("form.labels button[value=wrong]")
    tab.page.wait_for_url("**/debug/calls/*#b*")
    assert "Labelled wrong by dev: it was harmless" in tab.text.replace("\n", " ")
