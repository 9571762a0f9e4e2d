"""A server of open models whose chat template refuses what it was not written for, and whose schema
refuses unknown fields.

The system message comes first and is the only one, and turns of user and assistant alternate, as in
the templates of Qwen, Gemma and Llama; a user does not speak right behind a tool, as in those of
Mistral.
"""

from tests.support.json_values import Json
from tests.support.vendors import chat
from tests.support.vendors.checking import (
    known,
    need,
)
from tests.support.vendors.story import Refused, Seen

frames, whole = chat.frames, chat.whole
_FIELDS = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "n",
    "seed",
    "user",
    "response_format",
    "logprobs",
    "top_logprobs",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "reasoning_effort",
)
_MESSAGE = {
    "system": ("role", "content"),
    "user": ("role", "content"),
    "tool": ("role", "content", "tool_call_id"),
    "assistant": ("role", "content", "tool_calls"),
}


def read(body: Json, path: str) -> Seen:
    """Check and read a request. Raises Refused."""
    known(body, _FIELDS, "")
    before = ""
    for number, message in enumerate(body["messages"]):
        role = message["role"]
        need(role in _MESSAGE, f"Unexpected message role: {role!r}")
        known(message, _MESSAGE[role], f"messages.{number}")
        need(role != "system" or number == 0, "System message must be at the beginning.")
        need(
            role == "tool" or role != before,
            "Conversation roles must alternate user/assistant/user/assistant/...",
        )
        need(
            before != "tool" or role in ("tool", "assistant"),
            f"Unexpected role {role!r} after role 'tool'",
        )
        need(
            before not in ("", "system") or role in ("system", "user"),
            "Conversation must start with a user message.",
        )
        before = role
    need(
        before in ("user", "tool"),
        "Cannot continue a conversation that ends with an assistant message.",
    )
    return chat.read(body, path)


def error(refused: Refused) -> Json:
    """The body of an error."""
    return {
        "error": {
            "message": refused.message,
            "type": "BadRequestError",
            "param": None,
            "code": refused.status,
        }
    }
