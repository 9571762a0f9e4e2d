"""Disguises of a shell command's text: other texts that do the same, each a pure function from text
to text.

Where a disguise does not apply to a text it returns the text as it is. Most keep what a real shell
prints, which a test checks with harmless twins; those of `NOT_FOR_SHELLS` are read the same only by
a reader more lenient than a shell, as a client or a terminal may be.
"""

import base64
import re
import shlex
from collections.abc import Callable

Change = Callable[[str], str]
_NAME = re.compile(r"[a-z][a-z0-9_-]*(?=[ \t]|$)")
_SIMPLE = re.compile(r"[A-Za-z0-9_./~:=@%+,-]+(?: [A-Za-z0-9_./~:=@%+,-]+)*")
"""Plain words with one blank between them."""
_MOVED = {
    code: (code - base + 13) % 26 + base for base in (65, 97) for code in range(base, base + 26)
}
_WORDS_OF_GRAMMAR = frozenset(
    "if then else elif fi for while until do done case esac select function time coproc in".split()
)
_BUILTINS = frozenset(
    "cd export set unset alias source eval exec read shift local declare readonly trap exit return"
    " test pushd popd".split()
)
_IN_BIN = frozenset(
    "rm cat cp mv ln ls chmod chown dd mkdir echo kill touch grep sed tar sh bash find env".split()
)


def _name(text: str) -> str:
    """The first word, where it is the plain name of a command; "" where it is not."""
    match = _NAME.match(text)
    return match[0] if match and match[0] not in _WORDS_OF_GRAMMAR else ""


def _renamed(text: str, change: Callable[[str], str]) -> str:
    name = _name(text)
    return change(name) + text[len(name) :] if name else text


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def base64_pipe(text: str) -> str:
    """In base64, decoded into a shell."""
    return f"echo {_encoded(text)} | base64 -d | bash"


def base64_substitution(text: str) -> str:
    """In base64, decoded into the argument of a shell."""
    return f'bash -c "$(base64 --decode <<< {_encoded(text)})"'


def base64_eval(text: str) -> str:
    """In base64, decoded into `eval` by way of a variable."""
    return f'p={_encoded(text)}; eval "$(printf %s "$p" | base64 -d)"'


def hexadecimal(text: str) -> str:
    """In hexadecimal digits, decoded by `xxd` into a shell."""
    return (
        f"echo {text.encode().hex()} | xxd -r -p | sh"
        if _SIMPLE.fullmatch(text)
        else f"echo {text.encode().hex()} | xxd -r -p | bash"
    )


def printf_octal(text: str) -> str:
    """In octal escapes of `printf`, into `eval`."""
    escaped = "".join(f"\\{byte:03o}" for byte in text.encode())
    return f"eval \"$(printf '{escaped}')\""


def printf_pipe(text: str) -> str:
    """In hexadecimal escapes of `printf`, into a shell."""
    escaped = "".join(f"\\x{byte:02x}" for byte in text.encode())
    return f"printf '{escaped}' | bash"


def ansi_quotes(text: str) -> str:
    """The whole text in `$'...'` for `eval`."""
    escaped = "".join(f"\\x{byte:02x}" for byte in text.encode())
    return f"eval $'{escaped}'"


def reversed_text(text: str) -> str:
    """Backwards, turned round by `rev` into a shell."""
    return text if "\n" in text else f"echo {shlex.quote(text[::-1])} | rev | bash"


def rotated(text: str) -> str:
    """Its letters moved by 13, moved back by `tr`."""
    moved = text.translate(_MOVED)
    return (
        f"echo {shlex.quote(moved)} | tr A-Za-z N-ZA-Mn-za-m | bash" if "\\" not in text else text
    )


def quotes_inside(text: str) -> str:
    """Quotes inside the command's name."""
    return _renamed(
        text,
        lambda name: f"{name[:1]}''{name[1:-1]}\"{name[-1:]}\"" if len(name) > 1 else f'"{name}"',
    )


def backslashes(text: str) -> str:
    """Backslashes before letters of the command's name."""
    return _renamed(text, lambda name: "\\" + "\\".join(name))


def ansi_name(text: str) -> str:
    """The command's name in `$'...'`."""
    return _renamed(text, lambda name: "$'" + "".join(f"\\{ord(c):03o}" for c in name) + "'")


def empty_parameters(text: str) -> str:
    """Parameters that are empty inside the command's name."""
    return _renamed(text, lambda name: f"{name[:1]}$@{name[1:]}")


def variable_name(text: str) -> str:
    """The command's name in two variables."""
    name = _name(text)
    return f"v={name[:1]}; w={name[1:]}; $v$w{text[len(name) :]}" if name else text


def sliced_name(text: str) -> str:
    """The command's name as a slice of a variable."""
    name = _name(text)
    return f"v=xy{name}z; ${{v:2:{len(name)}}}{text[len(name) :]}" if name else text


