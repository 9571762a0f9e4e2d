"""Does a request carry a secret to a host, and which address do unusual spellings of a URL reach?

A key in an authentication header was issued by that host, unless its format shows that another
provider issued it. In any other header, in the body or in the address it leaks to somebody who
should not have it; also where it is escaped or in base64.
"""

import base64
import binascii
import itertools
import re
from collections.abc import Iterable

from policy.effects.credentials import Secret, secrets_in
from policy.effects.effect import Scope
from policy.effects.network import host_of, host_scope

_PACKED = (
    re.compile(r"[A-Za-z0-9+_-]{32,8192}={0,2}"),
    re.compile(r"[A-Za-z0-9+/]{32,8192}={0,2}"),
)
"""In an address a slash is none of its characters; in a body it may be."""
_OF_32 = re.compile(r"[0-9A-Fa-f]{32,8192}|[A-Za-z2-7]{32,8192}")
_SETS = re.compile(
    r"(?m)^(?:export["
    r" \t]+)?[A-Z][A-Z0-9_]{0,40}?(?:SECRET|PASSWORD|PASSWD|TOKEN|PRIVATE|API_?KEY|_KEY|_PASS|_PW"
    r"|DATABASE_URL)"
    r"[A-Z0-9_]{0,20}[ \t]*=[ \t]*[\"']?([^\s\"'#]{6,400})"
)
"""Lines of a file of settings, as `.env`."""
_STANDS_FOR = re.compile(
    r"(?i)example|sample|placeholder|dummy|fake|redacted|change|your|xxx|\*\*|\.\.\.|insert"
    r"|replace|todo|[<>${}()]|test|secret|password|localhost|:///|"
    r"^(?:true|false|none|null|postgres|admin|root|default|\d+|/.*)$"
)
_GIVES_KEYS = re.compile(
    r"(?i)\A[^/]*//[^/]*(?::(?:2375|2376)/(?:v[\d.]+/)?(?:containers|images|exec|volumes|build"
    r"|swarm|services|secrets)|:(?:10250|10255)/(?:pods|run|exec|attach|logs|"
    r"runningpods)|/api/v1/(?:namespaces/[\w.-]+/)?secrets\b"
    r"|/v1/kv/?[^?]{0,200}\?(?:[^#]*&)?recurse|/v2/keys\b|/v3(?:alpha|beta)?/kv/|/v1/(?:secret"
    r"|sys)/|"
    r"/actuator/(?:env|heapdump|configprops)|/latest/(?:meta-data|user-data|dynamic)\b"
    r"|/computeMetadata/)"
)
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_MAX_PACKED = 32
_OF_KEYS = re.compile(
    r"(?i)(?:proxy-)?authorization|cookie|.*(?:api|access|auth|private|subscription)[-_]?(?:key"
    r"|token)|.*-(?:key|token|secret)|apikey|token|key"
)
_PROVIDERS = {
    "github": "github",
    "gitlab": "gitlab",
    "slack": "slack",
    "stripe": "stripe",
    "gpt": "openai.",
    "claude": "anthropic.",
    "aws": "amazonaws",
    "google": "google",
    "npm": "npmjs",
    "digitalocean": "digitalocean",
    "huggingface": "huggingface",
    "sendgrid": "sendgrid",
    "groq": "groq",
    "databricks": "databricks",
    "shopify": "shopify",
    "linear": "linear",
    "notion": "notion",
    "figma": "figma",
    "xai": "x.ai",
    "replicate": "replicate",
    "telegram": "telegram",
    "discord": "discord",
    "private_key": "\0",
}
"""Formats of keys, and a word in the names of the hosts that take them."""
_WITHOUT_FORM = ("url_password", "header", "cookie", "named")
"""What is a secret by where it stands, as a password for the host that asks for it."""
_ASKED = re.compile(
    r"[?&#;](?!(?:q|query|search|s|text|keywords?|term)=)[\w.\[\]-]{0,64}=([^&#;\s]{8,2048})"
)
"""Values in an address but what somebody searches for."""
_WRAPS = re.compile(r"(?i)\A\s*(?:(?:jar|url|view-source|feed|zip|wrapper|local):)+(?=[a-z])")
_LOCAL = re.compile(r"(?i)\A\s*(?:file|netdoc|local_file|local-file|resource):[\\/]*")
_FILTER = re.compile(r"(?i)\A\s*(?:php|phar|zip|compress\.\w+|glob)://(?:.*?resource=)?")
_SMUGGLES = re.compile(r"(?i)\A\s*(?:gopher|dict|ldap[si]?|tftp|telnet|expect|finger|netdoc)s?:")


