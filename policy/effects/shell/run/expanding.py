"""Gives the words of a command their values: braces, tilde, variables, outputs of commands,
splitting."""

import re
from itertools import pairwise

from policy.effects.shell.parse.budget import OutOfWork
from policy.effects.shell.parse.tree import Arith, Array, Lit, Param, Part, Parts, Proc, Sub
from policy.effects.shell.run.parameters import USUAL_IFS, ParameterExpander
from policy.effects.shell.run.values import GLOB, HOME, TOO_MUCH, Field, is_known
from policy.effects.shell.run.variables import Value

MAX_FIELDS = 256
"""Words that braces or a list make of one."""
_TILDE = re.compile(r"~([A-Za-z_][\w.-]*|\+)?(?=/|:|$)", re.ASCII)
_USUAL_BLANKS = re.compile(r"[ \t\n]+")
_SIGNS = re.compile(r"([{},])")
_SEQUENCE = re.compile(r"(-?\d{1,6}|[A-Za-z])\.\.(-?\d{1,6}|[A-Za-z])(?:\.\.(-?\d{1,4}))?")


class Expander(ParameterExpander):
    """Expands words with the variables of one shell, which may be exchanged between two words."""

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
                made.append(self.literal(part, place))
            else:
                value = self.value(part)
                made.append(value if isinstance(value, str) else " ".join(value))
        return self.bounded("".join(made))

    def literal(self, part: Lit, place: int) -> str:
        """Return the text that stands for itself at a place of a word."""
        return self.tilde(part.text) if place == 0 and not part.is_quoted else part.text

    def split(self, parts: Parts) -> list[Field]:
        """Expand parts in turn; what stands unquoted is split at IFS."""
        done: list[Field] = []
        now: Field | None = None
        for place, part in enumerate(parts):
            if isinstance(part, Lit):
                text = self.literal(part, place)
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
        blanks = "".join(sign for sign in ifs if sign in " \t\n") if ifs != USUAL_IFS else ifs
        if not ifs:
            pieces = [value]
        elif ifs == USUAL_IFS:
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
    made: list[Part] = []
    for sign in signs:
        if not isinstance(sign, str):
            made += sign
        elif made and isinstance(made[-1], Lit) and not made[-1].is_quoted:
            made[-1] = Lit(made[-1].text + sign)
        else:
            made.append(Lit(sign))
    return tuple(made)
