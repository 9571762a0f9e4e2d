"""Checks what a key may use of a Messages provider, and adds the operator's tools and what they
need (docs/change/protocol.md 1.6).

Works on the finished body: tools, tools defined within messages, parameters, file ids, callers. The
operator's tools and MCP servers are added by union: the client's come first, in their order (prompt
caches depend on it), and no list is ever replaced. If both name the same tool, the operator's
definition takes the client's place: its limits are policy. The client may only be narrower (fewer
uses) and may fill in what the operator left open.
"""

from collections.abc import Iterator
from typing import Any

from protocol.dialects.anthropic.betas import merge_betas
from protocol.requests.fields import invalid, refuse_lookalikes
from protocol.server_tools.data import ToolType, table, tool_type
from protocol.server_tools.families import DIRECT, allows, check_parameters, need, objects
from protocol.target import RequestNotes, Target

_SMALLER = ("max_uses", "max_content_tokens", "max_tokens")
"""Limits of which the smaller counts."""
_CLIENTS = ("cache_control", "citations", "user_location")
"""Settings of the client's that widen nothing, taken over where the operator's definition has
none."""
_DOMAINS = ("allowed_domains", "blocked_domains")
_OF_BLOCKS = ("type", "source", "file_id", "tool", "definition")


def apply(draft: RequestNotes, body: dict[str, Any]) -> bool:
    """Check `body`, a Messages request as it is about to go out, and add what the operator adds and
    the tools need.

    Edits `body` in place, sets `draft.betas`, notes what was left out, and returns whether `body`
    was changed. Raises InvalidRequest naming what the key may not use or what is not known.
    """
    target, request = draft.target, draft.request
    if request.web_search is not None:
        need(target, "web_search", "web_search_options", "web_search_options")
    changed, asked = _take_betas(draft, body)
    changed |= _drop_unknown(draft, body)
    check_parameters(target, body, "anthropic")
    needed = list(_check_messages(target, body))
    tools = body.get("tools") or []
    for position, tool in enumerate(tools):
        _check_tool(target, tool, f"tools[{position}]")
    merged = _merge_tools(draft, tools) if target.added_tools else list(tools)
    changed |= _merge_servers(target, body, merged, asked)
    merged = [_restrained(draft, tool) for tool in merged]
    _refuse_doubles(merged)
    if merged != tools:
        body["tools"] = merged
        changed = True
    needed += [row.betas for tool in merged if (row := tool_type(tool.get("type"))) and row.betas]
    needed += _of_parameters(body)
    draft.betas = merge_betas(draft, asked, needed)
    return changed


def _drop_unknown(draft: RequestNotes, body: dict[str, Any]) -> bool:
    """Withhold parameters that are not known: the next one may be the next way out."""
    known = table()
    gone = [
        n
        for n in body
        if n not in known.known_parameters and n not in known.parameters["anthropic"]
    ]
    gone = [n for n in gone if f"parameter {n}" not in draft.target.unknown]
    for name in gone:
        del body[name]
        draft.drop(name)
    return bool(gone)


def _take_betas(draft: RequestNotes, body: dict[str, Any]) -> tuple[bool, list[str]]:
    """Return the names that the client asks for; those in the body are moved out of it (some clouds
    read them there)."""
    asked = [name.strip() for line in draft.target.betas for name in line.split(",")]
    present = [field for field in ("betas", "anthropic_beta") if field in body]
    for field in present:
        values = body.pop(field)
        if values is not None and not (
            isinstance(values, list) and all(isinstance(v, str) for v in values)
        ):
            invalid(f"{field} must be a list of strings", field)
        asked += values or []
    return bool(present), [name for name in asked if name]


def _check_tool(target: Target, tool: Any, at: str) -> None:
    if not isinstance(tool, dict):
        invalid(f"{at} must be an object", "tools")
    kind = tool.get("type")
    row = tool_type(kind)
    if row is None and kind not in (None, "custom"):
        invalid(f"{at} is of a type that the gateway does not know: {str(kind)[:80]!r}", "tools")
    if row is not None and row.name and tool.get("name") not in (None, row.name):
        # under another name it would stand beside the operator's definition
        invalid(f"{at} ({row.type}) needs the name {row.name!r}", "tools")
    if row is not None and row.family:
        need(target, row.family, f"{at} ({row.type})", "tools")
    callers = tool.get("allowed_callers")
    if callers is not None and not (
        isinstance(callers, list) and all(isinstance(c, str) for c in callers)
    ):
        invalid(f"{at}.allowed_callers must be a list of strings", "tools")
    if any(caller != DIRECT for caller in callers or ()):
        need(target, "code_execution", f"{at}.allowed_callers", "tools")


