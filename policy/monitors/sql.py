"""The monitor `sql`: the worst effect of a call's SQL."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from policy.base import Context, ToolCall
from policy.effects.argument_names import dialect_of_tool
from policy.effects.sql import ANY, check_dialect
from policy.effects.sql_effects import read_sql
from policy.effects.sql_functions import SqlEffect
from policy.effects.surface import surface_of
from policy.monitors.base import Monitor
from policy.monitors.effect_monitor import TOO_MANY, Share
from policy.scores import Score

_VALUES: dict[SqlEffect, float] = {
    "read": 0.05,
    "write": 0.4,
    "delete": 0.5,
    "unbounded": 0.95,
    "schema": 0.7,
    "privilege": 0.9,
    "catalogue": 0.95,
    "file": 0.9,
    "execute": 1.0,
    "network": 0.8,
    "session": 0.4,
    "lock": 0.3,
    "several": 0.3,
}


class SqlOptions(BaseModel):
    """Options of the monitor `sql`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    dialect: Annotated[str, AfterValidator(check_dialect)] = ANY
    """The SQL dialect: `postgres`, `mysql`, `tsql`, `sqlite` or another. `any` takes it from the
    tool's name, and otherwise reads a statement in each of these four."""
    unsure: Share = 0.5
    """The score of a text that the parser does not understand, unless its effects score higher."""
    values: dict[SqlEffect, Share] = {}
    """Scores of effects that replace the built-in ones."""


class SqlMonitor(Monitor):
    """Scores SQL by its effects; abstains where a call has none."""

    name = "sql"
    weight = 4

    def __init__(self, **options: object) -> None:
        """Take the options; the dialect loads the parser."""
        self.options = SqlOptions.model_validate(options)
        check_dialect(self.options.dialect)
        self._values = _VALUES | self.options.values

    def on_call(self, call: ToolCall, context: Context) -> Score | None:
        """Score a call."""
        surface = surface_of(call)
        texts = surface.sql
        if not surface.is_whole:
            return Score(self.name, None, error=TOO_MANY)
        if not texts:
            return None
        configured = self.options.dialect
        dialect = dialect_of_tool(call.name) if configured == ANY else configured
        dims: dict[str, float] = {}
        for text in texts:
            reading = read_sql(text.text, dialect)
            dims |= {effect: self._values[effect] for effect in reading.effects}
            if reading.unsure:
                dims["unsure"] = self.options.unsure
        value = max(dims.values(), default=0.0)
        return Score(self.name, value, dims, ", ".join(sorted(dims, key=lambda dim: -dims[dim])))
