"""The input of Responses requests, read as turns (docs/change/protocol.md, Responses clients).

Every item is of a type that is known here, or the request is refused: what was skipped no policy
would have read. Items of the model that follow each other are one turn, as one answer was; an
item's own fields (`id`, `status`, `phase`) stay with the part that it became, as `extra["item"]`. A
text of the model with it begins a message; one without belongs to the message of the text before
it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from protocol.bytes.json_strict import dumps
from protocol.dialects.responses import tools_read
from protocol.dialects.responses.ids import call_of_item
from protocol.dialects.responses.items import (
    CLIENT_ONLY_ITEMS,
    MODEL_ITEMS,
    TYPED_CALLS,
    TYPED_OUTPUTS,
    Typed,
)
from protocol.dialects.responses.parts_read import need_strings, read_parts, result_text, text_of
from protocol.errors import InvalidRequest
from protocol.request import (
    NOTHING,
    CallForm,
    OtherPart,
    Part,
    TextPart,
    Tool,
    ToolResultPart,
    ToolUsePart,
    Turn,
)
from protocol.requests import fields
from protocol.requests.fields import invalid
from protocol.requests.names import OfferedNames

_OF_ITEMS = (
    "type role content id call_id name arguments output input namespace tools summary action"
    " operation encrypted_content execution approve approval_request_id server_label".split()
)


class Input(NamedTuple):
    """The input: leading system texts, the items they were read from, the turns, and the tools that
    items brought."""

    system: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...]
    lets_run: bool = False
    """Is a call approved that a provider asked about?"""
    has_namespaces: bool = False
    """Does a call name a namespace? `with_tool_names` resolves it."""


def read(value: Any) -> Input:
    """Read `input`. Raises InvalidRequest."""
    if isinstance(value, str):
        return Input((), (), (Turn("user", (TextPart(value),)),), ())
    if not isinstance(value, list):
        invalid("input must be a string or a list of items", "input")
    reader = _Reader()
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            invalid(f"input[{position}] must be an object", "input")
        reader.read(item, f"input[{position}]")
    return reader.finish()


def with_tool_names(turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> tuple[Turn, ...]:
    """Name each call by the offered tool that it means, as it was named when the model made it."""
    offered = OfferedNames(tools)

    def named(part: Part) -> Part:
        if not isinstance(part, ToolUsePart):
            return part
        namespace = part.extra.get("item", NOTHING).get("namespace") or ""
        return msgspec.structs.replace(part, name=offered.meant_by(part.name, namespace))

    return tuple(
        msgspec.structs.replace(turn, parts=tuple(map(named, turn.parts))) for turn in turns
    )


def _call_of(parts: Sequence[Part]) -> str:
    """The call whose answer these parts are of, as the ids of its messages say."""
    ids = (p.extra.get("item", NOTHING).get("id") for p in parts if isinstance(p, TextPart))
    return next(
        (
            call
            for identity in ids
            if isinstance(identity, str) and (call := call_of_item(identity))
        ),
        "",
    )


class _Reader:
    def __init__(self) -> None:
        self._system: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._turns: list[Turn] = []
        self._answer: list[Part] = []
        self._results: list[Part] = []
        self._tools: list[Tool] = []
        self._brought = 0
        self._approves = self._has_namespaces = False
        self._provider: set[str] = set()
        """Calls of shells that the provider runs: their outputs are the model's side too."""

    def read(self, item: dict[str, Any], at: str) -> None:
        """Add an item."""
        kind = item.get(
            "type", "message" if "role" in item else "item_reference" if "id" in item else None
        )
        if not isinstance(kind, str):
            invalid(f"{at} must have a type or a role", "input")
        fields.refuse_lookalikes(item, _OF_ITEMS)
        match kind:
            case "message":
                self._message(item, at)
            case "function_call" | "custom_tool_call":
                self._has_namespaces |= "namespace" in item
                self._say(_call(item, kind, at))
            case "function_call_output" | "custom_tool_call_output":
                self._result(
                    _output(item, "function" if kind == "function_call_output" else "custom", at)
                )
            case "item_reference":
                identity = item.get("id")
                named = f" {identity[:80]!r}" if isinstance(identity, str) else ""
                message = (
                    f"{at} refers to an item{named} that is not on record: send the item itself"
                )
                raise InvalidRequest(message, code="item_not_found", param="input")
            case _ if kind in TYPED_CALLS:
                self._typed_call(item, TYPED_CALLS[kind], at)
            case _ if kind in TYPED_OUTPUTS:
                self._typed_output(item, TYPED_OUTPUTS[kind], at)
            case _ if kind in MODEL_ITEMS:
                _check_model_item(item, at)
                self._say(OtherPart(kind, item, "responses"))
            case _ if kind in CLIENT_ONLY_ITEMS:
                if kind == "additional_tools":
                    self._bring(item, at)
                elif kind == "mcp_approval_response":
                    self._approves |= _approves(item, at)
                self._add(Turn("user", (OtherPart(kind, item, "responses"),)))
            case _:
                invalid(f"{at} is of a type that the gateway does not know: {kind[:80]!r}", "input")

    def finish(self) -> Input:
        """Return what was read."""
        self._close()
        turns, tools = tuple(self._turns), tuple(self._tools)
        return Input(
            tuple(self._system),
            tuple(self._messages),
            turns,
            tools,
            self._approves,
            self._has_namespaces,
        )

    def _close(self) -> None:
        if self._answer:
            self._turns.append(
                Turn("assistant", tuple(self._answer), answer=_call_of(self._answer))
            )
        if self._results:
            self._turns.append(Turn("user", tuple(self._results)))
        self._answer, self._results = [], []

    def _add(self, turn: Turn) -> None:
        self._close()
        self._turns.append(turn)

    def _say(self, *parts: Part) -> None:
        if self._results:
            self._close()
        self._answer += parts

    def _result(self, part: Part) -> None:
        if self._answer:
            self._close()
        self._results.append(part)

    def _message(self, item: dict[str, Any], at: str) -> None:
        other_fields = fields.exclude_known(item, "type", "role", "content")
        extra = {"item": other_fields} if other_fields else NOTHING
        match item.get("role"):
            case "system" | "developer":
                text = text_of(item, at)
                if not (self._turns or self._answer or self._results):
                    self._system.append(text)
                    self._messages.append(item)
                else:
                    role = {"role": item["role"]} if item["role"] == "system" else {}
                    self._add(
                        Turn(
                            "system",
                            (TextPart(text),),
                            {"item": {**role, **other_fields}} if other_fields or role else NOTHING,
                        )
                    )
            case "user":
                self._add(Turn("user", read_parts(item.get("content"), f"{at}.content"), extra))
            case "assistant":
                self._say(
                    *self._output_parts(
                        read_parts(item.get("content"), f"{at}.content"), other_fields
                    )
                )
            case _:
                invalid(f"{at}.role must be system, developer, user or assistant", "input")

    def _output_parts(self, parts: tuple[Part, ...], other_fields: dict[str, Any]) -> list[Part]:
        """The parts of a message of the model; the first one says that a message begins, where it
        does not show otherwise."""
        message_parts = list(parts)
        follows = bool(self._answer) and _is_output(self._answer[-1])
        if message_parts and (other_fields or follows):
            first = message_parts[0]
            if isinstance(first, TextPart):
                message_parts[0] = TextPart(first.text, {**first.extra, "item": dict(other_fields)})
            elif isinstance(first, OtherPart):
                # a refusal: it has no fields beside its own, so the item's stand before it with an
                # empty text
                message_parts.insert(0, TextPart("", {"item": dict(other_fields)}))
        return message_parts

    def _typed_call(self, item: dict[str, Any], typed: Typed, at: str) -> None:
        if _is_at_provider(item):
            if isinstance(call := item.get("call_id"), str):
                self._provider.add(call)
            self._say(OtherPart(item["type"], item, "responses"))
            return
        need_strings(at, item, "call_id")
        if typed.name == "computer" and "action" not in item:
            action: Any = {name: item[name] for name in ("actions",) if name in item}
        else:
            action = item.get(typed.field)
        if typed.name == "tool_search" and isinstance(action, str):
            arguments = action
        elif isinstance(action, dict):
            arguments = dumps(action).decode()
        else:
            invalid(f"{at}.{typed.field} must be an object", "input")
        other_fields = fields.exclude_known(
            item, "call_id", typed.field, *(("actions",) if "action" not in item else ())
        )
        self._say(
            ToolUsePart(
                item["call_id"], typed.name, arguments, {"item": dict(other_fields)}, "typed"
            )
        )

    def _typed_output(self, item: dict[str, Any], typed: Typed, at: str) -> None:
        if item["type"] == "tool_search_output" and item.get("execution") != "client":
            self._found(item, at)
            return
        # a local shell's output has the call's id as its own
        named = (
            "call_id"
            if isinstance(item.get("call_id"), str) or typed.name != "local_shell"
            else "id"
        )
        need_strings(at, item, named)
        call = item[named]
        if call in self._provider:
            self._found(item, at)
            return
        field = "tools" if typed.name == "tool_search" else "output"
        if field == "tools":
            self._bring(item, at)
        output = item.get(field)
        extra = {"item": dict(fields.exclude_known(item, named, field))} | (
            {"named": "id"} if named == "id" else {}
        )
        is_error = typed.name == "apply_patch" and item.get("status") == "failed"
        if isinstance(output, str) or output is None:
            self._result(ToolResultPart(call, output or "", is_error, extra, "typed"))
            return
        content = [output] if isinstance(output, dict) else output
        text = result_text(content, f"{at}.{field}")
        self._result(ToolResultPart(call, text, is_error, {"content": content, **extra}, "typed"))

    def _found(self, item: dict[str, Any], at: str) -> None:
        """Take what a provider's call gave. What its search found it may run: those tools are in
        the list, too, for the client wrote it."""
        if item["type"] == "tool_search_output":
            if not isinstance(offered := item.get("tools"), list):
                invalid(f"{at}.tools must be a list", "input")
            self._tools += tools_read.discovered_tools(offered, f"{at}.tools")
        self._say(OtherPart(item["type"], item, "responses"))

    def _bring(self, item: dict[str, Any], at: str) -> None:
        """Take the tools of an item: a definition that was there already, to the letter, is
        repeated."""
        if not isinstance(offered := item.get("tools"), list):
            invalid(f"{at}.tools must be a list", "input")
        self._tools += tools_read.tools(offered, f"{at}.tools", item=self._brought)
        self._brought += 1


