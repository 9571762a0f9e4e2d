"""Can the configured upstreams be reached, and do they accept their keys? One step after the other,
so that each cause is distinguished.

For `sluice doctor --upstreams`, which waits for it; the gateway's own client is `providers.http1`.
Bounded in time: each step by `STEP_S`, each upstream by `WHOLE_S`, all at once.
"""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import time
from typing import Any

from protocol.dialects.table import DIALECTS
from protocol.errors import UpstreamTokenMissing, UpstreamUnreachable
from protocol.requests.addresses import bracketed
from providers.doors.plain import Door
from providers.doors.table import open_door
from providers.outbound import MOST_HEAD_BYTES, Outbound
from settings.config import Config, Upstream

STEP_S = 5.0
WHOLE_S = 20.0
_MOST_BYTES = 8 * 2**20
"""Of a listing of models, which of some providers have thousands."""
Check = tuple[str, str, str]


def check_upstreams(
    config: Config, *, step_s: float = STEP_S, whole_s: float = WHOLE_S
) -> list[Check]:
    """Return (what, `ok` or `warning` or `failed`, sentence) for each upstream, in the
    configuration's order."""
    if not config.upstreams:
        return [("upstreams", "ok", "none are configured: the demo model answers")]
    checks: dict[str, Check] = {}

    def look(name: str, upstream: Upstream) -> None:
        state, message = _look(upstream, step_s)
        checks[name] = (f"upstream {name}", state, message)

    # daemons: a look-up of a name cannot be interrupted, and must not keep the command from ending
    threads = {
        n: threading.Thread(target=look, args=(n, u), daemon=True)
        for n, u in config.upstreams.items()
    }
    for thread in threads.values():
        thread.start()
    until = time.monotonic() + whole_s
    for thread in threads.values():
        thread.join(max(0.0, until - time.monotonic()))
    late = ("failed", f"no whole answer in {whole_s:g} s")
    return [checks.get(name, (f"upstream {name}", *late)) for name in threads]


class _Failed(Exception):
    """A step came to nothing; the text says which and why."""


def _look(upstream: Upstream, step_s: float) -> tuple[str, str]:
    try:
        door = _opened(upstream)
        out = door.origin.out or Outbound()
        where = (door.origin.host, door.origin.port)
        with contextlib.closing(_connect(*(out.place if out.proxy else where), step_s)) as sock:
            if not door.origin.is_tls:
                return _asked(sock, door)
            if out.proxy:
                _open_tunnel(sock, out, *where)
            with contextlib.closing(_secure(sock, door.origin.host, out)) as secured:
                return _asked(secured, door)
    except (_Failed, ValueError) as error:
        return "failed", str(error)


def _opened(upstream: Upstream) -> Door:
    try:
        return open_door(upstream)
    except (OSError, UnicodeDecodeError):
        files = " or ".join((*upstream.files.values(), *filter(None, [upstream.proxy_file])))
        raise _Failed(f"{files} cannot be read, so no key can be sent") from None


def _asked(sock: socket.socket, door: Door) -> tuple[str, str]:
    """Ask for a token where the door needs one, and for models where they are listed."""

    async def let_in() -> dict[str, str]:
        try:
            return await door.authorization()
        finally:
            await door.close()

    try:
        headers = door.headers | asyncio.run(let_in())
    except UpstreamTokenMissing as error:
        raise _Failed(f"reached, but {error.message}") from None
    if (path := door.listing()) is None:
        gave = ", and there is what lets requests in" if not door.is_fixed else ""
        return (
            "ok",
            (
                f"reached{gave}; whether it takes that, the first call shows: models are not listed"
                " here"
            ),
        )
    return _list_models(sock, door, path, headers)


def _connect(host: str, port: int, step_s: float) -> socket.socket:
    where = f"{bracketed(host)}:{port}"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _Failed(
            f"DNS: the name {host!r} has no address ({error.strerror or error}): correct"
            " base_url, or the proxy"
        ) from None
    last: OSError | None = None
    for family, kind, number, _, address in addresses[:4]:
        sock = socket.socket(family, kind, number)
        sock.settimeout(step_s)
        try:
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            last = error
    match last:
        case ConnectionRefusedError():
            message = (
                f"nothing listens on {where} (connection refused): start it, or correct base_url"
            )
        case TimeoutError():
            message = (
                f"{where} does not answer in {step_s:g} s: is a firewall between, or base_url"
                " wrong?"
            )
        case _:
            message = f"{where} cannot be reached ({last.strerror if last else 'no address'})"
    raise _Failed(f"TCP: {message}")


