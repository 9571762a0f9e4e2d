"""JSON Schemas as conditions. They come from clients too, so none may fetch anything or run a pattern that never ends."""

from typing import Any, NoReturn

import jsonschema_rs
import msgspec

_BACKTRACKS = 10_000
_MAX_ANSWER = 1 << 20


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


class AnswerCheck:
    """Does an answer fit the client's own schema? The model saw a cleaned one, or a tool in its place."""

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
            validator = compile_client_schema(self._schema)
            return "" if validator.is_valid(msgspec.json.decode("".join(self._parts))) else "it does not fit its schema"
        except UnicodeEncodeError:
            return "it is not JSON"
        except msgspec.DecodeError:
            return "it is not JSON"
        except ValueError:
            return "its schema is none"
