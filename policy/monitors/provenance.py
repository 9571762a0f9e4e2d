"""Provenance: the origin of the values that decide where something goes, what is lost, or who gets
access.

A value found only in the text of a mail, a page or a file may have been put there for the model to
read. The gateway sees the whole history, so this needs no model and no marks: it checks whether
each such argument comes from the user, a trusted tool, a field of another result, only a text in
one, or nowhere. A score, not a verdict: where it is high, a protocol asks a judge, defers or
blocks.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from policy.base import Context, ToolCall
from policy.monitors.base import Monitor
from policy.monitors.effect_monitor import Share
from policy.monitors.origins import ORIGINS, Match, Origin, Origins, Sources, sources
from policy.monitors.sinks import Kind, Named, SinkValue, moves_money, sinks, texts
from policy.monitors.source_texts import words
from policy.scores import Score
from protocol.bounds import PROVENANCE_SINKS
from protocol.request import ChatRequest

Pattern = Annotated[str, Field(min_length=1, max_length=200)]
_SAID: dict[Origin, str] = {
    "user": "given by the user",
    "trusted": "found in a trusted tool's result",
    "field": "found in a field of an untrusted result",
    "text": "found only in the text of an untrusted result",
    "nowhere": "given neither by the user nor by a result",
    "unasked": "the user did not ask for such a call",
}
_MOST_WHY, _MOST_ENTRIES = 5, 16
_OPEN = tuple("anybody anyone everybody everyone link open public publish world".split())
"""What words begin with in which people ask that anybody may see something."""
_LOOKED_UP = frozenset(("recipient", "object", "purchase"))
"""Kinds of which the user leaves it to a look-up which one it is, as `pay that bill`."""
_LIGHT = 1_024
"""Characters of a history that weigh as much as a byte of arguments."""


class NamedSink(BaseModel):
    """Arguments of tools, by patterns of names."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: Pattern = "*"
    """Pattern (`*`, `?`, `[...]`) of tools' names."""
    arguments: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Patterns of arguments' names; of arguments in objects, the nearest name."""
    match: Match = "auto"
    """How values are looked for: `exact` (a whole line or field), `substring`, `host` (of a URL),
    `domain` (of an e-mail address); `auto`: a URL by its host, else `substring`."""


class Scores(BaseModel):
    """The score of each origin."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: Share = 0.0
    trusted: Share = 0.2
    field: Share = 0.4
    text: Share = 0.6
    nowhere: Share = 0.6
    unasked: Share = 0.6


class ProvenanceOptions(BaseModel):
    """The options of `provenance`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trusted: tuple[Pattern, ...] = ()
    """Patterns of tools, capitals or not, whose results only people write whom you trust: an
    address book, the user's own profile."""
    raw: tuple[Pattern, ...] = tuple(
        (
            "*bash* *browse* *command* *curl* *exec* *http* *page* *shell* *url* *web_fetch*"
            " *webfetch* *__fetch *_open *_open_* cat fetch fetch_[chtw]* open open_* read"
            " read_file* *_read_file* readfile* *read*doc* view"
        ).split()
    )
    """Patterns of tools, capitals or not, whose results are somebody's text from the first line on,
    as a page or a file is: what looks like a field there is text."""
    kinds: tuple[Kind, ...] = (
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
    )
    """Which built-in sinks are looked at: `recipient`, `link` (a URL that is passed on), `visit` (a
    URL that is asked for), `credential`, `object` (what is deleted, cancelled or refunded),
    `purchase` (what is booked), `audience` (that anybody may see it), `entry` (four words or more
    that are put down by a call without another sink), `state` (what a call sets
    something to, where a text demands it or nobody asked), `private` (what a field such as `passport`
    had, in what is sent); `amount` and `date` besides."""
    sinks: tuple[NamedSink, ...] = ()
    """Arguments that are sinks besides."""
    never: tuple[NamedSink, ...] = ()
    """Arguments that are no sinks; they go before."""
    scores: Scores = Scores()
    """The score of each origin; a call has the highest of its sinks."""


