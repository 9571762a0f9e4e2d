"""Collects what one command does: its effects, what it reads and writes, and where it sends data,
so that data can be followed."""

import re
from collections.abc import Callable, Sequence

import msgspec

from policy.effects.effect import Effect, Kind, Scope
from policy.effects.network import host_of
from policy.effects.paths import PathTarget, written
from policy.effects.places import Places
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args

SECRET_NAME = re.compile(
    r"(?:^|_)(?:SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|PRIVATE|CREDENTIALS?|APIKEY|API_KEY"
    r"|ACCESS_KEY|SECRET_KEY|AUTH|PAT|PWD_HASH)(?:_|"
    r"$|ID$)|_KEY$|_PASS$",
    re.IGNORECASE,
)
"""Names of variables that hold secrets."""
_TEMPORARY_VARIABLES = tuple(
    "TMPDIR TMP TEMP TEMPDIR TMP_DIR TEMP_DIR BUILD_DIR BUILDDIR CACHE_DIR".split()
)
_LOADED = re.compile(r"/(?:[^/]+\.pth|(?:site|user)customize\.py)")
_MAX_EFFECTS = 400


class Earlier(msgspec.Struct):
    """What commands of a text before one have done. `fetched`: files that hold what a host sent.
    `links`: where links lead. `sql_read`: tokens of SQL, as all of a text count together."""

    fetched: Sequence[tuple[str, Scope]] = ()
    links: Sequence[tuple[str, PathTarget]] = ()
    sql_read: list[int] = msgspec.field(default_factory=lambda: [0])


