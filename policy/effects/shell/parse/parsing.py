"""Parses a shell text into its commands, as bash reads it: one pass, linear in the text, bounded in
steps and nesting.

A generated parser was measured first: its recovery from errors takes 50 s for 60 KB of `a|a|a|...`,
and nothing can stop it. The tests compare the two. What this one cannot read is an error
(`NotRead`), and it continues after it, so that a parse error hides nothing.
"""

import re

from policy.effects.shell.parse.budget import NotRead, OutOfWork, StepBudget
from policy.effects.shell.parse.redirects import REDIRECT, RedirectReader
from policy.effects.shell.parse.tree import (
    AndOrList,
    Assign,
    CaseCommand,
    For,
    Func,
    GroupCommand,
    If,
    Lit,
    Node,
    Parts,
    Pipe,
    Seq,
    Simple,
    Test,
    While,
)
from policy.effects.shell.parse.words import ASSIGN

_PLAIN_WORD = re.compile(r"[ \t]*([^ \t\n|&;<>()'\"\\$`#][^ \t\n|&;<>()'\"\\$`]*+)(?=[ \t\n]|\Z)")
"""Blanks and a word of plain text, as most are: nothing in it, or behind it, makes it a redirect or
a part of another word."""
_CLOSER = re.compile(r"(?:then|else|elif|fi|do|done|esac|\})(?=[ \t\n;&|)<>]|$)|\)|;;&?|;&")
_OPENER = re.compile(
    r"(?:if|while|until|for|select|case|function|coproc|time|\{|!|\[\[)(?=[ \t\n(]|\\\n|$)|\(\(?"
)
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_TIME_OPTION = re.compile(r"-p\b|--(?=\s)")
_COPROC_NAME = re.compile(r"[A-Za-z_]\w*[ \t]+(?=[({]|while\b|until\b|for\b|if\b|case\b)")
_IN = re.compile(r"in(?=[ \t\n;]|$)")
_ESAC = re.compile(r"esac(?=[ \t\n;&|)<>]|$)")


