"""Gives the words of a command their values: braces, tilde, variables, outputs of commands,
splitting."""

import re
from itertools import pairwise
from typing import Protocol

from policy.patterns import compile_re2
from policy.shell.parse.budget import OutOfWork, StepBudget
from policy.shell.parse.escapes import ansi_c
from policy.shell.parse.parsing import Parser
from policy.shell.parse.tree import Arith, Array, Lit, Param, Parts, Proc, Seq, Sub
from policy.shell.run.arithmetic import NotCounted, count
from policy.shell.run.values import (
    GLOB,
    HERE,
    HOME,
    MAX_VALUE,
    OWN_NAME,
    TOO_MUCH,
    Field,
    Unknowns,
    glob_text,
    is_known,
)

Value = str | list[str]
MAX_FIELDS = 256
"""Words that braces or a list make of one."""
_TILDE = re.compile(r"~([A-Za-z_][\w.-]*|\+)?(?=/|:|$)", re.ASCII)
_USUAL_IFS = " \t\n"
_USUAL_BLANKS = re.compile(r"[ \t\n]+")
_SIGNS = re.compile(r"([{},])")
_SEQUENCE = re.compile(r"(-?\d{1,6}|[A-Za-z])\.\.(-?\d{1,6}|[A-Za-z])(?:\.\.(-?\d{1,4}))?")
_ALWAYS = {
    "IFS": _USUAL_IFS,
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


class Variables:
    """The variables of a shell, and its arguments; None as arguments where they are not known."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.noted: set[str] = set()
        """What was set other than by an assignment, as by a loop, if programs may read it; of all
        copies together."""
        self.exported: set[str] = set()
        self.arguments: list[str] | None = []

    def copy(self, *, is_child: bool = False) -> "Variables":
        """Copy them; a child process has the exported ones alone."""
        new = Variables()
        new.values = (
            {name: self.values[name] for name in self.exported if name in self.values}
            if is_child
            else dict(self.values)
        )
        new.exported = set(self.exported)
        new.arguments = self.arguments
        new.noted = self.noted
        return new

    def set(self, name: str, value: Value) -> None:
        """Set a variable, other than by an assignment."""
        self.values[name] = value
        self.note(name)

    def note(self, *names: str) -> None:
        """Note that variables are set."""
        self.noted.update(name for name in names if not OWN_NAME.fullmatch(name))


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


class Expander:
    """Expands words with the variables of one shell, which may be exchanged between two words."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.unknowns = runs.unknowns
        self.budget = runs.budget

    # Words

    def fields(self, parts: Parts) -> list[Field]:
        """Return the words that one becomes: none, one or many."""
        if len(parts) == 1 and isinstance(parts[0], Lit):
            literal = parts[0]
            if literal.is_quoted:
                return [Field(literal.text)]
            if "{" not in literal.text and not literal.text.startswith("~"):
                return [Field(literal.text, GLOB.search(literal.text) is not None)]
        if any(isinstance(part, Lit) and not part.is_quoted and "{" in part.text for part in parts):
            return [
                field for alternative in self.braces(parts) for field in self.split(alternative)
            ]
        return self.split(parts)

    def text(self, parts: Parts) -> str:
        """Return the value as one text, as in an assignment or in quotes."""
        if len(parts) == 1 and isinstance(parts[0], Lit) and parts[0].is_quoted:
            # What is written is as long as it is; only what is made of variables could grow without
            # end.
            return parts[0].text
        made = []
        for place, part in enumerate(parts):
            if isinstance(part, Lit):
                made.append(
                    self.tilde(part.text) if place == 0 and not part.is_quoted else part.text
                )
            else:
                value = self.value(part)
                made.append(value if isinstance(value, str) else " ".join(value))
        return self.bounded("".join(made))

    def split(self, parts: Parts) -> list[Field]:
        """Expand parts in turn; what stands unquoted is split at IFS."""
        done: list[Field] = []
        now: Field | None = None
        for place, part in enumerate(parts):
            if isinstance(part, Lit):
                text = self.tilde(part.text) if place == 0 and not part.is_quoted else part.text
                if text or part.is_quoted:
                    now = now or Field("")
                    now.text += text
                    now.is_glob |= not part.is_quoted and GLOB.search(text) is not None
                continue
            value = self.value(part)
            is_quoted = not isinstance(part, Array) and (isinstance(part, Proc) or part.is_quoted)
            values = [value] if isinstance(value, str) else value
            if is_quoted and isinstance(value, str):
                now = now or Field("")
                now.text += value
                continue
            for number, expansion in enumerate(values):
                self.budget.spend(len(expansion))
                if number and now is not None:
                    done.append(now)
                    now = None
                if is_quoted:
                    now = now or Field("")
                    now.text += expansion
                    now.is_many |= expansion == TOO_MUCH or (
                        len(values) > 1 and not is_known(expansion)
                    )
                else:
                    now = self.split_one(expansion, now, done)
        if now is not None:
            done.append(now)
        if len(done) > MAX_FIELDS:
            self.budget.spend(64 * len(done))
        for field in done:
            field.text = self.bounded(field.text)
        return done

    def split_one(self, value: str, now: Field | None, done: list[Field]) -> Field | None:
        """Split an unquoted value; its first piece goes to the word before it, its last is left
        open."""
        ifs = self.plain("IFS")
        blanks = "".join(sign for sign in ifs if sign in " \t\n") if ifs != _USUAL_IFS else ifs
        if not ifs:
            pieces = [value]
        elif ifs == _USUAL_IFS:
            pieces = _USUAL_BLANKS.split(value)
        elif ifs == blanks:
            pieces = re.split(f"[{re.escape(blanks)}]+", value)
        else:
            pieces = re.split(
                (
                    f"[{re.escape(blanks)}]*[{re.escape(ifs)}][{re.escape(blanks)}]*"
                    if blanks
                    else f"[{re.escape(ifs)}]"
                ),
                value,
            )
        for number, piece in enumerate(pieces):
            if number and now is not None:
                done.append(now)
                now = None
            if piece:
                now = now or Field("")
                now.text += piece
                now.is_glob |= GLOB.search(piece) is not None
                now.is_many |= not is_known(piece)
        return now

    def tilde(self, text: str) -> str:
        """Resolve `~` and `~name` at the start of a word."""
        match = _TILDE.match(text) if text.startswith("~") else None
        if match is None:
            return text
        user = match[1]
        home = (
            HOME
            if user is None
            else (
                self.plain("PWD") if user == "+" else "/root" if user == "root" else f"/home/{user}"
            )
        )
        return home + text[match.end() :]

    def bounded(self, text: str) -> str:
        """Return the text; one that is too long is not known any more."""
        if len(text) > MAX_VALUE:
            self.budget.spend(MAX_VALUE)
            return self.unknowns.blur(text)
        return text

    # Braces

    def braces(self, parts: Parts) -> list[Parts]:
        """Expand `{a,b}` and `{1..3}`. Raises OutOfWork for very many."""
        signs: list[str | Parts] = []
        for part in parts:
            if isinstance(part, Lit) and not part.is_quoted:
                signs += [piece for piece in _SIGNS.split(part.text) if piece]
            else:
                signs.append((part,))
        self.budget.spend(16 * len(signs))
        made = self.alternatives(signs, 0)
        return [joined(alternative) for alternative in made]

    def alternatives(self, signs: list[str | Parts], depth: int) -> list[list[str | Parts]]:
        """Expand the first brace and all behind it."""
        start, commas, end = brace(signs)
        if start < 0:
            return [signs]
        if depth > 16:
            raise OutOfWork("size: braces make more words than are read")
        inner: list[list[list[str | Parts]]]
        if commas:
            edges = [start, *commas, end]
            inner = [self.alternatives(signs[a + 1 : b], depth + 1) for a, b in pairwise(edges)]
            middles = [alternative for group in inner for alternative in group]
        else:
            middles = [
                [text]
                for text in self.sequence(
                    "".join(sign for sign in signs[start + 1 : end] if isinstance(sign, str))
                )
            ]
        behind = self.alternatives(signs[end + 1 :], depth + 1)
        if len(middles) * len(behind) > MAX_FIELDS:
            raise OutOfWork("size: braces make more words than are read")
        self.budget.spend(32 * len(middles) * len(behind))
        return [[*signs[:start], *middle, *suffix] for middle in middles for suffix in behind]

    def sequence(self, text: str) -> list[str]:
        """Expand `1..3` or `a..e`."""
        match = _SEQUENCE.fullmatch(text)
        if match is None:
            return [f"{{{text}}}"]
        first, last, step = match[1], match[2], abs(int(match[3] or 1)) or 1
        is_letters = first.isalpha() and last.isalpha()
        if first.isalpha() != last.isalpha():
            return [f"{{{text}}}"]
        a, b = (ord(first), ord(last)) if is_letters else (int(first), int(last))
        numbers = range(a, b + 1, step) if a <= b else range(a, b - 1, -step)
        if len(numbers) > MAX_FIELDS:
            return [self.unknowns.make()]
        width = (
            max(len(first), len(last))
            if not is_letters and (first[0] == "0" or last[0] == "0") and len(first + last) > 2
            else 0
        )
        return [chr(number) if is_letters else str(number).zfill(width) for number in numbers]

    # Values

    def value(self, part: Param | Sub | Arith | Proc | Array) -> Value:
        """Return what the part is worth: a text, or several for `"$@"` and the like."""
        match part:
            case Param():
                self.budget.spend()
                return self.parameter(part)
            case Sub():
                return self.runs.output(part.body)
            case Arith():
                return self.sum(part.parts)
            case Proc():
                return self.runs.named(part)
            case Array():
                return [field.text for word in part.words for field in self.fields(word)]

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


def brace(signs: list[str | Parts]) -> tuple[int, list[int], int]:
    """Find the first brace that can be expanded: where it opens, its own commas, where it closes.
    -1 if there is none."""
    opened: list[tuple[int, list[int]]] = []
    best: tuple[int, list[int], int] = (-1, [], -1)
    for at, sign in enumerate(signs):
        if sign == "{":
            opened.append((at, []))
        elif sign == "," and opened:
            opened[-1][1].append(at)
        elif sign == "}" and opened:
            start, commas = opened.pop()
            inner = signs[start + 1 : at]
            if commas or any(isinstance(element, str) and ".." in element for element in inner):
                best = (start, commas, at) if best[0] < 0 or start < best[0] else best
                if not opened:
                    return best
    return best


def joined(signs: list[str | Parts]) -> Parts:
    """Make a word of the pieces again."""
    made: list[Lit | Param | Sub | Arith | Proc | Array] = []
    for sign in signs:
        if not isinstance(sign, str):
            made += sign
        elif made and isinstance(made[-1], Lit) and not made[-1].is_quoted:
            made[-1] = Lit(made[-1].text + sign)
        else:
            made.append(Lit(sign))
    return tuple(made)