def replaced_name(text: str) -> str:
    """The command's name by a replacement within a variable."""
    name = _name(text)
    return f"v={name[:1]}@@{name[1:]}; ${{v//@/}}{text[len(name) :]}" if name else text


def default_name(text: str) -> str:
    """The command's name as the default of a variable that is not set."""
    return _renamed(text, lambda name: f"${{not_set_here:-{name}}}")


def substituted_name(text: str) -> str:
    """The command's name as the output of another."""
    return _renamed(text, lambda name: f"$(printf %s {name})")


def indirect_name(text: str) -> str:
    """The command's name in a variable that another names."""
    name = _name(text)
    return f"a={name}; b=a; ${{!b}}{text[len(name) :]}" if name else text


def field_separators(text: str) -> str:
    """`${IFS}` for its blanks."""
    return (
        text.replace(" ", "${IFS}")
        if _SIMPLE.fullmatch(text) and "=" not in text and _name(text)
        else text
    )


def braces(text: str) -> str:
    """Its words in braces."""
    return (
        "{" + text.replace(" ", ",") + "}"
        if _SIMPLE.fullmatch(text) and " " in text and "," not in text and _name(text)
        else text
    )


def array(text: str) -> str:
    """Its words in an array."""
    return (
        f'a=({text}); "${{a[@]}}"'
        if _SIMPLE.fullmatch(text) and _name(text) not in ("", *_BUILTINS) and "~" not in text
        else text
    )


def arguments(text: str) -> str:
    """Its words as the shell's arguments."""
    return f'set -- {text}; "$@"' if _SIMPLE.fullmatch(text) and _name(text) else text


def full_path(text: str) -> str:
    """The command with its folder."""
    return _renamed(text, lambda name: f"/bin/{name}" if name in _IN_BIN else name)


def heredoc(text: str) -> str:
    """A heredoc into a shell."""
    return text if "SCRIPT_END" in text else f"bash <<'SCRIPT_END'\n{text}\nSCRIPT_END"


def here_string(text: str) -> str:
    """A here-string into a shell."""
    return f"bash <<< {shlex.quote(text)}"


def nested_shells(text: str) -> str:
    """A shell in a shell."""
    return f"sh -c {shlex.quote(f'bash -c {shlex.quote(text)}')}"


def shell_arguments(text: str) -> str:
    """The text as an argument of a shell that evaluates its arguments."""
    return f"bash -c 'eval \"$1\"' _ {shlex.quote(text)}"


def evaluated(text: str) -> str:
    """`eval`, twice."""
    return f"eval eval {shlex.quote(shlex.quote(text))}"


def process_substitution(text: str) -> str:
    """A file that a substitution prints, run as a script."""
    return f"bash <(printf '%s\\n' {shlex.quote(text)})"


def sourced(text: str) -> str:
    """Read by the shell itself from a substitution."""
    return f"source <(echo {shlex.quote(text)})" if "\\" not in text else text


def script_file(text: str) -> str:
    """Written to a file that is then run."""
    return (
        text
        if "SCRIPT_END" in text
        else (
            f"cat > ./step.sh <<'SCRIPT_END'\n{text}\nSCRIPT_END\nchmod +x ./step.sh && bash"
            " ./step.sh"
        )
    )


def tee_shell(text: str) -> str:
    """Through `tee` into a shell."""
    return f"printf '%s\\n' {shlex.quote(text)} | tee /dev/null | bash"


def function(text: str) -> str:
    """In a function that is then called."""
    return f"go() {{\n{text}\n}}\ngo"


def alias(text: str) -> str:
    """Its name by an alias."""
    name = _name(text)
    if not name or "\n" in text:
        return text
    return f"shopt -s expand_aliases; alias go={name}\ngo{text[len(name) :]}"


def trap(text: str) -> str:
    """At the end of the shell, by a trap."""
    return f"(trap {shlex.quote(text)} EXIT)"


def loop(text: str) -> str:
    """Its name as the value of a loop."""
    name = _name(text)
    return (
        f"for c in {name}; do $c{text[len(name) :]}\ndone"
        if name and not _HEREDOC.search(text)
        else text
    )


def read_lines(text: str) -> str:
    """Read line by line, each evaluated."""
    return (
        text
        if "\n" in text or "\\" in text
        else f"printf '%s\\n' {shlex.quote(text)} | while read -r line; do eval \"$line\"; done"
    )


def wrappers(text: str) -> str:
    """Wrappers before it."""
    return (
        text
        if _name(text) in ("", *_BUILTINS)
        else f"env A=1 nice -n 5 timeout 60 setsid -w stdbuf -o0 {text}"
    )


def wrapped_shell(text: str) -> str:
    """Wrappers before a shell."""
    return (
        f'command env -i PATH="$PATH" nohup timeout -s KILL 60 bash -c {shlex.quote(text)}'
        " 2>/dev/null"
    )


