"""The bounds of a client's request: what can be repeated is counted before anything is made of it.

Checked twice: the bytes, before they are parsed, because parsing a body of nothing but commas takes
seconds; and what was parsed, before it is read. A message says what there is too much of, where,
how many, and what the bound is.

Must not know: what a request means.
"""

from typing import Any

import msgspec

from protocol import bounds
from protocol.bytes.json_schema_bounds import bounds_of
from protocol.bytes.json_schema_graph import Graph, UnclearSchema
from protocol.bytes.json_strict import loads_body
from protocol.bytes.value_count import count_values
from protocol.errors import InvalidRequest
from protocol.requests.fields import invalid

_REFERS = (b'"$dynamicRef"', b'"$recursiveRef"', b'"unevaluated')
_SMALL = min(
    bounds.MAX_SCHEMA_BYTES // 8, bounds.MAX_SCHEMA_EXPANSION, bounds.MAX_DESCRIPTION_CHARS
)
"""Bytes of a body in which no schema is larger than one may be, however its numbers are written,
and no description longer."""
_PATHS = 1.4447
"""e^(1/e): a product of numbers that add up to n is at most this to the power of n."""


def load(body: bytes) -> dict[str, Any]:
    """Return the object in a client's body. Raises InvalidRequest."""
    if (count := count_values(body, bounds.MAX_BODY_VALUES)) > bounds.MAX_BODY_VALUES:
        raise InvalidRequest(
            _too_many("the request body", count, "JSON values", bounds.MAX_BODY_VALUES)
        )
    data = loads_body(body)
    _fields(data)
    _messages(data)
    _input(data)
    schemas = _Schemas(body)
    _tools(data, schemas)
    _options(data, schemas)
    return data


def _too_many(where: str, count: int, what: str, bound: int) -> str:
    return f"{where} has {count:,} {what}; one request may have {bound:,}"


def _refuse(where: str, count: int, what: str, bound: int) -> None:
    if count > bound:
        invalid(_too_many(where, count, what, bound), where.partition(".")[0].partition("[")[0])


def _fields(data: dict[str, Any]) -> None:
    if len(data) > bounds.MAX_FIELDS:
        raise InvalidRequest(_too_many("the request body", len(data), "fields", bounds.MAX_FIELDS))


def _messages(data: dict[str, Any]) -> None:
    messages = data.get("messages")
    if not isinstance(messages, list):
        return
    _refuse("messages", len(messages), "messages", bounds.MAX_MESSAGES)
    counts = _MessageTotals()
    counts.parts = len(system) if isinstance(system := data.get("system"), list) else 0
    for position, message in enumerate(messages):
        if type(message) is dict:
            counts.take_message(message, f"messages[{position}]")
    _refuse("messages", counts.parts, "parts", bounds.MAX_PARTS)


def _input(data: dict[str, Any]) -> None:
    """Responses: items instead of messages."""
    items = data.get("input")
    if not isinstance(items, list):
        return
    _refuse("input", len(items), "items", bounds.MAX_PARTS)
    counts = _MessageTotals()
    for position, item in enumerate(items):
        if type(item) is dict:
            counts.take_item(item, f"input[{position}]")
    _refuse("input", counts.parts, "parts", bounds.MAX_PARTS)


