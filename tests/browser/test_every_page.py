"""What holds for every page: it says what it is, nothing goes wrong, anybody can read it, in both
themes and without JavaScript."""

import gzip
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Response

from tests.browser.addresses import ALL_NAMES, OUTSIDE, PAGES, address
from tests.browser.axe import over, shut_out
from tests.browser.calls import Calls
from tests.browser.conftest import ADMIN, NARROW, WIDE, NewTab
from tests.browser.tab import Tab
from tests.support.checks.record import fresh_database
from tests.support.servers.product import KEY, Product, base_config

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
_FOCUS = """() => { const on = document.activeElement; if (!on || on === document.body) return null;
    const box = on.getClientRects()[0], style = getComputedStyle(on);
    const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return { at: [...document.querySelectorAll('*')].indexOf(on), what: on.outerHTML.slice(0, 100),
        marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0, inSight: on.contains(there) } }"""
_ALIKE = (
    "call-long",
    "call-whole",
    "call-messages",
    "tool-calls-blocked",
    "wire",
    "logs-policy",
    "search",
)
"""Pages that are made of nothing that others lack: looking takes seconds."""
MAX_NODES = 3_000
LIST_BYTES, LIST_PACKED = 120_000, 25_000
"""Of a list of 50 with its sheets and scripts, and gzipped."""
_CLOCKS = re.compile(r"\d+(\.\d+)? (ms|s|min|h)\b|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(\.\d+)?Z?|\d+")


@pytest.mark.parametrize("name", [*(name for name in ALL_NAMES if name not in _ALIKE), *OUTSIDE])
def test_no_page_shuts_anybody_out(new_tab: NewTab, made: Calls, axe: Path, name: str) -> None:
    path, status = OUTSIDE[name] if name in OUTSIDE else (address(name, made), 200)
    tab = new_tab(key=None if name == "login" else ADMIN, bypass_csp=True)
    found = shut_out(tab.open(path, status=status), axe)
    assert not found, "\n".join(found)


def test_an_empty_record_has_pages(
    new_tab: NewTab, product: Product, database_url: str, axe: Path, tmp_path: Path
) -> None:
    with fresh_database(database_url) as url:
        other = Product(tmp_path, product.redis_url, url, base_config())
        try:
            other.start("gateway", "pages")
            tab = new_tab(key=None, bypass_csp=True, size=(320, 800))
            tab.origin = other.url
            tab.open("/debug/login")
            tab.page.fill("#key", KEY)
            with tab.page.expect_navigation():
                tab.page.click("main button")
            for name in ("overview", "calls", "judge-blocks", "sessions", "policies"):
                tab.open(PAGES[name])
                assert over(tab) <= 0 and shut_out(tab, axe) == [], name
                assert name in ("overview", "policies") or "Nothing recorded yet" in tab.text, name
        finally:
            other.stop()


def test_every_page_says_what_it_is_fits_its_window_and_says_the_same_without_javascript(
    new_tab: NewTab, made: Calls
) -> None:
    with_, without, outside = new_tab(key=ADMIN), new_tab(key=ADMIN, js=False), new_tab(key=None)
    hidden = ".script, .toast, kbd { display: none !important }"
    # the first who looks may come before the figures
    with_.open(PAGES["overview"]).page.locator(
        "[data-figure=doctor]", has_text=re.compile("none|failed|warning")
    ).wait_for()
    for name in ALL_NAMES:
        _looks(with_.open(address(name, made)), name)
        if name == "live":
            continue
        with_.page.evaluate(
            "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css);"
            " document.adoptedStyleSheets = [sheet] }",
            hidden,
        )
        without.open(address(name, made))
        # figures go on by script, as they say; and reads are of these very pages; a log goes on
        # behind the call
        where = "h1, h2, th[scope=col], dt" if name in ("overview", "reads", "hooks") else "main"
        texts = [
            [_facts(text) for text in tab.page.locator(where).all_inner_texts()]
            for tab in (with_, without)
        ]
        assert texts[0] == texts[1], name
    for name, (path, status) in OUTSIDE.items():
        _looks((outside if name == "login" else with_).open(path, status=status), name)


def _looks(tab: Tab, name: str) -> None:
    assert tab.page.title().endswith(" · Sluice"), name
    assert tab.page.locator("h1").count() == 1 and tab.page.locator("main").count() == 1, name
    assert tab.elements() <= MAX_NODES, (name, tab.elements())
    tab.page.set_viewport_size({"width": 320, "height": 800})
    assert over(tab) <= 0, f"{name} is {over(tab)} px wider than 320 px, which is a zoom of 400 %"
    tab.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})


def test_a_list_is_small_with_all_that_it_loads(tab: Tab, made: Calls) -> None:
    answers: list[Response] = []
    tab.page.on("response", lambda answer: answers.append(answer))
    tab.open("/debug/tool-calls?limit=50")
    tab.page.wait_for_load_state("networkidle")
    bodies = {answer.url: answer.body() for answer in answers}
    assert tab.page.locator("tr[data-row]").count() == 50
    assert sum(map(len, bodies.values())) <= LIST_BYTES, {
        url: len(body) for url, body in bodies.items()
    }
    assert sum(len(gzip.compress(body)) for body in bodies.values()) <= LIST_PACKED


@pytest.mark.parametrize(
    "path",
    ["/debug/tool-calls?limit=25&key=dev", "/debug/calls/{judged}", "/debug/calls/{upper}/diff"],
)
def test_the_focus_goes_in_the_order_of_the_page_and_is_seen(
    tab: Tab, made: Calls, path: str
) -> None:
    tab.open(path.format(**made.ids))
    before = -1
    for _ in range(50):
        tab.page.keyboard.press("Tab")
        found = tab.evaluate(_FOCUS)
        if found is None:
            break
        assert found["at"] > before and found["marked"] and found["inSight"], found
        before = found["at"]
    assert before > 0


def test_what_colours_say_is_said_in_words_and_signs(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['blocked']}")
    said = tab.page.locator("#b1").aria_snapshot()
    assert "BLOCKED" in said and "asked for, never released" in said, said
    lines = (
        tab.open(f"/debug/calls/{made['upper']}/diff")
        .page.locator("main article")
        .first.aria_snapshot()
    )
    assert (
        "- I" in lines
        and "deletion: demo" in lines
        and "+ I" in lines
        and "insertion: DEMO" in lines
    ), lines


def _facts(text: str) -> str:
    """Without figures of the moment."""
    return " ".join(_CLOCKS.sub("#", text).replace("/", " ").split())


@pytest.mark.skipif(
    not os.environ.get("SLUICE_SCREENSHOTS"), reason="SLUICE_SCREENSHOTS names no folder"
)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pictures_of_every_page(
    new_tab: NewTab, made: Calls, dark: bool, size: tuple[int, int]
) -> None:
    """For people to look at; nothing is compared."""
    folder = Path(os.environ["SLUICE_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    tab = new_tab(key=ADMIN, dark=dark, size=size)
    for name in ALL_NAMES:
        tab.open(address(name, made))
        tab.page.screenshot(
            path=folder / f"{name}-{'dark' if dark else 'light'}-{size[0]}.png",
            full_page=size == NARROW,
        )
