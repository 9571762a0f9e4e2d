"""What a request for a page must be: whose host, from where, one of each header; and where a login
may lead."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import pytest

from db.page_sessions import Login, PageSessions
from pages import spooled_output
from pages.http.answers import failed
from pages.http.application import App
from pages.http.login import MOST_WRONG, MOST_WRONG_IN_ALL, WINDOW_S, Attempts, Logins
from pages.http.request_checks import (
    Head,
    Misdirected,
    Site,
    check_source,
    is_followed_link,
    place,
    read_cookie,
    read_headers,
    safe_next,
    site_of,
)
from pages.http.views import (
    MOST_ASKED_BY_ONE,
    MOST_DOWNLOADS_OF_ONE,
    MOST_OF_ONE,
    MOST_STREAMS_OF_ONE,
    OpenAnswers,
    PageTurns,
)
from pages.http.visit import Visit
from pages.page import Download, PageRequest, Route, sliced
from pages.spooled_output import SPOOLED_BYTES, spooled
from protocol.errors import (
    AuditUnavailable,
    Forbidden,
    InvalidRequest,
    RateLimited,
)
from settings.config import Config
from settings.pages import Pages
from settings.runtime import Runtime
from sluice.logs import JsonLines
from tests.support.json_values import as_json

HERE = Site("http://127.0.0.1:8080", is_secure=False, is_loopback=True)
FORM = "application/x-www-form-urlencoded"


def head(method: str = "GET", **headers: str) -> Head:
    """A request with these headers."""
    return Head(
        method,
        "/debug",
        [],
        {name.replace("_", "-"): value for name, value in headers.items()},
        "127.0.0.1",
    )


@pytest.mark.parametrize(
    "given",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil",
        "https://evil.example",
        "javascript:alert(1)",
        "/debug/../v1",
        "/debug/%2e%2e/v1",
        "/debug/%2e./v1",
        "/debug//evil",
        "/debug/%2F%2Fevil",
        "/debug/%5cevil",
        "/debugger",
        "/v1/models",
        "",
        "debug",
        "/debug\r\nset-cookie: a=b",
        "/debug/\x00",
        "/debug/%00",
        "/debug/%0d%0ax",
        "/debug/login",
        "/debug/login?next=/debug/login",
        "/debug/logout",
        "/debug/a b",
        "/debug#x",
        "/debug/ü",
        "/debug/%ff",
        "/debug/;/x",
        "/debug/calls?q=\\",
        "/debug/" + "a" * 3_000,
        "/DEBUG",
        " /debug",
        "/debug/. ./x/../..",
    ],
)
def test_a_login_leads_nowhere_else(given: str) -> None:
    assert safe_next(given) == "/debug"


@pytest.mark.parametrize(
    "given",
    [
        "/debug",
        "/debug/",
        "/debug/calls?since=2026-01-01&at=b3",
        "/debug/sessions/k/a%20b",
        "/debug/calls/~..",
    ],
)
def test_a_login_leads_to_the_page_that_was_asked_for(given: str) -> None:
    assert safe_next(given) == given


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "127.9.9.9", "10.0.0.5:8080"],
)
def test_the_machine_itself_and_the_address_it_listens_on_are_ours(host: str) -> None:
    site = site_of(host, Pages(), "10.0.0.5")
    assert (
        site.origin == f"http://{host.lower()}"
        and not site.is_secure
        and site.cookie == "sluice_pages"
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.6",
        "",
        "127.0.0.1:8080:1",
        "a@127.0.0.1",
        "127.0.0.1/",
        "sluice.example.evil",
        "0.0.0.0",
        "[::2]",
        "127.0.0.1 ",
        "x" * 300,
    ],
)
def test_other_names_are_not_ours(host: str) -> None:
    for bound in ("10.0.0.5", "0.0.0.0", "::", ""):
        with pytest.raises(Misdirected):
            site_of(host, Pages(url="https://sluice.example"), bound)


def test_the_name_behind_a_proxy_has_its_own_origin_and_a_cookie_for_tls_alone() -> None:
    for host in ("sluice.example", "Sluice.Example:443"):
        site = site_of(host, Pages(url="https://sluice.example"), "127.0.0.1")
        assert (site.origin, site.is_secure, site.cookie) == (
            "https://sluice.example",
            True,
            "__Secure-sluice_pages",
        )
    with pytest.raises(Misdirected):
        site_of("sluice.example:8443", Pages(url="https://sluice.example"), "127.0.0.1")
    assert (
        site_of("sluice.example:8080", Pages(url="http://sluice.example:8080"), "127.0.0.1").cookie
        == "sluice_pages"
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:8080", "sec_fetch_site": "same-origin"},
        {"origin": "null", "sec_fetch_site": "same-origin"},
    ],
)
def test_a_form_of_ours_is_taken(headers: dict[str, str]) -> None:
    check_source(head("POST", content_type=f"{FORM}; charset=utf-8", **headers), HERE)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "https://127.0.0.1:8080"},
        {"origin": "http://127.0.0.1:8081"},
        {"origin": "null", "sec_fetch_site": "cross-site"},
        {"origin": "http://127.0.0.1:8080", "sec_fetch_site": "cross-site"},
        {"origin": "http://127.0.0.1:8080", "sec_fetch_site": "same-site"},
    ],
)
def test_a_form_from_elsewhere_is_not(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        check_source(head("POST", content_type=FORM, **headers), HERE)


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "multipart/form-data; boundary=x", "application/json"]
)
def test_a_form_has_one_content_type(kind: str) -> None:
    with pytest.raises(InvalidRequest):
        check_source(head("POST", origin=HERE.origin, content_type=kind), HERE)


@pytest.mark.parametrize(
    ("site", "mode", "dest", "passes", "follows"),
    [
        ("none", "navigate", "document", True, False),
        ("same-origin", "cors", "empty", True, False),
        ("cross-site", "navigate", "document", True, True),
        ("same-site", "navigate", "document", True, False),
        ("cross-site", "navigate", "iframe", False, False),
        ("cross-site", "no-cors", "image", False, False),
        ("same-site", "no-cors", "script", False, False),
        ("cross-site", "cors", "empty", False, False),
    ],
)
def test_other_sites_may_link_here_and_nothing_else(
    site: str, mode: str, dest: str, passes: bool, follows: bool
) -> None:
    asked = head(sec_fetch_site=site, sec_fetch_mode=mode, sec_fetch_dest=dest)
    assert is_followed_link(asked) == follows
    if passes:
        check_source(asked, HERE)
    else:
        with pytest.raises(Forbidden):
            check_source(asked, HERE)


def test_a_header_that_decides_is_there_once() -> None:
    assert read_headers([(b"Cookie", b"a=1"), (b"cookie", b"b=2")])["cookie"] == "a=1; b=2"
    for name in (b"host", b"origin", b"Sec-Fetch-Site"):
        with pytest.raises(InvalidRequest):
            read_headers([(name, b"a"), (name, b"a")])


def test_of_two_cookies_of_one_name_neither_counts() -> None:
    assert read_cookie("a=1; sluice_pages=x; b=2", "sluice_pages") == "x"
    assert read_cookie("sluice_pages=x; sluice_pages=y", "sluice_pages") == ""
    assert read_cookie("xsluice_pages=x", "sluice_pages") == ""


@pytest.mark.parametrize(
    ("at", "fragment"),
    [("b3", "#b3"), ("c398", "#c398"), ("", ""), ("B3", ""), ('"><x', ""), ("b3#x", "")],
)
def test_a_place_is_a_name(at: str, fragment: str) -> None:
    assert place(at) == fragment


def test_wrong_keys_are_counted_by_address_and_in_all_and_forgotten_after_a_minute() -> None:
    attempts = Attempts()
    for number in range(MOST_WRONG):
        attempts.begin("a", float(number))
    with pytest.raises(RateLimited) as refused:
        attempts.begin("a", 10.0)
    assert refused.value.retry_after_s == WINDOW_S - 10
    attempts.begin("d", 10.0)
    attempts.forget("d", 10.0)
    for number in range(MOST_WRONG_IN_ALL - MOST_WRONG):
        attempts.begin(f"c{number}", 11.0)
    with pytest.raises(RateLimited):
        attempts.begin("b", 12.0)
    # who had a right key is not kept out by others
    attempts.begin("d", 12.0)
    attempts.forget("d", 12.0)
    attempts.begin("a", WINDOW_S + 0.5)


@pytest.mark.parametrize(
    ("peer", "said", "address"),
    [
        ("10.0.0.1", "9.9.9.9", "10.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "9.9.9.9, 1.2.3.4", "1.2.3.4"),
        ("127.0.0.1", "1.2.3.4, ::1", "1.2.3.4"),
        ("127.0.0.1", "9.9.9.9; 1.2.3.4", "1.2.3.4"),
        ("127.0.0.1", " , ", "127.0.0.1"),
        ("::ffff:127.0.0.1", "1.2.3.4, 0:0::1", "1.2.3.4"),
        ("127.0.0.1", "unknown", "unknown"),
        ("127.0.0.1", "2001:db8::9", "2001:db8::/64"),
    ],
)
def test_only_a_trusted_proxy_says_who_comes_through_it(peer: str, said: str, address: str) -> None:
    assert Pages(trusted_proxies=("127.0.0.1", "::1")).address_of(peer, said) == address
    assert Pages().address_of(peer, said) == peer.removeprefix("::ffff:")


def test_who_has_a_network_of_addresses_is_one() -> None:
    of = Pages().address_of
    assert {of(peer, "") for peer in ("2001:db8::1", "2001:db8::ffff:1:2:3", "2001:0DB8::2")} == {
        "2001:db8::/64"
    }
    assert of("2001:db8:0:1::1", "") == "2001:db8:0:1::/64" and of("fe80::1%eth0", "") == of(
        "fe80::2%eth0", ""
    )
    assert of("", "") == "" and of("10.0.0.1", "") != of("10.0.0.2", "")


class Sessions(PageSessions):
    """Logins that are looked up as soon as `answers` is set."""

    def __init__(self) -> None:
        self.asked, self.answers = 0, asyncio.Event()
        self.login: Login | None = Login("0" * 64, datetime.now(UTC), "dev", frozenset({"auditor"}))

    async def find(self, token: bytes, *, is_seen: bool = True) -> Login | None:
        self.asked += 1
        await self.answers.wait()
        return self.login if token == sha256(b"k" * 43).digest() else None


async def test_unknown_cookies_are_looked_up_one_at_a_time_and_known_ones_at_once() -> None:
    sessions = Sessions()
    logins = Logins((), sessions)
    sessions.answers.set()
    assert await logins.find("k" * 43, "10.0.0.1") is not None and logins.key_of("k" * 43)
    sessions.answers.clear()
    strangers = [
        asyncio.create_task(logins.find(f"{number:043}", f"10.0.0.{number % 3}"))
        for number in range(40)
    ]
    await asyncio.sleep(0)
    assert sessions.asked == 2
    known = asyncio.create_task(logins.find("k" * 43, "10.0.0.1"))
    await asyncio.sleep(0)
    assert sessions.asked == 3
    sessions.answers.set()
    assert await known is not None and await asyncio.gather(*strangers) == [None] * 40
    # one that ended waits as a stranger
    sessions.login = None
    assert await logins.find("k" * 43, "10.0.0.1") is None and not logins.key_of("k" * 43)


async def test_one_key_leaves_room_for_others() -> None:
    turns = PageTurns()

    async def ask(key_id: str) -> None:
        async with turns.turn(key_id):
            pass

    async with AsyncExitStack() as held:
        for _ in range(MOST_OF_ONE):
            await held.enter_async_context(turns.turn("a"))
        waiting = [asyncio.create_task(ask("a")) for _ in range(MOST_ASKED_BY_ONE - MOST_OF_ONE)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await ask("a")
        await ask("b")
        assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)


async def test_an_export_begins_at_once_and_is_read_whole_whoever_takes_it_slowly() -> None:
    goes_on, is_read = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncGenerator[bytes]:
        yield b"first"
        await goes_on.wait()
        for _ in range(3):
            yield b"x" * SPOOLED_BYTES
        is_read.set()

    pieces = spooled(lines())
    assert await anext(pieces) == b"first"
    goes_on.set()
    await is_read.wait()
    assert sum([len(piece) async for piece in pieces]) == 3 * SPOOLED_BYTES


async def test_an_export_waits_for_who_takes_it_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 3 * spooled_output.PIECE_BYTES + 5
    monkeypatch.setattr(spooled_output, "MOST_SPOOLED", most)
    monkeypatch.setattr(spooled_output, "SPOOLED_BYTES", 0)
    sent = [bytes([number]) * (number * 7_919 % 200_000) for number in range(60)]
    begun = 0

    async def lines() -> AsyncGenerator[bytes]:
        nonlocal begun
        for line in sent:
            begun += len(line)
            yield line

    taken = b""
    async for piece in spooled(lines()):
        taken += piece
        for _ in range(20):
            # what fills it goes on as far as it may
            await asyncio.sleep(0)
        assert begun <= len(taken) + most + max(map(len, sent))
    assert taken == b"".join(sent)


async def test_an_export_that_fails_is_not_completed_and_one_that_nobody_takes_ends() -> None:
    has_ended = False

    async def lines(fault: Exception | None) -> AsyncGenerator[bytes]:
        nonlocal has_ended
        try:
            yield b"first"
            if fault is not None:
                raise fault
            await asyncio.Event().wait()
        finally:
            has_ended = True

    pieces = spooled(lines(AuditUnavailable("away")))
    assert await anext(pieces) == b"first"
    with pytest.raises(AuditUnavailable):
        await anext(pieces)
    assert has_ended
    has_ended = False
    pieces = spooled(lines(None))
    assert isinstance(pieces, AsyncGenerator) and await anext(pieces) == b"first"
    await pieces.aclose()
    assert has_ended


async def test_answers_of_one_key_that_stay_open_leave_room_for_others() -> None:
    answers = OpenAnswers(Logins((), Sessions()))

    async def opened(key_id: str, media_type: str = "text/plain") -> AsyncGenerator[bytes]:
        download = Download(pieces=sliced(b"x" * 2**20), media_type=media_type)
        pieces = await answers.begin(download, "", key_id)
        await anext(pieces)
        return pieces

    held = [await opened("a") for _ in range(MOST_DOWNLOADS_OF_ONE)]
    with pytest.raises(RateLimited):
        await opened("a")
    held += [
        await opened("b"),
        *[await opened("a", "text/event-stream") for _ in range(MOST_STREAMS_OF_ONE)],
    ]
    with pytest.raises(RateLimited):
        await opened("a", "text/event-stream")
    await held.pop(0).aclose()
    held.append(await opened("a"))
    for pieces in held:
        await pieces.aclose()
    assert not answers.downloads.total() and not answers.streams.total()


NOBODY = Runtime(config=Config(), redis_url="", database_url="postgresql://nobody@127.0.0.1:1/none")


@pytest.fixture
async def app() -> AsyncGenerator[App]:
    """Pages that say what they were asked, to somebody whose login needs no database."""

    async def view(asked: PageRequest) -> Download:
        return Download(pieces=sliced(as_json(dict(asked.params))))

    paths = (
        "/debug/calls",
        "/debug/calls/{call_id}",
        "/debug/sessions/{key}/{session}",
        "/debug/{type}",
    )
    made = App(
        NOBODY,
        [*(Route(path, view) for path in paths), Route("/debug/labels", view, method="POST")],
    )
    sessions = Sessions()
    sessions.answers.set()
    made.logins._sessions = sessions
    yield made
    await made.close()


async def ask(
    app: App, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[bytes, bytes], bytes]:
    """What a browser with the login of `Sessions` gets."""
    sent = list[Any]()
    coming = [{"type": "http.request", "body": b""}]

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1", "cookie": "sluice_pages=" + "k" * 43} | headers
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in given.items()
        ],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


async def test_a_path_is_taken_apart_before_it_is_read(app: App) -> None:
    for path, params in {
        "/debug/calls": {},
        "/debug/transport": {"type": "transport"},
        "/debug/sessions/k/a%2Fb": {"key": "k", "session": "a/b"},
        "/debug/sessions/k/~..": {"key": "k", "session": ".."},
    }.items():
        status, _, body = await ask(app, path)
        assert (status, json.loads(body)) == (200, params), path
    for path in (
        "/debug/calls/",
        "/debug/calls/a/b/c",
        "/debug/sessions/k/%00",
        "/debug/sessions/k/%ff",
        "/debug//calls",
        "/debug/",
    ):
        assert (await ask(app, path))[0] == 404, path
    status, headers, body = await ask(
        app,
        "/debug/calls/x",
        "POST",
        origin="http://127.0.0.1",
        content_type=FORM,
        accept="application/json",
    )
    assert (status, headers[b"allow"]) == (405, b"GET, HEAD")
    assert json.loads(body)["error"]["code"] == "method_not_allowed"


async def test_a_head_of_what_comes_in_pieces_has_no_piece(app: App) -> None:
    status, headers, body = await ask(app, "/debug/calls", "HEAD")
    assert (status, body) == (200, b"") and headers[b"cache-control"] == b"no-store"


def test_a_page_that_fails_is_logged_by_its_place_and_its_mark_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise ValueError("planted words")
    except ValueError as error:
        visit = Visit(Head("GET", "/debug/search", [("q", "planted words")], {}, ""))
        app = App(NOBODY, ())
        reply = failed(error, visit, app.services)
    [record] = caplog.records
    line = JsonLines("pages").format(record)
    mark = re.search(rb"Error id <code>([0-9a-f]{8})<", bytes(reply.body))
    assert (
        reply.status_code == 500 and mark is not None and json.loads(line)["id"] == mark[1].decode()
    )
    assert "planted" not in line and "ValueError" in line and b"ValueError" not in bytes(reply.body)
