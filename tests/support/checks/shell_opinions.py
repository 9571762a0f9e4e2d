"""What two parsers find in a shell text, in one form: ours (`policy.effects.shell.parse.parsing`)
and tree-sitter's grammar of bash.

A command is a tuple of its words as a shell hands them on; HOLE stands for what is known only when
it runs. Commands and redirects are counted without their place, since the two trees nest them
differently.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import tree_sitter
import tree_sitter_bash

from policy.effects.shell.parse.budget import NotRead, OutOfWork, StepBudget
from policy.effects.shell.parse.escapes import ansi_c
from policy.effects.shell.parse.parsing import parse
from policy.effects.shell.parse.tree import (
    AndOrList,
    Arith,
    Array,
    Assign,
    CaseCommand,
    For,
    Func,
    GroupCommand,
    If,
    Lit,
    Node,
    Param,
    Parts,
    Pipe,
    Proc,
    Redir,
    Seq,
    Simple,
    Sub,
    Test,
    While,
)

HOLE = "\1"
Found = Counter[tuple[str, ...]]
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
_HOLES = frozenset(
    (
        "simple_expansion",
        "expansion",
        "command_substitution",
        "arithmetic_expansion",
        "process_substitution",
    )
)
_CHECKED = frozenset(
    (
        "unary_expression",
        "binary_expression",
        "parenthesized_expression",
        "negation_expression",
        "concatenation",
    )
)


def ours(text: str) -> tuple[Found, bool]:
    """Return what our parser finds, and whether it is sure of all of it."""
    found: Found = Counter()
    try:
        body, errors = parse(text, StepBudget())
    except (OutOfWork, NotRead):
        return found, False
    _of_node(body, found)
    return found, not errors


def _of_node(node: Node | None, found: Found) -> None:
    match node:
        case Simple():
            words = [_word(word, found) for word in node.words]
            for assign in node.assigns:
                _assigned(assign, found)
            if words:
                found["run", *words] += 1
            _redirects(node.redirs, found)
        case Pipe():
            for item in node.items:
                _of_node(item, found)
        case AndOrList():
            for item in (node.first, *(item for _, item in node.links)):
                _of_node(item, found)
        case Seq():
            for item, _ in node.items:
                _of_node(item, found)
        case GroupCommand():
            _of_node(node.body, found)
            _redirects(node.redirs, found)
        case If():
            for test, body in node.branches:
                _of_node(test, found)
                _of_node(body, found)
            _of_node(node.other, found)
            _redirects(node.redirs, found)
        case While():
            _of_node(node.test, found)
            _of_node(node.body, found)
            _redirects(node.redirs, found)
        case For():
            parts = [_word(word, found) for word in node.words or []]
            if node.name:
                found["for", node.name, *parts] += 1
            _word(node.parts, found)
            _of_node(node.body, found)
            _redirects(node.redirs, found)
        case CaseCommand():
            found["case", _word(node.word, found)] += 1
            for patterns, body, _ in node.branches:
                found["pattern", *(_word(pattern, found) for pattern in patterns)] += 1
                _of_node(body, found)
            _redirects(node.redirs, found)
        case Func():
            found["function", node.name] += 1
            _of_node(node.body, found)
        case Test():
            for word in node.words:
                _word(word, found)
            _redirects(node.redirs, found)


def _assigned(assign: Assign, found: Found) -> None:
    found["assign", assign.name, "+=" if assign.is_more else "=", _word(assign.value, found)] += 1


def _redirects(redirs: Iterable[Redir], found: Found) -> None:
    for redir in redirs:
        target = _word(redir.target, found)
        if redir.op in ("<<", "<<-"):
            target = _loose(_word(redir.body or (), found))
        found["redirect", str(redir.fd), redir.op, target] += 1


def _word(parts: Parts, found: Found) -> str:
    return "".join(_part(part, found) for part in parts)


def _part(part: Any, found: Found) -> str:
    match part:
        case Lit():
            return part.text
        case Array():
            return f"({' '.join(_word(word, found) for word in part.words)})"
        case Param():
            for inner in (*part.args, part.index or ()):
                _word(inner, found)
        case Sub() | Proc():
            _of_node(part.body, found)
        case Arith():
            _word(part.parts, found)
    return HOLE


def _loose(body: str) -> str:
    """Return a heredoc's text without what the two escape differently."""
    return re.sub(r"[\\\s]+", "", body)


def theirs(text: str) -> tuple[Found, bool]:
    """Return what tree-sitter's grammar finds, and whether it has no error."""
    source = text.encode()
    root = _PARSER.parse(source).root_node
    found: Found = Counter()
    _Theirs(source, found).walk(root)
    return found, not root.has_error


