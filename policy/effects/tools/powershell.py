"""PowerShell and cmd.exe, as text of a POSIX shell that does the same: `policy/data/powershell.txt`
has the commands. What is not understood becomes the command `powershell`, which no reader of shell
text claims to know.

Must not know: which effects anything has.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from itertools import pairwise

from policy.effects.argument_values import quoted
from policy.effects.tools.commands import StandIn
from policy.effects.tools.table import sections

_UNKNOWN = "powershell"
_MAX_CHARS, _MAX_DEPTH = 32_768, 6
_TABLES = {
    kind: {
        name: (positional.split(), command.strip())
        for name, row in rows.items()
        for positional, _, command in [row.partition(";")]
    }
    for kind, rows in sections("powershell.txt").items()
}
_TOKEN = re.compile(
    r"(?P<comment><#.*?#>|(?<![^\s;|{}()])#[^\n]*)|(?P<here>@(['\"])\r?\n.*?\n\3@)"
    r"|(?P<single>'(?:[^']|'')*')|(?P<double>\"(?:[^\"`]|`.|\"\")*\")"
    r"|(?P<variable>\$(?:(?:env|global|script|local):)?\w+(?:(?:\.\w+|\[[^\]\n]{0,80}\])+(?!\())?|\$\{[^}\n]{1,80}\})"
    r"|(?P<open>[$@]?\(|@?\{)|(?P<close>[)}])|(?P<end>[;\n]|&&|\|\|)|(?P<pipe>\|)"
    r"|(?P<redirect>(?:\d|\*)?>>?(?:&\d)?)|(?P<assign>[+-]?=(?!=))|(?P<comma>,)"
    r"|(?P<blank>[ \t\r]+|`\r?\n)|(?P<word>(?:`.|[^\s'\"$;|(){}>`,])+|.)",
    re.DOTALL,
)
_HOMES = frozenset("home userprofile homepath".split())
_TEMPORARY = frozenset("temp tmp".split())
_SWITCHES = frozenset(
    "recurse force confirm passthru nonewline append noclobber asjob usebasicparsing wait nonewwindow raw"
    " verbose whatif file directory hidden debug r fo s usedefaultcredentials skipcertificatecheck".split()
)
_COMMA = "\0"
"""Between the values of a list."""
_KEYWORDS = frozenset(
    "if elseif else while for switch try catch finally do until function process begin end filter trap"
    " & . foreach".split()
)
_OBSCURE = re.compile(
    r"(?i)\.(?:Invoke|InvokeScript|InvokeCommand|InvokeMember|Kill|Delete|Exec|Run|ShellExecute|MoveTo|Create)\("
    r"|\[(?:System\.)?(?:Reflection|Diagnostics\.Process|Runtime|scriptblock|Activator|AppDomain)\b"
    r"|-(?:TypeDefinition|MemberDefinition|ComObject)\b|\bFromBase64String\b|\[char\]|\bmshta\b|\brundll32\b"
)
"""What runs something that the text does not show."""
_QUOTED = r"('(?:[^']|'')*'|\"[^\"\n]*\"|\$[\w:]+)"
_REPLACED = tuple(
    (re.compile(pattern, re.IGNORECASE), new)
    for pattern, new in (
        (
            rf"\(\s*New-Object\s+(?:System\.)?Net\.WebClient\s*\)\.Download(?:String|Data)\(\s*{_QUOTED}\s*\)",
            r"(curl \1)",
        ),
        (
            rf"\(\s*New-Object\s+(?:System\.)?Net\.WebClient\s*\)\.DownloadFile\(\s*{_QUOTED}\s*,\s*{_QUOTED}\s*\)",
            r"curl -outfile \2 \1",
        ),
        (
            rf"\(\s*New-Object\s+(?:System\.)?Net\.WebClient\s*\)\.Upload\w+\(\s*{_QUOTED}\s*,(?:[^,)]*,)?\s*([^)]+)\)",
            r"curl -body \2 \1",
        ),
        (
            rf"\[(?:System\.)?IO\.(?:File|Directory)\]::Delete\(\s*{_QUOTED}[^)]*\)",
            r"remove-item -recurse \1",
        ),
        (
            rf"\[(?:System\.)?IO\.File\]::(?:Write|Append)All\w+\(\s*{_QUOTED}\s*,\s*([^)]*)\)",
            r"set-content \1 \2",
        ),
        (rf"\[(?:System\.)?IO\.File\]::ReadAll\w+\(\s*{_QUOTED}[^)]*\)", r"(get-content \1)"),
        (r"\[(?:System\.)?Environment\]::GetFolderPath\(\s*['\"]UserProfile['\"]\s*\)", "$HOME"),
    )
)
_ASKS = {("reg", "query"), ("sc", "query"), ("sc", "queryex"), ("schtasks", "query")}
_OF_CMD = frozenset(
    "net net1 icacls cacls takeown taskkill format setx shutdown robocopy xcopy mklink reg sc schtasks".split()
)
_CMDLET = re.compile(r"[a-z]+-[a-z]+")
_PLAIN = re.compile(r"[\w./:@%+=-]*", re.ASCII)
_PIPED_VALUE = re.compile(r'((?:export )?\w+)="\$\((.*)\)"', re.DOTALL)
_VALUED = re.compile(
    r"-(?:ex\w*|ep|w|windowstyle|version|inputformat|outputformat|configurationname)\Z",
    re.IGNORECASE,
)
_OPTION = re.compile(r"-([A-Za-z]+)(:)?\Z")
_PROGRAMS = frozenset("rm cp mv ls cat curl wget kill mkdir rmdir sort tee diff ps sleep".split())
_POSIX = re.compile(r"--|'--|-[A-Za-z]{1,2}\Z")
_ENCODED = re.compile(r"-e(?:nc\w*|c)?\Z", re.IGNORECASE)


def powershell_to_shell(text: str, depth: int = 0) -> str:
    """Return what a text of PowerShell does, as text for a shell."""
    if len(text) > _MAX_CHARS or depth > _MAX_DEPTH:
        return _UNKNOWN
    for pattern, new in _REPLACED:
        text = pattern.sub(new, text)
    tail = f"\n{_UNKNOWN}" if _OBSCURE.search(text) else ""
    return _Text([*_TOKEN.finditer(text)], depth).statements() + tail


def cmd_to_shell(text: str, depth: int = 0) -> str:
    """Return what a text of cmd.exe does, as text for a shell."""
    lines = []
    for line in re.sub(r"\^\r?\n", " ", text[:_MAX_CHARS]).split("\n"):
        line = re.sub(r"\^(.)", r"\1", line.strip().lstrip("@"))
        line = re.sub(r"(?i)%(?:userprofile|homepath)%", "~", line)
        line = re.sub(r"%(\w+)%", r"$\1", line)
        parts = re.split(r"(&&?|\|\|?|>>?)", line)
        lines.append(" ".join(_cmd_part(part, depth) for part in parts if part.strip()))
    return "\n".join(lines)


def _cmd_part(part: str, depth: int) -> str:
    if part[0] in "&|>":
        return ";" if part == "&" else part
    words = re.findall(r'"[^"]*"|[^\s"]+', part)
    name = words[0].strip('"').lower().removesuffix(".exe")
    plain = [word.strip('"').replace("\\", "/") for word in words]
    if name in ("powershell", "pwsh"):
        return inner_powershell([word.strip('"') for word in words[1:]], depth)
    if name in ("cmd", "for", "if"):
        return (
            cmd_to_shell(" ".join(words[2:]), depth + 1)
            if name == "cmd" and depth < _MAX_DEPTH
            else _UNKNOWN
        )
    shown = [word if word.startswith(("~", "$")) or "*" in word else quoted(word) for word in plain]
    switches: dict[str, object] = {
        word[1:].partition(":")[0].lower(): True for word in plain[1:] if word.startswith("/")
    }
    if words[1:] and (name, words[1].lower().strip("/")) in _ASKS:
        return "true"
    switches |= dict.fromkeys(plain[1:2] if name == "net" else (), True)
    return _filled(
        "cmd", name, [w for w in shown[1:] if not w.strip("'").startswith("/")], switches
    ) or " ".join(shown)


class _Text:
    """The tokens of one text, read from left to right."""

    def __init__(self, tokens: Sequence[re.Match[str]], depth: int) -> None:
        self._tokens, self._at, self._depth = tokens, 0, depth

    def statements(self, end: str = "") -> str:
        """Read statements up to a bracket that closes them."""
        lines: list[str] = []
        pipe: list[str] = []
        words: list[str] = []
        is_apart, glue = True, ""
        blocks: list[str] = []

        def finish(*, is_end: bool) -> None:
            nonlocal words, pipe, blocks
            if words or blocks:
                pipe.append(_command(words, blocks, self._depth, is_piped=bool(pipe)))
            words, blocks = [], []
            if is_end and len(pipe) > 1 and (value := _PIPED_VALUE.fullmatch(pipe[0])):
                pipe = [f'{value[1]}="$({" | ".join([value[2], *pipe[1:]])})"']
            if is_end and pipe:
                lines.append(" | ".join(stage for stage in pipe if stage))
                pipe = []

        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            kind, text = token.lastgroup or "word", token[0]
            if kind == "close":
                if text == end:
                    break
            elif kind in ("blank", "comment"):
                is_apart = True
            elif kind in ("end", "pipe"):
                finish(is_end=kind == "end")
                is_apart = True
            elif kind == "open" and text.endswith("{"):
                inner = self._nested("}")
                if text == "{":
                    blocks.append(inner)
                else:
                    words.append("''")
                is_apart = True
            elif kind == "comma":
                glue = _COMMA
            elif kind == "assign" and len(words) == 1:
                words.append(text)
                is_apart = True
            elif (
                kind == "word"
                and text[0] == "."
                and not is_apart
                and words[-1:]
                and words[-1][-1:] == '"'
            ):
                # a part of a value, or a method of it
                continue
            else:
                piece = self._group() if kind == "open" else _piece(kind, text)
                if words and (glue or not is_apart):
                    words[-1] += glue + piece
                else:
                    words.append(piece)
                is_apart, glue = False, ""
        finish(is_end=True)
        return "\n".join(lines)

    def _nested(self, end: str) -> str:
        self._depth += 1
        text = self.statements(end) if self._depth <= _MAX_DEPTH else _UNKNOWN
        self._depth -= 1
        return text

    def _group(self) -> str:
        """A value in brackets: texts that are put together, or what a command prints."""
        begin = self._at
        inner = self._nested(")")
        tokens = [
            token for token in self._tokens[begin : self._at - 1] if token.lastgroup != "blank"
        ]
        if tokens[1:2] and tokens[1][0].lower() == "in":
            rest = self._tokens[begin : self._at - 1]
            each = _Text(rest[rest.index(tokens[1]) + 1 :], self._depth + 1).statements()
            return f"for {_variable(tokens[0][0])[1:]} in $({each}); do"
        if (
            tokens
            and tokens[0].lastgroup in _VALUES
            and not any(token.lastgroup in ("pipe", "assign") for token in tokens)
        ):
            values = [token for token in tokens if token.lastgroup in _VALUES]
            glue = _COMMA if any(token.lastgroup == "comma" for token in tokens) else ""
            return glue.join(_piece(token.lastgroup or "", token[0]) for token in values)
        return f'"$({inner})"' if inner else ""


_VALUES = ("single", "double", "variable", "here")


def _piece(kind: str, text: str) -> str:
    """A part of a word, as a shell writes it."""
    if kind == "single":
        return quoted(text[1:-1].replace("''", "'"))
    if kind == "here":
        return quoted(text[2:-2].strip("\r\n"))
    if kind == "double":
        inner = re.sub(r"`(.)", r"\1", text[1:-1].replace('""', '"'))
        return (
            '"'
            + re.sub(
                r"\$(?:env:)?(\w+)",
                lambda m: _variable(m[0]),
                inner.replace('"', "'").replace("`", ""),
            ).replace("\\", "/")
            + '"'
        )
    if kind == "variable":
        return f'"{_variable(text)}"'
    text = re.sub(r"`(.)", r"\1", text).replace("\\", "/")
    if kind in ("redirect", "assign") or text in "&." or _OPTION.match(text):
        return text.lstrip("*")
    if text == "~" or text.startswith("~/"):
        return "~" + (quoted(text[1:]) if text[1:] else "")
    return "*".join(part if _PLAIN.fullmatch(part) else quoted(part) for part in text.split("*"))


def _variable(text: str) -> str:
    # what a part of a value is goes by the value
    name = re.sub(r"[.\[].*", "", text.strip("${}").lower())
    of, _, rest = name.replace("psitem", "_").rpartition(":")
    if rest in _HOMES:
        return "$HOME"
    if rest in _TEMPORARY and of == "env":
        return "/tmp"
    if rest in ("null", "true", "false"):
        return "/dev/null" if rest == "null" else rest
    return "$" + (rest.upper() if of == "env" else "ps_" + re.sub(r"\W+", "_", rest))


def _bare(word: str) -> str:
    return word.replace("'", "").replace('"', "")


def _command(words: list[str], blocks: list[str], depth: int, *, is_piped: bool) -> str:
    """One command as a shell has it, with the blocks that stand in it."""
    inside = "\n".join(blocks)
    is_called = False
    while words and (word := _bare(words[0]).lower()) in _KEYWORDS:
        is_called |= word in "&."
        words = words[2 if word == "function" else 1 :]
    if not words:
        return inside
    if words[0].startswith("for ps_"):
        return f"{words[0]}\n{inside}\ndone"
    if words[1:2] and words[1] in ("=", "+=", "-=") and words[0].startswith('"$'):
        return _assigned(words, blocks, depth)
    if words[0][0] in "\"'" and not is_called:
        # a value by itself is printed
        printed = " ".join(["echo", *words]).replace(_COMMA, " ")
        return f"{printed}\n{inside}" if inside else printed
    if words[0].startswith('"$ps_'):
        return _UNKNOWN
    name = _bare(words[0]).lower().removesuffix(".exe")
    if name in ("foreach-object", "%"):
        stage = f"while read -r ps__; do\n{inside}\ndone" if inside else "cat"
        return stage if is_piped else inside
    if name in ("invoke-expression", "iex"):
        return _evaluated(words[1:], depth, is_piped=is_piped)
    if name in ("powershell", "pwsh"):
        return inner_powershell([*map(_unquoted, words[1:])], depth)
    if name == "cmd":
        return cmd_to_shell(" ".join(map(_unquoted, words[2:])), depth + 1)
    if name in _OF_CMD:
        return _cmd_part(" ".join([name, *map(_unquoted, words[1:])]), depth)
    if name in _PROGRAMS and any(_POSIX.match(word) for word in words[1:]):
        # on other systems than Windows it is the program of that name
        return " ".join(words).replace(_COMMA, ",")
    if (
        name in ("get-childitem", "gci", "ls", "dir", "get-item", "gi")
        and "env:" in words[-1].lower()
    ):
        return "printenv"
    positional, named = _bound(words[1:])
    if "whatif" in named:
        return "true"
    if is_piped:
        named["piped"] = True
    if _bare(str(named.get("verb", ""))).lower() == "runas":
        named["elevated"] = True
    made = _filled("powershell", name, positional, named)
    if made is None:
        program = name if _CMDLET.fullmatch(name) else words[0]
        made = " ".join([program, *words[1:]]).replace(_COMMA, ",")
    return made + (f"\n{inside}" if inside and name not in ("where-object", "where", "?") else "")


def _assigned(words: list[str], blocks: list[str], depth: int) -> str:
    """A variable's value: what stands there, or what a command prints."""
    name, value = words[0].strip('"$'), words[2:]
    if not value or not name.isidentifier():
        return "\n".join(blocks)
    if set(value[1::2]) == {"+"}:
        value = ["".join(value[::2])]
    is_text = len(value) == 1 and (value[0][0] in "'\"~" or value[0][0].isdigit())
    inner = value[0] if is_text else f'"$({_command(value, blocks, depth, is_piped=False)})"'
    if words[1] == "+=":
        inner = f'"${name}"{inner}'
    return f"export {name}={inner}" if name.isupper() else f"{name}={inner}"


