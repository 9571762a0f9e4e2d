"""Parses the redirects of a shell text, and the texts of its heredocs, which come with the next
line.
"""

import re

from policy.effects.shell.parse.tree import Lit, Redir
from policy.effects.shell.parse.words import WordReader
from policy.effects.shell.variable_names import OWN_NAME

REDIRECT = re.compile(
    r"(\d{1,4}|\{[A-Za-z_]\w*\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|<(?!\()|>(?!\())", re.ASCII
)


class RedirectReader(WordReader):
    """Reads redirects and what goes with them."""

    def redirects(self) -> list[Redir]:
        """Read the redirects behind a command."""
        redirects: list[Redir] = []
        while True:
            self.blanks()
            match = REDIRECT.match(self.text, self.at)
            if match is None:
                return redirects
            redirects.append(self.redirect(match))

    def redirect(self, match: re.Match[str]) -> Redir:
        """Read one redirect."""
        number, op = match[1], match[2]
        self.at = match.end()
        self.blanks()
        fd = (
            (0 if op[0] == "<" else 1)
            if number is None
            else int(number)
            if number.isdigit()
            else -1
        )
        if fd < 0 and not OWN_NAME.fullmatch(number[1:-1]):
            self.errors.append("name: a redirect sets a variable that programs read")
        start = self.at
        redir = Redir(op, fd, self.word())
        if op in ("<<", "<<-"):
            source = self.text[start : self.at]
            is_quoted = any(sign in source for sign in "'\"\\")
            last = self.text_of(redir.target) if is_quoted else source
            self.pending.append((redir, last, is_quoted))
        return redir

    def heredocs(self) -> None:
        """Read the texts of the heredocs of the line before."""
        for redir, last, is_quoted in self.pending:
            text, start = self.text, self.at
            lines = []
            while True:
                end = text.find("\n", self.at)
                line = text[self.at : end] if end >= 0 else text[self.at :]
                self.at = end + 1 if end >= 0 else len(text)
                line = line.lstrip("\t") if redir.op == "<<-" else line
                if line == last:
                    break
                lines.append(line)
                if end < 0:
                    break
            self.budget.spend(self.at - start)
            body = "".join(f"{line}\n" for line in lines)
            redir.body = (
                (Lit(body, is_quoted=True),) if is_quoted else self.within(body).quoted_parts()
            )
        self.pending = []
