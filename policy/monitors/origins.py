"""Where a value came from: the user's words, a trusted tool's result, a field or only the text of
another result, or nowhere.

An index over the history of one request, built once for a call and queried for each value. Linear
in the history, of which at most PROVENANCE_CHARS characters are read, newest results first.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

from policy.monitors.dictation import AFTER, BEFORE, COMMON, TO_AGENTS, is_demanded
from policy.monitors.fields import Field, fields
from policy.monitors.intent import Wishes, private
from policy.monitors.source_texts import (
    MAX_HITS,
    MAX_PLACES,
    ComparedTexts,
    host_of,
    places,
    plain,
    squeezed,
    unescaped,
    words,
)
from protocol.bounds import PROVENANCE_CHARS, PROVENANCE_LINES
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart

Origin = Literal["user", "trusted", "field", "text", "nowhere", "unasked"]
"""user: the user's words or the operator's (the system prompt). trusted: a trusted tool's result.
field: a whole value in a structured result of another tool. text: only within a text of such a
result, which somebody else may have written. nowhere: in none of these. unasked: wherever it came
from, the user asked for no call of this kind."""
ORIGINS: tuple[Origin, ...] = ("user", "trusted", "field", "text", "nowhere", "unasked")
Match = Literal["auto", "exact", "substring", "host", "domain"]
"""How a value is looked for. exact: a whole line or field. substring: whole within a text, not as a
part of a longer word. host: a URL by its host. domain: an e-mail address by what is behind the @.
auto: a URL by its host, else substring."""
MIN_CHARS = 4
"""Shorter values are in every text by chance: they give nothing away, and no user means them."""
_NAME = re.compile(r"[A-Z][a-z]{1,2}|[a-zA-Z]{2,3}")
"""Names of people that are that short, as the user writes them; of things, in capitals."""
_NAMED = re.compile(r"[^<>@\n]{0,80}<([^<>@\s]{1,64}@[^<>@\s]{1,253})>")
_THOUGHTS = ("thinking", "redacted_thinking")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_ACCOUNT = re.compile(r"\b[a-z]{2}\d{2}(?: ?[a-z0-9]{2,4}+){3,8}+(?: ?\d)?")
_GLUED = re.compile(
    r"((?:\bwww\.|//|@)[\w./-]{1,60}?\.[a-z]{2,10}(?:/[\w/-]{0,60})?)\.(?=[A-Z][a-z]*\s)"
)
"""An address at the end of a sentence, with no blank behind it."""
_TEXTS = re.compile(r"\"((?:[^\"\\]|\\[\"/]){4,300})\"")
"""Texts in arguments."""
_MARKS = "[\"'`\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e]"
_OF_ADDRESSES = ("address", "contact", "email", "invit", "mail")
_OF_ACCOUNTS = tuple("bill iban invoice paid pay refund rent. settl standing transfer".split())
_MAX_GLUED = 20_000
_AROUND, _SHARED = 150, 3
_TOKEN = re.compile(r"[^\W\d_]{4,40}|\d{2,20}")
_DOCUMENT = re.compile(r"\b[\w-]+\.[a-z]{2,5}\b|//")
_CHANGES = re.compile(r"(?i)\b(?:changed?|different|instead|new|other|updated?)\b")
_MAX_PRIVATE, _MAX_NAMED, _MAX_ACCOUNTS = 200, 50, 500


class Sources(NamedTuple):
    """The input of an index, taken from a request without reading it: references to its texts, the
    only ones it keeps alive."""

    user: tuple[str, ...]
    """The user's words, the newest first, then the operator's."""
    user_count: int
    """How many of these are the user's."""
    results: tuple[tuple[str, str, str], ...]
    """The tool's name, empty where no call has the result's id, the text, and the call's arguments;
    the newest first."""
    has_others: bool
    """Documents, images and results of tools that the provider ran stand in the history too."""
    size: int


def sources(request: ChatRequest) -> Sources:
    """Take the texts of a request of which a value may come, up to PROVENANCE_CHARS: the user's,
    the operator's, then results."""
    parts = [(turn.role, part) for turn in request.turns for part in turn.parts]
    room = PROVENANCE_CHARS

    def cut(text: str) -> str:
        nonlocal room
        text = text[:room]
        room -= len(text)
        return text

    user, calls, results, has_others = (
        list[str](),
        dict[str, ToolUsePart](),
        list[ToolResultPart](),
        False,
    )
    for role, part in parts:
        if isinstance(part, ToolUsePart):
            calls[part.id] = part
        elif isinstance(part, ToolResultPart):
            results.append(part)
        elif not isinstance(part, TextPart):
            has_others = has_others or part.kind not in _THOUGHTS
        elif role != "assistant":
            user.append(part.text)
    texts = tuple(map(cut, (*reversed(user), *request.system)))
    unknown = ToolUsePart("", "", "")
    outputs = tuple(
        (call.name, cut(result.text), call.arguments)
        for result in reversed(results)
        for call in (calls.get(result.tool_call_id, unknown),)
    )
    return Sources(texts, len(user), outputs, has_others, PROVENANCE_CHARS - room)


