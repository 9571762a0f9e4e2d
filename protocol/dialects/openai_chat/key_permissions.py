"""What a key may ask of a chat/completions provider (docs/change/protocol.md 1.6)."""

from typing import Any

from protocol.dialects.models import OPENAI_MODELS
from protocol.request import ChatRequest, OtherPart, ToolResultPart
from protocol.requests.fields import invalid
from protocol.server_tools.data import table
from protocol.server_tools.families import check_parameters, need, objects
from protocol.target import Target


def check(request: ChatRequest, target: Target) -> None:
    """Refuse what a chat/completions request must not ask of its provider. Raises InvalidRequest
    naming the parameter.

    To be called for requests that pass as received, too.
    """
    if request.web_search is not None:
        need(target, "web_search", "web_search_options", "web_search_options")
    check_parameters(target, request.extra, "openai")
    check_model(request)
    _check_parts(target, request)
    for position, tool in enumerate(request.tools):
        kind = tool.extra.get("type") if tool.kind == "server" else "function"
        if kind not in ("function", "custom", None):
            family = table().openai_tools.get(kind) if isinstance(kind, str) else None
            if family is None:
                invalid(
                    f"tools[{position}] is of a type that the gateway does not know:"
                    f" {str(kind)[:80]!r}",
                    "tools",
                )
            need(target, family, f"the tool {str(kind)[:80]!r}", "tools")


def check_model(request: ChatRequest) -> None:
    """Refuse tools for a model that takes none. Raises InvalidRequest."""
    if not OPENAI_MODELS.row(request.model).tools and any(
        t.kind != "server" for t in request.tools
    ):
        invalid(f"the model {request.model[:60]!r} takes no tools", "tools")


def _check_parts(target: Target, request: ChatRequest) -> None:
    """Refuse stored files of a chat/completions provider, also in results of tools."""
    for turn in request.turns:
        for part in turn.parts:
            held: Any = None
            if type(part) is ToolResultPart:
                held = part.extra.get("content") if part.extra else None
            elif type(part) is OtherPart:
                held = part.body
            if (
                held is not None
                and isinstance(held, (dict, list))
                and any(block.get("file_id") is not None for block in objects(held))
            ):
                need(target, "files", "a file_id", "messages")
