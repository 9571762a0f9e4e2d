"""What models take, as data: one table for each kind of upstream, in `data/*_models.json`.

The first row fits whose shell patterns match the model's name, as the dialect cuts it. A wrong row
must lead to the vendor's 400, never to a silently changed request.
"""

import functools
import importlib.resources
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

import msgspec

from protocol.requests.neutral import EFFORTS, Effort

_ORDER = ("none", *EFFORTS)
_Word = TypeVar("_Word", bound=str)


class BaseModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row; each dialect adds what differs between its models."""

    models: tuple[str, ...]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[msgspec.Raw]
    about: str = ""
    budgets: dict[Effort, int] = {}


_Row = TypeVar("_Row", bound=BaseModelRow)


class ModelTable(Generic[_Row]):
    """The table in one file, which is read when it is first needed. `name_of` returns the vendor's
    own name of a model."""

    def __init__(self, file: str, row: type[_Row], name_of: Callable[[str], str]) -> None:
        self._path, self._type, self._name_of = f"{file}.json", row, name_of
        self.row = functools.lru_cache(maxsize=512)(self._find)

    @functools.cached_property
    def _file(self) -> _File:
        data = importlib.resources.files("protocol").joinpath("data", self._path).read_bytes()
        return msgspec.json.decode(data, type=_File)

    @functools.cached_property
    def rows(self) -> list[_Row]:
        """All rows; the last one is that of unknown models."""
        return [msgspec.json.decode(row, type=self._type) for row in self._file.rows]

    @property
    def budgets(self) -> dict[Effort, int]:
        """The thinking tokens for an effort where the model takes a number."""
        return self._file.budgets

    def _find(self, model: str) -> _Row:
        """Return the row for a model's name."""
        name = self._name_of(model.lower())
        return next(row for row in self.rows if any(fnmatchcase(name, p) for p in row.models))


def nearest_effort(efforts: Sequence[_Word], wanted: str) -> _Word:
    """Return the effort to ask for, of at least one: the wanted one, else the next below it, else
    the lowest there is."""
    rank = _ORDER.index(wanted)
    below = [effort for effort in efforts if _ORDER.index(effort) <= rank]
    return below[-1] if below else efforts[0]


class OpenAiModelRow(BaseModelRow, frozen=True, forbid_unknown_fields=True):
    """What models behind OpenAI's APIs take, and behind servers like them."""

    vendor: bool = False
    """Of the vendor of the dialect: it takes safety_identifier and service_tier, and bounds names
    and ids."""
    developer: bool = False
    """Instructions are developer messages."""
    completion_tokens: bool = False
    """The limit is max_completion_tokens."""
    sampling: bool = True
    """False: no temperature or top_p but 1."""
    efforts: tuple[str, ...] = ()
    """The efforts of reasoning that it takes; () where there is no such parameter, or nothing is
    known of it."""
    search: bool = False
    """Searches the web; takes web_search_options."""
    tools: bool = True
    """Takes tools."""
    id_chars: int = 0
    """Ids of calls have just so many letters and digits, where it is not 0."""
    bridged: bool = False
    """An assistant's message must stand between the results of tools and what the user says
    next."""
    reasoning_content: bool = False
    """Wants its reasoning back in turns with tool calls."""

    @property
    def may_reason(self) -> bool:
        """Can it reason? Of the vendor's models it is known; the others may."""
        return bool(self.efforts) or not self.vendor


OPENAI_MODELS = ModelTable(
    "openai_models",
    OpenAiModelRow,
    lambda model: model.rpartition("/")[2].removeprefix("openai."),
)
