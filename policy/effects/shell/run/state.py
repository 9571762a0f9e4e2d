"""What one reading of a text knows: the commands found so far, the small files that the text
writes, and other names for programs."""

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from policy.effects.shell.command import Program, Word
from policy.effects.shell.parse.budget import StepBudget
from policy.effects.shell.parse.tree import Node, Seq
from policy.effects.shell.run.values import (
    HERE,
    HOME,
    MAX_VALUE,
    UNKNOWN,
    Field,
    Unknowns,
    is_known,
)
from policy.effects.shell.run.variables import Variables

_MAX_COMMANDS = 512
_MAX_REASONS = 16
_MAX_FILES = 32
_COUNTS = frozenset(
    "let unset read test [ printf declare typeset local export mapfile readarray wait".split()
)
_INDEX = re.compile(
    r"(?:^|[=+*/%(\[, -])[A-Za-z_]\w{0,64}\[[^\]\[`$]*(?:\$[^(\]\[`$][^\]\[`$]*)*(?:\$\(|`)",
    re.ASCII,
)
_NOWHERE = ("/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty", "-", *"0123456789")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,3})")


class Out(msgspec.Struct):
    """What something prints: a text, with unknown parts, and the commands that print it."""

    text: str = ""
    commands: list[int] = []


class Invocation(msgspec.Struct):
    """A command that is about to run: its words as they are now, and what is around it."""

    fields: list[Field]
    assigns: list[tuple[str, str]] = []
    redirs: list[tuple[str, int, Field]] = []
    stdin: Out | None = None
    file: Field | None = None
    """The file that it reads, if its input is one."""
    is_root: bool = False
    wrappers: tuple[str, ...] = ()
    place: Literal["here", "container", "remote", "image"] = "here"
    host: str = ""

    @property
    def words(self) -> list[str]:
        """The texts of the words behind its name."""
        return texts(self.fields[1:])

    def at(self, place: int) -> str:
        """Return the text of a word; "" behind the last."""
        return self.fields[place].text if place < len(self.fields) else ""

    def inner(self, fields: list[Field], wrapper: str) -> "Invocation":
        """Make the call of a command within this one."""
        return replace(self, fields=fields, wrappers=(*self.wrappers, wrapper))


class PendingCommand(msgspec.Struct):
    """A command that was found, while it is not known yet who reads what it prints."""

    call: Invocation
    name: str
    programs: tuple[Program, ...]
    cwd: str
    feeds: int | None = None


