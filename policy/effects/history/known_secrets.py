"""Secrets that results of earlier calls showed, and whether a call sends one of them: after `cat
.env`, the password itself may stand in the next address.

Only results of files with secrets and of commands that print secrets count, and in them values by
the name before them or by how they look. A key where keys belong, as in an authentication header,
is used and not given away.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from policy.base import ToolCall
from policy.effects.effect import Scope
from policy.effects.history.past_calls import value_of
from policy.effects.network import host_scope
from policy.effects.places import Places
from policy.effects.sent_secrets import unescaped
from policy.effects.surface import surface_of
from policy.effects.touch import Touch
from protocol.request import ToolUsePart

_HINTS = (
    "env secret credential passw token netrc npmrc pypirc id_rsa id_ed25519 id_ecdsa .pem key vault"
    " security declare export .aws .kube auth config settings"
).split()
"""Words without one of which no call reads secrets."""
MAX_READERS = 100
"""Calls whose results are looked at."""
_MAX_CHARS = 256 * 1024
"""Of these results, and of what is sent."""
_MAX_VALUES = 256
_LINE = re.compile(
    r"(?m)(?:^|[{,])[ \t]{0,40}(?:\d{1,9}[ \t]{0,8}[\t:|\u2192][ \t]{0,8})?"
    r"(?:export[ \t]|set[ \t]|-[ \t])?"
    r"[\"']?([A-Za-z_][\w.-]{0,80})[\"']?[ \t]{0,8}[=:][ \t]{0,8}[\"']?([^\s\"',;]{6,512})"
)
"""A line of settings, perhaps behind its number."""
_NAMED = re.compile(
    r"(?i)secret|token|passw|passphrase|pwd|_pass$|^pass$|private|credential|api_?key|access_?key"
    r"|_key$|^key$|auth|_pat$"
)
_IN_ADDRESS = re.compile(r"://[^\s:/@]{0,80}:([^\s@/]{6,200})@")
_LOOKS_RANDOM = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9+_~=-]{20,512}")
_STANDS_FOR = re.compile(
    r"(?i)(?:true|false|none|null|undefined|change[-_]?me.*|example.*|placeholder.*|your[-_].*"
    r"|x{3,}|\*+|<.*|\$.*|localhost.*|admin|root|postgres|password|secret|test(?:ing)?|development"
    r"|production|https?:.*|/.*|\.\.?/.*|[\d.]+|process\.env.*|os\.environ.*)"
)
"""Values that are none."""
_WHOLE = re.compile(r"\s*([^\s\"']{8,512})\s*")
_PACKED = re.compile(r"[A-Za-z0-9+/_-]{8,4096}={0,2}")
_MAX_PACKED = 64
_SENDERS = frozenset(
    "curl wget http https xh httpie nc ncat netcat socat telnet dig nslookup host drill ping"
    " openssl ftp aws gh glab mail sendmail mutt msmtp swaks python python3 node ruby perl php deno bun git"
    " scp rsync echo printf base64 xxd cat tee jq sed".split()
)
"""Commands whose words may be sent, by themselves or by what reads them."""


def may_show_secrets(arguments: str) -> bool:
    """May the result of a call with these arguments hold secrets?"""
    lowered = arguments.casefold()
    return any(hint in lowered for hint in _HINTS)


def values_in(
    calls: Iterable[ToolUsePart], results: Mapping[str, str], places: Places
) -> frozenset[str]:
    """Return the secret values in the results of calls."""
    values: dict[str, None] = {}
    left = _MAX_CHARS
    for call in calls:
        result = results.get(call.id, "")[:left]
        if result and _reads_secrets(call.name, call.arguments, places):
            left -= len(result)
            values |= dict.fromkeys(_values(result))
    return frozenset(islice(values, _MAX_VALUES))


def _reads_secrets(name: str, arguments: str, places: Places) -> bool:
    from policy.effects.shell.reading import read

    surface = surface_of(ToolCall(0, 0, "", name, arguments, value_of(arguments), None))
    return any(
        use.does == "read" and places.place(use.path).secret for use in surface.paths
    ) or any(read(text.text, places).is_secret for text in surface.shell)


def _values(result: str) -> Iterator[str]:
    if (whole := _WHOLE.fullmatch(result)) is not None:
        yield whole[1]
    for name, value in _LINE.findall(result):
        if _STANDS_FOR.fullmatch(value) is None and (
            _NAMED.search(name) or _LOOKS_RANDOM.fullmatch(value)
        ):
            yield value
    yield from _IN_ADDRESS.findall(result)


def is_given_away(values: Iterable[str], text: str) -> bool:
    """Is one of the values in a text, as it stands, escaped, in base64 or in hexadecimal?"""
    forms = [text, unescaped(text)]
    packed = islice(dict.fromkeys(_PACKED.findall(text)), _MAX_PACKED)
    forms += [plain for token in packed for plain in _unpacked(token)]
    return any(value in form for value in values for form in forms)


def _unpacked(token: str) -> Iterator[str]:
    body = token.rstrip("=").replace("-", "+").replace("_", "/")
    with contextlib.suppress(ValueError, binascii.Error):
        yield base64.b64decode(body + "=" * (-len(body) % 4)).decode("latin-1")
    if re.fullmatch(r"(?:[0-9A-Fa-f]{2})+", token):
        yield bytes.fromhex(token).decode("latin-1")


def sent_by(touch: Touch, places: Places) -> Iterator[tuple[str, Scope, str, str]]:
    """Yield the argument, the scope and the host of what a call sends, and the text that goes
    there."""
    for message in touch.surface.messages:
        yield message.argument, "other", "", message.text
    for url in touch.surface.urls:
        if not _is_trusted(scope := places.host_scope(url.url), url.url, places):
            yield url.argument, scope, url.url, f"{url.url}\n{url.body}"
    hosts = [
        act
        for act in touch.acts
        if act.source == "shell"
        and act.effect.kind == "network"
        and not _is_trusted(act.effect.scope, act.effect.target, places)
    ]
    if hosts:
        text = _words(touch)
        for act in hosts[:8]:
            yield act.argument, act.effect.scope, act.effect.target, text


def _is_trusted(scope: Scope, host: str, places: Places) -> bool:
    """Is it this machine, or a host that the operator names?"""
    return scope == "loopback" or (scope == "listed" and host_scope(host, places.hosts) == "listed")


def _words(touch: Touch) -> str:
    """The words of commands but those that are keys in their place."""
    from policy.effects.shell.commands.sending import keys_in

    pieces: list[str] = []
    for command in touch.commands:
        if command.name not in _SENDERS:
            continue
        keys = {key.known for key in keys_in(command)}
        pieces += [word.known for word in command.words[1:] if word.known not in keys]
        pieces += [redirect.target.known for redirect in command.redirects]
        pieces.append(command.stdin.text)
    return "\n".join(pieces)[:_MAX_CHARS]
