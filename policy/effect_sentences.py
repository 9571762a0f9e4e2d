"""What a call would do, in a sentence for people and models: "would delete ~/old.ts, outside the
project /srv/app; if it is part of the project, name that folder with `project:`".

The sentence goes to the client and onto the record, and its target is text of a model: it is
bounded, on one line, in plain characters and without credentials. It is made of the call and of
places alone, so that a worker that takes over writes the same. Must not know: rules, verdicts.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from policy.effects.credentials import secrets_in
from policy.effects.effect import MAX_TARGET, Effect
from policy.effects.places import Places
from policy.effects.severity import worst
from policy.word_tables import by_word, sections

MAX_SENTENCE = 500
"""Characters that a sentence has at most."""
_MAX_SHOWN = 100
"""Characters of a text of the call that are shown."""
_MAX_READ = 2 * MAX_TARGET
"""Characters of such a text in which credentials are looked for; nothing behind them is shown."""
_PLAIN = frozenset("_-./~:@%+,=*?#$ ")
_LEFT_TO_RIGHT = frozenset(("L", "EN"))
_QUOTED = re.compile(r"'[^']*'?|\"[^\"]*\"?")
_SECRET_OPTION = re.compile(
    r"(?i)(-[\w-]*(?:pass|pwd|secret|token|key|auth|cred|header|user)[\w-]*)[ =:]+\S+"
    r"|(?<!\S)(-[pPuH])\S+"
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@|[?#]\S*")
_LONG_WORD = re.compile(r"(?=[A-Za-z+_=]*[0-9])([A-Za-z0-9+_=]{4})[A-Za-z0-9+_=]{16,}")
"""What may be a key of a form that nobody knows, or the beginning of one that was cut."""
_WORDS = {name: by_word(rows) for name, rows in sections("effect_sentences.txt").items()}


def describe(effect: Effect, places: Places) -> str:
    """Return what an effect is, where, and what would let it pass, as a sentence about the call
    without its subject."""
    kind, scope, target = effect.kind, effect.scope, effect.target.strip()
    is_path = target.startswith(("/", "~", "./", "../")) or target in (".", "..")
    if not is_path and kind in _WORDS["changes"]:
        return f"{_WORDS['changes'][kind]}, by `{shown_command(f'{effect.by} {target}')}`"
    verb = _WORDS["kinds"][kind]
    if target in _WORDS["whole"]:
        return f"{verb} {_WORDS['whole'][target]}"
    if effect.wide and "*" not in target:
        verb = _WORDS["all"].get(kind, verb)
    is_whole = scope == "home" and target.startswith("./")
    where = _WORDS["where"]["whole" if is_whole else scope]
    if scope == "home" and not is_whole and places.shown_project:
        where += f" {shown_text(places.shown_project)}"
    ways = _WORDS["way_out"]
    way = "" if is_whole else ways.get(scope) or ways.get(f"{kind}/{scope}")
    return f"{verb} {shown_text(target or effect.by)}, {where}{f'; {way}' if way else ''}"


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
    done = [_WORDS["sql"][effect] for effect in sorted(effects)]
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
    shown = "".join(map(_plain, text[: _MAX_SHOWN + 1]))
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def shown_command(text: str) -> str:
    """Return a command line likewise: without what stands in quotes or behind options that may take
    a credential."""
    plain = _QUOTED.sub("...", text[:_MAX_READ].strip())
    return shown_text(_SECRET_OPTION.sub(r"\1\2 ...", plain))


def _plain(char: str) -> str:
    if char in _PLAIN or (char.isalnum() and unicodedata.bidirectional(char) in _LEFT_TO_RIGHT):
        return char
    return "?" if char.isascii() and char.isprintable() else f"\\u{ord(char):04x}"
