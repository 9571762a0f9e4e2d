"""JSON Schemas as conditions. They come from clients too, so none may fetch anything or run a pattern that never ends."""

from typing import Any, NoReturn

import jsonschema_rs

_BACKTRACKS = 10_000


def _refuse(uri: str) -> NoReturn:
    raise ValueError("a schema may not refer to other documents")


def compile_schema(schema: dict[str, Any]) -> Any:
    """Compile a schema whose patterns all run in linear time. Raises ValueError with the reason."""
    return jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions())


def compile_client_schema(schema: dict[str, Any]) -> Any:
    """Compile a client's schema: patterns that need backtracking are allowed few steps. Raises ValueError."""
    try:
        return compile_schema(schema)
    except ValueError:
        return jsonschema_rs.validator_for(
            schema, retriever=_refuse, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
        )
