"""What a dialect is: the shape of its value, which each dialect's folder fills, and the codecs that
it makes.

A decoder takes one raw chunk (one SSE event with its framing, as the gateway split it) and returns
events; it never waits. Decoders and encoders keep state per call and are fed in order. Every
process loads these values, so codecs are imported when a method is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec

from protocol.errors import OtherDialect
from protocol.request import DialectName, Endpoint

if TYPE_CHECKING:
    from protocol.errors import PipelineError
    from protocol.events import Event, UpstreamFailed, Usage
    from protocol.neutral import NeutralRequest
    from protocol.request import ChatRequest
    from protocol.stored_answers import StoredAnswerRules
    from protocol.target import Ids, Target, Translated
    from protocol.turns import BaseTurnBuilder, StoredTurn
    from protocol.unclear import Changes

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


@cache
def _module(package: str, name: str) -> Any:
    return import_module(f"{package}.{name}")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One wire format: what it has, as data, and its codecs, each from the module of its folder
    that the method names.

    There is one value of each, in `protocol.dialects.DIALECTS`. Fields with a default are what one
    dialect alone has.
    """

    package: str
    """Its folder, as Python names it. Each has the modules decode, failures and write; encode and
    read where clients speak it, and then neutral and changes where not `is_plain`; asked where it
    `checks_asked`; usage where answers carry an object of counts; count_tokens where it `counts`;
    turn where it `has_turns`."""
    name: DialectName
    client_paths: Mapping[str, Endpoint] = {}
    """Where clients send requests, and the endpoint behind each path. Empty: only upstreams speak
    it."""
    about: Mapping[Endpoint, str] = {}
    """What GET / says of each of these endpoints."""
    error_paths: tuple[str, ...] = ()
    """Beginnings of paths below which every error is sent in this dialect, also where nothing is
    served."""
    error_headers: frozenset[bytes] = frozenset()
    """Headers of which one is enough for the same: only clients of this dialect send them."""
    client_base: str = ""
    """What a client's base URL has after the gateway's address; a provider's ends so, too."""
    answers: Endpoint
    """The endpoint at which an upstream answers."""
    counts: bool = False
    """Have upstream and client the endpoint `count_tokens`? For other upstreams, tokens are
    estimated."""
    upstream_paths: Mapping[Endpoint, str]
    """Where each endpoint is below an upstream's base URL, `{model}` being the model; `models` is
    its listing of models."""
    streams: Endpoint = ""
    """The endpoint of answers that are streamed, where it is another one than `answers`."""
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
    keepalive: bytes = b""
    """A keepalive: bytes of a stream without content. Empty where an event of the session's own is
    one (`counts_events`)."""
    counts_events: bool = False
    """Do its clients give up when no event comes, however many comments do? Keepalives are then
    events, which the encoder numbers (`Ping`)."""
    statuses: Mapping[int, int] = {}
    """Statuses of our own refusals that are replaced by another one for its clients: some repeat a
    request repeatedly after ours."""
    judge_replies: tuple[JudgeReply, ...]
    """In which forms its models can be asked for a judgement; first those that hold the model to
    the reply's shape."""
    needs_max_tokens: bool = False
    """Must every request bound its answer?"""
    takes_guided: bool = False
    """Are there servers of it without tool calls that take a JSON Schema for the answer
    (`Target.guided`)?"""
    takes_server_tools: bool = False
    """May a route add server tools and MCP servers to its requests?"""
    pauses: bool = False
    """May an upstream pause its turn, and does a client know what that is? Such a dialect
    `has_turns`."""
    kept_path: str = ""
    """Below which clients ask for an answer again, by its id. Empty: answers are not kept. Such a
    dialect has the module kept."""
    has_turns: bool = False
    """Must what an assistant turn held beside text and calls come back in the next request? Clients
    of this dialect send it, for the others it is looked up in the record."""
    hides_foreign: bool = False
    """Have its answers no place for what a provider of another dialect ran and found? An event
    names that instead."""
    names_text: bool = False
    """Is a text block with a name a field of its own, which no client joins to the content?"""
    read_elsewhere: str = ""
    """The folder of the dialect whose requests some of its clients send to its paths; their module
    read has `decode_elsewhere`."""
    checks_asked: bool = False
    """Is what a key may ask checked in the client's own words, before the request is written for
    any provider?"""
    is_plain: bool = False
    """Do its requests hold text, calls and results alone, and nothing twice?"""
    ids: Ids = "keep"
    """Do its upstreams' ids tell the tool calls of a conversation apart, at least until one does
    not?"""
    thinking_field: str = "reasoning"
    """Where clients find thinking that has no name."""

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

    def decoder(self, unknown: frozenset[str] = frozenset()) -> Decoder:
        """Return a stream decoder. `unknown` names what may pass though it is not modelled
        (`Opaque.what`)."""
        return cast("Decoder", _module(self.package, "decode").StreamDecoder(unknown))

    def decode_whole(self, body: bytes, unknown: frozenset[str]) -> list[Event]:
        """Decode an answer that was not streamed (status 200). Raises RemoteProtocolError."""
        return cast("list[Event]", _module(self.package, "decode").decode_whole(body, unknown))

    def encoder(self, request: ChatRequest, *, call_id: str, created: int) -> Encoder:
        """Return the encoder that `request` asks for. `created` is Unix seconds; same inputs, same
        bytes."""
        return cast(
            "Encoder",
            _module(self.package, "encode").make(request, call_id=call_id, created=created),
        )

    def write_usage(self, usage: Usage) -> dict[str, Any]:
        """Return counts as the object that answers of the dialect carry; for those dialects whose
        answers do."""
        return cast("dict[str, Any]", _module(self.package, "usage").write_usage(usage))

    def decode_request(self, body: bytes, endpoint: Endpoint | None = None) -> ChatRequest:
        """Decode a client's body; `endpoint` makes required what it needs. Raises InvalidRequest
        naming the parameter: not JSON, duplicate keys, wrong types, n > 1, routing."""
        is_due = self.needs_max_tokens and endpoint == self.answers
        try:
            return cast(
                "ChatRequest", _module(self.package, "read").decode(body, needs_max_tokens=is_due)
            )
        except OtherDialect:
            return cast("ChatRequest", _module(self.read_elsewhere, "read").decode_elsewhere(body))

    def encode_request(
        self, request: ChatRequest | NeutralRequest, target: Target, *, changed: bool
    ) -> Translated:
        """Write a request for an upstream with native tools: of this dialect, or in neutral parts.
        Raises InvalidRequest naming what cannot be expressed there."""
        return cast(
            "Translated", _module(self.package, "write").encode(request, target, changed=changed)
        )

    def neutral(self, request: ChatRequest) -> NeutralRequest:
        """Return the request in neutral parts, for the writers of the other dialects."""
        package, name = ("protocol", "plain") if self.is_plain else (self.package, "neutral")
        return cast("NeutralRequest", getattr(_module(package, "neutral"), name)(request))

    def check_asked(self, request: ChatRequest, target: Target) -> None:
        """Where the dialect `checks_asked`: refuse what the key has no family for. Raises
        InvalidRequest."""
        _module(self.package, "key_permissions").check(request, target)

    def changes(self) -> Changes:
        """Return how a request that a policy changed is read again."""
        package, name = (
            ("protocol.unclear", "PLAIN")
            if self.is_plain
            else (f"{self.package}.changes", "CHANGES")
        )
        return cast("Changes", getattr(import_module(package), name))

    def turn_builder(self) -> BaseTurnBuilder:
        """Return what builds a turn from an upstream's raw chunks. Where the dialect `has_turns`,
        as the next one."""
        return cast("BaseTurnBuilder", _module(self.package, "turn").TurnBuilder())

    def with_turns(
        self, request: ChatRequest, stored: Sequence[StoredTurn], *, upstream: str
    ) -> tuple[ChatRequest, str, list[str]]:
        """Put recorded turns of `upstream` (a provider's name) in the place of the client's;
        returns the request, the container to go on with, and which of the request's parameters had
        to be left out."""
        return cast(
            "tuple[ChatRequest, str, list[str]]",
            _module(self.package, "turn").with_turns(request, stored, upstream=upstream),
        )

    def keeper(self) -> StoredAnswerRules:
        """Return what knows its kept answers. Where there is a `kept_path`."""
        return cast("StoredAnswerRules", _module(self.package, "stored_answers").Keeper())

    def as_count(self, body: bytes) -> bytes:
        """Return a request for an upstream as one whose tokens are to be counted. Where the dialect
        `counts`, as the next two."""
        return bytes(_module(self.package, "count_tokens").as_count(body))

    def decode_count(self, body: bytes) -> int:
        """Return the count in an upstream's answer. Raises RemoteProtocolError."""
        return int(_module(self.package, "count_tokens").decode_count(body))

    def encode_count(self, input_tokens: int, *, estimated: bool) -> bytes:
        """Return the answer for a client; an estimate says so."""
        return bytes(
            _module(self.package, "count_tokens").encode_count(input_tokens, estimated=estimated)
        )

    def decode_error(self, status: int, body: bytes, retry_after: str | None) -> UpstreamFailed:
        """Decode an upstream's error answer; a body that is not the dialect's gives a generic
        sentence. Never raises."""
        return cast(
            "UpstreamFailed",
            _module(self.package, "failures").decode_error(status, body, retry_after),
        )

    def failed_response(self, failed: UpstreamFailed) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for an upstream failure before the first byte."""
        return cast(
            "tuple[int, dict[str, str], bytes]",
            _module(self.package, "failures").failed_response(failed),
        )

    def error_body(self, error: PipelineError) -> bytes:
        """Return our own error as a body."""
        return bytes(_module(self.package, "failures").error_body(error))

    def error_frame(self, kind: str, message: str, code: str | None) -> bytes:
        """Return an error as a frame of a stream that already began. Nothing follows it."""
        return bytes(_module(self.package, "failures").error_frame(kind, message, code))
