"""The dialect of the Gemini API and of Vertex AI (generateContent). Only upstreams speak it.
Imports no other dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.dialects.base import Dialect, Way

if TYPE_CHECKING:
    from protocol.dialects.modules import DecodeModule, ErrorsModule, Turns, WriteModule


class Gemini(Dialect):
    """generateContent."""

    __slots__ = ()
    name = "gemini"
    answers = "generate"
    streams = "stream"
    upstream_paths = {
        "generate": "/models/{model}:generateContent",
        # without alt=sse the stream would be one JSON array
        "stream": "/models/{model}:streamGenerateContent?alt=sse",
        "models": "/models",
    }
    key_header = ("x-goog-api-key", "{key}")
    base_ends = "/v1beta"
    never_in_base = ("/models", "/openai")
    doors = {"vertex": Way(place="/publishers/google")}
    judge_replies = ("json_schema", "json_object", "tool", "text")
    ids = "mint"

    def _decode(self) -> DecodeModule:
        import protocol.dialects.gemini.decode as decode

        return decode

    def _write(self) -> WriteModule:
        import protocol.dialects.gemini.write as write

        return write

    def _failures(self) -> ErrorsModule:
        import protocol.dialects.gemini.failures as failures

        return failures

    @property
    def turns(self) -> Turns:
        """What builds and puts back recorded turns."""
        import protocol.dialects.gemini.turn as turn

        return turn
