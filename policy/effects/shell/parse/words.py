"""Parses the words of a shell text: quotes, variables, substitutions. What is between words belongs
to the grammar (`parsing`)."""

import re

from policy.effects.shell.parse.escapes import ansi_c
from policy.effects.shell.parse.scanning import TextScanner
from policy.effects.shell.parse.tree import (
    Arith,
    Array,
    Lit,
    Node,
    Param,
    Part,
    Parts,
    Proc,
    Seq,
    Sub,
)

_PLAIN = re.compile(r"[^ \t\n|&;<>()'\"\\$`]+")
_QUOTED = re.compile(r'[^"\\$`]+')
_HEREDOC = re.compile(r"[^\\$`]+")
_ARGUMENT = re.compile(r"[^'\"\\$`}/:\[\]]+")
_ANSI = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL)
_BACKTICK = re.compile(r"(?:[^`\\]|\\.)*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9]|[@*#?$!-]", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9]+|[@*#?$!-]", re.ASCII)
ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]*)\])?(\+?)=", re.ASCII)
_OPS = re.compile(r":?[-=+?]|##?|%%?|//?[#%]?|\^\^?|,,?|~~?|@[A-Za-z]|:")


class WordReader(TextScanner):
    """Reads the words of one text."""

    def block(self, items: list[tuple[Node, bool]] | None = None) -> Seq:
        """Read commands up to what closes them: the grammar's part."""
        raise NotImplementedError

    def program(self) -> Seq:
        """Read the whole text: the grammar's part."""
        raise NotImplementedError

    def word(self, *, may_be_empty: bool = False) -> Parts:
        """Read one word."""
        parts: list[Part] = []
        text = self.text
        start = self.at
        self.budget.spend()
        while self.at < len(text):
            match = _PLAIN.match(text, self.at)
            if match:
                self.at = match.end()
                add(parts, match[0])
                continue
            sign = text[self.at]
            if sign == "'":
                end = text.find("'", self.at + 1)
                if end < 0:
                    raise self.wrong("`'` is missing")
                parts.append(Lit(text[self.at + 1 : end], is_quoted=True))
                self.at = end + 1
            elif sign == '"':
                self.at += 1
                self.double_quoted(parts)
            elif sign == "\\":
                escaped = self.next_sign
                if escaped not in ("\n", ""):
                    parts.append(Lit(escaped, is_quoted=True))
                self.at += 2
            elif sign == "$":
                parts.append(self.dollar(is_quoted=False))
            elif sign == "`":
                parts.append(self.backtick(is_quoted=False))
            elif sign in "<>" and self.next_sign == "(":
                self.at += 2
                parts.append(Proc(sign, self.inner()))
            elif (
                sign == "("
                and self.at > start
                and text[self.at - 1] in "?*+@!"
                and text[self.at - 1 : self.at + 2] != "!()"
            ):
                end = self.closing(self.at + 1, 1)
                if end < 0:
                    break
                inner = text[self.at : end + 1]
                if "$" in inner or "`" in inner:
                    add(parts, "(")
                    parts.extend(self.within(inner[1:]).quoted_parts())
                else:
                    add(parts, inner)
                self.at = end + 1
            elif sign == "(" and (match := ASSIGN.fullmatch(text, start, self.at)):
                parts.append(self.array())
            else:
                break
            self.budget.spend()
        if not parts and self.at == start and not may_be_empty:
            raise self.wrong("a word is missing")
        return tuple(parts)

    def double_quoted(self, parts: list[Part]) -> None:
        """Read up to the quote that ends it."""
        start = len(parts)
        self.quoted_into(parts, '"')
        if not self.text.startswith('"', self.at):
            raise self.wrong('`"` is missing')
        self.at += 1
        if len(parts) == start:
            parts.append(Lit("", is_quoted=True))

    def quoted_parts(self) -> Parts:
        """Read the whole text as if it stood in double quotes, with quotes themselves as text: a
        heredoc, a sum."""
        parts: list[Part] = []
        self.quoted_into(parts, "")
        return tuple(parts)

    def quoted_into(self, parts: list[Part], quote: str) -> None:
        """Read text as in double quotes up to the quote, or to the end."""
        plain = _QUOTED if quote else _HEREDOC
        text = self.text
        while self.at < len(text):
            match = plain.match(text, self.at)
            if match:
                self.at = match.end()
                parts.append(Lit(match[0], is_quoted=True))
                continue
            sign = text[self.at]
            if sign == quote:
                return
            if sign == "\\":
                escaped = self.next_sign
                if escaped != "\n":
                    parts.append(
                        Lit(
                            escaped if escaped and escaped in f"$`\\{quote}" else f"\\{escaped}",
                            is_quoted=True,
                        )
                    )
                self.at += 2
            elif sign == "$":
                parts.append(self.dollar(is_quoted=True))
            else:
                parts.append(self.backtick(is_quoted=True))
            self.budget.spend()

    def dollar(self, *, is_quoted: bool) -> Part:
        """Read what begins with a dollar sign."""
        text = self.text
        self.at += 1
        while text.startswith("\\\n", self.at):
            self.at += 2
        sign = self.sign
        if sign == "(":
            end = self.closing(self.at + 2) if text.startswith("((", self.at) else -1
            if end >= 0:
                inner = text[self.at + 2 : end]
                self.at = end + 2
                return self.sum(inner, is_quoted)
            self.at += 1
            return Sub(self.inner(), is_quoted)
        if sign == "[":
            end = text.find("]", self.at)
            if end >= 0:
                inner = text[self.at + 1 : end]
                self.at = end + 1
                return self.sum(inner, is_quoted)
        if sign == "{":
            self.at += 1
            self.enter()
            part = self.parameter(is_quoted)
            self.nesting -= 1
            return part
        if sign == "'" and not is_quoted:
            match = _ANSI.match(text, self.at + 1)
            if match is None or not text.startswith("'", match.end()):
                raise self.wrong("`'` is missing")
            self.at = match.end() + 1
            return Lit(ansi_c(match[0]), is_quoted=True)
        if sign == '"' and not is_quoted:
            return Lit("", is_quoted=True)
        named = self.skip(_NAME)
        if named is None:
            return Lit("$", is_quoted)
        return Param(named[0], is_quoted)

    def sum(self, inner: str, is_quoted: bool) -> Part:
        """Read the inside of `$((...))`."""
        self.enter()
        part = Arith(self.within(inner).quoted_parts(), is_quoted)
        self.nesting -= 1
        return part

    def inner(self) -> Seq:
        """Read the commands up to the bracket that closes them."""
        self.enter()
        body = self.block()
        self.blanks(lines=True)
        if not self.text.startswith(")", self.at):
            raise self.wrong("`)` is missing")
        self.at += 1
        self.nesting -= 1
        return body

    def backtick(self, *, is_quoted: bool) -> Part:
        """Read a program between backticks."""
        match = _BACKTICK.match(self.text, self.at + 1)
        if match is None or not self.text.startswith("`", match.end()):
            raise self.wrong("a backtick is missing")
        self.enter()
        source = re.sub(r'\\([`$\\"])' if is_quoted else r"\\([`$\\])", r"\1", match[0])
        inner = self.within(source)
        body = inner.program()
        self.errors += inner.errors
        self.at = match.end() + 1
        self.nesting -= 1
        return Sub(body, is_quoted)

    def parameter(self, is_quoted: bool) -> Part:
        """Read the inside of `${...}`, and the bracket that closes it."""
        text = self.text
        is_length = text.startswith("#", self.at) and not text.startswith("#}", self.at)
        is_indirect = text.startswith("!", self.at) and not text.startswith("!}", self.at)
        self.at += is_length or is_indirect
        named = self.skip(_PARAMETER)
        if named is None:
            self.argument(is_quoted, "}")
            return self.closed(Param("", is_quoted, "?"))
        part = Param(named[0], is_quoted, "length" if is_length else "", is_indirect=is_indirect)
        if text.startswith("[", self.at):
            self.at += 1
            part.index = self.argument(is_quoted, "]")
            self.at += 1
        match = self.skip(_OPS)
        if match is None:
            if not text.startswith("}", self.at):
                self.argument(is_quoted, "}")
                part.op = "?"
            return self.closed(part)
        part.op = match[0]
        ends = ":}" if part.op == ":" else "/}" if part.op[0] == "/" else "}"
        args = [self.argument(is_quoted, ends)]
        if self.sign in ends[:-1]:
            self.at += 1
            args.append(self.argument(is_quoted, "}"))
        part.args = tuple(args)
        return self.closed(part)

    def closed(self, part: Param) -> Param:
        """Read the bracket that closes `${`."""
        if not self.text.startswith("}", self.at):
            raise self.wrong("`}` is missing")
        self.at += 1
        return part

    def argument(self, is_quoted: bool, ends: str) -> Parts:
        """Read a part of `${...}` up to one of these signs."""
        parts: list[Part] = []
        text = self.text
        while self.at < len(text):
            match = _ARGUMENT.match(text, self.at)
            if match:
                self.at = match.end()
                add(parts, match[0], is_quoted)
                continue
            sign = text[self.at]
            if sign in ends:
                break
            if sign == "'" and not is_quoted and (end := text.find("'", self.at + 1)) >= 0:
                parts.append(Lit(text[self.at + 1 : end], is_quoted=True))
                self.at = end + 1
            elif sign == '"':
                self.at += 1
                self.double_quoted(parts)
            elif sign == "\\":
                parts.append(Lit(self.next_sign.replace("\n", ""), is_quoted=True))
                self.at += 2
            elif sign == "$":
                parts.append(self.dollar(is_quoted=is_quoted))
            elif sign == "`":
                parts.append(self.backtick(is_quoted=is_quoted))
            else:
                add(parts, sign, is_quoted)
                self.at += 1
            self.budget.spend()
        return tuple(parts)

    def array(self) -> Array:
        """Read `(a b c)`."""
        self.enter()
        self.at += 1
        words: list[Parts] = []
        while True:
            self.blanks(lines=True)
            if self.text.startswith(")", self.at):
                self.at += 1
                self.nesting -= 1
                return Array(words)
            if self.at >= len(self.text):
                raise self.wrong("`)` is missing")
            words.append(self.word())


def add(parts: list[Part], text: str, is_quoted: bool = False) -> None:
    """Put plain text behind the parts, into the last one if that is plain too."""
    if parts and isinstance(parts[-1], Lit) and parts[-1].is_quoted == is_quoted:
        parts[-1].text += text
    else:
        parts.append(Lit(text, is_quoted))
