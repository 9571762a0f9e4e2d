"""PowerShell and cmd.exe, as text of a POSIX shell that does the same: `policy/data/powershell.txt`
has the commands. What is not understood becomes the command `powershell`, which no reader of shell
text claims to know.

Must not know: which effects anything has.
"""

import base64
import binascii
import re
from collections.abc import Iterable

from policy.effects.argument_values import quoted
from policy.effects.tools.commands import StandIn
from policy.word_tables import by_word, sections

_UNKNOWN = "powershell"
_MAX_CHARS, _MAX_DEPTH = 16_384, 6
_QUOTED = r"('(?:[^']|'')*'|\"[^\"\n]*\"|\$[\w:]+)"
_SECTIONS = sections("powershell.txt")
_COMMANDS = by_word(_SECTIONS["commands"])
_REWRITES = [
    (re.compile(pattern.replace("QUOTED", _QUOTED), re.IGNORECASE), new)
    for pattern, _, new in (line.partition(" => ") for line in _SECTIONS["rewrites"].splitlines())
]
_TOKEN = re.compile(
    r"(?P<comment><#.{0,4000}?#>|(?<![^\s;|{}()])#[^\n]*)|(?P<here>@(['\"])\r?\n.{0,4000}?\n\3@)"
    r"|(?P<single>'(?:[^']|'')*')|(?P<double>\"(?:[^\"`]|`.|\"\")*\")"
    r"|(?P<variable>\$(?:(?:env|global|script|local):)?\w+(?:(?:\.\w+|\[[^\]\n]{0,80}\])+(?!\())?"
    r"|\$\{[^}\n]{1,80}\})|(?P<open>[$@]?\(|@?\{)|(?P<close>[)}])|(?P<end>[;\n]|&&|\|\|)|(?P<pipe>\|)"
    r"|(?P<as_is>(?:\d|\*)?>>?(?:&\d)?|[+-]?=(?!=))|(?P<comma>,)|(?P<blank>[ \t\r]+|`\r?\n)"
    r"|(?P<word>(?:`.|[^\s'\"$;|(){}>`,])+|.)",
    re.DOTALL,
)
_PLAIN = re.compile(r"[\w./:@%+=-]*", re.ASCII)
_OPTION = re.compile(r"-([A-Za-z]+)(:)?\Z")
_POSIX = re.compile(r"--|-[A-Za-z]{1,2}\Z")
_PROGRAMS = frozenset("rm cp mv ls cat curl wget kill mkdir rmdir sort tee diff ps sleep".split())
"""Names of commands that are programs on other systems than Windows, with options of theirs."""
_OF_CMD = frozenset("net net1 icacls cacls robocopy xcopy taskkill shutdown format".split())
"""Programs with options as those of cmd.exe."""
_SWITCHES = frozenset(
    "recurse force confirm passthru nonewline append noclobber asjob usebasicparsing wait nonewwindow raw"
    " verbose whatif file directory hidden debug r fo s q f mir purge add stop grant im pid delete".split()
)
_KEYWORDS = frozenset(
    "if elseif else while for switch try catch finally do until function process begin end filter trap"
    " & . call start".split()
)
_OBSCURE = re.compile(
    r"(?i)\.(?:Invoke|InvokeScript|InvokeCommand|InvokeMember|Kill|Delete|Exec|Run|ShellExecute|MoveTo|Create)\("
    r"|\[(?:System\.)?(?:Reflection|Diagnostics\.Process|Runtime|scriptblock|Activator|AppDomain)\b"
    r"|-(?:TypeDefinition|MemberDefinition|ComObject)\b|\bFromBase64String\b|\[char\]|\bmshta\b|\brundll32\b"
)
"""What runs something that the text does not show."""
_KNOWN_VARIABLES = by_word("""
$home $userprofile $homepath $home_ : $HOME
$temp $tmp : /tmp
$null : /dev/null
$true $false : true
$psitem : $ps__
""")
_ASKS = re.compile(r"(?i)(?:reg|sc|schtasks)(?:\.exe)? [-/]?query")
_CMD_TEXT = re.compile(r"(?is)(?:/(?![ck]\s)\w++\s++)*+/[ck]\s+(?P<text>.*)")
_INNER_TEXT = re.compile(
    r"(?is)(?>-(?:ex\w*+|ep|w|windowstyle|version)\s++\S++\s++"
    r"|-(?!(?:e|ec|enc\w*+|c|command|f|file)\s)\w++\s++)*+"
    r"(?:-(?:(?P<code>e(?:nc\w*+|c)?)|c(?:ommand)?|(?P<file>f(?:ile)?))\s+)?(?P<text>(?!-).*)"
)


