"""A proxy between the product and its servers that knows their protocols: it counts every command
and statement, and fails one of them.

Each process role has wires of its own, one to Redis and one to PostgreSQL, so that a point says who
sent what over which connection: (role, link, name, nth). A link is what the product calls its
connection (CLIENT SETNAME); a name is the Redis command with the kind of its first key, a script's
own name for EVALSHA, the statement's verb and table for SQL, or `push` for a message on a
subscriber's link. Names come from the wire, so a command that is new in the code is a point without
anybody adding it.

A `Watch` counts points from `begin` on. With a `Fault` armed, the point's n-th occurrence fails in
one of these ways:

    error    the server answers with an error, nothing has taken effect before   it never reaches
    the server: what was sent before it is answered, then the connection breaks after    it takes
    effect; its answer is lost, then the connection breaks crash    as `after`, and the whole role
    is told to die at that moment

`silent` leaves the connection open without another byte instead of breaking it. A lost push is a
message not delivered before the break. Commands inside MULTI count one by one. BEGIN and COMMIT
count as statements.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from streams import lua

Way = Literal["error", "before", "after", "crash"]
WAYS: tuple[Way, ...] = ("error", "before", "after")
_SCRIPTS = {sha.encode(): name.upper() for name, sha in lua.SHA.items()}
_KEY = re.compile(rb"sluice:\{\d+\}:([a-z-]+)|(arq:[a-z-]+)")
_TABLE = re.compile(r"\b(?:INTO|FROM|JOIN)\s+\"?([a-z_][a-z_.]*)\"?(?!\()", re.IGNORECASE)
_REFUSED = b"*1\r\n$8\r\nINJECTED\r\n"
_REFUSED_EXEC = b"*2\r\n$4\r\nEXEC\r\n$8\r\nINJECTED\r\n"
"""EXEC with an argument: the server refuses it and discards the transaction, as it does when a
queued command was refused."""
_RAISE = b"DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '53100'; END $$\0"
_MESSAGE = b"*3\r\n$7\r\nmessage\r\n"


class Point(NamedTuple):
    """The `nth` time (from 1) that a role sent a command of this name over a link of this name."""

    role: str
    link: str
    name: str
    nth: int

    def __str__(self) -> str:
        return f"{self.role}/{self.link}: {self.name} #{self.nth}"


class Fault(NamedTuple):
    """What is to fail, and how."""

    point: Point
    way: Way
    silent: bool = False

    def __str__(self) -> str:
        return f"{self.point} {self.way}{' silent' if self.silent else ''}"


class Watch:
    """Counts what passes, and says what is to fail. One for all wires of a product."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.fault: Fault | None = None
        self.fired = asyncio.Event()
        self.on_crash: Callable[[str], None] = lambda role: None
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def begin(self, fault: Fault | None = None) -> None:
        """Count from nothing; from now on `fault` is armed."""
        self.points, self.fault = [], fault
        self.fired = asyncio.Event()
        self._counts.clear()

    def note(self, role: str, link: str, name: str) -> Fault | None:
        """Count a point; returns the fault if this is the one to fail."""
        self._counts[role, link, name] += 1
        point = Point(role, link, name, self._counts[role, link, name])
        self.points.append(point)
        if self.fault is None or self.fault.point != point or self.fired.is_set():
            return None
        self.fired.set()
        return self.fault