class ShellState:
    """The knowledge of one reading, without the grammar."""

    def __init__(self, home: str, project: str) -> None:
        self.folders = (home, project)
        self.budget = StepBudget()
        self.unknowns = Unknowns()
        self.drafts: list[PendingCommand] = []
        self.reasons: list[str] = []
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.aliases: dict[str, str] = {}
        self.files: dict[str, str] = {}
        """Small files that the text itself writes."""
        self.descriptors: dict[int, Out] = {}
        """What is read from an open file, by its number."""
        self.is_child = False
        """The program that runs now is a child of the shell, which knows its functions if they are
        exported alone."""
        self.has_forgotten = False
        """More files were written than are kept."""
        self.links: dict[str, str] = {"/proc/self/exe": "/bin/bash"}
        """Programs under another name: by `ln`, `cp`, `hash -p`."""
        self.sinks: dict[str, Seq] = {}
        """What reads a `>(...)`, by the character that names it."""
        self.sources: dict[str, Out] = {}
        """What a `<(...)` prints, by the character that names it."""
        self.choices: dict[str, tuple[str, ...]] = {}
        """What a variable may hold after branches, by the character that stands for it."""
        self.git_aliases: dict[str, str] = {}
        self.depth = 0
        self.around = Invocation([])
        """What is around all commands of the program that runs now."""
        self.variables = Variables()

    def unsure(self, reason: str) -> None:
        """Note why something is not known; each reason once."""
        if reason not in self.reasons and len(self.reasons) < _MAX_REASONS:
            self.reasons.append(reason[:200])

    def look_at_index(self, *texts: str) -> None:
        """Look at words that a sum may be made of: bash runs the commands in the index of an array,
        quoted or not."""
        if any("[" in text and _INDEX.search(text[:2000]) for text in texts):
            self.unsure("decode: an index of an array that runs commands")

    def emit(self, call: Invocation, *programs: Program, name: str | None = None) -> int:
        """Note a command; return its place."""
        if call.fields and call.fields[0].text in _COUNTS:
            self.look_at_index(*(field.text for field in call.fields[1:]))
        self.budget.spend(512)
        if len(self.drafts) >= _MAX_COMMANDS:
            self.unsure("size: more commands than are noted")
            return len(self.drafts) - 1
        self.drafts.append(
            PendingCommand(call, base_name(call) if name is None else name, programs, self.cwd())
        )
        return len(self.drafts) - 1

    def unknown_output(self, place: int) -> Out:
        """Return the output of a command of which nothing is known."""
        return Out(self.unknowns.make((), (place,)), [place])

    def noted(self, call: Invocation, *programs: Program) -> Out:
        """Note a command of whose output nothing is known."""
        return self.unknown_output(self.emit(call, *programs))

    def silent(self, call: Invocation) -> Out:
        """Note a command that prints nothing."""
        return Out("", [self.emit(call)])

    def read_around(self, redirs: list[tuple[str, int, Field]], stdin: Out | None) -> Out | None:
        """Note which files commands read together, by a redirect around all of them; return what
        they read. Nobody of them has it."""
        for op, fd, target in redirs:
            if op in ("<", "<>") and (stdin is None or fd):
                place = self.emit(
                    replace(
                        self.around,
                        fields=[],
                        assigns=[],
                        redirs=[(op, fd, target)],
                        stdin=None,
                        file=target,
                    ),
                    name="",
                )
                stdin = stdin if fd else self.unknown_output(place)
        return stdin

    def write_around(self, redirs: list[tuple[str, int, Field]], out: Out) -> None:
        """Note where a redirect around commands puts what all of them print."""
        made = [
            (op, fd, target)
            for op, fd, target in redirs
            if ">" in op and op != "<>" and target.text not in (*_NOWHERE, *self.sinks)
        ]
        if made:
            stdin = out if any(fd in (1, -1) for _, fd, _ in made) else None
            self.emit(
                replace(self.around, fields=[], assigns=[], redirs=made, stdin=stdin, file=None),
                name="",
            )

    def cwd(self) -> str:
        """Return the folder that a `cd` led to; "" if none did."""
        value = self.variables.values.get("PWD", "")
        return value if isinstance(value, str) else ""

    def word_of(self, field: Field) -> Word:
        """Make the word that others see of a field."""
        return self.unknowns.word(field, *self.folders)

    def word(self, text: str) -> Word:
        """Make a word of one text."""
        return self.word_of(Field(text))

    def read(self, path: str) -> Out | None:
        """Return what a file holds, if the text wrote it itself or it is a `<(...)`; None if nobody
        knows."""
        if path in self.sources:
            return self.sources[path]
        if (number := _DESCRIPTOR.fullmatch(path)) is not None:
            return self.descriptors.get(int(number[1]))
        text = self.files.get(self.path(path))
        if text is None and self.has_forgotten:
            self.unsure("size: more files are written than are kept")
        return None if text is None else Out(text)

    def write(self, path: str, text: str, *, is_more: bool = False) -> None:
        """Keep what the text writes into a file, as it may run it later."""
        path = self.path(path)
        if is_more:
            text = self.files.get(path, "") + text
        if len(self.files) < _MAX_FILES or path in self.files:
            self.budget.spend(len(text))
            self.files[path] = text if len(text) <= 4 * MAX_VALUE else self.unknowns.blur(text)
            self.links.pop(path, None)
        else:
            self.has_forgotten = True

    def path(self, path: str) -> str:
        """Return one spelling of a path: without `.` and `..`, from the folder that a `cd` led
        to."""
        if not path.startswith(("/", HOME, HERE)) and not (path and not is_known(path[0])):
            path = f"{self.cwd() or HERE}/{path}"
        made: list[str] = []
        for step in path.split("/"):
            if step == ".." and made == [""]:
                continue
            if step == ".." and made and made[-1] not in ("..", HERE, HOME) and is_known(made[-1]):
                made.pop()
            elif step not in ("", ".") or not made:
                made.append(step)
        return "/".join(made) or "/"


def base_name(call: Invocation) -> str:
    """Return the name of the command, as far as it is known."""
    text = call.at(0)
    known = text if text.isascii() else UNKNOWN.sub("", text)
    return known.rstrip("/").rpartition("/")[2].lower().removesuffix(".exe")


def texts(fields: list[Field]) -> list[str]:
    """Return the texts of words."""
    return [field.text for field in fields]
