"""What holds for the codecs of all dialects: the bound of an answer, neutral parts, and tools that are written into the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol import bounds
from protocol.dialects import DIALECTS
from protocol.errors import RemoteProtocolError
from protocol.events import Event
from protocol.request import ChatRequest, DialectName
from protocol.target import Target, Translated
from protocol.value_count import count_values

if TYPE_CHECKING:
    from protocol.neutral import NeutralRequest


def decode_whole(dialect: DialectName, body: bytes, unknown: frozenset[str] = frozenset()) -> list[Event]:
    """Decode a body of an upstream that did not stream (status 200). Raises RemoteProtocolError."""
    if (values := count_values(body, bounds.MAX_ANSWER_VALUES)) > bounds.MAX_ANSWER_VALUES:
        raise RemoteProtocolError(f"upstream's answer has {values:,} JSON values; one may have {bounds.MAX_ANSWER_VALUES:,}")
    return DIALECTS[dialect].decode_whole(body, unknown)


def encode_request(request: ChatRequest, target: Target, *, changed: bool = True) -> Translated:
    """Write a request for `target`. Raises InvalidRequest naming what cannot be said there or is not allowed.

    Where the dialects are the same, nothing was `changed` by a policy and nothing is to be added, the body is None.
    """
    write = DIALECTS[target.dialect].encode_request
    if target.native_tools:
        return write(_for(request, target), target, changed=changed)
    from protocol.text_calls import prompt as prompt_tools

    injected = prompt_tools.inject(request, target)
    translated = write(_for(injected.request, target), target, changed=changed or injected.request is not request)
    return prompt_tools.finished(translated, injected)


def _for(request: ChatRequest, target: Target) -> ChatRequest | NeutralRequest:
    """The request as the target's writer takes it: one of its own dialect as it is, one of another in neutral parts."""
    return request if request.dialect == target.dialect else DIALECTS[request.dialect].neutral(request)
