"""What holds for every page: it says what it is, nothing goes wrong, anybody can read it, in both themes and without JavaScript."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.addresses import ALL_NAMES, address
from tests.browser.calls import Calls
from tests.browser.conftest import ADMIN, NARROW, WIDE, NewTab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_AXE = "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})"
MAX_NODES = 3_000
_CLOCKS = re.compile(r"\d+(\.\d+)? (ms|s|min|h)\b|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d(\.\d+)?Z?|\d+")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_shuts_anybody_out(new_tab: NewTab, made: Calls, axe: Path, dark: bool) -> None:
    tab = new_tab(key=ADMIN, bypass_csp=True, dark=dark)
    found: list[Any] = []
    for name in ALL_NAMES:
        tab.open(address(name, made))
        tab.page.add_script_tag(path=axe)
        said = tab.evaluate(_AXE, _RULES)
        for fault in said["violations"]:
            nodes = [(node["target"], node["any"][0]["message"] if node["any"] else "") for node in fault["nodes"][:3]]
            found.append((name, fault["id"], fault["help"], nodes))
    assert not found, "\n".join(map(str, found))


def test_every_page_says_what_it_is_and_fits_its_window(new_tab: NewTab, made: Calls) -> None:
    wide, narrow = new_tab(key=ADMIN), new_tab(key=ADMIN, size=(320, 800))
    for name in ALL_NAMES:
        wide.open(address(name, made))
        assert wide.page.title().endswith(" · Sluice"), name
        assert wide.page.locator("h1").count() == 1 and wide.page.locator("main").count() == 1, name
        assert wide.elements() <= MAX_NODES, (name, wide.elements())
        narrow.open(address(name, made))
        over = narrow.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{name} is {over} px wider than 320 px, which is a zoom of 400 %"


def test_every_page_says_the_same_without_javascript(new_tab: NewTab, made: Calls) -> None:
    with_, without = new_tab(key=ADMIN), new_tab(key=ADMIN, js=False)
    hidden = ".script, .toast, kbd { display: none !important }"
    for name in ALL_NAMES:
        if name in ("overview", "live", "reads"):  # figures by script, as they say; and reads of these very pages
            continue
        with_.open(address(name, made))
        with_.page.evaluate(
            "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); document.adoptedStyleSheets = [sheet] }", hidden
        )
        without.open(address(name, made))
        texts = [_facts(tab.page.inner_text("main")) for tab in (with_, without)]
        assert texts[0] == texts[1], name


def _facts(text: str) -> str:
    """Without figures of the moment."""
    return " ".join(_CLOCKS.sub("#", text).replace("/", " ").split())


@pytest.mark.skipif(not os.environ.get("SLUICE_SCREENSHOTS"), reason="SLUICE_SCREENSHOTS names no folder")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_pictures_of_every_page(new_tab: NewTab, made: Calls, dark: bool, size: tuple[int, int]) -> None:
    """For people to look at; nothing is compared."""
    folder = Path(os.environ["SLUICE_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    tab = new_tab(key=ADMIN, dark=dark, size=size)
    for name in ALL_NAMES:
        tab.open(address(name, made))
        tab.page.screenshot(path=folder / f"{name}-{'dark' if dark else 'light'}-{size[0]}.png", full_page=size == NARROW)
