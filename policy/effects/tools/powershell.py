"""PowerShell and cmd.exe, as text of a POSIX shell that does the same: `policy/data/powershell.txt`
has the commands. What is not understood becomes the command `powershell`, which no reader of shell
text claims to know.

Must not know: which effects anything has.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from itertools import islice

from policy.effects.argument_values import quoted
from policy.effects.tools.commands import StandIn
from policy.word_tables import by_word, sections

_UNKNOWN = "powershell"
_MAX_CHARS, _MAX_TOKENS, _MAX_DEPTH = 16_384, 3_000, 6
"""A shell's text with more is not read as a whole either."""
_SECTIONS = sections("powershell.txt")
_COMMANDS, _VARIABLES = by_word(_SECTIONS["commands"]), by_word(_SECTIONS["variables"])
_WORDS = {name: frozenset(_SECTIONS[name].split()) for name in ("switches", "keywords")}
_QUOTED = r"('(?:[^']|'')*'|\"[^\"\n]*\"|\$[\w:]+)"
_REWRITES = [
    (re.compile(pattern.replace("QUOTED", _QUOTED), re.IGNORECASE), new)
    for pattern, _, new in (line.partition(" => ") for line in _SECTIONS["rewrites"].splitlines())
]
_OBSCURE = re.compile(_SECTIONS["obscure"].replace("\n", ""), re.IGNORECASE)
_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|`\r?\n|<#.*?(?:#>|\Z)|(?<![^\s;|{}()])#[^\n]*|[)}])"
    r"|@(['\"])\r?\n(?P<here>.*?)(?:\n\2@|\Z)"
    r"|'(?P<single>(?:[^']|'')*)(?:'|\Z)|\"(?P<double>(?:[^\"`]|`.|\"\")*)(?:\"|\Z)"
    r"|(?P<variable>\$(?:(?:env|global|script|local):)?\w+(?:(?:\.\w+|\[[^\]\n]{0,80}\])+(?!\())?"
    r"|\$\{[^}\n]{1,80}\})|(?P<group>[$@]?\()|(?P<block>@?\{)|(?P<end>[;\n]|&&|\|\|)|(?P<pipe>\|)"
    r"|(?P<as_is>(?:\d|\*)?>>?(?:&\d)?|[+-]?=(?!=)|&)|(?P<comma>,)"
    r"|(?P<word>(?:`.|[^\s'\"$;|(){}>`,])+|.)",
    re.DOTALL,
)
_ASSIGNS = ("=", "+=", "-=")
_OPTION = re.compile(r"-([A-Za-z]+)(:)?\Z")
_INNER = re.compile(r"\$\(([^()]{0,999})\)?")
_CMD_TEXT = re.compile(r"(?is)(?:/(?![ck]\s)\w++\s++)*+/[ck]\s+(?P<text>.*)")
_INNER_TEXT = re.compile(
    r"(?is)(?>-(?:ex\w*+|ep|w|windowstyle|version)\s++\S++\s++"
    r"|-(?!(?:e|ec|enc\w*+|c|command|f|file)\s)\w++\s++)*+"
    r"(?:-(?:(?P<code>e(?:nc\w*+|c)?)|c(?:ommand)?|(?P<file>f(?:ile)?))\s+)?(?P<text>(?!-).*)"
)


def powershell_to_shell(text: str, depth: int = 0) -> str:
    """Return what a text of PowerShell does, as text for a shell."""
    if len(text) > _MAX_CHARS:
        return _UNKNOWN
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    tokens = _TOKEN.finditer(text)
    made = _statements(islice(tokens, _MAX_TOKENS), depth, "")
    is_known = next(tokens, None) is None and _OBSCURE.search(text) is None
    return made if is_known else f"{made}\n{_UNKNOWN}"


def cmd_to_shell(text: str, depth: int = 0) -> str:
    """Return what a text of cmd.exe does, as text for a shell: it is read as PowerShell, with which
    it shares the names of commands."""
    text = re.sub(r"\^(.)|(?m:^)\s*@", r"\1", text[:_MAX_CHARS].replace("'", "`'"))
    text = re.sub(r"%(\w+)%", r"$env:\1", text)
    text = re.sub(r"(?<=\s)/([A-Za-z]+)(?::\S*)?(?=\s|\Z)", r"-\1", text)
    if re.search(r"(?im)(?:^|[&|(])\s*(?:for|if)\s|%", text):
        return _UNKNOWN
    return powershell_to_shell(re.sub(r"(?<!&)&(?!&)", ";", text), depth)


