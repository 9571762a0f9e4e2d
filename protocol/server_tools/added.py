"""Configuration of server tools: families, tools and MCP servers that the operator adds. Checked at
start. Must not know: requests. `protocol.server_tools.families` decides which addition applies."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import HttpUrl, TypeAdapter, ValidationError

from protocol.server_tools.data import table, tool_type

Added = dict[str, Any]
"""A tool or MCP server as the provider's own object."""


def check_families(names: Iterable[str]) -> None:
    """Raise ValueError naming the first family that is not known."""
    known = table().families
    for name in names:
        if name not in known:
            raise ValueError(
                f"{name!r} is no family of server tools; there are {', '.join(sorted(known))}"
            )


def check_tools(tools: Sequence[Added], servers: Sequence[Added]) -> None:
    """Raise ValueError naming the first tool that is of no known type, is not named as its type
    asks, or is there twice."""
    seen: set[tuple[str, str]] = set()
    for tool in tools:
        kind = tool.get("type")
        row = tool_type(kind)
        if row is None or not row.family:
            raise ValueError(
                f"{str(kind)[:80]!r} is no type of a server tool that is known (a tool needs a"
                " type)"
            )
        field = "mcp_server_name" if row.executor == "mcp" else "name"
        name = tool.get(field)
        if row.executor == "mcp" and name not in [server.get("name") for server in servers]:
            raise ValueError(f"{kind} needs an mcp_server_name that is among mcp_servers")
        if row.name and name != row.name:
            raise ValueError(f"{kind} needs the name {row.name!r}")
        if (row.family, str(name)) in seen:
            raise ValueError(f"the tool {name!r} is there twice")
        seen.add((row.family, str(name)))


def check_servers(servers: Sequence[Added]) -> None:
    """Raise ValueError naming the first MCP server without a name of its own, the type url, or an
    address of http or https."""
    seen: set[str] = set()
    for server in servers:
        name = server.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError("an MCP server needs a name")
        if name in seen:
            raise ValueError(f"the MCP server {name!r} is there twice")
        seen.add(name)
        if server.get("type") != "url":
            raise ValueError(f"the MCP server {name!r} needs `type: url`")
        if not _is_address(server.get("url")):
            raise ValueError(f"the MCP server {name!r} needs a url of https or http")


def _is_address(url: object) -> bool:
    try:
        return (
            isinstance(url, str)
            and url.isprintable()
            and bool(TypeAdapter(HttpUrl).validate_python(url).host)
        )
    except ValidationError:
        return False
