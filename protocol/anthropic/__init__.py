"""The Messages dialect. Imports no other dialect."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from protocol.dialect import Decoder, Dialect, Encoder

if TYPE_CHECKING:
    from protocol.errors import PipelineError
    from protocol.events import Event, UpstreamFailed
    from protocol.request import ChatRequest, Endpoint
    from protocol.target import Target, Translated


class _Messages(Dialect):
    name = "anthropic"
    client_paths = MappingProxyType({"/v1/messages": "messages", "/v1/messages/count_tokens": "count_tokens"})
    error_paths = ("/v1/messages",)
    error_headers = frozenset((b"anthropic-version",))
    answers = "messages"
    keepalive = b'event: ping\ndata: {"type": "ping"}\n\n'
    base_overlap = "/v1"
    never_in_base = ("/v1", "/v1/messages", "/messages")
    headers = MappingProxyType({"anthropic-version": "2023-06-01"})
    betas_header = "anthropic-beta"
    judge_replies = ("tool", "json_schema", "text")
    counts = needs_max_tokens = takes_server_tools = pauses = has_turns = True

    def upstream_path(self, endpoint: Endpoint, model: str) -> str:
        return {"messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens", "models": "/v1/models"}[endpoint]

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-api-key", key

    def decoder(self, unknown: frozenset[str]) -> Decoder:
        from protocol.anthropic.decode import StreamDecoder

        return StreamDecoder(unknown)

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        from protocol.anthropic.decode import decode_whole

        return decode_whole(body, unknown)

    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        from protocol.anthropic.encode import make

        return make(request, call_id=call_id, created=created)

    def decode_request(self, body: bytes, endpoint: Endpoint | None) -> ChatRequest:
        from protocol.anthropic.read import decode

        return decode(body, needs_max_tokens=endpoint == self.answers)

    def encode_request(self, request: ChatRequest, target: Target, *, changed: bool) -> Translated:
        from protocol.anthropic.write import encode

        return encode(request, target, changed=changed)

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        from protocol.anthropic.failures import decode_error

        return decode_error(status, body, retry_after)

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        from protocol.anthropic.failures import failed_response

        return failed_response(failed)

    def error_body(self, error: PipelineError) -> bytes:
        from protocol.anthropic.failures import error_body

        return error_body(error)

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        from protocol.anthropic.failures import error_frame

        return error_frame(kind, message, code)


DIALECT = _Messages()
