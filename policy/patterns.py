"""Patterns in policies: names by shell pattern, text by RE2. Linear in the text whatever the pattern, refused at load if bad."""

import re
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict

MAX_PATTERN = 10_000


def compile_re2(pattern: str) -> Any:
    """Compile for RE2. Raises ValueError with the reason; nothing is logged."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern is longer than {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise ValueError(f"the pattern {pattern!r} is not valid RE2: {reason.decode() if isinstance(reason, bytes) else reason}") from error


def _check(pattern: str) -> str:
    compile_re2(pattern)
    return pattern


Pattern = Annotated[str, AfterValidator(_check)]
"""An option that is a pattern in RE2's syntax."""


class Re2(BaseModel):
    """A pattern in RE2's syntax instead of a shell pattern."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    re2: Pattern


NamePattern = str | Re2
"""A shell pattern (`*`, `?`) or `{re2: ...}`; both must match the whole name."""


class Names:
    """Names that match one of `patterns`."""

    def __init__(self, patterns: NamePattern | list[NamePattern]) -> None:
        several = patterns if isinstance(patterns, list) else [patterns]
        self._compiled = [compile_re2(p.re2 if isinstance(p, Re2) else _shell(p)) for p in several]

    def match(self, name: str) -> bool:
        """Does one of the patterns match the whole name?"""
        return any(p.fullmatch(name) is not None for p in self._compiled)


def _shell(pattern: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "(?s)" + "".join(wild.get(c) or re.escape(c) for c in pattern)
