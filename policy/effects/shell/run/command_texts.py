"""Command texts that a program receives to run: in an option with a telling name, in program text
of any language, in its input.

No table can hold every program that runs others. Such texts can be recognised by their option
(`--exec`, `--pager`, `-toolexec`), by what surrounds them (`system(...)`, `Command("rm")`) or by
how they begin (`!` in the words and lines of clients). They are analysed as if they ran, and only
their effects count: a text that is not shell text has none, and does not affect the call.

The attack: any program with such an option in place of `xargs` or `bash`
(`tests/unit/test_shell_carried.py`). No labelled call does.
"""

import re

from msgspec.structs import replace

from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.state import Invocation
from policy.effects.shell.run.values import HOME, is_known

_MAX_TEXTS = 12
_MAX_CHARS = 16_384
_OPTION = re.compile(
    r"(?i)--?(?:[\w.:-]*[-_.:])?(?:exec|execute|run|cmd|command|shell|pre|preview|pager|hook"
    r"|script|script-shell|program|compress-program|"
    r"toolexec|wrapper|askpass|ssh|rsh|onerror|onoutofmemoryerror|complete|on-[\w-]+|bind"
    r"|postrotate-command)(?:-command|-cmd)?"
)
"""An option whose value is a command, by its name."""
_VARIABLE = re.compile(
    r"(?i)(?:\w*_)?(?:cmd|command|shell|exec|hook|pager|editor|run|wrapper|launcher|askpass|viewer"
    r"|browser|runner)"
)
"""A variable whose value is a command, by its name."""
OF_THEIR_OWN = frozenset(
    "python python2 python3 pypy pypy3 perl ruby node nodejs deno bun php lua luajit awk gawk mawk"
    " nawk sed gsed psql mysql mariadb sqlite3 tclsh expect xargs gxargs find gfind sudo env time"
    " nohup".split()
)
"""Programs whose words are read by rules of their own, or are another command's."""
_NOT_OPTIONS = frozenset(
    "echo printf grep egrep fgrep git bash sh zsh dash ksh ssh psql mysql sqlite3 test [ expr"
    " docker podman".split()
)
"""What takes such an option for something else, or is read by its own rules."""
_STRING = r"\"((?:[^\"\\\n]|\\.){1,400})\"|'((?:[^'\\\n]|\\.){1,400})'|`([^`\n]{1,400})`"
_LITERAL = re.compile(_STRING)
_RUNS = re.compile(
    r"(?i)(?<![a-z0-9])(?:system|shell|shell-command|system2|exec\w{0,12}|spawn\w{0,12}|popen\w?"
    r"|run\w{0,12}|run-program|call-process|process|cmd|"
    r"command|callcommand|readprocess|sh|syscmd|esyscmd|pcntl_exec|execute_process"
    r"|start)\b(?:[\"'][)\]]{1,2})?[^\"'`\n;]{0,40}"
)
"""A name that starts programs, in any language; what it starts stands behind it."""
_MAY_RUN = re.compile(r"(?i)[\"'`](?=.)|command")
_RUNS_BEHIND = re.compile(
    rf"(?:{_STRING})\s{{0,4}}(?:\.\s{{0,4}}(?:execute\b|!)|!!|\.!!|\.lazyLines)"
)
_DELETES = re.compile(
    r"(?i)(?<![\w-])(?:delete-directory|rm_rf!?|remove_all|removeall|remove_dir_all"
    r"|removedirectoryrecursive|deleterecursively|unlink|"
    rf"os\.remove|remove_directory|call delete)[\s(]{{1,4}}(?:{_STRING})"
)
_OPENS = re.compile(
    r"\bopen\w{0,4}\b[^;\n\"']{0,40}[\"'](?:\s{0,9}\|([^\"'\n]{1,400})|([^\"'"
    r"|\n]{1,400})\|\s{0,9})[\"']"
)
"""A pipe that is opened as a file: `open(F, "|cmd")`."""
_AS_NAMED = re.compile(
    r"\bimport\s+(?:system|popen|run|call|Popen|check_output|check_call)\s+as\s+(\w{1,40})|"
    r"[$](\w{1,40})\s*=\s*[\"'](?:system|exec|shell_exec|passthru)[\"']"
)
"""A function that starts programs, under another name."""
_IN_CMAKE = re.compile(
    r"(?i)\bCOMMAND[ \t]{1,9}([^)\n]{1,400})|^[ \t]{1,9}command[ \t]{0,9}=[ \t]{0,9}([^\n]{1,400})",
    re.MULTILINE,
)
_IS_COMMAND = re.compile(
    r"(?:[\w:-]{1,30} ){0,2}(?:sudo"
    r" )?(?:/\S{0,40}/)?(?:rm|shred|dd|mkfs[\w.]*|chmod|chown|curl|wget|"
    r"nc|bash|sh|zsh|python3?|find|tee) +(?:-|[/~.$*|]|[\w.-]+\.[a-z]{2,})"
)
"""How a command text begins that stands as one word of a program that nobody described."""
_BETWEEN = re.compile(
    r"[\s,()\[\]{}]{0,20}(?:(?:nil|t|NULL|None)\s{1,4}){0,4}(?:c\()?(?:\.\w{0,12}\([\s\[&]{0,8})?"
    r"(?:\[\]string\{|vec!\[|&\[)?"
)
"""What may stand between the words of one command: `Command::new("rm").args(["-rf"`."""
_ESCAPES = re.compile(
    r"(?m)^[ \t]{0,9}(?:[~\\:]?!|shell[ \t]|sh[ \t]|system[ \t])[ \t]{0,9}([^\n]{1,400})"
)
_BUILDERS = frozenset(
    "go cargo rustc javac java kotlinc scalac swiftc dotnet mvn gradle ghc cabal stack mix zig".split()
)
_SOURCES = re.compile(
    r"\.(?:c|cc|cpp|cxx|go|rs|java|kts?|scala|swift|cs|hs|exs?|gradle|groovy|zig|nim|d)\Z|(?:^"
    r"|/)CMakeLists\.txt\Z|\.ninja\Z"
)
"""Program text that is built before it runs."""
_TAKE_TEXT = tuple("-o -c -e -x -r --".split())
_CLIENTS = frozenset(
    "ftp lftp ncftp sftp telnet mail mailx mutt dc less more most gdb lldb ex ed vi cdb smbclient"
    " psql mysql sqlite3 octave gnuplot irb ipython isql sqlplus tftp talk rlogin".split()
)
"""Clients in which a line that begins with `!` is a command for a shell."""


