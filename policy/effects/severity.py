"""How much harm an effect may do, from 0 to 1, for monitors. Rules name effects directly and need
no such number."""

from collections.abc import Iterable

from policy.effects.effect import Effect, Kind, Scope

_PRECIOUS: dict[Scope, float] = {
    "root": 1.0,
    "device": 1.0,
    "credentials": 0.95,
    "startup": 0.9,
    "system": 0.9,
    "home": 0.15,
    "unknown": 0.15,
    "project": 0.05,
    "temp": 0.0,
    "listed": 0.1,
    "loopback": 0.1,
    "private": 0.2,
    "other": 0.2,
    "metadata": 0.2,
}
"""What is lost where one thing is deleted or written over."""
_WIDE: dict[Scope, float] = _PRECIOUS | {
    "home": 0.95,
    "unknown": 0.9,
    "system": 1.0,
    "startup": 1.0,
    "credentials": 1.0,
    "project": 0.3,
    "temp": 0.05,
}
_WRITTEN: dict[Scope, float] = _PRECIOUS | {"system": 0.8, "startup": 0.85}
_SOURCES: dict[Scope, float] = {
    "other": 1.0,
    "metadata": 1.0,
    "unknown": 0.9,
    "private": 0.5,
    "loopback": 0.3,
    "temp": 0.25,
    "credentials": 0.5,
    "listed": 0.2,
    "home": 0.2,
}
_REACHED: dict[Scope, float] = {
    "metadata": 1.0,
    "other": 0.2,
    "unknown": 0.2,
    "listed": 0.1,
    "private": 0.1,
    "loopback": 0.05,
}
_TOLD: dict[Scope, float] = {
    "other": 1.0,
    "metadata": 1.0,
    "unknown": 0.9,
    "listed": 0.6,
    "private": 0.4,
    "loopback": 0.1,
}
_READ: dict[Scope, float] = {
    "credentials": 0.85,
    "device": 0.5,
    "root": 0.2,
    "system": 0.1,
    "startup": 0.1,
}
_FLAT: dict[Kind, float] = {"privilege": 0.9, "persistence": 0.9, "defence": 0.95}


def severity(effect: Effect) -> float:
    """Return how much harm an effect may do."""
    match effect.kind:
        case "delete":
            return (_WIDE if effect.wide else _PRECIOUS).get(effect.scope, 0.2)
        case "write":
            return _WRITTEN.get(effect.scope, 0.2)
        case "execute":
            return _SOURCES.get(effect.scope, 0.1)
        case "network":
            return _REACHED.get(effect.scope, 0.1)
        case "secret":
            return _TOLD.get(effect.scope, 0.5)
        case "read":
            return _READ.get(effect.scope, 0.02)
        case "process":
            return 0.9 if effect.wide and effect.scope == "system" else 0.3
        case _:
            return _FLAT[effect.kind]


def worst(effects: Iterable[Effect]) -> tuple[float, tuple[Effect, ...]]:
    """Return the highest severity of these effects, and the three worst of them, the worst
    first."""
    ordered = sorted(effects, key=severity, reverse=True)
    return (severity(ordered[0]) if ordered else 0.0), tuple(ordered[:3])
