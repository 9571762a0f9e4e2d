"""What a dialect's folder has in each of its modules, as types: mypy holds every folder to it where
the dialect's class names its module.

Only for mypy: no process loads this. Functions that a module lacks, or has with other parameters,
are errors in the `__init__` of its folder.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from protocol.dialects.turns import BaseTurnBuilder, StoredTurn
from protocol.errors import PipelineError
from protocol.events import Event, UpstreamFailed
from protocol.request import ChatRequest
from protocol.requests.neutral import NeutralRequest
from protocol.target import Target, Translated


class Decoder(Protocol):
    """Upstream bytes to events. Raises RemoteProtocolError on what the dialect forbids, and is
    poisoned after."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Comments and pings give Ping or nothing."""
        ...

    def finish(self) -> list[Event]:
        """The stream is over: close what may be closed; a message that was cut gives
        UpstreamFailed, never a made-up stop."""
        ...


class Encoder(Protocol):
    """Events to client bytes."""

    content_type: str

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events` (a client that did not stream gets its whole body with
        MessageStop, b"" before).

        UpstreamFailed gives the dialect's error frame and nothing after it. Raises
        LocalProtocolError on a sequence the dialect does not allow.
        """
        ...


class DecodeModule(Protocol):
    """`decode`: an upstream's answers, read."""

    @property
    def StreamDecoder(self) -> Callable[[frozenset[str]], Decoder]:
        """What decodes a stream. It takes the names of what may pass though it is not modelled
        (`Opaque.what`)."""

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        """Decode an answer that was not streamed (status 200). Raises RemoteProtocolError."""


class WriteModule(Protocol):
    """`write`: requests for an upstream."""

    def encode(
        self, asked: ChatRequest | NeutralRequest, target: Target, *, changed: bool
    ) -> Translated:
        """Write a request of this dialect, or one in neutral parts. Raises InvalidRequest naming
        what cannot be expressed there."""


class ErrorsModule(Protocol):
    """`failures`: an upstream's errors, read, and ours in their place."""

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        """Decode an upstream's error answer; a body that is not the dialect's gives a generic
        sentence. Never raises."""

    def error_body(self, error: PipelineError) -> bytes:
        """Return our own error as a body."""


class ClientErrorsModule(ErrorsModule, Protocol):
    """`failures` of a dialect that clients speak."""

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for an upstream failure before the first byte."""

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        """Return an error as a frame of a stream that already began. Nothing follows it."""


class ReadModule(Protocol):
    """`read`: a client's requests."""

    def decode(self, body: bytes, *, needs_max_tokens: bool) -> ChatRequest:
        """Decode a client's body. Raises InvalidRequest naming the parameter: not JSON, duplicate
        keys, wrong types, n > 1, routing."""


class EncodeModule(Protocol):
    """`encode`: answers for a client."""

    def make(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        """Return the encoder that `request` asks for. `created` is Unix seconds; same inputs, same
        bytes."""


class Turns(Protocol):
    """`turn`, of a dialect whose assistant turns hold something beside text and calls that must
    come back in the next request. Clients of this dialect send it, for the others it is looked up
    in the record."""

    @property
    def TurnBuilder(self) -> Callable[[], BaseTurnBuilder]:
        """What builds a turn from an upstream's raw chunks."""

    def with_turns(
        self, request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
    ) -> tuple[ChatRequest, str, list[str]]:
        """Put recorded turns of `upstream` (a provider's name) in the place of the client's;
        returns the request, the container to go on with, and which of the request's parameters had
        to be left out."""


class TokenCounts(Protocol):
    """`count_tokens`, of a dialect with an endpoint that counts a request's tokens. For upstreams
    of the others they are estimated."""

    def as_count(self, body: bytes) -> bytes:
        """Return a request for an upstream as one whose tokens are to be counted."""

    def decode_count(self, body: bytes) -> int:
        """Return the count in an upstream's answer. Raises RemoteProtocolError."""

    def encode_count(self, input_tokens: int, *, estimated: bool) -> bytes:
        """Return the answer for a client; an estimate says so."""