class _MessageTotals:
    """What the messages of a request have together. Raises InvalidRequest for an id or a name that
    is too long."""

    def __init__(self) -> None:
        self.parts = self._values = self._characters = 0

    def take_message(self, message: dict[str, Any], where: str) -> None:
        """Count what is in a message."""
        if (
            type(value := message.get("tool_call_id")) is str
            and len(value) > bounds.MAX_REQUEST_ID_CHARS
        ):
            _refuse(f"{where}.tool_call_id", len(value), "characters", bounds.MAX_REQUEST_ID_CHARS)
        if type(called := message.get("function_call")) is dict:
            self._take_called(called, where, "function_call")
        for name in ("content", "tool_calls"):
            if type(inner := message.get(name)) is list:
                self._take(inner, f"{where}.{name}")

    def take_item(self, item: dict[str, Any], where: str) -> None:
        """Count what is in an item of Responses."""
        self.parts += 1
        for name, bound in _ITEM_LENGTHS:
            if type(value := item.get(name)) is str and len(value) > bound:
                _refuse(f"{where}.{name}", len(value), "characters", bound)
        if type(item.get("arguments")) is str:
            self._take_called(item, where, "")
        for name in ("content", "output", "summary"):
            if type(inner := item.get(name)) is list:
                self._take(inner, f"{where}.{name}")

    def _take(self, parts: list[Any], where: str) -> None:
        """Count parts, those in results and documents too."""
        self.parts += len(parts)
        for position, part in enumerate(parts):
            if type(part) is not dict:
                continue
            for name, bound in _LENGTHS:
                if type(value := part.get(name)) is str and len(value) > bound:
                    _refuse(f"{where}[{position}].{name}", len(value), "characters", bound)
            if type(called := part.get("function")) is dict:
                self._take_called(called, f"{where}[{position}]", "function")
            for name in ("content", "source"):
                inner = part.get(name)
                if type(inner) is dict:
                    inner = inner.get("content")
                if type(inner) is list:
                    self._take(inner, f"{where}[{position}].{name}")

    def _take_called(self, called: dict[str, Any], where: str, name: str) -> None:
        """Count the values in arguments: JSON text, which is parsed where another dialect wants an
        object."""
        if type(value := called.get("name")) is str and len(value) > bounds.MAX_REQUEST_NAME_CHARS:
            _refuse(
                f"{where}{name and '.'}{name}.name",
                len(value),
                "characters",
                bounds.MAX_REQUEST_NAME_CHARS,
            )
        if type(arguments := called.get("arguments")) is str:
            # two characters make a value at most: nearly always nothing more is counted
            self._characters += len(arguments)
            if self._characters > 2 * bounds.MAX_BODY_VALUES:
                self._values += count_values(
                    arguments.encode("utf-8", "surrogatepass"),
                    bounds.MAX_BODY_VALUES - self._values,
                )
                _refuse(
                    f"{where}{name and '.'}{name}.arguments",
                    self._values,
                    "JSON values (with those before)",
                    bounds.MAX_BODY_VALUES,
                )


_ITEM_LENGTHS = (
    ("id", bounds.MAX_REQUEST_ID_CHARS),
    ("call_id", bounds.MAX_REQUEST_ID_CHARS),
    ("name", bounds.MAX_REQUEST_NAME_CHARS),
    ("namespace", bounds.MAX_REQUEST_NAME_CHARS),
)
_LENGTHS = (
    ("id", bounds.MAX_REQUEST_ID_CHARS),
    ("tool_use_id", bounds.MAX_REQUEST_ID_CHARS),
    ("name", bounds.MAX_REQUEST_NAME_CHARS),
)


class _Schemas:
    """The schemas of a request together."""

    def __init__(self, body: bytes) -> None:
        self._unfolded = self._references = 0
        # nothing in a body so small, in which nothing refers to anything and no escape hides that
        # it does, can be too large
        words = (b'"$ref"', b"\\u", *_REFERS)
        self.are_small = len(body) <= _SMALL and not any(map(body.__contains__, words))

    def take(self, schema: dict[str, Any], where: str) -> None:
        """Count what a schema unfolds to, as far as it refers to anything. Raises InvalidRequest
        for one that is too large."""
        if self.are_small:
            return
        text = msgspec.json.encode(schema)
        _refuse(where, len(text), "bytes", bounds.MAX_SCHEMA_BYTES)
        references, objects = text.count(b'"$ref"'), text.count(b"{")
        self._references += references
        _refuse(where, self._references, "references (with those before)", bounds.MAX_REFERENCES)
        # so many paths there are at most where each of so many references goes on to others
        few = (
            references < 64
            and objects * (references + 1) * _PATHS**references <= bounds.MAX_SCHEMA_EXPANSION
        )
        if few and all(text.find(word) < 0 for word in _REFERS):
            return
        _refuse(where, objects, "schemas", bounds.MAX_SCHEMA_EXPANSION)
        try:
            count = bounds_of(Graph(schema).root).expansions
        except UnclearSchema:
            # nothing is checked by it
            return
        _refuse(where, count, "schemas (references unfolded)", bounds.MAX_SCHEMA_EXPANSION)
        self._unfolded += count
        _refuse(
            where,
            self._unfolded,
            "schemas (references unfolded, with those before)",
            bounds.MAX_SCHEMAS_EXPANSION,
        )