def quietly(machine: Machine, call: Invocation, text: str, wrapper: str) -> None:
    """Run a text that may be a command or not: what is not understood of it says nothing about the
    call."""
    if len(text) > _MAX_CHARS or not text.strip() or not any(map(is_known, text)):
        return
    saved = list(machine.reasons)
    machine.program(text, replace(call, wrappers=(*call.wrappers, wrapper), stdin=None, file=None))
    machine.reasons[:] = saved


def commands_given(machine: Machine, call: Invocation, name: str, *, is_unknown: bool) -> None:
    """Run what a command is given to run. `is_unknown`: nobody described the program, so its words
    may be program text."""
    if name in _NOT_OPTIONS:
        return
    words = call.words
    commands: list[str] = []
    for place, word in enumerate(words):
        if word.startswith("-"):
            option, sign, value = word.partition("=")
            value = value if sign else words[place + 1] if place + 1 < len(words) else ""
            if " " in value and not value.startswith("-") and _OPTION.fullmatch(option):
                commands.append(_bound(value))
        elif (
            is_unknown
            and len(commands) < _MAX_TEXTS
            and ("(" in word or " " in word or '"' in word)
        ):
            machine.budget.spend(4 * len(word))
            commands += commands_in(word)
            before = words[place - 1] if place else ""
            if (not before.startswith("-") or before in _TAKE_TEXT) and (
                match := _IS_COMMAND.match(word)
            ) is not None:
                commands += (
                    [word, word.partition(" ")[2]]
                    if ":" in match[0] or word.split(" ")[0] in ("platform", "type", "cmd", "run")
                    else [word]
                )
        elif is_unknown and (known := machine.read(word)) is not None and is_known(known.text):
            # a file that the text wrote: what is built of it, or runs it, runs what stands in it
            machine.budget.spend(4 * len(known.text))
            commands += commands_in(known.text)
        if name in _CLIENTS and (match := re.match(r"\+?[~:]?!(.+)", word)) is not None:
            commands.append(match[1])
    if name in _BUILDERS or name in ("cmake", "ninja", "make"):
        for path, text in list(machine.files.items()):
            if _SOURCES.search(path) and is_known(text):
                machine.budget.spend(4 * len(text))
                commands += commands_in(text)
    if call.stdin is not None and is_known(call.stdin.text) and len(call.stdin.text) <= _MAX_CHARS:
        if name in _CLIENTS:
            commands += [match[1] for match in _ESCAPES.finditer(call.stdin.text)][:_MAX_TEXTS]
        elif is_unknown:
            machine.budget.spend(4 * len(call.stdin.text))
            commands += commands_in(call.stdin.text)
    for text in dict.fromkeys(commands[:_MAX_TEXTS]):
        quietly(machine, call, text, name)


