"""The earlier calls of a conversation, newest first, each with what it may have left behind: a file
that was fetched or written, a link, another folder, a variable of the shell.

They stand in the request, so the client says what they were: they can make a decision stricter, and
never milder. Only those that may matter are taken apart (`steps_of`).
"""

import json
import re
from collections.abc import Iterator, Reversible, Set
from functools import lru_cache
from itertools import islice

import msgspec

from policy.base import ToolCall
from policy.effects.argument_names import WORDS, tool_words
from policy.effects.argument_values import every_text, quoted
from policy.effects.shell.run.resolving import EarlierStep
from policy.effects.surface import surface_of
from policy.effects.surface_parts import Surface
from policy.effects.touch import Source
from policy.word_tables import by_word
from protocol.bytes.json_strict import loads_arguments
from protocol.request import ToolUsePart, Turn

MAX_CALLS = 5_000
MAX_CHARS = 512 * 1024
"""Of the arguments of all earlier calls that are looked at, newest first."""
_MOST_REMEMBERED = 4_096
_MAX_TEXT = 64 * 1024
_MAX_PATH = 4_096
_MAX_NAMES = 256
_MAX_CHANGES = 16
_MAX_LOOKED_AT = 8 * 1024
_MARKS = by_word("""
cd pushd popd chdir : folder
ln mklink symlink symlinkSync symlink_to Symlink : link
:// git@ : address
tar unzip gunzip bsdtar 7z 7za cpio unar unxz unrar : archive
pull fetch merge checkout switch submodule reset : archive
> - cp mv install tee rsync scp sftp wget dd sponge split patch clone remote download aria2c xxd zip
    gzip gpg touch sed output out outfile of open : file
= () function : setting
""")
"""What a call may leave behind, by signs in its texts. An archive or a branch may hold what was
fetched before, under names that nobody knows."""
_TOKEN = re.compile(r"://|git@|-\w*[oO]\b|\w+|>|=|\(\)")
_MAKES = re.compile(
    r">|\s-[a-zA-Z]*[oO]\b|\s--?out(?:put|file)?\b|\bof=|\bopen\(|\b(?:cp|mv|ln|install|tee|rsync"
    r"|scp|sftp|wget|dd|sponge|split|patch|clone|remote|submodule|download|aria2c|xxd|tar|zip|7z\w?"
    r"|gzip|gpg|touch|sed)\b"
)
"""What in a text for a shell stands before the name of a file that it makes."""
_SEGMENT = re.compile(r"[^;|&\n]+")
_NAME = re.compile(r"[^\s/<>(){}$,:=@]{1,255}(?=/?(?:[\s<>(){}$,:=@?#]|\Z))")
_SET = re.compile(r"(?<![\w.-])[\w.-]{1,80}+(?==|[ \t]?\(\))|(?<=\bfunction )[\w.-]{1,80}")
"""A variable, an alias or a function that is set."""
_SILENT = re.compile(r"(?:\d|&)?>{1,3}[ \t]{0,8}(?:/dev/(?:null|stderr|stdout)|&\d)")
"""Redirects that leave no file."""
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{1,20}://|\bgit@)[^\s,;|<>()]{1,300}", re.IGNORECASE)
_PATCHED = re.compile(r"(?m)^(?:\*\*\*|\+\+\+) .{1,400}$")
PLAIN = str.maketrans("", "", "\"'\\")
"""What a shell takes out of a word: `i."s"h` is `i.sh`."""
_ASIDE = re.compile(r"(?<!\$)\([^()]{0,4096}\)|-\w{0,8}c[ \t]{1,8}(?:'[^']*'|\"[^\"]*\")")
"""What another shell runs."""
_CHANGES = re.compile(
    r"(?m)(?:^|[;&{]|\|\||\bdo\b|\bthen\b)[ \t]{0,40}"
    r"((?:cd|pushd|popd)\b(?:[ \t]{1,8}[^\s;&|(){}]+){0,4})(?=[ \t]{0,8}(?:$|;|&&|\|\|))"
)
"""A shell goes to another folder, though not beside itself, as in a pipe or the background."""
_READS = frozenset("read view ls list glob grep search find get todo think plan task".split())
_EDITS = frozenset(
    "old_string old_str insert_line insert_text patch diff append edits mode".split()
)

_SENDS = WORDS["tells"] | {"upload"}


class PastCall(msgspec.Struct, frozen=True):
    """An earlier call. `names`: of files that it may have made, of what it set; `addresses`: from
    which it may have fetched a file; `text`: of all its arguments."""

    name: str
    arguments: str
    marks: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    addresses: tuple[str, ...] = ()
    text: str = ""


def past_calls(turns: Reversible[Turn]) -> Iterator[ToolUsePart]:
    """Yield the calls in a history, newest first, as far as its bounds go."""
    calls, chars = 0, 0
    for part in (part for turn in reversed(turns) for part in reversed(turn.parts)):
        if type(part) is ToolUsePart:
            calls += 1
            chars += len(part.arguments)
            if calls > MAX_CALLS or chars > MAX_CHARS:
                return
            yield part


