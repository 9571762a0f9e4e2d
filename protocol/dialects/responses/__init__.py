"""The Responses dialect. Imports no other dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol.dialects.base import ClientDialect, Way

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
    from protocol.request import ChatRequest
    from protocol.requests.conflicts import Changes
    from protocol.requests.neutral import NeutralRequest
    from protocol.stored_answers import StoredAnswerRules
    from protocol.target import Target


class Responses(ClientDialect):
    """Responses: what OpenAI's newer API speaks."""

    __slots__ = ()
    name = "responses"
    client_paths = {"/v1/responses": "responses"}
    about = {"responses": "the OpenAI API: base URL of a client is this address with /v1"}
    error_paths = ("/v1/responses",)
    client_base = "/v1"
    answers = "responses"
    upstream_paths = {"responses": "/responses", "models": "/models"}
    never_in_base = ("/responses", "/chat/completions", "/completions", "/models")
    doors = {
        "azure": Way(place="/openai/v1", key_header=("api-key", "{key}"), lists=True),
        # it counts calls from call_0 in each answer
        "bedrock-mantle": Way(place="/openai/v1", lists=True, ids="mint"),
    }
    counts_events = True
    # clients of this dialect send these statuses again and again: docs/change/protocol.md
    statuses = {403: 400, 404: 400}
    judge_replies = ("json_schema", "json_object", "tool", "text")
    names_text = True
    kept_path = "/v1/responses/"
    has_items = True

    def _decode(self) -> DecodeModule:
        import protocol.dialects.responses.decode as decode

        return decode

    def _write(self) -> WriteModule:
        import protocol.dialects.responses.write as write

        return write

    def _failures(self) -> ClientErrorsModule:
        import protocol.dialects.responses.failures as failures

        return failures

    def _read(self) -> ReadModule:
        import protocol.dialects.responses.read as read

        return read

    def _encode(self) -> EncodeModule:
        import protocol.dialects.responses.encode as encode

        return encode

    def neutral(self, request: ChatRequest) -> NeutralRequest:
        """Return the request in neutral parts."""
        from protocol.dialects.responses.neutral import neutral

        return neutral(request)

    def changes(self) -> Changes:
        """Return how a request that a policy changed is read again."""
        from protocol.dialects.responses.changes import CHANGES

        return CHANGES

    def write_usage(self, usage: Usage) -> dict[str, Any]:
        """Return counts as the object that answers carry."""
        from protocol.dialects.responses.usage import write_usage

        return write_usage(usage)

    @property
    def turns(self) -> Turns:
        """What builds and puts back recorded turns."""
        import protocol.dialects.responses.turn as turn

        return turn

    def decode_elsewhere(self, body: bytes) -> ChatRequest:
        """Decode a body that a client sent where chat/completions is served. Raises
        InvalidRequest."""
        from protocol.dialects.responses.read import decode_elsewhere

        return decode_elsewhere(body)

    def check_asked(self, request: ChatRequest, target: Target) -> None:
        """Refuse what the key has no family for. Raises InvalidRequest."""
        from protocol.dialects.responses.key_permissions import check

        check(request, target)

    def keeper(self) -> StoredAnswerRules:
        """Return what knows its kept answers."""
        from protocol.dialects.responses.stored_answers import Keeper

        return Keeper()
