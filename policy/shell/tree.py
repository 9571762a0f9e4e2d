"""The parts of a shell text as the parser finds them, before any of them is given a value."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(slots=True)
class Lit:
    """Text that stands for itself; unquoted, its braces, globs and tilde count."""

    text: str
    is_quoted: bool = False


@dataclass(slots=True)
class Param:
    """`$name`, `${name}` and its forms. `op` is one of the forms' signs, "" for the plain value, "?" for one that is not understood."""

    name: str
    is_quoted: bool = False
    op: str = ""
    args: tuple["Parts", ...] = ()
    index: "Parts | None" = None
    is_indirect: bool = False


@dataclass(slots=True)
class Sub:
    """`$(...)` or backticks: what the commands in it print."""

    body: "Seq"
    is_quoted: bool = False


@dataclass(slots=True)
class Arith:
    """`$((...))`: a number."""

    parts: "Parts"
    is_quoted: bool = False


@dataclass(slots=True)
class Proc:
    """`<(...)` or `>(...)`: a file that commands print into, or read."""

    op: str
    body: "Seq"


@dataclass(slots=True)
class Array:
    """`(a b c)` behind an assignment."""

    words: "list[Parts]"


Part: TypeAlias = Lit | Param | Sub | Arith | Proc | Array
Parts: TypeAlias = tuple[Part, ...]


@dataclass(slots=True)
class Redir:
    """One redirect; `body` is the text of a heredoc, once it has been read."""

    op: str
    fd: int
    target: Parts
    body: Parts | None = None


@dataclass(slots=True)
class Assign:
    """`name=value`, `name[index]=value`, `name+=value`."""

    name: str
    index: str
    is_more: bool
    value: Parts


@dataclass(slots=True)
class Simple:
    """A command with its words. `rest` is the source behind its first word: what an alias is put before."""

    assigns: list[Assign] = field(default_factory=list)
    words: list[Parts] = field(default_factory=list)
    redirs: list[Redir] = field(default_factory=list)
    rest: str = ""


@dataclass(slots=True)
class Pipe:
    """Commands of which each reads what the one before prints."""

    items: "list[Node]"


@dataclass(slots=True)
class Chain:
    """Commands with `&&` and `||` between them."""

    first: "Node"
    rest: "list[tuple[str, Node]]"


@dataclass(slots=True)
class Seq:
    """Commands one after the other; with each, whether it goes to the background."""

    items: "list[tuple[Node, bool]]"


@dataclass(slots=True)
class Group:
    """`{ ...; }`, or `( ... )`, whose variables end with it."""

    body: Seq
    is_subshell: bool
    redirs: list[Redir]


@dataclass(slots=True)
class If:
    """`if`, with a condition and a body for each branch, and the last `else`."""

    branches: list[tuple[Seq, Seq]]
    other: Seq | None
    redirs: list[Redir]


@dataclass(slots=True)
class While:
    """`while` and `until`."""

    test: Seq
    body: Seq
    redirs: list[Redir]


@dataclass(slots=True)
class For:
    """`for` and `select`; `words` is None where it takes the arguments, or counts."""

    name: str
    words: list[Parts] | None
    body: Seq
    redirs: list[Redir]
    parts: Parts = ()
    """Of the counting form: what stands in its brackets."""


@dataclass(slots=True)
class Case:
    """`case`: patterns and a body for each branch, and whether it falls through."""

    word: Parts
    branches: list[tuple[list[Parts], Seq, bool]]
    redirs: list[Redir]


@dataclass(slots=True)
class Func:
    """A function that is given a name."""

    name: str
    body: "Node"


@dataclass(slots=True)
class Test:
    """`[[ ... ]]` or `(( ... ))`: tests and counts; commands within its words run."""

    words: list[Parts]
    redirs: list[Redir]
    kind: Literal["test", "count"] = "test"


Node: TypeAlias = Simple | Pipe | Chain | Seq | Group | If | While | For | Case | Func | Test
_GOES_ON = frozenset(
    ("cd", "mkdir", "export", "echo", "printf", "true", ":", "set", "shopt", "alias", "local", "declare", "readonly", "touch", "source")
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
    if isinstance(node, Simple) and node.words and len(node.words[0]) == 1 and isinstance(node.words[0][0], Lit):
        return node if node.words[0][0].text == "read" and not node.redirs else None
    return None


def counted(text: str) -> list[str]:
    """Return the names that a counting loop sets."""
    return [piece.partition("=")[0].strip() for piece in text.split(";")[0].split(",") if piece.partition("=")[0].strip().isidentifier()]