def powershell_to_shell(text: str, depth: int = 0) -> str:
    """Return what a text of PowerShell does, as text for a shell."""
    if len(text) > _MAX_CHARS or depth > _MAX_DEPTH:
        return _UNKNOWN
    for pattern, new in _REWRITES:
        text = pattern.sub(new, text)
    made = _Text(_TOKEN.finditer(text), depth).statements()
    return f"{made}\n{_UNKNOWN}" if _OBSCURE.search(text) else made


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
    text = "" if inner is None else inner["text"]
    if inner is None or not text:
        return _UNKNOWN
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


class _Text:
    """The tokens of one text, read from left to right."""

    def __init__(self, tokens: Iterable[re.Match[str]], depth: int) -> None:
        self._tokens, self._depth = iter(tokens), depth

    def statements(self, end: str = "") -> str:
        """Read statements up to a bracket that closes them."""
        lines: list[str] = []
        pipe: list[str] = []
        words: list[str] = []
        blocks: list[str] = []
        is_apart = True
        while (token := next(self._tokens, None)) is not None:
            kind, text = token.lastgroup or "word", token[0]
            if kind == "close" and text == end:
                break
            if kind in ("end", "pipe"):
                self._finish(words, blocks, pipe)
                words, blocks = [], []
                if kind == "end":
                    lines.append(_joined(pipe))
                    pipe = []
            elif kind == "open" and text.endswith("{"):
                blocks.append(self._nested("}"))
            elif kind == "comma" and words:
                words[-1] += "\0"
                is_apart = False
                continue
            elif kind == "word" and text[0] == "." and not is_apart and words[-1][-1:] in '")':
                # a part of a value, or a method of it
                continue
            elif kind not in ("blank", "comment", "close", "comma"):
                piece = self._group(text) if kind == "open" else _piece(kind, text)
                if words and (not is_apart or words[-1].endswith("\0")) and piece not in _ASSIGNS:
                    words[-1] += piece
                else:
                    words.append(piece)
                is_apart = piece in _ASSIGNS
                continue
            is_apart = True
        self._finish(words, blocks, pipe)
        return "\n".join([*lines, _joined(pipe)]).strip("\n")

    def _finish(self, words: list[str], blocks: list[str], pipe: list[str]) -> None:
        if words or blocks:
            pipe.append(_command(words, "\n".join(blocks), self._depth, is_piped=bool(pipe)))

    def _nested(self, end: str) -> str:
        if self._depth >= _MAX_DEPTH:
            # what is nested deeper is not looked at, nor what stands behind it
            self._tokens = iter(())
            return _UNKNOWN
        self._depth += 1
        text = self.statements(end)
        self._depth -= 1
        return text

    def _group(self, bracket: str) -> str:
        """A value in brackets: what a command prints."""
        inner = self._nested(")")
        return f"$({inner})" if bracket == "@(" else f'"$({inner})"' if inner else ""


_ASSIGNS = ("=", "+=", "-=")


def _joined(pipe: list[str]) -> str:
    """A pipe; what a variable gets is what comes out of it."""
    made = " | ".join(filter(None, pipe))
    value = re.match(r'((?:export )?\w+=)"\$\((.*?)\)" \| ', made, re.DOTALL)
    return made if value is None else f'{value[1]}"$({value[2]} | {made[value.end() :]})"'


def _piece(kind: str, text: str) -> str:
    """A part of a word, as a shell writes it."""
    if kind in ("single", "here"):
        return quoted(
            text[1:-1].replace("''", "'") if kind == "single" else text[2:-2].strip("\r\n")
        )
    text = re.sub(r"`(.)", r"\1", text)
    if kind == "double":
        inner = text[1:-1].replace('"', "'").replace("`", "").replace("\\", "/")
        return '"' + re.sub(r"\$(?:env:)?\w+", lambda name: _variable(name[0]), inner) + '"'
    if kind == "variable":
        return f'"{_variable(text)}"'
    if kind == "as_is" or text == "&":
        return text.lstrip("*")
    text = text.replace("\\", "/")
    home = "~" if text == "~" or text.startswith("~/") else ""
    parts = text.removeprefix(home).split("*")
    return home + "*".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in parts)


