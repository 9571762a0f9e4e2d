"""What programs print that edit texts: tr, cut, head, tail, sed, awk, paste."""

import re
from collections.abc import Callable

from policy.effects.shell.parse import escapes
from policy.effects.shell.run.values import MAX_VALUE
from policy.patterns import compile_re2

Args = list[str]


MAX_PRINTED = 4 * MAX_VALUE


_MAX_EDITED = 4_096
"""Characters that a pattern of the client's is applied to."""


_MAX_SCRIPT = 300
"""Characters of the programs and sets of `awk` and `tr`."""


_DIRECTIVE = re.compile(r"(%[-+ 0#']*(?:\d*|\*)(?:\.(?:\d*|\*))?[a-zA-Z%]|%)")


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


def printf(args: Args, _: str | None = None) -> str | None:
    """Return what `printf` prints; its format is used again while there are arguments left."""
    args = args[1:] if args[:1] == ["--"] else args
    if not args:
        return ""
    parts, values = _DIRECTIVE.split(args[0]), args[1:]
    made = ""
    while True:
        before = len(values)
        for number, part in enumerate(parts):
            if number % 2 == 0:
                made += escapes.ansi_c(part)
            elif "*" in part:
                return None
            elif part.endswith("%"):
                made += "%"
            else:
                made += _directive(part, values.pop(0) if values else "")
        if not values or len(values) == before or len(made) > MAX_PRINTED:
            return made


def _directive(layout: str, value: str) -> str:
    kind = layout[-1]
    layout = re.sub(r"(?<=\d{3})\d+|'", "", layout[:-1])
    if kind in "sqQbc":
        text = escapes.echo(value) if kind == "b" else value[:1] if kind == "c" else value
        return f"{layout}s" % text
    is_sign = value[:1] in ("'", '"') and len(value) > 1
    base = 8 if re.fullmatch(r"0[0-7]+", value) else 0
    number = ord(value[1]) if is_sign else int(value[:20] or "0", base)
    return f"{layout}{kind if kind in 'xXo' else 'd'}" % number


def letters_of(args: Args) -> str:
    """Return the letters of short options."""
    return "".join(arg[1:] for arg in args if re.fullmatch(r"-[A-Za-z]+", arg))


def lines_of(stdin: str | None) -> list[str]:
    """Return the lines of a text. Raises ValueError where there is none."""
    if stdin is None:
        raise ValueError
    return stdin.removesuffix("\n").split("\n") if stdin else []


def as_lines(lines: list[str]) -> str:
    """Return lines as a text."""
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
    flags = letters_of(args) + "".join(
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
        return as_lines(
            ["".join(line[at - 1] for at in _ranges(chars, len(line))) for line in lines_of(stdin)]
        )
    wanted = _option(args, "f", "fields")
    if not wanted:
        return None
    sign = _option(args, "d", "delimiter") or "\t"
    made = []
    for line in lines_of(stdin):
        pieces = line.split(sign)
        made.append(
            line
            if len(pieces) == 1
            else sign.join(pieces[at - 1] for at in _ranges(wanted, len(pieces)))
        )
    return as_lines(made)


def _number_of_lines(args: Args) -> str:
    short = (arg[1:] for arg in args if re.fullmatch(r"-\d+", arg))
    return _option(args, "n", "lines") or next(short, "10")


def _head(args: Args, stdin: str | None) -> str | None:
    chars = _option(args, "c", "bytes")
    if stdin is None:
        return None
    if chars is not None:
        return stdin[: int(chars)]
    return as_lines(lines_of(stdin)[: int(_number_of_lines(args))])


def _tail(args: Args, stdin: str | None) -> str | None:
    chars = _option(args, "c", "bytes")
    if stdin is None:
        return None
    if chars is not None:
        return stdin[int(chars) - 1 :] if chars.startswith("+") else stdin[-int(chars) :]
    number = _number_of_lines(args)
    lines = lines_of(stdin)
    return as_lines(lines[int(number) - 1 :] if number.startswith("+") else lines[-int(number) :])


def _sed(args: Args, stdin: str | None) -> str | None:
    """`sed` with one plain substitution or one line that is taken."""
    scripts = [
        args[at + 1] for at, arg in enumerate(args[:-1]) if arg in ("-e", "--expression")
    ] or [arg for arg in args if arg[:1] != "-"][:1]
    flags = "".join(arg[1:] for arg in args if re.fullmatch(r"-[nrEe]+", arg))
    lines = lines_of(stdin)
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
    return as_lines(lines)


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


_AWK_PRINTS = re.compile(r"\s*\{\s*print((?:[\s,]*(?:\$\d+|\$NF|\"[^\"\\]*\"))*)\s*;?\s*\}\s*")
_AWK_BEGINS = re.compile(r"""\s*BEGIN\s*\{\s*print(f?)\s+"((?:[^"\\]|\\.)*)"\s*;?\s*\}\s*""")
_AWK_PIECE = re.compile(r"(,\s*)|\$(\d+|NF)|\"([^\"]*)\"")


def _awk(args: Args, stdin: str | None) -> str | None:
    """A text that is printed at first, or fields and texts of each line."""
    scripts = [arg for arg in args if "{" in arg]
    script = scripts[0] if len(scripts) == 1 and len(scripts[0]) <= _MAX_SCRIPT else ""
    begins, prints = _AWK_BEGINS.fullmatch(script), _AWK_PRINTS.fullmatch(script)
    if begins is not None:
        return escapes.ansi_c(begins[2]) + ("" if begins[1] else "\n")
    if prints is None:
        return None
    made = []
    for line in lines_of(stdin):
        fields = [line, *line.split(_option(args, "F"))]
        text = ""
        for comma, field, literal in _AWK_PIECE.findall(prints[1] or "$0"):
            at = len(fields) - 1 if field == "NF" else int(field or len(fields))
            text += (" " if comma else literal) if at >= len(fields) else fields[at]
        made.append(text)
    return as_lines(made)


def _paste(args: Args, stdin: str | None) -> str | None:
    """The lines in one, with a sign between them."""
    text = "\0".join(args)
    sign = re.search(r"(?:^|\0)-s?d\0?([^\0]*)", text)
    if re.search(r"(?:^|\0)-\w*s", text) is None:
        return None
    between = "\t" if sign is None else sign[1].replace("\\0", "")
    return escapes.ansi_c(between).join(lines_of(stdin)) + "\n"


TEXT_PROGRAMS = {
    "tr": _tr,
    "cut": _cut,
    "head": _head,
    "tail": _tail,
    "sed": _sed,
    "awk gawk mawk": _awk,
    "paste": _paste,
}
"""Programs that edit or choose from what they read."""
