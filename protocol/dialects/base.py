"""What a dialect is: the classes that each dialect's folder subclasses.

A decoder takes one raw chunk (one SSE event with its framing, as the gateway split it) and returns
events; it never waits. Decoders and encoders keep state per call and are fed in order. Every
process loads the dialects, so their modules are imported when a method is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from protocol.request import DialectName, Endpoint

if TYPE_CHECKING:
    from protocol.dialects.modules import (
        ClientErrorsModule,
        DecodeModule,
        Decoder,
        EncodeModule,
        Encoder,
        ErrorsModule,
        ReadModule,
        TokenCounts,
        Turns,
        WriteModule,
    )
    from protocol.errors import PipelineError
    from protocol.events import Event, UpstreamFailed, Usage
    from protocol.request import ChatRequest
    from protocol.requests.conflicts import Changes
    from protocol.requests.neutral import NeutralRequest
    from protocol.stored_answers import StoredAnswerRules
    from protocol.target import Ids, Target, Translated

JudgeReply = Literal["json_schema", "json_object", "tool", "text"]
"""How a judge model is asked for its reply: JSON by a schema, any JSON object, the arguments of a
forced tool call, or plain text."""
Framing = Literal["sse", "eventstream", "none"]
"""How a streamed answer is cut into chunks: at the blank lines of server-sent events, at the
lengths of event-stream messages of AWS, or not at all, for answers that are one body."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a cloud has a dialect: what a door (`providers.doors`) knows of it."""

    place: str = ""
    """Where the dialect's paths begin, after the address that the door knows."""
    key_header: tuple[str, str] | None = None
    """Name and value of the header with the key, where it is not the dialect's own."""
    version: str = ""
    """With one, a request is put into an envelope: the model stands in the path, and the body names
    this version instead."""
    deploys: bool = False
    """Are there addresses that hold a deployment, too?"""
    lists: bool = False
    """Are models listed there?"""
    models: str = ""
    """What the name of every model there has in it, where the cloud has this dialect for one family
    of models."""
    ids: Ids | None = None
    """What the ids of tool calls from there are worth, where it is not what `Dialect.ids` says."""


class Dialect(ABC):
    """One wire format as upstreams speak it: what it has, as data, and its codecs.

    There is one value of each, in `protocol.dialects.table.DIALECTS`. Its class stands in the
    `__init__` of its folder and names the folder's modules, which are imported when they are
    needed. Attributes with a default are what one dialect alone has.
    """

    __slots__ = ()
    # --- what upstreams are asked with ---

    @property
    @abstractmethod
    def name(self) -> DialectName:
        """What configuration and records call it."""

    @property
    @abstractmethod
    def answers(self) -> Endpoint:
        """The endpoint at which an upstream answers."""

    @property
    @abstractmethod
    def upstream_paths(self) -> Mapping[Endpoint, str]:
        """Where each endpoint is below an upstream's base URL, `{model}` being the model; `models`
        is its listing of models."""

    @property
    @abstractmethod
    def judge_replies(self) -> tuple[JudgeReply, ...]:
        """In which forms its models can be asked for a judgement; first those that hold the model
        to the reply's shape."""

    streams: Endpoint = ""
    """The endpoint of answers that are streamed, where it is another one than `answers`."""
    client_base: str = ""
    """What a client's base URL has after the gateway's address; a provider's ends so, too."""
    base_overlap: str = ""
    """The beginning of the upstream paths with which a base URL may end all the same: it is taken
    once."""
    never_in_base: tuple[str, ...] = ()
    """Ends of a base URL that `sluice check` warns of: they are added to it for each request."""
    base_ends: str = ""
    """How a provider's base URL ends where no client speaks the dialect; `sluice check` warns of
    one without any path."""
    headers: Mapping[str, str] = {}
    """Sent upstream with each request, unless the configuration has others."""
    key_header: tuple[str, str] = ("authorization", "Bearer {key}")
    """Name and value of the header with a provider's key."""
    doors: Mapping[str, Way] = {}
    """Through which doors it is spoken beside the plain one: `azure`, `vertex`, and of Amazon
    `bedrock` and `bedrock-mantle`."""
    betas_header: str = ""
    """The header that names beta features upstream. Empty: the dialect has none."""
    framing: Framing = "sse"
    error_kind_header: str = ""
    """The header of an upstream's error answers that alone names their kind: gateways write it into
    the body, an object, as `__type`."""
    needs_max_tokens: bool = False
    """Must every request bound its answer?"""
    takes_guided: bool = False
    """Are there servers of it without tool calls that take a JSON Schema for the answer
    (`Target.guided`)?"""
    takes_server_tools: bool = False
    """May a route add server tools and MCP servers to its requests?"""
    pauses: bool = False
    """May an upstream pause its turn, and does a client know what that is? Such a dialect has
    `turns`."""
    ids: Ids = "keep"
    """Do its upstreams' ids tell the tool calls of a conversation apart, at least until one does
    not?"""

    def asked(self, endpoint: Endpoint, model: str) -> Endpoint:
        """Return how an upstream's endpoint is named to who asks it: followed by the model where
        its path holds that. Raises InvalidRequest for a model that no path can hold."""
        if "{model}" not in self.upstream_paths[endpoint]:
            return endpoint
        if not model.isprintable() or not model.strip("."):
            # a half of a surrogate pair has no bytes, and `..` would be another path
            from protocol.errors import InvalidRequest

            raise InvalidRequest(
                "this model's name cannot stand in the path of its upstream", param="model"
            )
        return f"{endpoint} {model}"

    # --- its modules ---

    @abstractmethod
    def _decode(self) -> DecodeModule: ...

    @abstractmethod
    def _write(self) -> WriteModule: ...

    @abstractmethod
    def _failures(self) -> ErrorsModule: ...

    @property
    def turns(self) -> Turns | None:
        """What builds and puts back recorded turns; None where text and calls are all of a turn."""
        return None

    @property
    def token_counts(self) -> TokenCounts | None:
        """What asks an upstream to count tokens; None where no upstream does."""
        return None

    # --- what they do ---

    def decoder(self, unknown: frozenset[str] = frozenset()) -> Decoder:
        """Return a stream decoder. `unknown` names what may pass though it is not modelled
        (`Opaque.what`)."""
        return self._decode().StreamDecoder(unknown)

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        """Decode an answer that was not streamed (status 200). Raises RemoteProtocolError."""
        return self._decode().decode_whole(body, unknown)

    def encode_request(
        self, request: ChatRequest | NeutralRequest, target: Target, *, changed: bool
    ) -> Translated:
        """Write a request for an upstream with native tools: of this dialect, or in neutral parts.
        Raises InvalidRequest naming what cannot be expressed there."""
        return self._write().encode(request, target, changed=changed)

    def write_usage(self, usage: Usage) -> dict[str, Any]:
        """Return counts as the object that answers of the dialect carry; empty where they carry
        none."""
        return {}

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        """Decode an upstream's error answer; a body that is not the dialect's gives a generic
        sentence. Never raises."""
        return self._failures().decode_error(status, body, retry_after)

    def error_body(self, error: PipelineError) -> bytes:
        """Return our own error as a body."""
        return self._failures().error_body(error)


