"""What models behind Converse take, as data: `data/converse_models.json`."""

import functools
import importlib.resources
import re
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from protocol.neutral import EFFORTS, Effort

_REGION = re.compile(r"(?:us-gov|us|eu|apac|au|ca|jp|global)\.")


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row."""

    models: tuple[str, ...]
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

    about: str
    budgets: dict[Effort, int]
    rows: tuple[ModelRow, ...]


@functools.cache
def table() -> Table:
    """Return the file's content."""
    data = importlib.resources.files("protocol").joinpath("data/converse_models.json").read_bytes()
    return msgspec.json.decode(data, type=Table)


@functools.lru_cache(maxsize=512)
def row(model: str) -> ModelRow:
    """Return the row for a model's id, an inference profile's or an ARN."""
    name = model.lower().rpartition("/")[2]
    if (region := _REGION.match(name)) is not None:
        name = name[region.end() :]
    return next(r for r in table().rows if any(fnmatchcase(name, pattern) for pattern in r.models))
