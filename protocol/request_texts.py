"""Every text that somebody wrote into a request, wherever it stands: for policies that look for
words, or take them out.

Theory. A request has many places for text: titles of documents, names, descriptions in schemas,
keys of arguments, URLs. So the walk goes through everything and leaves out what is known to be no
text: words of the protocol where they stand as such, what only the provider can read, numbers. A
place that nobody thought of is text. Where a reader joins pieces, the joined text is asked about,
too.

Must not know: policies.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from protocol.bytes.json_strict import AmbiguousJson, dumps, loads_arguments
from protocol.dialects.table import CLIENTS
from protocol.request import (
    NOTHING,
    ChatRequest,
    OtherPart,
    Part,
    ResponseFormat,
    TextPart,
    Tool,
    ToolChoice,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.server_tools.data import table, tool_type

_WORD = re.compile(r"[a-z0-9][a-z0-9_:./+#-]{0,79}", re.ASCII)
_WORDS = frozenset(
    "type role media_type detail ttl effort mode display speed syntax service_tier"
    " verbosity prompt_cache_retention reasoning_format prompt_mode inference_geo keep"
    " search_context_size status phase execution truncation".split()
)
"""Fields whose values are words of the protocol."""
_SEALED = frozenset(
    ("signature", "encrypted_content", "encrypted_index", "encrypted_stdout", "data", "file_data")
)
"""Fields that hold no text, as long as they are base64."""
_BASE64 = re.compile(r"(?:data:[\w.+-]+/[\w.+-]+;base64,)?[A-Za-z0-9+/=_-]*", re.ASCII)
_DATA_URL = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=_-]*", re.ASCII)
_KEYS = (
    _WORDS
    | _SEALED
    | frozenset(
        "text content source title context citations cache_control url image_url file"
        " filename file_id input_audio format refusal name id tool_use_id tool_call_id"
        " input thinking caller is_error enabled reasoning_content reasoning"
        " reasoning_details summary index thinking_blocks annotations audio function"
        " custom arguments description parameters input_schema strict schema json_schema"
        " definition grammar metadata user_id output_config output_format prediction"
        " safety_identifier max_uses budget_tokens allowed_domains blocked_domains"
        " user_location city country region timezone approximate allowed_callers"
        " stream_options include_usage max_completion_tokens seed top_k"
        " prompt_cache_breakpoint prompt_cache_key defer_loading input_examples"
        " eager_input_streaming display_width_px display_height_px display_number"
        " max_characters task_budget enable_thinking system cited_text document_title"
        " document_index start_char_index end_char_index item namespace call_id output"
        " action operation image_file file_url named output_text tools role include"
        " content_index logprobs command commands stdout stderr outcome exit_code"
        " environment server_label server_url server_description authorization"
        " require_approval allowed_tools connector_id tunnel_id approval_request_id"
        " approve reason queries results code container_id container outputs result"
        " fingerprint pending_safety_checks acknowledged_safety_checks"
        " external_web_access search_content_types filters vector_store_ids"
        " max_num_results ranking_options diff path timeout_ms max_output_length env"
        " working_directory created_by compact_threshold include_obfuscation"
        " generate_summary output_schema".split()
    )
)
"""Names of fields, which are no text. Others are."""
_OPAQUE = frozenset(
    "thinking redacted_thinking reasoning reasoning_content reasoning_details thinking_blocks"
    " reasoningContent thoughtSignature signature encrypted_content encrypted_index"
    " id name call_id tool_use_id tool_call_id file_id container_id container server_label"
    " server_name caller fingerprint approval_request_id cache_control".split()
)
"""Kinds and fields that a provider wants back as it made them: reasoning, seals and ids."""
_SCHEMAS = frozenset(("schema", "parameters", "input_schema"))
_NAMED = frozenset(
    (
        "properties",
        "$defs",
        "definitions",
        "patternProperties",
        "dependentSchemas",
        "dependentRequired",
    )
)
"""Of a JSON Schema: objects whose keys are names that somebody gave."""
_SCHEMA_WORDS = frozenset(("type", "$schema", "format", "contentEncoding", "contentMediaType"))
_SCHEMA_KEYS = (
    _NAMED
    | _SCHEMA_WORDS
    | frozenset(
        "$ref $id $anchor $dynamicRef $dynamicAnchor $comment title description default"
        " examples enum const required items prefixItems additionalProperties"
        " additionalItems unevaluatedProperties contains propertyNames allOf anyOf oneOf"
        " not if then else pattern minLength maxLength minimum maximum exclusiveMinimum"
        " exclusiveMaximum multipleOf minItems maxItems uniqueItems minContains"
        " maxContains minProperties maxProperties nullable deprecated readOnly writeOnly"
        " unevaluatedItems discriminator".split()
    )
)


def texts(request: ChatRequest) -> Iterator[str]:
    """Yield every text that a client or model wrote into the request: text, results, documents,
    names, ids, descriptions, keys, URLs, metadata. Where pieces are read as one, the pieces and the
    whole. Not the model's name, base64 and words of the protocol.
    """
    collected: list[str] = []

    def note(text: str) -> str:
        collected.append(text)
        return text

    _Walk(note).request(request)
    return iter(collected)


def map_texts(request: ChatRequest, change: Callable[[str], str]) -> ChatRequest:
    """Return the request with `change(text)` in the place of each of `texts`.

    Tools' names and ids are among them: equal ones are changed alike, but a client does not know a
    changed name. Raises ValueError where two keys of an object become one.
    """
    return _Walk(change).request(request)


def map_contents(request: ChatRequest, change: Callable[[str, str], str]) -> ChatRequest:
    """Return the request with `change(text, place)` in the place of each text that a user, a model
    or a tool wrote, and of each system text: not of names and ids, definitions of tools, reasoning,
    and what only the provider can read. Raises ValueError as `map_texts` does.

    `place` is `system`, `system[N]` for a later system turn, or `turns[N]`.
    """
    contents = ChatRequest(
        dialect=request.dialect,
        model=request.model,
        system=request.system,
        turns=request.turns,
        system_messages=request.system_messages,
    )
    walk = _Contents(change)
    made = walk.request(contents)
    return msgspec.structs.replace(
        request,
        system=made.system,
        turns=made.turns,
        system_messages=made.system_messages,
        extra=walk.predicted(request.extra),
    )


def map_json(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change(text)` in the place of each string and key. Raises
    ValueError as `map_texts` does."""
    return _Walk(change)._free(value)


