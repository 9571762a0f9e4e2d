"""What the output of a command may hold: whose programs, the names of which files. Must not know:
what a command does.
"""

from collections.abc import Sequence

from policy.effects.effect import Scope
from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands import finding_files
from policy.effects.shell.commands.command_traits import (
    DECODERS,
    HIDERS,
    HOSTS,
    PRINTERS,
    SHELLS,
    feeders,
    prints_settings,
    prints_what_it_fetches,
    scope_of_file,
)
from policy.effects.shell.commands.findings import Findings
from policy.effects.shell.commands.program_origins import comes_from_elsewhere

_NAMING = frozenset("ls dir tree du exa eza fd fdfind".split())
_LISTERS = frozenset(
    "ls dir fd fdfind tree du locate realpath readlink dirname git grep rg".split()
)


class CommandOutputs:
    """The outputs of the commands of one text. `findings` are those of each, as far as there are
    any yet."""

    def __init__(self, commands: Sequence[Command], findings: Sequence[Findings]) -> None:
        self._commands, self._findings = commands, findings
        self._listed: dict[int, list[PathTarget] | None] = {}
        """What each command prints the names of: a `find` with many `-exec` is asked for each."""

    def chain(self, index: int) -> list[Command]:
        """The command at a place, and those whose output it reads, backwards."""
        made: list[Command] = []
        while 0 <= index < len(self._commands) and len(made) < 8:
            made.append(self._commands[index])
            index = next(iter(feeders(made[-1])), -1)
        return made

    def run(self, sources: Sequence[int], findings: Findings) -> None:
        """Add that what commands print is run: what a host sent is the host's program."""
        if all(prints_settings(self._commands[i]) for i in sources if i < len(self._commands)):
            return
        scopes = self.scopes(sources)
        hosts = [
            scope
            for scope in scopes
            if scope in ("other", "metadata", "private", "loopback", "listed", "unknown")
        ]
        if "other" in hosts or "metadata" in hosts:
            findings.add("execute", "other", self._only_address(sources) or "what a host sends")
        elif hosts:
            findings.add("execute", hosts[0], "what a command prints")
        elif scopes:
            findings.add("execute", "project", "what a command prints")

    def _only_address(self, sources: Sequence[int]) -> str:
        """Return the address where what is run comes straight from one, by one fetch."""
        if len(sources) != 1 or not 0 <= (index := sources[0]) < len(self._findings):
            return ""
        command = self._commands[index]
        if (
            command.name not in ("curl", "wget")
            or command.place != "here"
            or feeders(command)
            or any(word.text is None for word in command.words)
        ):
            return ""
        addresses = {e.target for e in self._findings[index].effects if e.kind == "network"}
        return addresses.pop() if len(addresses) == 1 else ""

    def scopes(self, sources: Sequence[int]) -> list[Scope]:
        """Return which hosts and places the output of commands may hold."""
        scopes: list[Scope] = []
        seen: set[int] = set()
        stack = list(sources)
        while stack:
            index = stack.pop()
            if index in seen or not 0 <= index < len(self._commands):
                continue
            seen.add(index)
            command = self._commands[index]
            findings = self._findings[index] if index < len(self._findings) else None
            if findings is None:
                scopes.append("unknown")
                continue
            if command.place in ("remote", "container", "image") or comes_from_elsewhere(command):
                scopes.append(
                    findings.scope_of_host(Word(command.host))
                    if command.place == "remote" and command.host
                    else "unknown"
                )
            host_scopes = [
                effect.scope
                for effect in findings.effects
                if effect.kind in ("network", "execute") and effect.scope in HOSTS
            ]
            if host_scopes and command.name not in SHELLS:
                scopes += host_scopes if prints_what_it_fetches(command) else []
            if findings.earlier.fetched:
                scopes += [
                    scope
                    for word in command.words[1:9]
                    if (scope := findings.downloaded(findings.place(word).path)) is not None
                ]
            for place in findings.reads:
                scopes.append(findings.downloaded(place.path) or scope_of_file(place))
            stack += feeders(command)
            stack += [other for word in command.words for other in word.outputs]
            if not host_scopes and not findings.reads and not feeders(command):
                scopes.append(
                    PRINTERS.get(command.name, "unknown" if command.name in DECODERS else "project")
                )
            if command.name in HIDERS:
                scopes.append("unknown")
        return scopes

    def origin(self, word: Word) -> list[PathTarget]:
        """Return the places that the unknown part of a word may name: what a `find` or `ls` looked
        through that prints it."""
        places: list[PathTarget] = []
        seen: set[int] = set()
        stack = list(word.outputs)
        while stack and len(seen) < 50:
            index = stack.pop()
            if index in seen or not 0 <= index < len(self._findings):
                continue
            seen.add(index)
            if index not in self._listed:
                self._listed[index] = _listed(self._commands[index], self._findings[index])
            if (listed := self._listed[index]) is not None:
                places += listed
                continue
            command, findings = self._commands[index], self._findings[index]
            stack += feeders(command)
            places += (
                [PathTarget(p.path, "unknown") for p in findings.reads[:1]]
                if not feeders(command)
                else []
            )
        return places


def _listed(command: Command, findings: Findings) -> list[PathTarget] | None:
    """Return the places whose names a command prints; None where it prints what it is given."""
    if command.name in ("mktemp", "gmktemp", "tempfile"):
        return [PathTarget("/tmp/x", "temp")]
    if command.name == "pwd":
        return [findings.place(Word("."))]
    named = command.words[1:] if command.name in _NAMING else ()
    roots = (
        findings.reads
        or [findings.place(word) for word in named if not word.known.startswith("-")]
        or [PathTarget("./x", "project")]
    )
    if command.name in ("find", "gfind"):
        texts = command.texts
        return [finding_files.chosen(place, texts) for place in roots]
    if command.name not in _LISTERS:
        return None
    is_search = command.name not in ("ls", "dir")
    return [
        PathTarget(
            p.path, "project" if p.path == "." and is_search else p.scope, True, p.secret, p.whole
        )
        for p in roots
    ]
