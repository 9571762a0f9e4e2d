"""The Messages dialect. Imports no other dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.dialects.base import ClientDialect, Way

if TYPE_CHECKING:
    from protocol.dialects.modules import (
        ClientErrorsModule,
        DecodeModule,
        EncodeModule,
        ReadModule,
        TokenCounts,
        Turns,
        WriteModule,
    )
    from protocol.events import Usage
    from protocol.request import ChatRequest
    from protocol.requests.conflicts import Changes
    from protocol.requests.neutral import NeutralRequest


class Messages(ClientDialect):
    """Messages: what Anthropic's API speaks."""

    __slots__ = ()
    name = "anthropic"
    client_paths = {"/v1/messages": "messages", "/v1/messages/count_tokens": "count_tokens"}
    about = {
        "messages": "the Anthropic API: base URL of a client is this address without /v1",
        "count_tokens": "counts the tokens of a Messages request",
    }
    error_paths = ("/v1/messages",)
    error_headers = frozenset((b"anthropic-version",))
    answers = "messages"
    upstream_paths = {
        "messages": "/v1/messages",
        "count_tokens": "/v1/messages/count_tokens",
        "models": "/v1/models",
    }
    base_overlap = "/v1"
    never_in_base = ("/v1", "/v1/messages", "/messages")
    headers = {"anthropic-version": "2023-06-01"}
    key_header = ("x-api-key", "{key}")
    doors = {
        "azure": Way(place="/anthropic"),
        "vertex": Way(place="/publishers/anthropic", version="vertex-2023-10-16", models="claude"),
        "bedrock": Way(version="bedrock-2023-05-31", models="claude"),
        "bedrock-mantle": Way(place="/anthropic"),
    }
    quota_headers = (
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    )
    resets_at_time = True
    betas_header = "anthropic-beta"
    keepalive = b'event: ping\ndata: {"type": "ping"}\n\n'
    judge_replies = ("tool", "json_schema", "text")
    needs_max_tokens = True
    takes_server_tools = True
    pauses = True
    hides_foreign = True

    def _decode(self) -> DecodeModule:
        import protocol.dialects.anthropic.decode as decode

        return decode

    def _write(self) -> WriteModule:
        import protocol.dialects.anthropic.write as write

        return write

    def _failures(self) -> ClientErrorsModule:
        import protocol.dialects.anthropic.failures as failures

        return failures

    def _read(self) -> ReadModule:
        import protocol.dialects.anthropic.read as read

        return read

    def _encode(self) -> EncodeModule:
        import protocol.dialects.anthropic.encode as encode

        return encode

    def neutral(self, request: ChatRequest) -> NeutralRequest:
        """Return the request in neutral parts."""
        from protocol.dialects.anthropic.neutral import neutral

        return neutral(request)

    def changes(self) -> Changes:
        """Return how a request that a policy changed is read again."""
        from protocol.dialects.anthropic.changes import CHANGES

        return CHANGES

    def write_usage(self, usage: Usage) -> dict[str, Any]:
        """Return counts as the object that answers carry."""
        from protocol.dialects.anthropic.usage import write_usage

        return write_usage(usage)

    @property
    def turns(self) -> Turns:
        """What builds and puts back recorded turns."""
        import protocol.dialects.anthropic.turn as turn

        return turn

    @property
    def token_counts(self) -> TokenCounts:
        """What asks an upstream to count tokens."""
        import protocol.dialects.anthropic.count_tokens as count_tokens

        return count_tokens