class Origins:
    """The index of one request."""

    def __init__(
        self, source: Sources, is_trusted: Callable[[str], bool], is_raw: Callable[[str], bool]
    ) -> None:
        self.has_untrusted = source.has_others
        """Is there anything in the history that somebody else may have written?"""
        self._asked = "\n".join(source.user[: source.user_count])
        self.wishes = Wishes(self._asked, source.user_count, source.user[source.user_count :])
        self._fields, self._private = set[str](), dict[str, tuple[str, ...]]()
        trusted, lines = list[str](), PROVENANCE_LINES
        self._untrusted = list[tuple[str, str]]()
        for name, text, arguments in source.results:
            is_believed = bool(name) and is_trusted(name)
            self.has_untrusted = self.has_untrusted or not is_believed
            parsed_fields = list[Field]()
            if name and not is_raw(name) and (count := text.count("\n") + text.count(",")) <= lines:
                lines -= count
                parsed_fields = fields(text)
            for key, value in parsed_fields:
                self._keep(key, value, is_believed=is_believed)
            if is_believed:
                # notes in an address book are somebody's text as well
                trusted.append("\n".join(value for _, value in parsed_fields) or text)
            if parsed_fields or not is_believed:
                self._untrusted.append((text, arguments))
        user_texts = [
            _GLUED.sub(r"\1. ", text) if len(text) <= _MAX_GLUED else text for text in source.user
        ]
        self._user, self._trusted, self._text = map(
            ComparedTexts, (user_texts, trusted, [unescaped(text) for text, _ in self._untrusted])
        )

    def _keep(self, key: str, value: str, *, is_believed: bool) -> None:
        if not is_believed:
            self._fields.update(_forms(value))
        if (
            len(value) >= MIN_CHARS
            and len(self._private) < _MAX_PRIVATE
            and (spoken := private(words(key)))
        ):
            self._private[squeezed(plain(value))] = spoken

    def gives_away(self, text: str) -> bool:
        """Does a text contain a value from a private field, though the user mentioned neither the
        value nor the subject?"""
        if not self._private:
            return False
        without_blanks = squeezed(plain(text))
        return any(
            value in without_blanks
            and not self.wishes.mention(spoken)
            and not self._user.has(value, is_exact=False)
            for value, spoken in self._private.items()
        )

    def singles_out(self, value: str) -> bool:
        """Is it the one address, or account, of a source that the user pointed to, and did he speak
        of such?

        What a page or a bill says whose name the user gave, and of which there is one alone, is
        what he wants taken from there. A second one leaves open which, and a text for agents is no
        bill.
        """
        wanted = plain(value)
        form, spoken = (_ADDRESS, _OF_ADDRESSES) if "@" in value else (_ACCOUNT, _OF_ACCOUNTS)
        if form.fullmatch(wanted) is None or not self.wishes.mention(spoken):
            return False
        for text in self._pointed:
            if wanted in text or (form is _ACCOUNT and squeezed(wanted) in squeezed(text)):
                return all(
                    squeezed(match[0]).startswith(squeezed(wanted)) for match in form.finditer(text)
                )
        return False

    @cached_property
    def _pointed(self) -> list[str]:
        """The texts of what the user names, but those for agents."""
        named = [
            plain(text)
            for text, arguments in self._untrusted[:_MAX_NAMED]
            if self._is_named(arguments)
        ]
        return [text for text in named if TO_AGENTS.search(text) is None]

    def _is_named(self, arguments: str) -> bool:
        """Does the user's text have a value of these arguments that is the name of one thing: a
        file, a page, or what stands in quotes?

        Words that are searched for name none: whoever wants to be found has them in his text.
        """
        return any(
            self._user.has(value, is_exact=False)
            if "." in value or "/" in value
            else re.search(rf"(?i){_MARKS}{re.escape(value)}{_MARKS}", self._asked)
            for value in map(plain, _TEXTS.findall(arguments[:2_000]))
        )

    def is_dictated(self, value: str) -> bool:
        """Does an untrusted text tell its reader to do something with this value? So it is also
        where the value stands in more places than are looked at, or in none of one line."""
        wanted, text = plain(value), "\n".join(self._lines)
        if text.count(wanted) > MAX_HITS:
            return True
        is_change_known, count = _CHANGES.search(self._asked) is not None, 0
        for at in places(text, wanted):
            count += 1
            after = at + len(wanted)
            if count > MAX_PLACES or is_demanded(
                text[max(0, at - BEFORE) : at],
                text[after : after + AFTER],
                is_change_known=is_change_known,
            ):
                return True
        return count == 0

    def is_looked_up(self, value: str) -> bool:
        """Is it no account, or the account that was looked up for the user?

        That is: the only one, or the one around which more words of the user's stand than around
        any other; in the document that he named, or else where something is his word.
        """
        if not _ACCOUNT.fullmatch(plain(value)):
            return True
        wanted = squeezed(plain(value))
        these = [at for account, at in self._accounts.items() if account.startswith(wanted)]
        others = [at for account, at in self._accounts.items() if not account.startswith(wanted)]
        most = max((count for count, _ in these), default=0)
        return any(is_pointed for _, is_pointed in these) and all(
            count < most for count, _ in others
        )

    @cached_property
    def _accounts(self) -> dict[str, tuple[int, bool]]:
        """Each account of untrusted texts: how many words of the user's stand before it at most,
        and whether he pointed to it. None of them where there are too many to tell."""
        found = dict[str, tuple[int, bool]]()
        spoken, total = self._spoken, 0
        names_document = _DOCUMENT.search(self._asked) is not None
        for text, (_, arguments) in zip(self._lines, self._untrusted, strict=True):
            is_named = names_document and self._is_named(arguments)
            is_sought = not names_document and bool(spoken & _tokens(plain(arguments[:2_000])))
            for match in _ACCOUNT.finditer(text):
                total += 1
                if total > _MAX_ACCOUNTS:
                    return {}
                count = len(spoken & _tokens(text[max(0, match.start() - BEFORE) : match.start()]))
                is_pointed = is_named or is_sought or (count > 0 and not names_document)
                most, was_pointed = found.get(account := squeezed(match[0]), (0, False))
                found[account] = max(count, most), is_pointed or was_pointed
        return found

    @cached_property
    def _lines(self) -> list[str]:
        """The untrusted texts, in the form in which texts are compared but for ends of lines."""
        return [
            "\n".join(map(plain, unescaped(text.replace("\\n", "\n")).split("\n")))
            for text, _ in self._untrusted
        ]

    def offers(self, value: str) -> bool:
        """Has an untrusted text this URL to the letter, where it speaks to people, and the user of
        links, or of what stands around it?"""
        wanted = plain(value).partition("//")[2].rstrip("/")
        arounds = (
            text[max(0, at - _AROUND) : at + len(wanted) + _AROUND]
            for text in self._lines
            for at in places(text, wanted)
        )
        return any(
            not TO_AGENTS.search(around)
            and (self.wishes.speak_of_links or len(self._spoken & _tokens(around)) >= _SHARED)
            for around in islice(arounds, MAX_PLACES)
        )

    @cached_property
    def _spoken(self) -> frozenset[str]:
        return _tokens(plain(self._asked))

    def of(self, value: str, match: Match = "auto") -> Origin:
        """Return the best origin of a value."""
        wanted, host = plain(value), host_of(value)
        if match == "host" or (match == "auto" and host):
            wanted = host
        elif match == "domain":
            wanted = wanted.rpartition("@")[2]
        forms = (wanted, f"www.{wanted}")
        is_long = len(wanted) >= MIN_CHARS or (len(wanted) > 1 and not wanted.isalpha())

        def stands(texts: ComparedTexts) -> bool:
            return any(texts.has(form, is_exact=match == "exact") for form in forms)

        if not wanted:
            return "nowhere"
        if is_long and stands(self._user):
            return "user"
        if not is_long and _NAME.fullmatch(short := value.strip()):
            name = short if short.istitle() else short.upper()
            if re.search(rf"\b{name}\b", self._asked):
                return "user"
        if is_long and stands(self._trusted):
            return "trusted"
        if plain(value) in self._fields or (match != "auto" and not self._fields.isdisjoint(forms)):
            return "field"
        has_form = is_long or len(wanted) == MIN_CHARS - 1
        return "text" if has_form and stands(self._text) else "nowhere"


def _forms(value: str) -> Iterator[str]:
    """Yield what a field's value is known as: itself, each address of a list, and the address
    behind a name."""
    yield plain(value)
    if "@" in value:
        for address in value.split(",") if "," in value else (value,):
            match = _NAMED.fullmatch(address.strip())
            yield plain(match[1] if match else address)
    elif host := host_of(value):
        yield f"//{host}"


def _tokens(text: str) -> frozenset[str]:
    """The longer words and numbers of a plain text, but for the most common."""
    return frozenset(_TOKEN.findall(text)) - COMMON