def _open_tunnel(sock: socket.socket, out: Outbound, host: str, port: int) -> None:
    answer = b""
    try:
        sock.sendall(out.connect_head(host, port))
        while not out.is_tunnel(answer):
            if not (more := sock.recv(MOST_HEAD_BYTES)):
                raise _Failed(f"proxy: {out.named} closed the connection")
            answer += more
    except UpstreamUnreachable as error:
        raise _Failed(f"proxy: {error.message}") from None
    except OSError as error:
        raise _Failed(f"proxy: {out.named} does not answer ({error.strerror or error})") from None


def _secure(sock: socket.socket, host: str, out: Outbound) -> socket.socket:
    try:
        context = out.context()
    except OSError as error:
        files = " or ".join(out.files) or "the machine's certificates"
        raise _Failed(f"{files} cannot be read ({error.strerror or error})") from None
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        message = (
            f"its certificate is not trusted: {error.verify_message} (`ca_file` or SSL_CERT_FILE"
            " names the authorities to trust)"
        )
    except TimeoutError:
        message = "the handshake was not finished in time"
    except ssl.SSLError as error:
        message = (
            f"no handshake ({error.reason or 'error'}): does it speak http there, and not https?"
        )
    except OSError as error:
        message = (
            f"the connection was cut in the handshake ({error.strerror or type(error).__name__})"
        )
    raise _Failed(f"TLS: {message}")


def _list_models(
    sock: socket.socket, door: Door, path: str, headers: dict[str, str]
) -> tuple[str, str]:
    upstream = door.upstream
    head = door.origin.head(path, headers).removeprefix(b"POST").removesuffix(b"content-length: ")
    try:
        sock.sendall(b"GET" + head + b"connection: close\r\n\r\n")
        with http.client.HTTPResponse(sock, method="GET") as answer:
            answer.begin()
            return _read(answer.status, answer.read(_MOST_BYTES), upstream)
    except TimeoutError:
        raise _Failed("HTTP: connected, and then no answer in time") from None
    except http.client.RemoteDisconnected:
        raise _Failed(
            "HTTP: it closed the connection without an answer: is https needed there, or base_url"
            " wrong?"
        ) from None
    except http.client.HTTPException as error:
        raise _Failed(
            f"HTTP: its answer is not HTTP ({type(error).__name__}): correct base_url"
        ) from None
    except OSError as error:
        raise _Failed(
            f"HTTP: the connection was cut ({error.strerror or type(error).__name__}): is https"
            " needed there?"
        ) from None


def _read(status: int, body: bytes, upstream: Upstream) -> tuple[str, str]:
    if status in (401, 403):
        return "failed", f"the key was refused (status {status}): {_key_to_correct(upstream)}"
    if status in (404, 405, 501):
        base = DIALECTS[upstream.dialect].client_base
        says = f"in {base}, for most" if base else "without a path, for most"
        return (
            "warning",
            (
                f"reached, but it lists no models (status {status}): if calls fail too, correct"
                f" base_url (it ends {says})"
            ),
        )
    if 300 <= status < 400:
        return (
            "warning",
            (
                f"reached, but it redirects (status {status}), and redirects are not followed:"
                " correct base_url"
            ),
        )
    if status != 200:
        return "warning", f"reached, but it answers a listing of models with status {status}"
    try:
        models: Any = json.loads(body)["data"]
        return "ok", f"reached, and it lists {len(models)} model{'s' if len(models) != 1 else ''}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return "warning", "reached, but what it lists is not models: does base_url lead to an API?"


def _key_to_correct(upstream: Upstream) -> str:
    if upstream.files:
        return f"correct what is in {' or '.join(upstream.files.values())}"
    if upstream.api_key_env:
        is_set = bool(os.environ.get(upstream.api_key_env))
        return (
            f"correct {upstream.key_variable}"
            if is_set
            else f"{upstream.key_variable} is not set here"
        )
    return "name the variable that holds it with api_key_env"
