"""Reads a client's Responses body as a ChatRequest (docs/change/protocol.md, Responses clients).

A field that is not known is refused: the next one may bring text that no policy read, or choose
where a request goes. Answers are kept by the gateway alone, so `previous_response_id` and `store`
are no fields of what goes upstream.
"""

from typing import Any

import msgspec

from protocol.dialects.responses import items_read, tools_read
from protocol.errors import InvalidRequest
from protocol.request import ChatRequest, ConversationState, Reasoning
from protocol.requests import body_bounds, fields
from protocol.requests.fields import invalid

INSTRUCTIONS = "instructions"
"""The type of the message that stands for `instructions` in `system_messages`."""
_MODELLED = frozenset(
    "model input instructions previous_response_id store tools tool_choice"
    " parallel_tool_calls max_output_tokens max_tool_calls temperature top_p stream user"
    " client_metadata".split()
)
_KEPT = frozenset(
    "access_programs context_management image include metadata moderation"
    " prompt_cache_key prompt_cache_options prompt_cache_retention reasoning"
    " safety_identifier service_tier stream_options text top_logprobs truncation".split()
)
"""Fields of `extra`."""
_REFUSED = {
    "background": "answers in the background are not served",
    "background_options": "answers in the background are not served",
    "conversation": (
        "conversations that a provider keeps are not served: send the input, or"
        " previous_response_id"
    ),
    "prompt": "stored prompts are not served: no policy could read them",
}
_ELSEWHERE = frozenset(("n", "stop", "logit_bias", "frequency_penalty", "presence_penalty", "seed"))
_ECHOED = tuple(
    "include instructions max_output_tokens max_tool_calls metadata parallel_tool_calls"
    " previous_response_id prompt_cache_key prompt_cache_retention reasoning"
    " safety_identifier store temperature text tool_choice tools top_logprobs top_p"
    " truncation user".split()
)
"""What an answer repeats."""
_INCLUDE = frozenset(
    "reasoning.encrypted_content message.output_text.logprobs"
    " message.input_image.image_url web_search_call.results"
    " web_search_call.action.sources file_search_call.results"
    " code_interpreter_call.outputs computer_call_output.output.image_url".split()
)
ELSEWHERE = frozenset(("item", "found"))
"""Names in `outer` of a tool that stands in an item of the input."""
LOGPROBS, SEALED = "message.output_text.logprobs", "reasoning.encrypted_content"
_MAX_LOGPROBS = 20


def decode(body: bytes, *, needs_max_tokens: bool = False) -> ChatRequest:
    """Read a client's body. Raises InvalidRequest naming the parameter."""
    return _read(body_bounds.load(body))


def decode_elsewhere(body: bytes) -> ChatRequest:
    """Read a body that a client sent where chat/completions is served: it gets that answer, which
    nobody keeps. Raises InvalidRequest."""
    data = body_bounds.load(body)
    options = fields.mapping(data, "stream_options")
    wants_usage = bool(fields.boolean(options, "include_usage", False))
    request = _read({**data, "stream_options": fields.exclude_known(options, "include_usage")})
    if request.state is not None and request.state.previous:
        invalid(
            "answers of /v1/chat/completions are not kept: send the whole input, or use"
            " /v1/responses",
            "previous_response_id",
        )
    return msgspec.structs.replace(request, include_usage=wants_usage, is_as_written=False)


def _read(data: dict[str, Any]) -> ChatRequest:
    fields.refuse_routing(data)
    fields.refuse_lookalikes(data, _MODELLED | _KEPT | _REFUSED.keys())
    _refuse_unknown(data)
    previous = fields.string(data, "previous_response_id", "")
    read = items_read.read(_input(data, previous))
    instructions = fields.string(data, "instructions", None)
    instruction_texts = () if instructions is None else (instructions,)
    text = fields.mapping(data, "text")
    if not text.keys() <= {"format", "verbosity"}:
        invalid("text has format and verbosity", "text")
    reasoning, more = _reasoning(fields.mapping(data, "reasoning"))
    _check_options(data)
    tools = _unique((*tools_read.tools(fields.array(data, "tools", required=False)), *read.tools))
    return ChatRequest(
        dialect="responses",
        model=fields.model(data),
        system=(*instruction_texts, *read.system),
        system_messages=(
            *({"type": INSTRUCTIONS, "content": instruction} for instruction in instruction_texts),
            *read.messages,
        ),
        turns=items_read.with_tool_names(read.turns, tools) if read.has_namespaces else read.turns,
        tools=tools,
        tool_choice=tools_read.tool_choice(data.get("tool_choice")),
        parallel_tool_calls=fields.boolean(data, "parallel_tool_calls", None),
        stream=bool(fields.boolean(data, "stream", False)),
        max_tokens=fields.integer(data, "max_output_tokens", None),
        max_tool_calls=fields.integer(data, "max_tool_calls", None),
        temperature=fields.number(data, "temperature"),
        top_p=fields.number(data, "top_p"),
        user=fields.string(data, "user", None),
        response_format=tools_read.response_format(text),
        verbosity=fields.string(text, "verbosity", None),
        reasoning=reasoning,
        echo={name: data[name] for name in _ECHOED if data.get(name) is not None},
        state=ConversationState(
            previous,
            fields.boolean(data, "store", True) is not False,
            keeps_seals=SEALED in fields.array(data, "include", required=False),
            lets_run=read.lets_run,
        ),
        extra={n: v for n, v in data.items() if n in _KEPT and n not in ("text", "reasoning")}
        | ({"reasoning": more} if more else {}),
    )


