"""A pooler in front of PostgreSQL, as far as the beginning of a connection goes: it refuses the
parameter `options`, or drops it."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict

_REFUSAL = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
_SSL, _HEAD = 80877103, 8


@contextmanager
def pooled(database_url: str, *, refuses: bool) -> Iterator[str]:
    """Yield an address at which the database is reached through one."""
    parsed = conninfo_to_dict(database_url)
    host, port = str(parsed["host"]), int(parsed.get("port") or 5432)
    listener = socket.create_server(("127.0.0.1", 0))

    def opened() -> socket.socket:
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        link = socket.socket(socket.AF_UNIX)
        link.connect(f"{host}/.s.PGSQL.{port}")
        return link

    def serve(client: socket.socket) -> None:
        with suppress(OSError, struct.error), client:
            size, code = struct.unpack("!II", client.recv(_HEAD, socket.MSG_WAITALL))
            if code == _SSL:
                client.sendall(b"N")
                size, code = struct.unpack("!II", client.recv(_HEAD, socket.MSG_WAITALL))
            words = client.recv(size - _HEAD, socket.MSG_WAITALL).rstrip(b"\0").split(b"\0")
            named = dict(zip(words[::2], words[1::2], strict=True))
            if named.pop(b"options", None) is not None and refuses:
                client.sendall(b"E" + struct.pack("!I", len(_REFUSAL) + 4) + _REFUSAL)
                return
            packet = b"".join(b"%b\0%b\0" % pair for pair in named.items()) + b"\0"
            with opened() as link:
                link.sendall(struct.pack("!II", len(packet) + _HEAD, code) + packet)
                threading.Thread(target=pump, args=(client, link), daemon=True).start()
                pump(link, client)

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        login = f"{parsed['user']}:{parsed.get('password') or ''}@" if parsed.get("user") else ""
        yield f"postgresql://{login}127.0.0.1:{listener.getsockname()[1]}/{parsed['dbname']}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
