"""Tools that the client runs, read: what OpenAI's two APIs have alike."""

from typing import Any

from protocol.request import Tool
from protocol.requests import fields
from protocol.requests.fields import invalid

CUSTOM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""Of a custom tool's arguments, as policies see them: free text has no schema of its own."""


def read_function(value: Any, at: str, param: str, *known: str) -> Tool:
    """Return a function; `known` are fields that are read elsewhere. Raises InvalidRequest."""
    name, description = read_name(value, at, param)
    if not isinstance(value.get("parameters"), dict | None):
        invalid(f"{at}.parameters must be an object", param)
    extra = fields.exclude_known(value, *known, "name", "description", "parameters")
    return Tool(name, description, value.get("parameters") or {}, extra)


def read_custom(value: Any, at: str, param: str, *known: str) -> Tool:
    """Return a tool that takes free text. Raises InvalidRequest."""
    name, description = read_name(value, at, param)
    extra = fields.exclude_known(value, *known, "name", "description")
    return Tool(name, description, CUSTOM_SCHEMA, extra, "custom")


def read_name(value: Any, at: str, param: str) -> tuple[str, str]:
    """Return the name and the description. Raises InvalidRequest."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        invalid(f"{at}.name is missing", param)
    if not isinstance(value.get("description"), str | None):
        invalid(f"{at}.description must be a string", param)
    return value["name"], value.get("description") or ""
