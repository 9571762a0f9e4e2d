"""The scripted providers behind one loopback server, and what they were asked; and a door that
keeps every byte that an agent got."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, ModuleType
from typing import Any

import httpx2 as httpx

from tests.support.json_values import Json, as_json
from tests.support.vendors import chat, converse, gemini, messages, overload, responses, strict
from tests.support.vendors.story import Refused, Scene, Seen, is_task

VENDORS: dict[str, ModuleType] = {
    "openai": chat,
    "anthropic": messages,
    "responses": responses,
    "gemini": gemini,
    "converse": converse,
    "strict": strict,
}
_SSE = "text/event-stream; charset=utf-8"
_STREAM = {"converse": "application/vnd.amazon.eventstream"}
STALL_S = 40


@dataclass(frozen=True)
class Told:
    """One request: what the vendor read in it, or why it refused it. `overloaded`: it was taken,
    and answered with an overload."""

    vendor: str
    path: str
    body: Json
    seen: Seen | None
    refused: str = ""
    overloaded: bool = False


def vendor_of(path: str) -> str:
    """The vendor of a path, or nothing."""
    if path.startswith("/strict/"):
        return "strict"
    if path.endswith("/chat/completions"):
        return "openai"
    if path.endswith("/v1/messages"):
        return "anthropic"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith(("/converse", "/converse-stream")):
        return "converse"
    return "gemini" if path.endswith((":generateContent", ":streamGenerateContent")) else ""


@dataclass
class Vendors:
    """The server. `told` is every request so far, `elsewhere` paths that no vendor has.

    `stalled` is set while an answer has stopped in its middle, `left` once its connection was
    closed meanwhile.
    """

    url: str
    told: list[Told] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    scene: Scene = field(default_factory=Scene)
    stalled: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def refusals(self) -> list[str]:
        """Requests that a real vendor would not have taken."""
        return [f"{told.vendor}: {told.refused}" for told in self.told if told.refused]

    def task(self) -> list[Told]:
        """The requests of the task itself that were answered."""
        return [
            told
            for told in self.told
            if told.seen is not None and is_task(told.seen) and not told.overloaded
        ]

    def begin(self, scene: Scene) -> None:
        """Begin anew."""
        self.told.clear()
        self.elsewhere.clear()
        self.stalled.clear()
        self.left.clear()
        self.scene = scene


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def body(self) -> bytes:
        """The request's body."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            whole = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def whole(
        self, status: int, value: bytes, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Answer at once."""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def piece(self, data: bytes) -> None:
        """One chunk; an empty one is the last."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def vendors() -> Iterator[Vendors]:
    """Run the providers of all dialects."""
    made = Vendors("")

    class Handler(_Quiet):
        def do_POST(self) -> None:
            path = self.path.partition("?")[0]
            vendor, raw = vendor_of(path), self.body()
            if not vendor:
                made.elsewhere.append(path)
                self.whole(404, b'{"error": {"message": "not found"}}')
                return
            module, body = VENDORS[vendor], json.loads(raw)
            try:
                seen = module.read(body, path)
            except (Refused, KeyError, TypeError, AttributeError) as error:
                refused = (
                    error
                    if isinstance(error, Refused)
                    else Refused(f"{type(error).__name__}: {error}")
                )
                made.told.append(Told(vendor, path, body, None, refused.message))
                self.whole(refused.status, as_json(module.error(refused)))
                return
            scene = made.scene
            is_first = is_task(seen) and not any(
                told.seen is not None and is_task(told.seen) for told in made.told
            )
            is_overloaded = is_first and scene.overloaded
            made.told.append(Told(vendor, path, body, seen, overloaded=is_overloaded))
            if is_overloaded:
                status, headers, value = overload.OF[vendor]
                self.whole(status, as_json(value), headers=headers)
                return
            if is_first:
                time.sleep(scene.silence_s)
            if not seen.stream:
                self.whole(200, as_json(module.whole(seen, scene.answer(seen))))
                return
            self.send_response(200)
            self.send_header("content-type", _STREAM.get(vendor, _SSE))
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            frames = list(module.frames(seen, scene.answer(seen)))
            stop = len(frames) // 2 if is_first and scene.stalls else len(frames)
            for frame in frames[:stop]:
                self.piece(frame)
            if stop < len(frames):
                self._stall()
            else:
                self.piece(b"")

        def _stall(self) -> None:
            made.stalled.set()
            self.connection.settimeout(STALL_S)
            with suppress(ConnectionError):
                if self.connection.recv(1):
                    return
            made.left.set()

        def do_GET(self) -> None:
            made.elsewhere.append(self.path)
            self.whole(404, b'{"error": {"message": "not found"}}')

    with _served(Handler) as url:
        made.url = url
        yield made


@dataclass
class Door:
    """A way to a server on which every byte of its answers is kept: of each, the path, the status
    and the body."""

    url: str
    answers: list[tuple[str, int, bytes]] = field(default_factory=list)

    def said(self) -> bytes:
        """All answers, one after the other."""
        return b"\n".join(body for _, _, body in self.answers)


_HOPS = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}


@contextmanager
def door(target: str, added: Mapping[str, str] | None = None) -> Iterator[Door]:
    """Open a way to the server at `target`, with `added` headers."""
    made = Door("")

    class Handler(_Quiet):
        def do_GET(self) -> None:
            self._pass("GET")

        def do_POST(self) -> None:
            self._pass("POST")

        def _pass(self, method: str) -> None:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOPS}
            headers |= added or {}
            with httpx.stream(
                method, target + self.path, content=self.body(), headers=headers, timeout=60
            ) as reply:
                self.send_response(reply.status_code)
                for name, value in reply.headers.items():
                    if name.lower() not in _HOPS | {"date", "server"}:
                        self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                body = b""
                for data in reply.iter_raw():
                    body += data
                    if data:
                        self.piece(data)
                made.answers.append((self.path, reply.status_code, body))
                self.piece(b"")

    with _served(Handler) as url:
        made.url = url
        yield made
