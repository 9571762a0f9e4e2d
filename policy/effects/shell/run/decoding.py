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

from policy.effects.shell.parse import escapes
from policy.effects.shell.run.text_filters import (
    MAX_PRINTED,
    TEXT_PROGRAMS,
    Args,
    as_lines,
    letters_of,
    lines_of,
    printf,
)
from policy.effects.shell.run.values import MAX_VALUE, is_known, without_signs


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
    return made if made is not None and len(made) <= MAX_PRINTED else None


def _echo(args: Args, _: str | None) -> str:
    at = 0
    has_end, is_escaped = "\n", False
    while at < len(args) and re.fullmatch(r"-[neE]+", args[at]):
        has_end = "" if "n" in args[at] else has_end
        is_escaped = is_escaped or "e" in args[at]
        at += 1
    text = " ".join(args[at:])
    return (escapes.echo(text) if is_escaped else text) + has_end


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return without_signs(data.decode("utf-8", "surrogateescape"))


def _base64(args: Args, stdin: str | None) -> str | None:
    is_decoded = any(letter in letters_of(args) for letter in "dD") or any(
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
    if stdin is None or not ("d" in letters_of(args) or "--decode" in args):
        return None
    text = re.sub(r"[^A-Z2-7]", "", stdin)
    return _text(base64.b32decode(text + "=" * (-len(text) % 8)))


def _xxd(args: Args, stdin: str | None) -> str | None:
    flags = letters_of(args)
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
    return _gunzip(args, stdin) if "d" in letters_of(args) or "--decompress" in args else None


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
    return as_lines([str(number) for number in made]) if len(made) <= 256 else None


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
        as_lines([name if "/" in name else f"/usr/bin/{name}" for name in names])
        if all(is_known(name) for name in names)
        else None
    )


def _same(args: Args, stdin: str | None) -> str | None:
    return stdin if all(arg.startswith("-") for arg in args) else None


def _dirname(args: Args, _: str | None) -> str:
    folder = args[0].rpartition("/")[0]
    return (folder or ("/" if args[0].startswith("/") else ".")) + "\n"


def _readlink(args: Args, _: str | None) -> str | None:
    return as_lines([arg for arg in args if arg[:1] != "-"]) if "-f" in args else None


_READERS: dict[str, Callable[[Args, str | None], str | None]] = {
    **TEXT_PROGRAMS,
    "echo": _echo,
    "printf": printf,
    "base64 gbase64": _base64,
    "base32": _base32,
    "xxd": _xxd,
    "openssl": _openssl,
    "gunzip zcat": _gunzip,
    "gzip pigz": _gzip,
    "rev": lambda _, stdin: as_lines([line[::-1] for line in lines_of(stdin)]),
    "tac": lambda _, stdin: as_lines(lines_of(stdin)[::-1]),
    "seq": _seq,
    "basename": _basename,
    "dirname": _dirname,
    "which": _which,
    "cat pv strings dos2unix sponge dd buffer mbuffer": _same,
    "tee": lambda _, stdin: stdin,
    "sort": lambda args, stdin: as_lines(sorted(lines_of(stdin))) if not args else None,
    "uniq": lambda args, stdin: stdin if not args else None,
    "realpath": lambda args, _: as_lines(args),
    "readlink": _readlink,
    "true :": lambda _, __: "",
    "fold": lambda _, __: None,
}
_PROGRAMS = {name: prints for names, prints in _READERS.items() for name in names.split()}


KNOWN = frozenset(_PROGRAMS)


READS = frozenset(
    "base64 gbase64 base32 xxd rev tac cut head tail sed awk gunzip zcat sort uniq strings".split()
)
"""Programs whose last word may be a file."""
