"""Where a provider is, and the head of a request to it."""

import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from protocol.requests.addresses import bracketed
from providers.outbound import Outbound

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


_AS_IT_IS = "/%:@!$&'()*+,;=~"
"""What stays in a base URL beside letters and digits."""
_OURS = "content-length transfer-encoding connection expect upgrade te trailer".split()

OriginKey = tuple[str, int, bool, Outbound | None]
"""Host, port, whether by TLS, and how connections leave."""


class Origin:
    """Where a provider is, from its base URL, and how connections to it leave, where not plainly.
    Raises ValueError for what is no http or https URL."""

    def __init__(self, base_url: str, out: Outbound | None = None) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.fragment:
            raise ValueError(
                "an upstream's base_url is http://HOST[:PORT][/PATH][?QUERY] or the same with https"
            )
        self.is_tls, self.out = url.scheme == "https", out
        self.host = url.hostname if ":" in url.hostname else url.hostname.encode("idna").decode()
        self.port = url.port or (443 if self.is_tls else 80)
        self._path = quote(url.path.rstrip("/"), safe=_AS_IT_IS)
        self._query = quote(url.query, safe=_AS_IT_IS + "?")
        self.named = (
            bracketed(self.host) if url.port is None else f"{bracketed(self.host)}:{url.port}"
        )
        """What the header `host` says."""
        self._login = (
            f"{unquote(url.username)}:{unquote(url.password or '')}" if url.username else ""
        )

    @property
    def key(self) -> "OriginKey":
        """Equal where one connection may serve both."""
        return self.host, self.port, self.is_tls, self.out

    def target(self, path: str) -> str:
        """What a request line names for a path below this address, which may have a query: the
        address's own follows it."""
        if not self._query:
            return self._path + path
        return f"{self._path}{path}{'&' if '?' in path else '?'}{self._query}"

    def head(self, path: str, headers: Mapping[str, str]) -> bytes:
        """The head of a POST, up to the value of its content-length. Raises ValueError for a header
        that cannot be sent."""
        defaults = {"host": self.named, "accept": "*/*", "user-agent": "sluice"}
        all_headers = defaults | {name.lower(): value for name, value in headers.items()}
        if self._login:
            all_headers.setdefault(
                "authorization", "Basic " + b64encode(self._login.encode()).decode()
            )
        target = self.target(path)
        if self.out is not None and self.out.proxy and not self.is_tls:
            target = f"http://{self.named}{target}"
            all_headers |= self.out.login
        lines = [f"POST {target} HTTP/1.1"]
        for name, value in all_headers.items():
            if _NAME.fullmatch(name) is None or name in _OURS or _VALUE.fullmatch(value) is None:
                raise ValueError(f"the header {name!r} of an upstream cannot be sent")
            lines.append(f"{name}: {value.strip()}")
        return ("\r\n".join(lines) + "\r\ncontent-length: ").encode()
