"""Runs interpreters: the program texts in their options, files and input, and the commands that
stand in these as such."""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise

from msgspec.structs import replace

from policy.effects.shell.command import Program, Word
from policy.effects.shell.run.command_texts import commands_in, quietly
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.nested_texts import run_values, running
from policy.effects.shell.run.shells import STDIN
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import Field
from policy.effects.shell.run.wrapper_table import after_options
from policy.word_tables import by_word

_LANGUAGES = """
python python2 python3 pypy pypy3 ipython : python c
perl : perl eE
ruby irb : ruby e
node nodejs bun : node ep
deno mongosh mongo : node
php : php rBRE
lua luajit : lua e
tclsh : tcl
expect : tcl c
awk mawk nawk : awk
gawk : awk e
sed gsed : sed e
psql duckdb : sql c
mysql mariadb cqlsh : sql e
sqlite3 : sql
osascript : applescript e
rscript r : r e
julia : julia eE
guile : scheme c
ed : ed
ex vi vim nvim view gvim rvim rview vimdiff : vim c
emacs : lisp
jshell : java
groovy : groovy e
tsx ts-node : node e
sqlcmd : sql Q
clickhouse-client : sql q
redis-cli : redis
bc : bc
dc : dc
m4 : m4
gnuplot : gnuplot e
"""


LANGUAGES = {name: row.partition(" ")[::2] for name, row in by_word(_LANGUAGES).items()}
"""Interpreters: their language, and the options that take program text."""


_LONG_TEXTS = tuple("--eval --print --execute --command --expression --quiet-eval --cmd".split())


_LONG_OF = (("lisp", "-eval"), ("node", "eval"))


_OPTION_VALUES = by_word("""
python : WXmQ
perl : ImMCDx
ruby : IrCEKWFT
node : r
php : dcztS
lua : l
awk : FvfilE
sed : fl
sql : hUdpPutDSFf
vim : TuUirwWS
""")
"""Options of one letter that take a value, by language."""


_MODULES = frozenset("pip uv pipx poetry pdm pytest tox nox twine ansible awscli httpie".split())
"""Modules of Python that are programs of the same name."""


_RUNNERS = by_word("""
cProfile profile : os
pdb ipdb runpy coverage debugpy :
trace : fC
doctest : o
""")
"""Modules of Python that run another module or a file, and their options that take a value."""


_INTERACTIVE = frozenset(("python", "node", "lua"))
"""Languages whose option `-i` reads more program text after the first."""


_MAX_RUNS = 32


_FIRST_IS_TEXT = ("awk", "sed")


_QUOTED = r'"((?:[^"\\]|\\.)*)"'


_AWK_MAKES = re.compile(
    r"\bsystem\s{0,9}\(\s{0,9}[^\"\s)]|(?<!\|)\|\s{0,9}&?\s{0,9}\"(?:[^\"\s]{0,99}/)?(?:ba|da|z"
    r"|k)?sh\b|"
    r"\bprintf?\b[^;{}\n|]{0,60}\|\s{0,9}&?\s{0,9}[a-zA-Z$(]"
    r"|[\w)\]]\s{0,9}\|\s{0,9}&?\s{0,9}getline"
)


_SED_MAKES = re.compile(
    r"(?:^|[;\n}\d$/])[ \t]{0,9}e["
    r" \t]{0,9}(?:$|[;\n}])|s([^\w\s\\])(?:(?!\1).){0,500}\1(?:(?!\1).){0,500}\1[0-9gpiIm]{0,9}e"
)


_RUNS_OF: dict[str, re.Pattern[str]] = {
    "awk": re.compile(
        rf"system\s*\(\s*{_QUOTED}\s*\)|(?<!\|)\|\s*&?\s*{_QUOTED}|{_QUOTED}\s*\|\s*&?\s*getline",
        re.DOTALL,
    ),
    "sed": re.compile(r"(?:^|[;\n{}\d$/])[ \t]{0,9}e[ \t]+([^\n]+)"),
    "vim": re.compile(
        r"(?:^|[:|+\n'\"])[ \t]{0,9}(?:silent!?[ \t]{0,9})?\d{0,9},?[\d$%.]{0,9}(?:[rw][ \t]{0,9})?!["
        r" \t]*([^\n]+)"
    ),
    "ed": re.compile(r"(?m)^(?:[\d,$%]{0,9}[rew][ \t]{1,9})?![ \t]*(.+)$"),
    "sql": re.compile(
        r"(?m)(?:^|\s)(?:\\!|\.shell|\.system|system)["
        r" \t]+([^;\n]+)|(?i:\bprogram)\s{1,9}'((?:[^']|'')+)'"
    ),
    "tcl": re.compile(r"(?:^|[;\n])[ \t]{0,20}(?:spawn|exec|system)[ \t]+([^;\n]+)"),
    "applescript": re.compile(rf"do shell script {_QUOTED}"),
    "lisp": re.compile(
        rf"\((?:(?:async-)?shell-command(?:-to-string)?|call-process-shell-command"
        rf"|compile)\s{{1,9}}{_QUOTED}"
    ),
}


