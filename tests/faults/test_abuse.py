"""Clients that try to get in, to get more than is theirs, or to fill the memory; and secrets, which
must not turn up anywhere."""

import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest
from psycopg import sql

from protocol.bounds import MAX_TARGET_BYTES
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.checks.record import fresh_database
from tests.support.clients.readers import PATHS, request
from tests.support.json_values import Json, as_json
from tests.support.servers.ports import free_port
from tests.support.servers.product import CLIENT_KEY, KEY, Product
from tests.support.upstreams.product import (
    MODEL,
    PROVIDER_KEYS,
    Place,
    call_of,
    config,
    new_session,
    replayed,
)
from tests.support.upstreams.replay import Replay, Reply
from tests.support.waiting import wait_for

DIALECTS: list[DialectName] = ["openai", "anthropic"]
IN_ADDRESS = "canary-in-an-address"


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Place]:
    def made(server: Replay) -> Json:
        base = config(server)
        base["limits"] |= {"body_bytes": 2**20}
        base["upstreams"]["nobody"] = {
            "dialect": "openai",
            "base_url": f"http://user:{IN_ADDRESS}@127.0.0.1:{free_port()}/{IN_ADDRESS}",
        }
        base["models"].append({"match": "nobody-*", "upstream": "nobody"})
        return base

    # of its own: other tests put keys into bodies
    with (
        fresh_database(database_url) as url,
        replayed(tmp_path_factory.mktemp("product"), redis_url, url, made) as running,
    ):
        running[0].start("pages")
        yield running


def said(product: Product, *pieces: bytes, silent_s: float = 10.0) -> bytes:
    """Send bytes as they are; everything that comes back until the server closes or is silent for
    so long."""
    data = b""
    with socket.create_connection(("127.0.0.1", product.port), timeout=10) as connection:
        connection.settimeout(silent_s)
        try:
            for piece in pieces:
                connection.sendall(piece)
            while more := connection.recv(65536):
                data += more
        except (TimeoutError, ConnectionError):
            pass
    return data


