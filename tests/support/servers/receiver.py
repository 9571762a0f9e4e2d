"""A program that is notified, on loopback: it keeps what is posted to it, and answers as it is
told."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Posted(NamedTuple):
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """`status` is its answer, with `headers` and `body`; it waits for `may_answer` first."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.posted: list[Posted] = []
        self.status, self.headers, self.body = 200, dict[str, str](), b"ok"
        self.may_answer = threading.Event()
        self.may_answer.set()


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.posted.append(Posted(self.path, headers, body))
            made.may_answer.wait(30)
            try:
                self.send_response(made.status)
                for name, value in made.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(made.body)))
                self.end_headers()
                self.wfile.write(made.body)
            except OSError:
                self.close_connection = True

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
