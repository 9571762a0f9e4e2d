"""What a tool of a service (a forge, a cloud, a cluster, a database) does there, by the verb in its
name: what is listed as reading only reads, the rest changes something.

Must not know: what is allowed.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from policy.effects.argument_names import key_of
from policy.effects.effect import Effect, Kind
from policy.effects.tools.table import known_tool, parts_of
from policy.word_tables import by_word, sections

_VERB_KEYS = frozenset(
    "operation action method verb command subcommand sub_command op operation_name".split()
)
"""Arguments that say what is done, where a tool does several things."""
_WEAKENS = frozenset("update edit modify set replace".split())
"""What may turn off a guard besides ending it; making one turns nothing off."""
_KINDS: dict[str, Kind] = {
    "write": "write",
    "delete": "delete",
    "stop": "process",
    "privilege": "privilege",
}
_WORST = ("delete", "privilege", "stop", "write", "read")
_MAX_WORDS = 32
_SHOWN_VALUES = 6


_TABLE = {name: by_word(text) for name, text in sections("services.txt").items()}
_SERVICES, _VERBS = _TABLE["services"], _TABLE["verbs"]


@lru_cache(maxsize=256)
def client_of(name: str, server: str) -> str:
    """Return the command of the service that a tool is of, as far as its server or its own name say
    it; empty where they do not."""
    servers, tool = parts_of(name)[0]
    known = known_tool(name, server)
    if known is not None and known.command.startswith("@"):
        return known.command[1:]
    of_servers = [*key_of(server).split("_"), *servers.split("_")]
    words = [*of_servers, *(f"@{word}" for word in of_servers), *tool.split("_")]
    return next((_SERVICES[word] for word in words if word in _SERVICES), "")


def effects_there(name: str, server: str, arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
    """Return what a tool of a service does there; nothing where it is of none, or only reads."""
    client = client_of(name, server)
    if not client:
        return ()
    words = parts_of(name)[0][1].split("_")[:_MAX_WORDS]
    values = [
        word
        for key, value in arguments.items()
        if key_of(key) in _VERB_KEYS and isinstance(value, str) and len(value) <= 64
        for word in key_of(value).split("_")[:_MAX_WORDS]
    ]
    # the worse of two, as an argument that the tool does not know makes nothing harmless
    verbs = filter(None, (_first(values), _first(words)))
    word = min(verbs, key=lambda word: _WORST.index(_VERBS[word]), default="")
    verb = _VERBS.get(word, "write")
    if verb == "read":
        return ()
    # what it is about stands in its name, or in the value that says what is done
    nouns = {*words, *values, *_pairs(words), *_kinds(arguments)}
    target = " ".join([*words, *_shown(arguments)])
    kind: Kind = _KINDS[verb]
    is_weakened = verb in ("delete", "stop") or word in _WEAKENS
    if (is_weakened and nouns & _TABLE["guards"].keys()) or any(map(_is_opened, arguments.items())):
        kind = "defence"
    elif verb == "write" and nouns & _TABLE["powers"].keys():
        kind = "privilege"
    changes = Effect.of("write", "service", target, by=client)
    if kind == "write":
        return (changes,)
    is_wide = kind == "delete" and bool(nouns & _TABLE["weighty"].keys())
    return Effect.of(kind, "unknown", target, wide=is_wide, by=client), changes


def _is_opened(argument: tuple[str, Any]) -> bool:
    """Does this make something public?"""
    key, value = key_of(argument[0]), str(argument[1]).lower()
    return (key == "private" and value == "false") or (
        key in ("visibility", "acl", "access") and value.startswith("public")
    )


def _first(words: Sequence[str]) -> str:
    """The first verb among the words; one of two words counts first."""
    known = [word for word in [*_pairs(words), *words] if word in _VERBS]
    return known[0] if known else ""


def _pairs(words: Sequence[str]) -> list[str]:
    return [f"{first}_{second}" for first, second in pairwise(words)]


def _kinds(arguments: Mapping[str, Any]) -> list[str]:
    """Words that say of what kind the thing is: `resource_type: AWS::RDS::DBInstance`."""
    return [
        word.lower()
        for key, value in arguments.items()
        if key_of(key) in ("resource_type", "type", "kind", "resource", "type_name")
        and isinstance(value, str)
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", value[:128])
    ]


def _shown(arguments: Mapping[str, Any]) -> list[str]:
    """The short values, for the report."""
    values = [value for value in arguments.values() if isinstance(value, str | int)]
    return [str(value)[:60] for value in values if len(str(value)) <= 60][:_SHOWN_VALUES]