def interpreter(machine: Machine, call: Invocation, name: str) -> Out:
    """Note the program texts of an interpreter, and run the commands that stand in them as such."""
    language, _ = LANGUAGES[name]
    words = call.fields
    reads_more = (
        language in _INTERACTIVE
        and call.stdin is not None
        and any(re.match(r"-[a-zA-Z]*i", word.text) for word in words[1:])
    )
    options = _OptionTexts(machine, call, name, reads_more=reads_more)
    options.read()
    if options.out is not None:
        return options.out
    programs, at = options.programs, options.at
    if words[at : at + 1] and words[at].text == "--":
        at += 1
    if not programs and not options.has_text:
        programs = program_behind(machine, call, language, at)
    if reads_more:
        programs += program_behind(machine, call, language, len(words))
    if language == "vim":
        programs += [
            Program("vim", machine.word(text[1:]), "argument")
            for text in texts(words[1:])
            if text.startswith("+") and len(text) > 1
        ]
    place = machine.emit(call, *programs)
    if language == "sql":
        run_values(machine, call, after(texts(words[1:]), "--pager"), name)
    within(machine, call, language, programs)
    if language in ("awk", "sed"):
        return Out(machine.unknowns.make((), (place,)), [place])
    return machine.unknown_output(place)


class _OptionTexts:
    """The program texts among an interpreter's options. `at`: where its other words begin."""

    def __init__(self, machine: Machine, call: Invocation, name: str, *, reads_more: bool) -> None:
        self._machine, self._call, self._name, self._reads_more = machine, call, name, reads_more
        self._language, self._letters = LANGUAGES[name]
        self._values = _OPTION_VALUES.get(self._language, "")
        self.programs: list[Program] = []
        self.at = 1
        self.has_text = False
        """Does its program stand in an option?"""
        self.out: Out | None = None
        """What a module of Python prints that runs a command."""

    def read(self) -> None:
        """Read the options up to the first other word."""
        words = self._call.fields
        while self.at < len(words):
            text = words[self.at].text
            option, sign, value = text.partition("=")
            if option in _LONG_TEXTS or (self._language, option) in _LONG_OF:
                self._add(value if sign else self._next)
                self.at += 1 if sign else 2
            elif text in ("-", "--") or not text.startswith("-"):
                return
            elif text.startswith("--"):
                self.at += 1
            elif not self._letters_of(text):
                return

    @property
    def _next(self) -> str:
        return self._call.at(self.at + 1)

    def _add(self, text: str) -> None:
        self.programs.append(Program(self._language, self._machine.word(text), "argument"))

    def _letters_of(self, text: str) -> bool:
        """Read a word of options of one letter; False where no others follow."""
        is_python = self._language == "python"
        place, taking = _first(text, self._letters), _first(text, self._values)
        if (
            self._language == "perl"
            and (module := re.match(r"-[a-zA-Z]*[mM](.*;.*)", text, re.DOTALL)) is not None
        ):
            self._add(f"use {module[1]}")
        if place and (not taking or place < taking):
            return self._text(text[place + 1 :])
        letter = text[taking] if taking else ""
        if is_python and letter == "m" and not self.programs and not self.has_text:
            self._module(text[taking + 1 :])
        if self.out is not None:
            return False
        if letter and taking == len(text) - 1:
            self._value(letter)
            self.at += 2
        else:
            self.has_text |= is_python and "m" in text
            self.at += 1
        return True

    def _text(self, attached: str) -> bool:
        is_attached = bool(attached) and self._language not in ("perl", "ruby", "node")
        self._add(attached if is_attached else self._next)
        self.at += 1 if is_attached else 2
        # what follows a text of Python are the program's own words
        return self._language != "python" or self.has_text

    def _module(self, attached: str) -> None:
        machine, call, name = self._machine, self._call, self._name
        named = attached or self._next
        behind = call.fields[self.at + 1 if attached else self.at + 2 :]
        if named in _MODULES and not self._reads_more:
            self.out = machine.dispatch(machine, call.inner([Field(named), *behind], name))
        else:
            self.programs += run_by_module(machine, call, named, behind, name)

    def _value(self, letter: str) -> None:
        """Take an option whose value is the next word."""
        language = self._language
        if letter == "m" and language == "python":
            self.has_text = True
        elif letter == "f" and language in _FIRST_IS_TEXT:
            self.has_text = True
            known = self._call.stdin if self._next in STDIN else None
            self.programs += (
                files(self._machine, language, [self._next])
                if known is None
                else [Program(language, self._machine.word(known.text), "stdin")]
            )
        elif (language, letter) in (("vim", "S"), ("sql", "f")):
            self.programs += [
                program
                for program in files(self._machine, language, [self._next])
                if program.text.text is not None
            ]


def _first(text: str, letters: str) -> int:
    """The place of the first of these letters behind the dash, 0 for none."""
    return next((place for place, letter in enumerate(text) if place and letter in letters), 0)


