"""/v1/messages/count_tokens: the upstream's count read and written, and an estimate where the upstream has no count."""

from typing import Annotated

import msgspec

from protocol.errors import RemoteProtocolError
from protocol.request import ChatRequest, TextPart, ToolResultPart, ToolUsePart

_BYTES_PER_TOKEN = 3.5
_PER_TURN = 4
_PER_OTHER = 1500


class _Count(msgspec.Struct):
    input_tokens: Annotated[int, msgspec.Meta(ge=0)]


_decoder = msgspec.json.Decoder(_Count)


def decode_count(body: bytes) -> int:
    """Return the count in an upstream's answer. Raises RemoteProtocolError."""
    try:
        return _decoder.decode(body).input_tokens
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError("upstream's count_tokens answer cannot be read") from error


def encode_count(input_tokens: int, *, estimated: bool) -> bytes:
    """Return the answer; an estimate says so."""
    return msgspec.json.encode({"input_tokens": input_tokens, **({"estimated": True} if estimated else {})})


def estimate_tokens(request: ChatRequest) -> int:
    """Estimate input tokens: UTF-8 bytes of all text and tool definitions over 3.5, plus 4 a turn, plus 1,500 for an image or file."""
    size = sum(len(s.encode("utf-8", "replace")) for s in request.system)
    extra = _PER_TURN * (len(request.turns) + len(request.system))
    for turn in request.turns:
        for part in turn.parts:
            match part:
                case TextPart(text=text) | ToolResultPart(text=text):
                    size += len(text.encode("utf-8", "replace"))
                case ToolUsePart():
                    size += len(part.name) + len(part.arguments)
                case _:
                    extra += _PER_OTHER
    for tool in request.tools:
        size += len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.schema))
    return max(1, round(size / _BYTES_PER_TOKEN) + extra)
