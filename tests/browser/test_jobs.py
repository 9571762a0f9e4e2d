"""What readers come for: on call at a time of day, one call before an auditor, labels by keyboard,
a list on a phone."""

import re
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.browser.calls import Calls
from tests.browser.conftest import NARROW, NewTab
from tests.browser.tab import Tab
from tests.support.clients.followed_call import Call
from tests.support.servers.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
PHONE_PX = 140
"""Of a row of a list on a phone, at most."""
_OPENED = "a[data-open][href*='{}']"


def test_what_was_tried_at_a_time_of_day_is_found_in_the_zone_that_is_shown(
    new_tab: NewTab, made: Calls
) -> None:
    tab = new_tab(zone="Asia/Kathmandu").open("/debug/tool-calls?session=s-1&verdict=block")
    tab.page.click("[data-zone-switch]")
    assert tab.page.inner_text("[data-zone-switch]") == "UTC+05:45"
    assert "Since UTC+05:45" in tab.text
    row = tab.page.locator("tr[data-row]", has=tab.page.locator(_OPENED.format(made["blocked"])))
    at = datetime.fromisoformat(str(row.locator("time").get_attribute("datetime")))
    clock = re.findall(r"\d\d:\d\d", row.locator("time").inner_text())[0]
    assert clock != f"{at:%H:%M}"
    # typed as it is read, into the filter
    tab.page.fill("input[name=since]", clock)
    tab.page.click("button.primary")
    tab.page.wait_for_url("**since=*")
    assert f"since={at:%Y-%m-%dT%H}%3A{at:%M}%3A00Z" in tab.path
    assert tab.page.input_value("input[name=since]").endswith(
        f" {clock}:00"
    ) and clock in tab.page.inner_text(".chips")
    assert row.count() == 1
    # and into the box, from wherever one is
    tab.page.fill("#find", clock)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**until=*")
    tab.page.fill("input[name=session]", "s-1")
    tab.page.click("button.primary")
    tab.page.wait_for_url("**session=s-1*")
    assert row.count() == 1 and tab.page.input_value("input[name=since]").endswith(f" {clock}:00")
    tab.page.click("[data-zone-switch]")
    assert tab.page.input_value("input[name=since]") == f"{at:%Y-%m-%d %H:%M}:00"
    # what nobody changed is asked for again as it was
    assert f"since={at:%Y-%m-%dT%H}%3A{at:%M}%3A00Z" in tab.follow("button.primary")


