"""Commands that run program text: shells, interpreters, and tools with an option that is a
command."""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise

from msgspec.structs import replace

from policy.shell.command import Program, Word
from policy.shell.run.builtins import run_text, run_values
from policy.shell.run.carried import commands_in, quietly
from policy.shell.run.indirect_options import run_make_variables
from policy.shell.run.machine import Machine
from policy.shell.run.state import Invocation, Out, base_name, texts
from policy.shell.run.values import Field, is_known
from policy.shell.run.wrapping import after_options

SHELLS = frozenset(
    "sh bash dash zsh ksh ksh93 mksh pdksh lksh ash rbash fish yash posh csh tcsh osh elvish"
    " xonsh nu".split()
)
_STDIN = tuple("- /dev/stdin /dev/fd/0 /proc/self/fd/0 /dev/tty".split())
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
LANGUAGES = {
    name: (language, letters)
    for names, _, row in (line.partition(" : ") for line in _LANGUAGES.strip().splitlines())
    for language, _, letters in [row.partition(" ")]
    for name in names.split()
}
"""Interpreters: their language, and the options that take program text."""
_LONG_TEXTS = tuple("--eval --print --execute --command --expression --quiet-eval --cmd".split())
_OPTION_VALUES = {
    "python": "WXmQ",
    "perl": "ImMCDx",
    "ruby": "IrCEKWFT",
    "node": "r",
    "php": "dcztS",
    "lua": "l",
    "awk": "FvfilE",
    "sed": "fl",
    "sql": "hUdpPutDSFf",
    "vim": "TuUirwWS",
}
_MODULES = frozenset("pip uv pipx poetry pdm pytest tox nox twine ansible awscli httpie".split())
"""Modules of Python that are programs of the same name."""
_RUNNERS = {
    "cProfile": "os",
    "profile": "os",
    "pdb": "",
    "ipdb": "",
    "trace": "fC",
    "runpy": "",
    "coverage": "",
    "debugpy": "",
    "doctest": "o",
}
"""Modules of Python that run another module or a file, and their options that take a value."""
_INTERACTIVE = frozenset(("python", "node", "lua"))
"""Languages whose option `-i` reads more program text after the first."""
_MAX_RUNS = 32
_FIRST_IS_TEXT = ("awk", "sed")
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_AWK_RUNS = re.compile(
    rf"system\s*\(\s*{_QUOTED}\s*\)|(?<!\|)\|\s*&?\s*{_QUOTED}|{_QUOTED}\s*\|\s*&?\s*getline",
    re.DOTALL,
)
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
_SED_RUNS = re.compile(r"(?:^|[;\n{}\d$/])[ \t]{0,9}e[ \t]+([^\n]+)")
_VIM_RUNS = re.compile(
    r"(?:^|[:|+\n'\"])[ \t]{0,9}(?:silent!?[ \t]{0,9})?\d{0,9},?[\d$%.]{0,9}(?:[rw][ \t]{0,9})?!["
    r" \t]*([^\n]+)"
)
_ED_RUNS = re.compile(r"(?m)^(?:[\d,$%]{0,9}[rew][ \t]{1,9})?![ \t]*(.+)$")
_APPLE_RUNS = re.compile(rf"do shell script {_QUOTED}")
_LISP_RUNS = re.compile(
    rf"\((?:(?:async-)?shell-command(?:-to-string)?|call-process-shell-command"
    rf"|compile)\s{{1,9}}{_QUOTED}"
)
_SQL_RUNS = re.compile(
    r"(?m)(?:^|\s)(?:\\!|\.shell|\.system|system)["
    r" \t]+([^;\n]+)|(?i:\bprogram)\s{1,9}'((?:[^']|'')+)'"
)
_TCL_RUNS = re.compile(r"(?:^|[;\n])[ \t]{0,20}(?:spawn|exec|system)[ \t]+([^;\n]+)")
_GDB_RUNS = re.compile(
    r"^\s*(?:shell|!|pipe)\s*(.+)$|^\s*(?:call|print|p)\b.*system\s*\(\s*\"([^\"]+)\""
)
_RUNS_OF: dict[str, re.Pattern[str]] = {
    "awk": _AWK_RUNS,
    "sed": _SED_RUNS,
    "vim": _VIM_RUNS,
    "ed": _ED_RUNS,
    "sql": _SQL_RUNS,
    "tcl": _TCL_RUNS,
    "applescript": _APPLE_RUNS,
    "lisp": _LISP_RUNS,
}


