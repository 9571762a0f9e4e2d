"""A dialect that nobody speaks: proof that a dialect is a folder and one line in the table. Imports no other dialect.

A request is `{"model", "stream", "turns": [{"by", "text", "calls", "results"}], "tools": [{"name", "schema"}]}`, an answer the steps
`{"begin"}`, `{"text"}`, `{"call", "name"}`, `{"args"}` and `{"end"}`, streamed as events or whole as a list.
"""

import json
from types import MappingProxyType

from protocol.dialect import Decoder, Dialect, Encoder
from protocol.errors import PipelineError
from protocol.events import Event, UpstreamFailed
from protocol.request import ChatRequest
from protocol.target import Target, Translated
from tests.support.toy.answers import ToyDecoder, ToyEncoder
from tests.support.toy.requests import read, write


def _failure(kind: str, message: str) -> bytes:
    return json.dumps({"wrong": kind, "why": message}).encode()


class _Toy(Dialect):
    name = "toy"
    client_paths = MappingProxyType({"/toy/ask": "ask"})
    error_paths = ("/toy",)
    answers = "ask"
    keepalive = b": still here\n\n"
    judge_replies = ("tool",)

    def upstream_path(self, endpoint: str, model: str) -> str:
        return f"/{endpoint}"

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-toy-key", key

    def decoder(self, unknown: frozenset[str]) -> Decoder:
        return ToyDecoder()

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        return [event for take in [ToyDecoder().take] for step in json.loads(body) for event in take(step)]

    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        return ToyEncoder(is_stream=request.stream)

    def decode_request(self, body: bytes, endpoint: str | None) -> ChatRequest:
        return read(body)

    def encode_request(self, request: ChatRequest, target: Target, *, changed: bool) -> Translated:
        return Translated(body=write(request) if changed or request.dialect != self.name else None)

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        return UpstreamFailed(*json.loads(body).values(), status=status, retry_after=retry_after)

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        return failed.status or 502, {"content-type": "application/json"}, _failure(failed.kind, failed.message)

    def error_body(self, error: PipelineError) -> bytes:
        return _failure(error.error_code, error.message)

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        return b"data: " + _failure(kind, message) + b"\n\n"


DIALECT = _Toy()
