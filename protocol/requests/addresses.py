"""URLs: the addresses of upstreams, and URLs in requests that a provider's server would fetch from
the operator's own network.

Local servers (vLLM and others) fetch the images that a request names, from a network in which the
cloud's metadata service, a database's page or the gateway itself answers. Only addresses visible in
the text are refused. Names are not resolved, because the server would resolve them again and may
get another answer. So a server that fetches needs rules of its own. Must not know: who fetches.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from protocol.request import ChatRequest, OtherPart, ToolResultPart
from protocol.requests.fields import invalid

_FETCHED = frozenset(
    "url image_url file_url video_url audio_url input_image file_data server_url".split()
)
"""Fields whose text a server may fetch."""
_NAMES = frozenset(
    "localhost ip6-localhost ip6-loopback metadata instance-data kubernetes host gateway".split()
)
_ENDS = tuple(
    ".localhost .local .localdomain .internal .intranet .lan .home .corp .private"
    " .home.arpa .svc".split()
)
_DOTS = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_LOCAL_SCHEMES = frozenset("file ftp gopher dict ldap unix jar tftp sftp".split())
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_UNSEEN = re.compile("[\\x00-\\x20\x7f\u00ad\u200b-\u200f\u2060\ufeff]")
_USUAL = re.compile(r"https?://((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})(?:/[!-~]*)?")
"""A name with dots, and nothing that two readers could read differently: what nearly every URL
is."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def bracketed(host: str) -> str:
    """Return a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def check_base_url(url: str) -> None:
    """Raise ValueError for what is no address of an upstream. The address, which may hold a
    password, is not repeated."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        why = (
            "its port is not a number from 0 to 65535"
            if str(error).startswith("Port ")
            else str(error)
        )
        raise ValueError(f"is not a URL ({why})") from None
    if parts.scheme not in ("http", "https"):
        scheme = "has no scheme" if "://" not in url else "has another scheme"
        raise ValueError(
            f"{scheme}: it begins with http:// or https://, as in http://127.0.0.1:8000/v1"
        )
    if not host:
        raise ValueError(f"names no host: write {parts.scheme}://HOST[:PORT][/PATH]")
    if parts.fragment or "#" in url:
        raise ValueError(
            "has a `#`: an upstream's address ends with its path or a query, as in https://HOST/v1"
        )
    if url != url.strip() or not url.isprintable():
        raise ValueError("has blanks around it, or characters that cannot be printed")


def refuse_private(request: ChatRequest) -> None:
    """Raise InvalidRequest for a request with a URL of the operator's own network."""
    for turn in request.turns:
        for part in turn.parts:
            held: Any = None
            if type(part) is OtherPart:
                held = part.body
            elif type(part) is ToolResultPart and part.extra:
                held = part.extra.get("content")
            if held is not None:
                _refuse(held, "messages")
    # MCP servers and masks of images: what other tools have there are schemas, of which nothing is
    # fetched
    if ran := [tool.extra for tool in request.tools if tool.kind == "server"]:
        _refuse(ran, "tools")
    if isinstance(servers := request.extra.get("mcp_servers"), list):
        _refuse(servers, "mcp_servers")


def _refuse(held: Any, where: str) -> None:
    if any(map(is_private, _urls(held))):
        invalid(
            f"a URL in {where} points into the gateway's own network, which requests may not reach",
            where,
        )


def _urls(value: Any) -> Iterator[str]:
    """Yield every text that may be fetched; no recursion, linear."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for name, held in item.items():
                if isinstance(held, str):
                    if name in _FETCHED:
                        yield held
                elif isinstance(held, (dict, list)) and name != "input":
                    stack.append(held)
        elif isinstance(item, list):
            stack += [v for v in item if isinstance(v, (dict, list))]


def is_private(url: str) -> bool:
    """Would fetching this reach the operator's own machines? True also for what is no plain web
    address but may be read as one."""
    if (usual := _USUAL.fullmatch(url)) is not None:
        return usual[1].lower().endswith(_ENDS)
    # the content of a data: URL may be megabytes
    text = _UNSEEN.sub("", url[:4096]).replace("\\", "/")
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme not in ("http", "https"):
        # nothing that a provider needs; plain text (base64, an id) has no scheme
        return scheme in _LOCAL_SCHEMES or text.startswith("//")
    text = re.sub(r"^([A-Za-z]+:)/*", r"\1//", text)
    try:
        host = urlsplit(text).hostname or ""
    except ValueError:
        return True
    # all up to the next slash: where an @, a # or a ? is in it, readers disagree about which part
    # is the host
    pieces = re.split("[@#?]", text.partition("//")[2].partition("/")[0])
    others = (
        [reading for p in pieces for reading in (p, p.rpartition(":")[0])]
        if len(pieces) > 1
        else []
    )
    return _is_private_host(host) or any(map(_is_known_private, others))


def _is_known_private(host: str) -> bool:
    """Is this an address or name of the own network, if it is a host at all?"""
    return ("." in host or host.startswith("[") or host in _NAMES) and _is_private_host(host)


def _is_private_host(host: str) -> bool:
    host = unquote(host).translate(_DOTS).strip("[]").casefold().partition("%")[0].rstrip(".")
    if not host.isascii():
        host = unicodedata.normalize("NFKC", host).casefold()
    if not host:
        return True
    address = address_of(host)
    if address is not None:
        return _is_private_address(address)
    return host in _NAMES or host.endswith(_ENDS) or "." not in host


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address in any spelling that inet_aton takes: decimal, octal, hexadecimal, one to
    four numbers."""
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host)
        except ValueError:
            return None
    pieces = host.split(".")
    if not 1 <= len(pieces) <= 4 or not all(_NUMBER.fullmatch(p) for p in pieces):
        return None
    numbers = [_value(p) for p in pieces]
    if len(pieces) == 4 and all(n < 256 for n in numbers):
        # "010" is 8 for some and 10 for others: where one of the two is private, it is
        plain = [int(p, 10) if p.isdigit() else n for p, n in zip(pieces, numbers, strict=True)]
        if all(n < 256 for n in plain) and _is_private_address(_v4(plain)):
            return _v4(plain)
        return _v4(numbers)
    value = numbers[-1]
    for position, number in enumerate(numbers[:-1]):
        value += number << (24 - 8 * position)
    # what is too large is cut off by some, to whatever is wanted
    return ipaddress.IPv4Address(value if value < 2**32 else 0)


def _value(piece: str) -> int:
    if piece[:2].lower() == "0x":
        return int(piece[2:][:16] or "0", 16)
    if piece.startswith("0") and set(piece) <= set("01234567"):
        return int(piece[:32], 8)
    return int(piece[:20])


def _v4(numbers: list[int]) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bytes(numbers))


def _is_private_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = (
            address.ipv4_mapped
            or address.sixtofour
            or (address.teredo[1] if address.teredo else None)
        )
        if inner is None and (address in _NAT64 or int(address) >> 32 == 0):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None and (_is_private_address(inner) or int(address) >> 32 == 0):
            return True
    return not address.is_global or address.is_multicast
