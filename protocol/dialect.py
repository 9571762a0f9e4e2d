"""What a dialect is: the shape of its value, which each dialect's folder fills, and the codecs that it makes.

A decoder takes one raw chunk (one SSE event with its framing, as the gateway split it) and returns events; it never waits. An encoder
takes events that were decided and returns client bytes: frames when the client asked for a stream, the whole body at the end when it did
not. Both keep state per call and are fed in order.

Every process loads these values at its start, so the methods import their codecs when they are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from protocol.errors import PipelineError
    from protocol.events import Event, UpstreamFailed
    from protocol.request import ChatRequest, DialectName, Endpoint
    from protocol.target import Target, Translated

JudgeReply = Literal["json_schema", "json_object", "tool", "text"]
"""How a judge model is asked for its reply: JSON by a schema, any JSON object, the arguments of a forced tool call, or plain text."""
Framing = Literal["sse", "none"]
"""How a streamed answer is cut into chunks: at the blank lines of server-sent events, or not at all, for answers that are one body."""


class Decoder(Protocol):
    """Upstream bytes to events. Raises RemoteProtocolError on what the dialect forbids, and is poisoned after."""

    def feed(self, chunk: bytes) -> list[Event]:
        """Decode one SSE event. Comments and pings give Ping or nothing."""
        ...

    def finish(self) -> list[Event]:
        """The stream is over: close what may be closed; a message that was cut gives UpstreamFailed, never a made-up stop."""
        ...


class Encoder(Protocol):
    """Events to client bytes."""

    content_type: str

    def encode(self, events: Sequence[Event]) -> bytes:
        """Return the frames for `events` (a client that did not stream gets its whole body with MessageStop, b"" before).

        UpstreamFailed gives the dialect's error frame and nothing after it. Raises LocalProtocolError on a
        sequence the dialect does not allow.
        """
        ...

    def keepalive(self) -> bytes:
        """Return the frame that shows life without content: `event: ping`, or an SSE comment; b"" where none exists."""
        ...


class Dialect(ABC):
    """One wire format. Immutable: there is one value of it, in `protocol.dialects.DIALECTS`.

    The class variables tell what the dialect has; those with a default are what one dialect alone has.
    """

    name: ClassVar[DialectName]
    client_paths: ClassVar[Mapping[str, Endpoint]]
    """Where clients send requests, and the endpoint behind each path."""
    error_paths: ClassVar[tuple[str, ...]] = ()
    """Beginnings of paths below which every error is told in this dialect, also where nothing is served."""
    error_headers: ClassVar[frozenset[bytes]] = frozenset()
    """Headers of which one is enough for the same: only clients of this dialect send them."""
    client_base: ClassVar[str] = ""
    """What a client's base URL has after the gateway's address; a provider's ends so, too."""
    answers: ClassVar[Endpoint]
    """The endpoint at which an upstream answers; its other one, if it `counts`, is `count_tokens`."""
    counts: ClassVar[bool] = False
    """Has the dialect an endpoint that counts tokens?"""
    framing: ClassVar[Framing] = "sse"
    keepalive: ClassVar[bytes]
    """What shows life in a stream without content."""
    base_overlap: ClassVar[str] = ""
    """The beginning of the upstream paths with which a base URL may end all the same: it is taken once."""
    never_in_base: ClassVar[tuple[str, ...]] = ()
    """Ends of a base URL that `sluice check` warns of: they are added to it for each request."""
    headers: ClassVar[Mapping[str, str]] = {}
    """Sent upstream with each request, unless the configuration has others."""
    betas_header: ClassVar[str] = ""
    """The header that names beta features upstream. Empty: the dialect has none."""
    judge_replies: ClassVar[tuple[JudgeReply, ...]]
    """In which forms its models can be asked for a judgement; first those that hold the model to the reply's shape."""
    needs_max_tokens: ClassVar[bool] = False
    """Must every request bound its answer?"""
    takes_guided: ClassVar[bool] = False
    """Are there servers of it without tool calls that take a JSON Schema for the answer (`Target.guided`)?"""
    takes_server_tools: ClassVar[bool] = False
    """May a route add server tools and MCP servers to its requests?"""
    pauses: ClassVar[bool] = False
    """May an upstream pause its turn, and does a client know what that is?"""
    has_turns: ClassVar[bool] = False
    """Must what an assistant turn held beside text and calls come back in the next request? Clients of this dialect send it, for the
    others it is looked up in the record."""
    names_text: ClassVar[bool] = False
    """Is a text block with a name a field of its own, which no client joins to the content?"""
    thinking_field: ClassVar[str] = "reasoning"
    """Where clients find thinking that has no name."""

    @abstractmethod
    def upstream_path(self, endpoint: Endpoint, model: str) -> str:
        """Return the path of an endpoint below an upstream's base URL; `models` is its listing of models."""

    @abstractmethod
    def key_header(self, key: str) -> tuple[str, str]:
        """Return name and value of the header with a provider's key."""

    @abstractmethod
    def decoder(self, unknown: frozenset[str]) -> Decoder:
        """Return a stream decoder. `unknown` names what may pass though it is not modelled (`Opaque.what`)."""

    @abstractmethod
    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        """Decode an answer that was not streamed (status 200). Raises RemoteProtocolError."""

    @abstractmethod
    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        """Return the encoder that `request` asks for. `created` is Unix seconds; same inputs, same bytes."""

    @abstractmethod
    def decode_request(self, body: bytes, endpoint: Endpoint | None) -> ChatRequest:
        """Decode a client's body. Raises InvalidRequest naming the parameter."""

    @abstractmethod
    def encode_request(self, request: ChatRequest, target: Target, *, changed: bool) -> Translated:
        """Write a request for an upstream with native tools. Raises InvalidRequest naming what cannot be said there."""

    @abstractmethod
    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        """Decode an upstream's error answer; a body that is not the dialect's gives a generic sentence. Never raises."""

    @abstractmethod
    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for an upstream failure before the first byte."""

    @abstractmethod
    def error_body(self, error: PipelineError) -> bytes:
        """Return our own error as a body."""

    @abstractmethod
    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        """Return an error as a frame of a stream that already began. Nothing follows it."""
