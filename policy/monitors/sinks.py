"""Sinks: the arguments of a tool call that decide where something goes, what is lost, or who may
come in.

Recognised by the names of tools and arguments and by the form of a value: nothing here knows a
particular tool.
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from policy.base import ToolCall
from policy.monitors.fields import nodes
from policy.monitors.origins import Match
from policy.monitors.source_texts import host_of, shown, words

Kind = Literal[
    "recipient",
    "link",
    "visit",
    "credential",
    "object",
    "purchase",
    "audience",
    "entry",
    "state",
    "private",
    "amount",
    "date",
]
"""recipient: who or where it goes to. link: a URL that is passed on. visit: a URL that is asked
for. credential: a password or key that is set. object: what is deleted, cancelled or removed.
purchase: what is booked or bought. audience: that anybody may see it. entry: words that are put
down somewhere. state: what something is set to, and of what. private: what a field for
private things had, in what is sent. amount, date: how
much, and when."""
MAX_VALUES = 2_000
MAX_VALUE_CHARS = 500
_READS = frozenset(
    "browse calculate check count describe download fetch find get inspect is list lookup"
    " query read retrieve search show view visit whoami".split()
)
_OPENED = frozenset("browser document email file link mail message page tab url website".split())
_DESTROYS = frozenset(
    "archive ban cancel clear close deactivate delete destroy disable discard drop erase"
    " kick purge remove revoke terminate trash uninvite unshare unsubscribe wipe".split()
)
_ACTS = _DESTROYS | set(
    "accept add append approve assign attach change charge convert copy create draft edit"
    " enable execute forward grant import insert invite merge modify move open pay payout"
    " post publish put refund rename reply reset respond rotate run save schedule send set"
    " share start submit transfer trigger update upload upsert write".split()
)
_BUYS = frozenset("bid book buy checkout donate order pay purchase rent reserve subscribe".split())
_RECIPIENT = frozenset(
    "account assignee attendee attendees bcc beneficiary bic callback cc channel channels"
    " destination domain email emails endpoint forward guest guests host hostname iban"
    " invitee invitees member members mobile owner participant participants payee phone"
    " receiver recipient recipients server swift target to user username users wallet"
    " webhook".split()
)
_CREDENTIAL = frozenset(
    "apikey credential credentials otp passcode passphrase passwd password pin secret token".split()
)
_LINK = frozenset("href link links site uri url urls website".split())
_AMOUNT = frozenset(("amount", "price", "quantity", "sum", "total", "value"))
_DATE = frozenset("date day deadline due end start time until when".split())
_PROSE = frozenset(
    "body comment content description message note notes reason subject text title".split()
)
_SETS = frozenset(
    "add adjust approve assign change configure create demote disable downgrade edit enable flag"
    " insert log lower mark merge modify move patch promote put raise rate reassign rename reopen"
    " replace reset resolve rotate set share toggle transition update upgrade upsert write".split()
)
_NUMBERED = frozenset(("id", "ids", "key", "sid", "uid", "uuid"))
"""What is numbered is no prose: `message_id`."""
_SIZES = frozenset(
    "adults children count currency guests limit method nights number party passengers people"
    " persons pieces quantity rooms seats size travellers travelers type".split()
)
_OPENS = frozenset(
    "access audience link mode privacy role scope sharing type view visibility".split()
)
_ANYBODY = frozenset(
    (
        "anonymous",
        "anyone",
        "anyone_with_link",
        "anyonewithlink",
        "anyone with the link",
        "everyone",
        "internet",
        "public",
        "world",
    )
)
_SELF = frozenset(("me", "myself", "self", "currentuser", "current_user"))
"""The user, as tools name him."""
_ENTRY_BLANKS = 3
"""An entry has four words or more: what is shorter stands in two texts by chance."""
_HOW = frozenset(
    "cascade force hard mode notification notifications notify permanent permanently"
    " resolution updates".split()
)
"""How something is deleted, not what."""
_PAYS = frozenset(
    "accept approve charge donate merge money pay payment payout refund remit transfer wire".split()
)
"""What cannot be taken back."""
_HANDLES = frozenset(
    "application booking charge customer id ids intent invoice key number order payment request"
    " subscription transaction".split()
)
_WHEN = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d.{0,20})?")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_ACCOUNT = re.compile(
    r"[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{2,4}){3,8}|\+\d{1,3}["
    r" \d-]{6,20}|0x[0-9a-fA-F]{40}|(?:bc1|[13])[A-Za-z0-9]{25,60}"
)
_URL = re.compile(
    r"(?:https?|ftp|wss?)://[^\s<>\"'`)\]}]{1,2000}|\bwww\.[^\s<>\"'`)\]}]{1,2000}", re.IGNORECASE
)


class TooManyValues(ValueError):
    """A call with more values than are examined: one of the others may be a sink."""


class SinkValue(msgspec.Struct, frozen=True):
    """One value at one place. `path` is for the record: `recipients[0]`."""

    kind: Kind | Literal["named"]
    path: str
    value: str
    match: Match = "auto"


class Named(msgspec.Struct, frozen=True):
    """Arguments that are sinks, or none, by patterns of names."""

    tool: str
    arguments: tuple[str, ...]
    match: Match = "auto"

    def takes(self, tool: str, argument: str) -> bool:
        """Is this argument of this tool meant?"""
        return fnmatchcase(tool, self.tool) and any(
            fnmatchcase(argument, pattern) for pattern in self.arguments
        )


def sinks(
    call: ToolCall, kinds: frozenset[str], named: Sequence[Named], never: Sequence[Named]
) -> Iterator[SinkValue]:
    """Yield the sinks of a call, however many. `kinds`: of the built-in ones. Raises
    TooManyValues."""
    tool, acts = set(words(call.name)), does_act(call.name)
    for argument, path, value in _values(call.value):
        if any(rule.takes(call.name, argument) for rule in never):
            continue
        if (
            entry := next((rule for rule in named if rule.takes(call.name, argument)), None)
        ) is not None:
            yield SinkValue("named", path, value, entry.match)
            continue
        for kind, part in _of(tool, set(words(argument)), value, acts=acts):
            if kind in kinds:
                yield SinkValue(kind, path, part)


def texts(call: ToolCall) -> Iterator[str]:
    """Yield the texts and numbers of a call's arguments. Raises TooManyValues."""
    return (value for _, _, value in _values(call.value))


