"""Checks that the hooks of a custom policy will be called, and reports where in its file something
went wrong.

A method that is not a hook is never called, and a hook with the wrong parameters fails for every
call: both are reported when the policy is loaded.
"""

import ast
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from policy.base import HOOKS, Policy, is_built_in
from protocol.errors import PolicyFailed
from settings.config_faults import did_you_mean

_FORMS = {hook.replace("_", ""): hook for hook in HOOKS}


def check_hooks(kind: type[Policy]) -> None:
    """Refuse a class with methods that look like hooks and are none, or that cannot be called as
    hooks are. Raises PolicyFailed."""
    if wrong := [*_mistakes(kind)]:
        raise PolicyFailed("; ".join(wrong))


def _mistakes(kind: type[Policy]) -> Iterator[str]:
    for owner in kind.__mro__:
        if owner is object or is_built_in(owner):
            continue
        for name, value in vars(owner).items():
            form = name.lower().replace("_", "")
            if name in HOOKS:
                mistake = _mistake(name, value)
            elif name.startswith("on_") or (form in _FORMS and not name.startswith("_")):
                near = did_you_mean(_FORMS.get(form, name), HOOKS)
                mistake = (
                    f"is no hook, so nothing would ever call it{near} (there are"
                    f" {', '.join(sorted(HOOKS))})"
                )
            else:
                mistake = ""
            if mistake:
                yield f"{_place(owner, name)}: {name} {mistake}"


def _mistake(name: str, value: object) -> str:
    usual = inspect.signature(getattr(Policy, name))
    written = f"def {name}({', '.join(usual.parameters)})"
    if not isinstance(value, types.FunctionType):
        return f"is a {type(value).__name__} and no method: write `{written}`"
    inner = inspect.unwrap(value)
    if any(
        is_odd(inner)
        for is_odd in (
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
            inspect.isgeneratorfunction,
        )
    ):
        return "waits or yields: a hook is a plain function that returns what it decides"
    try:
        inspect.signature(value).bind(*usual.parameters)
    except TypeError:
        return f"does not take the arguments that hooks get: write `{written}`"
    return ""


def _place(owner: type, name: str) -> str:
    """The file and the line where a class says what `name` is; the class itself where that cannot
    be found."""
    file: str | None = getattr(sys.modules.get(owner.__module__), "__file__", None)
    if not file or not file.endswith(".py"):
        return owner.__name__
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
            lines = [inner.lineno for inner in node.body if name in _named(inner)]
            return f"{file} line {lines[-1] if lines else node.lineno}"
    return file


def _named(node: ast.stmt) -> set[str]:
    """The names that a statement of a class gives something."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def raised_at(error: BaseException, module: str = "") -> str:
    """Return the file and line where an error was raised: the deepest of `module`, or of files that
    are not Sluice's or Python's."""
    location = ""
    frame = error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_globals.get("__name__", "")
        is_own = name == module if module else name.partition(".")[0] not in _NOT_OWN
        if is_own:
            location = f"{frame.tb_frame.f_code.co_filename} line {frame.tb_lineno}"
        frame = frame.tb_next
    return location


_NOT_OWN = frozenset(
    (
        *sys.stdlib_module_names,
        "policy",
        "protocol",
        "workers",
        "sluice",
        "pydantic",
        "typer",
        "click",
    )
)