def _is_output(part: Part) -> bool:
    return isinstance(part, TextPart) or (isinstance(part, OtherPart) and part.kind == "refusal")


def _is_at_provider(item: dict[str, Any]) -> bool:
    if item["type"] == "tool_search_call":
        return item.get("execution") != "client"
    environment = item.get("environment")
    return (
        item["type"] == "shell_call"
        and isinstance(environment, dict)
        and environment.get("type") != "local"
    )


def _check_model_item(item: dict[str, Any], at: str) -> None:
    for name in ("summary", "content"):
        held = item.get(name)
        if (
            item["type"] == "reasoning"
            and held is not None
            and not (isinstance(held, list) and all(isinstance(p, dict) for p in held))
        ):
            invalid(f"{at}.{name} must be a list of parts", "input")
    if not isinstance(item.get("encrypted_content"), str | None):
        invalid(f"{at}.encrypted_content must be a string", "input")
    if item["type"] == "mcp_approval_request":
        need_strings(at, item, "id", "name", "arguments", "server_label")


def _approves(item: dict[str, Any], at: str) -> bool:
    need_strings(at, item, "approval_request_id")
    if not isinstance(item.get("reason"), str | None):
        invalid(f"{at}.reason must be a string", "input")
    if not isinstance(says := item.get("approve"), bool):
        invalid(f"{at}.approve must be true or false", "input")
    return says


