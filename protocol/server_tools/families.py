"""Families of tools that a provider runs: which a key may use (docs/change/protocol.md 1.6).

Such a tool acts before anybody here sees its call: the only prevention is to refuse it in the
request. So whatever would let a provider search, fetch, run code, call remote servers, read stored
files or answer with another model is refused unless the key's `server_tools` names its family.
Where it can stand in a request, each dialect's `gate` knows.
"""

from collections.abc import Iterator
from typing import Any

from protocol.request import DialectName
from protocol.requests.fields import invalid
from protocol.server_tools.data import families_of_model, open_families, table
from protocol.target import Target

DIRECT = "direct"
_CALLS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))


def need(target: Target, family: str, what: str, param: str) -> None:
    """Refuse `what` unless the key has `family`. Raises InvalidRequest."""
    if not allows(target, family):
        invalid(
            f"{what} is not allowed with this key: it needs {family!r} under `server_tools` of the"
            " key, which the operator sets",
            param,
        )


def allows(target: Target, family: str) -> bool:
    """Has the key this family?"""
    return family in target.families or family in open_families()


def check_model(target: Target, model: str) -> None:
    """Refuse a model that by itself does what the key has no family for. Raises InvalidRequest."""
    for family in families_of_model(model):
        need(
            target, family, f"the model {model[:60]!r} ({table().families[family].about})", "model"
        )


def check_parameters(target: Target, body: dict[str, Any], dialect: DialectName) -> None:
    """Refuse the parameters of `body` that need a family which the key lacks. Raises
    InvalidRequest."""
    known = table().parameters[dialect]
    for name in sorted(known.keys() & body):
        family, value = known[name], body[name]
        if value in (None, False, "", [], {}):
            continue
        if name == "container" and isinstance(value, dict) and value.get("skills"):
            need(target, "skills", "container.skills", "container")
        # a container that the record names was opened by an allowed tool of the same turn
        if name != "container" or not target.container or value != target.container:
            need(target, family, name, name)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a message but those in arguments of calls; no recursion, linear."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            kind = item.get("type")
            skipped = "input" if isinstance(kind, str) and kind in _CALLS else None
            stack += [v for k, v in item.items() if k != skipped and isinstance(v, (dict, list))]
        elif isinstance(item, list):
            stack += [v for v in item if isinstance(v, (dict, list))]
