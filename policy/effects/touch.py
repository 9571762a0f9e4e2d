"""What a tool call would do, in one list: effects of its shell texts and programs, its paths, its
addresses, scripts that it writes.

Rules and monitors share this, so that each call is read only once. The parser is loaded with the
first rule about effects.

Must not know: what is allowed.
"""

import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

from policy.base import ToolCall
from policy.effects.argument_values import quoted
from policy.effects.effect import Effect
from policy.effects.network import host_of, host_scope
from policy.effects.paths import written
from policy.effects.places import Places
from policy.effects.sent_secrets import (
    carries_secret,
    gives_keys,
    in_name,
    is_smuggling,
    local_file,
    reaches_metadata,
    sends_key_astray,
    unwrapped,
)
from policy.effects.stored import MAX_CHARS, StoredTexts, stored_in
from policy.effects.surface import MAX_PARTS, surface_of
from policy.effects.surface_parts import PathUse, ShellText, Surface, UrlUse
from protocol.bytes.folding import is_plain, without_unseen

if TYPE_CHECKING:
    from policy.effects.shell.command import Command

Source = Literal["shell", "paths", "network", "stored"]
"""Where an effect was found: in text for a shell (or program code), a path, an address, a script in
what is written to a file."""
_MAX_SHELL_WORK = 100
"""How much reading the texts of a call may take, counted in commands; past it no further text is
read."""
_NOT_SHELL = ("parse:", "empty:")
"""Why a text is unsure that may not be for a shell."""
_MOST_REMEMBERED = 65_536
"""Characters of arguments up to which a reading is remembered."""


class LocatedEffect(msgspec.Struct, frozen=True):
    """One effect, where it was found, and the top-level argument that contains it."""

    source: Source
    argument: str
    effect: Effect


class Touch(msgspec.Struct, frozen=True):
    """Everything that a call would do, as far as its text shows. `unsure`: why that may be
    incomplete."""

    acts: tuple[LocatedEffect, ...] = ()
    unsure: tuple[str, ...] = ()
    commands: "tuple[Command, ...]" = ()
    """Of all its shell texts."""
    surface: Surface = Surface()
    kinds: frozenset[str] = frozenset()
    """The kinds of its effects."""


def load_parser() -> None:
    """Load what reads shell texts, so that the first call does not wait for it."""
    from policy.effects.shell import reading  # noqa: F401


def warm() -> None:
    """If there is a rule about effects, do what the first call would otherwise wait for; run in a
    thread after the start."""
    if "policy.effects.shell.reading" in sys.modules:
        from policy.effects.shell.reading import load

        load()


def touch_of(call: ToolCall, places: Places, surface: Surface | None = None) -> Touch:
    """Read a call. Never raises for what a model wrote; bounded by the bounds of the readers.
    `surface`: the call's, if it is known."""
    surface = surface_of(call) if surface is None else surface
    return (_remembered if len(call.arguments) <= _MOST_REMEMBERED else _read)(
        surface, call.name, places
    )