def shell(machine: Machine, call: Invocation) -> Out:
    """`bash`, `sh` and the others: `-c text`, a file, or what they read."""
    fields = call.fields
    at = 1
    is_text = reads_stdin = False
    while at < len(fields):
        text = fields[at].text
        if text in (
            "-o",
            "+o",
            "-O",
            "+O",
            "--rcfile",
            "--init-file",
            "--init-command",
            "-C",
            "--command",
        ):
            if text in ("--rcfile", "--init-file") and (
                known := machine.read(fields[at + 1].text if at + 1 < len(fields) else "")
            ):
                run_text(machine, call, known.text, "file", is_child=True)
            if (
                text in ("--init-command", "-C", "--command")
                and at + 1 < len(fields)
                and text != "-C"
            ):
                return run_text(machine, call, fields[at + 1].text, "argument", is_child=True)
            at += 2
        elif text == "--" or text == "-":
            at += 1
            break
        elif re.match(r"[-+][A-Za-z]", text):
            is_text = is_text or (text[0] == "-" and "c" in text[1:])
            reads_stdin = reads_stdin or (text[0] == "-" and "s" in text[1:])
            at += 2 if text[-1] in "oO" and len(text) > 1 else 1
        elif text.startswith("--"):
            at += 1
        else:
            break
    words = texts(fields[at + 1 :])
    if is_text:
        if at >= len(fields):
            return Out("", [machine.emit(call)])
        return run_text(
            machine,
            call,
            fields[at].text,
            "argument",
            is_child=True,
            arguments=words[1:],
            zero=words[0] if words else "",
        )
    if at < len(fields) and not reads_stdin and fields[at].text not in _STDIN:
        return script(machine, call, fields[at].text, words)
    return from_stdin(machine, call, words if not reads_stdin else texts(fields[at:]))


def from_stdin(machine: Machine, call: Invocation, arguments: list[str]) -> Out:
    """Run what a shell reads as its program."""
    if call.stdin is None:
        if call.file is None:
            return Out("", [machine.emit(call)])
        place = machine.emit(call, Program("sh", Word(None), "file"))
        return machine.unknown_output(place)
    return run_text(
        machine,
        call,
        call.stdin.text,
        "command" if call.stdin.commands else "stdin",
        is_child=True,
        arguments=arguments,
    )


def script(machine: Machine, call: Invocation, path: str, arguments: list[str]) -> Out:
    """Run a script in a file, if the text wrote it itself."""
    known = machine.read(path)
    if known is not None:
        return run_text(
            machine,
            call,
            known.text,
            "command" if path in machine.sources else "file",
            is_child=True,
            arguments=arguments,
            zero=path,
        )
    place = machine.emit(call, Program("sh", machine.word(machine.unknowns.blur(path)), "file"))
    return machine.unknown_output(place)


def file_of_text(machine: Machine, call: Invocation, text: str) -> Out:
    """Run a file as a command that the text wrote itself: by its first line it is a script of some
    language."""
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        words = first[2:].split()
        name = next(
            (
                word.rpartition("/")[2]
                for word in words
                if not word.endswith("/env") and not word.startswith("-")
            ),
            "sh",
        )
        if name not in SHELLS:
            language = LANGUAGES.get(name, (name, ""))[0]
            return machine.unknown_output(
                machine.emit(call, Program(language, machine.word(text), "file"))
            )
    return run_text(
        machine,
        call,
        text,
        "file",
        is_child=True,
        arguments=texts(call.fields[1:]),
        zero=call.at(0),
    )


