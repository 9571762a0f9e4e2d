"""What backslashes mean in `$'...'`, `printf` and `echo -e`."""

import re

_PLAIN = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_ESCAPE = re.compile(
    r"\\(?:x\{?([0-9A-Fa-f]{1,2})\}?|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c([\s\S])"
    r"|([0-7]{1,3})|([\s\S]))"
)
_BYTES = re.compile("[\udc80-\udcff]+")
_PRIVATE = re.compile("[\ue000-\uf8ff]")
_OF_ECHO = re.compile(
    r"\\(?:x\{?([0-9A-Fa-f]{1,2})\}?|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(?!)()|(0[0-7]{0,3}"
    r"|[1-7][0-7]{0,2})|([\s\S]))"
)


def ansi_c(text: str) -> str:
    """Resolve the escapes of `$'...'`."""
    return _bytes_joined(_ESCAPE.sub(_one, text)) if "\\" in text else text


def echo(text: str) -> str:
    """Resolve the escapes of `echo -e` and `printf '%b'`; `\\c` ends the text."""
    if "\\" not in text:
        return text
    head, _, _ = text.partition("\\c")
    return _bytes_joined(_OF_ECHO.sub(_one, head))


def _one(match: re.Match[str]) -> str:
    two, four, eight, control, octal, other = match.groups()
    if two or octal:
        code = int(two, 16) if two else int(octal, 8) & 0xFF
        return chr(code) if code < 0x80 else chr(0xDC00 + code)
    if four or eight:
        code = int(four or eight, 16)
        # Not the private-use characters, which stand for what is not known (`values`).
        return chr(code) if code < 0xD800 or 0xF900 <= code < 0x110000 else "\ufffd"
    if control:
        return chr(ord(control.upper()) & 0x1F)
    return _PLAIN.get(other, other if other in "\\'\"?" else f"\\{other}")


def _bytes_joined(text: str) -> str:
    """Make characters of the bytes that were written one by one."""
    return (
        text.replace("\0", "") if text.isascii() else _BYTES.sub(_character, text).replace("\0", "")
    )


def _character(match: re.Match[str]) -> str:
    made = match[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return _PRIVATE.sub("\ufffd", made)
