"""Common to the codecs of all dialects: the bound of an answer, neutral parts, and tools that are
written into the prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from protocol import bounds
from protocol.bytes.value_count import count_values
from protocol.dialects.table import CLIENTS, DIALECTS
from protocol.errors import InvalidRequest, RemoteProtocolError
from protocol.events import Event
from protocol.request import ChatRequest, DialectName
from protocol.server_tools.families import check_model
from protocol.target import Target, Translated

if TYPE_CHECKING:
    from protocol.requests.neutral import NeutralRequest


def decode_whole(
    dialect: DialectName, body: bytes, unknown: frozenset[str] = frozenset()
) -> list[Event]:
    """Decode a body of an upstream that did not stream (status 200). Raises RemoteProtocolError."""
    if (values := count_values(body, bounds.MAX_ANSWER_VALUES)) > bounds.MAX_ANSWER_VALUES:
        raise RemoteProtocolError(
            f"upstream's answer has {values:,} JSON values; one may have"
            f" {bounds.MAX_ANSWER_VALUES:,}"
        )
    return DIALECTS[dialect].decode_whole(body, unknown)


def encode_request(request: ChatRequest, target: Target, *, changed: bool = True) -> Translated:
    """Write a request for `target`. Raises InvalidRequest naming what cannot be expressed there or
    is not allowed.

    Where the dialects are the same, nothing was `changed` by a policy and nothing is to be added,
    the body is None.
    """
    # a judge's request is made here, and may be of a dialect that no client speaks
    if (client := CLIENTS.get(request.dialect)) is not None:
        client.check_asked(request, target)
    translated = _translated(request, target, changed=changed)
    # last, so that a parameter that needs the same family is the one that is named
    check_model(target, request.model)
    return translated


def _translated(request: ChatRequest, target: Target, *, changed: bool) -> Translated:
    write = DIALECTS[target.dialect].encode_request
    if target.native_tools:
        return _written(write, request, target, changed=changed)
    from protocol.text_calls import prompt as prompt_tools

    injected = prompt_tools.inject(request, target)
    translated = _written(
        write, injected.request, target, changed=changed or injected.request is not request
    )
    return prompt_tools.finished(translated, injected)


def _written(
    write: Callable[..., Translated], asked: ChatRequest, target: Target, *, changed: bool
) -> Translated:
    """The request as `write` writes it; what it refuses or leaves out has the client's names of
    parameters."""
    request = _for(asked, target)
    words = {} if isinstance(request, ChatRequest) else request.words
    try:
        translated = write(request, target, changed=changed)
    except InvalidRequest as error:
        # a client may use the target's own word
        if error.param is None or error.param not in words or error.param in asked.extra:
            raise
        message = error.message.replace(f" in {error.param} ", f" in {words[error.param]} ")
        raise InvalidRequest(message, code=error.error_code, param=words[error.param]) from error
    if (place := words.get("messages")) is None:
        return translated
    dropped = tuple(
        f"{place}{name.removeprefix('messages')}" if name.startswith("messages[") else name
        for name in translated.dropped
    )
    return msgspec.structs.replace(translated, dropped=dropped)


def _for(request: ChatRequest, target: Target) -> ChatRequest | NeutralRequest:
    """The request as the target's writer takes it: one of its own dialect as it is, one of another
    in neutral parts."""
    if request.dialect == target.dialect:
        return request
    from protocol.requests.provider_order import arranged

    return arranged(CLIENTS[request.dialect].neutral(request))
