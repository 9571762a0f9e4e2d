"""Amazon Bedrock: Converse, Claude in its envelope (Invoke), and the service that speaks other
dialects (mantle).

Requests carry an API key, or are signed when they are sent. Invoke takes the model and whether to
stream out of the body into the path, and the names of beta features into the body; a streamed
answer comes in binary messages that hold the events of the dialect.
"""

import base64
import binascii
import configparser
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from protocol.bytes import eventstream
from protocol.errors import RemoteProtocolError, UpstreamTokenMissing
from protocol.request import Endpoint
from providers import endpoints, sigv4
from providers.doors.plain import (
    Door,
    Sent,
    apart,
    fields_of,
    longest_first,
    model_of,
    value_of,
    written,
)
from providers.sigv4 import AwsKey, Scope
from settings.upstreams import Upstream, named_variable

_HOSTS = {
    "bedrock": "bedrock-runtime.{region}.amazonaws.com",
    "bedrock-mantle": "bedrock-mantle.{region}.api.aws",
}
_WRAPPER_BYTES = 64 * 1024
_ID, _TOKEN = re.compile(r"[!-+\-.0-~]+"), re.compile(r"[!-~]*")
"""What headers take: in the one with the signature, a comma and a slash end the id."""
_EVENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_LET_IN = frozenset(
    "AccessDeniedException UnrecognizedClientException ExpiredTokenException"
    " ExpiredToken InvalidSignatureException MissingAuthenticationTokenException"
    " IncompleteSignatureException InvalidClientTokenId".split()
)
"""Kinds of errors that speak of our credentials, not of the client's request."""
_EXPIRED = frozenset(("ExpiredTokenException", "ExpiredToken"))
_KINDS = {
    "throttlingException": "rate_limit_error",
    "validationException": "invalid_request_error",
    "modelTimeoutException": "timeout_error",
    "serviceUnavailableException": "overloaded_error",
}
"""What an exception in a stream is in the words of Messages; others are api_error."""