def _check_messages(target: Target, body: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the beta names that blocks of messages need; refuse stored files and tools defined
    there."""
    files = False
    for message in body.get("messages") or ():
        allows_uploads = (
            isinstance(message, dict)
            and message.get("role") == "assistant"
            and allows(target, "code_execution")
        )
        for block in objects(message):
            refuse_lookalikes(block, _OF_BLOCKS)
            source = block.get("source")
            if isinstance(source, dict) and (source.get("type") == "file" or "file_id" in source):
                need(target, "files", "a file_id", "messages")
                files = True
            elif block.get("type") == "container_upload" and not allows_uploads:
                # an answer's own blocks come back as history
                need(target, "files", "a container_upload block", "messages")
                files = True
            elif block.get("type") == "tool_addition":
                _check_addition(target, block.get("tool"))
    if files:
        yield table().families["files"].betas


def _check_addition(target: Target, tool: Any) -> None:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind in ("mcp_tool_reference", "mcp_toolset_reference"):
        need(target, "mcp", f"a tool_addition block with {kind}", "messages")
    elif kind != "tool_reference":
        # policies read the tools of `tools` alone
        need(target, "inline_tools", "a tool_addition block with a definition", "messages")
        _check_tool(
            target,
            tool.get("definition") if isinstance(tool, dict) else None,
            "the definition in a tool_addition block",
        )


def _identity(tool: dict[str, Any]) -> tuple[str, str]:
    row = tool_type(tool.get("type"))
    if row is None:
        return "", str(tool.get("name"))
    return row.family or row.type, str(
        tool.get("mcp_server_name") if row.executor == "mcp" else row.name
    )


def _merge_tools(draft: RequestNotes, tools: list[Any]) -> list[Any]:
    merged = list(tools)
    for added in draft.target.added_tools:
        row = tool_type(added.get("type"))
        if row is None or not row.family or not allows(draft.target, row.family):
            continue
        if any(c != DIRECT for c in added.get("allowed_callers") or ()) and not allows(
            draft.target, "code_execution"
        ):
            continue
        same = next(
            (i for i, tool in enumerate(merged) if _identity(tool) == _identity(added)), None
        )
        if same is not None:
            merged[same] = _narrowed(added, merged[same])
        elif row.name and any(tool.get("name") == row.name for tool in merged):
            invalid(
                f"the tool name {row.name!r} is taken: the operator adds a tool of that name to"
                " this key's requests",
                "tools",
            )
        else:
            merged.append(added)
    return merged


def _narrowed(added: dict[str, Any], configured: dict[str, Any]) -> dict[str, Any]:
    """Return the operator's definition with what the client's makes narrower or may add."""
    tool = {name: configured[name] for name in _CLIENTS if name in configured} | added
    for name in _SMALLER:
        limits = [t[name] for t in (added, configured) if isinstance(t.get(name), int)]
        if limits:
            tool[name] = min(limits)
    if not any(added.get(name) for name in _DOMAINS):
        tool |= {name: configured[name] for name in _DOMAINS if configured.get(name)}
    return tool


def _merge_servers(
    target: Target, body: dict[str, Any], tools: list[Any], asked: list[str]
) -> bool:
    """Add the operator's MCP servers to `body`, and to `tools` the toolset that makes the provider
    offer each."""
    if not target.added_mcp_servers or not allows(target, "mcp"):
        return False
    servers = body.get("mcp_servers") or []
    if not isinstance(servers, list) or not all(isinstance(server, dict) for server in servers):
        invalid("mcp_servers must be a list of objects", "mcp_servers")
    servers = list(servers)
    for added in target.added_mcp_servers:
        same = next(
            (
                i
                for i, s in enumerate(servers)
                if isinstance(s, dict) and s.get("name") == added.get("name")
            ),
            None,
        )
        if same is None:
            servers.append(added)
        elif servers[same].get("url") == added.get("url"):
            servers[same] = added
        else:
            invalid(
                f"the name {str(added.get('name'))[:80]!r} is taken: the operator adds an MCP"
                " server of that name",
                "mcp_servers",
            )
    for added in target.added_mcp_servers:
        listed = any(
            t.get("type") == "mcp_toolset" and t.get("mcp_server_name") == added.get("name")
            for t in tools
        )
        if not listed and "mcp-client-2025-04-04" not in asked:
            tools.append({"type": "mcp_toolset", "mcp_server_name": added.get("name")})
    changed = servers != body.get("mcp_servers")
    body["mcp_servers"] = servers
    return changed


def _restrained(draft: RequestNotes, tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool that shows every call it makes, and makes none from code where code may not
    run."""
    row: ToolType | None = tool_type(tool.get("type"))
    if row is None:
        return tool
    if (
        row.nested
        and not tool.get("allowed_callers")
        and not allows(draft.target, "code_execution")
    ):
        tool = tool | {"allowed_callers": [DIRECT]}
    if row.inclusion and tool.get("response_inclusion", "full") != "full":
        # calls that the answer leaves out could not be judged or recorded
        draft.drop("response_inclusion")
        tool = tool | {"response_inclusion": "full"}
    return tool


def _refuse_doubles(tools: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for tool in tools:
        row = tool_type(tool.get("type"))
        is_mcp = row is not None and row.executor == "mcp"
        name = (
            tool.get("mcp_server_name")
            if is_mcp
            else tool.get("name") or (row.name or row.type if row else "")
        )
        scope = "mcp_toolset " if is_mcp else ""
        if f"{scope}{name}" in seen:
            invalid(f"the tool {str(name)[:80]!r} is there twice", "tools")
        seen.add(f"{scope}{name}")


def _of_parameters(body: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the beta names that parameters need: per need, any one of them."""
    families = table().families
    container = body.get("container")
    management = body.get("context_management")
    needs = [
        families["mcp"].betas if body.get("mcp_servers") else (),
        families["skills"].betas if isinstance(container, dict) and container.get("skills") else (),
        families["context_management"].betas[:1] if management else (),
    ]
    return [need for need in needs if need]