def _evaluated(words: list[str], depth: int, *, is_piped: bool) -> str:
    """What is run as PowerShell: a text that stands there, or what a host sends."""
    if not words:
        return "sh" if is_piped else _UNKNOWN
    value = " ".join(word for word in words if not _bare(word).startswith("-"))
    if re.fullmatch(r"(?:'[^']*'|\"[^\"$]*\")+", value):
        return powershell_to_shell(_bare(value), depth + 1)
    return f"sh -c {value}" if "$(" in value else _UNKNOWN


def _unquoted(word: str) -> str:
    return word[1:-1].replace("'\\''", "'") if word[:1] in "'\"" and word[-1:] == word[:1] else word


def inner_powershell(words: list[str], depth: int) -> str:
    """What `powershell` or `pwsh` runs by these words."""
    for place, word in enumerate(words):
        rest = words[place + 1 :]
        if _ENCODED.match(word) and rest:
            try:
                text = base64.b64decode(rest[0], validate=True).decode("utf-16-le")
            except (binascii.Error, ValueError):
                return _UNKNOWN
            return powershell_to_shell(text, depth + 1)
        if word.lower() in ("-command", "-c") and rest:
            return powershell_to_shell(" ".join(rest), depth + 1)
        if word.lower() in ("-file", "-f") and rest:
            return " ".join(map(quoted, rest))
    behind = [
        word
        for before, word in pairwise(["", *words])
        if not word.startswith("-") and not _VALUED.match(before)
    ]
    return powershell_to_shell(" ".join(behind), depth + 1) if behind else _UNKNOWN


