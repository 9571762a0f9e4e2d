"""The recordings as an upstream that does not stream would answer them, and streams mended where no
SDK could read them directly."""

import json
from typing import Any

from tests.support.checks.outcomes import payloads
from tests.support.clients.sdk_answers import Direct, sent
from tests.support.json_values import Json, as_json
from tests.support.upstreams.recordings import Recording, framed


def mended(recording: Recording) -> bytes:
    """The stream with what the official helper or an application cannot read put right, so that
    they can say what the message is.

    Tool calls get their place among the tool calls as index (a vendor leaves it out, another counts
    content blocks, one says 0 for all), and "{}" where no arguments came; the role comes once, and
    the finish reason; annotations, which have no index either, come all at once; Azure's first
    chunk, without choices, gets the id and model of the next one. A message that begins twice
    begins once.
    """
    if not recording.is_stream:
        return recording.body
    if recording.dialect == "anthropic":
        frames = [frame for _, frame in payloads(recording.body)]
        starts = [n for n, f in enumerate(frames) if f["type"] == "message_start"]
        if len(starts) == 1:
            return recording.body
        return framed(
            "anthropic", [json.dumps(f) for n, f in enumerate(frames) if n not in starts[1:]]
        )
    values = [value for _, value in payloads(recording.body) if value != "[DONE]"]
    named: Json = next((v for v in values if v.get("id")), {})
    calls = _Calls()
    finished = False
    choices = [choice for value in values for choice in value.get("choices") or ()]
    if annotations := [
        page
        for choice in choices
        for page in choice.get("delta", {}).pop("annotations", None) or ()
    ]:
        choices[-1].setdefault("delta", {})["annotations"] = annotations
    for value in values:
        value |= {
            field: named[field]
            for field in ("id", "model", "created")
            if not value.get(field) and named.get(field)
        }
    for number, choice in enumerate(choices):
        delta = choice.setdefault("delta", {})
        delta.pop("role", None)
        if number == 0:
            delta["role"] = "assistant"
        for call in delta.get("tool_calls") or ():
            calls.number(call)
        if choice.get("finish_reason"):
            delta |= calls.rest(delta)
            choice["finish_reason"] = None if finished else choice["finish_reason"]
            finished = True
    return framed("openai", [json.dumps(v) for v in values])


class _Calls:
    """The tool calls of a stream, in order; `arguments` has the text of each."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self._places: dict[Any, int] = {}

    def number(self, call: Json) -> None:
        """Give the delta of a call its place: a new id is a new call, even where the index was used
        before."""
        index, identity = call.get("index"), call.get("id")
        if index not in self._places or (identity and (index, identity) not in self._places):
            self._places[index] = self._places[index, identity] = len(self.arguments)
            self.arguments.append("")
            call.setdefault("type", "function")
        call["index"] = self._places[index]
        self.arguments[call["index"]] += call["function"].get("arguments") or ""

    def rest(self, delta: Json) -> Json:
        """The tool calls of the last delta, and "{}" for those that have nothing."""
        empty = [n for n, text in enumerate(self.arguments) if not text]
        more = [{"index": n, "function": {"arguments": "{}"}} for n in empty]
        return {"tool_calls": [*(delta.get("tool_calls") or ()), *more]} if more else {}


def _first_detail(recording: Recording) -> Json:
    choices = [
        c
        for _, value in payloads(recording.body)
        if value != "[DONE]"
        for c in value.get("choices") or ()
    ]
    return next((d[0] for c in choices if (d := c["delta"].get("reasoning_details"))), {})


def whole_body(recording: Recording, direct: Direct) -> bytes:
    """The body of the answer without a stream: what the SDK accumulates of it."""
    if not recording.is_stream:
        return recording.body
    if recording.dialect == "anthropic":
        # the beta helper: the plain one leaves compactions and the model that a fallback names out
        # of a stream
        message = direct.read("anthropic", "beta helper", recording.body, sent)
        for block in message["content"]:
            block.pop("parsed_output", None)
        return as_json(message)
    completion = direct.accumulated(mended(recording))
    completion["object"] = "chat.completion"
    for choice in completion["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            # what only streams and only the helper have
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        choice["message"].pop("parsed", None)
        for detail in choice["message"].get("reasoning_details") or ():
            # repeated in every chunk, which the SDK joins
            detail |= {
                k: v for k, v in _first_detail(recording).items() if k in ("type", "format", "id")
            }
    return as_json(completion)