def _tools(data: dict[str, Any], schemas: _Schemas) -> None:
    count = 0
    for name in ("tools", "functions"):
        if type(tools := data.get(name)) is list:
            count = _tool_list(tools, name, count, schemas)
    if type(items := data.get("input")) is list:
        # items of Responses may bring some
        for position, item in enumerate(items):
            if type(item) is dict and type(tools := item.get("tools")) is list:
                count = _tool_list(tools, f"input[{position}].tools", count, schemas)


def _tool_list(tools: list[Any], name: str, count: int, schemas: _Schemas) -> int:
    """Check a list of tools, and the lists of the namespaces in it; returns how many there are with
    those before."""
    count += len(tools)
    _refuse(name, count, "tools", bounds.MAX_TOOLS)
    for position, tool in enumerate(tools):
        if type(tool) is dict:
            _tool(tool, name, position, schemas)
            if "tools" in tool and type(inner := tool["tools"]) is list:
                count += len(inner)
                _refuse(f"{name}[{position}].tools", count, "tools", bounds.MAX_TOOLS)
                for place, inner_tool in enumerate(inner):
                    if type(inner_tool) is dict:
                        _tool(inner_tool, f"{name}[{position}].tools", place, schemas)
    return count


_MOST_NAME = bounds.MAX_REQUEST_NAME_CHARS


def _tool(tool: dict[str, Any], tools: str, position: int, schemas: _Schemas) -> None:
    for kind in ("function", "custom", ""):
        inner = tool.get(kind) if kind else tool
        if type(inner) is not dict:
            continue
        if type(value := inner.get("name")) is str and len(value) > _MOST_NAME:
            _refuse(
                f"{tools}[{position}]{kind and '.'}{kind}.name",
                len(value),
                "characters",
                _MOST_NAME,
            )
        if schemas.are_small:
            # such a body holds no description that is too long, and no schema that is too large
            continue
        if (
            type(value := inner.get("description")) is str
            and len(value) > bounds.MAX_DESCRIPTION_CHARS
        ):
            where = f"{tools}[{position}]{kind and '.'}{kind}.description"
            _refuse(where, len(value), "characters", bounds.MAX_DESCRIPTION_CHARS)
        for name in ("parameters", "input_schema"):
            if type(schema := inner.get(name)) is dict:
                schemas.take(schema, f"{tools}[{position}]{kind and '.'}{kind}.{name}")


_OPTIONS = tuple(
    "stop stop_sequences metadata mcp_servers tool_choice response_format output_config"
    " output_format text".split()
)


def _options(data: dict[str, Any], schemas: _Schemas) -> None:
    if data.keys().isdisjoint(_OPTIONS):
        return
    for name in ("stop", "stop_sequences"):
        if isinstance(stops := data.get(name), list):
            _refuse(name, len(stops), "stop sequences", bounds.MAX_STOPS)
            for position, stop in enumerate(stops):
                if isinstance(stop, str):
                    _refuse(f"{name}[{position}]", len(stop), "characters", bounds.MAX_STOP_CHARS)
    if isinstance(metadata := data.get("metadata"), dict):
        _refuse("metadata", len(metadata), "entries", bounds.MAX_METADATA)
    if isinstance(servers := data.get("mcp_servers"), list):
        _refuse("mcp_servers", len(servers), "MCP servers", bounds.MAX_MCP_SERVERS)
    match data:
        case {"tool_choice": {"allowed_tools": {"tools": list(allowed)}}}:
            _refuse("tool_choice.allowed_tools.tools", len(allowed), "tools", bounds.MAX_TOOLS)
    match data:
        case {"response_format": {"json_schema": {"schema": dict(schema)}}}:
            schemas.take(schema, "response_format.json_schema.schema")
    match data:
        case {"text": {"format": {"schema": dict(schema)}}}:
            schemas.take(schema, "text.format.schema")
    match data:
        case {"tool_choice": {"tools": list(allowed)}}:
            _refuse("tool_choice.tools", len(allowed), "tools", bounds.MAX_TOOLS)
    match data:
        case {"output_config": {"format": {"schema": dict(schema)}}}:
            schemas.take(schema, "output_config.format.schema")
    match data:
        case {"output_format": {"schema": dict(schema)}}:
            schemas.take(schema, "output_format.schema")
