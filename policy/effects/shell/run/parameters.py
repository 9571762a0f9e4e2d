"""Variables of a shell, and what `$name`, `${...}` and sums make of them."""

import re
from typing import Protocol

from policy.effects.shell.parse.arithmetic import NotCounted, count
from policy.effects.shell.parse.budget import StepBudget
from policy.effects.shell.parse.escapes import ansi_c
from policy.effects.shell.parse.parsing import Parser
from policy.effects.shell.parse.tree import Param, Parts, Proc, Seq
from policy.effects.shell.run.values import (
    GLOB,
    HERE,
    HOME,
    MAX_VALUE,
    Unknowns,
    glob_text,
    is_known,
)
from policy.effects.shell.run.variables import Value, Variables
from policy.patterns import compile_re2

USUAL_IFS = " \t\n"


_ALWAYS = {
    "IFS": USUAL_IFS,
    "HOME": HOME,
    "SHELL": "/bin/bash",
    "BASH": "/bin/bash",
    "OSTYPE": "linux-gnu",
    "HOSTTYPE": "x86_64",
    "SHLVL": "1",
    "MACHTYPE": "x86_64-pc-linux-gnu",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PS2": "> ",
    "PS4": "+ ",
    "OPTIND": "1",
    "HISTFILE": f"{HOME}/.bash_history",
    "0": "bash",
    "?": "0",
    "-": "hB",
}
"""What variables hold that every shell sets; a disguise takes its letters and slashes from them."""


_FROM_OUTSIDE = frozenset(
    "USER LOGNAME UID EUID PPID RANDOM SECONDS HOSTNAME TMPDIR EDITOR PAGER TERM LANG DISPLAY"
    " LINENO OLDPWD".split()
)
"""Variables that are set, to what nobody knows here."""


_SETS = re.compile(r"(?:[^=!<>]|<<|>>)=(?!=)|\+\+|--")
"""What sets a variable within a sum."""


_SUM_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Runs(Protocol):
    """What expansion needs from the code that runs commands."""

    unknowns: Unknowns
    budget: StepBudget
    variables: Variables

    def output(self, body: Seq) -> str:
        """Run the commands of a substitution; return what they print, without the line ends behind
        it."""

    def named(self, part: Proc) -> str:
        """Run the commands of `<(...)`; return the name of its file."""


def changed_plainly(op: str, value: str, old: str, new: str) -> str:
    """Cut or replace a plain text."""
    if op[0] == "#" or op.endswith("#"):
        return new + value[len(old) :] if value.startswith(old) else value
    if op[0] == "%" or op.endswith("%"):
        return value[: len(value) - len(old)] + new if value.endswith(old) else value
    return value.replace(old, new, -1 if op.startswith("//") else 1) if old else value


def changed_by_glob(op: str, value: str, glob: str, new: str) -> str:
    """Cut or replace what a glob matches. Raises ValueError for one that is not understood."""
    text = glob_text(glob, is_greedy=op not in ("#", "%"))
    if text is None:
        raise ValueError
    if op[0] == "#" or op.endswith("#"):
        match = compile_re2(f"\\A(?:{text})").search(value)
        return new + value[match.end() :] if match else value
    if op[0] == "%" or op.endswith("%"):
        before = "*" if op == "%" else "*?"
        match = compile_re2(f"\\A([\\s\\S]{before})(?:{text})\\z").search(value)
        return match[1] + new if match else value
    changed: str = compile_re2(text).sub(lambda _: new, value, 0 if op.startswith("//") else 1)
    return changed


