"""Reading request bodies field by field: every wrong type is named, routing is never taken from a
request."""

from collections.abc import Collection, Iterable
from typing import Any, NoReturn, TypeVar

from protocol import bounds
from protocol.errors import InvalidRequest
from protocol.request import NOTHING, Tool, ToolChoice

ROUTING = frozenset(
    "adapter_id adapter_source api_base api_key api_type api_version aws_access_key_id"
    " aws_bedrock_runtime_endpoint aws_secret_access_key azure_endpoint base_url"
    " chat_template custom_llm_provider custom_logit_processor data_sources"
    " deployment_id extra_body extra_headers extra_query headers kv_transfer_params"
    " litellm_params logits_processors lora lora_name lora_path lora_request model_list"
    " organization user_config vertex_credentials".split()
)
"""Fields by which other gateways and servers let a request choose where it goes, with whose key, or
what code it loads (CVE-2024-6587)."""
_Default = TypeVar("_Default", str, None)
_ROUTING_STARTS = ("aws_", "azure_", "bootstrap_", "litellm_", "vertex_")


def invalid(message: str, param: str) -> NoReturn:
    """Raise InvalidRequest for `param`."""
    raise InvalidRequest(message, param=param)


def refuse_routing(data: dict[str, Any]) -> None:
    """Refuse a body that tries to choose its upstream or bring a key."""
    for name in data:
        if name.casefold() in ROUTING or name.casefold().startswith(_ROUTING_STARTS):
            # cut, for a client chooses how long it is
            name = name[:60]
            invalid(
                f"{name} is not taken from requests: upstreams come from the gateway's"
                " configuration alone",
                name,
            )


def refuse_lookalikes(data: dict[str, Any], known: Collection[str]) -> None:
    """Refuse a name that is one of `known` but for upper case: servers written in Go read it as
    that one, past the policies."""
    for name in data:
        if name not in known and (folded := name.casefold()) in known:
            invalid(f"{name[:60]!r} must be written {folded}", folded)


def model(data: dict[str, Any]) -> str:
    """Return the model's name."""
    name = data.get("model")
    if not isinstance(name, str) or not name:
        invalid("model must be a name", "model")
    if len(name) > bounds.MAX_MODEL_CHARS:
        invalid(
            f"model has {len(name):,} characters; one request may have {bounds.MAX_MODEL_CHARS}",
            "model",
        )
    return name


def array(data: dict[str, Any], name: str, *, required: bool = True) -> list[Any]:
    """Return a list; a required one is not empty."""
    value = data.get(name)
    if value is None and not required:
        return []
    if not isinstance(value, list) or (required and not value):
        invalid(f"{name} must be a {'non-empty ' if required else ''}list", name)
    return value


def mapping(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object, {} where absent."""
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        invalid(f"{name} must be an object", name)
    return value


def _no_bool(value: Any, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def integer(data: dict[str, Any], name: str, default: int | None) -> int | None:
    """Return a whole number of at least 1."""
    value = data.get(name)
    if value is None:
        return default
    if not _no_bool(value, int) or value < 1:
        invalid(f"{name} must be a whole number of at least 1", name)
    return int(value)


def number(data: dict[str, Any], name: str) -> float | None:
    """Return a number."""
    value = data.get(name)
    if value is not None and not _no_bool(value, (int, float)):
        invalid(f"{name} must be a number", name)
    return value


def boolean(data: dict[str, Any], name: str, default: bool | None) -> bool | None:
    """Return true or false."""
    value = data.get(name, default)
    if value is not None and not isinstance(value, bool):
        invalid(f"{name} must be true or false", name)
    return value


def string(data: dict[str, Any], name: str, default: _Default) -> str | _Default:
    """Return text."""
    value = data.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        invalid(f"{name} must be a string", name)
    return value


def exclude_known(data: dict[str, Any], *known: str) -> dict[str, Any]:
    """Return the fields of a request's object that are not `known`. Raises InvalidRequest where one
    only looks like one of these."""
    for name in data:
        if name not in known:
            refuse_lookalikes(data, known)
            return {k: v for k, v in data.items() if k not in known}
    # nothing else, in most of an agent's many messages
    return NOTHING


def place_of(tool: Tool) -> tuple[str, str, str, str]:
    """Return which tool a server tool is: its name, and what says where it runs."""
    where = tool.extra
    return (
        tool.name,
        str(where.get("server_url")),
        str(where.get("connector_id")),
        str(where.get("tunnel_id")),
    )


def allowed_tools(mode: str, names: Iterable[str]) -> ToolChoice:
    """Return the choice among some of the tools, as OpenAI's APIs say it. Raises InvalidRequest."""
    allowed = tuple(dict.fromkeys(names))
    if not allowed and mode == "required":
        invalid("tool_choice requires a call and allows no tool", "tool_choice")
    if not allowed:
        return ToolChoice("none")
    return ToolChoice("any" if mode == "required" else "auto", allowed=allowed)


def refuse_twins(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """Return `tools`; refuse two of one name, as providers do: a call could be held against the one
    and run as the other.

    Server tools are distinguished by their types: several may go by one (`mcp_toolset`).
    """
    names = [t.name for t in tools if t.kind != "server"]
    # two servers under one label: rules know a server by that
    names += [place[0] for place in {place_of(t) for t in tools if t.kind == "server"}]
    if len(set(names)) < len(names):
        invalid("two tools have the same name", "tools")
    return tools
