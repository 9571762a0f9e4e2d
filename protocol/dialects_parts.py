"""What each dialect knows of its own requests, by its name; loaded when it is needed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from protocol.request import ChatRequest, Dialect
from protocol.unclear import Changes

if TYPE_CHECKING:
    from protocol.neutral import NeutralRequest


def changes(dialect: Dialect) -> Changes:
    """Return how a request of `dialect` is read again where a policy changed it."""
    match dialect:
        case "openai":
            from protocol.openai_chat.changes import CHANGES as OF_CHAT

            return OF_CHAT
        case "anthropic":
            from protocol.anthropic.changes import CHANGES as OF_MESSAGES

            return OF_MESSAGES
        case _:
            assert_never(dialect)


def neutral(dialect: Dialect) -> "Callable[[ChatRequest], NeutralRequest]":
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