class ParameterExpander:
    """Gives parameters their values, with the variables of one shell."""

    def text(self, parts: Parts) -> str:
        """Return the value of a word as one text: what expands words knows it."""
        raise NotImplementedError

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.unknowns = runs.unknowns
        self.budget = runs.budget

    def bounded(self, text: str) -> str:
        """Return the text; one that is too long is not known any more."""
        if len(text) > MAX_VALUE:
            self.budget.spend(MAX_VALUE)
            return self.unknowns.blur(text)
        return text

    def sum(self, parts: Parts) -> str:
        """Count `$((...))`; one that assigns does so."""
        text = self.text(parts)
        if _SETS.search(text):
            self.runs.variables.note(*_SUM_NAME.findall(text))
        assigned = re.fullmatch(
            r"\s*([A-Za-z_]\w*)\s*(?:(\+\+|--)|([-+*/%&|^]|<<|>>)?=(?!=)(.*))",
            text,
            re.ASCII | re.DOTALL,
        )
        try:
            if assigned is None:
                return str(count(text, self.number))
            name, step, op, right = assigned.groups()
            old = count(name, self.number) if step or op else 0
            new = (
                old + (1 if step == "++" else -1)
                if step
                else count(f"({old}){op}({right})" if op else right, self.number)
            )
            self.runs.variables.values[name] = str(new)
            return str(old if step else new)
        except NotCounted:
            if assigned:
                self.runs.variables.values[assigned[1]] = self.unknowns.blur(text)
            return self.unknowns.blur(text)

    def number(self, name: str) -> str | None:
        """Return the text of a variable in a sum; None if it is not known."""
        value = self.runs.variables.values.get(name)
        if isinstance(value, list):
            value = value[0] if value else ""
        return value if value is not None and is_known(value) else None

    def plain(self, name: str) -> str:
        """Return a variable's text; one that is not known is a part that is not known."""
        value = self.lookup(name)
        return (
            self.unknowns.make((name,))
            if value is None
            else value
            if isinstance(value, str)
            else value[0]
            if value
            else ""
        )

    def lookup(self, name: str) -> Value | None:
        """Return a variable's value; None if it was never set here."""
        value = self.runs.variables.values.get(name)
        if value is not None:
            return value
        arguments = self.runs.variables.arguments
        if name in ("@", "*"):
            return [self.unknowns.make(("@",))] if arguments is None else arguments
        if name == "#":
            return self.unknowns.make(("#",)) if arguments is None else str(len(arguments))
        if name.isdigit() and name != "0":
            if arguments is None:
                return self.unknowns.make((name,))
            return arguments[int(name) - 1] if int(name[:6]) <= len(arguments) else ""
        if name == "PWD":
            return HERE
        return _ALWAYS.get(name)

    def parameter(self, part: Param) -> Value:
        """Return what `${...}` is worth."""
        name = part.name
        if part.op == "?" and not part.args:
            return self.unknowns.make((name,))
        if part.is_indirect:
            if part.op == "?" or part.index is not None:
                return self.unknowns.make((name,))
            name = self.plain(name)
            if not re.fullmatch(r"[A-Za-z_]\w*|[0-9]{1,4}|[@*]", name, re.ASCII):
                return self.unknowns.blur(name)
        value = self.lookup(name)
        if part.index is not None and part.op != "length":
            value = self.indexed(value, self.text(part.index), part.name)
        elif isinstance(value, list) and name not in ("@", "*"):
            value = value if part.op == "length" else value[0] if value else ""
        if name == "*" and part.is_quoted and isinstance(value, list):
            value = self.plain("IFS")[:1].join(value)
        if not part.op:
            return self.unknowns.make((name,)) if value is None else value
        if part.op.lstrip(":") in ("-", "=", "+", "?") and part.op != ":":
            return self.default(part, name, value)
        if not value or part.op[0] not in ":#%/":
            # What follows reads them only for a value to be changed; commands within them run all
            # the same.
            for arg in (*part.args, part.index or ()):
                self.text(arg)
        if value is None:
            return self.unknowns.make((name,))
        if part.op == "length":
            texts = " ".join(value) if isinstance(value, list) else value
            is_list = isinstance(value, list) and (part.index is not None or name in ("@", "*"))
            return (
                self.unknowns.blur(texts)
                if not is_known(texts)
                else str(len(value) if is_list else len(texts))
            )
        if part.op == ":" and isinstance(value, list):
            return self.slice_of_list(part, value)
        return (
            [self.changed(part, element) for element in value]
            if isinstance(value, list)
            else self.changed(part, value)
        )

    def indexed(self, value: Value | None, index: str, name: str) -> Value | None:
        """Return an element of an array."""
        if index in ("@", "*"):
            return value if isinstance(value, list) or value is None else [value]
        if value is None:
            return self.lookup(f"{name}[{index}]")
        values = value if isinstance(value, list) else [value]
        try:
            at = count(index, self.number)
            return values[at] if -len(values) <= at < len(values) else ""
        except NotCounted:
            element = self.lookup(f"{name}[{index}]")
            return element if element is not None else self.unknowns.blur(*values)

    def default(self, part: Param, name: str, value: Value | None) -> Value:
        """`${x:-y}` and the like. One that was never set here may be set outside: the text that is
        written is taken, as it can be seen."""
        op = part.op.lstrip(":")
        other = self.text(part.args[0]) if part.args else ""
        text = " ".join(value) if isinstance(value, list) else value
        is_empty = text is None or (part.op[0] == ":" and not text)
        if op == "+":
            return "" if is_empty and text is not None else other
        if not is_empty or op == "?":
            return self.unknowns.make((name,)) if value is None else value
        if op == "=":
            self.runs.variables.note(name)
        if name in _FROM_OUTSIDE and text is None:
            return self.unknowns.make((name,))
        if op == "=":
            self.runs.variables.values[name] = other
        return other

    def slice_of_list(self, part: Param, value: list[str]) -> Value:
        """Return `${@:1:2}` and the like."""
        try:
            start, length = self.bounds(part)
        except NotCounted:
            return [self.unknowns.blur(*value)]
        if part.name in ("@", "*") and start > 0:
            start -= 1
        return value[start:][: length if length is None or length >= 0 else None]

    def bounds(self, part: Param) -> tuple[int, int | None]:
        """Return the numbers of `${x:1:2}`."""
        start = count(self.text(part.args[0]) or "0", self.number)
        return start, (
            count(self.text(part.args[1]) or "0", self.number) if len(part.args) > 1 else None
        )

    def changed(self, part: Param, value: str) -> str:
        """Cut, replace or turn the letters of one value."""
        op = part.op
        self.budget.spend(len(value))
        if HOME in value or HERE in value:
            value = value.replace(HOME, "/home/user").replace(HERE, "/home/user/project")
        if op == ":":
            return self.cut(part, value)
        if op[0] in "#%/":
            return self.matched(part, value)
        if not is_known(value):
            return self.unknowns.blur(value)
        match op:
            case "^^" | "@U":
                return value.upper()
            case ",," | "@L":
                return value.lower()
            case "^" | "@u":
                return value[:1].upper() + value[1:]
            case ",":
                return value[:1].lower() + value[1:]
            case "~~":
                return value.swapcase()
            case "~":
                return value[:1].swapcase() + value[1:]
            case "@P" if "$(" in value or "`" in value:
                # A prompt is expanded once more.
                return self.text(Parser(value, self.budget).quoted_parts())
            case "@E" | "@P":
                return ansi_c(value)
            case _:
                return value

    def cut(self, part: Param, value: str) -> str:
        """Return a part of a text, by its place."""
        try:
            start, length = self.bounds(part)
        except NotCounted:
            return self.unknowns.blur(value)
        if is_known(value):
            start = max(start + len(value), 0) if start < 0 else start
            return value[
                start : (
                    length
                    if length is not None and length < 0
                    else None
                    if length is None
                    else start + length
                )
            ]
        known = next(at for at, sign in enumerate(value) if not is_known(sign))
        if start >= 0 and length is not None and length >= 0 and start + length <= known:
            return value[start : start + length]
        return self.unknowns.blur(value)

    def matched(self, part: Param, value: str) -> str:
        """Cut or replace what a pattern matches."""
        glob = self.text(part.args[0]) if part.args else ""
        new = self.text(part.args[1]) if len(part.args) > 1 else ""
        if not is_known(value) or not is_known(glob):
            return self.unknowns.blur(value, glob, new)
        self.budget.spend(len(value))
        if GLOB.search(glob) is None:
            return self.bounded(changed_plainly(part.op, value, glob, new))
        self.budget.spend(4_096 + len(value))
        try:
            return self.bounded(changed_by_glob(part.op, value, glob, new))
        except ValueError:
            return self.unknowns.blur(value, glob, new)
