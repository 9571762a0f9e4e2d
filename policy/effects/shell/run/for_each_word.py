"""Commands that run another command for each of many words: `xargs`, `find -exec`, `fd -x`,
`parallel`."""

import re

from msgspec.structs import replace

from policy.effects.shell.run.interpreters import after
from policy.effects.shell.run.machine import Machine
from policy.effects.shell.run.state import Invocation, Out, texts
from policy.effects.shell.run.values import Field, is_known
from policy.effects.shell.run.wrapper_table import after_options

_MAX_ITEMS = 16
_LONG_OF_XARGS = tuple(
    "replace max-lines max-args max-procs max-chars delimiter eof arg-file".split()
)
_LONG_OF_PARALLEL = tuple(
    """jobs joblog results tmpdir delay timeout retries colsep arg-file sshlogin
    tagstring""".split()
)
_OF_FIND = re.compile(r"-[HLP]|-D.*|-O\d")
"""Options of `find` before the folders."""
_ITEM = re.compile(r"\{[./#%\d]*\}")


def xargs(machine: Machine, call: Invocation) -> Out:
    """`xargs command`: with the words that it reads."""
    fields = call.fields
    at = after_options(fields, 1, "IJLnPsdEaR", _LONG_OF_XARGS)
    options = texts(fields[1:at])
    sign = next(iter(after(options, "-I|--replace|-J")), "")
    if not sign and any(
        option in ("-i", "--replace") or re.fullmatch(r"-[0rtpx]*i", option) for option in options
    ):
        sign = "{}"
    inner = fields[at:] or [Field("echo")]
    text = call.stdin.text if call.stdin is not None else None
    if path := next(iter(after(options, "-a|--arg-file")), ""):
        known = machine.read(path) or machine.read_around([("<", 0, Field(path))], None)
        text = known.text if known else None
    around = replace(call, stdin=None, file=None, wrappers=(*call.wrappers, "xargs"))
    if text is None or not is_known(text):
        return xargs_unknown(machine, around, inner, sign, text or "")
    items = _items(text, options, sign)
    number = next((value for value in after(options, "-n|-L|--max-args") if value.isdigit()), "")
    size = int(number[:4] or 0)
    is_cut = bool(sign or number) and len(items) > _MAX_ITEMS * max(1, int(number[:4] or 1))
    # of numbers one does what the others do
    if (is_cut or len(items) > 256) and not all(map(str.isdecimal, items)):
        machine.unsure("size: more words for `xargs` than are read")
    if sign:
        groups = [[replaced(field, sign, item) for field in inner] for item in items[:_MAX_ITEMS]]
    elif size:
        groups = [
            [*inner, *map(Field, items[start : start + size])]
            for start in range(0, min(len(items), _MAX_ITEMS * size), size)
        ]
    else:
        groups = [[*inner, *map(Field, items[:256])]]
    outs = [machine.dispatch(machine, replace(around, fields=group)) for group in groups]
    return machine.together(outs)


def _items(text: str, options: list[str], sign: str) -> list[str]:
    """Return the words that `xargs` makes of what it reads."""
    ends_in_nul = any(re.fullmatch(r"-[a-z]*0[a-z]*|--null", option) for option in options)
    delimiter = next(iter(after(options, "-d|--delimiter")), "\0" if ends_in_nul else None)
    if delimiter is not None:
        end = delimiter.replace("\\n", "\n").replace("\\0", "\0") or "\0"
        return [item for item in text.split(end) if item.strip("\n")]
    if sign:
        return [unquoted(line.strip()) for line in text.splitlines() if line.strip()]
    words = re.findall(r"(?:\"[^\"\n]*\"|'[^'\n]*'|\\.|[^\s\"'\\])+", text)
    return [unquoted(word) for word in words]