def _call(item: dict[str, Any], kind: str, at: str) -> ToolUsePart:
    field = "arguments" if kind == "function_call" else "input"
    need_strings(at, item, "call_id", "name", field)
    other_fields = fields.exclude_known(item, "type", "call_id", "name", field)
    namespace = other_fields.get("namespace")
    if not isinstance(namespace, str | None):
        invalid(f"{at}.namespace must be a string", "input")
    name = item["name"]
    extra = {"item": dict(other_fields)} if other_fields else NOTHING
    if kind == "function_call":
        return ToolUsePart(item["call_id"], name, item["arguments"], extra)
    return ToolUsePart(
        item["call_id"], name, dumps({"input": item["input"]}).decode(), extra, "custom"
    )


def _output(item: dict[str, Any], form: CallForm, at: str) -> ToolResultPart:
    need_strings(at, item, "call_id")
    output, other_fields = (
        item.get("output"),
        fields.exclude_known(item, "type", "call_id", "output"),
    )
    extra: dict[str, Any] = {"item": dict(other_fields)} if other_fields else {}
    if isinstance(output, str):
        return ToolResultPart(item["call_id"], output, extra=extra or NOTHING, form=form)
    text = result_text(output, f"{at}.output")
    return ToolResultPart(item["call_id"], text, extra={"content": output, **extra}, form=form)
