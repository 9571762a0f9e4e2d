"""Capabilities of the models of the Messages API, as data: `data/claude_models.json`
(docs/protocol.md 1.9).

A wrong row must lead to the vendor's 400, never to a silently changed request: an unknown model
gets the row `*`, which removes nothing. Names are looked up whole, never by a part.
"""

import functools
import importlib.resources
import re
from typing import Literal

import msgspec

from protocol.neutral import EFFORTS, Effort

_NAME = re.compile(
    r"(?:.*[./])?(claude-[a-z0-9-]+?)(?:[-@](?:\d{8}|latest|default)(?:-v\d.*)?|-v\d.*)?(?:\[1m\])?"
)
"""A model's name as clouds and resellers decorate it: what is before and after the vendor's own
name."""
_VERSION_DOT = re.compile(r"(?<=\d)\.(?=\d)")


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What models can do."""

    models: tuple[str, ...]
    thinking: Literal["adaptive", "budget", "none"]
    sampling: Literal["both", "one", "none"]
    """temperature and top_p: both, either, or neither is taken."""
    forced: bool
    """Does it take a forced tool call? With a thinking budget none does."""
    efforts: tuple[Effort, ...]
    """The values of output_config.effort; () where there is no such field."""
    max_output: int
    """The most tokens of an answer; 0 is not known."""
    native_schema: bool
    """Does it take output_config.format?"""
    strict: bool
    """Does it take `strict` on tools?"""
    prefill: bool
    mid_system: bool
    """Does it take system messages between others?"""

    def nearest_effort(self, wanted: Effort) -> Effort:
        """Return the effort to ask for: the wanted one, else the next below it, else the lowest
        there is."""
        rank = EFFORTS.index(wanted)
        return max(
            (e for e in self.efforts if EFFORTS.index(e) <= rank),
            key=EFFORTS.index,
            default=self.efforts[0],
        )


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: `budgets` are the thinking tokens for an effort where the model takes a number."""

    budgets: dict[Effort, int]
    rows: tuple[ModelRow, ...]


@functools.cache
def table() -> Table:
    """Return the file's content."""
    data = importlib.resources.files("protocol").joinpath("data/claude_models.json").read_bytes()
    return msgspec.json.decode(data, type=Table)


def row(model: str) -> ModelRow:
    """Return the first row that has `model`, else the row `*`: an unknown model."""
    match = _NAME.fullmatch(_VERSION_DOT.sub("-", model.lower()))
    name = match[1] if match else ""
    rows = table().rows
    return next((r for r in rows if name in r.models), rows[-1])
