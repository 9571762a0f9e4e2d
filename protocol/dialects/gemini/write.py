"""Requests written for Gemini (docs/change/protocol.md 1.15). Nobody speaks the dialect to us, so
each request crosses."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.dialects.gemini.messages_write import MessageWriter
from protocol.dialects.gemini.models import MODELS
from protocol.dialects.gemini.options_write import write_options
from protocol.dialects.gemini.tools_write import names_of, write_tools
from protocol.request import ChatRequest
from protocol.requests.fields import invalid
from protocol.requests.neutral import NeutralRequest, plain
from protocol.target import RequestNotes, Restore, Target, Translated


def encode(
    request: ChatRequest | NeutralRequest, target: Target, *, changed: bool = True
) -> Translated:
    """Write the request for generateContent: its model and whether it streams are in the path.
    Raises InvalidRequest naming what it cannot say or the key may not use."""
    if isinstance(request, ChatRequest):
        # of our own making, as questions to judges are: no client speaks this dialect
        request = plain(request)
    draft = RequestNotes(request=request.request, target=target, words=request.words)
    row, names = MODELS.row(draft.request.model), names_of(draft)
    writer = MessageWriter(draft, request, row, names)
    config, tools = write_options(draft, row), write_tools(draft, row, names)
    system, contents = writer.system(), writer.contents()
    if tools.instruction:
        system.append({"text": tools.instruction})
    if not contents:
        if not system:
            invalid("messages has no content for this model's provider", "messages")
        # the API wants a content of the user's; chat/completions does not
        contents = [{"role": "user", "parts": [system.pop()]}]
    body: dict[str, Any] = {"contents": contents}
    if system and row.system:
        body["systemInstruction"] = {"parts": system}
    elif system:
        contents[0]["parts"][:0] = system
    body |= tools.body(row)
    if config := config | tools.form:
        body["generationConfig"] = config
    return Translated(
        body=dumps(body),
        restore=Restore(names=names.changed(), json_tool=tools.json_tool),
        dropped=tuple(draft.dropped),
    )
