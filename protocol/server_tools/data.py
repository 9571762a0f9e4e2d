"""Tools that a provider runs, as data: types, versions, headers, parameters
(`data/server_tools.json`, `data/betas.json`).

Data, because vendors add versions every few months; what is not in it is refused or left out
(docs/change/protocol.md 1.6).
"""

import functools
import importlib.resources
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from protocol.request import DialectName

Executor = Literal["client", "provider", "mcp"]


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a key is allowed as one. `open`: it reaches nothing outside the conversation, so every
    key has it."""

    about: str
    open: bool = False
    betas: tuple[str, ...] = ()


class ToolRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tool types `PREFIX_VERSION` (`PREFIX` alone for the version ""). `name` is the one its calls
    have; "" where it has none."""

    prefix: str
    versions: tuple[str, ...]
    executor: Executor
    family: str = ""
    name: str = ""
    betas: dict[str, tuple[str, ...]] = {}
    nested: tuple[str, ...] = ()
    inclusion: tuple[str, ...] = ()


class ToolType(msgspec.Struct, frozen=True):
    """One type of one version."""

    type: str
    executor: Executor
    family: str
    name: str
    betas: tuple[str, ...]
    """Any of these is needed, the first is the one to add; () none."""
    nested: bool
    """Its calls run inside the provider's code execution unless allowed_callers is ["direct"]."""
    inclusion: bool
    """It has response_inclusion, which can hide its calls from the answer."""


class ServerToolTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. `parameters`, `openai_tools` and `responses_tools` name the family that a parameter
    or a tool type needs; what is neither there nor among the known is left out."""

    about: str
    families: dict[str, Family]
    models: dict[str, tuple[str, ...]]
    tools: tuple[ToolRow, ...]
    parameters: dict[DialectName, dict[str, str]]
    openai_tools: dict[str, str]
    responses_tools: dict[str, str]
    known_parameters: frozenset[str]
    known_openai: frozenset[str]
    """Of chat/completions, beside those that are modelled."""


class Betas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of beta names, each with the family it needs or ""."""

    about: str
    betas: dict[str, str]


def _read(name: str) -> bytes:
    return importlib.resources.files("protocol").joinpath("data", name).read_bytes()


@functools.cache
def table() -> ServerToolTable:
    """Return what is known of server tools."""
    return msgspec.json.decode(_read("server_tools.json"), type=ServerToolTable)


@functools.cache
def betas() -> dict[str, str]:
    """Return the known beta names and the family each needs."""
    return msgspec.json.decode(_read("betas.json"), type=Betas).betas


@functools.cache
def _types() -> dict[str, ToolType]:
    types: dict[str, ToolType] = {}
    for row in table().tools:
        for version in row.versions:
            name = f"{row.prefix}_{version}" if version else row.prefix
            types[name] = ToolType(
                name,
                row.executor,
                row.family,
                row.name,
                row.betas.get(version, ()),
                version in row.nested,
                version in row.inclusion,
            )
    return types


def tool_type(name: Any) -> ToolType | None:
    """Return the row of a tool type of the Messages dialect; None for function tools and what is
    not known."""
    return _types().get(name) if isinstance(name, str) else None


@functools.lru_cache(maxsize=512)
def families_of_model(model: str) -> tuple[str, ...]:
    """Return the families that a model uses without being asked."""
    names = (model.lower(), model.rpartition("/")[2].lower())
    matching = (
        families
        for pattern, families in table().models.items()
        if any(fnmatchcase(name, pattern) for name in names)
    )
    return tuple(dict.fromkeys(family for families in matching for family in families))


@functools.cache
def open_families() -> frozenset[str]:
    """Return the families that every key has."""
    return frozenset(name for name, family in table().families.items() if family.open)
