"""What models behind Converse take, as data: `data/converse_models.json`."""

import re
from typing import Literal

from protocol.dialects.models import BaseModelRow, ModelTable
from protocol.requests.neutral import Effort

_REGION = re.compile(r"(?:us-gov|us|eu|apac|au|ca|jp|global)\.")


class ModelRow(BaseModelRow, frozen=True, forbid_unknown_fields=True):
    """One row."""

    family: Literal["", "claude", "nova", "gpt", "gpt-oss"] = ""
    """Whose fields beside Converse's own it takes."""
    thinking: Literal["none", "budget", "adaptive", "nova", "effort"] = "none"
    sampling: Literal["both", "one", "none"] = "both"
    """temperature and top_p: both, either, or neither is taken."""
    choices: tuple[Literal["any", "tool"], ...] = ()
    """Which forced choices of a tool it takes."""
    efforts: tuple[Effort, ...] = ()
    native_schema: bool = False
    """Does it take a JSON Schema for its answer?"""
    strict: bool = False
    """Does it take `strict` on tools?"""
    cache: bool = False
    """Does it take marks for the prompt cache?"""
    grounds: bool = False
    """Has it tools that the provider runs?"""


def _name(model: str) -> str:
    """The vendor's name in a model's id, an inference profile's or an ARN."""
    name = model.rpartition("/")[2]
    region = _REGION.match(name)
    return name if region is None else name[region.end() :]


MODELS = ModelTable("converse_models", ModelRow, _name)