class _End(asyncio.Protocol):
    """One side of a link."""

    def __init__(self, link: "_Link", *, is_client: bool) -> None:
        self._link, self._is_client = link, is_client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._link.opened(transport, is_client=self._is_client)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self._is_client:
            self._link.from_client(data)
        else:
            self._link.from_server(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.broken()


class _Link:
    """One connection of the product, forwarded by whole commands and whole answers. Subclasses know
    the protocol."""

    def __init__(self, wire: "Wire") -> None:
        self.wire, self.watch, self.role = wire, wire.watch, wire.role
        self.name = "new"
        self.client: asyncio.Transport | None = None
        self.server: asyncio.Transport | None = None
        self.is_over = self.is_silent = False
        self.fault: Fault | None = None
        """The fault under way on this link: nothing more goes to the server."""
        self._early: list[bytes] = []
        self._sent, self._said = bytearray(), bytearray()

    def opened(self, transport: asyncio.Transport, *, is_client: bool) -> None:
        if is_client:
            self.client = transport
            if self.wire.is_cut:
                # it was accepted just before
                self.broken()
                return
            self.wire.links.add(self)
            self.wire.connect(self)
            return
        self.server = transport
        if self.is_over:
            transport.abort()
            return
        early, self._early = self._early, []
        for data in early:
            self.from_client(data)

    def from_client(self, data: bytes) -> None:
        if self.server is None:
            self._early.append(data)
        elif not self.is_silent and not self.is_over:
            self._sent += data
            self.take_sent(self._sent)

    def from_server(self, data: bytes) -> None:
        if not self.is_silent and not self.is_over:
            self._said += data
            self.take_said(self._said)

    def take_sent(self, data: bytearray) -> None:
        """Forward the whole commands in `data`, and take them out of it."""
        raise NotImplementedError

    def take_said(self, data: bytearray) -> None:
        """Forward the whole answers in `data`, and take them out of it."""
        raise NotImplementedError

    def strike(self) -> None:
        """The moment of the fault under way: what was to get through has."""
        assert self.fault is not None
        if self.fault.way == "crash":
            self.watch.on_crash(self.role)
        elif self.fault.silent:
            self.is_silent = True
        else:
            self.broken()

    def broken(self) -> None:
        """Break both sides at once."""
        if self.is_over:
            return
        self.is_over = True
        self.wire.links.discard(self)
        for transport in (self.client, self.server):
            if transport is not None:
                transport.abort()

    def to_server(self, data: bytes | bytearray) -> None:
        if data and self.server is not None:
            self.server.write(bytes(data))

    def to_client(self, data: bytes | bytearray) -> None:
        if data and self.client is not None:
            self.client.write(bytes(data))


class RedisLink(_Link):
    """Commands are arrays of bulk strings; each has one answer, in order; pushes come between
    them."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self._owed: deque[bool] = deque()
        """For each command without an answer: is this the answer to be lost?"""

    def take_sent(self, data: bytearray) -> None:
        start = 0
        out = bytearray()
        while self.fault is None and (found := _scan_command(data, start)) is not None:
            end, args = found
            name = self._name(args)
            self.fault = self.watch.note(self.role, self.name, name)
            if self.fault is None or self.fault.way in ("after", "crash"):
                out += data[start:end]
                self._owed.append(self.fault is not None)
            elif self.fault.way == "error":
                out += _REFUSED_EXEC if name == "EXEC" else _REFUSED
                self._owed.append(False)
                self.fault = None
            start = end
        self.to_server(out)
        if self.fault is None:
            del data[:start]
            return
        data.clear()
        if self.fault.way == "before" and not self._owed:
            self.strike()

    def take_said(self, data: bytearray) -> None:
        start = 0
        while (end := _scan_answer(data, start)) > 0:
            if data.startswith(_MESSAGE, start):
                channel = _KEY.search(data, start, end)
                fault = self.watch.note(
                    self.role,
                    self.name,
                    f"push {channel[1].decode() if channel and channel[1] else ''}",
                )
                if fault is not None:
                    self.to_client(data[:start])
                    self.fault = fault
                    self.strike()
                    return
            elif self._owed and self._owed.popleft():
                self.to_client(data[:start])
                self.strike()
                return
            start = end
        self.to_client(data[:start])
        del data[:start]
        if self.fault is not None and self.fault.way == "before" and not self._owed:
            self.strike()

    def _name(self, args: list[bytes]) -> str:
        command = args[0].upper()
        if command == b"EVALSHA":
            return _SCRIPTS.get(args[1], "script of others")
        if (
            command in (b"CLIENT", b"SCRIPT", b"XGROUP", b"CONFIG", b"INFO", b"FUNCTION", b"ACL")
            and len(args) > 1
        ):
            if args[1].upper() == b"SETNAME":
                self.name = args[2].decode()
            elif args[1].upper() == b"SETINFO":
                self.name = "pool"
            return b" ".join(args[:2]).upper().decode()
        # where the keys are differs, but the first that looks like one says what it is about
        kind = next((found for arg in args[1:12] if (found := _KEY.match(arg))), None)
        return command.decode() + (f" {(kind[1] or kind[2]).decode()}" if kind else "")


def _scan_command(data: bytearray, start: int) -> tuple[int, list[bytes]] | None:
    """The end of the command that begins at `start` and its arguments; None when it is not
    whole."""
    line = data.find(b"\r\n", start)
    if line < 0:
        return None
    args: list[bytes] = []
    at = line + 2
    for _ in range(int(data[start + 1 : line])):
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        end = line + 2 + int(data[at + 1 : line])
        if len(data) < end + 2:
            return None
        args.append(bytes(data[line + 2 : min(end, line + 200)]))
        at = end + 2
    return at, args


def _scan_answer(data: bytearray, start: int) -> int:
    """The end of the answer that begins at `start`, 0 when it is not whole."""
    at, missing = start, 1
    while missing:
        line = data.find(b"\r\n", at)
        if line < 0:
            return 0
        kind = data[at]
        missing -= 1
        if kind == 0x24:  # $
            size = int(data[at + 1 : line])
            line += size + 2 if size >= 0 else 0
        elif kind == 0x2A:  # *
            missing += max(0, int(data[at + 1 : line]))
        at = line + 2
        if at > len(data):
            return 0
    return at


class PostgresLink(_Link):
    """Messages with a type and a length. A statement is a simple query, or an Execute, whose text
    came with Parse."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__(wire)
        self.name = "sql"
        self._is_starting = True
        self._texts: dict[bytes, str] = {}
        self._portals: dict[bytes, bytes] = {}
        self._owed: deque[bool | None] = deque()
        """For each statement under way whether its answer will be lost; None where a transaction
        ends."""
        self._until_sync = False

    def take_sent(self, data: bytearray) -> None:
        while not self.is_over and (message := self._next(data)):
            if self.fault is not None and not self._until_sync:
                continue
            self._pass_on(message)

    def _next(self, data: bytearray) -> bytes:
        """Take one whole message out of `data`; empty when there is none."""
        head = 0 if self._is_starting else 1
        if len(data) < head + 4:
            return b""
        size = head + int.from_bytes(data[head : head + 4], "big")
        if len(data) < size:
            return b""
        message = bytes(data[:size])
        del data[:size]
        return message

    def _pass_on(self, message: bytes) -> None:
        if self._is_starting:
            if int.from_bytes(message[4:8], "big") in (80877103, 80877104):
                self.to_client(b"N")  # no TLS, no GSS
                return
            self._is_starting = False
            self.to_server(message)
            return
        kind, body = message[:1], message[5:]
        if kind == b"S":
            self._owed.append(None)
        if self.fault is not None:
            # what follows the statement whose answer will be lost, until the server has reason to
            # answer
            self._until_sync = kind != b"S"
        elif kind == b"P":
            name, text, *_ = body.split(b"\0", 2)
            self._texts[name] = text.decode(errors="replace")
        elif kind == b"B":
            portal, name, *_ = body.split(b"\0", 2)
            self._portals[portal] = name
        elif kind == b"Q":
            message = self._statement(
                message, body.rstrip(b"\0").decode(errors="replace"), b"Q", _RAISE
            )
            self._owed.append(None)
        elif kind == b"E":
            executed = self._texts.get(self._portals.get(body.partition(b"\0")[0], b""), "")
            message = self._statement(message, executed, b"E", b"injected\0\0\0\0\0")
        self.to_server(message)

    def _statement(self, message: bytes, text: str, kind: bytes, refused: bytes) -> bytes:
        self.fault = self.watch.note(self.role, self.name, statement_name(text))
        if self.fault is not None and self.fault.way == "before":
            self.strike()
            return b""
        self._owed.append(self.fault is not None and self.fault.way != "error")
        if self.fault is not None and self.fault.way == "error":
            self.fault = None
            return kind + (len(refused) + 4).to_bytes(4, "big") + refused
        self._until_sync = self.fault is not None and kind == b"E"
        return message

    def take_said(self, data: bytearray) -> None:
        start = 0
        while len(data) >= start + 5 and len(data) >= (
            end := start + 1 + int.from_bytes(data[start + 1 : start + 5], "big")
        ):
            # CommandComplete, EmptyQueryResponse, PortalSuspended, ErrorResponse: a statement is
            # over
            if data[start] in b"CIsE" and self._owed and self._owed.popleft():
                self.to_client(data[:start])
                self.strike()
                return
            if data[start] == 0x5A:  # ReadyForQuery: after an error the server skipped the rest
                while self._owed and self._owed.popleft() is not None:
                    pass
            start = end
        self.to_client(data[:start])
        del data[:start]


def statement_name(text: str) -> str:
    """The verb of a statement, and its table where it names one."""
    words = text.split(None, 2)
    if not words:
        return "empty"
    tables = [t for t in _TABLE.findall(text) if t.lower() not in ("unnest", "select")]
    return " ".join([words[0].upper(), *tables[:1]])


class Wire:
    """A listening proxy of one role to one server. `links` are its open connections."""

    def __init__(self, watch: Watch, role: str, host: str, port: int, kind: type[_Link]) -> None:
        self.watch, self.role, self.links = watch, role, set[_Link]()
        self._target, self._kind = (host, port), kind
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port, self.is_cut = 0, False

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _End(self._kind(self), is_client=True), "127.0.0.1", 0
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def connect(self, link: _Link) -> None:
        """Connect a link to the server."""
        task = asyncio.get_running_loop().create_task(self._connect(link), name="wire")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, link: _Link) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: _End(link, is_client=False), *self._target
            )
        except OSError:
            link.broken()

    def cut(self) -> None:
        """Refuse new connections and break those that are open, for good: this role's process is
        dead."""
        self.is_cut = True
        if self._server is not None:
            self._server.close()
        for link in list(self.links):
            link.broken()
