"""What stands twice in a request, where a policy changed one of the two; see `protocol.changed`."""

from typing import Any


class Unclear(ValueError):
    """The change cannot be sent as it was meant; the message says which, without the request's content."""


def follow(name: str, fields: tuple[Any, Any], words: tuple[Any, Any]) -> bool | None:
    """Which of the two was changed, each given before and after: True the words beside the field, False the field, None neither.

    Both, to the same thing, is neither.
    """
    if words[0] == words[1]:
        return None if fields[0] == fields[1] else False
    if fields[0] == fields[1]:
        return True
    if fields[1] != words[1]:
        raise Unclear(f"{name} and what says the same in `extra` were both changed, to different things")
    return None


def refuse_names(extra: dict[str, Any], modelled: frozenset[str]) -> None:
    """Refuse what has a field of its own among what has none. Raises Unclear."""
    for name in extra:
        if name in modelled:
            raise Unclear(f"extra[{name!r}]: that has a field of its own")
