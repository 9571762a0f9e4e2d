"""What a tool of a service (a forge, a cloud, a cluster, a database) does there, by the verb in its
name: what is listed as reading only reads, the rest changes something.

Must not know: what is allowed.
"""

import re
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

from policy.effects.argument_names import key_of
from policy.effects.effect import Effect, Kind
from policy.effects.tools.table import known_tool, parts_of
from policy.word_tables import by_word, sections

_VERB_KEYS = frozenset(
    "operation action method verb command subcommand sub_command op operation_name".split()
)
"""Arguments that say what is done, where a tool does several things."""
_KIND_KEYS = frozenset("resource_type object_type type kind resource type_name".split())
_PATH_KEYS = frozenset("path endpoint route uri url".split())
_HTTP_VERBS = {"DELETE": "delete", "PUT": "update", "PATCH": "update"}
_WEAKENS = frozenset("update edit modify set replace".split())
"""What may turn off a guard besides ending it; making one turns nothing off."""
_OPENS = frozenset(("unprotect", "unlock_branch"))
"""What takes a guard away by its own name."""
_WHOLLY = frozenset("reset wipe flush truncate nuke flushall flushdb teardown deprovision".split())
"""Verbs that leave nothing."""
_SEVERE = ("delete", "privilege", "defence")
_COMMAND_WORDS = 4
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
    """Return what a tool of a service does there; nothing where it is of none, or only reads. One
    that nobody knows is of one where its name ends something that services alone have."""
    client = client_of(name, server)
    words = parts_of(name)[0][1].split("_")[:_MAX_WORDS]
    keys = _VERB_KEYS | (_PATH_KEYS if "method" in map(key_of, arguments) else frozenset())
    values = [
        word
        for key, value in arguments.items()
        if key_of(key) in keys and isinstance(value, str) and len(value) <= 128
        for word in key_of(value.replace("/", "_")).split("_")[:_MAX_WORDS]
    ]
    # what it is about stands in its name, or in the value that says what is done
    nouns = {*words, *values, *_pairs(words), *_kinds(arguments)}
    # the worse of two, as an argument that the tool does not know makes nothing harmless
    verbs = filter(None, (_first(values), _first(words)))
    word = min(verbs, key=lambda word: _WORST.index(_VERBS[word]), default="")
    if not client and not _is_of_services(_VERBS.get(word, ""), nouns):
        return ()
    target = " ".join([*words, *_shown(arguments)])
    chosen = [*arguments.items(), *_inner(arguments)]
    is_open, is_all = (any(map(test, chosen)) for test in (_is_opened, _is_of_all))
    return _effects(word, nouns, target, client or "tool", is_open=is_open, is_all=is_all)


def _is_of_services(verb: str, nouns: Set[str]) -> bool:
    """Has only a service what this ends, or gives somebody?"""
    if verb == "delete":
        return bool(nouns & _TABLE["of_services"].keys())
    return any("_" in noun for noun in nouns & _TABLE["powers"].keys())


def _inner(arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What stands in the values that are objects."""
    objects = [value for value in arguments.values() if isinstance(value, dict)]
    return [item for value in objects for item in [*value.items()][:_MAX_WORDS]]


def effects_of_request(method: str, address: str, client: str) -> tuple[Effect, ...]:
    """Return what a request does at the interface of a service besides changing something: `DELETE
    https://git.example/api/v1/repos/acme/core`."""
    path, _, query = address.partition("://")[2].partition("/")[2].partition("?")
    nouns = {key_of(part).strip("_") for part in path.split("/")[:_MAX_WORDS]}
    nouns &= _TABLE["in_addresses"].keys() | _TABLE["guards"].keys()
    is_open = any(_is_opened(pair.partition("=")[::2]) for pair in query.split("&")[:_MAX_WORDS])
    verb = _HTTP_VERBS.get(method.upper())
    if verb is None or not (nouns or is_open):
        return ()
    target = f"{method.upper()} /{path}"
    found = _effects(verb, nouns, target, client, is_open=is_open, is_all=bool(nouns))
    return tuple(effect for effect in found if effect.kind in _SEVERE)


def effects_of_words(words: Sequence[str], client: str) -> tuple[Effect, ...]:
    """Return what a command of a service does there besides changing something, by its words without
    options: `repo deploy-key add`, `iam delete-role`, `delete namespace prod`."""
    parts = [key_of(word).split("_")[:_MAX_WORDS] for word in words[:_COMMAND_WORDS]]
    place = next((n for n, part in enumerate(parts) if _first(part)), None)
    if place is None:
        return ()
    # behind the verb stand names, but for what it is about where it stands first
    about = [*chain(*parts[: max(place, 1) + 1])]
    found = _effects(_first(parts[place]), {*about, *_pairs(about)}, " ".join(words), client)
    return tuple(effect for effect in found if effect.kind in _SEVERE)


def _effects(
    word: str,
    nouns: Set[str],
    target: str,
    client: str,
    *,
    is_open: bool = False,
    is_all: bool = False,
) -> tuple[Effect, ...]:
    verb = _VERBS.get(word, "write")
    if verb == "read":
        return ()
    kind: Kind = _KINDS[verb]
    is_weakened = verb in ("delete", "stop") or word in _WEAKENS
    if (is_weakened and nouns & _TABLE["guards"].keys()) or is_open or word in _OPENS:
        kind = "defence"
    elif verb == "write" and nouns & _TABLE["powers"].keys():
        kind = "privilege"
    changes = Effect.of("write", "service", target, by=client)
    if kind == "write":
        return (changes,)
    is_wide = kind == "delete" and (
        is_all or word in _WHOLLY or bool(nouns & _TABLE["weighty"].keys())
    )
    return Effect.of(kind, "unknown", target, wide=is_wide, by=client), changes


def _is_of_all(argument: tuple[str, Any]) -> bool:
    """Does it choose all there is?"""
    key, value = key_of(argument[0]), argument[1]
    if key in ("filter", "where", "query", "condition", "match", "selector"):
        return value in ({}, "", "{}", "1=1", "true", "*") or value == {"match_all": {}}
    if key in ("delete_all", "all", "all_records", "truncate"):
        return value in (True, "true")
    return (key in ("key", "keys", "pattern", "ids", "name") and value in ("*", ["*"])) or (
        key in ("key", "pattern") and str(value).endswith("*")
    )


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
        if key_of(key) in _KIND_KEYS and isinstance(value, str)
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", value[:128])
    ]


def _shown(arguments: Mapping[str, Any]) -> list[str]:
    """The short values, for the report."""
    values = [value for value in arguments.values() if isinstance(value, str | int)]
    return [str(value)[:60] for value in values if len(str(value)) <= 60][:_SHOWN_VALUES]
