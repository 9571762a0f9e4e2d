"""The pages for people who decide: what an approver sees, and that nothing else is."""

import asyncio
import contextlib
import re
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from pages.routes import ROUTES
from tests.support.checks.asking import ask
from tests.support.checks.logins import log_in
from tests.support.checks.reading import insert
from tests.support.checks.record import call_id, fresh_database, rows, whole_call
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, base_config, digest

APPROVER = "sk-sluice-approver"
CALL = "01990000-0001-7000-8000-00000000abce"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "ship it to \xe2\x80\xae production"}]}'
HIDDEN = '{"to": "pro\u202educt", "who": "<b>x</b>"}'


@pytest.fixture(scope="module")
def config() -> Json:
    config = base_config()
    key = {"name": "ann", "sha256": digest(APPROVER), "roles": ["approver"]}
    config["keys"].append(key)
    return config


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str, config: Json
) -> Iterator[Product]:
    """A gateway and its pages, over a record of one call that waits."""
    with (
        fresh_database(database_url) as url,
        Product(tmp_path_factory.mktemp("pages"), redis_url, url, config) as made,
    ):
        asyncio.run(insert(url, *whole_call(CALL), bodies={CALL: BODY}))
        asyncio.run(insert(url, *whole_call(call_id()), bodies={}))
        ask(url, "apr_1", call=CALL, arguments=HIDDEN.encode(), key="dev", key_id="x")
        made.start("gateway", "pages")
        yield made


@pytest.fixture
def ann(product: Product) -> Iterator[httpx.Client]:
    with contextlib.closing(log_in(product, APPROVER)) as browser:
        yield browser


def decide(browser: httpx.Client, approval_id: str, **form: str) -> httpx.Response:
    """Send the form of a request's page."""
    page = browser.get(f"/debug/approvals/{approval_id}").text
    token = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    assert token is not None
    return browser.post(f"/debug/approvals/{approval_id}", data={"token": token[1], **form})


def test_an_approver_sees_what_waits_and_nothing_else(ann: httpx.Client) -> None:
    start = ann.get("/debug")
    assert (start.status_code, start.headers["location"]) == (303, "/debug/approvals")
    listed = ann.get("/debug/approvals").text
    assert "deploy" in listed and "/debug/approvals/apr_1" in listed
    links = set(re.findall(r'href="(/debug[^"#?]*)', listed))
    assert {link for link in links if "/static/" not in link} == {
        "/debug",
        "/debug/approvals",
        "/debug/approvals/apr_1",
    }
    for route in ROUTES:
        if route.role in ("any", "approver") or route.path == "/debug":
            continue
        path = re.sub(r"\{\w+\}", CALL, route.path)
        if route.method == "GET":
            assert ann.get(path).status_code == 403, path
        else:
            assert ann.post(path, data={"x": "1"}).status_code == 403, path


def test_a_request_shows_what_is_needed_to_decide(product: Product, ann: httpx.Client) -> None:
    page = ann.get("/debug/approvals/apr_1").text
    for words in (
        '<span class="c" title="U+202E RIGHT-TO-LEFT OVERRIDE">\\u202e</span>',
        "&lt;b&gt;x&lt;/b&gt;",
        "deletes files",
        "ship it to",
        "It <bdi>would change production</bdi>",
        "deploys",
        "rm -rf /tmp/build",
        "data-until=",
    ):
        assert words in page, words
    assert "\u202e" not in page and "<b>x</b>" not in page and "/debug/calls/" not in page
    with contextlib.closing(log_in(product, KEY)) as reader:
        seen = reader.get("/debug/approvals/apr_1").text
        assert f"/debug/calls/{CALL}" in seen and "Keys with the role approver" in seen
        assert "1 tool call waits for approval" in reader.get("/debug").text
        assert decide(reader, "apr_1", decision="approve").status_code == 403
    read = rows(product.database_url, "SELECT key, call_ids FROM reads WHERE path LIKE '%apr_1'")
    assert {key for key, _ in read} == {"ann", "dev"} and CALL in map(str, read[0][1])


def test_a_decision_is_kept_once_and_shown(product: Product, ann: httpx.Client) -> None:
    url = product.database_url
    ask(url, "apr_2", key_id="x")
    assert ann.get("/debug/approvals/apr_2?decision=approve").status_code == 400
    assert decide(ann, "apr_2", decision="approve", arguments="{").status_code == 400
    assert decide(ann, "apr_2").status_code == 400
    done = decide(ann, "apr_2", decision="approve", note="ok", arguments='{"to": "staging"}')
    assert (done.status_code, done.headers["location"]) == (303, "/debug/approvals/apr_2")
    page = ann.get("/debug/approvals/apr_2").text
    assert "approved" in page and "staging" in page and "<ins>" in page and "textarea" not in page
    with contextlib.closing(log_in(product, APPROVER)) as other:
        late = decide(other, "apr_1", decision="deny", note="no <i>")
        assert (
            late.status_code == 303 and "no &lt;i&gt;" in other.get(late.headers["location"]).text
        )
        again = other.get("/debug/approvals").text
        token = re.search(r'name="token" value="([0-9a-f]{64})"', again)
        assert token is not None
        form = {"token": token[1], "decision": "approve"}
        conflict = other.post("/debug/approvals/apr_1", data=form)
        assert conflict.status_code == 409 and "a decision stays" in conflict.text
    assert "apr_1" in ann.get("/debug/approvals?state=denied").text


def test_what_is_for_others_is_like_what_is_not_there(product: Product, ann: httpx.Client) -> None:
    ask(product.database_url, "apr_3", approvers="carl", key_id="x")
    pages = [ann.get(f"/debug/approvals/{name}") for name in ("apr_3", "apr_none", "a%2fb")]
    assert {page.status_code for page in pages} == {404}
    bare = {re.sub(r"<code>[0-9a-f]{8}</code>|apr_\w+|a%2fb", "", page.text) for page in pages}
    assert len(bare) == 1
    assert "apr_3" not in ann.get("/debug/approvals").text


def test_its_own_key_is_told_so(product: Product, ann: httpx.Client) -> None:
    ask(product.database_url, "apr_4", key="ann", key_id="x")
    assert "may not decide" in ann.get("/debug/approvals/apr_4").text
    token = re.search(r'value="([0-9a-f]{64})"', ann.get("/debug/approvals").text)
    assert token is not None
    form = {"token": token[1], "decision": "approve"}
    assert ann.post("/debug/approvals/apr_4", data=form).status_code == 403


def test_a_page_hears_of_what_changes(product: Product, ann: httpx.Client) -> None:
    page = ann.get("/debug/approvals").text
    known = re.search(r'data-changes="(\w+)"', page)
    assert known is not None
    with ann.stream("GET", "/debug/approvals/events") as events:
        lines = (line for line in events.iter_lines() if line)
        assert next(lines) == f'data: "{known[1]}"'
        ask(product.database_url, "apr_5", key_id="x")
        assert next(lines) != f'data: "{known[1]}"'


def test_who_voted_sees_that_another_is_needed(product: Product, ann: httpx.Client) -> None:
    ask(product.database_url, "apr_6", need=2, key_id="x")
    assert "0 of 2 approvals" in ann.get("/debug/approvals/apr_6").text
    assert decide(ann, "apr_6", decision="approve").status_code == 303
    page = ann.get("/debug/approvals/apr_6").text
    assert "Another approver is needed" in page and "1 of 2 approvals" in page
