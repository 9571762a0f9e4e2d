"""Texts that somebody types, as what a shell reads: keystrokes, input of a process, cells of a
notebook.

Must not know: which effects anything has.
"""

import re
from collections.abc import Iterator

from policy.effects.argument_names import RUNS
from policy.effects.argument_values import every_text, quoted
from policy.effects.tools.powershell import cmd_to_shell, powershell_to_shell

_KEYS = re.compile(
    r"(?<!\S)(?:[CMS]-\S{1,6}|\^[A-Z\[\]\\]|<[\w-]{1,12}>|(?i:BSpace|BTab|DC|Down|End|Escape|Esc|F\d{1,2}"
    r"|Home|IC|Left|NPage|PageDown|PPage|PageUp|Right|Tab|Up|Backspace|Delete))(?!\S)"
)
"""Names of keys as tmux has them, that type no text."""
_ENTER = re.compile(r"(?<!\S)(?i:Enter|KPEnter|Return|C-m|C-j|<cr>|<enter>)(?!\S)|\r\n?")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z~]|O[A-Z])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAGIC = re.compile(r"(?m)^[ \t]*(?:[\w, ]{1,80}=[ \t]*)?(?:!|%)|get_ipython\(")
_CELL = re.compile(r"\s*%%(\w+)[ \t]*([^\n]*)\n?")
_LINE = re.compile(
    r"[ \t]*(?:[\w, ]{1,80}=[ \t]*)?(?:!!?|%(?:sx|system|sc)\b(?:[ \t]+-\w+)*)[ \t]*([^\n]+)"
)
_NAMED = re.compile(
    r"[ \t]*%(pip|conda|mamba|uv|cd|run|load|env|set_env|writefile|rm|mv|cp|mkdir|rmdir|ls|cat)\b[ \t]*([^\n]*)"
)
_CALLED = re.compile(
    r"get_ipython\(\)\.(?:system|getoutput|run_line_magic|run_cell_magic)(?:_raw|_piped)?\([ \t]*"
    r"(?:['\"](?:sx|system|bash|sh|!)['\"],[ \t]*)?(?:['\"]{2},[ \t]*)?([\"'])((?:\\.|(?!\1).){1,4000})\1"
)
_SHELLS = frozenset("bash sh zsh system sx !".split())


def shell_texts(role: str, value: object) -> Iterator[tuple[str, bool]]:
    """Yield what an argument of one of the table's roles would do, as texts for a shell, and
    whether that is a guess, as nobody knows which program gets it."""
    texts = [*every_text(value)]
    if role == "keys":
        # pressed one after the other, and Enter ends a line
        text = "\n".join(texts) if any("\n" in text for text in texts) else " ".join(texts)
        yield _ESCAPES.sub("", _KEYS.sub("", _ENTER.sub("\n", text))), True
    elif role == "stdin":
        text = "\n".join(texts)
        yield text, True
        yield f"python3 -c {quoted(text)}", True
    elif role == "ipython":
        yield from ((of_cell(text), False) for text in ("\n".join(texts),) if text)
    elif role == "powershell":
        yield from ((powershell_to_shell(text), False) for text in ("\n".join(texts),))
    elif role == "cmd":
        yield from ((cmd_to_shell(text), False) for text in ("\n".join(texts),))
    elif texts:
        yield RUNS[role] + " " + quoted("\n".join(texts)), False


def of_cell(text: str) -> str:
    """Return a cell of a notebook as text for a shell: its magics are commands, the rest is
    Python."""
    if _MAGIC.search(text) is None:
        return f"python3 -c {quoted(text)}"
    if (cell := _CELL.match(text)) is not None:
        return _of_cell_magic(cell[1], cell[2], text[cell.end() :])
    lines: list[str] = []
    code: list[str] = []
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        if (command := _LINE.match(line)) is not None:
            lines.append(command[1])
        elif (named := _NAMED.match(line)) is not None:
            lines.append(_of_magic(named[1], named[2]))
        elif not line.lstrip().startswith("%"):
            code.append(line)
    lines += [match[2].replace("\\'", "'").replace('\\"', '"') for match in _CALLED.finditer(text)]
    if any(line.strip() for line in code):
        lines.append("python3 -c " + quoted("\n".join(code)))
    return "\n".join(lines)


def _of_magic(name: str, words: str) -> str:
    if name in ("run", "load"):
        return f"python3 {words}" if name == "run" else f"cat {words}"
    return f"export {words}" if name in ("env", "set_env") and "=" in words else f"{name} {words}"


def _of_cell_magic(name: str, words: str, body: str) -> str:
    program = words.split()[0] if name == "script" and words else name
    if program.rpartition("/")[2] in _SHELLS:
        return body
    if name in ("writefile", "file"):
        path = words.replace("-a", "", 1).strip() if words.startswith("-a") else words.strip()
        return f"printf %s {quoted(body)} > {quoted(path)}"
    if run := RUNS.get(program):
        return f"{run} {quoted(body)}"
    if program in ("powershell", "pwsh"):
        return powershell_to_shell(body)
    # `%%time`, `%%capture` and the like run the rest
    return of_cell(body) if not body.lstrip().startswith("%%") else f"python3 -c {quoted(body)}"