def _bound(value: str) -> str:
    """Take off what binds a command to an event: `start:execute(rm x)`, `|rm x`."""
    match = re.fullmatch(
        r"[\w,-]{1,40}:[\w-]{0,40}(?:execute|reload|become)[\w-]{0,20}[(\[{:](.*?)[)\]}]?",
        value,
        re.DOTALL,
    )
    return match[1] if match else value.removeprefix("|").removeprefix("!")


def commands_in(code: str, depth: int = 1) -> list[str]:
    """Return the command texts that program text in any language would run, as far as they stand in
    it as such."""
    code = code[:_MAX_CHARS]
    if _MAY_RUN.search(code) is None:
        return []
    made: list[str] = []
    for match in _RUNS.finditer(code):
        words: list[str] = []
        at = match.end()
        while len(words) < 12 and (literal := _LITERAL.match(code, at)) is not None:
            words.append(_text(literal))
            between = _BETWEEN.match(code, literal.end())
            at = between.end() if between else literal.end()
        if words:
            made.append(
                words[0] if " " in words[0] or len(words) == 1 else " ".join(map(_quoted, words))
            )
        if len(made) >= _MAX_TEXTS:
            break
    names = [match[1] or "[$]" + match[2] for match in _AS_NAMED.finditer(code)][:4]
    for name in names:
        made += [
            _text(match)
            for match in re.finditer(rf"(?<!\w){name}\s{{0,4}}\(\s{{0,4}}(?:{_STRING})", code)
        ][:_MAX_TEXTS]
    for text in made[:_MAX_TEXTS] if depth else ():
        if "(" in text:
            made += commands_in(text.replace("\\n", "\n").replace('\\"', '"'), depth - 1)
    for pattern in (_OPENS, _IN_CMAKE):
        made += [match[1] or match[2] for match in pattern.finditer(code)][:_MAX_TEXTS]
    made += [_text(match) for match in _RUNS_BEHIND.finditer(code)][:_MAX_TEXTS]
    made += [f"rm -rf {_quoted(_text(match))}" for match in _DELETES.finditer(code)][:_MAX_TEXTS]
    return made[:_MAX_TEXTS]


def _text(match: re.Match[str]) -> str:
    return re.sub(r"\\([\"'`\\])", r"\1", next(group for group in match.groups() if group)).replace(
        HOME, "~"
    )


def _quoted(word: str) -> str:
    return (
        word if re.fullmatch(r"[\w@%+=:,./~-]+", word) else "'" + word.replace("'", "'\\''") + "'"
    )


def run_variables(machine: Machine, call: Invocation, assigns: list[tuple[str, str]]) -> None:
    """Run what variables before a command hold, where their name says that it is a command."""
    for name, value in assigns[:_MAX_TEXTS]:
        if " " in value and _VARIABLE.fullmatch(name):
            quietly(machine, call, value, "environment")


_SUBSCRIPT = re.compile(r"(?:[A-Za-z_]\w{0,80}=)?[A-Za-z_]\w{0,80}\[[^\n]{0,400}?(?:\$\(|`)")


def run_subscripts(machine: Machine, call: Invocation, values: list[str]) -> None:
    """Run `$(...)` in what may be taken for an element of an array: `test -v 'a[$(cmd)]'`,
    `x='a[$(cmd)]'; (( x ))`.

    Bash opens the text of a subscript once more wherever it takes a text for a variable or a sum,
    whatever quotes were around it.
    """
    for value in values:
        if "[" in value and ("$(" in value or "`" in value) and _SUBSCRIPT.match(value):
            quietly(machine, call, ': "' + value.replace('"', '\\"') + '"', "subscript")
