"""The pages over HTTP through a gateway: logins, refusals, headers, and that nothing is shown of
which no row says so."""

import asyncio
import base64
import contextlib
import re
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2 as httpx
import msgspec
import psycopg
import pytest

from db.engine import open_engine
from db.filters import LinePosition, Position, encode_cursor
from db.page_sessions import MOST_OF_KEY, PageSessions
from db.write.insert import AuditInserter
from pages.http.request_checks import Site
from pages.page import Route
from pages.routes import ROUTES
from tests.support.checks.asking import ask
from tests.support.checks.logins import browser, log_in, make_key, rename
from tests.support.checks.record import fresh_database, rows, whole_call
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, digest
from tests.support.waiting import wait_for

ADMIN = "sk-sluice-admin"
SAFE = {
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


CALL = "01990000-0001-7000-8000-00000000abcd"
CROSS = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    """A gateway and its pages, over a record of one call."""
    config = base_config()
    config["keys"].append({"name": "boss", "sha256": digest(ADMIN), "roles": ["admin", "approver"]})

    async def insert(url: str) -> None:
        async with AuditInserter(url) as inserter:
            assert not await inserter.insert(whole_call(CALL), {CALL: b'{"messages": []}'})
        ask(url, "apr_1", call=CALL)

    with (
        fresh_database(database_url) as url,
        Product(tmp_path_factory.mktemp("pages"), redis_url, url, config) as made,
    ):
        asyncio.run(insert(url))
        made.start("gateway", "pages")
        yield made


def filled(route: Route, call: str = CALL) -> str:
    """The path of a route, with what the record has in its places."""
    name = "dev" if "keys" in route.path else "default"
    known = {
        "call_id": call,
        "block": "1",
        "number": "1",
        "key": "dev",
        "session": "s-1",
        "name": name,
        "sha256": "0" * 64,
        "approval_id": "apr_1",
    }
    return re.sub(r"\{(\w+)\}", lambda found: known[found[1]], route.path)


READ = sorted({filled(route): route for route in ROUTES if route.method == "GET"}.items())
SENT = sorted(
    {(filled(route), route.role) for route in ROUTES if route.method == "POST"}
    | {("/debug/logout", "auditor")}
)


def test_without_a_login_there_is_nothing(product: Product) -> None:
    unknown = "01990000-0001-7000-8000-00000000ffff"
    others = [
        "/debug/nothing",
        "/debug/calls/%2e%2e",
        "/debug//x",
        *(filled(route, unknown) for _, route in READ),
    ]
    with browser(product) as nobody:
        for path in {*(path for path, _ in READ), *others}:
            answer = nobody.get(path)
            assert answer.status_code == 303 and answer.content == b"" and not answer.cookies, path
            assert answer.headers["location"].startswith("/debug/login"), path
        # what no page takes is refused before anybody looks who asks
        assert nobody.get("/debug/calls/x?y=%00z").status_code == 400


def test_a_key_becomes_a_cookie_that_is_good_for_pages_alone(product: Product) -> None:
    with browser(product) as reader:
        first = reader.get("/debug/reads?limit=5")
        assert first.headers["location"] == "/debug/login?next=%2Fdebug%2Freads%3Flimit%3D5"
        assert KEY not in reader.get(first.headers["location"]).text
        answer = reader.post("/debug/login", data={"key": ADMIN, "next": "/debug/reads?limit=5"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/debug/reads?limit=5")
        said = answer.headers["set-cookie"]
        assert (
            "Path=/debug;" in said
            and "HttpOnly" in said
            and "SameSite=Strict" in said
            and "Secure" not in said
        )
        cookie = {"cookie": said.partition(";")[0]}
        for path in ("/audit/calls", "/v1/models", "/metrics"):
            assert reader.get(path, headers=cookie).status_code == 401


def test_a_key_that_may_not_read_is_refused(product: Product) -> None:
    with browser(product) as app:
        answer = app.post("/debug/login", data={"key": CLIENT_KEY})
        assert answer.status_code == 403 and "auditor" in answer.text and not answer.cookies


def has_our_headers(product: Product, answer: httpx.Response, *, is_asset: bool = False) -> bool:
    """Has an answer every header of the pages, with its whole value?"""
    site = Site(product.url, is_secure=False, is_loopback=True)
    ours = {name.decode(): value.decode() for name, value in site.headers()}
    if is_asset:
        ours["cache-control"] = "public, max-age=31536000, immutable"
    assert "x-sluice-login" not in answer.headers
    return dict(answer.headers).items() >= ours.items()


def test_headers_are_on_every_answer(product: Product, reader: httpx.Client) -> None:
    asset = re.findall(r'href="(/debug/static/[^"]+css)"', reader.get("/debug/calls").text)[0]
    large, evil = {"key": "x" * 70_000}, {"host": "evil.example"}
    asked: list[tuple[str, str, int, Json]] = [
        ("GET", "/debug/calls", 200, {}),
        ("GET", "/debug/calls?format=json", 400, {}),
        ("HEAD", "/debug", 200, {}),
        ("GET", "/debug/login", 303, {}),
        ("GET", "/debug/none", 404, {}),
        ("GET", "/debug/calls?x=%00", 400, {}),
        ("GET", "/debug/reads", 403, {}),
        ("PUT", "/debug", 405, {}),
        ("OPTIONS", "/debug/calls", 405, {}),
        ("GET", "/debug/logout", 405, {}),
        ("GET", "/debug/labels", 405, {}),
        ("POST", "/debug/login", 400, {}),
        ("POST", "/debug/login", 413, {"data": large}),
        ("GET", "/debug", 421, {"headers": evil}),
        ("GET", f"/debug/calls/{CALL}/text", 200, {}),
        ("GET", f"/debug/calls/{CALL}/request/raw", 200, {}),
        ("GET", f"/debug/calls/{CALL}/export", 200, {}),
        ("GET", "/debug/judge-blocks?format=jsonl", 200, {}),
        ("GET", asset, 200, {}),
    ]
    for method, path, status, more in asked:
        answer = reader.request(method, path, **more)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text[:300])
        assert has_our_headers(product, answer, is_asset=path == asset), (
            method,
            path,
            answer.headers,
        )
    with reader.stream("GET", "/debug/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream" and has_our_headers(
            product, stream
        )


def token_of(reader: httpx.Client) -> str:
    """The token of this login's forms."""
    found = re.search(r'name="token" value="([0-9a-f]{64})"', reader.get("/debug/calls").text)
    assert found is not None
    return found[1]


OTHER_STATUS = {
    "/debug/judge": 303,
    f"/debug/calls/{CALL}/blocks/1/evidence/file": 400,
    f"/debug/calls/{CALL}/request/files/{'0' * 64}": 404,
    # without the number of a line
    f"/debug/calls/{CALL}/hooks/raw": 400,
}
NO_CONTENT = {
    "/debug/events",
    "/debug/approvals/events",
    "/debug/integrity",
    "/debug/keys",
    "/debug/keys/dev",
    "/debug/policies",
    # of this record: nothing was refused lately, nothing is looked for, no call has debug lines
    "/debug",
    "/debug/search",
    "/debug/logs",
    "/debug/transport",
    "/debug/endpoint",
    "/debug/policy",
    "/debug/callback",
}
"""Paths that show figures and names alone, so no row says so."""


@pytest.mark.slow
def test_content_is_on_record_before_it_is_sent(product: Product) -> None:
    def newest() -> list[Any]:
        return rows(
            product.database_url,
            "SELECT path, filters, key, call_ids, session FROM reads ORDER BY at",
        )

    def ask(path: str) -> tuple[int, bytes]:
        with boss.stream("GET", path) as answer:
            # of a stream of events the beginning
            is_stream = answer.headers.get("content-type") == "text/event-stream"
            return answer.status_code, next(answer.iter_raw()) if is_stream else answer.read()

    paths = [path for path, _ in READ if path not in OTHER_STATUS] + ["/debug/search?q=rm"]
    with contextlib.closing(log_in(product, ADMIN)) as boss:
        for path in paths:
            count = len(newest())
            assert ask(path)[0] == 200, path
            assert [row[0] for row in newest()[count:]] == (
                [] if path in NO_CONTENT else [path.partition("?")[0]]
            )
        for path, status in OTHER_STATUS.items():
            assert ask(path)[0] == status and newest()[-1][0] != path, path
        boss.get("/debug/calls?key=dev")
        row = newest()[-1]
        assert row[:3] == ("/debug/calls", "key=dev", "boss") and [str(one) for one in row[3]] == [
            CALL
        ]
        assert len(row[4]) == 16 and row[4] not in boss.cookies["sluice_pages"]
        before = newest()
        for path in (
            "/debug/login",
            "/debug/none",
            "/debug/calls?limit=0",
            f"/debug/calls/{CALL}/nothing",
        ):
            boss.get(path)
        assert newest() == before
        rename(product, "reads", "away")
        try:
            for path in paths:
                status, body = ask(path)
                assert status == (200 if path in NO_CONTENT else 503), path
                assert (
                    path in NO_CONTENT
                    or (b"rm -rf" not in body and b"nothing is shown" in body)
                    or path == "/debug/reads"
                )
        finally:
            rename(product, "away", "reads")


def test_logging_out_ends_the_login_and_only_a_form_of_ours_can(product: Product) -> None:
    with contextlib.closing(log_in(product, KEY)) as reader:
        token = token_of(reader)
        assert reader.get("/debug/logout").status_code == 405
        for data, headers in (
            ({}, {}),
            ({"token": "0" * 64}, {}),
            ({"token": token}, {"origin": "https://evil.example"}),
            ({"token": token}, {"sec-fetch-site": "cross-site"}),
            ({"token": token}, {"content-type": "text/plain"}),
        ):
            assert reader.post("/debug/logout", data=data, headers=headers).status_code in (
                400,
                403,
            )
        assert reader.get("/debug/calls").status_code == 200
        cookie = {"cookie": f"sluice_pages={reader.cookies['sluice_pages']}"}
        ended = reader.post("/debug/logout", data={"token": token})
        assert ended.status_code == 303 and "Max-Age=0" in ended.headers["set-cookie"]
        with browser(product) as old:
            assert old.get("/debug/calls", headers=cookie).status_code == 303
            assert (
                old.post("/debug/logout", data={"token": token}, headers=cookie).status_code == 403
            )


def test_only_a_form_of_this_login_and_of_our_own_page_changes_anything(
    product: Product, reader: httpx.Client
) -> None:
    def state() -> list[Any]:
        tables = (
            "labels",
            "debug_switches",
            "page_sessions WHERE until > now()",
            "approval_votes",
        )
        return [
            rows(product.database_url, f"SELECT count(*) FROM {table}")[0][0] for table in tables
        ]

    with (
        contextlib.closing(log_in(product, ADMIN)) as boss,
        contextlib.closing(log_in(product, ADMIN)) as other,
    ):
        token = {"token": token_of(boss)}
        forms = {
            "/debug/labels": {"wrong": f"{CALL}-1", "back": "/debug/judge-blocks"},
            "/debug/logout": {"x": "1"},
            "/debug/logs": {"key": "dev", "minutes": "10", "policy": "1"},
            (approval := "/debug/approvals/apr_1"): {"decision": "approve"},
        }
        before = state()
        assert {path for path, _ in SENT} == set(forms)
        for path, role in SENT:
            for data, headers, status in (
                ({}, {}, 403),
                ({"token": "0" * 64}, {}, 403),
                ({"token": token_of(other)}, {}, 403),
                (token, {"origin": "https://evil.example"}, 403),
                (token, {"origin": ""}, 403),
                (token, {"sec-fetch-site": "cross-site"}, 403),
                (token, {"sec-fetch-site": "same-site"}, 403),
                (token, {"content-type": "text/plain"}, 400),
                (token, {"content-type": "application/json"}, 400),
                (token, {"cookie": ""}, 403),
            ):
                answer = boss.post(path, data=forms[path] | data, headers=headers)
                assert answer.status_code == status, (path, data, headers, answer.status_code)
            if role in ("admin", "approver"):
                assert (
                    reader.post(path, data=forms[path] | {"token": token_of(reader)}).status_code
                    == 403
                ), path
            if path not in ("/debug/logs", approval):
                assert boss.get(path, params=forms[path] | token).status_code == 405, path
        for path in ("/debug/logs", approval):
            boss.get(path, params=forms[path] | token)
        assert state() == before
        for path in ("/debug/labels", "/debug/logs", approval, "/debug/logout"):
            assert boss.post(path, data=forms[path] | token).status_code == 303, path
        after = state()
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, -1, 1]


def test_a_revoked_key_and_a_lost_role_end_the_login_at_once(product: Product) -> None:
    for change in ("revoked_at = now()", "roles = '{client}'", "expires_at = now()"):
        with contextlib.closing(
            log_in(product, asyncio.run(make_key(product, f"kim-{change[:5]}")))
        ) as reader:
            assert reader.get("/debug/calls").status_code == 200
            with psycopg.connect(product.database_url, autocommit=True) as owner:
                owner.execute(f"UPDATE api_keys SET {change} WHERE name LIKE 'kim-%'".encode())
            assert reader.get("/debug/calls").status_code == 303


def test_an_idle_login_and_an_old_one_end(product: Product) -> None:
    for change in ("seen_at = now() - interval '61 minutes'", "until = now()"):
        with contextlib.closing(log_in(product, KEY)) as reader:
            with psycopg.connect(product.database_url, autocommit=True) as owner:
                token = sha256(reader.cookies["sluice_pages"].encode()).digest()
                owner.execute(
                    f"UPDATE page_sessions SET {change} WHERE token_sha256 = %s".encode(), (token,)
                )
            assert reader.get("/debug/calls").status_code == 303


def test_the_oldest_logins_of_a_key_end_where_there_are_too_many(product: Product) -> None:
    with contextlib.ExitStack() as open_:
        first, *others = [
            open_.enter_context(contextlib.closing(log_in(product, ADMIN)))
            for _ in range(MOST_OF_KEY + 1)
        ]
        assert first.get("/debug/reads").status_code == 303
        assert {
            others[0].get("/debug/reads").status_code,
            others[-1].get("/debug/reads").status_code,
        } == {200}


async def test_a_look_at_a_login_is_no_use_of_it(product: Product) -> None:
    with contextlib.closing(await asyncio.to_thread(log_in, product, KEY)) as reader:
        token = sha256(reader.cookies["sluice_pages"].encode()).digest()
    with psycopg.connect(product.database_url, autocommit=True) as owner:
        owner.execute(
            "UPDATE page_sessions SET seen_at = now() - interval '30 minutes' WHERE token_sha256"
            " = %s",
            (token,),
        )
        engine = open_engine(product.database_url, read_only=False)
        try:
            for is_seen in (False, True):
                assert await PageSessions(engine).find(token, is_seen=is_seen) is not None
                asked = (
                    "SELECT seen_at > now() - interval '1 minute' FROM page_sessions WHERE"
                    " token_sha256 = %s"
                )
                assert owner.execute(asked, (token,)).fetchone() == (is_seen,)
        finally:
            await engine.dispose()


def test_only_admins_see_who_read_what(product: Product) -> None:
    with (
        contextlib.closing(log_in(product, KEY)) as auditor,
        contextlib.closing(log_in(product, ADMIN)) as boss,
    ):
        auditor.get(f"/debug/calls/{CALL}")
        assert auditor.get("/debug/reads").status_code == 403
        told = boss.get(f"/debug/reads?call_id={CALL[:13]}").text.partition("<tbody")[2]
        newest = told.partition("</tr>")[0]
        assert f"/debug/calls/{CALL}" in newest and "dev" in newest
        assert "/debug/reads" in boss.get("/debug/reads").text
        for bad in ("cursor=x", "limit=1", "key=a&key=b", "call_id=zz"):
            assert boss.get(f"/debug/reads?{bad}").status_code == 400


def test_a_link_from_elsewhere_leads_on_and_lands_at_its_place(product: Product) -> None:
    path = f"/debug/calls/{CALL}?at=b1"
    with contextlib.closing(log_in(product, KEY)) as reader, browser(product) as nobody:
        first = nobody.get(path, headers=CROSS)
        assert first.status_code == 200 and CALL in first.text and "rm -rf" not in first.text
        onward = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', first.text)
        assert onward is not None
        to = onward[1].replace("&amp;", "&")
        assert to == f"{path}&again=1"
        landed = reader.get(to, headers={"sec-fetch-site": "same-origin"})
        assert (landed.status_code, landed.headers["location"]) == (303, f"/debug/calls/{CALL}#b1")
        # without a login: no loop, and the place is kept
        refused = nobody.get(to, headers=CROSS)
        assert refused.status_code == 303 and refused.headers["location"].startswith(
            "/debug/login?next="
        )
        assert "again" not in refused.headers["location"] and "b1" in refused.headers["location"]
        # frames, images and scripts of other sites get nothing, logged in or not
        for headers in (
            {**CROSS, "sec-fetch-dest": "iframe"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        ):
            assert reader.get(path, headers=headers).status_code == 403


BAD = {
    200: ("search?q=%ed%a0%80", "sessions/dev/.."),
    303: (f"calls/{{{CALL}}}",),
    400: (
        "calls?limit=0",
        "calls?limit=1e9",
        "calls?limit=-1",
        "calls?since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z",
        "calls?since=0000-01-01",
        "calls?since=10000000000000",
        "calls?nobody=1",
        "calls?key=a&key=b",
        f"calls?key={'x' * 1001}",
        "calls?cursor=AAAA",
        "calls?cursor=%00",
        "tool-calls?cursor=../..",
        "calls/x",
        f"calls/{CALL.upper()}%20",
        f"calls/{'a' * 4000}",
        "calls/..%2f..%2fv1",
        f"calls/{CALL}/blocks/99999999999999999999",
        f"calls/{CALL}/blocks/-1",
        f"calls/{CALL}/wire?seq=-1",
        f"calls/{CALL}/diff?view=x",
        "search?q=" + "x" * 1001,
        "?" + "&".join(f"a{n}=1" for n in range(100)),
        "calls?tz=mars",
        "calls?tz=utc&tz=utc",
        "logs?q=%00",
    ),
    404: (
        "calls/%00",
        "calls/%ff",
        "calls/%2e%2e/%2e%2e/v1/models",
        "calls//",
        f"calls/{CALL}/nothing",
        f"calls/{CALL}/blocks/999",
        "sessions/dev/%00",
        "policies/%0d%0a",
        "static/%2e%2e/app.py",
        "events/x",
    ),
}
"""By the status that each must have."""


@pytest.mark.parametrize(
    ("status", "path"), [(status, path) for status, paths in BAD.items() for path in paths]
)
def test_bad_input_gets_a_sentence(
    product: Product, reader: httpx.Client, status: int, path: str
) -> None:
    answer = reader.get(f"/debug{'' if path.startswith('?') else '/'}{path}")
    assert answer.status_code == status, answer.text
    if status >= 400:
        assert (
            "<p>" in answer.text
            and "Traceback" not in answer.text
            and re.search(r"Error id <code>[0-9a-f]{8}<", answer.text)
        )
        again = reader.get(
            f"/debug{'' if path.startswith('?') else '/'}{path}",
            headers={"accept": "application/json"},
        )
        assert again.json()["error"]["id"], path
    assert dict(answer.headers).items() >= SAFE.items()


@pytest.fixture(scope="module")
def reader(product: Product) -> Iterator[httpx.Client]:
    """One login for many questions."""
    made = log_in(product, KEY)
    yield made
    made.close()


def cursors() -> dict[str, str]:
    """A cursor of each list, as the list itself makes them."""
    call = UUID(CALL)
    found = {
        of: encode_cursor(Position(of, "desc", call, 1))
        for of in ("calls", "tool-calls", "judge-blocks")
    }
    reads = msgspec.msgpack.encode(("2026-11-20T10:00:00+00:00", call.bytes))
    return found | {
        "logs": encode_cursor(LinePosition("debug-logs", call, 1, "gateway g", 1)),
        "reads": base64.urlsafe_b64encode(reads).rstrip(b"=").decode(),
    }


LISTS = {
    "calls": "calls",
    "sessions": "calls",
    "conversation-logs": "calls",
    "tool-calls": "tool-calls",
    "tool-call-logs": "tool-calls",
    "search?q=rm": "tool-calls",
    "judge-blocks": "judge-blocks",
    "judge-blocks?format=jsonl": "judge-blocks",
    "logs": "logs",
    "policy": "logs",
    "reads": "reads",
}
"""Each list, and whose cursors it takes: sessions are listed by their last calls."""


@pytest.mark.slow
def test_a_cursor_that_was_cut_or_is_of_another_list_is_refused_in_words(product: Product) -> None:
    known = cursors()
    with contextlib.closing(log_in(product, ADMIN)) as boss:
        for path, of in LISTS.items():
            to = f"/debug/{path}{'&' if '?' in path else '?'}cursor="
            assert boss.get(to + known[of]).status_code == 200, path
            others = {cursor for name, cursor in known.items() if name != of}
            for bad in (
                {known[of][:n] for n in range(1, len(known[of]), 9)}
                | {known[of][:-1], known[of] + "A", known[of][1:]}
                | others
            ):
                answer = boss.get(to + bad)
                assert (
                    answer.status_code == 400 and "cursor" in answer.text.partition("<main")[2]
                ), (path, bad, answer.status_code)
                assert "rm -rf" not in answer.text


def test_a_call_with_dead_letters_and_no_seal_says_so(
    product: Product, reader: httpx.Client
) -> None:
    path = f"/debug/calls/{CALL}"
    with psycopg.connect(product.database_url, autocommit=True) as owner:
        set_aside = (
            "INSERT INTO dead_letters (sha256, call_id, kind, raw, reason) VALUES ('\\x01', %s,"
            " 'block', '\\x80', 'no text')"
        )
        owner.execute(set_aside.encode(), (CALL,))
        try:
            page = reader.get(path).text
        finally:
            owner.execute("DELETE FROM dead_letters")
    assert "1 record of it fits no table and lies in the dead letters." in page
    assert "not sealed" in page and "Not sealed yet." in page and "rm -rf" in page
    assert "dead letters" not in reader.get(path).text
    proof, evidence = reader.get(f"{path}/proof").text, reader.get(f"{path}/blocks/1/evidence").text
    assert "It has no seal yet" in proof and "There is no proof to take away" in evidence


@pytest.mark.slow
@pytest.mark.parametrize("switch", [{"enabled": False}, {"on_gateway": False}])
def test_pages_that_are_off_are_nowhere_and_those_of_their_own_are_not_on_the_gateway(
    product: Product, tmp_path: Path, switch: dict[str, bool]
) -> None:
    port, is_alone = free_port(), "on_gateway" in switch
    other = Product(
        tmp_path,
        product.redis_url,
        product.database_url,
        base_config() | {"pages": switch | {"port": port}},
    )
    try:
        other.start("gateway")
        if is_alone:
            other.start("pages")
        for path in ("", "/login", "/calls", f"/calls/{CALL}", "/static/app.css"):
            answer = httpx.get(f"{other.url}/debug{path}")
            assert answer.status_code == 404 and "Log in" not in answer.text, path
        if is_alone:
            other.url = f"http://127.0.0.1:{port}"
            with contextlib.closing(log_in(other, KEY)) as alone:
                assert CALL in alone.get("/debug/calls").text
                assert (
                    alone.get("/v1/models").status_code
                    == alone.get("/audit/calls").status_code
                    == 404
                )
    finally:
        other.stop()


def test_methods_and_kinds_of_answer(reader: httpx.Client) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        answer = reader.request(method, "/debug/calls")
        assert answer.status_code == 405 and "POST" in answer.headers["allow"]
    head = reader.head("/debug/calls")
    assert (
        head.status_code == 200
        and head.content == b""
        and int(head.headers["content-length"]) > 500
    )
    for accept in (
        "*/*",
        "text/html",
        "text/*;q=0.1",
        "image/png",
        "",
        "garbage;;;",
        "text/html, application/json",
        "application/json",
    ):
        assert (
            reader.get("/debug/calls", headers={"accept": accept})
            .headers["content-type"]
            .startswith("text/html")
        )


def test_what_is_too_much_is_cut_off_before_it_costs(
    product: Product, reader: httpx.Client
) -> None:
    assert reader.get("/debug/calls", headers={"x-much": "x" * 300_000}).status_code == 431
    assert reader.get("/debug/calls?q=" + "x" * 9_000).status_code == 400
    assert reader.post("/debug/login", data={"key": "x" * 70_000}).status_code == 413
    assert reader.post("/debug/logout", data={f"a{n}": "1" for n in range(100)}).status_code == 400


def test_no_key_no_cookie_and_no_content_is_in_a_log_and_marks_of_errors_are(
    product: Product, reader: httpx.Client
) -> None:
    shown = ""
    with contextlib.closing(log_in(product, ADMIN)) as boss:
        for path, route in READ:
            if not path.endswith("/events"):
                answer = (boss if route.role == "admin" else reader).get(path)
                shown += answer.text
                assert "rm -rf" not in answer.headers.get("location", ""), path
        cookies = [reader.cookies["sluice_pages"], boss.cookies["sluice_pages"]]
    reader.get(f"/debug/calls?q={KEY}")
    rename(product, "chunks", "away")
    try:
        failed = [reader.get(f"/debug/calls/{CALL}/text"), reader.get(f"/debug/calls/{'a' * 40}")]
    finally:
        rename(product, "away", "chunks")
    said = product.logs() + "".join(child.log.read_text() for child in product.children)
    content = ["rm -rf", "deletes files", "is it harmful?"]
    assert all(word in shown for word in content)
    assert [
        word
        for word in (KEY, ADMIN, digest(KEY), digest(ADMIN), *cookies, *content)
        if word in said
    ] == []
    for answer in failed:
        assert (
            answer.status_code in (400, 404, 503)
            and (mark := re.search(r"Error id <code>([0-9a-f]{8})<", answer.text)) is not None
        )
        assert mark[1] in said, "whoever looks for it finds it"


@pytest.mark.slow
def test_wrong_keys_are_slowed_down_whatever_address_they_say(product: Product) -> None:
    [old] = product.of("pages")
    old.kill()
    old.wait()
    with browser(product) as stranger:
        away = stranger.get("/debug/calls")
        assert (
            away.status_code == 503
            and "sluice pages" in away.text
            and has_our_headers(product, away)
        )
        assert httpx.get(f"{product.url}/health").status_code == 200
        product.start("pages")
        told = []
        for number in range(20):
            forged = {
                "x-sluice-client-address": f"10.0.0.{number}",
                "x-forwarded-for": f"10.0.0.{number}",
            }
            told.append(
                stranger.post(
                    "/debug/login", data={"key": f"sk-wrong-{number}"}, headers=forged
                ).status_code
            )
        assert told == [403] * 5 + [429] * 15
        # also the right one has to wait
        late = stranger.post("/debug/login", data={"key": KEY})
        assert late.status_code == 429 and has_our_headers(product, late)


def test_a_reader_who_leaves_or_reads_nothing_holds_nobody_up(
    product: Product, reader: httpx.Client
) -> None:
    cookie = f"sluice_pages={reader.cookies['sluice_pages']}"
    head = (
        f"GET /debug/calls HTTP/1.1\r\nhost: 127.0.0.1:{product.port}\r\ncookie: {cookie}\r\n\r\n"
    )
    idle = []
    for _ in range(40):
        one = socket.create_connection(("127.0.0.1", product.port))
        one.sendall(head.encode())
        idle.append(one)
    for one in idle[::2]:
        one.close()
    wait_for(
        lambda: reader.get("/debug/calls").status_code == 200,
        what="a page beside those who read nothing",
    )
    for one in idle[1::2]:
        one.close()
