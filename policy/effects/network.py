"""What kind of host a URL or an address names: the cloud's metadata service, this machine, the
local network, a known host, any other.

Names are not resolved: who serves them could answer differently the next time. Names that spell an
address, in whatever way a program reads it, count as that address. Must not know: what is sent
there.
"""

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from policy.effects.effect import Scope
from protocol.bytes.folding import fold
from protocol.requests.addresses import address_of

MAX_URLS = 200
"""Of one text; there is no call for more."""
_MAX_URL = 2048
_METADATA = frozenset(
    "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16"
    " 192.0.0.192 fd00:ec2::254 fd20:ce::254 169.254.169.249 169.254.169.253 169.254.0.23"
    " 169.254.42.42 fd00:42::42".split()
)
_METADATA_NAMES = re.compile(
    r"metadata(?:\.google\.internal|\.goog|\.internal|\.azure\.internal|\.tencentyun\.com"
    r"|\.platformequinix\.com)?|"
    r"instance-data(?:\.ec2\.internal)?"
)
_PRIVATE_ENDS = tuple(
    ".local .localdomain .internal .intranet .lan .home .corp .private .home.arpa .svc"
    " .cluster.local .ts.net .consul".split()
)
_PRIVATE_NETS = tuple(
    map(
        ipaddress.ip_network,
        (
            "10.0.0.0/8",
            "172.16.0.0/12",
            "192.168.0.0/16",
            "169.254.0.0/16",
            "100.64.0.0/10",
            "fc00::/7",
            "fe80::/10",
        ),
    )
)
_SPELLED = re.compile(
    r"(?:.*[.-])?((?:\d{1,3}[.-]){3}\d{1,3}|[0-9a-f]{8})\.(?:nip\.io|sslip\.io|xip\.io|traefik\.me"
    r"|1time\.io|nip\.direct)|"
    r".*\.(?:localtest\.me|lvh\.me|vcap\.me|lacolhost\.com)"
)
"""Names that a public server resolves to the address in them, or to this machine."""
_METADATA_IN_NAME = re.compile(
    "(?:^|[.-])(?:"
    + "|".join(
        form
        for address in sorted(_METADATA)
        if "." in address
        for form in (address.replace(".", "[.-]"), bytes(map(int, address.split("."))).hex())
    )
    + r")[.-].*[a-z]"
)
"""A name made of one of these addresses, below whatever domain: there are many that resolve to what
their names say."""
_URL = re.compile(
    r"""(?i)\b([a-z][a-z0-9+.-]{1,30}):[\\/]{2,}([^\s"'`<>|\\^{}]{1,2048})"""
    r"""|(?<![\w/:.])//([a-z0-9][a-z0-9.-]{2,250}(?::\d+)?(?:/[^\s"'`<>]*)?)"""
)
_HOSTLIKE = re.compile(
    r"(?:[^/@\s]*@)?(\[[0-9a-zA-Z:.%]+\]|[^/:@?#\s\[\]]+)(?::\d*)?(?:[/?#].*)?", re.DOTALL
)
_DOTS = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
REGISTRIES = tuple(
    name.replace(" ", ".")
    for name in (
        "pypi org, files pythonhosted org, test pypi org, registry npmjs org, npmjs com,"
        " www npmjs com, registry yarnpkg com, crates io, static crates io, index crates io,"
        " rubygems org, proxy golang org, sum golang org, repo maven apache org, repo1 maven org,"
        " plugins gradle org, packagist org, repo packagist org, api nuget org, hex pm, repo hex pm,"
        " pub dev, hackage haskell org, conda anaconda org, repo anaconda com, deb debian org,"
        " security debian org, archive ubuntu com, security ubuntu com, dl-cdn alpinelinux org,"
        " registry-1 docker io, docker io, auth docker io, ghcr io, quay io, mcr microsoft com,"
        " gcr io, jsr io, deno land, cran r-project org, formulae brew sh, download pytorch org,"
        " pypi nvidia com, registry k8s io, flathub org, dl flathub org"
    ).split(", ")
)
"""Indices of packages, whose hosts do not take what anybody sends. In pieces: no file here names an
index as an address."""
FORGES = tuple(
    "github.com api.github.com codeload.github.com objects.githubusercontent.com"
    " gitlab.com bitbucket.org codeberg.org salsa.debian.org".split()
)
"""Where code is shared: known as a host, but whoever wishes writes there."""
LISTED = (*REGISTRIES, *FORGES)
_DROPS = re.compile(
    r"(?:.*\.)?(?:webhook\.site|file\.io|0x0\.st|transfer\.sh|temp\.sh|bashupload\.com|oshi\.at"
    r"|gofile\.io|catbox\.moe|pixeldrain\.com|anonfiles?\.com|tmpfiles\.org|uguu\.se|x0\.at"
    r"|ix\.io|sprunge\.us|termbin\.com|dpaste\.(?:com|org)|pastebin\.com|hastebin\.com|rentry\.co"
    r"|requestbin\.(?:com|net)|pipedream\.net|beeceptor\.com|requestcatcher\.com|hookb\.in"
    r"|interact\.sh|oast\.(?:pro|live|site|online|fun|me)|burpcollaborator\.net|canarytokens\.com"
    r"|ngrok(?:-free)?\.(?:app|io|dev)|trycloudflare\.com|serveo\.net|loca\.lt|localhost\.run)"
    r"|(?:.*\.)?p(?:aste)?(?:bin)?\.[a-z0-9-]+\.(?:org|net|com|io|sh|rs|ee)"
)
"""Where anybody may leave data for somebody whom nobody knows."""
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def is_drop(host: str) -> bool:
    """Is this a host where anybody may leave data for whoever asks?"""
    return _DROPS.fullmatch(host_of(host)) is not None