def _bound(words: list[str]) -> tuple[list[str], dict[str, object]]:
    """Words without a parameter's name, and the values of the others."""
    positional: list[str] = []
    named: dict[str, object] = {}
    at = 0
    while at < len(words):
        match = _OPTION.match(words[at])
        at += 1
        if match is None:
            positional.append(words[at - 1])
            continue
        name = match[1].lower()
        if name in ("r", "rec", "recu", "recur", "recurs", "rf"):
            name = "recurse"
        if (
            match[2] is not None
            or name in _SWITCHES
            or at == len(words)
            or _OPTION.match(words[at])
        ):
            # `-Force:$false`
            named[name] = match[2] != ":" or "false" not in words[at : at + 1]
            continue
        named[name] = words[at].split(_COMMA)
        at += 1
    return positional, named


class _Filled(StandIn):
    """Values that are words of a shell already."""

    def quote(self, word: str) -> str:
        """Return the word as it stands."""
        return word


def _filled(kind: str, name: str, positional: list[str], named: dict[str, object]) -> str | None:
    row = _TABLES[kind].get(name)
    if row is None:
        return None
    names, template = row
    values = dict(named)
    for place, key in enumerate(names):
        behind = positional[place:] if place == len(names) - 1 else positional[place : place + 1]
        if behind:
            values.setdefault(key, [value for word in behind for value in word.split(_COMMA)])
    return _Filled(values).command(template)


def other_shell_to_shell(name: str, words: list[str]) -> str:
    """Return what `powershell`, `pwsh` or `cmd` runs by the words behind it, as text for a shell."""
    if name == "cmd":
        at = next((at for at, word in enumerate(words) if word.lower() in ("/c", "/k")), len(words))
        return cmd_to_shell(" ".join(words[at + 1 :]), 1) if words[at + 1 :] else _UNKNOWN
    return inner_powershell(words, 1)
