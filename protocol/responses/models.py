"""What models behind Responses take, as data: the rows of `data/openai_models.json`, which are the
vendor's of both its APIs."""

import functools
import importlib.resources
from fnmatch import fnmatchcase

import msgspec

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh")
_ANY = ("none", "low", "medium", "high")


class ModelRow(msgspec.Struct, frozen=True):
    """One row: of its fields those that mean something here."""

    models: tuple[str, ...]
    vendor: bool = False
    """Of the vendor of the dialect: it takes safety_identifier and service_tier, and bounds names
    and ids."""
    sampling: bool = True
    """False: no temperature or top_p but 1."""
    efforts: tuple[str, ...] = ()
    """The values of reasoning.effort; () where the model does not reason, or nothing is known of
    it."""

    @property
    def may_reason(self) -> bool:
        """Can it reason? Of the vendor's models it is known; the others may."""
        return bool(self.efforts) or not self.vendor

    def nearest_effort(self, wanted: str) -> str:
        """Return the value for an effort: the wanted one, else the next below, else the lowest."""
        efforts = self.efforts or _ANY
        rank = len(_ORDER) if wanted == "max" else _ORDER.index(wanted)
        below = [e for e in efforts if _ORDER.index(e) <= rank]
        return below[-1] if below else efforts[0]


class _Table(msgspec.Struct, frozen=True):
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
