"""What a call would do, in a sentence for people and models: "would delete ~/old.ts, outside the
project /srv/app; if it is part of the project, name that folder with `project:`".

The sentence goes to the client and onto the record, and its target is text of a model: it is
bounded, on one line, in plain characters and without credentials. It is made of the call and of
places alone, so that a worker that takes over writes the same. Must not know: rules, verdicts.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from policy.effects.credentials import secrets_in
from policy.effects.effect import MAX_TARGET, Effect, Kind
from policy.effects.places import Places
from policy.effects.severity import worst

MAX_SENTENCE = 500
"""Characters that a sentence has at most."""
_MAX_SHOWN = 100
"""Characters of a text of the call that are shown."""
_MAX_READ = 2 * MAX_TARGET
"""Characters of such a text in which credentials are looked for; nothing behind them is shown."""
_PLAIN = frozenset("_-./~:@%+,=*?#$ ")
_QUOTED = re.compile(r"'[^']*'?|\"[^\"]*\"?")
_SECRET_OPTION = re.compile(
    r"(?i)(-[\w-]*(?:pass|pwd|secret|token|key|auth|cred|header|user)[\w-]*)[ =:]+\S+"
    r"|(?<!\S)(-[pPuH])\S+"
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@|[?#]\S*")
_LONG_WORD = re.compile(r"(?=[A-Za-z+_=]*[0-9])([A-Za-z0-9+_=]{4})[A-Za-z0-9+_=]{16,}")
"""What may be a key of a form that nobody knows, or the beginning of one that was cut."""
_VERBS: Final[Mapping[Kind, str]] = {
    "read": "would read",
    "write": "would write to",
    "delete": "would delete",
    "network": "would contact",
    "execute": "would run code that the call does not show, from",
    "secret": "would send a credential, or what may hold one, to",
    "privilege": "would change who may do what",
    "persistence": "would make something run again later by itself",
    "defence": "would turn off a guard or take a trace away",
    "process": "would stop or watch processes or services",
}
_IN_SERVICE: Final[Mapping[Kind, str]] = {
    "read": "would read from a service",
    "write": "would change a service",
    "delete": "would delete data or a service",
}
_HAS_PLACE = frozenset(("network", "execute", "secret"))
_WHERE: Final[Mapping[str, str]] = {
    "project": "in the project",
    "temp": "in a temporary folder",
    "system": "a part of the system",
    "root": "the root folder",
    "device": "a device",
    "credentials": "where credentials lie",
    "startup": "which runs at login, start or commit",
    "unknown": "outside every folder that is known",
    "metadata": "where a cloud gives out credentials",
    "loopback": "this machine",
    "private": "a private network",
    "listed": "a listed host",
    "other": "a host that is not listed",
    "service": "in a service",
    "scratch": "made for a test",
}
_NAME_PROJECT = "; if it is part of the project, name that folder with `project:`"
_NAME_HOST = "; if the host is trusted, name it with `hosts:`"
_AS_A_WHOLE: Final[Mapping[str, str]] = {
    ".": "the whole project",
    "./*": "the whole project",
    "~": "the whole home folder",
    "~/*": "the whole home folder",
    "..": "the folder above the project",
    "./.git": "the history of the project",
    "/": "the root folder",
}
SQL_EFFECTS: Final[Mapping[str, str]] = {
    "read": "reads",
    "write": "changes rows",
    "delete": "deletes rows",
    "unbounded": "changes or deletes all rows of a table, or drops what holds data",
    "schema": "changes the schema",
    "privilege": "changes who may do what",
    "catalogue": "changes the server's own tables",
    "file": "reads or writes files of the server",
    "execute": "runs programs, or SQL that stands in a text",
    "network": "asks other servers",
    "session": "changes settings or steers the server",
    "lock": "locks rows or tables",
    "several": "is more than one statement",
}
"""What a statement does (`policy.effects.sql_functions.SqlEffect`)."""
_FILES: frozenset[Kind] = frozenset(("read", "write", "delete"))


def describe(effect: Effect, places: Places) -> str:
    """Return what an effect is, where, and what would let it pass, as a sentence about the call
    without its subject."""
    target, verb = effect.target.strip(), _VERBS[effect.kind]
    if effect.kind not in _HAS_PLACE and not _is_path(target):
        done = shown_command(f"{effect.by} {target}")
        return f"{_IN_SERVICE.get(effect.kind, verb)}, by `{done}`"
    verb += "" if effect.kind in _FILES or effect.kind in _HAS_PLACE else ":"
    if target in _AS_A_WHOLE:
        return f"{verb} {_AS_A_WHOLE[target]}"
    if effect.wide and effect.kind in ("write", "delete") and "*" not in target:
        verb += " all of"
    where = _where(effect, places)
    return f"{verb} {shown_text(target or effect.by)}, {where}{_way_out(effect, target)}"


def describe_worst(effects: Iterable[Effect], places: Places) -> str:
    """Return the sentence about the worst of some effects, and how many more there are; empty
    where there are none."""
    every = tuple(dict.fromkeys(effects))
    if not every:
        return ""
    more = len({effect.target for effect in every}) - 1
    behind = f" (and {more} more like it)" if more else ""
    return f"{describe(worst(every)[1][0], places)}{behind}"


def describe_sql(effects: Iterable[str], kinds: Iterable[str]) -> str:
    """Return what SQL does that a rule names; that nobody can read it where both are empty."""
    done = [SQL_EFFECTS.get(effect, effect) for effect in sorted(effects)]
    done += [f"has a statement of the kind {kind}" for kind in sorted(kinds)]
    return f"holds SQL that {', '.join(done)}" if done else "holds SQL that cannot be read"


def describe_unsure(reasons: Sequence[str]) -> str:
    """Return why what a call does cannot be known."""
    if not reasons:
        return ""
    why = reasons[0].partition(": ")[2] or reasons[0]
    return f"cannot be read in full: {shown_text(why.replace('`', ''))}"


def shown_text(text: str) -> str:
    """Return a text of a model for a sentence: cut, in plain characters, without credentials."""
    text = _IN_ADDRESS.sub("", text[:_MAX_READ]) if "://" in text else text[:_MAX_READ]
    for secret in reversed(secrets_in(text)):
        text = f"{text[: secret.start]}...{text[secret.end :]}"
    text = _LONG_WORD.sub(r"\1...", text)
    shown = "".join(char if _is_plain(char) else _escaped(char) for char in text[: _MAX_SHOWN + 1])
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def shown_command(text: str) -> str:
    """Return a command line likewise: without what stands in quotes or behind options that may take
    a credential."""
    plain = _QUOTED.sub("...", text[:_MAX_READ].strip())
    return shown_text(_SECRET_OPTION.sub(lambda match: f"{match[1] or match[2]} ...", plain))


def _is_plain(char: str) -> bool:
    return (
        char in _PLAIN
        or (char.isascii() and char.isalnum())
        or (not char.isascii() and char.isalpha() and unicodedata.bidirectional(char) == "L")
    )


def _escaped(char: str) -> str:
    return "?" if char.isascii() and char.isprintable() else f"\\u{ord(char):04x}"


def _is_path(target: str) -> bool:
    return target.startswith(("/", "~", "./", "../")) or target in (".", "..")


def _where(effect: Effect, places: Places) -> str:
    if effect.scope != "home":
        return _WHERE.get(effect.scope, effect.scope)
    if effect.target.startswith("./"):
        return "the project as a whole, or its history"
    project = places.shown_project
    return f"outside the project {shown_text(project)}" if project else "outside the project"


def _way_out(effect: Effect, target: str) -> str:
    if effect.scope in ("other", "private"):
        return _NAME_HOST
    is_elsewhere = effect.scope == "home" and target.startswith(("/", "~/", "../"))
    if effect.kind in _FILES and (is_elsewhere or effect.scope == "unknown"):
        return _NAME_PROJECT
    return ""
