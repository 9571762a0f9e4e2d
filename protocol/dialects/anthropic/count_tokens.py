"""/v1/messages/count_tokens: its requests and answers."""

from typing import Annotated

import msgspec

from protocol.bytes.json_strict import dumps, loads_exact
from protocol.errors import RemoteProtocolError


class _Count(msgspec.Struct):
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]


_decoder = msgspec.json.Decoder(_Count)
_OF_ANSWERS = frozenset(
    "max_tokens stream stop_sequences temperature top_p top_k metadata service_tier"
    " inference_geo container".split()
)
"""What says how to answer; a count takes none of it."""


def as_count(body: bytes) -> bytes:
    """Return a request of the Messages dialect as one whose tokens are to be counted."""
    asked = loads_exact(body)
    return dumps({name: value for name, value in asked.items() if name not in _OF_ANSWERS})


def decode_count(body: bytes) -> int:
    """Return the count in an upstream's answer. Raises RemoteProtocolError."""
    try:
        return _decoder.decode(body).input_tokens
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("upstream's count_tokens answer cannot be read") from error


def encode_count(input_tokens: int, *, estimated: bool) -> bytes:
    """Return the answer; an estimate says so."""
    return msgspec.json.encode(
        {"input_tokens": input_tokens, **({"estimated": True} if estimated else {})}
    )