def look_at(name: str, arguments: str) -> PastCall:
    """Say what a call may have left behind, without taking it apart."""
    return (_known_look if len(arguments) <= _MOST_REMEMBERED else _look)(name, arguments)


def _look(name: str, arguments: str) -> PastCall:
    words = tool_words(name)
    is_file = bool(words & (WORDS["file"] | WORDS["gets"])) and not words & WORDS["shell"]
    if is_file and words & _READS:
        return PastCall(name, arguments)
    texts = every_text(value_of(arguments))
    if is_file:
        # content says nothing about where it is, but for a patch, which names its files
        texts = (
            "\n".join(_PATCHED.findall(text[:_MAX_TEXT])) if "\n" in text else text[:_MAX_PATH]
            for text in texts
        )
    spoken = "\n".join(texts)[:_MAX_TEXT]
    if is_file:
        spoken = "> " + spoken.replace("\n", "\n> ")
    text = _SILENT.sub("", spoken).translate(PLAIN)
    tokens = {token[0] if token[0] == "-" else token for token in set(_TOKEN.findall(text))}
    marks = frozenset(filter(None, map(_MARKS.get, tokens)))
    if is_file:
        marks &= {"address", "file"}
    names: list[str] = []
    if not marks.isdisjoint(("file", "link", "archive")):
        names += islice(_made(text), _MAX_NAMES)
    addresses = _ADDRESS.findall(text)[:64] if names and "address" in marks else ()
    if "setting" in marks:
        names += (match[0] for match in islice(_SET.finditer(text), _MAX_NAMES))
    if "config" in tokens and not is_file:
        names.append("git")
    addresses = tuple(dict.fromkeys(addresses))
    return PastCall(name, arguments, marks, frozenset(names), addresses, spoken)


_known_look = lru_cache(maxsize=4_096)(_look)


def _made(text: str) -> Iterator[str]:
    for segment in _SEGMENT.findall(text):
        if (maker := _MAKES.search(segment)) is not None:
            yield from _NAME.findall(segment, maker.end())


def folders_of(call: PastCall) -> list[str]:
    """Return the last commands of a call by which its shell went to other folders."""
    if "folder" not in call.marks:
        return []
    return _CHANGES.findall(_ASIDE.sub("", call.text[-_MAX_LOOKED_AT:]))[-_MAX_CHANGES:]


def value_of(arguments: str) -> dict[str, object]:
    """Return the arguments of a call. A client may send back anything: what is no object is
    empty."""
    try:
        value: object = loads_arguments(arguments)
    except ValueError:
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


class CallStep(EarlierStep, frozen=True):
    """What a call does, as the reader of shell texts takes it. `source`, `argument`: where that
    stands in the call."""

    source: Source = "shell"
    argument: str = ""


def steps_of(name: str, arguments: str) -> tuple[CallStep, ...]:
    """Return what a call runs, writes, moves and fetches, in its order."""
    return (_known_steps if len(arguments) <= _MOST_REMEMBERED else _steps)(name, arguments)


def _steps(name: str, arguments: str) -> tuple[CallStep, ...]:
    value = value_of(arguments)
    surface = surface_of(ToolCall(0, 0, "", name, arguments, value, None))
    steps = [
        CallStep(
            f"cd {quoted(text.folder)}\n{text.text}" if text.folder else text.text,
            is_apart=bool(text.folder),
            argument=text.argument,
        )
        for text in surface.shell
    ]
    old = str(value.get("old_string") or value.get("old_str") or "")
    edits = not _EDITS.isdisjoint(value)
    paths: dict[str, str] = {}
    for use in surface.paths:
        path = paths[use.does] = quoted(use.path)
        if use.content and use.does == "write":
            step = CallStep(
                use.content, use.path, edits, old, source="paths", argument=use.argument
            )
        else:
            verb = {"read": "cat", "write": "tee", "delete": "rm -rf"}[use.does]
            step = CallStep(f"{verb} {path}", source="paths", argument=use.argument)
        steps.append(step)
    if command := _as_command(tool_words(name), paths, surface):
        argument = surface.paths[0].argument
        steps.append(CallStep(command, source="network", argument=argument))
    return tuple(steps)


_known_steps = lru_cache(maxsize=512)(_steps)


def _as_command(words: Set[str], paths: dict[str, str], surface: Surface) -> str:
    """What a tool does with files and addresses as the command that does so: a move, a copy, a
    download or an upload."""
    read, removed = paths.get("read", ""), paths.get("delete", "")
    target = "" if any(use.content for use in surface.paths) else paths.get("write", "")
    url = quoted(surface.urls[0].url) if surface.urls else ""
    if not url and read and words & _SENDS:
        url = "https://whoever.invalid"
    if url:
        target = target or (read if words & WORDS["gets"] and not words & _SENDS else "")
        return f"curl -o {target} {url}" if target else read and f"curl -T {read} {url}"
    source = removed or read
    return f"{'mv' if removed else 'cp'} {source} {target}" if target and source else ""