def interpreter(machine: Machine, call: Invocation, name: str) -> Out:
    """Note the program texts of an interpreter, and run the commands that stand in them as such."""
    language, _ = LANGUAGES[name]
    words = call.fields
    reads_more = (
        language in _INTERACTIVE
        and call.stdin is not None
        and any(re.match(r"-[a-zA-Z]*i", word.text) for word in words[1:])
    )
    options = _texts_of_options(machine, call, name, reads_more=reads_more)
    if isinstance(options, Out):
        return options
    programs, at, has_text = options
    if words[at : at + 1] and words[at].text == "--":
        at += 1
    if not programs and not has_text:
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


def _texts_of_options(
    machine: Machine, call: Invocation, name: str, *, reads_more: bool
) -> Out | tuple[list[Program], int, bool]:
    """Return the program texts among an interpreter's options, where its other words begin, and
    whether its program stands in an option; or what a module of Python prints that runs a
    command."""
    language, letters = LANGUAGES[name]
    values = _OPTION_VALUES.get(language, "")
    words = call.fields
    programs: list[Program] = []
    at = 1
    has_text = False
    while at < len(words):
        text = words[at].text
        option, sign, value = text.partition("=")
        if option in _LONG_TEXTS or (language, option) in (("lisp", "-eval"), ("node", "eval")):
            programs.append(
                Program(language, machine.word(value if sign else call.at(at + 1)), "argument")
            )
            at += 1 if sign else 2
            continue
        if text == "--" or not text.startswith("-") or text == "-":
            break
        if not text.startswith("--"):
            place = next((p for p, letter in enumerate(text) if p and letter in letters), 0)
            if (
                language == "perl"
                and (module := re.match(r"-[a-zA-Z]*[mM](.*;.*)", text, re.DOTALL)) is not None
            ):
                programs.append(Program(language, machine.word(f"use {module[1]}"), "argument"))
            taking = next((p for p, letter in enumerate(text) if p and letter in values), 0)
            if place and (not taking or place < taking):
                attached = text[place + 1 :]
                is_attached = bool(attached) and language not in ("perl", "ruby", "node")
                programs.append(
                    Program(
                        language,
                        machine.word(attached if is_attached else call.at(at + 1)),
                        "argument",
                    )
                )
                at += 1 if is_attached else 2
                if language == "python" and not has_text:
                    # what follows are the program's own words
                    break
                continue
            if (
                language == "python"
                and taking
                and text[taking] == "m"
                and not programs
                and not has_text
            ):
                is_attached = taking < len(text) - 1
                behind = words[at + 1 if is_attached else at + 2 :]
                named = text[taking + 1 :] if is_attached else call.at(at + 1)
                if named in _MODULES and not reads_more:
                    return machine.dispatch(machine, call.inner([Field(named), *behind], name))
                programs += run_by_module(machine, call, named, behind, name)
            if taking and taking == len(text) - 1:
                if (text[taking] == "f" and language in _FIRST_IS_TEXT) or (
                    text[taking] == "m" and language == "python"
                ):
                    has_text = True
                    programs += (
                        files(machine, language, [call.at(at + 1)]) if text[taking] == "f" else []
                    )
                elif (language, text[taking]) in (("vim", "S"), ("sql", "f")):
                    programs += [
                        program
                        for program in files(machine, language, [call.at(at + 1)])
                        if program.text.text is not None
                    ]
                at += 2
                continue
            has_text = has_text or (language == "python" and "m" in text)
        at += 1
    return programs, at, has_text


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
    elif language != "ed" and at < len(call.fields) and call.at(at) not in _STDIN:
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


def after(words: list[str], *names: str) -> list[str]:
    """Return the values of these options: behind `=`, or the next word."""
    made = []
    for place, word in enumerate(words):
        for name in names:
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


