"""What simple programs print, where their arguments and input are known: `echo`, `printf`,
`base64 -d`, `rev`, `tr`, `cut`, ...

A disguised program passes through these before a shell gets it. Each returns None where it is not
sure, which is never an error.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Callable

from policy.patterns import compile_re2
from policy.shell.parse import escapes
from policy.shell.run.values import MAX_VALUE, is_known, without_signs

Args = list[str]
_MAX_PRINTED = 4 * MAX_VALUE
_MAX_EDITED = 4_096
"""Characters that a pattern of the client's is applied to."""
_MAX_SCRIPT = 300
"""Characters of the programs and sets of `awk` and `tr`."""
_DIRECTIVE = re.compile(r"%([-+ 0#']*)(\d*|\*)(?:\.(\d*|\*))?([a-zA-Z%])|%")
_CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": " \t\n\r\v\f",
    "punct": "!-/:-@[-`{-~",
    "blank": " \t",
    "print": " -~",
    "graph": "!-~",
}
_SED = re.compile(r"\s*(\d+|\$)?\s*(?:(s|y)([^\w\s\\])(.*)|(p|d|q))\s*", re.DOTALL)


def printed(name: str, args: Args, stdin: str | None) -> str | None:
    """Return what the program prints, None if that is not known. `stdin` is None where it reads
    nothing that is known."""
    known = _PROGRAMS.get(name)
    if known is None:
        return None
    try:
        made = known(args, stdin)
    except (ValueError, IndexError, OverflowError, binascii.Error, zlib.error, re.error):
        return None
    return made if made is not None and len(made) <= _MAX_PRINTED else None


def _echo(args: Args, _: str | None) -> str:
    at = 0
    has_end, is_escaped = "\n", False
    while at < len(args) and re.fullmatch(r"-[neE]+", args[at]):
        has_end = "" if "n" in args[at] else has_end
        is_escaped = is_escaped or "e" in args[at]
        at += 1
    text = " ".join(args[at:])
    return (escapes.echo(text) if is_escaped else text) + has_end


def printf(args: Args, _: str | None = None) -> str | None:
    """Return what `printf` prints; its format is used again while there are arguments left."""
    args = args[1:] if args[:1] == ["--"] else args
    if not args:
        return ""
    layout, values = args[0], args[1:]
    made: list[str] = []
    size = 0
    while True:
        before = len(values)
        end = 0
        for match in _DIRECTIVE.finditer(layout):
            made.append(escapes.ansi_c(layout[end : match.start()]))
            end = match.end()
            flags, width, precision, kind = match.groups()
            if kind in (None, "%"):
                made.append("%")
                continue
            if "*" in (width, precision):
                return None
            value = values.pop(0) if values else ""
            made.append(_directive(kind, value, int(precision) if precision else None))
            padding = min(int(width or 0), 1_000)
            made[-1] = (
                made[-1].ljust(padding)
                if "-" in flags
                else made[-1].rjust(padding, "0" if "0" in flags else " ")
            )
            size += len(made[-1])
        made.append(escapes.ansi_c(layout[end:]))
        size += len(layout)
        if not values or len(values) == before or size > _MAX_PRINTED:
            return "".join(made)


def _directive(kind: str, value: str, precision: int | None) -> str:
    if kind in "sqQ":
        return value if precision is None else value[:precision]
    if kind == "b":
        return escapes.echo(value)
    if kind == "c":
        return value[:1]
    number = (
        ord(value[1])
        if value[:1] in ("'", '"') and len(value) > 1
        else int(value[:20] or "0", 8 if re.fullmatch(r"0[0-7]+", value) else 0)
    )
    return {"x": f"{number:x}", "X": f"{number:X}", "o": f"{number:o}"}.get(kind, str(number))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return without_signs(data.decode("utf-8", "surrogateescape"))


def _flags(args: Args) -> str:
    return "".join(arg[1:] for arg in args if re.fullmatch(r"-[A-Za-z]+", arg))


def _base64(args: Args, stdin: str | None) -> str | None:
    is_decoded = any(letter in _flags(args) for letter in "dD") or any(
        arg.startswith("--d") for arg in args
    )
    if stdin is None or any(not arg.startswith("-") for arg in args):
        return None
    if not is_decoded:
        return base64.b64encode(_bytes(stdin)).decode() + "\n"
    text = re.sub(r"[^A-Za-z0-9+/_-]", "", stdin).replace("-", "+").replace("_", "/")
    return _text(
        base64.b64decode(text[: len(text) - (len(text) % 4 == 1)] + "=" * (-len(text) % 4))
    )


