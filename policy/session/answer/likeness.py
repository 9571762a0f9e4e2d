"""The metadata of a message that two models made, as the first alone would have sent it: the fields
are the first's, the counts the other's.

Theory. A client compares one answer with the next: a field that every answer has and this one lacks
reveals that another model made it. So the first answer's metadata is the shape, and the other's
values are put into it. Where the other has no value, a count is none and a word stays as in the
first. Must not know: sessions, how dialects name counts.
"""

from typing import Any

import msgspec

from protocol.events import MessageStop, Usage

_OF_THE_END = frozenset(("finish_reason", "native_finish_reason"))
"""A server's own word for why the message ended."""


def in_shape(shape: dict[str, Any], counts: dict[str, Any]) -> dict[str, Any]:
    """Return `shape` with the values of `counts`, none where it has none, and those of its counts
    that `shape` lacks. Words stay."""
    made = dict(shape)
    for name, value in shape.items():
        count = counts.get(name)
        if isinstance(value, dict):
            # within details nothing is added: they are parts of counts that are there
            count = (
                {n: v for n, v in count.items() if n in value} if isinstance(count, dict) else {}
            )
            made[name] = in_shape(value, count)
        elif _is_count(value):
            made[name] = count if _is_count(count) else 0
        elif value is None and _is_count(count):
            made[name] = count
    return made | {
        name: count
        for name, count in counts.items()
        if name not in shape and _is_count(count) and count
    }


def usage_alike(first: Usage, second: Usage) -> Usage:
    """Return the second's counts where the first has counts, 0 where the second has none; its other
    counts only where they are not 0."""
    pairs = zip(msgspec.structs.astuple(first), msgspec.structs.astuple(second), strict=True)
    return Usage(*((count or None) if shape is None else (count or 0) for shape, count in pairs))


def end_extra(
    first: MessageStop, second: MessageStop, second_extra: dict[str, Any], counts: dict[str, Any]
) -> dict[str, Any]:
    """Return the `extra` of the end of a message that the second answer makes, where the first's is
    the shape.

    `second_extra` is the second's extra as far as the first's dialect can express it, `counts` its
    usage in that dialect.
    """
    shape = {
        name: value
        for name, value in first.extra.items()
        if name not in ("stop_details", "total_tokens")
    }
    made: dict[str, Any] = {
        name: second_extra.get(name) if second_extra.get(name) is not None else value
        for name, value in shape.items()
    }
    for name in ("fields", "choice"):
        if isinstance(fields := shape.get(name), dict):
            made[name] = fields | {
                n: v for n, v in second_extra.get(name, {}).items() if n in fields
            }
    if first.stop_reason is not second.stop_reason:
        if "finish_reason" not in second_extra:
            made.pop("finish_reason", None)
        if "choice" in made:
            made["choice"] = {
                n: v
                for n, v in made["choice"].items()
                if n not in _OF_THE_END or n in second_extra.get("choice", {})
            }
    if isinstance(shape.get("usage"), dict):
        made["usage"] = in_shape(shape["usage"], counts)
    # a client continues in the container in which this answer's calls ran, and learns why this one
    # ended
    return made | {
        name: second_extra[name]
        for name in ("container", "stop_details")
        if second_extra.get(name) is not None
    }


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
