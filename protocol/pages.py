"""The configuration of the pages under /debug: whether they are served, where, and which proxies
are trusted. Pure."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_URL = r"^(https?://([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?)?$"


class Pages(BaseModel):
    """The pages under `/debug` (docs/pages.md). These settings do not change `/audit`, which the
    same process serves through gateways."""

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
    url: Annotated[str, Field(pattern=_URL)] = ""
    """The address for browsers, if it is not the gateway's own, as behind a TLS proxy:
    `https://HOST[:PORT]`. The pages accept this host name besides the machine's own."""
    trusted_proxies: Annotated[tuple[str, ...], Field(max_length=16)] = ()
    """Addresses of proxies in front, such as `127.0.0.1`, whose `X-Forwarded-For` is trusted.
    Without it everyone behind a proxy shares its limit of five wrong keys a minute."""

    def address_of(self, peer: str, said: str) -> str:
        """Return who a request comes from: `peer` connected, `forwarded_for` is its
        X-Forwarded-For. That counts from a trusted proxy alone, and of it the last address that is
        not one of them: what stands before may be made up. Of IPv6 it is the network,
        `2001:db8::/64`: one machine has all of its addresses."""
        proxies = {_plain(one) for one in self.trusted_proxies}
        found = _plain(peer)
        if found in proxies:
            others = (
                _plain(one.strip())
                for one in reversed(said.replace(";", ",").split(","))
                if one.strip()
            )
            found = next((one for one in others if one not in proxies), found)
        return (
            str(ip_network((int(found) >> 64 << 64, 64)))
            if isinstance(found, IPv6Address)
            else str(found)
        )


def _plain(said: str) -> IPv4Address | IPv6Address | str:
    """Return an address however it is written; what is none, as it is."""
    try:
        found = ip_address(said)
    except ValueError:
        return said
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