def test_what_happened_yesterday_is_found_in_each_list(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(zone="Asia/Kathmandu").open("/debug")
    tab.page.click("[data-zone-switch]")
    tab.page.fill("#find", "yesterday 14:03")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/debug/tool-calls?**until=*")
    day = tab.page.input_value("input[name=since]").removesuffix(" 14:03:00")
    assert "T08%3A18" in tab.path and tab.page.inner_text(".chips").startswith(
        f"since\n{day} 14:03:00.000 +05:45"
    )
    tab.page.locator(".chips").get_by_role("link", name="Calls").click()
    tab.page.wait_for_url("**/debug/calls?since=*")
    assert "T08%3A18" in tab.path and tab.page.input_value("input[name=until]") == f"{day} 14:04:00"


def test_a_range_of_the_axis_is_dragged(tab: Tab, made: Calls) -> None:
    def drag(begin: float, end: float) -> list[str]:
        box = tab.page.locator("[data-axis] svg").bounding_box()
        assert box is not None
        for at, act in ((begin, tab.page.mouse.down), (end, tab.page.mouse.up)):
            tab.page.mouse.move(box["x"] + at * box["width"], box["y"] + box["height"] / 2)
            if act == tab.page.mouse.up:
                assert float(str(tab.page.get_attribute(".axis .span", "width"))) > 0
                with tab.page.expect_navigation():
                    act()
            else:
                act()
        return [parse_qs(urlsplit(tab.path).query)[name][0] for name in ("since", "until")]

    shown = tab.open("/debug/calls?policy=default&limit=20").page.locator("tr[data-row]")
    hours = datetime.fromisoformat(str(tab.page.get_attribute("[data-axis]", "data-axis")))
    assert shown.count() > 1
    since, until = drag(0.75, 0.25)
    spans = [(datetime.fromisoformat(at) - hours).total_seconds() / 3600 for at in (since, until)]
    assert (
        [round(span) for span in spans] == [12, 36]
        and shown.count() == 0
        and "Nothing matches" in tab.text
    )
    assert "policy=default" in tab.path and "limit=20" in tab.path
    tab.page.go_back()
    since, _ = drag(0.9, 1.0)
    assert shown.count() > 1 and since < str(shown.first.locator("time").get_attribute("datetime"))
    assert float(str(tab.page.get_attribute(".axis .span", "x"))) > 400


def test_an_auditor_reads_what_happened_and_all_that_was_said(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['long']}")
    text = tab.page.inner_text(".block-row .said")
    assert len(text.split()) >= 500 and "The first" not in tab.text
    tab.open(f"/debug/calls/{made['blocked']}")
    said = tab.page.inner_text(".happened")
    assert said.startswith(
        "The model asked for one tool call: bash was blocked by tool_rules, rule deny[0]."
    ), said
    block = tab.page.inner_text(".block-row.block")
    assert "never released, the notice in its place went out" in block and "; released" not in block
    tab.open(f"/debug/tool-calls?call_id={made['blocked']}")
    assert "never\nnotice after" in tab.page.inner_text("td[data-l=Released]")
    tab.open(f"/debug/calls/{made['broken']}")
    assert "1 cut content blocks" in tab.page.inner_text(
        ".sums"
    ) and "withheld" not in tab.page.inner_text("main")


def test_who_tunes_a_policy_sees_what_each_rule_decided(tab: Tab, made: Calls) -> None:
    tab.open("/debug/policies/shipped")
    rule = tab.page.locator("tr[data-row]", has_text="overwrites-system")
    assert "deny of tool_rules" in rule.inner_text() and '"effects": ["write"]' in rule.inner_text()
    tab.open("/debug/policies/default")
    rule = tab.page.locator("tr[data-row]", has_text="deny[0]")
    number = int(rule.locator("td").last.inner_text())
    rule.locator("a").click()
    tab.page.wait_for_url("**since=*")
    rows = tab.page.locator("tr[data-row]")
    assert number == rows.count() > 0 and rows.filter(has_text="blocked").count() == number
    assert "sluice check" in tab.open("/debug/policies/default").text


def test_a_long_session_is_read_by_keyboard_from_any_call_on(tab: Tab, made: Calls) -> None:
    turns: list[dict[str, object]] = [{"role": "user", "content": "go on"}]
    for n in range(24):
        made.send(
            f"long-{n}",
            {"model": "script-agent", "messages": turns},
            **{"x-sluice-session": "long"},
        )
        turns += [{"role": "assistant", "content": "said"}, {"role": "user", "content": f"on {n}"}]
    made.settled_of(*(f"long-{n}" for n in range(24)))
    tab.open("/debug/sessions/dev/long")
    tab.page.fill("input[name=call]", "3")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**call=3")
    assert "calls 3 to 22 of 24" in tab.text
    tab.page.keyboard.press("j")
    at = "document.querySelector('.at').id"
    assert tab.evaluate(at) == "c3"
    tab.page.get_by_role("link", name="Next block").first.press("Enter")
    tab.page.wait_for_url("**#c8")
    # the address changes before the page hears of it
    tab.page.wait_for_selector("#c8.at")
    tab.page.keyboard.press("j")
    assert tab.evaluate(at) == "c9"
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**/debug/calls/{made['long-8']}")
    tab.page.go_back()
    tab.page.wait_for_selector("#c9.at")


def test_a_call_whose_client_went_away_is_cut(tab: Tab, made: Calls, product: Product) -> None:
    call = Call(product, "slowly with gap 40 ms, long 400")
    call.stop()
    made.ids["left"] = call.id
    made.settled_of("left")
    block = tab.open(f"/debug/calls/{call.id}").page.inner_text(".block-row")
    assert re.search(
        "cut: the client went away first; .* was released|its first [0-9]+ characters were"
        " released",
        block,
    ), block
    assert tab.page.inner_text(".block-row .verdict").endswith("CUT")


def test_a_filter_that_is_wrong_leads_on(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?since=lately&key=dev", status=400)
    assert (
        "since: is no time: write it as 14:03, yesterday 14:03" in tab.text
        and tab.page.get_by_role("link", name="Calls").count() == 1
    )
    without = tab.page.get_by_role("link", name="open the page without it")
    assert tab.follow(without) == "/debug/tool-calls?key=dev"


def test_a_rule_is_labelled_by_keyboard_and_enter_keeps_the_note_of_that_row(
    tab: Tab, made: Calls
) -> None:
    tab.open("/debug/tool-calls?limit=25")
    for _ in range(3):
        tab.page.keyboard.press("j")
    row = str(tab.evaluate("document.querySelector('tr.at').id"))
    tab.page.keyboard.press("x")
    tab.page.wait_for_url(f"**#{row}")
    assert tab.evaluate("document.querySelector('tr.at').id") == row
    tab.page.keyboard.press("n")
    tab.page.keyboard.type("harmless here")
    with tab.page.expect_navigation():
        tab.page.keyboard.press("Enter")
    labelled = tab.page.locator("tr[data-row]", has_text="harmless here")
    assert labelled.get_attribute("id") == row and "wrong" in labelled.inner_text()
    assert (
        tab.page.locator(f"tr[data-row]:not([id='{row}'])", has_text="by dev")
        .filter(has_text="right")
        .count()
        == 0
    )


def test_a_list_of_fifty_is_short_on_a_phone_and_the_judges_columns_are_wide_enough(
    new_tab: NewTab, made: Calls
) -> None:
    tab = new_tab(size=NARROW).open("/debug/tool-calls")
    rows = tab.page.locator("tr[data-row]")
    height = tab.evaluate("document.querySelector('table.list').offsetHeight")
    assert rows.count() == 50 and height <= 50 * PHONE_PX, height
    wide = new_tab().open(f"/debug/judge-blocks?call_id={made['judged']}")
    widths = wide.evaluate(
        "[...document.querySelectorAll('table.list th')].map(one => [one.textContent,"
        " one.offsetWidth])"
    )
    assert all(width >= 84 for _, width in widths), widths


def test_a_live_view_says_when_its_call_is_over(tab: Tab, product: Product) -> None:
    call = Call(product, "slowly with gap 40 ms, long 40")
    tab.open(f"/debug/calls/{call.id}/live")
    tab.page.locator("[data-live-state]", has_text="OVER").wait_for(timeout=20_000)
    assert "The call has ended: complete." in tab.page.inner_text("[data-live-say]")
    assert not tab.page.locator("[data-live-stop]").is_visible() and tab.page.title().startswith(
        "over ·"
    )
    call.stop()