def tar(machine: Machine, call: Invocation) -> Out:
    """`tar`, whose options may name commands."""
    place = machine.emit(call)
    words = texts(call.fields[1:])
    actions = [
        text.partition("=")[2]
        for text in after(words, "--checkpoint-action")
        if text.startswith("exec=")
    ]
    run_values(
        machine,
        call,
        actions
        + after(
            words,
            "--to-command",
            "--use-compress-program",
            "--rsh-command",
            "--info-script",
            "--new-volume-script",
            "-I",
            "-F",
        ),
        "tar",
    )
    return machine.unknown_output(place)


def options(*names: str) -> Callable[[Machine, Invocation], Out]:
    """Make the handler of a tool that runs the values of these options."""

    def handle(machine: Machine, call: Invocation) -> Out:
        place = machine.emit(call)
        words = texts(call.fields[1:])
        ends = tuple(name[1] for name in names if len(name) == 2)
        joined = [
            value
            for option, value in pairwise(words)
            if ends and re.fullmatch(r"-[a-zA-Z]{2,9}", option) and option.endswith(ends)
        ]
        run_values(machine, call, [*after(words, *names), *joined], machine.drafts[place].name)
        return machine.unknown_output(place)

    return handle


def debugger(machine: Machine, call: Invocation) -> Out:
    """`gdb -ex 'shell ...'`, and what stands behind `--args`."""
    words = texts(call.fields[1:])
    commands = after(words, "-ex", "-iex", "--ex", "--eval-command")
    programs = [Program("gdb", machine.word(text), "argument") for text in commands]
    if call.stdin is not None:
        programs.append(Program("gdb", machine.word(call.stdin.text), "stdin"))
    place = machine.emit(call, *programs)
    run_values(
        machine,
        call,
        [
            next(group for group in match.groups() if group)
            for text in commands
            if (match := _GDB_RUNS.match(text))
        ],
        "gdb",
    )
    if "--args" in words:
        machine.dispatch(machine, call.inner(call.fields[words.index("--args") + 2 :], "gdb"))
    return machine.unknown_output(place)


def make(machine: Machine, call: Invocation) -> Out:
    """`make`: its file, if the text wrote it or it is what it reads."""
    run_make_variables(machine, call)
    path = next(iter(after(texts(call.fields[1:]), "-f", "--file", "--makefile")), "")
    known = (
        call.stdin
        if path in ("-", "/dev/stdin")
        else machine.read(path or "Makefile") or machine.read("makefile")
    )
    if statements := after(texts(call.fields[1:]), "--eval", "-E"):
        known = Out("\n".join([*statements, known.text if known else ""]))
    if known is None:
        return machine.unknown_output(
            machine.emit(call, *([Program("make", Word(None), "file")] if path else []))
        )
    place = machine.emit(
        call, Program("make", machine.word(known.text), "file", is_read=is_known(known.text))
    )
    machine.budget.spend(8 * len(known.text))
    lines = [
        command
        for line in known.text.replace("\\\n", " ").splitlines()
        if (command := _of_make(line))
    ]
    run_values(machine, call, ["\n".join(lines)], "make")
    return machine.unknown_output(place)


def _of_make(line: str) -> str:
    """Return the command of a line of a makefile: a recipe's, or one whose output is a value; "" if
    it has none."""
    if line.startswith("\t"):
        return line.lstrip("\t@-+ ").replace("$$", "$")
    before, sign, remainder = line.partition("$(shell ")
    if sign and "#" not in before:
        return remainder.partition(")")[0]
    before, sign, remainder = line.partition("!=")
    if sign and re.fullmatch(r"[\w.-]{1,200}[ \t]{0,9}", before):
        return remainder
    target, sign, remainder = line.partition(";")
    return (
        remainder
        if sign and ":" in target and not target.startswith(("#", "\t")) and "=" not in target
        else ""
    )