def other_shell_to_shell(name: str, words: list[str], depth: int = 0) -> str:
    """Return what `powershell`, `pwsh` or `cmd` runs by the words behind it, as text for a shell."""
    inner = (_CMD_TEXT if name == "cmd" else _INNER_TEXT).match(" ".join(words))
    if inner is None or not inner["text"]:
        return _UNKNOWN
    text = inner["text"]
    if name == "cmd":
        return cmd_to_shell(text, depth + 1)
    if inner["file"]:
        return " ".join(map(quoted, text.split()))
    try:
        # with `-EncodedCommand`
        text = base64.b64decode(text, validate=True).decode("utf-16-le") if inner["code"] else text
    except (binascii.Error, ValueError):
        return _UNKNOWN
    return powershell_to_shell(text, depth + 1)


def _statements(tokens: Iterator[re.Match[str]], depth: int, end: str) -> str:
    """Read statements up to a bracket that closes them."""
    lines: list[str] = []
    pipe: list[tuple[list[str], str]] = []
    words: list[str] = []
    inside, is_apart = "", True
    if depth > _MAX_DEPTH:
        # what is nested deeper is not looked at, nor what stands behind it
        return _UNKNOWN + "".join("" for _ in tokens)
    for token in tokens:
        kind, text = token.lastgroup or "", token[0]
        if text == end:
            break
        if kind in ("end", "pipe"):
            pipe.append((words, inside))
            words, inside = [], ""
            if kind == "end":
                lines.append(_pipeline(pipe, depth))
                pipe = []
        elif kind == "block":
            inside += "\n" + _statements(tokens, depth + 1, "}")
        elif kind == "comma" and words:
            words[-1] += "\0"
        elif kind not in ("blank", "comma"):
            is_joined = bool(words) and (not is_apart or words[-1][-1] == "\0")
            if kind == "group":
                piece = f'"$({_statements(tokens, depth + 1, ")")})"'
                piece = piece.strip('"') if text == "@(" else piece
            elif text[0] == "." and kind == "word" and is_joined and words[-1][-1] in '")':
                # a part of a value, or a method of it
                piece = ""
            else:
                piece = _piece(kind, token[kind], depth)
            if is_joined and piece not in _ASSIGNS:
                words[-1] += piece
            else:
                words.append(piece)
            is_apart = piece in _ASSIGNS
            continue
        is_apart = kind != "comma"
    return "\n".join([*lines, _pipeline([*pipe, (words, inside)], depth)]).strip("\n")


def _piece(kind: str, text: str, depth: int) -> str:
    """A part of a word, as a shell writes it."""
    if kind in ("single", "here"):
        return quoted(text.replace("''", "'"))
    text = re.sub(r"`(.)", r"\1", text).replace("\\", "/")
    if kind == "double":
        pieces = _INNER.split(text.replace('"', "'").replace("`", ""))
        for place, inner in enumerate(pieces):
            pieces[place] = (
                f"$({powershell_to_shell(inner, depth + 1)})"
                if place % 2
                else re.sub(r"\$(?:env:)?\w+", lambda name: _variable(name[0]), inner)
            )
        return '"' + "".join(pieces) + '"'
    if kind == "variable":
        return f'"{_variable(text)}"'
    if kind == "as_is":
        return text.lstrip("*")
    return re.sub(r"(?!\A~(?:/|\Z))[^\w./:@%+=*-]+", lambda odd: quoted(odd[0]), text)


def _variable(text: str) -> str:
    # what a part of a value is goes by the value
    name = re.split(r"[.\[]", text.strip("${}"))[0].lower()
    of_system, _, last = name.rpartition(":")
    known = _VARIABLES.get(last)
    return known or (f"${last.upper()}" if of_system == "env" else f"$ps_{last}")


