"""The commands that a shell text would run, as values: what `resolving` finds and what effects are
made of.

Quotes, variables, aliases, wrappers and programs within programs are gone by here: `sudo env X=1
r'm' -rf "$dir"` is a `Command` named `rm`. What cannot be known without running it stays marked as
such, never guessed.
"""

from itertools import pairwise
from typing import Literal

import msgspec


class Word(msgspec.Struct, frozen=True):
    """One word of a command, after all that a shell does to it but opening its globs.

    `text` is None where part of it is known only when it runs. Then `prefix` is how it surely
    begins, and `bare` what is left of it if every unknown part is empty: `rm -rf "/$dir"` has the
    prefix `/` and is bare `/`. Home is written `~` at the start; a file really called `~` is `./~`.
    """

    text: str | None
    prefix: str = ""
    bare: str = ""
    is_glob: bool = False
    """Has `*`, `?` or `[` that the shell opens: it may stand for many paths."""
    is_many: bool = False
    """May be several words or none: `"$@"`, an unquoted variable, what `xargs` reads or `find`
    finds."""
    variables: tuple[str, ...] = ()
    """Names of the variables in it whose value is not known, as `AWS_SECRET_ACCESS_KEY`."""
    outputs: tuple[int, ...] = ()
    """Commands, by their place in the list, whose output is part of it."""
    gaps: tuple[int, ...] = ()
    """Where in `bare` its unknown parts stand."""

    def filled(self, by: str) -> str:
        """Return the text with something in the place of each unknown part."""
        ends = [0, *self.gaps, len(self.bare)]
        pieces = [self.bare[start:end] for start, end in pairwise(ends)]
        return self.known if self.text is not None else by.join(pieces)

    @property
    def known(self) -> str:
        """The text, or where it is not known what is left without the unknown parts."""
        return self.bare if self.text is None else self.text


class Redirect(msgspec.Struct, frozen=True):
    """One redirect: `op` as written, without its number. The target of `<<` and `<<<` is the text.

    `fd` is the number (-1 where a variable takes it, `{fd}>x`); 0 or 1 where none is written.
    """

    op: str
    fd: int
    target: Word


class Stdin(msgspec.Struct, frozen=True):
    """What a command reads: nothing of its own, a known text, the output of another command (its
    place in the list), a file, or unknown.

    `others`: more commands whose output is in it, as of `(a; b)` and `<<< "$(a)"`; `variables`:
    whose value is in it and not known.
    """

    kind: Literal["none", "text", "command", "file", "unknown"] = "none"
    text: str = ""
    command: int = -1
    path: Word | None = None
    others: tuple[int, ...] = ()
    variables: tuple[str, ...] = ()


NO_STDIN = Stdin()


ProgramSource = Literal["argument", "stdin", "file", "command"]


class Program(msgspec.Struct, frozen=True):
    """Program text that a command would run itself, as `python -c` does.

    `language`: `sh`, `python`, `perl`, `ruby`, `node`, `php`, `awk`, `sed`, `make`, `sql`, `lua`,
    `tcl`, `gdb`, `vim`, `ed`, `cron`. `source`: where it comes from. `is_read`: it was a known
    shell text and the commands in it stand in the list of their own, so that nothing about it is
    unknown. A `file` that the call did not write itself has no text.
    """

    language: str
    text: Word
    source: ProgramSource
    is_read: bool = False


class Command(msgspec.Struct, frozen=True):
    """One command that would run: `words[0]` as given, with its path; `name` is its last part in
    lower case."""

    name: str
    words: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    """`PATH=/tmp/x cmd`. Assignments without a command are a command with the name "" and no words;
    those of `export` are too."""
    redirects: tuple[Redirect, ...] = ()
    stdin: Stdin = NO_STDIN
    feeds: int | None = None
    """The command that reads what this one prints, by its place in the list."""
    is_root: bool = False
    """Under sudo, doas, su or the like."""
    wrappers: tuple[str, ...] = ()
    """Names of the commands around it, outermost first: `sudo`, `timeout`, `xargs`, `bash`."""
    cwd: Word | None = None
    """Where it runs, if a `cd` before it says so."""
    place: Literal["here", "container", "remote", "image"] = "here"
    """`image`: a container that is made for it and sees no folder, process or device of this
    machine."""
    host: str = ""
    """Of a `remote` command."""
    programs: tuple[Program, ...] = ()
    """Program texts that it would run itself. Several: `sed -e a -e b`, `awk` after a pipe."""

    @property
    def texts(self) -> list[str]:
        """The words behind its name, as far as they are known."""
        return [word.known for word in self.words[1:]]

    @property
    def line(self) -> str:
        """The same as one text."""
        return " ".join(self.texts)


class Resolved(msgspec.Struct, frozen=True):
    """All commands that the text would run, in the order in which they stand, and why something
    about it is not sure.

    Each reason begins with its kind and a colon: `parse`, `name`, `wrapper`, `depth`, `size`,
    `decode`, `language`, `empty`.
    """

    commands: tuple[Command, ...]
    unsure: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Files that the text writes, where what stands in them is known."""
    since: int = 0
    """The place of the text's first command, behind those of what ran before it."""
    is_whole: bool = True
    """Was all that ran before it read?"""
