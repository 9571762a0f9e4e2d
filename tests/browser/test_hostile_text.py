"""Whatever clients, models and judges said is text: no payload acts, makes an element, or hides."""

import re
from urllib.parse import quote

import pytest

from tests.browser import hostile
from tests.browser.addresses import NAMES, PAGES, address
from tests.browser.calls import BASH, Calls
from tests.browser.conftest import NewTab
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.case("A5"), pytest.mark.timeout(240)]
_CANARY = "window.hits = 0; window.canary = () => { window.hits++ }"
_PAGES = [name for name in NAMES if "{" in PAGES[name]]


@pytest.fixture(scope="module")
def pair(made: Calls) -> Calls:
    """A call full of payloads, and its twin."""
    for name, change in (("hostile", str), ("harmless", hostile.twin)):
        texts = [change(text) for text in hostile.PAYLOADS]
        body = {
            "model": f"script-{name}", "stream": True, "tools": [BASH],
            "messages": [{"role": "system", "content": "\n".join(texts)}, *({"role": "user", "content": text} for text in texts)],
            "metadata": {texts[0]: texts[1]}, "user": texts[2],
        }  # fmt: skip
        session = re.sub(r"[^\x20-\x7e]", "?", change(hostile.MARKUP[9]))
        made.send(name, body, **{"x-sluice-session": session, "user-agent": re.sub(r"[^\x20-\x7e]", "?", change(hostile.MARKUP[16]))})
        made.ids[f"{name}-session"] = session
    made.settled_of("hostile", "harmless")
    return made


def test_a_call_full_of_payloads_is_a_call_full_of_text(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)

    def kinds(name: str, which: str) -> dict[str, int]:
        tab.open(address(name, Calls(pair.product, dict.fromkeys(pair.ids, pair[which]))))
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert tab.evaluate("window.hits") == 0
        tab.check()
        # how many words differ depends on the words: of a diff the kinds of elements are the same
        # and how long each step took, and so which of them the bar names, is nobody's text
        found = {kind: number for kind, number in tab.kinds().items() if not kind.startswith(("rect.t-", "SPAN.k-"))}
        return dict.fromkeys(found, 1) if name == "diff" else found

    def is_sealed(which: str) -> bool:
        return "✓ sealed" in tab.open(f"/debug/calls/{pair[which]}").text

    wait_for(lambda: is_sealed("hostile") and is_sealed("harmless"), what="seals of both", timeout_s=15)
    for name in _PAGES:
        assert kinds(name, "hostile") == kinds(name, "harmless"), name


def test_lists_show_payloads_as_text(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    for path in ("/debug/calls?call_id={}", "/debug/tool-calls?limit=100&call_id={}", "/debug/judge-blocks?call_id={}"):
        counts: list[object] = []
        for which in ("hostile", "harmless"):
            tab.open(path.format(pair[which]))
            counts.append(tab.kinds())
        assert counts[0] == counts[1] and tab.evaluate("window.hits") == 0, path
    tab.open(f"/debug/tool-calls?limit=100&call_id={pair['hostile']}")
    shown = tab.page.inner_text("main")
    assert "\\u202e" in shown and "\\u2066" in shown and "\\U000e0068" in shown and "<svg onload=" in shown
    for hidden in "\x00\x1b\u202e\u2066\u200b\ufeff\u2028":
        assert hidden not in shown, repr(hidden)


def test_what_is_asked_for_comes_back_as_text(new_tab: NewTab, made: Calls) -> None:
    """In the address: filters, the search box, and parts of the path."""
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    for text in hostile.PAYLOADS:
        given = quote(text[:150], safe="")
        if "\x00" in text:
            tab.open(f"/debug/calls?key={given}", status=400)
            continue
        tab.open(f"/debug/calls?key={given}&session={given}&name={given}")
        assert "Nothing matches" in tab.text and tab.evaluate("window.hits") == 0, text
        tab.check()
    for text in hostile.PAYLOADS[::9]:
        tab.open(f"/debug/search?q={quote(text, safe='')}")
        tab.page.goto(f"{tab.origin}/debug/calls/{quote(text, safe='')}")
        assert tab.evaluate("window.hits") == 0, text


def test_a_label_note_is_text(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    for text in hostile.PAYLOADS[::7]:
        tab.open(f"/debug/judge-blocks?call_id={made['judged']}&said={made['judged']}-1")
        tab.page.get_by_role("button", name="Wrong").or_(tab.page.get_by_role("button", name="Keep")).first.click()
        if tab.page.locator("input[name=note]").count() == 0:
            continue
        tab.page.fill("input[name=note]", text)
        tab.page.click("text=Keep")
        assert tab.evaluate("window.hits") == 0
