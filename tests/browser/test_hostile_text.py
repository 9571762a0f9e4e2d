"""Whatever clients, models and judges said is text: no payload acts, makes an element, or hides."""

import json
import re
import unicodedata
from urllib.parse import quote

import pytest

from tests.browser import hostile
from tests.browser.addresses import NAMES, PAGES, address
from tests.browser.calls import BASH, Calls
from tests.browser.conftest import ADMIN, NewTab
from tests.browser.tab import Tab
from tests.support.clients.followed_call import Call
from tests.support.upstreams.judges import JudgeModel
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.case("A5"), pytest.mark.timeout(240)]
_CANARY = "window.hits = 0; window.canary = () => { window.hits++ }"
_PAGES = [name for name in NAMES if "{" in PAGES[name]]
_FOREIGN = (
    ":is(script, img, iframe, object, embed, base, style, link, meta, math, video, audio, marquee,"
    " slot)"
)
"""What no template makes there."""


@pytest.fixture(scope="module")
def pair(made: Calls, judges: JudgeModel) -> Calls:
    """A call full of payloads and an upstream's error full of them, and their twins."""
    for name, change in (("harmless", hostile.twin), ("hostile", str)):
        texts = [change(text) for text in hostile.PAYLOADS]
        # two in each: every other call is judged
        judges.explanations = [" ".join(texts[at : at + 2]) for at in range(0, len(texts), 2)]
        judges.asked.clear()
        body = {
            "model": f"script-{name}",
            "stream": True,
            "tools": [BASH],
            "messages": [
                {"role": "system", "content": "\n".join(texts)},
                *({"role": "user", "content": text} for text in texts),
            ],
            "metadata": {texts[0]: texts[1]},
            "user": texts[2],
        }
        session, agent = (
            re.sub(r"[^\x20-\x7e]", "?", change(hostile.MARKUP[at])) for at in (9, 16)
        )
        made.send(
            name,
            body,
            **{"x-sluice-session": session, "user-agent": agent, "x-sluice-policy": name},
        )
        assert made.chat(f"{name}-error", "\n".join(texts), model=f"script-{name}-error") == 400
        made.ids[f"{name}-session"] = session
        made.settled_of(name, f"{name}-error")
    return made


def _addresses(pair: Calls, which: str) -> dict[str, str]:
    """Where what is hostile is shown: each tab of the call, and what was said of it elsewhere."""
    of_call = Calls(pair.product, dict.fromkeys(pair.ids, pair[which]))
    session, error = quote(pair[f"{which}-session"], safe=""), pair[f"{which}-error"]
    return {
        **{
            name: path
            for path, name in {address(name, of_call): name for name in reversed(_PAGES)}.items()
        },
        **{f"error {tab}": f"/debug/calls/{error}{tab}" for tab in ("", "/wire", "/request")},
        "session": f"/debug/sessions/dev/{session}",
        "policy": f"/debug/policies/{which}",
        "calls": f"/debug/calls?call_id={pair[which]}",
        "tool calls": f"/debug/tool-calls?limit=100&call_id={pair[which]}",
        "judge blocks": f"/debug/judge-blocks?limit=100&call_id={pair[which]}",
    }


def _has_run(tab: Tab, within: str = "main") -> bool:
    return bool(tab.evaluate("window.hits")) or tab.page.locator(f"{within} {_FOREIGN}").count() > 0