def carries_secret(text: str) -> bool:
    """Is a secret in a text, as it stands, unescaped, in base64, base32 or hexadecimal, or a file
    of settings with several? Linear."""
    if secrets_in(text) or _is_dotenv(text):
        return True
    plain = unescaped(text)
    if plain != text and secrets_in(plain.replace("+", " ")):
        return True
    packed = [
        match[0]
        for pattern in _PACKED
        for match in itertools.islice(pattern.finditer(plain), _MAX_PACKED)
    ]
    inners = [
        *map(unpacked, dict.fromkeys(packed)),
        *(unpacked_32(match[0]) for match in itertools.islice(_OF_32.finditer(plain), _MAX_PACKED)),
    ]
    return any(secrets_in(inner) or _is_dotenv(inner) for inner in inners if inner)


def in_name(host: str) -> str:
    """Return what stands in a host's name before its domain, as one text: what asks for the name
    may send something in it."""
    return "".join(host.split(".")[:-2])


def gives_keys(url: str, scope: Scope) -> bool:
    """Is it an address of this machine or the local network at which a service hands out its
    secrets or runs the commands it receives?"""
    return scope in ("loopback", "private") and _GIVES_KEYS.search(url) is not None


def _is_dotenv(text: str) -> bool:
    """Are there several lines that set variables named like secrets, none of them to a word that
    stands for one?"""
    assignments = itertools.islice(_SETS.finditer(text), _MAX_PACKED)
    return sum(_STANDS_FOR.search(match[1]) is None for match in assignments) > 1


def unescaped(text: str) -> str:
    """Return a text with the characters for which escapes of addresses stand."""
    return (
        _ESCAPES.sub(
            lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), text
        )
        if "%" in text
        else text
    )


def unpacked_32(text: str) -> str:
    """What is written in digits of base 16 or 32, as far as it goes: names of hosts cut it to
    pieces."""
    try:
        if re.fullmatch(r"[0-9A-Fa-f]+", text):
            return bytes.fromhex(text[: len(text) // 2 * 2]).decode("ascii")
        # a piece of one may end anywhere
        whole = text[: len(text) - (len(text) % 8 in (1, 3, 6))].upper()
        return base64.b32decode(whole + "=" * (-len(whole) % 8)).decode("ascii")
    except (ValueError, binascii.Error):
        return ""


def unpacked(text: str) -> str:
    """What is written in base64."""
    body = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4)).decode("ascii")
    except (ValueError, binascii.Error):
        return ""


def sends_key_astray(headers: Iterable[tuple[str, str]], url: str) -> bool:
    """Is a secret among the headers that the host at `url` did not give out, as far as one can
    see?"""
    host = host_of(url)
    for name, value in headers:
        secrets: tuple[Secret, ...] = secrets_in(value)
        if not secrets:
            continue
        if not _OF_KEYS.fullmatch(name[:128]) or any(
            _PROVIDERS.get(secret.kind, "") not in host for secret in secrets
        ):
            return True
    return False


def is_own_key(secret: Secret, host: str, *, is_used: bool) -> bool:
    """Does a key belong to the domain of a host, by its form; or is it none that has one?
    `is_used`: it stands where keys are used."""
    if secret.kind in _WITHOUT_FORM:
        return True
    provider = _PROVIDERS.get(secret.kind)
    if provider is None:
        return is_used
    # a service of one's own has the provider's name somewhere in its name
    return provider in (host if is_used else ".".join(host.split(".")[-2:]))


def asked_through(url: str) -> list[str]:
    """Return the addresses that stand whole in the values of another one, which may send whoever
    asks on to them."""
    values = (unescaped(match[1]) for match in _ASKED.finditer(url[:8_192]))
    return [value for value in values if re.match(r"(?i)(?:https?:)?//", value)]


def reaches_metadata(url: str) -> bool:
    """Does an address lead to a cloud's metadata by way of another host?"""
    return any(host_scope(inner) == "metadata" for inner in asked_through(url))


def unwrapped(url: str) -> str:
    """Return the address within another one, as `jar:http://a/b.jar!/c` and `view-source:file:///x`
    have."""
    return _WRAPS.sub("", url[:8_192]).partition("!/")[0] if _WRAPS.match(url) else url


def local_file(url: str) -> str | None:
    """Return the path that an address names in this machine's files; None for others."""
    inner = unwrapped(url)
    if (filtered := _FILTER.match(inner)) is not None:
        return inner[filtered.end() :]
    if (local := _LOCAL.match(inner)) is None:
        return None
    path = inner[local.end() :]
    path = (
        re.sub(r"(?i)\A(?:localhost|127\.0\.0\.1)(?=[\\/])", "", path)
        if "//" in inner[: local.end()]
        else path
    )
    return unescaped(path if re.match(r"[\\/~]|[A-Za-z]:", path) else "/" + path)


def is_smuggling(url: str) -> bool:
    """Does its scheme let a request speak to a service in that service's own words?"""
    return _SMUGGLES.match(unwrapped(url)) is not None
