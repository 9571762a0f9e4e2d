"""Capabilities of the models of the Messages API, as data: `data/claude_models.json`
(docs/change/protocol.md 1.9).

A wrong row must lead to the vendor's 400, never to a silently changed request: an unknown model
gets the row `*`, which removes nothing. Names are looked up whole, never by a part.
"""

import re
from typing import Literal

from protocol.dialects.models import BaseModelRow, ModelTable
from protocol.requests.neutral import Effort

_NAME = re.compile(
    r"(?:.*[./])?(claude-[a-z0-9-]+?)(?:[-@](?:\d{8}|latest|default)(?:-v\d.*)?|-v\d.*)?(?:\[1m\])?"
)
"""A model's name as clouds and resellers decorate it: what is before and after the vendor's own
name."""
_VERSION_DOT = re.compile(r"(?<=\d)\.(?=\d)")


class ModelRow(BaseModelRow, frozen=True, forbid_unknown_fields=True):
    """What models can do."""

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


def _name(model: str) -> str:
    match = _NAME.fullmatch(_VERSION_DOT.sub("-", model))
    return match[1] if match else ""


MODELS = ModelTable("claude_models", ModelRow, _name)
