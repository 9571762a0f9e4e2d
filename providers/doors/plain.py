"""The plain door, and what each other door overrides: where an endpoint is, its headers, and what
goes into the body.

A door belongs to one upstream and one process, and holds its secrets. A request that it makes
contains nothing from the client but the body, and the model's name as one part of a path.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from protocol.dialects.table import DIALECTS
from protocol.errors import InvalidRequest
from protocol.request import Endpoint
from providers import endpoints
from providers.origin import Origin
from providers.outbound import outbound
from settings.upstreams import Upstream

_OPEN_HEADERS = frozenset(
    (
        "content-type",
        "accept-encoding",
        "accept",
        "user-agent",
        "anthropic-version",
        "anthropic-beta",
    )
)
"""Configured headers of which everybody knows the values."""
LARGE_BYTES = 256 * 1024
"""A larger body is gone through in a thread: 16 MB take 34 ms of CPU, and on a busy machine 380 ms
pass meanwhile."""
_SECRET_CHARS = 8
"""A shorter value of a configured header is no secret, and its characters are in other words."""
_Made = TypeVar("_Made")


class Sent(NamedTuple):
    """A request as it goes out: `head` is up to the value of its content-length."""

    origin: Origin
    head: bytes
    body: bytes
    let_in: object = None
    """What it was signed or let in with, where that changes: for `Door.is_stale`."""


class Splitter(Protocol):
    """Cuts an answer into the chunks that a dialect's decoder takes."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the chunks that `data` completes. Raises RemoteProtocolError."""
        ...

    def finish(self) -> list[bytes]:
        """Return what is left. Raises RemoteProtocolError."""
        ...


class Door:
    """The dialect's own API below `base_url`, with the key in a header. Raises OSError,
    UnicodeDecodeError where the key cannot be read, ValueError for an address that is none."""

    is_fixed = True
    """Is a request's head always the same, for an endpoint and its betas? Then nobody needs
    `request`."""
    splitter: Callable[[int], Splitter] | None = None
    """What cuts a streamed answer that comes in binary messages, where the door unwraps these: made
    with the most bytes of one."""
    key_header: tuple[str, str] | None = None
    """Name and value of the key's header, where it is neither the dialect's own nor that of its
    way."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream, self.dialect = upstream, DIALECTS[upstream.dialect]
        base = self.base()
        self.origin = Origin(base, outbound(base, upstream))
        self.headers = endpoints.headers(upstream, upstream.way.key_header or self.key_header)
        self._words = _secret_words(upstream, self.headers)

    def base(self) -> str:
        """Return the address below which the dialect's endpoints are."""
        return endpoints.based(self.upstream.base_url, overlap=self.dialect.base_overlap)

    def path(self, endpoint: Endpoint) -> str:
        """Return where an endpoint is below it; `endpoint` as `Dialect.asked` names it."""
        return endpoints.path_of(endpoint, self.dialect.upstream_paths)

    def head(self, endpoint: Endpoint, betas: Mapping[str, str]) -> tuple[Origin, bytes]:
        """Return where a request goes, and its head; for a door that `is_fixed`. `betas`: the
        header that `self.betas` makes."""
        return self.origin, self.origin.head(self.path(endpoint), {**self.headers, **betas})

    def betas(self, names: Sequence[str]) -> dict[str, str]:
        """Return the header for a request's beta features, nothing where there is none."""
        return endpoints.betas(self.upstream, self.headers, names)

    async def request(self, endpoint: Endpoint, body: bytes, betas: Sequence[str]) -> Sent:
        """Return a request as it goes out. Raises UpstreamTokenMissing, InvalidRequest."""
        return Sent(*self.head(endpoint, self.betas(betas)), body)

    async def authorization(self) -> dict[str, str]:
        """Return the headers that let a request without a body in, beside `headers`; who waits for
        nothing else learns here whether there are credentials. Raises UpstreamTokenMissing."""
        return {}

    def listing(self) -> str | None:
        """Return where models are listed, None where they are not."""
        if self.upstream.door != "plain" and not self.upstream.way.lists:
            return None
        return self.dialect.upstream_paths.get("models")

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """What no error may show, the longest first: the key, tokens, and configured headers'
        values, also without their scheme."""
        return self._words

    def is_stale(self, status: int, headers: Mapping[bytes, bytes], let_in: object) -> bool:
        """Does an error answer say that credentials have expired, and are there others now? Then
        the request is sent once more."""
        return False

    def error(self, status: int, headers: Mapping[bytes, bytes], body: bytes) -> bytes:
        """Return an error answer's body as the dialect writes one."""
        return body

    async def close(self) -> None:
        """Close what is open."""


def _secret_words(upstream: Upstream, headers: Mapping[str, str]) -> tuple[bytes, ...]:
    values = [
        headers[name.lower()]
        for name in upstream.headers
        if name.lower() not in _OPEN_HEADERS and name.lower() in headers
    ]
    words = {
        word
        for value in values
        for word in (value, value.partition(" ")[2])
        if len(word) >= _SECRET_CHARS
    }
    return longest_first((endpoints.provider_key(upstream), *words))


def longest_first(words: Sequence[str]) -> tuple[bytes, ...]:
    """Return secrets in the order in which they are to be taken out of a text."""
    return tuple(sorted({word.encode() for word in words if word}, key=len, reverse=True))


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a request's body, each as it is written. Raises InvalidRequest."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidRequest("the request's body is no JSON object") from None


def written(fields: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the body that has these fields."""
    # put together: an encoder copies megabytes more than once as it grows
    pieces = [
        piece
        for name, value in fields.items()
        for piece in (b",", msgspec.json.encode(name), b":", value)
    ]
    return b"".join((b"{", *pieces[1:], b"}"))


async def apart(size: int, make: Callable[[], _Made]) -> _Made:
    """Return what `make` returns, which goes through a body of `size` bytes; the event loop does
    not wait for a large one."""
    return await asyncio.to_thread(make) if size > LARGE_BYTES else make()


def value_of(fields: Mapping[str, msgspec.Raw], name: str) -> Any:
    """Return a field's value, None where it is not there."""
    return msgspec.json.decode(fields[name]) if name in fields else None


def model_of(fields: Mapping[str, msgspec.Raw]) -> str:
    """Return the model that a request names, if a path can hold it. Raises InvalidRequest."""
    model = value_of(fields, "model")
    if not isinstance(model, str) or not model.isprintable() or not model.strip("."):
        raise InvalidRequest(
            "this model's name cannot stand in the path of its upstream", param="model"
        )
    return model
