"""Bedrock's Converse API, which upstreams alone speak here. Imports no other dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.dialects.base import Dialect, Way

if TYPE_CHECKING:
    from protocol.dialects.modules import DecodeModule, ErrorsModule, Turns, WriteModule


class Converse(Dialect):
    """Converse."""

    __slots__ = ()
    name = "converse"
    answers = "converse"
    streams = "converse-stream"
    upstream_paths = {
        "converse": "/model/{model}/converse",
        "converse-stream": "/model/{model}/converse-stream",
    }
    never_in_base = ("/model",)
    framing = "eventstream"
    error_kind_header = "x-amzn-errortype"
    doors = {"bedrock": Way()}
    judge_replies = ("tool", "json_schema", "text")

    def _decode(self) -> DecodeModule:
        import protocol.dialects.converse.decode as decode

        return decode

    def _write(self) -> WriteModule:
        import protocol.dialects.converse.write as write

        return write

    def _failures(self) -> ErrorsModule:
        import protocol.dialects.converse.failures as failures

        return failures

    @property
    def turns(self) -> Turns:
        """What builds and puts back recorded turns."""
        import protocol.dialects.converse.turn as turn

        return turn
