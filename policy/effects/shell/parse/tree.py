"""The parts of a shell text as the parser finds them, before any of them is given a value."""

from typing import Literal, TypeAlias

import msgspec


class Lit(msgspec.Struct):
    """Text that stands for itself; unquoted, its braces, globs and tilde count."""

    text: str
    is_quoted: bool = False


class Param(msgspec.Struct):
    """`$name`, `${name}` and its forms. `op` is one of the forms' signs, "" for the plain value,
    "?" for one that is not understood."""

    name: str
    is_quoted: bool = False
    op: str = ""
    args: tuple["Parts", ...] = ()
    index: "Parts | None" = None
    is_indirect: bool = False


class Sub(msgspec.Struct):
    """`$(...)` or backticks: what the commands in it print."""

    body: "Seq"
    is_quoted: bool = False


class Arith(msgspec.Struct):
    """`$((...))`: a number."""

    parts: "Parts"
    is_quoted: bool = False


class Proc(msgspec.Struct):
    """`<(...)` or `>(...)`: a file that commands print into, or read."""

    op: str
    body: "Seq"


class Array(msgspec.Struct):
    """`(a b c)` behind an assignment."""

    words: "list[Parts]"


Part: TypeAlias = Lit | Param | Sub | Arith | Proc | Array
Parts: TypeAlias = tuple[Part, ...]


class Redir(msgspec.Struct):
    """One redirect; `body` is the text of a heredoc, once it has been read."""

    op: str
    fd: int
    target: Parts
    body: Parts | None = None


class Assign(msgspec.Struct):
    """`name=value`, `name[index]=value`, `name+=value`."""

    name: str
    index: str
    is_more: bool
    value: Parts


class Simple(msgspec.Struct):
    """A command with its words. `remainder` is the source after its first word, for an alias to
    go before."""

    assigns: list[Assign] = []
    words: list[Parts] = []
    redirs: list[Redir] = []
    remainder: str = ""


class Pipe(msgspec.Struct):
    """Commands of which each reads what the one before prints."""

    items: "list[Node]"


class AndOrList(msgspec.Struct):
    """Commands with `&&` and `||` between them."""

    first: "Node"
    links: "list[tuple[str, Node]]"


class Seq(msgspec.Struct):
    """Commands one after the other; with each, whether it goes to the background."""

    items: "list[tuple[Node, bool]]"


class GroupCommand(msgspec.Struct):
    """`{ ...; }`, or `( ... )`, whose variables end with it."""

    body: Seq
    is_subshell: bool
    redirs: list[Redir]


class If(msgspec.Struct):
    """`if`, with a condition and a body for each branch, and the last `else`."""

    branches: list[tuple[Seq, Seq]]
    other: Seq | None
    redirs: list[Redir]


class While(msgspec.Struct):
    """`while` and `until`."""

    test: Seq
    body: Seq
    redirs: list[Redir]


class For(msgspec.Struct):
    """`for` and `select`; `words` is None where it takes the arguments, or counts."""

    name: str
    words: list[Parts] | None
    body: Seq
    redirs: list[Redir]
    parts: Parts = ()
    """Of the counting form: what stands in its brackets."""


class CaseCommand(msgspec.Struct):
    """`case`: patterns and a body for each branch, and whether it falls through."""

    word: Parts
    branches: list[tuple[list[Parts], Seq, bool]]
    redirs: list[Redir]


class Func(msgspec.Struct):
    """A function that is given a name."""

    name: str
    body: "Node"


class Test(msgspec.Struct):
    """`[[ ... ]]` or `(( ... ))`: tests and counts; commands within its words run."""

    words: list[Parts]
    redirs: list[Redir]
    kind: Literal["test", "count"] = "test"


Node: TypeAlias = (
    Simple | Pipe | AndOrList | Seq | GroupCommand | If | While | For | CaseCommand | Func | Test
)
_GOES_ON = frozenset(
    "cd mkdir export echo printf true : set shopt alias local declare readonly touch source".split()
)
"""Commands that fail by accident alone: what follows them behind `&&` is taken to run."""


def goes_on(node: Node) -> bool:
    """Tell whether the node fails by accident alone."""
    if not isinstance(node, Simple):
        return False
    if not node.words:
        return True
    first = node.words[0]
    return len(first) == 1 and isinstance(first[0], Lit) and first[0].text in _GOES_ON


def reading(test: Seq) -> Simple | None:
    """Return the `read` in the condition of a loop, if that is all there is."""
    node = test.items[0][0] if len(test.items) == 1 else None
    if (
        isinstance(node, Simple)
        and node.words
        and len(node.words[0]) == 1
        and isinstance(node.words[0][0], Lit)
    ):
        return node if node.words[0][0].text == "read" and not node.redirs else None
    return None


def counted(text: str) -> list[str]:
    """Return the names that a counting loop sets."""
    return [
        piece.partition("=")[0].strip()
        for piece in text.split(";")[0].split(",")
        if piece.partition("=")[0].strip().isidentifier()
    ]