def is_bare_address(host: str) -> bool:
    """Is this an address without a name, of which nobody can say whose it is?"""
    return _IPV4.fullmatch(host_of(host)) is not None


class Host(msgspec.Struct, frozen=True):
    """A URL-like text, its scheme and host, and where that is. `has_data`: it has a user, a query
    or a long path, which may carry something."""

    url: str
    scheme: str
    host: str
    scope: Scope
    has_data: bool = False


def host_scope(host: str, listed: Sequence[str] = LISTED) -> Scope:
    """Return where a host, a `host:port` or a URL lies; `unknown` for what is none. `listed`:
    names, `*.name` for all below one, or networks as `10.0.0.0/8`."""
    return _host_scope(_name_of(host), tuple(listed))


def host_of(text: str) -> str:
    """Return the host in a URL, `user@host`, `host:port` or `host:path`, in its plain spelling;
    empty where there is none."""
    return _name_of(text)


def hosts_in(text: str, listed: Sequence[str] = LISTED) -> tuple[Host, ...]:
    """Return the URLs in a text, `MAX_URLS` at most. Linear in its length."""
    hosts: list[Host] = []
    folded = text if text.isascii() else fold(text)
    for url in _URL.finditer(folded):
        if len(hosts) >= MAX_URLS:
            break
        location = url[2] or url[3]
        scheme = (url[1] or "").lower()
        if scheme == "file":
            continue
        host = _name_of(location)
        after = location.partition("/")[2]
        data = "?" in location or "@" in location.partition("/")[0] or len(after) > 200
        hosts.append(Host(url[0][:200], scheme, host, _host_scope(host, tuple(listed)), data))
    return tuple(hosts)


def _name_of(text: str) -> str:
    plain = text[:_MAX_URL]
    plain = (plain if plain.isascii() else fold(plain)).translate(_DOTS).strip().replace("\\", "/")
    if (url := re.match(r"(?i)(?:https?|ftp|wss?):/*|[a-z][a-z0-9+.-]*:/{2,}", plain)) is not None:
        plain = plain[url.end() :]
    plain = plain.lstrip("/")
    # readers disagree where a user ends: the last @ before a slash is what most take
    authority = re.split(r"[/?#]", plain, maxsplit=1)[0]
    if "@" in authority:
        plain = authority.rpartition("@")[2]
    if plain.count(":") > 1 and re.fullmatch(r"\[?[0-9a-fA-F:.]+(?:%\w+)?\]?", plain):
        return plain.strip("[]").partition("%")[0].lower()
    match = _HOSTLIKE.match(plain)
    if match is None:
        return ""
    host = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), match[1])
    # an escaped slash ends the host for who unescapes first
    host = re.split(r"[/?#\\]", host, maxsplit=1)[0].strip("[]").partition("%")[0]
    return host.casefold().rstrip(".")


@lru_cache(maxsize=4096)
def _host_scope(host: str, listed: tuple[str, ...]) -> Scope:
    if not host or len(host) > 255:
        return "unknown"
    if _METADATA_NAMES.fullmatch(host):
        return "metadata"
    if any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in listed):
        return "listed"
    if _METADATA_IN_NAME.search(host):
        return "metadata"
    spelled = _SPELLED.fullmatch(host)
    if spelled is not None:
        inner = spelled[1]
        if inner is None:
            return "loopback"
        host = (
            inner.replace("-", ".")
            if "." in inner or "-" in inner
            else str(ipaddress.IPv4Address(int(inner, 16)))
        )
    address = address_of(host)
    if (
        address is not None
        and _EIGHTS.search(host)
        and (as_eights := address_of(_EIGHTS.sub(_of_eights, host))) is not None
    ):
        # `0251` is 169 for some and 251 for others
        address = as_eights if _address_scope(as_eights) == "metadata" else address
    if address is not None:
        scope = _address_scope(address)
        return (
            "listed"
            if scope != "metadata" and any(address in network for network in _networks(listed))
            else scope
        )
    if (
        host == "localhost"
        or host.endswith(".localhost")
        or host in ("ip6-localhost", "ip6-loopback", "localhost.localdomain")
    ):
        return "loopback"
    if host in ("host.docker.internal", "gateway.docker.internal", "host.containers.internal"):
        return "loopback"
    if not re.fullmatch(r"[\w.*-]+", host):
        return "unknown"
    return "private" if "." not in host or host.endswith(_PRIVATE_ENDS) else "other"


@lru_cache(maxsize=64)
def _networks(listed: tuple[str, ...]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """The networks among what is listed, as `10.0.0.0/8`."""
    networks = []
    for name in listed:
        if "/" in name:
            try:
                networks.append(ipaddress.ip_network(name, strict=False))
            except ValueError:
                continue
    return tuple(networks)


def _address_scope(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Scope:
    if isinstance(address, ipaddress.IPv6Address) and str(address) not in _METADATA:
        inner = (
            address.ipv4_mapped
            or address.sixtofour
            or (address.teredo[1] if address.teredo else None)
        )
        if (
            inner is None
            and (int(address) >> 32 in (0, 0xFFFF0000) or address in _NAT64)
            and int(address) > 1
        ):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _address_scope(inner)
    if str(address) in _METADATA:
        return "metadata"
    if address.is_loopback or address.is_unspecified or int(address) == 0:
        return "loopback"
    if (
        any(address in net for net in _PRIVATE_NETS if net.version == address.version)
        or address.is_multicast
    ):
        return "private"
    return "other"


def _of_eights(number: re.Match[str]) -> str:
    return str(int(number[0], 8))


_EIGHTS = re.compile(r"(?<![\w])0[0-7]{1,10}(?![\w])")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