class Parser(RedirectReader):
    """Reads the commands of one text."""

    # Lists and pipelines

    def program(self) -> Seq:
        """Read the whole text. After an error it goes on with the next line; `errors` says what was
        wrong. Raises OutOfWork."""
        items: list[tuple[Node, bool]] = []
        while self.at < len(self.text):
            try:
                self.block(items)
                if self.at < len(self.text):
                    raise self.wrong("no place for this")
            except OutOfWork:
                raise
            except NotRead as error:
                self.errors.append(error.reason)
                self.pending.clear()
                line = self.text.find("\n", max(self.at, error.at))
                if line < 0 or len(self.errors) > 4:
                    break
                self.at = line + 1
        return Seq(items)

    def block(self, items: list[tuple[Node, bool]] | None = None) -> Seq:
        """Read commands up to what closes them, which is left to the caller.

        `items`: where they go, so that those before an error are kept.
        """
        items = [] if items is None else items
        text = self.text
        while True:
            self.blanks(lines=True)
            if self.at >= len(text) or _CLOSER.match(text, self.at):
                return Seq(items)
            node = self.chain()
            self.blanks()
            sign = self.sign
            if sign == "&" or (sign == ";" and self.next_sign not in (";", "&")):
                self.at += 1
            elif sign not in ("\n", "") and not _CLOSER.match(text, self.at):
                raise self.wrong("no place for this")
            items.append((node, sign == "&"))

    def chain(self) -> Node:
        """Read pipelines with `&&` and `||` between them."""
        first = self.pipe()
        links: list[tuple[str, Node]] = []
        while True:
            self.blanks()
            op = self.text[self.at : self.at + 2]
            if op not in ("&&", "||"):
                return AndOrList(first, links) if links else first
            self.at += 2
            self.blanks(lines=True)
            links.append((op, self.pipe()))

    def pipe(self) -> Node:
        """Read commands with `|` between them."""
        items = [self.command()]
        while True:
            self.blanks()
            if self.sign != "|" or self.next_sign == "|":
                return Pipe(items) if len(items) > 1 else items[0]
            self.at += 2 if self.next_sign == "&" else 1
            self.blanks(lines=True)
            items.append(self.command())

    # Commands

    def command(self) -> Node:
        """Read one command."""
        self.blanks()
        self.budget.spend()
        start = self.at
        match = self.skip(_OPENER)
        if match is None:
            return self.simple()
        word = match[0]
        if word in ("!", "time", "coproc"):
            return self.behind(word)
        self.enter()
        try:
            if word == "((":
                end = self.closing(self.at)
                if end >= 0:
                    self.at = end + 2
                    return Test(
                        [self.within(self.text[match.end() : end]).quoted_parts()],
                        self.redirects(),
                        "count",
                    )
                self.at = start + 1
                word = "("
            return self.compound(word)
        finally:
            self.nesting -= 1

    def behind(self, word: str) -> Node:
        """Read the command behind `!`, `time` or `coproc`."""
        self.blanks()
        if word == "time":
            self.skip(_TIME_OPTION)
        elif word == "coproc":
            self.skip(_COPROC_NAME)
        self.enter()
        try:
            node = self.command()
            # What it starts reads from a pipe that others write into.
            return Pipe([Simple(words=[(Lit(word),)]), node]) if word == "coproc" else node
        finally:
            self.nesting -= 1

    def compound(self, word: str) -> Node:
        """Read a command that holds others."""
        match word:
            case "(" | "{":
                body = self.block()
                self.expect(")" if word == "(" else "}")
                return GroupCommand(body, word == "(", self.redirects())
            case "[[":
                return self.test()
            case "if":
                return self.conditional()
            case "while" | "until":
                test = self.block()
                self.expect("do")
                body = self.block()
                self.expect("done")
                return While(test, body, self.redirects())
            case "for" | "select":
                return self.loop()
            case "case":
                return self.cases()
            case _:
                self.blanks()
                name = self.text_of(self.word())
                self.skip(_FUNCTION)
                self.blanks(lines=True)
                return Func(name, self.command())

    def conditional(self) -> Node:
        """Read `if`."""
        branches: list[tuple[Seq, Seq]] = []
        other = None
        while True:
            test = self.block()
            self.expect("then")
            branches.append((test, self.block()))
            closer = self.expect("elif", "else", "fi")
            if closer == "else":
                other = self.block()
                closer = self.expect("fi")
            if closer == "fi":
                return If(branches, other, self.redirects())

    def loop(self) -> Node:
        """Read `for` or `select`."""
        self.blanks()
        words: list[Parts] | None = None
        parts: Parts = ()
        name = ""
        if self.text.startswith("((", self.at):
            end = self.closing(self.at + 2)
            if end < 0:
                raise self.wrong("`))` is missing")
            parts = self.within(self.text[self.at + 2 : end]).quoted_parts()
            self.at = end + 2
        else:
            name = self.text_of(self.word())
            self.blanks(lines=True)
            if self.skip(_IN):
                words = self.words_of_line()
        self.blanks(lines=True)
        if self.text.startswith(";", self.at):
            self.at += 1
        closer = self.opened("do", "{")
        body = self.block()
        self.expect("done" if closer == "do" else "}")
        return For(name, words, body, self.redirects(), parts)

    def words_of_line(self) -> list[Parts]:
        """Read words up to the end of the command."""
        words: list[Parts] = []
        while True:
            self.blanks()
            if self.sign in ("", "\n", ";", "&", "|", ")"):
                return words
            words.append(self.word())

    def opened(self, *openers: str) -> str:
        """Read one of these words."""
        self.blanks(lines=True)
        for opener in openers:
            if self.text.startswith(opener, self.at):
                self.at += len(opener)
                return opener
        raise self.wrong(f"`{openers[0]}` is missing")

    def cases(self) -> Node:
        """Read `case`."""
        self.blanks()
        word = self.word()
        self.opened("in")
        branches: list[tuple[list[Parts], Seq, bool]] = []
        while True:
            self.blanks(lines=True)
            if self.skip(_ESAC):
                return CaseCommand(word, branches, self.redirects())
            if self.text.startswith("(", self.at):
                self.at += 1
            patterns = []
            while True:
                self.blanks()
                patterns.append(self.word())
                self.blanks()
                sign = self.sign
                self.at += 1
                if sign == ")":
                    break
                if sign != "|":
                    raise self.wrong("`)` is missing")
            body = self.block()
            match = _CLOSER.match(self.text, self.at)
            closer = match[0] if match else ""
            if closer in (";;", ";&", ";;&"):
                self.at += len(closer)
            elif closer != "esac":
                raise self.wrong("`esac` is missing")
            branches.append((patterns, body, closer not in (";;", "esac")))

    def test(self) -> Node:
        """Read `[[ ... ]]`: its signs mean other things there, so only its words matter."""
        words: list[Parts] = []
        while True:
            self.blanks(lines=True)
            sign = self.sign
            if not sign:
                raise self.wrong("`]]` is missing")
            if sign in "()<>&|;!" and not self.text.startswith(("<(", ">("), self.at):
                self.at += 1
                continue
            word = self.word()
            if (
                len(word) == 1
                and isinstance(word[0], Lit)
                and not word[0].is_quoted
                and word[0].text == "]]"
            ):
                return Test(words, self.redirects())
            words.append(word)

    def simple(self) -> Node:
        """Read a simple command, or a function by its brackets."""
        node = Simple()
        text = self.text
        remainder_at = self.at
        while True:
            plain = _PLAIN_WORD.match(text, self.at)
            # the first word may be an assignment, or the beginning of one
            if plain and (node.words or not ("=" in plain[1] or "[" in plain[1])):
                self.budget.spend()
                self.at = plain.end()
                node.words.append((Lit(plain[1]),))
                if len(node.words) == 1:
                    remainder_at = self.at
                continue
            self.blanks()
            at = self.at
            sign = self.sign
            if sign in ("", "\n", ";", "|", ")"):
                break
            if sign == "(":
                match = _FUNCTION.match(text, at)
                if len(node.words) != 1 or not match:
                    raise self.wrong("no place for this")
                self.at = match.end()
                self.blanks(lines=True)
                self.enter()
                body = self.command()
                self.nesting -= 1
                return Func(self.text_of(node.words[0]), body)
            if sign in "<>&{0123456789" and (match := REDIRECT.match(text, at)):
                node.redirs.append(self.redirect(match))
                continue
            if sign == "&":
                break
            if not node.words and (match := ASSIGN.match(text, at)):
                self.at = match.end()
                node.assigns.append(Assign(match[1], match[2] or "", bool(match[3]), self.value()))
                continue
            node.words.append(self.word())
            if len(node.words) == 1:
                remainder_at = self.at
        if not (node.words or node.assigns or node.redirs):
            raise self.wrong("a command is missing")
        node.remainder = text[remainder_at : self.at]
        return node

    def value(self) -> Parts:
        """Read what is assigned: a word, an array or nothing."""
        if self.text.startswith("(", self.at):
            return (self.array(),)
        return self.word(may_be_empty=True)

    def expect(self, *closers: str) -> str:
        """Read one of these closers."""
        self.blanks(lines=True)
        match = _CLOSER.match(self.text, self.at)
        if match is None or match[0] not in closers:
            raise self.wrong(f"`{closers[-1]}` is missing")
        self.at = match.end()
        return match[0]


def parse(text: str, budget: StepBudget) -> tuple[Seq, list[str]]:
    """Read a text: its commands, and what was wrong with it. Raises OutOfWork."""
    parser = Parser(text, budget)
    return parser.program(), parser.errors
