"""The chat/completions dialect. Imports no other dialect."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from protocol.dialect import Decoder, Dialect, Encoder

if TYPE_CHECKING:
    from protocol.errors import PipelineError
    from protocol.events import Event, UpstreamFailed
    from protocol.request import ChatRequest, Endpoint
    from protocol.target import Target, Translated


class _Chat(Dialect):
    name = "openai"
    client_paths = MappingProxyType({"/v1/chat/completions": "chat"})
    client_base = "/v1"
    answers = "chat"
    # a comment: SDKs skip it
    keepalive = b": keepalive\n\n"
    never_in_base = ("/chat/completions", "/completions", "/responses", "/models")
    judge_replies = ("json_schema", "json_object", "tool", "text")
    takes_guided = names_text = True
    thinking_field = "reasoning_content"

    def upstream_path(self, endpoint: Endpoint, model: str) -> str:
        return {"chat": "/chat/completions", "models": "/models"}[endpoint]

    def key_header(self, key: str) -> tuple[str, str]:
        return "authorization", f"Bearer {key}"

    def decoder(self, unknown: frozenset[str]) -> Decoder:
        from protocol.openai_chat.decode import StreamDecoder

        return StreamDecoder(unknown)

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        from protocol.openai_chat.decode import decode_whole

        return decode_whole(body, unknown)

    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        from protocol.openai_chat.encode import make

        return make(request, call_id=call_id, created=created)

    def decode_request(self, body: bytes, endpoint: Endpoint | None) -> ChatRequest:
        from protocol.openai_chat.read import decode

        return decode(body)

    def encode_request(self, request: ChatRequest, target: Target, *, changed: bool) -> Translated:
        from protocol.openai_chat.write import encode

        return encode(request, target, changed=changed)

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        from protocol.openai_chat.failures import decode_error

        return decode_error(status, body, retry_after)

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        from protocol.openai_chat.failures import failed_response

        return failed_response(failed)

    def error_body(self, error: PipelineError) -> bytes:
        from protocol.openai_chat.failures import error_body

        return error_body(error)

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        from protocol.openai_chat.failures import error_frame

        return error_frame(kind, message, code)


DIALECT = _Chat()
