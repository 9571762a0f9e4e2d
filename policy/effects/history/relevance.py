"""Which earlier calls matter for a call: those that made what it names, went to the folder in which
it runs, set what it reads, or fetched what it may run.

Must not know: how anything is read.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from policy.effects.history.past_calls import PastCall, folders_of, steps_of
from policy.effects.places import Places
from policy.effects.shell.run.resolving import EarlierStep
from policy.effects.touch import Touch

MAX_STEPS = 24
"""Earlier calls that are read with a call."""
_MAX_CHARS = 48 * 1024
_MAX_FOLDERS = 16
_MAX_FOREIGN = 64
_MAX_NAMES = 48
_MAX_DEPTH = 3
_OPTION = re.compile(r"-{1,2}[\w-]*")
_SEPARATED = re.compile(r"[=@:,\s]")
_GLOBBED = re.compile(r"[*?\[{][^/]*")
_ONLY_READ = frozenset(
    "cat ls head tail wc grep egrep fgrep rg echo printf pwd stat file diff tree du df sort uniq"
    " cut which type true false test [ cd date whoami uname id basename dirname realpath readlink jq"
    " less more nl tr".split()
)
"""Commands that neither run a file nor send anything."""
_TOKEN = re.compile(r"[\w.~@%+/-]{2,200}")
_ABSOLUTE = re.compile(r"(?:cd|pushd)(?:[ \t]+-[LPe])*(?:[ \t]+[\"']?(?:[/~]|\$\{?HOME\b).*)?")
_LITERAL = re.compile(r"cd[ \t]+([/~][\w./-]*)")
_USER_FOLDERS = frozenset(
    "desktop documents downloads library movies music pictures photos public videos appdata"
    " onedrive dropbox".split()
)


class Wants(msgspec.Struct, frozen=True):
    """What a call may build on. `names`: of files and variables that it mentions; `commands`: that
    it runs; `opens`: it runs files or sends something."""

    names: frozenset[str]
    commands: frozenset[str]
    opens: bool


def wants_of(touch: Touch, *, sends: bool) -> Wants:
    """Return what a call may build on, from what is known of it alone. `sends`: it sends files."""
    names: dict[str, None] = {}
    for command in touch.commands:
        # a program's name is that of a file where it says its folder
        first = 0 if command.words and "/" in command.words[0].known else 1
        words = [*command.words[first:], *(redirect.target for redirect in command.redirects)]
        if command.stdin.path is not None:
            words.append(command.stdin.path)
        for word in words[:_MAX_NAMES]:
            names |= dict.fromkeys((*_names_in(word.known), *word.variables))
        names |= dict.fromkeys(command.stdin.variables)
    for use in touch.surface.paths:
        names |= dict.fromkeys(_names_in(use.path))
    commands = frozenset(command.name for command in touch.commands)
    return Wants(frozenset([*names][:_MAX_NAMES]), commands, sends or not commands <= _ONLY_READ)


def _names_in(word: str) -> Iterator[str]:
    """The names in a word under which earlier calls may have made what it means; with a `*` behind
    those that only begin so."""
    if word.startswith("-"):
        word = _OPTION.sub("", word[:4_096], count=1)
    for piece in _SEPARATED.split(word[:4_096])[:8]:
        steps = _GLOBBED.sub("*", piece).rstrip("/").split("/")
        yield from steps[-_MAX_DEPTH:]


class Chosen(msgspec.Struct, frozen=True):
    """What ran before, oldest first. `is_whole`: nothing that matters had to be left out;
    `is_foreign`: something of it comes from a host that nobody named."""

    steps: tuple[EarlierStep, ...] = ()
    is_whole: bool = True
    is_foreign: bool = False


def stays_in(folder: str, ago: int, places: Places) -> bool:
    """Is a shell still in the folder to which it went so many calls ago? Where nobody says which
    folder the project is, one in a home may be it. Shells that begin anew for each call go to `..`
    in each, so only the last one counts."""
    where = places.place(folder)
    if where.path.startswith(".."):
        return ago == 0 and not where.path.strip("./")
    if where.scope not in ("home", "unknown") or where.whole:
        return True
    first = where.path.removeprefix("~/").partition("/")[0].casefold()
    return bool(places.project) or first.startswith(".") or first in _USER_FOLDERS


def choose(before: Sequence[PastCall], wants: Wants, places: Places) -> Chosen:
    """Choose among earlier calls, newest first."""
    return _Choice(before, wants, places).choose()


class _Choice:
    def __init__(self, before: Sequence[PastCall], wants: Wants, places: Places) -> None:
        self._before, self._wants, self._places = before, wants, places
        self._names = dict.fromkeys(name for name in wants.names if name[-1:] not in ("", "*", "."))
        self._prefixes = [name[:-1] for name in wants.names if name[1:][-1:] == "*"]
        foreign = (
            place
            for place, past in enumerate(before)
            if past.addresses and "file" in past.leaves and wants.opens and self._is_foreign(past)
        )
        self._foreign = frozenset(
            place for place in islice(foreign, _MAX_FOREIGN) if steps_of(before[place])
        )

    def choose(self) -> Chosen:
        taken: list[tuple[EarlierStep, ...]] = []
        calls = chars = folders = 0
        is_whole, is_rooted = True, False
        for place, past in enumerate(self._before):
            is_full = calls >= MAX_STEPS or chars + len(past.arguments) > _MAX_CHARS
            if place in self._foreign or (not is_full and self._matters(past) and steps_of(past)):
                if is_full:
                    is_whole = False
                    continue
                calls, chars = calls + 1, chars + len(past.arguments)
                taken.append(steps_of(past))
                self._look_behind(past)
                is_rooted = is_rooted or any(map(_ABSOLUTE.fullmatch, folders_of(past)))
            elif "folder" in past.leaves and not is_rooted and folders < _MAX_FOLDERS:
                changes = folders_of(past)
                folders += bool(changes)
                is_rooted = any(map(_ABSOLUTE.fullmatch, changes))
                taken.append((EarlierStep("\n".join(changes)),) if changes else ())
        steps = tuple(step for steps in reversed(taken) for step in steps)
        if not calls and self._stays(steps):
            return Chosen()
        return Chosen(steps, is_whole, bool(self._foreign))

    def _is_foreign(self, past: PastCall) -> bool:
        return any(
            self._places.host_scope(address) not in ("loopback", "listed")
            for address in past.addresses
        )

    def _matters(self, past: PastCall) -> bool:
        leaves = past.leaves
        if "link" in leaves:
            return True
        if self._foreign and not leaves.isdisjoint(("archive", "branch")):
            # it may hold what was fetched, under names that nobody knows
            return True
        if "setting" in leaves and self._is_set(past.text):
            return True
        return "file" in leaves and self._wants.opens and self._makes_named(past.makes)

    def _makes_named(self, makes: frozenset[str]) -> bool:
        return not makes.isdisjoint(self._names) or any(
            name.startswith(prefix) for prefix in self._prefixes for name in makes
        )

    def _is_set(self, text: str) -> bool:
        wants = self._wants
        return (
            (wants.opens and "PATH=" in text)
            or ("git" in wants.commands and "config" in text)
            or any(f"{name}=" in text for name in wants.names if name)
            or any(
                f"alias {name}=" in text or f"{name}()" in text or f"function {name}" in text
                for name in wants.commands
                if name
            )
        )

    def _look_behind(self, past: PastCall) -> None:
        """What a file was made of may have been made before."""
        for token in _TOKEN.findall(past.text[:2_048]):
            if len(self._names) >= 2 * _MAX_NAMES:
                break
            if "/" in token or "." in token:
                self._names |= dict.fromkeys(filter(None, _names_in(token)))

    def _stays(self, steps: Sequence[EarlierStep]) -> bool:
        """Do they lead to a folder that the project is, or may be? Then nothing is different."""
        changes = "\n".join(step.text for step in steps)
        match = _LITERAL.fullmatch(changes)
        if match is None:
            return not changes
        is_kept = stays_in(match[1], 1, self._places)
        return not is_kept or self._places.place(match[1]).path == "."
