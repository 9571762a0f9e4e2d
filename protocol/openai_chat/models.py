"""What models behind chat/completions take, as data: `data/openai_models.json`."""

import functools
import importlib.resources
from fnmatch import fnmatchcase

import msgspec

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh")


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row."""

    models: tuple[str, ...]
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
    """The values of reasoning_effort; () where there is no such parameter."""
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

    def nearest_effort(self, wanted: str) -> str:
        """Return the value for an effort, where there are any: the wanted one, else the next below,
        else the lowest."""
        rank = len(_ORDER) if wanted == "max" else _ORDER.index(wanted)
        below = [e for e in self.efforts if _ORDER.index(e) <= rank]
        return below[-1] if below else self.efforts[0]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    rows: tuple[ModelRow, ...]


@functools.cache
def _rows() -> tuple[ModelRow, ...]:
    data = importlib.resources.files("protocol").joinpath("data", "openai_models.json").read_bytes()
    return msgspec.json.decode(data, type=_Table).rows


@functools.lru_cache(maxsize=512)
def row(model: str) -> ModelRow:
    """Return the row for a model's name."""
    name = model.rpartition("/")[2].lower().removeprefix("openai.")
    return next(r for r in _rows() if any(fnmatchcase(name, pattern) for pattern in r.models))
