"""Fields that a request holds twice, where a policy changed one of the two; see
`protocol.policy_changes`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from protocol.request import ChatRequest, Tool, ToolUsePart


class Unclear(ValueError):
    """The change cannot be sent as it was meant; the message says which, without the request's
    content."""


def follow(name: str, fields: tuple[Any, Any], words: tuple[Any, Any]) -> bool | None:
    """Which of the two was changed, each given before and after: True the words beside the field,
    False the field, None neither.

    Both, to the same thing, is neither.
    """
    if words[0] == words[1]:
        return None if fields[0] == fields[1] else False
    if fields[0] == fields[1]:
        return True
    if fields[1] != words[1]:
        raise Unclear(
            f"{name} and what says the same in `extra` were both changed, to different things"
        )
    return None


def refuse_names(extra: dict[str, Any], modelled: frozenset[str]) -> None:
    """Refuse what has a field of its own among what has none. Raises Unclear."""
    for name in extra:
        if name in modelled:
            raise Unclear(f"extra[{name!r}]: that has a field of its own")


class Changes(NamedTuple):
    """How a dialect reads its own request again, where a policy changed it. All raise Unclear or
    InvalidRequest for what cannot be read."""

    agree: Callable[[ChatRequest, ChatRequest], ChatRequest]
    """From the requests before and after: the second, in which the options agree with what says the
    same in `extra`."""
    system_as_it_came: Callable[[ChatRequest], Any]
    """The system prompt with the extra fields of its texts; None without."""
    system_texts: Callable[[Any], tuple[str, ...]]
    result_text: Callable[[Any, str], str]
    """The text of a tool's result, from its content and where that is."""
    read_tool: Callable[[Any, int], Tool]
    """A tool of `tools`, from its object and place."""
    check: Callable[[Tool | ToolUsePart, str], None]
    """Refuses a function or a call that this dialect cannot say, from it and where it is."""


PLAIN = Changes(
    agree=lambda before, after: after,
    system_as_it_came=lambda request: None,
    system_texts=lambda came: (),
    result_text=lambda content, at: content if isinstance(content, str) else "",
    read_tool=lambda tool, position: Tool(""),
    check=lambda held, at: None,
)
"""Of a dialect in which nothing is duplicated."""