class ClientDialect(Dialect):
    """A wire format that clients speak as well, in `protocol.dialects.table.CLIENTS`."""

    __slots__ = ()

    @property
    @abstractmethod
    def client_paths(self) -> Mapping[str, Endpoint]:
        """Where clients send requests, and the endpoint behind each path."""

    @property
    @abstractmethod
    def about(self) -> Mapping[Endpoint, str]:
        """What GET / says of each of these endpoints."""

    error_paths: tuple[str, ...] = ()
    """Beginnings of paths below which every error is sent in this dialect, also where nothing is
    served."""
    error_headers: frozenset[bytes] = frozenset()
    """Headers of which one is enough for the same: only clients of this dialect send them."""
    keepalive: bytes = b""
    """A keepalive: bytes of a stream without content. Empty where an event of the session's own is
    one (`counts_events`)."""
    counts_events: bool = False
    """Do its clients give up when no event comes, however many comments do? Keepalives are then
    events, which the encoder numbers (`Ping`)."""
    quota_headers: tuple[str, str, str] = (
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    )
    """How many requests a key may send within a minute, how many are left, and when one more is."""
    resets_at_time: bool = False
    """Is the last of these a time, not how long that is from now?"""
    statuses: Mapping[int, int] = {}
    """Statuses of our own refusals that are replaced by another one for its clients: some repeat a
    request repeatedly after ours."""
    kept_path: str = ""
    """Below which clients ask for an answer again, by its id. Empty: answers are not kept. Such a
    dialect has a `keeper`."""
    has_items: bool = False
    """Are tool calls items, with types and namespaces of their own?"""
    hides_foreign: bool = False
    """Have its answers no place for what a provider of another dialect ran and found? An event
    names that instead."""
    names_text: bool = False
    """Is a text block with a name a field of its own, which no client joins to the content?"""
    thinking_field: str = "reasoning"
    """Where clients find thinking that has no name."""

    @abstractmethod
    def _read(self) -> ReadModule: ...

    @abstractmethod
    def _encode(self) -> EncodeModule: ...

    @abstractmethod
    def _failures(self) -> ClientErrorsModule: ...

    def decode_request(self, body: bytes, endpoint: Endpoint | None = None) -> ChatRequest:
        """Decode a client's body; `endpoint` makes required what it needs. Raises InvalidRequest
        naming the parameter: not JSON, duplicate keys, wrong types, n > 1, routing."""
        is_due = self.needs_max_tokens and endpoint == self.answers
        return self._read().decode(body, needs_max_tokens=is_due)

    def check_asked(self, request: ChatRequest, target: Target) -> None:
        """Refuse what the key has no family for, where that is to be in the client's own words,
        before the request is written for any provider. Raises InvalidRequest."""

    def neutral(self, request: ChatRequest) -> NeutralRequest:
        """Return the request in neutral parts, for the writers of other dialects. Not overridden
        where requests hold text, calls and results alone."""
        from protocol.requests.neutral import plain

        return plain(request)

    def changes(self) -> Changes:
        """Return how a request that a policy changed is read again. Not overridden where a request
        says nothing twice."""
        from protocol.requests.conflicts import PLAIN

        return PLAIN

    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        """Return the encoder that `request` asks for. `created` is Unix seconds; same inputs, same
        bytes."""
        return self._encode().make(request, call_id=call_id, created=created)

    def keeper(self) -> StoredAnswerRules | None:
        """Return what knows its kept answers, where there is a `kept_path`."""
        return None

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for an upstream failure before the first byte."""
        return self._failures().failed_response(failed)

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        """Return an error as a frame of a stream that already began. Nothing follows it."""
        return self._failures().error_frame(kind, message, code)
