"""JSON Schemas as conditions. They come from clients too, so none may fetch anything, run a pattern
that never ends or take long.

The validator works in one uninterruptible step, so the work is estimated first, and checks that
would take too long are not started.
"""

from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from policy.schemas.schema_work import Estimate, SchemaBudget, TooMuchWork
from protocol import bounds
from protocol.bytes.json_schema_graph import MAX_BACKTRACKS
from protocol.request import Tool

__all__ = [
    "AnswerCheck",
    "Schema",
    "SchemaBudget",
    "TooMuchWork",
    "ToolSchemas",
    "compile_client_schema",
    "compile_schema",
]
_MAX_ANSWER = bounds.MAX_CHECKED_CHARS


def _refuse(uri: str) -> NoReturn:
    raise ValueError("a schema may not refer to other documents")


class Schema:
    """A compiled schema."""

    def __init__(
        self,
        schema: dict[str, Any],
        estimate: Estimate,
        options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions,
    ) -> None:
        self._estimate = estimate
        try:
            self._validator: Any = jsonschema_rs.validator_for(
                schema, retriever=_refuse, pattern_options=options
            )
        except jsonschema_rs.ReferencingError as error:
            raise ValueError("a reference in it leads nowhere") from error

    def is_valid(self, value: Any, budget: SchemaBudget | None = None) -> bool:
        """Does `value` fit? Raises TooMuchWork where it would take too long to say; without a
        `budget`, each time for itself."""
        self._estimate.check(value, SchemaBudget() if budget is None else budget)
        return bool(self._validator.is_valid(value))


def compile_schema(schema: dict[str, Any]) -> Schema:
    """Compile a schema whose patterns all run in linear time. Raises ValueError with the reason."""
    return Schema(schema, Estimate(schema, SchemaBudget()), jsonschema_rs.RegexOptions())


def compile_client_schema(schema: dict[str, Any], budget: SchemaBudget | None = None) -> Schema:
    """Compile a client's schema: patterns that need backtracking are allowed few steps. Raises
    ValueError."""
    estimate = Estimate(schema, SchemaBudget() if budget is None else budget)
    try:
        return Schema(schema, estimate, jsonschema_rs.RegexOptions())
    except ValueError:
        return Schema(
            schema, estimate, jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS)
        )


class ToolSchemas:
    """The client's schemas of its tools, compiled once for a call, which has one budget for all of
    them."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[dict[str, Any], Schema | TooMuchWork | None]] = {}
        """By the tool's name: its schema, and what came of it. Failures too: an answer may call a
        tool a hundred times."""
        self._budget = SchemaBudget()

    def compiled(self, name: str, schema: dict[str, Any]) -> Schema | None:
        """Return the schema of the tool `name`, compiled; None where it is none. Raises
        TooMuchWork.

        Where a turn goes on, a policy may give the tool another schema.
        """
        known = self._compiled.get(name)
        if known is None or (known[0] is not schema and known[0] != schema):
            known = self._compiled[name] = schema, self._compile(schema)
        if isinstance(known[1], TooMuchWork):
            raise known[1]
        return known[1]

    def _compile(self, schema: dict[str, Any]) -> Schema | TooMuchWork | None:
        try:
            return compile_client_schema(schema, self._budget)
        except TooMuchWork as error:
            return error
        except ValueError:
            return None

    def is_valid(self, tool: Tool | None, value: dict[str, Any]) -> bool | None:
        """Do the arguments fit the tool's schema? None where there is no schema, or none that is
        one. Raises TooMuchWork."""
        if tool is None or not tool.schema:
            return None
        schema = self.compiled(tool.name, tool.schema)
        return None if schema is None else schema.is_valid(value, self._budget)

    def fits(self, tool: Tool, value: dict[str, Any]) -> bool:
        """Do the arguments fit, as far as there is a schema? Not where it would take too long to
        say."""
        try:
            return self.is_valid(tool, value) is not False
        except TooMuchWork:
            return False


class AnswerCheck:
    """Does an answer fit the client's own schema? The model saw a cleaned one, or a tool in its
    place."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema, self._parts, self._size = schema, list[str](), 0

    def add(self, text: str) -> None:
        """Take text of the answer."""
        self._size += len(text)
        if self._size <= _MAX_ANSWER:
            self._parts.append(text)

    def problem(self) -> str:
        """Return what is wrong in a few words, or an empty string."""
        if self._size > _MAX_ANSWER:
            return "too large to be checked"
        try:
            value, budget = msgspec.json.decode("".join(self._parts)), SchemaBudget()
            return (
                ""
                if compile_client_schema(self._schema, budget).is_valid(value, budget)
                else "it does not fit its schema"
            )
        except UnicodeEncodeError:
            return "it is not JSON"
        except msgspec.DecodeError:
            return "it is not JSON"
        except TooMuchWork:
            return "too large to be checked"
        except ValueError:
            return "its schema is not valid"