class _Theirs:
    def __init__(self, source: bytes, found: Found) -> None:
        self.source = source
        self.found = found

    def text(self, node: Any) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def walk(self, node: Any) -> None:
        """Count what the node and all within it are."""
        found = self.found
        match node.type:
            case "command":
                words = [
                    self.word(child)
                    for child in self.behind(node)
                    if child.type not in ("variable_assignment", "subshell")
                ]
                if words[0] == "time" and self.text(node).startswith("time"):
                    del words[: 2 if words[1:2] in (["-p"], ["--"]) else 1]
                if words:
                    found["run", *words] += 1
            case "declaration_command" | "unset_command":
                found["run", *(self.word(child) for child in self.behind(node))] += 1
            case "test_command":
                words = list(self.tested(node))
                if words[0] == "[":
                    found["run", *words] += 1
            case "variable_assignment" if node.parent.type not in (
                "declaration_command",
                "c_style_for_statement",
            ):
                name, sign, value = self.assigned(node)
                found["assign", name.partition("[")[0], sign, value] += 1
            case "file_redirect" | "herestring_redirect" | "heredoc_redirect":
                self.redirect(node)
            case "for_statement":
                words = node.children_by_field_name("variable") + node.children_by_field_name(
                    "value"
                )
                found["for", *(self.word(child) for child in words)] += 1
            case "case_statement":
                found[
                    "case", *(self.word(child) for child in node.children_by_field_name("value"))
                ] += 1
            case "case_item":
                found[
                    "pattern", *(self.word(child) for child in node.children_by_field_name("value"))
                ] += 1
            case "function_definition":
                found[
                    "function", *(self.word(child) for child in node.children_by_field_name("name"))
                ] += 1
            case "comment":
                return
        for child in node.children:
            self.walk(child)

    def behind(self, node: Any) -> Iterator[Any]:
        """Return the words of a command, also those that stand behind its redirects."""
        if node.type == "command":
            for child in node.children:
                # A `$` is no word where it stands right before a string that is to be translated.
                is_sign = (
                    child.type == "$"
                    and child.next_sibling is not None
                    and child.next_sibling.start_byte == child.end_byte
                )
                if not is_sign and not child.type.endswith("_redirect"):
                    yield child
        else:
            yield from node.children
        around, inner = node.parent, node
        while (
            around is not None
            and around.type in ("pipeline", "list", "negated_command")
            and around.end_byte == node.end_byte
        ):
            around, inner = around.parent, around
        redirects: list[Any] = []
        if (
            around is not None
            and around.type == "redirected_statement"
            and around.child_by_field_name("body") == inner
        ):
            redirects = around.children_by_field_name("redirect")
        for redirect in [*node.children_by_field_name("redirect"), *redirects]:
            if redirect.type == "heredoc_redirect":
                yield from redirect.children_by_field_name("argument")
            yield from redirect.children_by_field_name("destination")[1:]

    def redirect(self, node: Any) -> None:
        sign = next((child for child in node.children if not child.is_named), None)
        op = self.text(sign) if sign is not None else ""
        number = node.child_by_field_name("descriptor")
        written = self.text(number) if number is not None else ""
        fd = written if written.isdigit() else "-1" if written else "0" if op[:1] == "<" else "1"
        if node.type == "heredoc_redirect":
            body = next((child for child in node.children if child.type == "heredoc_body"), None)
            target = (
                _loose(
                    self.pieces(
                        body,
                        body.start_byte,
                        body.end_byte,
                        _HEREDOC if _is_open(self, node) else None,
                    )
                )
                if body
                else ""
            )
        elif node.type == "herestring_redirect":
            target = self.word(node.named_children[-1])
        else:
            targets = node.children_by_field_name("destination")
            target = self.word(targets[0]) if targets else ""
            op, target = (op[:2], "-") if op in ("<&-", ">&-") else (op, target)
        self.found["redirect", fd, op, target] += 1

    def tested(self, node: Any) -> Iterator[str]:
        for child in node.children:
            if child.type in _CHECKED - {"concatenation"}:
                yield from self.tested(child)
            else:
                yield self.word(child)

    def assigned(self, node: Any) -> tuple[str, str, str]:
        value = node.child_by_field_name("value")
        sign = "+=" if any(child.type == "+=" for child in node.children) else "="
        return (
            self.text(node.child_by_field_name("name")),
            sign,
            self.word(value) if value is not None else "",
        )

    def word(self, node: Any) -> str:
        """Return a word as the shell hands it on."""
        kind = node.type
        if kind in _HOLES:
            return HOLE
        if kind == "raw_string":
            return self.text(node)[1:-1]
        if kind == "ansi_c_string":
            return ansi_c(self.text(node)[2:-1])
        if kind == "string":
            return self.pieces(node, node.start_byte + 1, node.end_byte - 1, _QUOTED)
        if kind == "translated_string":
            return self.word(node.named_children[-1])
        if kind == "array":
            return f"({' '.join(self.word(child) for child in node.named_children if child.type != 'comment')})"
        if kind == "variable_assignment":
            return "".join(self.assigned(node))
        if kind in ("concatenation", "command_name", "subscript"):
            return "".join(self.word(child) for child in node.children)
        return self.pieces(node, node.start_byte, node.end_byte, _PLAIN)

    def pieces(self, node: Any, start: int, end: int, escape: re.Pattern[str] | None) -> str:
        """Return the text of a node with a hole for each expansion in it."""
        pieces = []
        for child in node.named_children:
            if child.type in _HOLES:
                # The grammar counts blanks before an expansion as part of it.
                blanks = len(self.text(child)) - len(self.text(child).lstrip())
                pieces += [self.plain(start, child.start_byte + blanks, escape), HOLE]
                start = child.end_byte
        return "".join((*pieces, self.plain(start, end, escape)))

    def plain(self, start: int, end: int, escape: re.Pattern[str] | None) -> str:
        text = self.source[start:end].decode("utf-8", "replace")
        return escape.sub(lambda found: found[1].replace("\n", ""), text) if escape else text


_QUOTED = re.compile(r'\\([$`"\\\n])')
_HEREDOC = re.compile(r"\\([$`\\\n])")
_PLAIN = re.compile(r"\\(.)", re.DOTALL)


def _is_open(reader: _Theirs, node: Any) -> bool:
    start = next(child for child in node.children if child.type == "heredoc_start")
    return not set(reader.text(start)) & set("'\"\\")
