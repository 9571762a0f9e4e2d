"""The configuration of the pages under /debug: whether they are served, where, and which proxies
are trusted. Pure."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

URL = r"^(https?://([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?)?$"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for"
    " 'script'; trusted-types 'none'"
)
PAGE_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    (b"vary", b"accept, cookie"),
)
"""Headers of every answer of the pages, and of a gateway in their place."""


class Pages(BaseModel):
    """The pages under `/debug` (docs/run/pages.md). These settings do not change `/audit`, which
    the same process serves through gateways."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    enabled: bool = True
    """Whether there are pages. False: gateways answer 404 under `/debug`; `/audit` still works."""
    on_gateway: bool = True
    """Whether gateways serve `/debug`. False: `sluice pages` also listens on `host` and `port`, for
    browsers only."""
    host: str = "127.0.0.1"
    """The address to listen on then."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8081
    """The port to listen on then. If `host` and `port` are the address of SLUICE_PAGES_URL, it
    serves gateways and browsers there."""
    url: Annotated[str, Field(pattern=URL)] = ""
    """The address for browsers, if it is not the gateway's own, as behind a TLS proxy:
    `https://HOST[:PORT]`. The pages accept this host name besides the machine's own."""
    trusted_proxies: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Addresses of proxies in front, such as `127.0.0.1`, whose `X-Forwarded-For` is trusted.
    Without it everyone behind a proxy shares its limit of five wrong keys a minute."""

    def address_of(self, peer: str, forwarded_for: str) -> str:
        """Return who a request comes from: `peer` connected, `forwarded_for` is its
        X-Forwarded-For. That counts from a trusted proxy alone, and of it the last address that is
        not one of them: what stands before may be made up. Of IPv6 it is the network,
        `2001:db8::/64`: one machine has all of its addresses."""
        proxies = {_plain(address) for address in self.trusted_proxies}
        client = _plain(peer)
        if client in proxies:
            others = (
                _plain(address.strip())
                for address in reversed(forwarded_for.replace(";", ",").split(","))
                if address.strip()
            )
            client = next((address for address in others if address not in proxies), client)
        return (
            str(ip_network((int(client) >> 64 << 64, 64)))
            if isinstance(client, IPv6Address)
            else str(client)
        )


def _plain(text: str) -> IPv4Address | IPv6Address | str:
    """Return an address however it is written; what is none, as it is."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
