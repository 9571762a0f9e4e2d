"""Which earlier calls matter for a call: those that made or set what it names, went to the folder
in which it runs, made links, or fetched what it may run.

Must not know: how anything is read.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from policy.effects.history.past_calls import PLAIN, PastCall, folders_of, steps_of
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
_ABSOLUTE = re.compile(
    r"(?:cd|pushd)(?:[ \t]+-[LPe])*"
    r"(?:[ \t]+(?:([/~][\w./-]*)|[\"']?(?:[/~]|\$\{?HOME\b).*))?"
)
"""A change of the folder that says all of it, and where to if that is plain."""
_USER_FOLDERS = frozenset(
    "desktop documents downloads library movies music pictures photos public videos appdata"
    " onedrive dropbox".split()
)


class Wants(msgspec.Struct, frozen=True):
    """What a call may build on. `names`: of files, variables and commands that it mentions;
    `opens`: it runs files or sends some."""

    names: frozenset[str]
    opens: bool


def wants_of(touch: Touch, *, sends: bool) -> Wants:
    """Return what a call may build on, from what is known of it alone. `sends`: it sends files."""
    names = {command.name: None for command in touch.commands}
    opens = sends or not _ONLY_READ.issuperset(names)
    files = [use.path for use in touch.surface.paths]
    for command in touch.commands:
        # a program's name is that of a file where it says its folder
        first = 0 if command.words and "/" in command.words[0].known else 1
        words = [*command.words[first:], *(redirect.target for redirect in command.redirects)]
        if command.stdin.path is not None:
            words.append(command.stdin.path)
        files += [word.known for word in words[:_MAX_NAMES]]
        for variables in (command.stdin.variables, *(word.variables for word in words)):
            names |= dict.fromkeys(variables)
    if opens:
        names |= {"PATH": None} | dict.fromkeys(name for file in files for name in _names_in(file))
    return Wants(frozenset(islice(names, _MAX_NAMES)), opens)


def _names_in(word: str) -> Iterator[str]:
    """The names in a word under which earlier calls may have made what it means; with a `*` behind
    those that only begin so."""
    if word.startswith("-"):
        word = _OPTION.sub("", word[:4_096], count=1)
    for piece in _SEPARATED.split(word[:4_096])[:8]:
        steps = _GLOBBED.sub("*", piece).rstrip("/").split("/")
        yield from (step for step in steps[-_MAX_DEPTH:] if step.strip("*."))


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
    fetches = (
        place
        for place, past in enumerate(before)
        if wants.opens
        and any(places.host_scope(host) not in ("loopback", "listed") for host in past.addresses)
    )
    foreign = frozenset(islice(fetches, _MAX_FOREIGN))
    names = set(wants.names)
    begins = tuple(name[:-1] for name in names if name.endswith("*"))

    def is_named(made: frozenset[str]) -> bool:
        return not made.isdisjoint(names) or (
            bool(begins) and any(name.startswith(begins) for name in made)
        )

    signs = {"link", "archive"} if foreign else {"link"}
    taken: list[tuple[EarlierStep, ...]] = []
    calls = chars = folders = 0
    is_whole, is_rooted = True, False
    for place, past in enumerate(before):
        if place in foreign or not past.marks.isdisjoint(signs) or is_named(past.names):
            if calls >= MAX_STEPS or chars + len(past.arguments) > _MAX_CHARS:
                is_whole = is_whole and place not in foreign
                continue
            calls, chars = calls + 1, chars + len(past.arguments)
            made = steps_of(past.name, past.arguments)
            taken.append(tuple(step for step in made if step.source != "paths" or step.path))
            if len(names) < 2 * _MAX_NAMES:
                # what a file was made of may have been made before
                tokens = _TOKEN.findall(past.text[:2_048].translate(PLAIN))[:_MAX_NAMES]
                names.update(
                    name
                    for token in tokens
                    if "/" in token or "." in token
                    for name in _names_in(token)
                )
        elif "folder" not in past.marks or is_rooted or folders >= _MAX_FOLDERS:
            continue
        elif changes := folders_of(past):
            folders += 1
            taken.append((EarlierStep("\n".join(changes)),))
        is_rooted = is_rooted or any(map(_ABSOLUTE.fullmatch, folders_of(past)))
    steps = tuple(step for steps in reversed(taken) for step in steps)
    if not calls and not _leads_away("\n".join(step.text for step in steps), places):
        return Chosen()
    return Chosen(steps, is_whole, bool(foreign))


def _leads_away(changes: str, places: Places) -> bool:
    """Do changes of the folder lead to another than the project is, or may be?"""
    change = _ABSOLUTE.fullmatch(changes)
    if change is None or not change[1]:
        return bool(changes)
    return stays_in(change[1], 1, places) and places.place(change[1]).path != "."
