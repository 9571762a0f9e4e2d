"""Whole ways of readers through the pages, from the login on."""

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
import pytest

from tests.browser.calls import Calls
from tests.browser.conftest import NewTab
from tests.browser.tab import Tab
from tests.support.checks.logins import make_key
from tests.support.clients import agent
from tests.support.servers.asked import ask
from tests.support.servers.product import CLIENT_KEY, KEY, Product
from tests.support.servers.product_commands import run
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.timeout(60)]
_FOCUSED = "document.activeElement.textContent.trim()"


@pytest.fixture(scope="module")
def refused(made: Calls) -> str:
    """A call with a tool call that was refused just now, so that it is the first one in lists."""
    made.chat("refused", "delete everything with rm -rf")
    made.settled_of("refused")
    return made["refused"]


@pytest.fixture(scope="module")
def elsewhere(made: Calls) -> Iterator[str]:
    """A page of another site with a link to a block."""
    link = (
        f'<title>x</title><a href="{made.product.url}/debug/calls/{made["blocked"]}?at=b1">look</a>'
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(link.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def log_in(tab: Tab) -> None:
    """Give the key to the login that is open."""
    tab.page.fill("#key", KEY)
    with tab.page.expect_navigation():
        tab.page.click("main button")


def test_wrong_key_right_key_and_the_page_that_was_asked_for(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(key=None)
    tab.open("/debug/tool-calls?verdict=block&q=rm#x")
    assert tab.path.startswith("/debug/login?next=") and "bash" not in tab.text
    tab.page.fill("#key", CLIENT_KEY)
    tab.page.click("main button")
    assert "auditor" in tab.page.get_by_role("alert").inner_text()
    tab.page.fill("#key", KEY)
    tab.page.click("main button")
    tab.page.wait_for_url("**/debug/tool-calls?verdict=block*")
    assert "rm -rf /" in tab.text
    assert not any(KEY in url for url in tab.asked) and KEY not in tab.page.content()


def test_a_refused_call_is_three_clicks_away_and_its_link_shows_others_the_same_block(
    new_tab: NewTab, refused: str
) -> None:
    tab = new_tab()
    tab.open("/debug")
    tab.follow(tab.page.get_by_role("link", name="Tools"))
    tab.follow(tab.page.get_by_role("link", name="Blocked"))
    tab.page.locator("tr[data-row]", has_text="rm -rf").locator(
        f"a[data-open][href*='{refused}']"
    ).click()
    tab.page.wait_for_url(f"**/debug/calls/{refused}*")
    assert tab.path.endswith("#b1")
    _sees_the_refusal(tab)
    other = new_tab(key=None)
    other.open(_copied_link(tab))
    log_in(other)
    assert other.path.endswith(f"/debug/calls/{refused}#b1")
    _sees_the_refusal(other)


def test_the_same_way_by_keyboard_alone(new_tab: NewTab, refused: str) -> None:
    tab = new_tab().open("/debug")
    keys = tab.page.keyboard
    keys.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    with tab.page.expect_navigation():
        keys.press("g")
        keys.press("t")
    for _ in range(60):
        keys.press("Tab")
        if tab.evaluate(_FOCUSED).startswith("Blocked"):
            break
    with tab.page.expect_navigation():
        keys.press("Enter")
    for _ in range(50):
        keys.press("j")
        if refused in str(tab.evaluate("document.querySelector('tr.at').id")):
            break
    with tab.page.expect_navigation():
        keys.press("Enter")
    _sees_the_refusal(tab)
    other = new_tab(key=None)
    other.open(_copied_link(tab))
    # the field has the focus once the page is drawn, which is after it has loaded
    other.page.wait_for_function("() => document.activeElement.id === 'key'")
    other.page.keyboard.type(KEY)
    with other.page.expect_navigation():
        other.page.keyboard.press("Enter")
    _sees_the_refusal(other)
    with other.page.expect_navigation():
        other.page.keyboard.press("d")
    assert "/diff" in other.path
    with other.page.expect_navigation():
        other.page.keyboard.press("w")
    assert "/wire" in other.path


def _copied_link(tab: Tab) -> str:
    """The link that `y` copies, without the origin."""
    tab.page.keyboard.press("y")
    tab.page.wait_for_function(
        "() => document.querySelector('.toast').textContent === 'Link copied'"
    )
    link = str(tab.evaluate("navigator.clipboard.readText()"))
    assert link.endswith("?at=b1"), link
    return link.removeprefix(tab.origin)


def _sees_the_refusal(tab: Tab) -> None:
    block = tab.page.locator("#b1")
    said = block.inner_text()
    assert (
        "never released" in said
        and "rm -rf /" in said
        and re.search("blocked", said, re.IGNORECASE)
    ), said
    assert "Sluice blocked the tool call 'bash'" in said
    box = block.bounding_box()
    assert box is not None and 0 <= box["y"] < tab.evaluate("innerHeight")


def test_back_leads_to_the_same_rows_at_the_same_place(tab: Tab, made: Calls) -> None:
    tab.open("/debug/tool-calls?limit=25&key=dev")
    rows = "[...document.querySelectorAll('tr[data-row]')].map(row => row.id)"

    def older() -> list[str]:
        tab.follow("text=Older ›")
        return list(tab.evaluate(rows))

    second, third = older(), older()
    tab.evaluate("window.scrollTo(0, 600)")
    tab.page.locator("a[data-open]").nth(12).click()
    tab.page.wait_for_url("**/debug/calls/**")
    tab.page.go_back()
    tab.page.wait_for_url("**/debug/tool-calls?**")
    in_view = (
        "id => { const at = document.getElementById(id).getBoundingClientRect(); return at.top >= 0"
        " && at.bottom <= innerHeight }"
    )
    tab.page.wait_for_function(in_view, arg=third[12])
    assert tab.evaluate(rows) == third
    tab.page.go_back()
    tab.page.wait_for_function(f"first => {rows}[0] === first", arg=second[0])
    assert tab.evaluate(rows) == second


def test_each_outcome_has_its_own_words_without_a_script(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(js=False)
    for name, changed, words in (
        ("allowed", 0, ["2 allowed", "asked for, released unchanged", "ls -la"]),
        (
            "blocked",
            1,
            [
                "1 blocked",
                "never released",
                "by rule",
                "The client got",
                "[Sluice blocked the tool call",
            ],
        ),
        ("judged", 1, ["BLOCKED", "by judge", "demo-judge", "0.97", "0.60"]),
        ("upper", 1, ["1 replaced", "released, changed", "I AM THE DEMO MODEL"]),
        (
            "broken",
            0,
            [
                "failed",
                "what came of it was released",
                "The upstream ended its answer with an error",
            ],
        ),
    ):
        tab.open(f"/debug/calls/{made[name]}")
        assert [word for word in words if word.lower() not in tab.text.lower()] == [], (
            name,
            tab.text[:1500],
        )
        tab.open(f"/debug/calls/{made[name]}/diff")
        assert tab.page.locator("article").count() == changed, tab.text


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
    assert (
        not tab.page.locator(".head").is_visible()
        and not tab.page.locator(".tabs").first.is_visible()
    )
    assert tab.page.locator("#b1").is_visible()
    assert tab.page.pdf().startswith(b"%PDF")


def test_find_in_page_finds_a_word_of_the_last_block(tab: Tab, made: Calls) -> None:
    tab.open(f"/debug/calls/{made['long']}/text")
    assert tab.evaluate("find('client got: release')") and tab.evaluate("find('⟦end⟧')")
    tab.open(f"/debug/calls/{made['many']}")
    while tab.page.get_by_role("link", name="After ›").count():
        with tab.page.expect_navigation():
            tab.page.get_by_role("link", name="After ›").first.click()
    assert tab.evaluate("window.find('echo 59')")


def test_printed_evidence_has_its_hashes_the_checkpoint_and_the_path(tab: Tab, made: Calls) -> None:
    path = f"/debug/calls/{made['judged']}/blocks/1/evidence"
    wait_for(
        lambda: tab.open(path).page.get_by_text("Download as JSON").count() == 1,
        what="a checkpoint over the call",
        timeout_s=30,
    )
    tab.page.emulate_media(media="print")
    assert (
        not tab.page.locator(".head").is_visible()
        and tab.page.locator("main details:not([open])").count() == 0
    )
    product = made.product
    with ThreadPoolExecutor(1) as pool:
        # on a thread of its own: the browser's event loop runs on this one
        asked = pool.submit(ask, product.database_url, product.config, lambda p: p.page(path))
        facts = asked.result().values
    hashes, proof = [side["sha256"] for side in facts["sides"]], facts["proof"]
    printed = tab.page.inner_text("main")
    wanted = [*hashes, proof["root"], *proof["path"], *proof["checkpoint"].split("\n")]
    assert hashes and [text for text in wanted if text not in printed] == []
    assert tab.page.pdf().startswith(b"%PDF")


def test_all_but_the_live_view_works_without_a_script(new_tab: NewTab, made: Calls) -> None:
    tab = new_tab(key=None, js=False)

    tab.open("/debug/tool-calls?limit=25")
    log_in(tab)
    assert tab.path == "/debug/tool-calls?limit=25"
    tab.page.fill(".filters input[name=q]", "echo")
    assert "q=echo" in tab.follow("button.primary")
    first = tab.page.locator("tr[data-row]").first.get_attribute("id")
    assert (
        "cursor=" in tab.follow("text=Older ›")
        and tab.page.locator("tr[data-row]").first.get_attribute("id") != first
    )
    tab.follow("text=‹ Newer")
    assert tab.page.locator("tr[data-row]").first.get_attribute("id") == first
    assert tab.follow("a[data-open]").startswith(f"/debug/calls/{made['many']}")
    tab.page.fill("#find", made["blocked"])
    with tab.page.expect_navigation():
        tab.page.press("#find", "Enter")
    assert tab.path.startswith(f"/debug/calls/{made['blocked']}")
    tab.page.click(".menu summary")
    assert tab.follow("text=Log out").startswith("/debug/login")
    assert tab.open("/debug/calls").path.startswith("/debug/login")


@pytest.mark.parametrize("js", [True, False], ids=["js", "no-js"])
def test_a_link_from_elsewhere_lands_at_its_place_and_back_leads_out(
    new_tab: NewTab, made: Calls, elsewhere: str, js: bool
) -> None:
    for key in (KEY, None):
        tab = new_tab(key=key, js=js)
        tab.origins += (elsewhere,)
        tab.page.goto(elsewhere)
        tab.page.click("a")
        if key is None:
            tab.page.wait_for_url("**/debug/login?*")
            log_in(tab)
        tab.page.wait_for_url(f"**/debug/calls/{made['blocked']}*#b1")
        _sees_the_refusal(tab)
        assert sum(made["blocked"] in url for url in tab.asked) <= 6, tab.asked
        if key is not None:
            tab.page.go_back()
            assert tab.page.url.startswith(elsewhere)


def test_labels_are_a_share_of_what_a_policy_decided(tab: Tab, made: Calls) -> None:
    for name, share in (("Wrong", "100 %"), ("Right", "0 %")):
        tab.open(f"/debug/judge-blocks?call_id={made['judged']}")
        with tab.page.expect_navigation():
            tab.page.get_by_role("button", name=name, exact=True).click()
        link = tab.open("/debug/policies").page.get_by_role("link", name="default", exact=True)
        assert tab.page.locator("tr[data-row]", has=link).locator("td").last.inner_text() == share
        assert f"{share} wrong" in tab.open("/debug/policies/default").text


def test_a_session_shows_each_turn_once_whatever_was_sent_again(tab: Tab, made: Calls) -> None:
    tab.open(agent.PAGE)
    branch = tab.page.locator("details.branch")
    assert (
        "agent a1" in branch.locator("summary").first.inner_text()
        and not tab.page.get_by_text("say more").is_visible()
    )
    branch.locator("summary").first.click()
    assert tab.page.get_by_text("say more", exact=True).is_visible()
    turns = [text.strip() for text in tab.page.locator("section.turn pre").all_inner_texts()]
    assert [turns.count(text) for text in agent.TYPED] == [1] * len(agent.TYPED), turns
    assert (
        tab.page.locator("article.row").count() == 11
        and tab.page.locator("p.row.side").count() == 1
    )
    assert "History changed from turn 3 on" in tab.text and "never released" in tab.text
    tab.page.locator("figure.strip summary").click()
    tab.page.locator("figure.strip li a").first.click()
    assert re.search(r"#c\d+$", tab.path)


def test_a_key_that_may_read_no_more_ends_its_open_page(new_tab: NewTab, made: Calls) -> None:
    for name in ("kim", "lee"):
        # in a thread, because the browser has a loop of its own
        with ThreadPoolExecutor(1) as pool:
            key = pool.submit(asyncio.run, make_key(made.product, name)).result()
        tab = new_tab(key=None).open("/debug/calls")
        tab.page.fill("#key", key)
        with tab.page.expect_navigation():
            tab.page.click("main button")
        assert made["blocked"][:8] in tab.text
        if name == "kim":
            assert run(made.product, "keys", "revoke", name).returncode == 0
        else:
            _lose_role(made.product, name)
        tab.page.get_by_role("link", name="Tools").click()
        tab.page.wait_for_url("**/debug/login?next=%2Fdebug%2Ftool-calls")
        assert (
            "at once when its key is revoked or may not read any more" in tab.text
            and "rm -rf" not in tab.text
        )
        tab.page.fill("#key", key)
        tab.page.click("main button")
        assert (
            "This is no key that may read the record" in tab.page.get_by_role("alert").inner_text()
        )


def _lose_role(product: Product, name: str) -> None:
    with psycopg.connect(product.database_url, autocommit=True) as owner:
        owner.execute("UPDATE api_keys SET roles = '{client}' WHERE name = %s", (name,))