def _refuse_unknown(data: dict[str, Any]) -> None:
    for name, value in data.items():
        if name in _REFUSED and value not in (None, False):
            raise InvalidRequest(_REFUSED[name], code="unsupported_parameter", param=name)
        if name not in _MODELLED and name not in _KEPT and name not in _REFUSED:
            why = (
                "the Responses API has no such parameter"
                if name in _ELSEWHERE
                else "the gateway does not know this parameter"
            )
            if name == "messages":
                why = "this is a body of chat/completions: send it to /v1/chat/completions"
            raise InvalidRequest(
                f"unknown parameter {name[:60]!r}: {why}", code="unknown_parameter", param=name[:60]
            )


def _input(data: dict[str, Any], previous: str) -> Any:
    value = data.get("input")
    if value in (None, [], "") and not previous:
        invalid("input must be a string or a non-empty list of items", "input")
    return [] if value is None else value


def _unique(tools: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tools without those that an item tells again: to the letter, or of a search, the same server.
    Raises InvalidRequest for two of one name that differ."""
    seen: dict[str, Any] = {}
    unique = []
    for tool in tools:
        if (before := seen.get(tool.name)) is not None and not tool.outer.keys().isdisjoint(
            ELSEWHERE
        ):
            tool_fields, other = ({**t.extra, "defer_loading": None} for t in (tool, before))
            if (tool.description, tool.schema, tool.kind, tool_fields) == (
                before.description,
                before.schema,
                before.kind,
                other,
            ):
                continue
            if "found" in tool.outer and fields.place_of(tool) == fields.place_of(before):
                continue
        seen[tool.name] = tool
        unique.append(tool)
    return fields.refuse_twins(tuple(unique))


def _reasoning(value: dict[str, Any]) -> tuple[Reasoning | None, dict[str, Any]]:
    """What is modelled of `reasoning`, and the rest."""
    if not value.keys() <= {"effort", "summary", "generate_summary", "context", "mode"}:
        invalid("reasoning has effort, summary, generate_summary, context and mode", "reasoning")
    effort, summary = fields.string(value, "effort", None), fields.string(value, "summary", None)
    summary = summary if summary is not None else fields.string(value, "generate_summary", None)
    more = {name: value[name] for name in ("context", "mode") if value.get(name) is not None}
    if not all(isinstance(word, str) for word in more.values()):
        invalid("reasoning.context and reasoning.mode must be strings", "reasoning")
    if effort is None and summary is None:
        return None, more
    return Reasoning("off" if effort == "none" else "", effort, summary=summary), more


def _check_options(data: dict[str, Any]) -> None:
    include = fields.array(data, "include", required=False)
    if unknown := [
        option for option in include if not isinstance(option, str) or option not in _INCLUDE
    ]:
        invalid(f"include: the gateway does not know {str(unknown[0])[:80]!r}", "include")
    most = data.get("top_logprobs")
    if most is not None and (type(most) is not int or not 0 <= most <= _MAX_LOGPROBS):
        invalid(f"top_logprobs must be a whole number up to {_MAX_LOGPROBS}", "top_logprobs")
    if data.get("truncation") not in (None, "auto", "disabled"):
        invalid("truncation must be auto or disabled", "truncation")
    if not fields.mapping(data, "stream_options").keys() <= {"include_obfuscation"}:
        invalid("stream_options has include_obfuscation", "stream_options")
    for name in (
        "metadata",
        "prompt_cache_options",
        "moderation",
        "access_programs",
        "image",
        "client_metadata",
    ):
        fields.mapping(data, name)
    for name in ("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier"):
        fields.string(data, name, None)
    fields.array(data, "context_management", required=False)


# What is read again where a policy changed a request.
MODELLED = _MODELLED