class BedrockDoor(Door):
    """One service in one region."""

    is_fixed = False
    key_header = ("authorization", "Bearer {key}")

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._scope = Scope(upstream.region or "", upstream.at)
        self._is_wrapped = bool(upstream.way.version)
        self._signs = not (upstream.api_key_env or upstream.api_key_file)
        self._key: AwsKey | None = None
        self._known: tuple[str, ...] = ()
        if self._is_wrapped:
            self.splitter = Unwrapped
            for name in self.dialect.headers.keys() - {
                header.lower() for header in upstream.headers
            }:
                del self.headers[name]

    def base(self) -> str:
        """The service's host, and at mantle the dialect's place."""
        upstream = self.upstream
        host = upstream.base_url or "https://" + _HOSTS[upstream.at].format(region=upstream.region)
        return endpoints.based(host, upstream.way.place)

    async def request(self, endpoint: Endpoint, body: bytes, betas: Sequence[str]) -> Sent:
        """Return a request, signed for this moment."""
        key = None
        if self._signs:
            key = self._key = self._key or self._read_key()
        if not (self._is_wrapped or self._signs):
            return self._made(endpoint, body, betas, key)
        return await apart(len(body), lambda: self._made(endpoint, body, betas, key))

    def _made(
        self, endpoint: Endpoint, body: bytes, betas: Sequence[str], key: AwsKey | None
    ) -> Sent:
        headers = self.headers | self.betas(betas)
        path = self.path(endpoint) if not self._is_wrapped else ""
        if self._is_wrapped:
            path, body = self._enveloped(body, headers.pop(self.dialect.betas_header, ""))
        if key is not None:
            headers |= self._signed(key, path, headers["content-type"], body)
        return Sent(self.origin, self.origin.head(path, headers), body, key)

    def _enveloped(self, body: bytes, betas: str) -> tuple[str, bytes]:
        fields = fields_of(body)
        model, is_stream = quote(model_of(fields), safe=""), value_of(fields, "stream") is True
        for name in ("model", "stream", "anthropic_beta"):
            fields.pop(name, None)
        fields["anthropic_version"] = msgspec.Raw(msgspec.json.encode(self.upstream.way.version))
        if betas:
            fields["anthropic_beta"] = msgspec.Raw(msgspec.json.encode(betas.split(",")))
        return (
            f"/model/{model}/{'invoke-with-response-stream' if is_stream else 'invoke'}",
            written(fields),
        )

    def _signed(self, key: AwsKey, path: str, content_type: str, body: bytes) -> dict[str, str]:
        return sigv4.signed(
            key,
            self._scope,
            at=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            host=self.origin.named,
            target=self.origin.target(path),
            headers={"content-type": content_type},
            body=body,
        )

    def _read_key(self) -> AwsKey:
        key = read_key(self.upstream)
        self._known = tuple(dict.fromkeys((key.secret, key.token, key.id, *self._known)))[:9]
        return key

    async def authorization(self) -> dict[str, str]:
        """Learn whether there are credentials. A request without a body is not signed."""
        if self._signs:
            self._read_key()
        return {}

    def listing(self) -> str | None:
        """Mantle lists models, to an API key."""
        return None if self._signs else super().listing()

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The keys that signed, and their tokens, besides."""
        return longest_first((*(word.decode() for word in self._words), *self._known))

    def is_stale(self, status: int, headers: Mapping[bytes, bytes], let_in: object) -> bool:
        """An expired token: the key is read again, and is it another one now?"""
        if let_in is None or status not in (400, 403) or _kind(headers) not in _EXPIRED:
            return False
        if self._key == let_in:
            try:
                self._key = self._read_key()
            except UpstreamTokenMissing:
                return False
        return self._key != let_in

    def error(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
        """Return an error as the dialect writes one, where the service writes it in its own way."""
        return body if not self._is_wrapped else _as_messages_error(_kind(headers), body)


def read_key(upstream: Upstream) -> AwsKey:
    """Return the key that signs, from where the configuration says it is. Raises
    UpstreamTokenMissing with a sentence that shows nothing of it."""
    if upstream.credentials_file:
        return _key_in_file(upstream.credentials_file)
    key = AwsKey(
        *(
            endpoints.secret(None, name)
            for name in (
                upstream.access_key_env,
                upstream.secret_key_env,
                upstream.session_token_env,
            )
        )
    )
    if not key.id or not key.secret:
        raise UpstreamTokenMissing(
            "no request can be signed: the variable that access_key_env or secret_key_env names is"
            " not set"
        )
    names = (
        ("access_key_env", upstream.access_key_env),
        ("session_token_env", upstream.session_token_env),
    )
    return _sendable(key, *(named_variable(setting, name or "") for setting, name in names))


def _key_in_file(path: str) -> AwsKey:
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        reason = getattr(error, "strerror", None) or "it has not the form of ~/.aws/credentials"
        raise UpstreamTokenMissing(f"no request can be signed: {path}: {reason}") from None
    section = parser["default"] if parser.has_section("default") else {}
    key = AwsKey(
        *(
            section.get(f"aws_{name}", "")
            for name in ("access_key_id", "secret_access_key", "session_token")
        )
    )
    if not key.id or not key.secret:
        raise UpstreamTokenMissing(
            f"no request can be signed: {path} has no aws_access_key_id and aws_secret_access_key"
            " under [default]"
        )
    return _sendable(key, f"{path}: aws_access_key_id", f"{path}: aws_session_token")


def _sendable(key: AwsKey, id_place: str, token_place: str) -> AwsKey:
    """Return a key of which id and token can stand in headers. Raises UpstreamTokenMissing with the
    place of what cannot."""
    if _ID.fullmatch(key.id) is None:
        most = "it may hold letters, digits and other signs of ASCII, but no space, comma or slash"
        raise UpstreamTokenMissing(
            f"no request can be signed: {id_place} is no id of a key: {most}"
        )
    if _TOKEN.fullmatch(key.token) is None:
        raise UpstreamTokenMissing(
            f"no request can be signed: {token_place} is no token: it may hold signs of ASCII, but"
            " no space"
        )
    return key


def _kind(headers: Mapping[bytes, bytes]) -> str:
    """Return the kind of an error, which stands in a header alone."""
    return headers.get(b"x-amzn-errortype", b"").decode("latin-1").partition(":")[0]


class _ErrorNote(msgspec.Struct):
    message: str = ""
    Message: str = ""
    """Some services write it so."""


def _message(payload: bytes) -> str:
    try:
        body = msgspec.json.decode(payload, type=_ErrorNote)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return body.message or body.Message


def _as_messages_error(kind: str, body: bytes) -> bytes:
    if not (message := _message(body)):
        return body
    # without a word of the dialect, its status tells what it is
    word = "authentication_error" if kind in _NOT_LET_IN else ""
    return bytes(
        msgspec.json.encode({"type": "error", "error": {"type": word, "message": message}})
    )


class Unwrapped:
    """Cuts an answer of Invoke into the events of Messages, each as bytes of a stream of
    server-sent events."""

    def __init__(self, most_bytes: int) -> None:
        # an event is written in base64
        self._messages = eventstream.EventStreamSplitter(most_bytes * 4 // 3 + _WRAPPER_BYTES)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes. Raises RemoteProtocolError."""
        return [_event(raw) for raw in self._messages.feed(data)]

    def finish(self) -> list[bytes]:
        """Return nothing: what is left is a message that was cut, and raises
        RemoteProtocolError."""
        return [_event(raw) for raw in self._messages.finish()]


class _Chunk(msgspec.Struct):
    bytes: str


class _Typed(msgspec.Struct):
    type: str = ""


def _event(raw: bytes) -> bytes:
    """Return one message as an event of Messages. Raises RemoteProtocolError."""
    headers, payload = eventstream.parse_message(raw)
    if headers.get(":message-type", "event") != "event":
        return _exception(headers, payload)
    if (kind := headers.get(":event-type", "")) != "chunk":
        raise RemoteProtocolError(
            f"the upstream sent a message of the kind {kind[:64]!r}, and not a chunk of its answer"
        )
    try:
        data = base64.b64decode(msgspec.json.decode(payload, type=_Chunk).bytes, validate=True)
        name = str(msgspec.json.decode(data, type=_Typed).type)
    except (msgspec.MsgspecError, binascii.Error, UnicodeDecodeError, RecursionError):
        raise RemoteProtocolError(
            "a chunk of the upstream's answer holds no event of its dialect"
        ) from None
    if _EVENT.fullmatch(name) is None:
        raise RemoteProtocolError(
            "an event of the upstream's answer has no name that can be written"
        )
    # JSON may have line breaks between its values; within a string it has none
    return (
        b"event: "
        + name.encode()
        + b"\ndata: "
        + data.replace(b"\r", b" ").replace(b"\n", b" ")
        + b"\n\n"
    )


def _exception(headers: Mapping[str, str], payload: bytes) -> bytes:
    name = headers.get(":exception-type") or headers.get(":error-code", "")
    kind = _KINDS.get(name, "api_error")
    message = (
        _message(payload)
        or headers.get(":error-message", "")
        or "the upstream ended its answer with an error"
    )
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return b"event: error\ndata: " + msgspec.json.encode(error) + b"\n\n"