def _pipeline(pipe: list[tuple[list[str], str]], depth: int) -> str:
    """Commands of which each gets what the last one prints, or a variable the last of them."""
    (words, inside), *others = pipe
    is_called = False
    while words and words[0].lower() in _WORDS["keywords"]:
        is_called |= words[0] in "&."
        words = words[2 if words[0].lower() == "function" else 1 :]
    if words[1:2] and words[1] in _ASSIGNS and words[0][:2] == '"$' and not is_called:
        return _assigned(words[0].strip('"$'), words[1], [(words[2:], inside), *others], depth)
    made = [_command(words, inside.strip("\n"), depth, is_called=is_called)]
    for words, inside in others:
        made.append(_command(words, inside.strip("\n"), depth, is_piped=True))
    return " | ".join(filter(None, made)).replace("\0", " ")


def _assigned(name: str, sign: str, pipe: list[tuple[list[str], str]], depth: int) -> str:
    """A variable's value: what stands there, or what commands print."""
    values = [word for word in pipe[0][0] if word != "+"]
    if not values or not name.isidentifier():
        return pipe[0][1]
    inner = "".join(values).replace("\0", " ")
    if pipe[1:] or not re.match("['\"~$0-9]", inner):
        inner = f'"$({_pipeline(pipe, depth)})"'
    inner = f'"${name}"{inner}' if sign == "+=" else inner
    return f"export {name}={inner}" if name.isupper() else f"{name}={inner}"


def _command(
    words: list[str],
    inside: str,
    depth: int,
    *,
    is_called: bool = False,
    is_piped: bool = False,
) -> str:
    """One command as a shell has it. `inside`: the statements in its blocks."""
    if not words:
        return inside
    name = words[0].strip("'\"").lower().removesuffix(".exe")
    if name in ("foreach-object", "%"):
        return f"while read -r ps__; do\n{inside or 'true'}\ndone" if is_piped else inside
    if name == "each":
        variable, values = words[1].strip('"$'), " ".join(words[2:]).strip('"')
        return f"for {variable} in {values}; do\n{inside}\ndone"
    is_value = words[0][0] in "\"'$"
    if is_value and not is_called:
        # a value by itself is printed
        made = " ".join(["echo", *(word for word in words if word != "+")])
    elif is_value and "$" in words[0] and "$HOME" not in words[0]:
        made = _UNKNOWN
    else:
        made = _made(name, words, depth, is_piped=is_piped)
    if name in ("where-object", "where", "?"):
        return made
    return f"{made}\n{inside}".strip("\n")


def _made(name: str, words: list[str], depth: int, *, is_piped: bool) -> str:
    if name in ("invoke-expression", "iex"):
        value = " ".join(word for word in words[1:] if not _OPTION.match(word))
        if re.fullmatch(r"(?:'[^']*'|\"[^\"$]*\")+", value):
            return powershell_to_shell(re.sub("['\"]", "", value), depth + 1)
        return f"sh -c {value}" if "$(" in value else "sh" if is_piped and not value else _UNKNOWN
    if name in ("powershell", "pwsh", "cmd"):
        return other_shell_to_shell(name, [word.strip("'\"") for word in words[1:]], depth)
    if name not in _COMMANDS:
        return " ".join([name if "-" in name else words[0], *words[1:]])
    names, _, template = _COMMANDS[name].partition(";")
    if names[:1] == "/":
        words = [re.sub(r"^/(?=[A-Za-z]+\Z)", "-", word) for word in words]
    values = _bound(words[1:], names.strip("/").split())
    if "whatif" in values:
        return "true"
    return _Filled(values | {"piped": is_piped}).command(template.strip())


def _bound(words: list[str], names: list[str]) -> dict[str, object]:
    """The values of parameters: lists of words of a shell, or True for a switch."""
    values: dict[str, object] = {}
    positional: list[list[str]] = []
    waiting = ""
    for word in words:
        option = _OPTION.match(word)
        if option is not None:
            waiting = option[1].lower()
            values[waiting] = True
            waiting = "" if waiting in _WORDS["switches"] and not option[2] else waiting
        elif waiting:
            values[waiting] = word.split("\0") if "false" not in word else False
            waiting = ""
        else:
            positional.append(word.split("\0"))
    # the last of them takes what is left
    last = max(len(names) - 1, 0)
    positional[last:] = [[word for several in positional[last:] for word in several]]
    return {name: found for name, found in zip(names, positional, strict=False) if found} | values


class _Filled(StandIn):
    """Values that are words of a shell already."""

    def quote(self, word: str) -> str:
        """Return the word as it stands."""
        return word