def later(machine: Machine, call: Invocation) -> Out:
    """`at`, `batch`, `crontab`: what they read runs later."""
    name = call.at(0).rpartition("/")[2]
    words = texts(call.fields[1:])
    known = call.stdin
    if name == "crontab":
        path = next(
            (
                text
                for text in texts(call.fields[after_options(call.fields, 1, "u", ()) :])
                if not text.startswith("-") or text == "-"
            ),
            "",
        )
        known = call.stdin if path in ("-", "") else machine.read(path)
        if known is not None:
            place = machine.emit(
                call,
                Program("cron", machine.word(known.text), "stdin", is_read=is_known(known.text)),
            )
            machine.budget.spend(8 * len(known.text))
            run_values(
                machine,
                call,
                ["\n".join(filter(None, map(_of_crontab, known.text.splitlines())))],
                "crontab",
            )
            return Out("", [place])
        return Out("", [machine.emit(call)])
    if (path := next(iter(after(words, "-f")), "")) and known is None:
        known = machine.read(path)
    if known is None:
        return Out("", [machine.emit(call)])
    return run_text(
        machine, call, known.text, "command" if known.commands else "stdin", is_child=True
    )


def _of_crontab(line: str) -> str:
    """Return the command of a line of a crontab."""
    line = line.strip()
    if not line or line.startswith("#") or re.match(r"\w+\s*=", line):
        return ""
    match = re.match(r"@\w+\s+(.*)|(?:\S+\s+){5}(.*)", line)
    return (match[1] or match[2] or "") if match else ""


def terminal(machine: Machine, call: Invocation) -> Out:
    """`tmux`, `screen`: the command that a new window runs, and the keys that are sent."""
    words = call.fields
    place = machine.emit(call)
    name = machine.drafts[place].name
    subs = (
        "new-session",
        "new",
        "new-window",
        "neww",
        "split-window",
        "splitw",
        "send-keys",
        "send",
        "run-shell",
        "run",
        "respawn-pane",
    )
    at = next((p for p in range(1, len(words)) if words[p].text in subs), 0)
    if name == "screen":
        at = 0
    start = after_options(words, at + 1, "stncxyFeSTphcX" if name == "tmux" else "SsTtehpxc", ())
    keys = texts(words[start:])
    if name == "tmux" and not at:
        return machine.unknown_output(place)
    if words[at].text in ("send-keys", "send"):
        keys = [key for key in keys if key not in ("Enter", "C-m", "C-j", "KPEnter")]
        run_values(machine, call, ["".join(key if key != "Space" else " " for key in keys)], name)
    elif len(keys) == 1:
        run_values(machine, call, keys, name)
    elif keys and keys[0] != "stuff":
        machine.dispatch(machine, call.inner(words[start:], name))
    elif keys:
        run_values(machine, call, keys[1:], name)
    return machine.unknown_output(place)


def package_runner(machine: Machine, call: Invocation) -> Out:
    """`npx tool words`, `npm exec -c text`: a package's program with its words, or a text for a
    shell."""
    place = machine.emit(call)
    name = base_name(call)
    if call.at(1) in ("pkg", "set-script"):
        settings = (
            [text for text in texts(call.fields[2:]) if text.startswith("scripts.")]
            if call.at(1) == "pkg"
            else [f"={call.at(3)}"]
        )
        run_values(machine, call, [text.partition("=")[2] for text in settings], name)
        return machine.unknown_output(place)
    start = 1 if name in ("npx", "bunx", "pnpx") else 2 if call.at(1) in ("exec", "x", "dlx") else 0
    if start:
        run_values(machine, call, after(texts(call.fields[1:]), "-c", "--call"), name)
        at = after_options(call.fields, start, "pcw", ("package", "call", "workspace"))
        tool = re.sub(r"(?<=.)@[^/]*$", "", call.at(at))
        if at < len(call.fields) and is_known(tool) and re.fullmatch(r"[\w@./-]+", tool):
            return machine.dispatch(
                machine, call.inner([Field(tool.rpartition("/")[2]), *call.fields[at + 1 :]], name)
            )
    return machine.unknown_output(place)
