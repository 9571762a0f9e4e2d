"""What models behind generateContent take, as data: `data/gemini_models.json`."""

import functools
import importlib.resources
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from protocol.neutral import EFFORTS, Effort


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row."""

    models: tuple[str, ...]
    thinking: Literal["level", "budget", "none"]
    """How much the model thinks: by a word, by a number of tokens, or it does not."""
    levels: tuple[Effort, ...] = ()
    least: int = 0
    most: int = 0
    """The smallest and the largest number of tokens."""
    off: bool = False
    """May thinking be switched off?"""
    system: bool = True
    """Does it take instructions apart from the conversation?"""
    json_schema: bool = True
    """Does it take JSON Schema (parametersJsonSchema, responseJsonSchema)? Others take the older
    subset of OpenAPI."""
    signed: bool = False
    """Does it refuse calls of the current turn without the signature of their thoughts?"""
    mixed: bool = False
    """Does it take functions together with the provider's own tools, and with a form of the
    answer?"""
    result_media: bool = False
    """Does it take images inside the result of a call?"""

    def nearest_level(self, wanted: Effort) -> Effort:
        """Return the level for an effort: the wanted one, else the next below, else the lowest."""
        rank = EFFORTS.index(wanted)
        below = [e for e in self.levels if EFFORTS.index(e) <= rank]
        return below[-1] if below else self.levels[0]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: `budgets` are the thinking tokens for an effort where the model takes a number."""

    about: str
    budgets: dict[Effort, int]
    rows: tuple[ModelRow, ...]


@functools.cache
def table() -> Table:
    """Return the file's content."""
    data = importlib.resources.files("protocol").joinpath("data", "gemini_models.json").read_bytes()
    return msgspec.json.decode(data, type=Table)


@functools.lru_cache(maxsize=512)
def row(model: str) -> ModelRow:
    """Return the row for a model's name."""
    name = model.rpartition("/")[2].lower()
    return next(r for r in table().rows if any(fnmatchcase(name, pattern) for pattern in r.models))
