"""Reads a client's chat/completions body as a ChatRequest (docs/change/protocol.md 1.1).

Everything legal in this dialect is read, also where another dialect has no equivalent: a provider
of the same dialect gets it unchanged, and the writer of another dialect refuses it by name.
"""

import functools
from typing import Any

from protocol.dialects.openai_chat import messages_read as openai_messages_read
from protocol.dialects.openai_chat import tools_read as openai_tools_read
from protocol.errors import OtherDialect
from protocol.request import ChatRequest, Reasoning
from protocol.requests import body_bounds, fields
from protocol.requests.fields import invalid
from protocol.server_tools.data import table

_MODELLED = frozenset(
    "model messages tools tool_choice functions function_call parallel_tool_calls"
    " stream max_tokens temperature top_p stop user reasoning_effort web_search_options".split()
)
_LOOKED_AT = frozenset(
    ("audio", "max_completion_tokens", "modalities", "n", "response_format", "stream_options")
)


@functools.cache
def _known() -> frozenset[str]:
    # made once: 4 us of the 18 that a short request takes
    return _MODELLED | _LOOKED_AT | table().parameters["openai"].keys()


def decode(body: bytes, *, needs_max_tokens: bool = False) -> ChatRequest:
    """Read a client's body. Raises InvalidRequest naming the parameter."""
    data = body_bounds.load(body)
    if "input" in data and "messages" not in data:
        raise OtherDialect(
            "this is a body of the Responses API: send it to /v1/responses", param="input"
        )
    written, data = data, openai_tools_read.nested(data)
    fields.refuse_routing(data)
    fields.refuse_lookalikes(data, _known())
    _refuse_many_answers(data)
    model = fields.model(data)
    system, system_messages, turns = openai_messages_read.messages(fields.array(data, "messages"))
    options = fields.mapping(data, "stream_options")
    limit = fields.integer(data, "max_tokens", None)
    answer = openai_tools_read.response_format(data)
    return ChatRequest(
        dialect="openai",
        model=model,
        system=system,
        system_messages=system_messages,
        turns=turns,
        tools=openai_tools_read.tools(data),
        tool_choice=openai_tools_read.tool_choice(data),
        parallel_tool_calls=fields.boolean(data, "parallel_tool_calls", None),
        stream=bool(fields.boolean(data, "stream", False)),
        include_usage=bool(fields.boolean(options, "include_usage", False)),
        max_tokens=fields.integer(data, "max_completion_tokens", limit),
        temperature=fields.number(data, "temperature"),
        top_p=fields.number(data, "top_p"),
        stop=_stop(data.get("stop")),
        user=fields.string(data, "user", None),
        response_format=answer,
        reasoning=_reasoning(data),
        web_search=(
            fields.mapping(data, "web_search_options")
            if data.get("web_search_options") is not None
            else None
        ),
        is_as_written=data is written,
        legacy_functions=data.get("functions") is not None,
        extra=fields.exclude_known(data, *_MODELLED, *(("response_format",) if answer else ())),
    )


def _refuse_many_answers(data: dict[str, Any]) -> None:
    """Refuse what no policy could decide on: several answers, and answers that are sound."""
    if fields.integer(data, "n", 1) != 1:
        invalid("n must be 1: every choice would have to be decided on", "n")
    if data.get("audio") is not None:
        invalid("audio is not served", "audio")
    if data.get("modalities") not in (None, ["text"]):
        invalid("only text is served", "modalities")


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        invalid("stop must be a string or a list of strings", "stop")
    return tuple(values)


def _reasoning(data: dict[str, Any]) -> Reasoning | None:
    effort = fields.string(data, "reasoning_effort", None)
    return None if effort is None else Reasoning("off" if effort == "none" else "", effort)


# What is read again where a policy changed a request.
MODELLED, refuse_many_answers = _MODELLED, _refuse_many_answers
