"""The names of the anthropic-beta header: the client's that may pass and those that the request
needs, each once (docs/change/protocol.md 1.6)."""

import re
from collections.abc import Sequence

from protocol.server_tools.data import betas, open_families
from protocol.target import RequestNotes

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


def merge_betas(
    draft: RequestNotes, asked: Sequence[str], needed: Sequence[tuple[str, ...]]
) -> list[str]:
    """Return the names of betas for upstream: those of the client, in its order, then those missing
    of `needed`. Each of `needed` lists names of which one is enough. A name is left out and noted
    if it is neither known nor allowed by the operator, or needs a family which the key lacks: the
    provider refuses a whole request for a name it does not know."""
    names: dict[str, None] = {}
    for name in asked:
        if may_send(draft, name):
            names[name] = None
        else:
            draft.drop(f"anthropic-beta: {name}" if _NAME.fullmatch(name) else "anthropic-beta")
    for choices in needed:
        if not any(name in names for name in choices):
            names[choices[0]] = None
    return list(names)


def may_send(draft: RequestNotes, name: str) -> bool:
    """May this name go upstream for this key?"""
    family = betas().get(name)
    if family is None:
        return name in draft.target.allowed_betas and _NAME.fullmatch(name) is not None
    return not family or family in draft.target.families or family in open_families()
