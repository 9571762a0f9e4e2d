"""Requests written for Converse (docs/change/protocol.md, Converse). The model is in the path, and
so is whether the answer is streamed."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.dialects.converse.messages_write import MessageWriter, cache_mark
from protocol.dialects.converse.models import MODELS
from protocol.dialects.converse.options_write import (
    check_extra,
    thinks,
    write_sampling,
    write_thinking,
    write_tier,
)
from protocol.dialects.converse.tools_write import ToolPart, write_tools
from protocol.request import ChatRequest
from protocol.requests.fields import invalid
from protocol.requests.names import NameForm, names_of
from protocol.requests.neutral import NeutralRequest, plain
from protocol.target import RequestNotes, Restore, Target, Translated

_NAMES = NameForm(is_hashed=False)


def encode(
    request: ChatRequest | NeutralRequest, target: Target, *, changed: bool = True
) -> Translated:
    """Write the request. Raises InvalidRequest naming what cannot be expressed there or the key may
    not use."""
    # one of this dialect is made here, of texts and tools alone
    neutral = plain(request) if isinstance(request, ChatRequest) else request
    draft = RequestNotes(request=neutral.request, target=target, words=neutral.words)
    row, names = MODELS.row(neutral.request.model), names_of(neutral.request, _NAMES)
    check_extra(draft)
    writer = MessageWriter(draft, neutral, row, names)
    system, messages = writer.system(), writer.turns()
    if not messages:
        if not any("text" in block for block in system):
            invalid("messages has no content for this model's provider", "messages")
        # the API wants a message of the user's; chat/completions does not
        at = max(i for i, block in enumerate(system) if "text" in block)
        messages, system = [{"role": "user", "content": system[at:]}], system[:at]
    inference: dict[str, Any] = {}
    fields = write_thinking(draft, row, inference)
    part = write_tools(draft, row, names, may_force=not thinks(fields))
    write_sampling(draft, row, inference, fields)
    body: dict[str, Any] = {"messages": messages}
    if part.instruction:
        system.append({"text": part.instruction})
    if system:
        body["system"] = system
    if inference:
        body["inferenceConfig"] = inference
    _add_tools(body, fields, part, writer)
    if (point := writer.point(cache_mark(draft.request.extra))) is not None:
        messages[-1]["content"].append(point)
    if fields:
        body["additionalModelRequestFields"] = fields
    if part.text_format is not None:
        body["outputConfig"] = {"textFormat": part.text_format}
    body |= write_tier(draft)
    return Translated(
        body=dumps(body),
        restore=Restore(names=names.changed(), json_tool=part.json_tool),
        dropped=tuple(draft.dropped),
    )


def _add_tools(
    body: dict[str, Any], fields: dict[str, Any], part: ToolPart, writer: MessageWriter
) -> None:
    if not part.tools:
        return
    config: dict[str, Any] = {"tools": part.tools}
    if (point := writer.point(part.mark)) is not None:
        config["tools"] = [*part.tools, point]
    kind, value = part.choice or ("auto", {})
    if part.has_one:
        # Converse has no word for it, and the vendor's own replaces the choice
        fields["tool_choice"] = {"type": kind, **value, "disable_parallel_tool_use": True}
    elif part.choice is not None:
        config["toolChoice"] = {kind: value}
    body["toolConfig"] = config