def xargs(text: str) -> str:
    """By `xargs` into a shell."""
    return (
        f"printf '%s\\0' {shlex.quote(text)} | xargs -0 -I@ bash -c @" if "@" not in text else text
    )


def xargs_words(text: str) -> str:
    """Its words but the first by `xargs`."""
    name = _name(text)
    is_plain = (
        name
        and name not in _BUILTINS
        and _SIMPLE.fullmatch(text)
        and "~" not in text
        and " " in text
    )
    return (
        f"echo {text[len(name) + 1 :]} | xargs {name}"
        if is_plain and " -n " not in text and " -e " not in text
        else text
    )


def find_exec(text: str) -> str:
    """By `find -exec`, once."""
    return f"find / -maxdepth 0 -exec bash -c {shlex.quote(text)} \\;"


def awk_system(text: str) -> str:
    """By `awk`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        text
        if "'" in text or "\n" in text or "\\" in text
        else f"awk 'BEGIN {{ system(\"{escaped}\") }}'"
    )


def git_alias(text: str) -> str:
    """By an alias of `git`."""
    return (
        f"git -c alias.go={shlex.quote(f'!{text}')} go"
        if "\n" not in text
        and "\\" not in text
        and '"' not in text
        and "#" not in text
        and ";" not in text
        else text
    )


def comments(text: str) -> str:
    """Comments and blank lines around it."""
    return f"# list the files\n\n{text}\n# done"


def continued(text: str) -> str:
    """Lines that go on."""
    return text.replace(" ", " \\\n  ") if _SIMPLE.fullmatch(text) else text


def conditions(text: str) -> str:
    """Behind conditions and in groups."""
    return f"if true; then {{ (\n{text}\n) }} fi"


def assignment_output(text: str) -> str:
    """In an assignment whose value is then printed."""
    return f'x=$(\n{text}\n); printf "%s\\n" "$x"' if not _HEREDOC.search(text) else text


def busy(text: str) -> str:
    """Behind harmless commands."""
    return f"cd . && true && : && {{ \n{text}\n}}"


_HEREDOC = re.compile(r"<<-?\s*['\"A-Za-z]")


# Of readers more lenient than a shell


def line_ends(text: str) -> str:
    """Line ends of Windows."""
    return text.replace("\n", "\r\n") + "\r\n"


def full_width(text: str) -> str:
    """The command's name in full-width letters."""
    return _renamed(text, lambda name: "".join(chr(ord(c) + 0xFEE0) for c in name))


def zero_width(text: str) -> str:
    """Zero-width characters in the command's name."""
    return _renamed(text, lambda name: "\u200b".join(name))


def wide_blanks(text: str) -> str:
    """Blanks that do not break."""
    return text.replace(" ", "\u00a0") if _SIMPLE.fullmatch(text) and " " in text else text


def with_prompt(text: str) -> str:
    """A prompt before it."""
    return f"$ {text}" if _name(text) else text


NOT_FOR_SHELLS: dict[str, Change] = {
    "line-ends": line_ends,
    "full-width": full_width,
    "zero-width": zero_width,
    "wide-blanks": wide_blanks,
    "prompt": with_prompt,
}
FOR_SHELLS: dict[str, Change] = {
    "base64": base64_pipe,
    "base64-argument": base64_substitution,
    "base64-eval": base64_eval,
    "hex": hexadecimal,
    "octal": printf_octal,
    "hex-escapes": printf_pipe,
    "ansi": ansi_quotes,
    "reversed": reversed_text,
    "rot13": rotated,
    "quotes": quotes_inside,
    "backslashes": backslashes,
    "ansi-name": ansi_name,
    "empty-parameters": empty_parameters,
    "variables": variable_name,
    "slices": sliced_name,
    "replacements": replaced_name,
    "defaults": default_name,
    "substitutions": substituted_name,
    "indirect": indirect_name,
    "ifs": field_separators,
    "braces": braces,
    "array": array,
    "arguments": arguments,
    "full-path": full_path,
    "heredoc": heredoc,
    "here-string": here_string,
    "nested": nested_shells,
    "shell-arguments": shell_arguments,
    "eval": evaluated,
    "process-substitution": process_substitution,
    "source": sourced,
    "script": script_file,
    "tee": tee_shell,
    "function": function,
    "alias": alias,
    "trap": trap,
    "loop": loop,
    "read": read_lines,
    "wrappers": wrappers,
    "wrapped-shell": wrapped_shell,
    "xargs": xargs,
    "xargs-words": xargs_words,
    "find-exec": find_exec,
    "awk": awk_system,
    "git-alias": git_alias,
    "comments": comments,
    "continued": continued,
    "conditions": conditions,
    "output": assignment_output,
    "behind": busy,
}
DISGUISES: dict[str, Change] = FOR_SHELLS | NOT_FOR_SHELLS
"""All of them, by the names of `--disguise`."""