def statuses(data: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", data)]


# --- memory ---


def resident_mb(product: Product) -> float:
    found = re.search(
        r"VmHWM:\s+(\d+) kB", Path(f"/proc/{product.of('gateway')[0].pid}/status").read_text()
    )
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.case("C4")
@pytest.mark.parametrize("announced", [True, False])
def test_c4_fifty_megabytes_are_refused_before_they_are_held(
    place: Place, announced: bool, figure: Figure
) -> None:
    product, upstream = place
    upstream.answer(Reply())
    Path(f"/proc/{product.of('gateway')[0].pid}/clear_refs").write_text("5")
    before = resident_mb(product)
    length = f"content-length: {50 * 2**20}" if announced else "transfer-encoding: chunked"
    piece = b"x" * 65536 if announced else b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = (
        f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\nconnection:"
        f" close\r\n{length}\r\n\r\n".encode()
    )
    sent = 0

    def body() -> Iterable[bytes]:
        nonlocal sent
        yield head
        for _ in range(800):
            yield piece
            sent += len(piece)

    answer = _send_until_closed(product, body())
    grown = resident_mb(product) - before
    figure(f"growth of the gateway ({'announced' if announced else 'chunked'})", grown, "MB")
    assert not answer or statuses(answer) == [413]
    assert sent < 45 * 2**20
    assert grown < 20
    assert upstream.asked == []


def _send_until_closed(product: Product, pieces: Iterable[bytes]) -> bytes:
    """Send piece after piece until the server closes; what it said by then."""
    with socket.create_connection(("127.0.0.1", product.port), timeout=10) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
        except ConnectionError:
            pass
        try:
            return connection.recv(65536)
        except ConnectionError:
            # the server closed with bytes of ours unread: a reset may overtake its answer
            return b""


# --- odd requests on a raw socket ---

BODY = as_json(
    {"model": "claude-x", "max_tokens": 5, "messages": [{"role": "user", "content": "go"}]}
)
LISTS = b"GET /audit/calls HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
TARGETS = [
    "//audit/calls",
    "/audit//calls",
    "/./audit/calls",
    "/v1/../audit/calls",
    "/v1/%2e%2e/audit/calls",
    "/%61udit/calls",
    "/audit%2fcalls",
    "/audit/calls;x",
    "/audit/calls?x=/health",
    "/health/../audit/calls",
    "/health%2f..%2faudit/calls",
    "/audit/calls#/health",
    "http://x/audit/calls",
    "http://x/health/../metrics",
    "//metrics",
    "/metrics?/health",
    "/%6detrics",
    "/AUDIT/calls",
    "\\audit\\calls",
]


@pytest.mark.slow
@pytest.mark.case("C7")
@pytest.mark.parametrize("key", [None, CLIENT_KEY], ids=["no key", "a client's key"])
@pytest.mark.parametrize("target", TARGETS)
def test_c7_no_way_of_writing_a_path_opens_the_record(
    place: Place, target: str, key: str | None
) -> None:
    product, upstream = place
    upstream.answer(Reply())
    who = f"x-api-key: {key}\r\n" if key else ""
    got = said(
        product, f"GET {target} HTTP/1.1\r\nhost: x\r\n{who}connection: close\r\n\r\n".encode()
    )
    assert statuses(got) and all(status in (400, 401, 403, 404) for status in statuses(got)), got
    assert b'"items"' not in got and b"sluice_" not in got


@pytest.mark.case("C7")
@pytest.mark.parametrize(
    "target",
    [
        "//v1/messages",
        "/v1//messages",
        "/v1/%6dessages",
        "http://x/v1/messages",
        "/v1/messages?key=" + KEY,
    ],
)
def test_c7_no_way_of_writing_a_path_needs_no_key(place: Place, target: str) -> None:
    product, upstream = place
    upstream.answer(Reply())
    head = (
        f"POST {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length:"
        f" {len(BODY)}\r\n\r\n"
    )
    got = said(product, head.encode() + BODY)
    assert statuses(got) and all(status in (400, 401, 404) for status in statuses(got)), got
    assert upstream.asked == []


HOSTS = ["", "/?#", "a b", "x/audit", "x@y", "x:99999", "[", "x\r\nhost: y", "\x00"]


@pytest.mark.case("C7")
@pytest.mark.parametrize("host", HOSTS, ids=repr)
def test_c7_a_bad_host_changes_nothing(place: Place, host: str) -> None:
    product, _ = place
    for target in ("/audit/calls", "/metrics"):
        got = said(
            product, f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode()
        )
        assert statuses(got) and all(status in (400, 401) for status in statuses(got)), got


SMUGGLED: dict[str, tuple[str, bytes]] = {
    "both lengths": ("content-length: 5\r\ntransfer-encoding: chunked", b"0\r\n\r\n" + LISTS),
    "both lengths the other way": (
        f"transfer-encoding: chunked\r\ncontent-length: {5 + len(LISTS)}",
        b"0\r\n\r\n" + LISTS,
    ),
    "two lengths": ("content-length: 0\r\ncontent-length: 5", LISTS),
    "two codings": (
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        b"0\r\n\r\n" + LISTS,
    ),
    "a coding nobody knows": ("transfer-encoding: xchunked", b"0\r\n\r\n" + LISTS),
    "a space before the colon": ("transfer-encoding : chunked\r\ncontent-length: 0", LISTS),
    "a sign": ("content-length: +0", LISTS),
    "a folded line": ("x-a: b\r\n content-length: 5\r\ncontent-length: 0", LISTS),
    "a large chunk": ("transfer-encoding: chunked", b"ffffffffffffffff0\r\n" + LISTS),
}


@pytest.mark.case("C7")
@pytest.mark.parametrize("case", SMUGGLED)
def test_c7_a_request_inside_another_has_no_rights_of_its_own(place: Place, case: str) -> None:
    product, upstream = place
    upstream.answer(Reply())
    lengths, rest = SMUGGLED[case]
    got = said(
        product,
        f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\n{lengths}\r\n\r\n".encode()
        + rest,
        silent_s=2.0,
    )
    # the first has a key and no good body, whatever is behind it has no key
    assert all(status in (400, 401, 413) for status in statuses(got)), got
    assert b'"items"' not in got
    assert upstream.asked == []


@pytest.mark.case("C7", "C6")
def test_c7_of_two_keys_none_counts(place: Place) -> None:
    product, _ = place
    good, bearer = f"x-api-key: {KEY}", f"authorization: Bearer {KEY}"
    for path in ("/audit/calls", "/v1/models"):
        for both in (
            ("x-api-key: wrong", good),
            (good, "x-api-key: wrong"),
            ("authorization: Bearer wrong", good),
            (bearer, "x-api-key: "),
        ):
            got = said(
                product,
                f"GET {path} HTTP/1.1\r\nhost: x\r\n{both[0]}\r\n{both[1]}\r\nconnection:"
                " close\r\n\r\n".encode(),
            )
            assert statuses(got) == [400] and b'"code":"repeated_header"' in got
        # what SDKs send that are given a key and a token
        got = said(
            product,
            f"GET {path} HTTP/1.1\r\nhost: x\r\n{good}\r\n{bearer}\r\nconnection: close\r\n\r\n".encode(),
        )
        assert statuses(got) == [200]


@pytest.mark.case("C7")
@pytest.mark.parametrize(
    "name", ["x-sluice-policy", "x-sluice-session", "x-sluice-timeout-s", "X-Sluice-Other"]
)
def test_c7_a_header_that_decides_is_there_once(place: Place, name: str) -> None:
    product, upstream = place
    upstream.answer(Reply())
    head = (
        f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\n{name}: 1\r\n{name.upper()}:"
        f" 1\r\ncontent-length: {len(BODY)}\r\n"
    )
    got = said(product, f"{head}connection: close\r\n\r\n".encode() + BODY)
    assert statuses(got) == [400] and name.lower().encode() in got and b"more than once" in got
    assert upstream.asked == []


@pytest.mark.case("C7")
@pytest.mark.parametrize("path", ["/audit/calls", "/v1/models", "/v1/messages", "/health"])
def test_c7_a_path_and_query_have_an_end(place: Place, path: str) -> None:
    product, _ = place
    for query in (
        "cursor=" + "a" * MAX_TARGET_BYTES,
        "&".join(["a"] * (MAX_TARGET_BYTES // 2)),
        "key=x&" * 8000,
    ):
        got = said(
            product,
            f"GET {path}?{query} HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\nconnection:"
            " close\r\n\r\n".encode(),
        )
        assert statuses(got) == [400] and f"longer than {MAX_TARGET_BYTES} bytes".encode() in got
    query = "limit=1&" + "a=" + "b" * (MAX_TARGET_BYTES - 100)
    got = said(
        product,
        f"GET {path}?{query} HTTP/1.1\r\nhost: x\r\nx-api-key: {KEY}\r\nconnection: close\r\n\r\n".encode(),
    )
    assert b"bytes" not in got


@pytest.mark.case("C6")
def test_c6_refusals_say_the_same_whatever_is_wrong(place: Place) -> None:
    product, _ = place
    call = call_of(product, _served(product))["call_id"]
    answers = set()
    with httpx.Client(base_url=product.url, timeout=10) as http:
        for key in ("wrong", KEY[:-1], KEY + "x", KEY.upper(), "x" * 5000):
            for path in ("/audit/calls", f"/audit/calls/{call}", "/audit/calls/none"):
                answer = http.get(path, headers={"x-api-key": key})
                answers.add((answer.status_code, answer.content))
        assert len(answers) == 1 and answers.pop()[0] == 401
        for path in (
            f"/audit/calls/{call}",
            f"/audit/calls/{call}/chunks",
            "/audit/export",
            "/audit/tool-calls",
            "/audit/judge-blocks",
        ):
            assert http.get(path, headers={"x-api-key": CLIENT_KEY}).status_code == 403


def _served(product: Product) -> str:
    session = new_session()
    body = {"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx.post(
        product.url + "/v1/messages",
        json=body,
        headers={"x-api-key": KEY, "x-sluice-session": session},
        timeout=30,
    )
    assert answer.status_code == 200
    return session


# --- secrets ---


def tables_with(database_url: str, words: Iterable[str]) -> dict[str, set[str]]:
    """For each word the tables in which it is, as text or as bytes. Every table is read once: that
    takes seconds."""
    found: dict[str, set[str]] = {word: set() for word in words}
    with psycopg.connect(database_url) as connection:
        names = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog',"
            " 'information_schema')"
        ).fetchall()
        for schema, name in names:
            with connection.cursor().copy(
                sql.SQL("COPY (TABLE {}) TO STDOUT").format(sql.Identifier(schema, name))
            ) as rows:
                data = b"".join(bytes(row) for row in rows)
            for word, tables in found.items():
                if word.encode() in data or word.encode().hex().encode() in data:
                    tables.add(str(name))
    return found


@pytest.mark.slow
@pytest.mark.case("A7")
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", DIALECTS)
def test_a7_secrets_turn_up_nowhere(
    place: Place, client: DialectName, provider: DialectName
) -> None:
    product, upstream = place
    mark = f"{client}-{provider}"
    prompt, wrong, asked_for = (
        f"canary-prompt-{mark}",
        f"sk-canary-wrong-{mark}",
        f"sk-canary-in-the-address-{mark}",
    )
    in_body, in_header = f"canary-field-{mark}", f"canary-header-{mark}"
    ours = PROVIDER_KEYS[provider]
    # the provider repeats the key it was sent, and its answers are not what they should be
    echo = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": f"bad key {ours} in {upstream.url}"},
    }
    upstream.answer(
        Reply(as_json(echo), status=400),
        Reply(as_json(echo), status=500),
        Reply(b'{"choices":'),
        Reply(b"", status=307, headers={"location": f"http://x/?key={ours}"}),
    )
    good = request(prompt, client, model=MODEL[provider], stream=False)
    head = {"x-sluice-policy": "noop", "cookie": in_header, "x-secret": in_header}
    answers = [
        *(_post(product, client, KEY, good, head) for _ in range(4)),
        _post(product, client, wrong, good, head),
        _post(product, client, KEY, good | {"api_key": in_body}, head),
        _post(product, client, KEY, good | {"model": "nobody-x"}, head),
        _post(product, client, KEY, good, head | {"x-sluice-timeout-s": in_header}),
        _post(product, client, "", good, head, f"?api_key={asked_for}"),
        httpx.get(f"{product.url}/{asked_for}?key={asked_for}", timeout=10),
    ]
    assert all(answer.status_code >= 400 for answer in answers)
    for answer in answers[:4] + answers[5:7]:
        call_id = answer.headers["x-sluice-call-id"]
        _ended(product, call_id)
    secrets = (KEY, ours, wrong, asked_for, in_header, IN_ADDRESS)
    errors = "\n".join(a.text + str(dict(a.headers)) for a in answers[:9])
    assert not [s for s in (*secrets, prompt, in_body) if s in errors]
    metrics = httpx.get(product.url + "/metrics", headers={"x-api-key": KEY}, timeout=10).text
    logs = "\n".join(log.read_text(errors="replace") for log in product.folder.glob("*.log"))
    assert logs and metrics
    assert not [s for s in (*secrets, prompt, in_body) if s in metrics or s in logs]
    tables = tables_with(product.database_url, (*secrets, prompt))
    kept = tables.pop(prompt)
    assert tables == {secret: set() for secret in secrets}
    assert kept and all(table.startswith(("request_bodies", "histories")) for table in kept), kept


def _post(
    product: Product,
    client: DialectName,
    key: str,
    body: Json,
    head: dict[str, str],
    query: str = "",
) -> httpx.Response:
    return httpx.post(
        product.url + PATHS[client] + query,
        json=body,
        headers=head | {"x-api-key": key},
        timeout=30,
    )


def _ended(product: Product, call_id: str) -> None:
    wait_for(
        lambda: any(c["ended_at"] for c in product.audit("calls", call_id=call_id)["items"]),
        timeout_s=15,
        what="its end on record",
    )
