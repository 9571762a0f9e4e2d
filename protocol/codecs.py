"""The codecs by dialect: the interface that sessions use, and who implements it.

A decoder takes one raw chunk (one SSE event with its framing, as the gateway split it) and returns events; it
never waits. An encoder takes events that were decided and returns client bytes: frames when the client asked
for a stream, the whole body at the end when it did not. Both keep state per call and are fed in order.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from protocol import bounds
from protocol.errors import RemoteProtocolError
from protocol.events import Event, UpstreamFailed
from protocol.request import ChatRequest, Dialect, Endpoint
from protocol.target import Target, Translated
from protocol.value_count import count_values

if TYPE_CHECKING:
    from protocol.neutral import NeutralRequest


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


def make_decoder(dialect: Dialect, unknown: frozenset[str] = frozenset()) -> Decoder:
    """Return the stream decoder for an upstream of `dialect`. `unknown` names what may pass though it is not modelled (`Opaque.what`)."""
    # by their modules' names: `from protocol import` asks each time whether a name is a module that is not there yet
    if dialect == "anthropic":
        from protocol.anthropic.decode import StreamDecoder as Messages

        return Messages(unknown)
    from protocol.openai_chat.decode import StreamDecoder as Chat

    return Chat(unknown)


def decode_whole(dialect: Dialect, body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a body of an upstream that did not stream (status 200). Raises RemoteProtocolError."""
    if (values := count_values(body, bounds.MAX_ANSWER_VALUES)) > bounds.MAX_ANSWER_VALUES:
        raise RemoteProtocolError(f"upstream's answer has {values:,} JSON values; one may have {bounds.MAX_ANSWER_VALUES:,}")
    if dialect == "anthropic":
        from protocol.anthropic.decode import decode_whole as decode
    else:
        from protocol.openai_chat.decode import decode_whole as decode
    return decode(body, unknown)


def decode_error(dialect: Dialect, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
    """Decode an upstream's error answer; a body that is not the dialect's gives a generic sentence. Never raises."""
    from protocol.errors_wire import decode_error as decode

    return decode(dialect, status, body, retry_after)


def make_encoder(dialect: Dialect, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
    """Return the encoder for a client of `dialect`: streaming if `request.stream`. `created` is Unix seconds; same inputs, same bytes."""
    if dialect == "anthropic":
        from protocol.anthropic.encode import make as make_messages

        return make_messages(request, call_id=call_id, created=created)
    from protocol.openai_chat.encode import make as make_chat

    return make_chat(request, call_id=call_id, created=created)


def decode_request(dialect: Dialect, body: bytes, *, endpoint: Endpoint | None = None) -> ChatRequest:
    """Decode a client's body. Raises InvalidRequest naming the parameter: not JSON, duplicate keys, wrong types, n > 1, routing.

    `endpoint` messages makes max_tokens required; count_tokens has none.
    """
    if dialect == "anthropic":
        from protocol.anthropic.read import decode as decode_messages

        return decode_messages(body, needs_max_tokens=endpoint == "messages")
    from protocol.openai_chat.read import decode

    return decode(body)


def encode_request(request: ChatRequest, target: Target, *, changed: bool = True) -> Translated:
    """Write a request for `target`. Raises InvalidRequest naming what cannot be said there or is not allowed.

    Where the dialects are the same, nothing was `changed` by a policy and nothing is to be added, the body is None.
    """
    if target.dialect == "anthropic":
        from protocol.anthropic.write import encode as write
    else:
        from protocol.openai_chat.write import encode as write
    if target.native_tools:
        return write(_for(request, target), target, changed=changed)
    from protocol.text_calls import prompt as prompt_tools

    injected = prompt_tools.inject(request, target)
    translated = write(_for(injected.request, target), target, changed=changed or injected.request is not request)
    return prompt_tools.finished(translated, injected)


def _for(request: ChatRequest, target: Target) -> "ChatRequest | NeutralRequest":
    """The request as the target's writer takes it: one of its own dialect as it is, one of another in neutral parts."""
    from protocol import dialects_parts

    return request if request.dialect == target.dialect else dialects_parts.neutral(request.dialect)(request)