def does_act(name: str) -> bool:
    """Does a tool of this name change or send something? One that only reads says so by its first
    word that is a verb.

    What a server puts before its tools' names, as in `slack_list_channels`, is none; behind it an
    act goes before reading.
    """
    tool = list(words(name))
    if "and" in tool:
        return True
    first = tool[0] if tool else ""
    if first in _READS or (first == "open" and not _OPENED.isdisjoint(tool)):
        return False
    return first in _ACTS or not _ACTS.isdisjoint(tool) or _READS.isdisjoint(tool)


def moves_money(name: str) -> bool:
    """Does a tool of this name pay or buy something?"""
    return not (_PAYS | _BUYS).isdisjoint(words(name))


def _of(
    tool: set[str], argument: set[str], value: str, *, acts: bool
) -> Iterator[tuple[Kind, str]]:
    """Yield what a value decides."""
    links = [match[0].rstrip(".,;:!?") for match in _URL.finditer(value)]
    if argument & _LINK and not links:
        links = [value if host_of(value) else f"//{value}"]
    kind: Kind = "link" if acts else "visit"
    yield from ((kind, link if "//" in link else f"//{link}") for link in links)
    if links and argument & _LINK:
        return
    is_short, is_thing = (
        len(value) <= MAX_VALUE_CHARS,
        not argument & _PROSE or not argument.isdisjoint(_NUMBERED),
    )
    if not acts:
        return
    if argument & _CREDENTIAL:
        yield "credential", value
    elif argument & _RECIPIENT and not argument & _PROSE:
        yield from (
            ("recipient", address.lstrip("#@") or address)
            for address in _addresses(value) or [value]
            if address.casefold().strip("@ ") not in _SELF
        )
    elif is_thing and (
        (tool & _DESTROYS and not argument & _HOW) or (tool & _PAYS and argument & _HANDLES)
    ):
        yield "object", value
    elif is_short and (_ADDRESS.fullmatch(value.strip()) or _ACCOUNT.fullmatch(value.strip())):
        yield "recipient", value.strip()
    elif value.casefold().strip() in _ANYBODY and argument & _OPENS:
        yield "audience", value
    elif argument & _AMOUNT:
        yield "amount", value
        if tool & (_PAYS | _BUYS | _SETS):
            yield "state", value
    elif argument & _DATE:
        yield "date", value
    elif tool & _BUYS and is_thing and not argument & _SIZES and not _WHEN.fullmatch(value):
        yield "purchase", value
    elif is_short and value.count(" ") >= _ENTRY_BLANKS:
        yield "entry", value
    elif is_short and tool & _SETS and not argument & _PROSE:
        yield "state", value


def _addresses(value: str) -> list[str]:
    """The addresses of a list of recipients in one text, such as `Jane <jane@example.org>,
    bob@example.org`."""
    return (
        _ADDRESS.findall(value)
        if "@" in value
        else [part.strip() for part in re.split(r"[,;\n]", value) if part.strip()]
    )


def _values(value: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the texts and numbers of arguments, with the name that is nearest to each and its
    place. Raises TooManyValues."""
    for number, (name, path, node) in enumerate(nodes(value)):
        if number > MAX_VALUES:
            raise TooManyValues
        if isinstance(node, str):
            if node.strip():
                yield name, path, shown(node)
        elif isinstance(node, int | float) and not isinstance(node, bool):
            yield name, path, str(node)
