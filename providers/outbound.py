"""How connections to a provider leave: directly or through a proxy, and with which certificates.

A proxy is an upstream's own, or the environment's (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`,
`NO_PROXY`). It is asked for a tunnel (CONNECT) to https, and forwards http.
"""

import base64
import contextlib
import ipaddress
import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]
    getproxies_environment,
    proxy_bypass_environment,
)

from protocol.errors import UpstreamUnreachable
from protocol.requests.addresses import bracketed
from providers.endpoints import secret
from settings.upstreams import Upstream

MOST_HEAD_BYTES = 8 * 1024
"""Of a proxy's answer to CONNECT."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


@dataclass(frozen=True, slots=True)
class Outbound:
    """The proxy that connections go through, and the files of certificates, as far as there
    are any."""

    proxy: str = field(default="", repr=False)
    """Its host and port, as a URL that may have a login."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the proxy."""
        url = urlsplit(self.proxy)
        return url.hostname or "", url.port or 80

    @property
    def named(self) -> str:
        """How the record and the log speak of the proxy: without its login."""
        host, port = self.place
        return f"{bracketed(host)}:{port}"

    @property
    def login(self) -> dict[str, str]:
        """The header that lets requests through the proxy."""
        url = urlsplit(self.proxy)
        if not url.username:
            return {}
        words = f"{unquote(url.username)}:{unquote(url.password or '')}"
        return {"proxy-authorization": "Basic " + base64.b64encode(words.encode()).decode()}

    @property
    def files(self) -> tuple[str, ...]:
        """The files of certificates."""
        return tuple(filter(None, (self.ca_file, self.cert_file, self.key_file)))

    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Which files are trusted and shown now: others once somebody replaced one."""
        paths = ssl.get_default_verify_paths()
        default = (paths.cafile, paths.capath) if not self.ca_file else ()
        return tuple(_stamps((*default, *self.files)))

    def context(self) -> ssl.SSLContext:
        """Return what new connections trust and show; it takes 30 ms. Raises OSError (of which
        ssl.SSLError is one) where a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.set_alpn_protocols(["http/1.1"])
        if self.cert_file:
            # a callback, or OpenSSL would ask a terminal for a passphrase
            context.load_cert_chain(self.cert_file, self.key_file or None, password=lambda: "")
        return context

    def connect_head(self, host: str, port: int) -> bytes:
        """The request for a tunnel to a provider."""
        where = f"{bracketed(host)}:{port}"
        lines = [f"CONNECT {where} HTTP/1.1", f"host: {where}"]
        lines += [f"{name}: {value}" for name, value in self.login.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def is_tunnel(self, answer: bytes) -> bool:
        """Is there a tunnel, after these bytes of the proxy's answer? False: more must come. Raises
        UpstreamUnreachable."""
        head, end, rest = answer.partition(b"\r\n\r\n")
        if not end and len(answer) <= MOST_HEAD_BYTES:
            return False
        status = _STATUS.match(head)
        if status is None or rest or not end:
            raise UpstreamUnreachable(
                f"the proxy {self.named} does not answer as an HTTP proxy does", code="proxy_denied"
            )
        if not status[1].startswith(b"2"):
            self.check_status(int(status[1]))
            raise UpstreamUnreachable(
                f"the proxy {self.named} refused the connection (status {int(status[1])})",
                code="proxy_denied",
            )
        return True

    def check_status(self, status: int) -> None:
        """Raises UpstreamUnreachable for the status by which a proxy, and no provider, wants a
        login."""
        if status == 407:
            raise UpstreamUnreachable(
                f"the proxy {self.named} wants another login than it got (status 407)",
                code="proxy_denied",
            )


def outbound(url: str, upstream: Upstream | None = None, *, is_own: bool = True) -> Outbound | None:
    """Return how connections to the address `url` leave, None for plainly. `is_own`: is it the
    upstream's own address? Others are asked for tokens, and are no business of its certificates.

    Raises OSError, UnicodeDecodeError where the file with the proxy cannot be read, ValueError for
    a proxy that is none.
    """
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    proxy = None
    if upstream is not None:
        proxy = secret(upstream.proxy_file, upstream.proxy_env) or upstream.proxy
    where = "of this upstream"
    if proxy is None:
        proxy = _of_environment(host, parts.port or (443 if is_tls else 80), is_tls=is_tls)
        where = "of the environment"
    if proxy:
        proxy = _checked(proxy, where)
    files = {}
    if upstream is not None and is_own:
        files = {
            "ca_file": upstream.ca_file or "",
            "cert_file": upstream.client_cert_file or "",
            "key_file": upstream.client_key_file or "",
        }
    made = Outbound(proxy, **files)
    return made if made != Outbound() else None


def _checked(proxy: str, where: str) -> str:
    url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    with contextlib.suppress(ValueError):
        if url.scheme == "http" and url.hostname and url.port != 0 and url.path in ("", "/"):
            return url.geturl()
    raise ValueError(
        f"the proxy {where} is not as in http://HOST:PORT or http://USER:WORD@HOST:PORT"
    )


def _of_environment(host: str, port: int, *, is_tls: bool) -> str:
    proxies = getproxies_environment()
    proxy = proxies.get("https" if is_tls else "http") or proxies.get("all", "")
    if not proxy or proxy_bypass_environment(f"{bracketed(host)}:{port}", proxies):
        return ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "" if host == "localhost" else proxy
    is_near = address.is_loopback or any(
        address in network for network in _networks(proxies.get("no", ""))
    )
    return "" if is_near else proxy


def _networks(names: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for name in names.split(","):
        with contextlib.suppress(ValueError):
            yield ipaddress.ip_network(name.strip(), strict=False)


def _stamps(paths: tuple[str | None, ...]) -> Iterator[tuple[str, int, int]]:
    for path in paths:
        with contextlib.suppress(OSError):
            if path:
                shown = os.stat(path)
                yield path, shown.st_ino, shown.st_mtime_ns