def _base32(args: Args, stdin: str | None) -> str | None:
    if stdin is None or not ("d" in _flags(args) or "--decode" in args):
        return None
    text = re.sub(r"[^A-Z2-7]", "", stdin)
    return _text(base64.b32decode(text + "=" * (-len(text) % 8)))


def _xxd(args: Args, stdin: str | None) -> str | None:
    flags = _flags(args)
    if stdin is None:
        return None
    if "r" not in flags:
        return stdin.encode("utf-8", "surrogateescape").hex() + "\n" if "p" in flags else None
    if "p" not in flags:
        stdin = "".join(
            match[1]
            for match in re.finditer(r"(?m)^[0-9a-fA-F]+: ((?:[0-9a-fA-F]{2,4} ?)+)", stdin)
        )
    text = re.sub(r"[^0-9a-fA-F]", "", stdin)
    return _text(bytes.fromhex(text[: len(text) // 2 * 2]))


def _openssl(args: Args, stdin: str | None) -> str | None:
    if args[:1] == ["base64"] or (
        args[:1] == ["enc"] and any(arg in ("-base64", "-a") for arg in args)
    ):
        return _base64(["-d"], stdin) if "-d" in args else None
    return None


def _gunzip(args: Args, stdin: str | None) -> str | None:
    if stdin is None or any(not arg.startswith("-") for arg in args):
        return None
    machine = zlib.decompressobj(wbits=47)
    return _text(machine.decompress(_bytes(stdin), MAX_VALUE))


def _gzip(args: Args, stdin: str | None) -> str | None:
    return _gunzip(args, stdin) if "d" in _flags(args) or "--decompress" in args else None


def _lines(stdin: str | None) -> list[str]:
    if stdin is None:
        raise ValueError
    return stdin.removesuffix("\n").split("\n") if stdin else []


def _ended(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _set_of_tr(text: str) -> str:
    if len(text) > _MAX_SCRIPT:
        raise ValueError
    text = re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match[1], ""), text)
    text = re.sub(r"\[=(.)=\]|\[(.)\*\d*\]", lambda match: match[1] or match[2], text)
    text = escapes.ansi_c(text)
    return re.sub(
        r"(?s)(.)-(.)",
        lambda match: "".join(
            map(chr, range(ord(match[1]), min(ord(match[2]), ord(match[1]) + 255) + 1))
        ),
        text,
    )


def _tr(args: Args, stdin: str | None) -> str | None:
    flags = _flags(args) + "".join(
        {"--delete": "d", "--squeeze-repeats": "s", "--complement": "c"}.get(arg, "")
        for arg in args
    )
    sets = [
        _set_of_tr(arg)
        for arg in args
        if not (re.fullmatch(r"-[cCdst]+", arg) or arg.startswith("--"))
    ]
    if stdin is None or not sets:
        return None
    members = set(sets[0])
    is_not = "c" in flags.lower()
    if "d" in flags:
        return "".join(sign for sign in stdin if (sign in members) == is_not)
    if len(sets) > 1 and sets[1]:
        last = sets[1][-1]
        if "c" in flags.lower():
            stdin = "".join(last if (sign in members) != is_not else sign for sign in stdin)
        else:
            stdin = stdin.translate(
                {
                    ord(old): sets[1][at] if at < len(sets[1]) else last
                    for at, old in reversed(list(enumerate(sets[0])))
                }
            )
    if "s" in flags:
        squeezed = re.escape(sets[-1])
        stdin = re.sub(f"([{squeezed}])\\1+", r"\1", stdin)
    return stdin


def _ranges(text: str, size: int) -> list[int]:
    places: list[int] = []
    for span in text.split(","):
        first, dash, last = span.partition("-")
        start = int(first or 1)
        end = int(last or size) if dash else start
        places += range(start, min(end, size) + 1)
    return sorted(set(places))


def _option(args: Args, letter: str, long: str = "") -> str | None:
    for place, arg in enumerate(args):
        if arg in (f"-{letter}", f"--{long}") and place + 1 < len(args):
            return args[place + 1]
        if long and arg.startswith(f"--{long}="):
            return arg.partition("=")[2]
        if arg.startswith(f"-{letter}") and len(arg) > 2 and not arg.startswith("--"):
            return arg[2:]
    return None


def _cut(args: Args, stdin: str | None) -> str | None:
    chars = _option(args, "c", "characters") or _option(args, "b", "bytes")
    if chars:
        return _ended(
            ["".join(line[at - 1] for at in _ranges(chars, len(line))) for line in _lines(stdin)]
        )
    wanted = _option(args, "f", "fields")
    if not wanted:
        return None
    sign = _option(args, "d", "delimiter") or "\t"
    made = []
    for line in _lines(stdin):
        pieces = line.split(sign)
        made.append(
            line
            if len(pieces) == 1
            else sign.join(pieces[at - 1] for at in _ranges(wanted, len(pieces)))
        )
    return _ended(made)


def _head(args: Args, stdin: str | None) -> str | None:
    chars = _option(args, "c", "bytes")
    if stdin is None or chars is not None:
        return None if stdin is None or chars is None else stdin[: int(chars)]
    number = _option(args, "n", "lines") or next(
        (arg[1:] for arg in args if re.fullmatch(r"-\d+", arg)), "10"
    )
    return _ended(_lines(stdin)[: int(number)])


def _tail(args: Args, stdin: str | None) -> str | None:
    chars = _option(args, "c", "bytes")
    if stdin is None:
        return None
    if chars is not None:
        return stdin[int(chars) - 1 :] if chars.startswith("+") else stdin[-int(chars) :]
    number = _option(args, "n", "lines") or next(
        (arg[1:] for arg in args if re.fullmatch(r"-\d+", arg)), "10"
    )
    lines = _lines(stdin)
    return _ended(lines[int(number) - 1 :] if number.startswith("+") else lines[-int(number) :])


def _sed(args: Args, stdin: str | None) -> str | None:
    """`sed` with one plain substitution or one line that is taken."""
    scripts = [
        args[at + 1] for at, arg in enumerate(args[:-1]) if arg in ("-e", "--expression")
    ] or [arg for arg in args if arg[:1] != "-"][:1]
    flags = "".join(arg[1:] for arg in args if re.fullmatch(r"-[nrEe]+", arg))
    lines = _lines(stdin)
    if len(stdin or "") > _MAX_EDITED:
        return None
    for script in [part for text in scripts for part in re.split(r";(?=\s*[sy\d])", text)]:
        match = _SED.fullmatch(script) if len(script) <= _MAX_EDITED else None
        if match is None or len(lines) > 64:
            return None
        line, kind, mark, body, other = match.groups()
        chosen = (
            range(len(lines))
            if line is None
            else [len(lines) - 1 if line == "$" else int(line) - 1]
        )
        if kind is None:
            if other == "p" and "n" in flags:
                lines = [lines[at] for at in chosen if at < len(lines)]
            elif other == "d" and line is not None:
                lines = [part for at, part in enumerate(lines) if at not in chosen]
            else:
                return None
            continue
        pieces = re.split(rf"(?<!\\){re.escape(mark)}", body)
        if len(pieces) != 3 or pieces[2].strip("gI \n"):
            return None
        change = _change_of_sed(kind, pieces, "E" in flags or "r" in flags, mark)
        lines = [change(part) if at in chosen else part for at, part in enumerate(lines)]
    return _ended(lines)


def _change_of_sed(
    kind: str, pieces: list[str], is_extended: bool, mark: str
) -> Callable[[str], str]:
    old, new, flags = (piece.replace(f"\\{mark}", mark) for piece in pieces)
    if kind == "y":
        return lambda text: text.translate(str.maketrans(old, new))
    if not is_extended:
        old = re.sub(r"\\([(){}|+?])|([(){}|+?])", lambda match: match[1] or f"\\{match[2]}", old)
    for name, members in _CLASSES.items():
        old = old.replace(f"[:{name}:]", members)
    pattern = compile_re2(old, any_case="I" in flags)
    made = re.sub(r"(?<!\\)&", r"\\g<0>", new).replace("\\n", "\n").replace("\\&", "&")
    times = 0 if "g" in flags else 1

    def change(text: str) -> str:
        changed: str = pattern.sub(made, text, times)
        return changed

    return change


def _awk(args: Args, stdin: str | None) -> str | None:
    sign = _option(args, "F")
    scripts = [arg for arg in args if "{" in arg]
    if any(len(script) > _MAX_SCRIPT for script in scripts):
        return None
    match = (
        re.fullmatch(
            r"\s*\{\s*print((?:[\s,]*(?:\$\d+|\$NF|\"[^\"\\]*\"))*)\s*;?\s*\}\s*", scripts[0]
        )
        if len(scripts) == 1
        else None
    )
    if match is None:
        begin = (
            re.fullmatch(
                r"""\s*BEGIN\s*\{\s*printf?\s+"((?:[^"\\]|\\.)*)"\s*;?\s*\}\s*""", scripts[0]
            )
            if len(scripts) == 1
            else None
        )
        return (
            escapes.ansi_c(begin[1]) + ("" if "printf" in scripts[0] else "\n") if begin else None
        )
    made = []
    for line in _lines(stdin):
        fields = line.split(sign)
        text = ""
        for piece in re.finditer(r"(,\s*)|\$(\d+|NF)|\"([^\"]*)\"", match[1] or "$0"):
            comma, number, literal = piece.groups()
            at = 0 if number is None else len(fields) if number == "NF" else int(number)
            text += (
                " "
                if comma
                else (
                    literal
                    if number is None
                    else line
                    if at == 0
                    else fields[at - 1]
                    if at <= len(fields)
                    else ""
                )
            )
        made.append(text)
    return _ended(made)


def _seq(args: Args, _: str | None) -> str | None:
    numbers = [int(arg) for arg in args]
    first, step, last = (
        (1, 1, numbers[0])
        if len(numbers) == 1
        else (numbers[0], 1, numbers[1])
        if len(numbers) == 2
        else numbers
    )
    made = range(first, last + (1 if step > 0 else -1), step)
    return _ended([str(number) for number in made]) if len(made) <= 256 else None


def _basename(args: Args, _: str | None) -> str | None:
    return (
        (
            args[0].rstrip("/").rpartition("/")[2].removesuffix(args[1] if len(args) > 1 else "\0")
            + "\n"
        )
        if args
        else None
    )


def _which(args: Args, _: str | None) -> str | None:
    names = [arg for arg in args if not arg.startswith("-")]
    return (
        _ended([name if "/" in name else f"/usr/bin/{name}" for name in names])
        if all(is_known(name) for name in names)
        else None
    )


def _paste(args: Args, stdin: str | None) -> str | None:
    sign = _option(args, "d") or next(
        (arg.partition("d")[2] for arg in args if arg.startswith("-sd")), "\t"
    )
    is_next = any(arg in ("-sd", "-d") for arg in args)
    if not any("s" in arg for arg in args if arg.startswith("-")):
        return None
    sign = (
        args[next(at for at, arg in enumerate(args) if arg in ("-sd", "-d")) + 1]
        if is_next
        else sign
    )
    return escapes.ansi_c(sign.replace("\\0", "")).join(_lines(stdin)) + "\n"


def _same(args: Args, stdin: str | None) -> str | None:
    return stdin if all(arg.startswith("-") for arg in args) else None


_PROGRAMS: dict[str, Callable[[Args, str | None], str | None]] = {
    "echo": _echo,
    "printf": printf,
    "base64": _base64,
    "gbase64": _base64,
    "base32": _base32,
    "xxd": _xxd,
    "openssl": _openssl,
    "gunzip": _gunzip,
    "zcat": _gunzip,
    "gzip": _gzip,
    "pigz": _gzip,
    "rev": lambda _, stdin: _ended([line[::-1] for line in _lines(stdin)]),
    "tac": lambda _, stdin: _ended(_lines(stdin)[::-1]),
    "tr": _tr,
    "cut": _cut,
    "head": _head,
    "tail": _tail,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "seq": _seq,
    "basename": _basename,
    "which": _which,
    "paste": _paste,
    "cat": _same,
    "tee": lambda _, stdin: stdin,
    "pv": _same,
    "strings": _same,
    "dos2unix": _same,
    "sort": lambda _, stdin: _ended(sorted(_lines(stdin))) if not _ else None,
    "sponge": _same,
    "dirname": (
        lambda args, _: (
            (args[0].rpartition("/")[0] or ("/" if args[0].startswith("/") else ".")) + "\n"
        )
    ),
    "realpath": lambda args, _: _ended(args),
    "readlink": lambda args, _: (
        _ended([arg for arg in args if arg[:1] != "-"]) if "-f" in args else None
    ),
    "true": lambda _, __: "",
    ":": lambda _, __: "",
    "uniq": lambda args, stdin: stdin if not args else None,
    "dd": _same,
    "fold": lambda args, stdin: None,
    "buffer": _same,
    "mbuffer": _same,
}
KNOWN = frozenset(_PROGRAMS)
READS = frozenset(
    "base64 gbase64 base32 xxd rev tac cut head tail sed awk gunzip zcat sort uniq strings".split()
)
"""Programs whose last word may be a file."""
