"""What each dialect knows of its own requests, by its name: modules, loaded when they are needed."""

from collections.abc import Callable
from typing import Any, Protocol, assert_never

from protocol.neutral import NeutralRequest
from protocol.request import ChatRequest, Dialect, Tool, ToolUsePart


class Changes(Protocol):
    """What stands twice in a request of a dialect. All raise InvalidRequest or Unclear for what cannot be read."""

    @property
    def agree(self) -> Callable[[ChatRequest, ChatRequest], ChatRequest]:
        """From the requests before and after a policy: the second, in which the options agree with what says the same in `extra`."""

    @property
    def system_as_it_came(self) -> Callable[[ChatRequest], Any]:
        """The system prompt with what is said beside its texts, None without."""

    @property
    def system_texts(self) -> Callable[[Any], tuple[str, ...]]:
        """The texts of such a prompt."""

    @property
    def result_text(self) -> Callable[[Any, str], str]:
        """The text of a tool's result, from its parts and where they are."""

    @property
    def read_tool(self) -> Callable[[Any, int], Tool]:
        """The tool of an object of `tools`, from it and its place."""

    @property
    def check_tool(self) -> Callable[[Tool, str], None]:
        """Refuses a function that cannot be said, from it and where it is."""

    @property
    def check_call(self) -> Callable[[ToolUsePart, str], None]:
        """Refuses a call that cannot be said, from it and where it is."""


def changes(dialect: Dialect) -> Changes:
    """Return how a request of `dialect` is read again where a policy changed it."""
    match dialect:
        case "openai":
            from protocol.openai_chat import changes as of_chat

            return of_chat
        case "anthropic":
            from protocol.anthropic import changes as of_messages

            return of_messages
        case _:
            assert_never(dialect)


def neutral(dialect: Dialect) -> Callable[[ChatRequest], NeutralRequest]:
    """Return what brings a request of `dialect` into neutral parts, for the writers of the others."""
    match dialect:
        case "openai":
            from protocol.openai_chat.neutral import neutral as of_chat

            return of_chat
        case "anthropic":
            from protocol.anthropic.neutral import neutral as of_messages

            return of_messages
        case _:
            assert_never(dialect)