class _Reader:
    """Reads one call. `name`: the tool's."""

    def __init__(self, surface: Surface, name: str, places: Places) -> None:
        self._surface, self._name, self._places = surface, name, places
        self._acts: dict[LocatedEffect, None] = {}
        self._unsure: dict[str, None] = {}
        self._commands: list[Command] = []
        self._texts: list[tuple[str, str, StoredTexts | None, bool]] = []
        """Texts for a shell, with the argument that holds each, the file where it is written to
        one, and whether it is only a guess that a shell reads it."""

    def read(self) -> Touch:
        surface = self._surface
        if not surface.is_whole:
            self._unsure["size: more arguments than are looked at"] = None
        for text in surface.shell:
            read = in_folder(text, self._places)
            self._texts.append((read, text.argument, None, text.is_guess))
        for use in surface.paths:
            self._path(use)
        left = _MAX_SHELL_WORK
        for shell_text, argument, of_file, is_guess in self._texts:
            if left < 0:
                self._unsure["size: more commands than are read in one call"] = None
                break
            left -= self._shell(shell_text, argument, of_file, is_guess=is_guess)
        for url in surface.urls:
            for effect in _of_address(url, self._name, self._places):
                source: Source = "paths" if effect.kind == "read" else "network"
                self._add(source, url.argument, effect)
        for effect in surface.effects:
            self._add("network", "", effect)
        for message in surface.messages:
            if carries_secret(message.text):
                effect = Effect.of("secret", "other", self._name, by=self._name)
                self._add("network", message.argument, effect)
        return Touch(
            tuple(self._acts),
            tuple(self._unsure),
            tuple(self._commands),
            surface,
            frozenset(act.effect.kind for act in self._acts),
        )

    def _add(self, source: Source, argument: str, *effects: Effect) -> None:
        for effect in effects:
            self._acts[LocatedEffect(source, argument, effect)] = None

    def _path(self, use: PathUse) -> None:
        where = self._places.place(use.path)
        wide = use.wide or where.wide
        effect = Effect.of(use.does, where.scope, where.path, wide=wide, by=self._name)
        self._add("paths", use.argument, effect)
        if use.does != "write":
            return
        for kind in written(where):
            effect = Effect.of(kind, where.scope, where.path, by=self._name)
            self._add("paths", use.argument, effect)
        if not use.content:
            return
        stored = stored_in(where.path, where.scope, use.content)
        self._texts += [(text, use.argument, stored, False) for text in stored.scripts]
        if not stored.is_whole:
            self._unsure["size: a file that is written runs more than is read"] = None
        content = use.content[:MAX_CHARS]
        self._add("stored", use.argument, *stored.effects)
        self._written(where.path, content, use.argument)

    def _written(self, path: str, content: str, argument: str) -> None:
        """Add what a program or instructions will do that are written to a file."""
        from policy.effects.leaks import leaks
        from policy.effects.shell.commands.program_origins import takes_name
        from policy.effects.written_code import destroys

        if takes_name(path):
            self._add("stored", argument, Effect.of("persistence", "startup", path))

        self._add("stored", argument, *leaks(path, content), *destroys(path, content))

    def _shell(
        self, text: str, argument: str, of_file: StoredTexts | None, *, is_guess: bool
    ) -> int:
        """Add what one text does; return what reading it took."""
        from policy.effects.shell.reading import read

        work = 0
        forms = [text] if is_plain(text) else [*dict.fromkeys((text, *without_unseen(text)))]
        for number, form in enumerate(forms):
            reading = read(form, self._places)
            work += reading.work
            for path, content in reading.files:
                self._written(path, content[:MAX_CHARS], argument)
            for effect in reading.effects:
                if of_file is None or of_file.keeps(effect):
                    self._add("shell" if of_file is None else "stored", argument, effect)
            if number == 0:
                # the other forms are what a lenient reader may take the text for: they add effects,
                # but how well they can be read says nothing about the text itself
                self._commands += reading.commands
                unsure = [
                    why for why in reading.unsure if not (is_guess and why.startswith(_NOT_SHELL))
                ]
                self._unsure |= dict.fromkeys(unsure)
                if len(unsure) < len(reading.unsure) and "\n" in text.strip():
                    # one line that is no text for a shell hides none of the others
                    lines = text.strip().split("\n")[:MAX_PARTS]
                    self._texts += [(line, argument, None, True) for line in lines]
        return work


def _read(surface: Surface, name: str, places: Places) -> Touch:
    return _Reader(surface, name, places).read()


_remembered = lru_cache(maxsize=16)(_read)


def in_folder(text: ShellText, places: Places) -> str:
    """Return the text as it would run in its folder. Where no root of the project is known, a folder that
    may be the project is ignored: its location is not known."""
    if not text.folder or (
        not places.project and places.place(text.folder).scope in ("project", "home", "unknown")
    ):
        return text.text
    return f"cd {quoted(text.folder)}\n{text.text}"


def _of_address(url: UrlUse, by: str, places: Places) -> list[Effect]:
    if (path := local_file(url.url)) is not None:
        where = places.place(path)
        return [Effect.of("read", where.scope, where.path, wide=where.wide, by=by)]
    inner = unwrapped(url.url)
    scope = places.host_scope(inner)
    effects = [Effect.of("network", scope, url.url, wide=url.sends, by=by)]
    if is_smuggling(inner):
        # it contains commands for whatever listens there
        effects.append(
            Effect.of("execute", "metadata" if scope == "metadata" else "other", url.url, by=by)
        )
    if reaches_metadata(inner):
        effects.append(Effect.of("network", "metadata", url.url, by=by))
    if gives_keys(inner, scope):
        effects.append(Effect.of("read", "credentials", url.url, by=by))
    is_own = scope == "loopback" or (
        scope == "listed" and host_scope(inner, places.hosts) == "listed"
    )
    if not is_own and (
        carries_secret(url.body)
        or carries_secret(url.url)
        or carries_secret(in_name(host_of(inner)))
        or sends_key_astray(url.headers, inner)
    ):
        effects.append(Effect.of("secret", scope, url.url, by=by))
    return effects
