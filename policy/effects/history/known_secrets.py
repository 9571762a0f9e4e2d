"""Secrets that results of earlier calls showed, and whether a call sends one of them: after `cat
.env`, the password itself may stand in the next address.

Only results of files with secrets and of commands that print secrets count, and in them values by
the name before them or by how they look. A key where keys belong, as in an authentication header,
is used and not given away.
"""

import re
from collections.abc import Iterable, Iterator, Reversible
from itertools import islice

from policy.base import ToolCall
from policy.effects.effect import Effect
from policy.effects.history.past_calls import past_calls, value_of
from policy.effects.network import host_scope
from policy.effects.places import Places
from policy.effects.sent_secrets import unescaped, unpacked, unpacked_32
from policy.effects.surface import surface_of
from policy.effects.touch import LocatedEffect, Touch
from protocol.request import ToolResultPart, ToolUsePart, Turn

_HINTS = (
    "env secret credential passw token netrc npmrc pypirc id_rsa id_ed25519 id_ecdsa .pem key vault"
    " security declare export .aws .kube auth config settings"
).split()
"""Words without one of which no call reads secrets."""
_MAX_READERS = 100
"""Calls whose results are looked at."""
_MAX_CHARS = 256 * 1024
"""Of these results, and of what is sent."""
_MAX_VALUES = 256
_MAX_HOSTS = 8
_SECRET = re.compile(
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


def values_shown(turns: Reversible[Turn], places: Places) -> frozenset[str]:
    """Return the secret values in the results of earlier calls."""
    hinted = (
        call
        for call in past_calls(turns)
        if any(hint in call.arguments.casefold() for hint in _HINTS)
    )
    readers = {call.id: call for call in islice(hinted, _MAX_READERS)}
    values: dict[str, None] = {}
    left = _MAX_CHARS
    for part in (part for turn in reversed(turns) for part in turn.parts) if readers else ():
        if (
            type(part) is ToolResultPart
            and (call := readers.pop(part.tool_call_id, None)) is not None
            and _reads_secrets(call, places)
        ):
            values |= dict.fromkeys(_values(part.text[:left]))
            left -= len(part.text[:left])
    return frozenset(islice(values, _MAX_VALUES))


def _reads_secrets(call: ToolUsePart, places: Places) -> bool:
    from policy.effects.shell.reading import read

    value = value_of(call.arguments)
    surface = surface_of(ToolCall(0, 0, "", call.name, call.arguments, value, None))
    return any(
        use.does == "read" and places.place(use.path).secret for use in surface.paths
    ) or any(read(text.text, places).is_secret for text in surface.shell)


def _values(result: str) -> Iterator[str]:
    if (whole := _WHOLE.fullmatch(result)) is not None:
        yield whole[1]
    for name, value in _SECRET.findall(result):
        if _STANDS_FOR.fullmatch(value) is None and (
            _NAMED.search(name) or _LOOKS_RANDOM.fullmatch(value)
        ):
            yield value
    yield from _IN_ADDRESS.findall(result)


def is_given_away(values: Iterable[str], text: str) -> bool:
    """Is one of the values in a text, as it stands, escaped, in base64 or in hexadecimal?"""
    forms = [text, unescaped(text)]
    for token in islice(dict.fromkeys(_PACKED.findall(text)), _MAX_PACKED):
        forms += unpacked(token), unpacked_32(token)
    return any(value in form for value in values for form in forms)


def sent_by(touch: Touch, places: Places) -> Iterator[tuple[LocatedEffect, str]]:
    """Yield what a call asks of each host that is neither this machine nor named by the operator,
    and of people, with the text that goes there."""
    surface = touch.surface
    texts = {url.argument: f"{url.url}\n{url.body}" for url in surface.urls}
    spoken = ""
    hosts = (
        act
        for act in touch.acts
        if act.effect.kind == "network"
        and act.effect.scope != "loopback"
        and not (
            act.effect.scope == "listed" and host_scope(act.effect.target, places.hosts) == "listed"
        )
    )
    for act in islice(hosts, _MAX_HOSTS):
        if act.source == "shell":
            spoken = spoken or _words(touch)
        yield act, spoken if act.source == "shell" else texts.get(act.argument, "")
    for message in surface.messages:
        yield LocatedEffect("network", message.argument, Effect("network", "other")), message.text


def _words(touch: Touch) -> str:
    """The words of commands but those that are keys in their place."""
    from policy.effects.shell.commands.sending import keys_in

    pieces: list[str] = []
    for command in touch.commands:
        if command.name in _SENDERS:
            keys = {key.known for key in keys_in(command)}
            words = [*command.words[1:], *(redirect.target for redirect in command.redirects)]
            pieces += [word.known for word in words if word.known not in keys]
            pieces.append(command.stdin.text)
    return "\n".join(pieces)[:_MAX_CHARS]