def xargs_unknown(
    machine: Machine, call: Invocation, inner: list[Field], sign: str, text: str
) -> Out:
    """Run the command with words that are not known; if they begin in a known way, with that."""
    item = machine.unknowns.blur(text) if text else machine.unknowns.make()
    prefix = (
        text[: next((at for at, part in enumerate(text) if not is_known(part)), 0)]
        if "\n" not in text and " " not in text
        else ""
    )
    if sign:
        return machine.dispatch(
            machine,
            replace(
                call, fields=[replaced(part, sign, prefix + item, is_many=True) for part in inner]
            ),
        )
    return machine.dispatch(
        machine, replace(call, fields=[*inner, Field(prefix + item, is_many=True)])
    )


def replaced(field: Field, sign: str, item: str, *, is_many: bool = False) -> Field:
    """Put an item where the sign stands."""
    return (
        Field(field.text.replace(sign, item), field.is_glob, field.is_many or is_many)
        if sign in field.text
        else field
    )


def unquoted(text: str) -> str:
    """Take `xargs`'s own quotes off a word."""
    return re.sub(
        r"\"([^\"\n]*)\"|'([^'\n]*)'|\\(.)",
        lambda match: match[1] or match[2] or match[3] or "",
        text,
    )


def find(machine: Machine, call: Invocation) -> Out:
    """`find path -exec command ;`: with what it finds."""
    fields = call.fields
    at = 1
    while at < len(fields) and _OF_FIND.fullmatch(fields[at].text):
        at += 1
    start = at
    while at < len(fields) and not (
        fields[at].text.startswith("-") or fields[at].text in ("(", "!", "\\(")
    ):
        at += 1
    roots = fields[start:at][:_MAX_ITEMS] or [Field(".")]
    if at - start > _MAX_ITEMS:
        machine.unsure("size: more folders for `find` than are read")
    place = machine.emit(call)
    placeholder = machine.unknowns.make((), (place,))
    while at < len(fields):
        if fields[at].text not in ("-exec", "-execdir", "-ok", "-okdir"):
            at += 1
            continue
        end = next(
            (p for p in range(at + 1, len(fields)) if fields[p].text in (";", "+", "\\;")),
            len(fields),
        )
        inner = fields[at + 1 : end]
        for root in roots if inner else ():
            path = (
                placeholder
                if not root.text or root.is_many
                else f"{root.text.rstrip('/')}/{placeholder}"
            )
            machine.dispatch(
                machine,
                replace(call, stdin=None).inner(
                    [replaced(field, "{}", path, is_many=True) for field in inner], "find"
                ),
            )
        at = end
    paths = (
        "\n".join(f"{root.text.rstrip('/')}/{placeholder}" for root in roots[:1])
        if len(roots) == 1
        else placeholder
    )
    return Out(paths, [place])


def fd(machine: Machine, call: Invocation) -> Out:
    """`fd pattern -x command`: as `find` runs one."""
    fields, place = call.fields, machine.emit(call)
    at = next((p for p, field in enumerate(fields) if field.text in _OF_FD), 0)
    if not at:
        return Out(machine.unknowns.make((), (place,)), [place])
    inner = fields[at + 1 :]
    if not any("{}" in field.text for field in inner):
        inner = [*inner, Field("{}")]
    words = [Field("find"), Field("."), Field("-exec"), *inner]
    return find(machine, replace(call, fields=words))


_OF_FD = ("-x", "-X", "--exec", "--exec-batch")


def parallel(machine: Machine, call: Invocation) -> Out:
    """`parallel command ::: words`: as `xargs` runs a shell with each of them."""
    fields, place = call.fields, machine.emit(call)
    at = after_options(fields, 1, "jNnISLaPdE", _LONG_OF_PARALLEL)
    end = next((p for p in range(at, len(fields)) if fields[p].text.startswith(":::")), len(fields))
    template = " ".join(texts(fields[at:end]))
    template = _ITEM.sub("{}", template if _ITEM.search(template) else f"{template} {{}}")
    stdin = call.stdin
    if end < len(fields) and fields[end].text == ":::":
        items = [text for text in texts(fields[end:]) if not text.startswith(":::")]
        stdin = Out("\n".join(items))
    words = ["xargs", "-d", "\\n", "-I", "{}", "sh", "-c", template]
    xargs(machine, replace(call, fields=[*map(Field, words)], stdin=stdin))
    return machine.unknown_output(place)