def _variable(text: str) -> str:
    # what a part of a value is goes by the value
    name = re.sub(r"[.\[].*", "", text.strip("${}").lower())
    of, _, rest = name.rpartition(":")
    made = rest.upper() if of == "env" else "ps_" + re.sub(r"\W+", "_", rest)
    return _KNOWN_VARIABLES.get(f"${rest}", f"${made}")


def _command(words: list[str], inside: str, depth: int, *, is_piped: bool) -> str:
    """One command as a shell has it. `inside`: the statements in its blocks."""
    is_called = False
    while words and words[0].lower() in _KEYWORDS:
        is_called |= words[0] in "&."
        words = words[2 if words[0].lower() == "function" else 1 :]
    if not words:
        return inside
    if words[1:2] and words[1] in _ASSIGNS and words[0].startswith('"$'):
        return _assigned(words, inside, depth)
    if words[0][0] in "\"'$" and not is_called:
        # a value by itself is printed
        made = " ".join(["echo", *(word for word in words if word != "+")])
    elif words[0][0] in "\"'$" and "$" in words[0] and "$HOME" not in words[0]:
        made = _UNKNOWN
    else:
        name = words[0].strip("'\"").lower().removesuffix(".exe")
        if name in ("foreach-object", "%"):
            return f"while read -r ps__; do\n{inside or 'true'}\ndone" if is_piped else inside
        if name == "each":
            variable, values = words[1].strip('"$'), " ".join(words[2:]).strip('"')
            return f"for {variable} in {values}; do\n{inside}\ndone"
        made = _made(name, words, depth, is_piped=is_piped)
        if name in ("where-object", "where", "?"):
            inside = ""
    return "\n".join(filter(None, (made.replace("\0", " "), inside)))


def _assigned(words: list[str], inside: str, depth: int) -> str:
    """A variable's value: what stands there, or what a command prints."""
    name, value = words[0].strip('"$'), [word for word in words[2:] if word != "+"]
    if not value or not name.isidentifier():
        return inside
    if value[0][0] in "'\"~$" or value[0][0].isdigit():
        inner = "".join(value).replace("\0", " ")
    else:
        inner = f'"$({_command(value, inside, depth, is_piped=False)})"'
    inner = f'"${name}"{inner}' if words[1] == "+=" else inner
    return f"export {name}={inner}" if name.isupper() else f"{name}={inner}"


def _made(name: str, words: list[str], depth: int, *, is_piped: bool) -> str:
    if name in ("invoke-expression", "iex"):
        value = " ".join(word for word in words[1:] if not _OPTION.match(word))
        if re.fullmatch(r"(?:'[^']*'|\"[^\"$]*\")+", value):
            return powershell_to_shell(re.sub("['\"]", "", value), depth + 1)
        return f"sh -c {value}" if "$(" in value else "sh" if is_piped and not value else _UNKNOWN
    if name in ("powershell", "pwsh", "cmd"):
        return other_shell_to_shell(name, [word.strip("'\"") for word in words[1:]], depth)
    if _ASKS.match(" ".join(words)):
        return "true"
    if name not in _COMMANDS or (name in _PROGRAMS and any(map(_POSIX.match, words[1:]))):
        return " ".join([name if "-" in name else words[0], *words[1:]])
    if name in _OF_CMD:
        words = [re.sub(r"^/(?=[A-Za-z]+\Z)", "-", word) for word in words]
    names, _, template = _COMMANDS[name].partition(";")
    values = _bound(words[1:], names.split())
    if "whatif" in values:
        return "true"
    if "env:" in str(values.get("path")).lower() and template.strip().startswith("find"):
        return "printenv"
    if is_piped:
        values["piped"] = True
    return _Filled(values).command(template.strip())


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
            if waiting in ("r", "rec", "recur", "rf"):
                values["recurse"] = True
            waiting = "" if waiting in _SWITCHES and not option[2] else waiting
        elif waiting:
            values[waiting] = word.split("\0") if "false" not in word else False
            waiting = ""
        else:
            positional.append(word.split("\0"))
    for place, name in enumerate(names):
        rest = positional[place:] if place == len(names) - 1 else positional[place : place + 1]
        if rest:
            values.setdefault(name, [word for several in rest for word in several])
    return values


class _Filled(StandIn):
    """Values that are words of a shell already."""

    def quote(self, word: str) -> str:
        """Return the word as it stands."""
        return word