class Provenance(Monitor):
    """Score a call by the worst origin of its sinks. Abstains where a call has no sink."""

    name = "provenance"

    def __init__(self, **options: object) -> None:
        made = ProvenanceOptions.model_validate(options)
        self._trusted, self._raw = _any_of(made.trusted), _any_of(made.raw)
        self._kinds = frozenset(made.kinds)
        self._named, self._never = _named(made.sinks), _named(made.never)
        self._scores: dict[Origin, float] = {
            origin: getattr(made.scores, origin) for origin in ORIGINS
        }
        self._sources: Sources | None = None
        self._origins: Origins | None = None

    def for_call(self, context: Context) -> Self:
        """Return a copy that has the request's texts; the index is made with the first call that
        has a sink."""
        clone = super().for_call(context)
        clone.on_request(context.request)
        # an index over a long history takes time, whatever the call is: it is made beside the
        # worker's loop
        clone.weight = max(1, clone._sources.size // _LIGHT if clone._sources else 1)
        return clone

    def on_request(self, request: ChatRequest) -> None:
        """Take the texts of a request, as the policies before made it."""
        self._sources, self._origins = sources(request), None

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Measure a call."""
        worst, why, dims, count = -1.0, list[str](), dict[str, float](), 0
        for sink in self._sinks(call):
            count += 1
            origin = self._origin(sink, call.name) if count <= PROVENANCE_SINKS else "nowhere"
            value = self._scores[origin]
            if (
                origin == "nowhere"
                and self._origins is not None
                and not self._origins.has_untrusted
            ):
                # nobody else wrote anything that the model has read: the value is its own
                value = min(value, self._scores["trusted"])
            dims[sink.kind] = max(value, dims.get(sink.kind, 0.0))
            if value > worst:
                worst, why = value, []
            if value == worst and len(why) < _MOST_WHY:
                why.append(f"{sink.path} ({sink.kind}): {_SAID[origin]}")
            if count > PROVENANCE_SINKS:
                break
        return Score(self.name, worst, dims, "; ".join(why)) if count else None

    def _sinks(self, call: ToolCall) -> Iterator[SinkValue]:
        """Yield the sinks of a call: entries only where it has no others, values without an origin
        only where nobody asked for such a call."""
        entries, is_plain, states = list[SinkValue](), True, 0
        for sink in sinks(call, self._kinds, self._named, self._never):
            if sink.kind == "state":
                states += 1
                if self._is_imposed(sink, call.name, is_late=states > PROVENANCE_SINKS):
                    yield sink
            elif sink.kind != "entry":
                is_plain = False
                yield sink
            elif is_plain and len(entries) < _MOST_ENTRIES:
                entries.append(sink)
        if is_plain:
            for entry in entries:
                origin = self._index().of(entry.value)
                if origin == "text" or (origin == "nowhere" and not self._is_asked(call.name)):
                    yield entry
        elif "private" in self._kinds and self._index().gives_away(
            written := " \n ".join(texts(call))
        ):
            yield SinkValue("private", "", written[:_MOST_WHY])

    def _is_imposed(self, state: SinkValue, tool: str, *, is_late: bool) -> bool:
        """Is something set to what only a text has, though the user asked for no change, or as the
        text demands it?

        The sum of a payment is what the bill says, unless the user named one.
        """
        if not self._is_asked(tool):
            return is_late or self._index().of(state.value) == "text"
        index = self._index()
        return (
            not is_late
            and (index.wishes.speak_of_sums or not moves_money(tool))
            and index.of(state.value) == "text"
            and not index.wishes.mention((f"{state.value.lower()}.",))
            and index.is_dictated(state.value)
        )

    def _index(self) -> Origins:
        if self._origins is None:
            if self._sources is None:
                raise ValueError("no request was seen")
            self._origins, self._sources = Origins(self._sources, self._trusted, self._raw), None
        return self._origins

    def _is_asked(self, tool: str) -> bool:
        """Did the user ask for such a call, or may nobody else have?"""
        index = self._index()
        return not index.has_untrusted or index.wishes.ask_for(tuple(words(tool)))

    def _origin(self, sink: SinkValue, tool: str) -> Origin:
        index = self._index()
        if sink.kind == "private":
            return "unasked"
        if sink.kind == "state":
            return "text" if self._is_asked(tool) else "unasked"
        if sink.kind == "audience":
            return "user" if index.wishes.mention(_OPEN) else "nowhere"
        is_asked = sink.kind in ("link", "visit", "named") or self._is_asked(tool)
        if sink.kind == "entry":
            return "field" if is_asked else "unasked"
        value = sink.value
        origin = index.of(value, sink.match)
        if origin == "nowhere" and sink.kind == "object" and "/" in value:
            # a listing of a folder has names alone
            value = value.rstrip("/").rpartition("/")[2]
            origin = index.of(value)
        if origin in ("user", "trusted", "field") and not is_asked:
            return "unasked"
        if origin != "text":
            return origin
        if sink.kind == "visit" and index.offers(sink.value):
            # somebody's own link, asked for to the letter, carries nothing out; one with something
            # added does
            return "field"
        if not is_asked or sink.kind not in _LOOKED_UP:
            return origin
        is_data = (
            index.wishes.want(tuple(words(tool)))
            and index.is_looked_up(value)
            and not index.is_dictated(value)
        )
        if is_data or (sink.kind == "recipient" and index.singles_out(sink.value)):
            return "field"
        return origin


def _any_of(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    small = [pattern.lower() for pattern in patterns]
    return lambda name: any(fnmatchcase(name.lower(), pattern) for pattern in small)


def _named(entries: tuple[NamedSink, ...]) -> tuple[Named, ...]:
    return tuple(Named(entry.tool, entry.arguments, entry.match) for entry in entries)
