"""The target of a written request and the result: the body, how to read the answer back, what was
left out. Must not know: Redis, HTTP, policies."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from protocol import bounds
from protocol.request import ChatRequest, DialectName, Tool
from protocol.requests.neutral import Option

Guided = Literal["", "ollama", "vllm", "openai"]
"""How a backend without native tools takes a JSON Schema for its answer: `format`, `guided_json`,
`response_format`; "" not at all."""


Ids = Literal["keep", "mint"]
"""Whether an upstream's ids of tool calls are kept as long as they tell calls apart, or replaced by
ours from the first on."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream and what the operator allows. `nonce` marks the results of tools that are
    written into the prompt, and nothing else: the model reads it."""

    dialect: DialectName
    ids: Ids = "keep"
    native_tools: bool = True
    guided: Guided = ""
    families: frozenset[str] = frozenset()
    """Families of server tools that this key may use (`protocol/data/server_tools.json` names
    them)."""
    added_tools: tuple[dict[str, Any], ...] = ()
    """Server tools that the operator adds, as the provider's objects; those of families that the
    key may not use are left out."""
    added_mcp_servers: tuple[dict[str, Any], ...] = ()
    betas: tuple[str, ...] = ()
    """What the client's anthropic-beta header names."""
    allowed_betas: frozenset[str] = frozenset()
    """Names that the operator allows beyond the known ones."""
    container: str = ""
    """The container to go on with: from the record, for clients whose dialect has none."""
    nonce: str = ""
    unknown: frozenset[str] = frozenset()
    """What is not modelled and may pass all the same, as the setting `unknown` names it: here
    `parameter NAME`."""


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is turned back into the client's terms before any policy sees it."""

    names: Mapping[str, str] = {}
    """Tool names as upstream has them to the client's, where they differ."""
    json_tool: str = ""
    """The forced tool that stands for `response_format`: its arguments are the answer's text. ""
    for none."""
    prompted: tuple[Tool, ...] | None = None
    """The tools that were written into the prompt and may be called: calls are looked for in the
    text. None: native tools."""


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it goes upstream. `body` None: exactly as the client sent it."""

    body: bytes | None
    restore: Restore = Restore()
    dropped: tuple[str, ...] = ()
    """What was left out, by the client's parameter names, each once, in order: shown in a response
    header and recorded."""
    betas: tuple[str, ...] = ()
    """The anthropic-beta names for upstream, each once."""


MAX_DROPPED = bounds.MAX_DROPPED
"""Names of left-out parameters that are noted for one request."""
MORE = "..."


class RequestNotes(msgspec.Struct, kw_only=True):
    """What the writers of one request note while they write."""

    request: ChatRequest
    target: Target
    dropped: list[str] = []
    betas: list[str] = []
    words: Mapping[str, str] = {}
    """The client's names of parameters where they are not ours."""

    def word(self, name: str) -> str:
        """Return the client's name of a parameter."""
        return self.words.get(name, name)

    def drop(self, name: str) -> None:
        """Note a parameter that is left out, once; past MAX_DROPPED only that there were more:
        clients choose how many there are."""
        if name not in self.dropped and MORE not in self.dropped:
            self.dropped.append(name if len(self.dropped) < MAX_DROPPED else MORE)

    def note(self, where: str, extra: Mapping[str, Any], *known: str) -> None:
        """Note the fields of an `extra` that are left out: all but those `known`. Marks for the
        cache have a name of their own."""
        for name, value in extra.items():
            if name not in known:
                self.drop(
                    name
                    if isinstance(value, Option) and value.meaning == "cache"
                    else f"{where}.{name[:60]}"
                )
