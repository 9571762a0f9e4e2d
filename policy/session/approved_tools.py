"""Holds an answer to the tools, schemas and tool choice of the approved request.

A model may call tools that it was not offered: it reads about them in the history or in some text.
So tools that a policy removed from the request, or that the client ruled out, are checked again in
the answer, also for calls written as text. If a client offers no tools, it rules out none: its
policies decide, and see that the call has no definition. Must not know: events, encoders.
"""

from typing import Any

from policy.schemas.schemas import ToolSchemas
from policy.session.decision import Decided
from protocol.bytes.json_strict import loads_arguments, normal_arguments
from protocol.request import ChatRequest, Tool
from protocol.requests.names import OfferedNames


class Approved:
    """The conditions of one request. `client` is as its client sent it, `request` as the policies
    left it."""

    def __init__(self, client: ChatRequest, request: ChatRequest) -> None:
        self.request = request
        self._is_single_call = client.legacy_functions or request.parallel_tool_calls is False
        self._choice = request.tool_choice
        self._changed: dict[str, Tool] = {}
        self._schemas: ToolSchemas | None = None
        self._names: frozenset[str] | None = None
        self._taken = frozenset[str]()
        self._client_tools = client.tools
        self._offered: OfferedNames | None = None
        if request.tools != client.tools:
            offered = {t.name: t for t in client.tools}
            # those that a policy narrowed; of what it left alone the client knows what it wants
            self._changed = {
                t.name: t
                for t in request.tools
                if t.name not in offered or offered[t.name].schema != t.schema
            }
            if offered.keys() - {t.name for t in request.tools}:
                self._names = frozenset(name for t in request.tools for name in _names(t))
                self._taken = (
                    frozenset(name for t in client.tools for name in _names(t)) - self._names
                )

    def meant_by(self, name: str, body: dict[str, Any] | None) -> str:
        """Return the name of the offered tool that a call means; `body` has the namespace that the
        call names."""
        if self._offered is None:
            self._offered = OfferedNames((*self._client_tools, *self.request.tools))
        namespace = (body or {}).get("namespace")
        return self._offered.meant_by(name, namespace if isinstance(namespace, str) else "")

    def refused(self, name: str, toolset: object, *, is_first: bool) -> Decided | None:
        """The block of a call of `name` that nobody may make, whatever its arguments. `toolset` is
        what the call names as its tool set."""
        choice = self._choice
        if not is_first and self._is_single_call:
            return Decided.deny("one_call")
        if choice is not None and (
            choice.mode == "none"
            or (choice.mode == "tool" and name != choice.name)
            or (choice.allowed and name not in choice.allowed)
        ):
            return Decided.deny("tool_choice")
        if self._offered is not None and self._offered.is_ambiguous(name):
            return Decided.deny("ambiguous_name")
        if self._names is not None and name not in self._names and toolset not in self._names:
            return Decided.deny("not_offered")
        return None

    def took(self, name: str) -> Decided | None:
        """The block of a provider-run call of a tool that a policy removed: those of other names
        are distinguished by their families."""
        return Decided.deny("not_offered") if name in self._taken else None

    def misfit(self, name: str, arguments: str) -> Decided | None:
        """The block of arguments, as they are to go out, that do not fit a schema that a policy
        changed."""
        tool = self._changed.get(name)
        if tool is None or not tool.schema:
            return None
        try:
            schemas = self._schemas = self._schemas or ToolSchemas()
            # a policy's schema that is none allows nothing, nor does one that takes too long
            fits = schemas.is_valid(tool, loads_arguments(normal_arguments(arguments))) is True
        except ValueError:
            fits = False
        return None if fits else Decided.deny("schema")


def _names(tool: Tool) -> tuple[str, ...]:
    """What calls of a tool may name: of a tool set, its type without the version."""
    kind = tool.extra.get("type")
    return (
        (tool.name, kind, kind.rpartition("_")[0])
        if tool.kind == "client" and isinstance(kind, str)
        else (tool.name,)
    )
