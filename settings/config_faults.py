"""Inconsistencies between the parts of a configuration: the place of each fault, and the word that
was probably meant."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from protocol.dialects.base import Dialect
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.server_tools.added import check_families
from settings import defaults, routes

_SCRIPTS = (defaults.SCRIPT, *(f"{defaults.SCRIPT}-{name}" for name in CLIENTS))
Place = tuple[str | int, ...]
"""Where something stands in the file: keys of mappings, and numbers of list items from 0."""


class Faults(ValueError):
    """Inconsistencies between the parts of a configuration, each with its place."""

    def __init__(self, faults: Sequence[tuple[Place, str]]) -> None:
        super().__init__(
            "; ".join(f"{'.'.join(map(str, place))}: {message}" for place, message in faults)
        )
        self.faults = tuple(faults)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean ...?` where one of `known` is near to `word`, else nothing."""
    near = get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def dialects_that(has: Callable[[Dialect], bool]) -> str:
    """How to speak of the dialects of which something holds."""
    names = [name for name, dialect in DIALECTS.items() if has(dialect)]
    if len(names) < 2:
        return f"the dialect {' '.join(names)}"
    return f"the dialects {', '.join(names[:-1])} and {names[-1]}"


def faults_between(raw: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong between the parts of a configuration, with its place: names that are used
    and not there.

    `raw` is the file as it was read. What has another form than it should is passed over: that is
    reported elsewhere.
    """
    upstreams, policies = raw.get("upstreams", {}), raw.get("policies", defaults.POLICIES)
    if isinstance(upstreams, Mapping):
        for name in (defaults.DEMO, *_SCRIPTS):
            if name in upstreams:
                yield (
                    (
                        "upstreams",
                        name,
                    ),
                    f"{name!r} is the built-in upstream: give yours another name",
                )
        for number, route in _mappings(raw.get("models")):
            yield from _faults_of_route(("models", number), route, upstreams)
    holders: dict[object, int] = {}
    for number, key in _mappings(raw.get("keys")):
        if (
            isinstance(text := key.get("sha256"), str)
            and (first := holders.setdefault(text, number)) != number
        ):
            yield (
                (
                    "keys",
                    number,
                    "sha256",
                ),
                f"is also that of keys.{first}: one key cannot have two names or rights",
            )
        if isinstance(policies, Mapping):
            yield from _faults_of_key(("keys", number), key, policies)
        families = key.get("server_tools")
        try:
            (
                check_families(name for name in families if isinstance(name, str))
                if isinstance(families, list)
                else None
            )
        except ValueError as error:
            yield ("keys", number, "server_tools"), str(error)


def _faults_of_route(
    place: Place, route: Mapping[str, Any], upstreams: Mapping[str, Any]
) -> Iterator[tuple[Place, str]]:
    for where, name in routes.named(route):
        if isinstance(name, str):
            yield from _faults_of_target(place, where, name, route, upstreams)
    trust = {n: u.get("trust") for n, u in upstreams.items() if isinstance(u, Mapping)}
    if not route.get("allow_less_trust") and (lost := routes.loses_trust(route, trust)):
        yield (
            place,
            (
                f"a request for a trusted upstream may go on to {lost!r}, which is untrusted: take"
                " it out, or set `allow_less_trust: true`"
            ),
        )


def _faults_of_target(
    place: Place, where: Place, name: str, route: Mapping[str, Any], upstreams: Mapping[str, Any]
) -> Iterator[tuple[Place, str]]:
    if name in _SCRIPTS:
        if what := next((what for what in ("server_tools", "mcp_servers") if route.get(what)), ""):
            yield (*place, what), f"{name!r} is the scripted model, which runs no tools"
    elif name not in upstreams:
        near = did_you_mean(name, [*map(str, upstreams), defaults.SCRIPT])
        yield (*place, *where), f"the upstream {name!r} is not under upstreams{near}"
    elif route.get("server_tools") or route.get("mcp_servers"):
        upstream = upstreams[name]
        dialect = (
            DIALECTS.get(str(upstream.get("dialect"))) if isinstance(upstream, Mapping) else None
        )
        if dialect is not None and not dialect.takes_server_tools:
            what = "server_tools" if route.get("server_tools") else "mcp_servers"
            yield (
                (*place, what),
                (
                    f"only upstreams of {dialects_that(lambda d: d.takes_server_tools)} take server"
                    f" tools, and {name!r} is not one"
                ),
            )


def _faults_of_key(
    place: Place, key: Mapping[str, Any], policies: Mapping[str, Any]
) -> Iterator[tuple[Place, str]]:
    if "policies" not in key and "default" not in policies:
        yield (
            (*place, "policies"),
            (
                "is missing, so the key would use 'default', and there is no policy 'default': name"
                " the policies it may use"
            ),
        )
    names = key.get("policies")
    for position, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and name not in policies:
            yield (
                (*place, "policies", position),
                (
                    f"the policy {name!r} is not under"
                    f" policies{did_you_mean(name, map(str, policies))}"
                ),
            )


def _mappings(items: object) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The items of a list that are mappings, with their numbers."""
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping):
            yield number, item
