"""The texts in the values of a tool call's arguments, in any container: lists of words, headers,
JSON in a text.

Must not know: the names or the purpose of the arguments.
"""

from collections.abc import Iterator
from typing import Any

from protocol.bytes.json_strict import loads_arguments

Json = Any

_MAX_PACKED = 65_536


def quoted(word: str) -> str:
    """Return a word as a shell reads it unchanged."""
    return "'" + word.replace("'", "'\\''") + "'"


def unpacked(value: Json) -> Json:
    """Return the object that a text holds as JSON, else the value as it is; None where it only
    begins like one."""
    if isinstance(value, str) and value.lstrip()[:1] == "{" and len(value) <= _MAX_PACKED:
        try:
            return loads_arguments(value)
        except ValueError:
            return None
    return value


def without_objects(value: Json) -> Json:
    """Return what is left of a value besides its objects, which are looked at by themselves."""
    if isinstance(value, list):
        return [item for item in value if not isinstance(item, dict)]
    return None if isinstance(value, dict) else value


def texts_in(value: Json, *, many: bool) -> Iterator[str]:
    """The texts that an argument holds. A list is one command by its words; where its first has a
    blank, or `many`, each is a text too."""
    if isinstance(value, str):
        yield value
        return
    if not isinstance(value, list):
        return
    words = [
        str(word)
        for word in value
        if isinstance(word, str | int | float) and not isinstance(word, bool)
    ]
    if not words:
        return
    if many or any(c.isspace() for c in words[0].strip()):
        yield from words
        if len(words) > 1 and many:
            # one shell may read them all, one after the other
            yield "\n".join(words)
        return
    yield " ".join(map(quoted, words))


def pairs(value: Json) -> Iterator[tuple[str, str]]:
    """Names and values of headers: in an object, in lists of lines, of pairs or of objects with
    `name` and `value`."""
    for item in value[:256] if isinstance(value, list) else [value]:
        if isinstance(item, str):
            for line in item.split("\n")[:256]:
                name, _, content = line.partition(":")
                yield name.strip(), content.strip()
        elif (
            isinstance(item, dict)
            and isinstance(item.get("name"), str)
            and isinstance(item.get("value"), str)
        ):
            yield item["name"], item["value"]
        elif isinstance(item, dict):
            yield from ((name, text) for name, inner in item.items() for text in every_text(inner))
        elif (
            isinstance(item, list)
            and len(item) == 2
            and all(isinstance(word, str) for word in item)
        ):
            yield item[0], item[1]


def every_text(value: Json) -> Iterator[str]:
    """The texts in a value at any depth."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack += reversed(item.values())
        elif isinstance(item, list):
            stack += reversed(item)
