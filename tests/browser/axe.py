"""What axe and a narrow window say of a page."""

from pathlib import Path
from typing import Literal

from tests.browser.tab import Tab

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_AXE = "rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})"
_SCHEMES: tuple[tuple[Literal["light", "dark"], dict[str, object]], ...] = (
    ("light", {"type": "tag", "values": _RULES}),
    ("dark", {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}),
)
"""In the dark only what is about colours: no other rule can tell."""


def shut_out(tab: Tab, axe: Path) -> list[str]:
    """What keeps somebody from reading the page that is open, in the light and in the dark."""
    tab.page.add_script_tag(path=axe)
    found = []
    for scheme, rules in _SCHEMES:
        tab.page.emulate_media(color_scheme=scheme)
        for fault in tab.evaluate(_AXE, rules)["violations"]:
            nodes = [
                (node["target"], node["any"][0]["message"] if node["any"] else "")
                for node in fault["nodes"][:3]
            ]
            found.append(f"{tab.path} {scheme} {fault['id']} {fault['help']} {nodes}")
    return found


def over(tab: Tab) -> int:
    """By how many pixels the page is wider than its window."""
    return int(
        tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )
