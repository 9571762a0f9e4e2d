"""Patterns in policies: names by shell pattern, text by RE2. Linear in the text for every pattern;
invalid ones are refused at load."""

import re
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict

from protocol.bounds import MAX_PATTERN_CHARS
from protocol.bytes.folding import fold

_VENDOR = re.compile(r"(?:to=)?(?:(?:functions?|tools?|default_api|multi_tool_use|antml)[.:/])+")
"""What models and servers put before a tool's name: chat templates' namespaces, Gemini's
`default_api`, leaked markup."""
_TAIL = re.compile(r"(?::\d+|<\|.*)\Z", re.DOTALL)
"""What they leave behind it: Kimi's number, a special token of the template."""


_LITERAL = re.compile(r"""[\w "'/:;,@#%&=<>~!-]+""", re.ASCII)


def literal(pattern: str | None) -> str | None:
    """Return a pattern that is nothing but a text to be found, which takes RE2's Python module a
    hundred times as long as Python."""
    return pattern if pattern is not None and _LITERAL.fullmatch(pattern) is not None else None


def compile_re2(pattern: str, *, any_case: bool = False) -> Any:
    """Compile for RE2. Raises ValueError with the reason; nothing is logged."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern is longer than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not any_case
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise ValueError(
            f"the pattern {pattern!r} is not valid RE2:"
            f" {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from error


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


def names_of(name: str) -> list[str]:
    """Return a tool's name and what a lenient client may run for it: without blanks, a vendor's
    prefix, or a namespace."""
    plain = fold(name)
    bare = _TAIL.sub("", _VENDOR.sub("", plain, count=1)).strip()
    return [*dict.fromkeys((name, plain, bare, bare.rpartition(".")[2]))]


class NamePatterns:
    """Names that match one of `patterns`."""

    def __init__(self, patterns: NamePattern | list[NamePattern]) -> None:
        several = patterns if isinstance(patterns, list) else [patterns]
        self._are_all = "*" in several
        written = [p.re2 if isinstance(p, Re2) else _shell(p) for p in several]
        self._compiled = [compile_re2(pattern) for pattern in written]
        self._any_case = [compile_re2(pattern, any_case=True) for pattern in written]

    def match(self, name: str) -> bool:
        """Does one of the patterns match the whole name?"""
        return self._are_all or any(p.fullmatch(name) is not None for p in self._compiled)

    def means(self, name: str) -> bool:
        """Does one match the name, or what a lenient client may run for it? For rules that
        forbid."""
        return self._are_all or any(
            p.fullmatch(form) is not None for form in names_of(name) for p in self._any_case
        )


def _shell(pattern: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "(?s)" + "".join(wild.get(c) or re.escape(c) for c in pattern)