class _Walk:
    def __init__(self, change: Callable[[str], str]) -> None:
        self._change = change
        self._typed: frozenset[str] = frozenset()

    def request(self, request: ChatRequest) -> ChatRequest:
        self._typed = frozenset(
            t.name
            for t in request.tools
            if (row := tool_type(t.extra.get("type"))) and row.name == t.name
        )
        system = tuple(map(self._text, request.system))
        messages = tuple(self._json(m) for m in request.system_messages)
        fields = _KEYS | _known_names()
        extra = _unique(
            (k if k in fields else self._text(k), self._json(v, k))
            for k, v in request.extra.items()
        )
        read = CLIENTS[request.dialect].changes().system_texts(messages) if messages else system
        if read != system:
            # joined, the parts say something else than each
            system = tuple(map(self._text, read))
            messages = messages if system == read else ()
        choice, form, reasoning = request.tool_choice, request.response_format, request.reasoning
        if (
            reasoning is not None
            and reasoning.effort is not None
            and not _is_none("effort", reasoning.effort)
        ):
            reasoning = msgspec.structs.replace(reasoning, effort=self._text(reasoning.effort))
        changes: dict[str, Any] = {
            "system": system,
            "system_messages": messages,
            "turns": tuple(self._turn(t, request) for t in request.turns),
            "tools": tuple(map(self._tool, request.tools)),
            "tool_choice": (
                None
                if choice is None
                else ToolChoice(
                    choice.mode, self._name(choice.name), tuple(map(self._name, choice.allowed))
                )
            ),
            "stop": tuple(map(self._text, request.stop)),
            "user": None if request.user is None else self._text(request.user),
            "response_format": None if form is None else self._form(form),
            "reasoning": reasoning,
            "web_search": None if request.web_search is None else self._json(request.web_search),
            "extra": extra,
        }
        return msgspec.structs.replace(request, **changes)

    def _text(self, text: str) -> str:
        return self._change(text) if text else text

    def _name(self, name: str) -> str:
        """A tool's name or an id; of a type that the vendor names, it is a word of the protocol."""
        return name if name in self._typed else self._text(name)

    def _form(self, form: ResponseFormat) -> ResponseFormat:
        name, description = self._text(form.name), self._text(form.description)
        return msgspec.structs.replace(
            form, name=name, description=description, schema=self._schema(form.schema)
        )

    def _tool(self, tool: Tool) -> Tool:
        extra = self._json(tool.extra)
        if tool.name in self._typed:
            return msgspec.structs.replace(
                tool, extra=extra | {"name": tool.name} if "name" in extra else extra
            )
        if tool.kind in ("client", "server"):
            # where its object has no name, it is called by its type
            name = extra.get("name") or (
                extra.get("type") if tool.name == tool.extra.get("type") else tool.name
            )
            return msgspec.structs.replace(tool, name=str(name), extra=extra)
        name, description = self._text(tool.name), self._text(tool.description)
        return Tool(
            name, description, self._schema(tool.schema), extra, tool.kind, self._json(tool.outer)
        )

    def _turn(self, turn: Turn, request: ChatRequest) -> Turn:
        parts: list[Part] = []
        for is_text, group in groupby(turn.parts, lambda p: type(p) is TextPart):
            run = list(group)
            parts += (
                self._texts([p for p in run if isinstance(p, TextPart)])
                if is_text
                else [self._part(p, request) for p in run]
            )
        return Turn(turn.role, tuple(parts), self._json(turn.extra))

    def _texts(self, parts: Sequence[TextPart]) -> list[TextPart]:
        """Parts that the model reads as one text."""
        changed = [TextPart(self._text(p.text), self._json(p.extra)) for p in parts]
        if len(parts) == 1:
            return changed
        joined = "".join(p.text for p in changed)
        if self._text("".join(p.text for p in parts)) == joined:
            return changed
        # what is changed in a part may be nothing to be changed in the whole: both count
        whole = self._text(joined)
        return changed if whole == joined else [TextPart(whole)]

    def _part(self, part: Part, request: ChatRequest) -> Part:
        match part:
            case ToolUsePart():
                # of a type of its own: the name is that type, a word of the protocol
                name = part.name if part.form == "typed" else self._name(part.name)
                arguments = self._arguments(part.arguments, is_custom=part.form == "custom")
                return ToolUsePart(
                    self._name(part.id), name, arguments, self._json(part.extra), part.form
                )
            case ToolResultPart():
                return self._result(part, request)
            case OtherPart():
                body = self._json(part.body)
                return OtherPart(str(body.get("type")), body, part.dialect)
            case TextPart():
                return TextPart(self._text(part.text), self._json(part.extra))

    def _result(self, part: ToolResultPart, request: ChatRequest) -> ToolResultPart:
        text, extra = self._text(part.text), self._json(part.extra)
        read = CLIENTS[request.dialect].changes().result_text
        if isinstance(extra.get("content"), list):
            joined = read(extra["content"], "")
            if joined != text:
                # the parts say something else than each: where more is to be changed, only the
                # text goes on
                text = self._text(joined)
                if text != joined:
                    del extra["content"]
        return ToolResultPart(self._name(part.tool_call_id), text, part.is_error, extra, part.form)

    def _arguments(self, arguments: str, *, is_custom: bool) -> str:
        """JSON text: every string and key in it, decoded; what is none, as it is. Of a custom tool
        only the input is somebody's text."""
        try:
            value = loads_arguments(arguments)
        except AmbiguousJson:
            return self._text(arguments)
        changed = {k: self._free(v) for k, v in value.items()} if is_custom else self._free(value)
        return arguments if changed == value else dumps(changed).decode()

    def _free(self, value: Any) -> Any:
        """JSON of somebody's own, whose keys are text."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return _unique((self._text(k), self._free(v)) for k, v in value.items())
        return [self._free(v) for v in value] if isinstance(value, list) else value

    def _json(self, value: Any, key: str = "") -> Any:
        """JSON of the protocol, whose known keys are no text."""
        if value is NOTHING:
            return value
        if isinstance(value, str):
            if key == "arguments":
                return self._arguments(value, is_custom=False)
            return value if _is_none(key, value) else self._text(value)
        if isinstance(value, list):
            return [self._json(v, key) for v in value]
        if not isinstance(value, dict):
            return value
        if key in _SCHEMAS:
            return self._schema(value)
        if key == "input":
            return self._free(value)
        if key == "metadata":
            return _unique(
                (k if k == "user_id" else self._text(k), self._free(v)) for k, v in value.items()
            )
        return _unique(
            (
                k if k in _KEYS or k.isdigit() else self._text(k),
                # a document as plain text, which may look like base64
                self._free(v) if k == "data" and value.get("type") == "text" else self._json(v, k),
            )
            for k, v in value.items()
        )

    def _schema(self, value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            if key in _SCHEMA_WORDS and _WORD.fullmatch(value):
                return value
            return (
                "/".join(p if p in ("#", *_NAMED) else self._text(p) for p in value.split("/"))
                if key == "$ref"
                else self._text(value)
            )
        if isinstance(value, list):
            return [self._schema(v, key) for v in value]
        if not isinstance(value, dict):
            return value
        if key in ("default", "const", "enum", "examples"):
            return self._free(value)
        if key in _NAMED:
            return _unique((self._text(k), self._schema(v)) for k, v in value.items())
        return _unique(
            (k if k in _SCHEMA_KEYS else self._text(k), self._schema(v, k))
            for k, v in value.items()
        )


class _Contents(_Walk):
    """Only through what may go on changed: an answer that comes back must fit what was sent."""

    def __init__(self, change: Callable[[str, str], str]) -> None:
        super().__init__(lambda text: change(text, self._place))
        self._place, self._number = "system", -1

    def predicted(self, extra: dict[str, Any]) -> dict[str, Any]:
        """Fields that are not modelled, of which one has a text."""
        if "prediction" not in extra:
            return extra
        self._place = "prediction"
        return extra | {"prediction": self._json(extra["prediction"])}

    def _turn(self, turn: Turn, request: ChatRequest) -> Turn:
        self._number += 1
        self._place = f"{'system' if turn.role == 'system' else 'turns'}[{self._number}]"
        return super()._turn(turn, request)

    def _name(self, name: str) -> str:
        return name

    def _json(self, value: Any, key: str = "") -> Any:
        kind = str(value.get("type")) if isinstance(value, dict) else ""
        return value if {key, kind} & _OPAQUE else super()._json(value, key)


@functools.cache
def _known_names() -> frozenset[str]:
    """Names of parameters."""
    known = table()
    return (
        known.known_openai
        | known.known_parameters
        | {name for names in known.parameters.values() for name in names}
    )


def _is_none(key: str, value: str) -> bool:
    """Is this value no text? Words where words stand, base64 where only a provider reads; else
    somebody may have written it."""
    if key in _WORDS:
        return _WORD.fullmatch(value) is not None
    return (key in _SEALED and _BASE64.fullmatch(value) is not None) or (
        value[:5] == "data:" and _DATA_URL.fullmatch(value) is not None
    )


def _unique(pairs: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise ValueError("two keys of an object became one")
        unique[key] = value
    return unique
