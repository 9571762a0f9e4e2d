"""The door to the audit API: what it passes on and for whom, where questions wait, and what it says
when nobody is behind it."""

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from db.keyring import KeyRing
from gateway.record import pages_process
from gateway.record.audit_proxy import (
    MAX_EXPORTS,
    MAX_OF_OTHERS,
    MAX_QUESTIONS_OF_ONE,
    AuditDoor,
    auditor_of,
    is_audit,
)
from protocol.bounds import MAX_KEY_BYTES, MAX_QUESTIONS, MAX_REVIEW_BYTES
from settings.config import Config, Key, Role
from settings.limits import Limits
from settings.runtime import Runtime

OK = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\ncache-control:"
    b" no-store\r\n\r\n{}"
)
PIECES = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"
AUDITOR = "0123456789abcdef"


class Behind:
    """A process behind the door that answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.head = self.body = b""
        self.raw = OK
        self.holds = asyncio.Event()
        self.stays = False
        self.open = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            self.head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                line for line in self.head.split(b"\r\n") if line.startswith(b"content-length: ")
            )
            self.body = await reader.readexactly(int(size.partition(b" ")[2]))
            writer.write(self.raw)
            await writer.drain()
            if self.stays or not self.raw:
                await self.holds.wait()
        finally:
            self.open -= 1
            writer.close()


@pytest.fixture
async def behind(socket_folder: Path) -> AsyncIterator[Behind]:
    made = Behind()
    server = await asyncio.start_unix_server(made, socket_folder / "pages.sock")
    yield made
    made.holds.set()
    server.close()
    await server.wait_closed()


def door(folder: Path, *, within_s: float = 10.0) -> AuditDoor:
    config = Config(limits=Limits(audit_read_s=within_s))
    return AuditDoor(
        Runtime(
            config=config, redis_url="", database_url="", pages_url=f"unix:{folder / 'pages.sock'}"
        )
    )


async def ask(
    of: AuditDoor,
    method: str = "GET",
    *headers: tuple[bytes, bytes],
    auditor: str = AUDITOR,
    query: bytes = b"limit=1",
    pieces: tuple[bytes, ...] = (b"",),
    is_whole: bool = True,
) -> tuple[int, dict[bytes, bytes], bytes]:
    """What a client gets: status, headers, body."""
    sent: list[Any] = []
    coming: list[Any] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    coming[-1]["more_body"] = not is_whole

    async def receive() -> Any:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "raw_path": b"/audit/calls",
        "path": "/audit/calls",
        "query_string": query,
        "headers": [(b"host", b"evil/audit?"), *headers],
        "client": ("10.1.2.3", 5),
    }
    await of(scope, receive, send, auditor)
    return (
        sent[0]["status"],
        dict(sent[0]["headers"]),
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


def code(body: bytes) -> str:
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "code", "param"}
    return str(error["code"])


async def test_keys_go_on_and_cookies_and_all_else_do_not(
    behind: Behind, socket_folder: Path
) -> None:
    head = [
        (b"authorization", b"Bearer k"),
        (b"x-api-key", b"k"),
        (b"x-api-key", b"k"),
        (b"cookie", b"sluice=c"),
        (b"origin", b"o"),
    ]
    head += [
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-sluice-client-address", b"9.9.9.9"),
        (b"transfer-encoding", b"chunked"),
    ]
    status, headers, body = await ask(door(socket_folder), "GET", *head)
    assert (status, body) == (200, b"{}") and headers == {
        b"content-length": b"2",
        b"cache-control": b"no-store",
    }
    assert behind.head.split(b"\r\n") == [
        b"GET /audit/calls?limit=1 HTTP/1.1",
        b"host: gateway",
        b"authorization: Bearer k",
        b"x-api-key: k",
        b"connection: close",
        b"content-length: 0",
        b"",
        b"",
    ]


async def test_what_is_no_key_of_any_length_stays_small_and_two_keys_stay_two(
    behind: Behind, socket_folder: Path
) -> None:
    many = [(b"x-api-key", b"%d" % number + b"x" * 100_000) for number in range(100)]
    await ask(door(socket_folder), "GET", *many)
    assert len(behind.head) < 64 * 1024 and behind.head.count(b"x-api-key: ") > 1
    assert all(
        len(line) > MAX_KEY_BYTES
        for line in behind.head.split(b"\r\n")
        if line.startswith(b"x-api-key")
    )


async def test_what_some_servers_refuse_in_a_query_is_escaped_and_reads_the_same(
    behind: Behind, socket_folder: Path
) -> None:
    await ask(door(socket_folder), query=b"name=%41\xfc&key=a+b\x7f")
    assert behind.head.startswith(b"GET /audit/calls?name=%41%C3%BC&key=a+b%7F HTTP/1.1\r\n")


async def test_every_method_goes_on_and_a_head_has_no_body(
    behind: Behind, socket_folder: Path
) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert (await ask(door(socket_folder), method))[0] == 200 and behind.head.startswith(
            method.encode()
        )
    behind.raw = OK.removesuffix(b"{}")
    assert (await ask(door(socket_folder), "HEAD"))[2] == b""


async def test_a_review_goes_on_whole_and_one_that_is_too_long_is_still_too_long(
    behind: Behind, socket_folder: Path
) -> None:
    await ask(door(socket_folder), "POST", pieces=(b'{"label":', b'"attack"}'))
    assert behind.body == b'{"label":"attack"}'
    await ask(
        door(socket_folder),
        "POST",
        pieces=(b"x" * MAX_REVIEW_BYTES, b"y" * MAX_REVIEW_BYTES),
        is_whole=False,
    )
    assert len(behind.body) == MAX_REVIEW_BYTES + 1


async def test_a_slow_body_takes_no_place_and_a_strangers_is_not_read(
    behind: Behind, socket_folder: Path
) -> None:
    of = door(socket_folder, within_s=0.05)
    status, _, body = await ask(of, "POST", pieces=(b"{",), is_whole=False)
    assert (status, code(body), behind.head) == (408, "body_timeout", b"")
    assert (await ask(of, "POST", auditor="", pieces=(b"{",), is_whole=False))[
        0
    ] == 200 and behind.body == b""


async def test_without_a_process_behind_it_the_answer_is_one_of_the_api(
    socket_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_process, "CONNECT_S", 3 * pages_process.AGAIN_S)
    of = door(socket_folder)
    status, headers, body = await ask(of)
    assert (
        (status, code(body)) == (503, "audit_unavailable")
        and b"sluice pages" in body
        and int(headers[b"retry-after"]) > 0
    )
    assert (
        headers[b"content-type"],
        headers[b"cache-control"],
        headers[b"content-security-policy"],
    ) == (
        b"application/json",
        b"no-store",
        b"default-src 'none'",
    )
    assert of.open == 0


async def test_strangers_take_no_place_of_auditors_nor_one_auditor_all(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw = b""
    of = door(socket_folder, within_s=0.3)
    asked = ["" for _ in range(MAX_OF_OTHERS + 1)] + [
        AUDITOR for _ in range(MAX_QUESTIONS_OF_ONE + 1)
    ]
    tasks = [asyncio.create_task(ask(of, auditor=auditor)) for auditor in asked]
    done, waiting = await asyncio.wait(tasks, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
    if len(done) == 1:
        more, waiting = await asyncio.wait(
            waiting, timeout=2.0, return_when=asyncio.FIRST_COMPLETED
        )
        done |= more
    assert [(one.result()[0], code(one.result()[2])) for one in done] == [
        (503, "audit_unavailable")
    ] * 2
    assert (
        of.open
        == behind.open
        == MAX_OF_OTHERS + MAX_QUESTIONS_OF_ONE
        < MAX_OF_OTHERS + MAX_QUESTIONS
    )
    behind.raw = OK
    assert (await ask(of, auditor="another"))[0] == 200
    behind.holds.set()
    await asyncio.gather(*waiting)
    assert of.open == 0


async def test_who_leaves_makes_room(behind: Behind, socket_folder: Path) -> None:
    behind.raw = b""
    of = door(socket_folder)
    tasks = [asyncio.create_task(ask(of)) for _ in range(MAX_QUESTIONS_OF_ONE)]
    while behind.open < MAX_QUESTIONS_OF_ONE:
        await asyncio.sleep(0)
    next_ = asyncio.create_task(ask(of))
    behind.raw = OK
    tasks.pop().cancel()
    assert (await next_)[0] == 200
    behind.holds.set()
    await asyncio.gather(*tasks)


async def test_exports_that_stay_open_leave_room_for_questions(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw, behind.stays = PIECES, True
    of = door(socket_folder)
    waiting = [asyncio.create_task(ask(of, auditor=str(number))) for number in range(MAX_EXPORTS)]
    while of._process.in_pieces.used < MAX_EXPORTS:
        await asyncio.sleep(0)
    status, _, body = await ask(of)
    assert (status, code(body)) == (503, "audit_unavailable")
    behind.raw, behind.stays = OK, False
    assert (await ask(of))[0] == 200
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (of.open, of._process.in_pieces.used) == (0, 0)


async def test_exports_of_one_key_leave_room_for_those_of_others(
    behind: Behind, socket_folder: Path
) -> None:
    behind.raw, behind.stays = PIECES, True
    of = door(socket_folder)
    waiting = [asyncio.create_task(ask(of, auditor="one")) for _ in range(MAX_EXPORTS)]
    while sum(task.done() for task in waiting) < MAX_EXPORTS // 2:
        await asyncio.sleep(0)
    assert of._process.in_pieces.used == MAX_EXPORTS // 2
    waiting.append(asyncio.create_task(ask(of, auditor="another")))
    while of._process.in_pieces.used <= MAX_EXPORTS // 2:
        await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_only_auditors_and_approvers_are_known_as_who_may_ask() -> None:
    given: dict[str, tuple[Role, ...]] = {
        "a": ("client", "auditor"),
        "b": ("client",),
        "c": ("admin", "monitor"),
        "d": ("approver",),
    }
    keys = [
        Key(name=text, sha256=sha256(text.encode()).hexdigest(), roles=roles)
        for text, roles in given.items()
    ]
    ring = KeyRing(keys)
    assert await auditor_of(ring, [(b"authorization", b"Bearer a")]) == keys[0].id
    assert await auditor_of(ring, [(b"authorization", b"Bearer d")]) == keys[3].id
    for text in (b"b", b"c", b"wrong"):
        assert not await auditor_of(ring, [(b"x-api-key", text)])
    assert not await auditor_of(ring, []) and not await auditor_of(
        ring, [(b"x-api-key", b"a"), (b"authorization", b"Bearer b")]
    )


def test_the_door_is_for_the_record() -> None:
    assert (
        is_audit("/audit")
        and is_audit("/audit/x")
        and is_audit("/audits")
        and not is_audit("/debug")
        and not is_audit("/v1/audit")
    )
