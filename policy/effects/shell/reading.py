"""Reads a shell text: its commands, what they would do, and what about it is not sure. The one
entry to this folder."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from policy.effects.effect import Effect
from policy.effects.places import NOWHERE, Places
from policy.effects.shell.command import Command
from policy.effects.shell.commands.effects_of import effects_of
from policy.effects.shell.programs.code import Runner
from policy.effects.shell.run.resolving import resolve
from policy.effects.stored import stored_in
from protocol.bytes.folding import fold

_MAX_DEPTH = 3
"""Shell texts in programs in shell texts."""
_MAX_INNER_CHARS = 16_384
_MAX_INNER_WORK = 60
"""Of all shell texts in the programs of one text; what is beyond is unsure."""
_MOST_REMEMBERED = 4_096
"""Characters of a text up to which its reading is remembered: 1 MiB of texts at most."""


_BOMB = re.compile(
    r"([^\s;&|(){}]{1,40})\s{0,5}\(\s{0,5}\)\s{0,5}\{\s{0,5}\1\s{0,5}\|\s{0,5}\1\s{0,5}&"
)


class Reading(msgspec.Struct, frozen=True):
    """What a text would do. `unsure`: why that may be incomplete; empty where it is complete."""

    effects: tuple[Effect, ...] = ()
    unsure: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    work: int = 0
    """What reading it took, counted in commands."""
    files: tuple[tuple[str, str], ...] = ()
    """Files that it writes, where what stands in them is known."""


def load() -> None:
    """Load what the first text would else wait for: the parser of SQL, tables of letters."""
    for client in ("psql", "mysql", "sqlite3 x", "sqlcmd", "snowsql"):
        _read(f"{client} -c 'select 1'; echo \u2013", NOWHERE, 0)
    # tables of verbs and the formats of keys
    for service in ("aws ec2", "gcloud x", "az x", "gh api", "kubectl get", "npm", "docker"):
        _read(f"{service} x; git commit -m x; curl -d x https://x.example/", NOWHERE, 0)
    fold("\u2013")


def read(text: str, places: Places = NOWHERE) -> Reading:
    """Return what a shell text would do. Never raises, bounded; the last texts are remembered."""
    return _reader(text)(text, places, 0)


def _runner(places: Places, depth: int, cut: list[str]) -> Runner:
    """Read the texts of one text, all together no more than their bound. `cut`: gets why something
    in them was not read."""
    left = [_MAX_INNER_CHARS, _MAX_INNER_WORK]

    def run(text: str) -> tuple[Effect, ...]:
        left[0] -= len(text)
        if depth >= _MAX_DEPTH or left[0] < 0 or left[1] < 0:
            cut.append("size: more programs in programs than are read")
            return ()
        reading = _reader(text)(text, places, depth + 1)
        left[1] -= reading.work
        cut.extend(why for why in reading.unsure if why.startswith("size:"))
        return reading.effects

    return run


def _stored(
    files: Sequence[tuple[str, str]], places: Places, run: Runner, cut: list[str]
) -> list[Effect]:
    """Return what files do later that the text writes: hooks of packages, steps of builds,
    scripts."""
    effects: list[Effect] = []
    for path, content in files:
        stored = stored_in(path, places.place(path).scope, content)
        effects += stored.effects
        if not stored.is_whole:
            cut.append("size: a file that is written runs more than is read")
        for script in stored.scripts:
            effects += filter(stored.keeps, run(script))
    return effects


def _made(text: str, places: Places, depth: int) -> Reading:
    resolved = resolve(text, home=places.home, project=places.folder)
    cut: list[str] = []
    run = _runner(places, depth, cut)
    outcome = effects_of(resolved.commands, places, run=run)
    effects = outcome.effects
    if resolved.unsure and _BOMB.search(text[:4096]):
        effects = (
            *effects,
            Effect.of(
                "process", "system", "a function that starts itself twice", wide=True, by="shell"
            ),
        )
    files = (*resolved.files, *outcome.files)
    if files and depth < _MAX_DEPTH:
        effects = tuple(dict.fromkeys((*effects, *_stored(files, places, run, cut))))
    return Reading(
        effects,
        tuple(dict.fromkeys((*resolved.unsure, *outcome.unsure, *cut))),
        resolved.commands,
        outcome.work,
        files,
    )


_read = lru_cache(maxsize=256)(_made)


def _reader(text: str) -> Callable[[str, Places, int], Reading]:
    """What is long is not remembered: the memory of all readings is bounded by what their texts may
    hold."""
    return _read if len(text) <= _MOST_REMEMBERED else _made
