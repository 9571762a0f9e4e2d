"""What each dialect knows of its own requests, by its name."""

from collections.abc import Callable
from typing import assert_never

from protocol.neutral import NeutralRequest
from protocol.request import ChatRequest, Dialect


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