def run_by_module(
    machine: Machine, call: Invocation, module: str, words: list[Field], name: str
) -> list[Program]:
    """Return the program text that a module of Python is given; run the module or the file that it
    runs."""
    if module == "timeit":
        # its words are lines of one program; options only say how often it runs, or hold lines
        # themselves
        lines = [
            re.sub(r"-(?:-[\w-]+=?|[a-z])", "", text, count=1) if text.startswith("-") else text
            for text in texts(words)
        ]
        return [Program("python", machine.word("\n".join(lines)), "argument")]
    if module in ("code", "asyncio"):
        return program_behind(machine, call, "python", len(call.fields))
    if module in _RUNNERS:
        start = 1 if module == "coverage" else 0
        at = after_options(
            words, start, _RUNNERS[module], ("rcfile", "listen", "connect", "source", "outfile")
        )
        is_module = "-m" in texts(words[:at])
        machine.dispatch(
            machine, call.inner([Field("python"), *[Field("-m")] * is_module, *words[at:]], name)
        )
    return []


def program_behind(machine: Machine, call: Invocation, language: str, at: int) -> list[Program]:
    """Return the program that stands behind the options: a text, a file, or what it reads."""
    if language in _FIRST_IS_TEXT:
        return (
            [Program(language, machine.word(call.at(at)), "argument")]
            if at < len(call.fields)
            else []
        )
    if language == "sql":
        behind = [text for text in texts(call.fields[at:]) if " " in text]
        if behind:
            return [Program(language, machine.word(text), "argument") for text in behind]
    elif language != "ed" and at < len(call.fields) and call.at(at) not in STDIN:
        return (
            files(machine, language, [call.at(at)])
            if language not in ("vim", "lisp", "redis")
            else []
        )
    if call.stdin is not None:
        return [
            Program(
                language,
                machine.word(call.stdin.text),
                "command" if call.stdin.commands else "stdin",
            )
        ]
    return [Program(language, Word(None), "file")] if call.file is not None else []


def files(machine: Machine, language: str, paths: Iterable[str]) -> list[Program]:
    """Return the programs in these files: their text, if the call wrote it."""
    made = []
    for path in paths:
        known = machine.read(path)
        is_from_command = known is not None and path in machine.sources
        made.append(
            Program(
                language,
                Word(None) if known is None else machine.word(known.text),
                "command" if is_from_command else "file",
            )
        )
    return made


def within(machine: Machine, call: Invocation, language: str, programs: list[Program]) -> None:
    """Run the shell commands that stand as such in programs of other languages."""
    pattern = _RUNS_OF.get(language)
    for program in programs if pattern is None or language == "vim" else ():
        if program.text.text is not None:
            machine.budget.spend(4 * len(program.text.text))
            for command in commands_in(program.text.text):
                quietly(machine, call, command, language)
    if pattern is None:
        return
    for program in programs:
        text = program.text.text
        if text is None:
            continue
        machine.budget.spend(6 * len(text))
        if runs_unknown(language, text):
            fields = [Field("sh"), Field("-c"), Field(machine.unknowns.make((language,)))]
            machine.dispatch(machine, replace(call, stdin=None).inner(fields, language))
        for number, match in enumerate(pattern.finditer(text)):
            if number >= _MAX_RUNS:
                machine.unsure(f"size: more commands in a program of {language} than are read")
                break
            inner = next((group for group in match.groups() if group), "")
            if inner.strip() and not (language == "sed" and "/" in inner[:1]):
                inner = (
                    inner.replace('\\"', '"').replace("\\\\", "\\")
                    if language in ("awk", "tcl", "lisp", "applescript")
                    else inner
                )
                machine.program(
                    inner, replace(call, wrappers=(*call.wrappers, language), stdin=None)
                )


def after(words: list[str], names: str) -> list[str]:
    """Return the values of these options, as `-f|--file`: behind `=`, or the next word."""
    made = []
    for place, word in enumerate(words):
        for name in names.split("|"):
            if word == name and place + 1 < len(words):
                made.append(words[place + 1])
            elif word.startswith(f"{name}=") or (
                len(name) == 2
                and name[0] == "-"
                and word.startswith(name)
                and len(word) > 2
                and name != "-c"
            ):
                made.append(word[len(name) :].removeprefix("="))
    return made


def runs_unknown(language: str, text: str) -> bool:
    """Tell whether an `awk` or `sed` program runs commands that it makes itself."""
    pattern = {"awk": _AWK_MAKES, "sed": _SED_MAKES}.get(language)
    return pattern is not None and pattern.search(text) is not None


def options(names: str, *, is_elsewhere: bool = False) -> Callable[[Machine, Invocation], Out]:
    """Make the handler of a tool that runs the values of these options, maybe on other hosts."""
    ends = tuple(name[1] for name in names.split("|") if len(name) == 2)

    def commands(words: list[str]) -> list[str]:
        joined = [
            value
            for option, value in pairwise(words)
            if ends and re.fullmatch(r"-[a-zA-Z]{2,9}", option) and option.endswith(ends)
        ]
        return after(words, names) + joined

    return running(commands, is_elsewhere=is_elsewhere)