def test_a_call_full_of_payloads_is_a_call_full_of_text(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)

    def kinds(name: str, path: str) -> dict[str, int]:
        tab.open(path)
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert not _has_run(tab), name
        tab.check()
        # how long each step took, and so which of them the bar names, is nobody's text
        found = {
            kind: number
            for kind, number in tab.kinds().items()
            if not kind.startswith(("rect.", "SPAN.k-", "TIME.", "P.holds"))
        }
        if not name.startswith(("diff", "hooks", "wire")):
            return found
        # how many words differ depends on the words, how many lines a log has and where releases
        # are cut on the moment: of these the kinds of elements are the same, but for a release that
        # may stand on the next page, and of a log the note that lines of it are late or lost
        late = {"P.note held"} if name == "hooks" else set()
        return dict.fromkeys(found.keys() - {"DIV.written", "P.whole"} - late, 1)

    def is_sealed(which: str) -> bool:
        return "✓ sealed" in tab.open(f"/debug/calls/{pair[which]}").text

    wait_for(
        lambda: all(map(is_sealed, ("hostile", "harmless", "hostile-error", "harmless-error"))),
        what="seals",
        timeout_s=15,
    )
    twins = _addresses(pair, "harmless")
    for name, path in _addresses(pair, "hostile").items():
        assert kinds(name, path) == kinds(name, twins[name]), name


def test_where_payloads_are_among_others_they_are_text(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab(key=ADMIN)
    tab.page.add_init_script(_CANARY)
    for path in (
        "/debug",
        "/debug/sessions",
        "/debug/policies",
        "/debug/keys/dev",
        "/debug/logs?limit=200",
        "/debug/reads",
    ):
        tab.open(path)
        assert not _has_run(tab), path
        tab.check()
    assert re.search(
        r"<script|onerror|\\u\w{4}|\\x1b", tab.open("/debug").page.inner_text("main")
    ), "refusals of the hostile call"


def test_an_open_call_full_of_payloads_is_followed_as_text(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    call = Call(pair.product, "go on", model="script-hostile-slow")
    tab.open(f"/debug/calls/{call.id}/live")
    tab.page.get_by_text("The call has ended").wait_for()
    blocks = tab.page.locator("[data-live-blocks]").inner_text()
    assert hostile.MARKUP[-2] in blocks and "\\u202e" in blocks and "\u202e" not in blocks
    assert not _has_run(tab, "[data-live-blocks]")
    call.stop()


def test_characters_that_nobody_sees_are_spelled_out(new_tab: NewTab, pair: Calls) -> None:
    tab = new_tab().open(f"/debug/tool-calls?limit=100&call_id={pair['hostile']}")
    shown = tab.page.inner_text("main")
    assert "<svg onload=" in shown
    for one in {
        one
        for text in hostile.CHARACTERS
        for one in text[:100]
        if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")
    }:
        names = {
            json.dumps(one)[1:-1],
            f"\\x{ord(one):02x}",
            f"\\u{ord(one):04x}",
            f"\\U{ord(one):08x}",
        }
        assert one not in shown and any(name in shown for name in names), (hex(ord(one)), names)


def test_what_is_asked_for_comes_back_as_text(new_tab: NewTab, made: Calls) -> None:
    """In the address: filters, the search box, and parts of the path."""
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    fields = ("key", "session", "model", "policy")
    texts = [text for text in hostile.PAYLOADS if "\x00" not in text]
    tab.open(f"/debug/calls?key={quote(hostile.CHARACTERS[0])}", status=400)
    for at in range(0, len(texts), len(fields)):
        given = zip(fields, texts[at : at + len(fields)], strict=False)
        tab.open(
            "/debug/calls?"
            + "&".join(f"{name}={quote(text[:150], safe='')}" for name, text in given)
        )
        assert "Nothing matches" in tab.text and not _has_run(tab), texts[at]
        tab.check()
    for text in hostile.PAYLOADS[::9]:
        tab.open(f"/debug/search?q={quote(text, safe='')}")
        tab.page.goto(f"{tab.origin}/debug/calls/{quote(text, safe='')}")
        assert not _has_run(tab), text


def test_a_label_note_is_text(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab()
    tab.page.add_init_script(_CANARY)
    tab.open(f"/debug/judge-blocks?call_id={made['judged']}")
    for text in hostile.batches(1_900):
        tab.page.get_by_role("button", name="Wrong").click()
        tab.page.fill("input[name=note]", text)
        tab.page.click("text=Keep")
        tab.page.locator("input[name=note]").wait_for(state="detached")
        assert not _has_run(tab)
