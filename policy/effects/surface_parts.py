"""The parts of which a tool call is made, as values, and what finds them keeps.

Must not know: which effects anything has.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from policy.effects.argument_names import KEYS, WORDS, key_of, tool_words
from policy.effects.effect import Effect
from policy.effects.tools.calls import NamedCall
from policy.effects.tools.services import client_of
from policy.effects.tools.table import ROLES, TEXTS, role_of
from policy.effects.tools.typed_texts import shell_texts

Does = Literal["read", "write", "delete"]
Json = Any
_MAX_ITEMS = 4_096
_OTHER_SHELLS = {"powershell": "powershell", "pwsh": "powershell", "cmd": "cmd"}
_SHELL_CHOICES = frozenset("shell shell_type shell_name interpreter language lang executor".split())
_SPOKEN_KEYS = KEYS["shell"] | frozenset("script code text input content keys source".split())


class ShellText(msgspec.Struct, frozen=True):
    """A text that a shell reads, and the folder in which it does, if the call says so. `is_guess`:
    nobody says that a shell gets it, so only what it surely does counts."""

    text: str
    argument: str
    folder: str = ""
    is_guess: bool = False


class PathUse(msgspec.Struct, frozen=True):
    """A path and what is done there; `content`: what is written, as far as the call says. `wide`:
    the whole tree under it."""

    path: str
    does: Does
    argument: str
    content: str = ""
    wide: bool = False


class UrlUse(msgspec.Struct, frozen=True):
    """An address (URL or host name) that is contacted; `sends`: more than the address goes there.
    `body`: what. `headers`: names and values of the headers in the call."""

    url: str
    argument: str
    sends: bool = False
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class SqlText(msgspec.Struct, frozen=True):
    """A text for a database."""

    text: str
    argument: str


class MessageText(msgspec.Struct, frozen=True):
    """A text that a tool takes to somebody else without an address in the call: mail, chats,
    issues, searches."""

    text: str
    argument: str


class Surface(msgspec.Struct, frozen=True):
    """What the arguments of one call are. `is_whole`: nothing had to be left out. `unread`:
    top-level arguments holding text which nothing here takes for anything, so that nobody can vouch
    for it. `effects`: what the tool's name alone says. `is_known`: the tool is in a table, so that
    what is unread is so on purpose."""

    shell: tuple[ShellText, ...] = ()
    paths: tuple[PathUse, ...] = ()
    urls: tuple[UrlUse, ...] = ()
    sql: tuple[SqlText, ...] = ()
    messages: tuple[MessageText, ...] = ()
    is_whole: bool = True
    unread: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    is_known: bool = False

    @property
    def is_unread(self) -> bool:
        """Has a tool that nobody described an argument that no rule can look at?"""
        return bool(self.unread) and not self.is_known


class PartsFound:
    """What was found in one call, and what its tool's name says."""

    def __init__(self, call: NamedCall) -> None:
        known = call.known
        self._words = (known.words if known is not None else None) or tool_words(call.name)
        self._call = call
        self._shell: dict[ShellText, None] = {}
        self._paths: dict[PathUse, None] = {}
        self._urls: dict[UrlUse, None] = {}
        self._sql: dict[SqlText, None] = {}
        self._unread: dict[str, None] = {}
        self._translated: set[str] = set()
        """Arguments with roles that only the table has."""
        self._taken: set[str] = set()
        """Arguments of the present object whose whole text is one of these."""
        self._left = _MAX_ITEMS
        self._is_whole = True
        # `exec_sql` runs no shell, and `run_command` does
        self._is_sql = bool(self._words & WORDS["sql"])
        self._is_shell = bool(self._words & WORDS["shell"]) and not self._is_sql
        self._is_file = bool(self._words & WORDS["file"])
        self._is_of_service = call.known is None and bool(client_of(call.name, call.server))

    def _keys_of(self, value: Mapping[str, Json], within: str) -> dict[str, str]:
        """The names of arguments in one form, or what the table has in their place. Texts of its
        own kinds are read here, and have no name any more."""
        keys: dict[str, str] = {}
        spoken = self._spoken(value)
        for name, item in value.items():
            key = key_of(name)
            role = role_of(self._call.known, key)
            if spoken and ROLES.get(role, key) in _SPOKEN_KEYS and item not in _OTHER_SHELLS:
                role = spoken
            keys[name] = ROLES.get(role, "" if role else key)
            if role in TEXTS:
                self._translated.add(name)
                folder = self._folder_of(value)
                for text, is_guess in shell_texts(role, item):
                    if text.strip():
                        self._shell[ShellText(text, within or name, folder, is_guess)] = None
        return keys

    def _spoken(self, value: Mapping[str, Json]) -> str:
        """The role of texts for another shell than those of POSIX, where tool or call name one."""
        if self._words & {"powershell", "pwsh"}:
            return "powershell"
        shells = (
            _OTHER_SHELLS.get(item.lower().removesuffix(".exe"), "")
            for name, item in value.items()
            if isinstance(item, str) and key_of(name) in _SHELL_CHOICES
        )
        return next(filter(None, shells), "")

    def _folder_of(self, value: Mapping[str, Json]) -> str:
        folders = (
            item
            for name, item in value.items()
            if role_of(self._call.known, key_of(name)) == "folder"
        )
        return next((item for item in folders if isinstance(item, str) and len(item) <= 4_096), "")

    def _take(self, name: str, value: Json) -> None:
        """Note that all text of an argument counts for what it is."""
        if isinstance(value, str) or (isinstance(value, list) and is_flat(value)):
            self._taken.add(name)


def is_flat(values: Iterable[Json]) -> bool:
    """Do these hold no lists and objects?"""
    return not any(isinstance(item, dict | list) for item in values)
