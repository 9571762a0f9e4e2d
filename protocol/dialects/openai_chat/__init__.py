"""The chat/completions dialect. Imports no other dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from protocol.dialects.base import ClientDialect, Way
from protocol.errors import OtherDialect

if TYPE_CHECKING:
    from protocol.dialects.modules import (
        ClientErrorsModule,
        DecodeModule,
        EncodeModule,
        ReadModule,
        Turns,
        WriteModule,
    )
    from protocol.events import Usage
    from protocol.request import ChatRequest, Endpoint
    from protocol.requests.conflicts import Changes
    from protocol.requests.neutral import NeutralRequest


class ChatCompletions(ClientDialect):
    """chat/completions: what OpenAI's older API speaks, and many servers like it."""

    __slots__ = ("_read_elsewhere",)
    name = "openai"
    client_paths = {"/v1/chat/completions": "chat"}
    about = {"chat": "the OpenAI API: base URL of a client is this address with /v1"}
    client_base = "/v1"
    answers = "chat"
    upstream_paths = {"chat": "/chat/completions", "models": "/models"}
    never_in_base = ("/chat/completions", "/completions", "/responses", "/models")
    keepalive = b": keepalive\n\n"  # a comment: SDKs skip it
    doors = {
        "azure": Way(place="/openai/v1", key_header=("api-key", "{key}"), deploys=True, lists=True),
        "bedrock-mantle": Way(place="/v1", lists=True, ids="mint"),
    }
    judge_replies = ("json_schema", "json_object", "tool", "text")
    takes_guided = True
    names_text = True
    thinking_field = "reasoning_content"

    def __init__(self, read_elsewhere: Callable[[bytes], ChatRequest]) -> None:
        self._read_elsewhere = read_elsewhere

    def decode_request(self, body: bytes, endpoint: Endpoint | None = None) -> ChatRequest:
        """Decode a client's body, which may be one of Responses. Raises InvalidRequest."""
        try:
            return super().decode_request(body, endpoint)
        except OtherDialect:
            return self._read_elsewhere(body)

    def _decode(self) -> DecodeModule:
        import protocol.dialects.openai_chat.decode as decode

        return decode

    def _write(self) -> WriteModule:
        import protocol.dialects.openai_chat.write as write

        return write

    def _failures(self) -> ClientErrorsModule:
        import protocol.dialects.openai_chat.failures as failures

        return failures

    def _read(self) -> ReadModule:
        import protocol.dialects.openai_chat.read as read

        return read

    def _encode(self) -> EncodeModule:
        import protocol.dialects.openai_chat.encode as encode

        return encode

    def neutral(self, request: ChatRequest) -> NeutralRequest:
        """Return the request in neutral parts."""
        from protocol.dialects.openai_chat.neutral import neutral

        return neutral(request)

    def changes(self) -> Changes:
        """Return how a request that a policy changed is read again."""
        from protocol.dialects.openai_chat.changes import CHANGES

        return CHANGES

    def write_usage(self, usage: Usage) -> dict[str, Any]:
        """Return counts as the object that answers carry."""
        from protocol.dialects.openai_chat.usage import write_usage

        return write_usage(usage)

    @property
    def turns(self) -> Turns:
        """What builds and puts back recorded turns."""
        import protocol.dialects.openai_chat.turn as turn

        return turn