class Findings:
    """What one command does. `folder`: where its relative paths begin."""

    def __init__(
        self,
        command: Command,
        places: Places,
        *,
        origin: "Callable[[Word], list[PathTarget]]",
        earlier: Earlier | None = None,
    ) -> None:
        """`origin`: which places the unknown parts of a word may come from, as the folders that a
        `find` looked through."""
        self.command = command
        self._places = places
        self.effects: list[Effect] = []
        self.reads: list[PathTarget] = []
        self.writes: list[str] = []
        self.files: list[tuple[str, str]] = []
        """Files that it writes, with what it puts into them: a patch shows that."""
        self.sends: list[tuple[Scope, str, bool]] = []
        """Where data goes to: scope, host, and whether the other side is one where the user has an
        account (ssh)."""
        self.reached: list[tuple[Scope, str]] = []
        """Hosts that it asks something, which are given its words."""
        self.sent: list[Word] = []
        """What is sent besides files and standard input."""
        self.downloads: list[tuple[str, Scope]] = []
        """Files that hold what a host sent, and which kind of host."""
        self.is_secret = False
        """Prints secrets."""
        self.prints_token = False
        """Prints a token that is for the next command, as `docker login`."""
        self.writes_key = False
        """A key stands in its words or its input."""
        self.tells = False
        """Its data is in a name that it looks up, which is only done to exfiltrate data."""
        self.is_bulk = False
        """Prints much that is not for others."""
        self.is_dry = False
        """Its output reveals nothing of what it reads: a count, a hash."""
        self.earlier = earlier or Earlier()
        self.linked: list[tuple[str, PathTarget]] = []
        """The links that it makes."""
        self.unsure: list[str] = []
        self._origin = origin

    @property
    def has_secret(self) -> bool:
        """Does it have a secret that it may print?"""
        return (
            self.is_secret or any(location.secret for location in self.reads)
        ) and not self.is_dry

    def downloaded(self, path: str) -> Scope | None:
        """Return which kind of host sent the file, if a command before fetched it or a folder above
        it."""
        for fetched, scope in self.earlier.fetched:
            if path == fetched or path.startswith(fetched.rstrip("/") + "/"):
                return scope
            if fetched == "./*" and path.startswith("./") and path.count("/") > 1:
                return scope
        return None

    def add(
        self, kind: Kind, scope: Scope = "unknown", target: str = "", *, wide: bool = False
    ) -> None:
        """Add an effect."""
        if len(self.effects) < _MAX_EFFECTS:
            self.effects.append(Effect.of(kind, scope, target, wide=wide, by=self.command.name))

    def place(self, word: Word) -> PathTarget:
        """Return the place of the path in a word: the worst of those it may be."""
        return max(self.places(word), key=lambda location: _WORST[location.scope])

    def places(self, word: Word, *, is_gone: bool = False) -> list[PathTarget]:
        """Return all places that a word may name. `is_gone`: it is taken away itself, which leaves
        what a link leads to."""
        locations = self._named(word)
        if not self.earlier.links:
            return locations
        is_opened = not is_gone or word.known.endswith(("/", "/."))
        return [self._behind(location, is_opened=is_opened) for location in locations]

    def _behind(self, location: PathTarget, *, is_opened: bool) -> PathTarget:
        """Where a path leads through links."""
        for link, target in reversed(self.earlier.links):
            path = location.path
            if (path == link and is_opened) or path.startswith(f"{link}/"):
                return self._places.place(target.path + path[len(link) :])
        return location

    def _named(self, word: Word) -> list[PathTarget]:
        cwd = self.command.cwd
        if word.text is not None:
            folder = "" if cwd is None else cwd.known
            location = self._places.place(word.text, cwd=folder)
            if (
                cwd is not None
                and cwd.text is None
                and (cwd.prefix or cwd.outputs)
                and not word.text.startswith(("/", "~"))
            ):
                folders = self._unknown(cwd)
                location = PathTarget(
                    location.path, folders[0].scope, location.wide, location.secret
                )
            return [location]
        return self._unknown(word)

    def _unknown(self, word: Word) -> list[PathTarget]:
        prefix = word.prefix
        if word.variables and not prefix and word.variables[0].upper() in _TEMPORARY_VARIABLES:
            return [PathTarget(word.bare, "temp", word.is_many or word.is_glob)]
        if prefix and prefix not in ("-", "./"):
            keys = [
                origin
                for origin in (self._origin(word) if word.outputs else ())
                if origin.scope == "credentials"
            ]
            if keys:
                return keys
            # what is unknown lies below the last known folder, or is one of its neighbours
            cwd = "" if self.command.cwd is None else self.command.cwd.known
            known = self._places.place(prefix, cwd=cwd)
            scope: Scope = (
                "project"
                if known.scope == "home" and not prefix.startswith(("/", "~", ".."))
                else known.scope
            )
            if prefix == "/":
                scope = "unknown"
            if word.bare != prefix and self._places.place(word.bare).scope == "credentials":
                scope = "credentials"
            return [
                PathTarget(
                    known.path, scope, True, known.secret, known.whole and not prefix.endswith("/")
                )
            ]
        origins = self._origin(word)
        if word.outputs and _LOADED.fullmatch(word.bare):
            # Python runs it whenever it starts, if it is where packages lie
            return [PathTarget(word.bare, "startup")]
        if origins:
            return [
                PathTarget(origin.path, _below(origin), origin.wide, origin.secret)
                for origin in origins
            ]
        return [
            PathTarget(
                word.bare, "project" if prefix == "./" else "unknown", word.is_many or word.is_glob
            )
        ]

    def read(self, *words: Word, wide: bool = False) -> None:
        """Read these paths."""
        for word in words:
            for location in self.places(word):
                self.reads.append(location)
                self.add(
                    "read",
                    location.scope,
                    location.path,
                    wide=wide or location.wide or word.is_many,
                )

    def write(self, *words: Word, wide: bool = False) -> None:
        """Write these paths."""
        for word in words:
            for location in self.places(word):
                self.writes.append(location.path)
                # what is put into the project's folder is put into the project
                scope = _below(location)
                if location.scope == "temp" and location.path.startswith("/dev/"):
                    continue
                self.add("write", scope, location.path, wide=wide or location.wide)
                for kind in written(location):
                    self.add(kind, location.scope, location.path)

    def delete(self, *words: Word, wide: bool = False) -> None:
        """Delete these paths, as whole trees where `wide`."""
        for word in words:
            for location in self.places(word, is_gone=True):
                scope: Scope = (
                    "system"
                    if location.whole and location.scope == "temp" and not location.wide
                    else location.scope
                )
                self.add("delete", scope, location.path, wide=wide or location.wide)

    def scope_of_host(self, word: Word) -> Scope:
        """Return what kind of host a word names."""
        text = word.known
        if word.text is None and not host_of(word.prefix):
            return "unknown"
        is_whole = word.text is not None or "/" not in word.prefix.partition("://")[2]
        return self._places.host_scope(text if is_whole else word.prefix)

    def ask(self, *hosts: Word) -> None:
        """Ask these hosts, which get nothing."""
        for host in hosts:
            self.add("network", self.scope_of_host(host), host.known)

    def reach(self, word: Word, *, sends: bool = False, account: bool = False) -> Scope:
        """Open a connection to the host of a URL or address; `sends`: with data, `account`: with a
        login of the user's there."""
        scope = self.scope_of_host(word)
        self.add("network", scope, word.known)
        self.reached.append((scope, word.known))
        if sends or (word.text is None and word.outputs and "." in word.bare):
            # the host receives what is in its address
            self.sends.append((scope, word.known, account or not sends))
        return scope


def _below(location: PathTarget) -> Scope:
    """The scope of things within a place."""
    if location.scope == "home" and location.path in (".", "./*"):
        return "project"
    return location.scope


_WORST: dict[Scope, int] = {
    "temp": 0,
    "project": 1,
    "unknown": 2,
    "home": 3,
    "system": 4,
    "startup": 5,
    "credentials": 6,
    "device": 7,
    "root": 8,
    "listed": 0,
    "loopback": 0,
    "private": 0,
    "other": 0,
    "metadata": 0,
    "service": 2,
    "scratch": 0,
}
Handler = Callable[[Command, Args, Findings], None]
"""What a family of commands does with one of its own."""
