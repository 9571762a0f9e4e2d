"""The earlier calls of a conversation, newest first, each with what it may have left behind: a file
that was fetched or written, a link, another folder, a setting of the shell.

They stand in the request, so the client says what they were: they can make a decision stricter, and
never milder. Only those that may matter are taken apart (`steps_of`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import msgspec

from policy.base import ToolCall
from policy.effects.argument_names import WORDS, tool_words
from policy.effects.argument_values import every_text, quoted
from policy.effects.shell.run.resolving import EarlierStep
from policy.effects.surface import surface_of
from policy.effects.surface_parts import Surface
from protocol.bytes.json_strict import loads_arguments
from protocol.request import ToolResultPart, ToolUsePart, Turn

MAX_CALLS = 5_000
MAX_CHARS = 512 * 1024
"""Of the arguments of all earlier calls that are looked at, newest first."""
_MOST_REMEMBERED = 4_096
_MAX_TEXT = 64 * 1024
_MAX_PATH = 4_096
_MAX_LOOKED_AT = 8 * 1024
_MAX_CHANGES = 16

Leaves = frozenset[str]
"""What a call may leave behind: `folder`, `link`, `address`, `archive`, `branch`, `setting`,
`file`."""
_NOTHING: Leaves = frozenset()
_OF_FILES: Leaves = frozenset(("file", "address"))
MAKES = re.compile(
    r">|\s-[a-zA-Z]*[oO]\b|\s--?out(?:put|file)?\b|\bof=|\bopen\(|\b(?:cp|mv|ln|install|tee|rsync"
    r"|scp|sftp|wget|dd|sponge|split|patch|clone|remote|submodule|download|aria2c|xxd|tar|zip|7z\w?"
    r"|gzip|gpg|touch|sed)\b"
)
"""What in a text for a shell stands before the name of a file that it makes."""
_SEGMENT = re.compile(r"[^;|&\n]+")
_NAME = re.compile(r"[^\s/<>(){}$,:=@]{1,255}(?=/?(?:[\s<>(){}$,:=@?#]|\Z))")
_MAX_MADE = 256
_WORD = re.compile(r"-{0,2}\w+")
_MAKERS = frozenset(
    "cp mv ln install tee rsync scp sftp wget dd sponge split patch clone remote submodule download"
    " aria2c xxd tar zip 7z 7za gzip gpg touch sed --output --out --outfile".split()
)
_WORDS = {
    "folder": frozenset(("cd", "pushd", "popd", "chdir")),
    "link": frozenset(("ln", "mklink", "symlink", "symlinkSync", "symlink_to", "Symlink")),
    "archive": frozenset("tar unzip gunzip bsdtar 7z 7za cpio unar unxz unrar".split()),
    "branch": frozenset("pull fetch merge checkout switch submodule reset".split()),
    "setting": frozenset("alias function config set hash".split()),
    "file": _MAKERS,
}
_SIGNS = {
    "address": ("://", "git@"),
    "setting": ("=", "()"),
    "file": (">", "of=", "open("),
}
_SILENT = re.compile(r"(?:\d|&)?>{1,3}[ \t]{0,8}(?:/dev/(?:null|stderr|stdout)|&\d)")
"""Redirects that leave no file."""
_ADDRESS = re.compile(r"(?:[a-z][a-z0-9+.-]{1,20}://|\bgit@)[^\s,;|<>()]{1,300}", re.IGNORECASE)
_PATCHED = re.compile(r"(?m)^(?:\*\*\*|\+\+\+) .{1,400}$")
_PLAIN = str.maketrans("", "", "\"'\\")
"""What a shell takes out of a word: `i."s"h` is `i.sh`."""
_READS = frozenset("read view ls list glob grep search find get todo think plan task".split())
_EDITS = frozenset(
    "old_string old_str insert_line insert_text patch diff append edits mode".split()
)


class PastCall(msgspec.Struct, frozen=True):
    """An earlier call. `text`: of all its arguments, without quotes; `addresses`: that stand in
    it; `makes`: the names of files that it may have made."""

    name: str
    arguments: str
    leaves: Leaves
    text: str
    addresses: tuple[str, ...]
    makes: frozenset[str]


def past_calls(turns: Sequence[Turn]) -> Iterator[ToolUsePart]:
    """Yield the calls in a history, newest first, as far as its bounds go."""
    calls, chars = 0, 0
    for turn in reversed(turns):
        if turn.role != "assistant":
            continue
        for part in reversed(turn.parts):
            if type(part) is not ToolUsePart:
                continue
            calls += 1
            chars += len(part.arguments)
            if calls > MAX_CALLS or chars > MAX_CHARS:
                return
            yield part


def results_of(turns: Iterable[Turn], ids: Iterable[str]) -> dict[str, str]:
    """Return the results of these calls."""
    wanted = frozenset(ids)
    return {
        part.tool_call_id: part.text
        for turn in turns
        for part in turn.parts
        if type(part) is ToolResultPart and part.tool_call_id in wanted
    }


def look_at(name: str, arguments: str) -> PastCall:
    """Say what a call may have left behind, without taking it apart."""
    return (_known_look if len(arguments) <= _MOST_REMEMBERED else _look)(name, arguments)


def _look(name: str, arguments: str) -> PastCall:
    words = tool_words(name)
    is_file = bool(words & (WORDS["file"] | WORDS["gets"])) and not words & WORDS["shell"]
    if is_file and words & _READS:
        return PastCall(name, arguments, _NOTHING, "", (), frozenset())
    text = _texts(arguments, is_file=is_file)
    if is_file:
        text, leaves = "> " + text.replace("\n", "\n> "), _OF_FILES
    else:
        leaves = _leaves(text)
    addresses = tuple(dict.fromkeys(_ADDRESS.findall(text)[:64])) if "address" in leaves else ()
    makes = frozenset(_made(text) if "file" in leaves else ())
    return PastCall(name, arguments, leaves, text, addresses, makes)


def _made(text: str) -> Iterator[str]:
    names = (
        name
        for segment in _SEGMENT.findall(text)
        if (maker := MAKES.search(segment)) is not None
        for name in _NAME.findall(segment, maker.end())
    )
    return islice(names, _MAX_MADE)


def _leaves(text: str) -> Leaves:
    words = frozenset(_WORD.findall(text))
    found = [name for name, signs in _SIGNS.items() if any(sign in text for sign in signs)]
    found += [name for name, of_it in _WORDS.items() if not words.isdisjoint(of_it)]
    if any(word[0] == "-" and word[-1] in "oO" for word in words):
        found.append("file")
    return frozenset(found)


_known_look = lru_cache(maxsize=4_096)(_look)


def _texts(arguments: str, *, is_file: bool) -> str:
    texts = every_text(value_of(arguments))
    if is_file:
        # content says nothing about where it is, but for a patch, which names its files
        texts = (
            "\n".join(_PATCHED.findall(text[:_MAX_TEXT])) if "\n" in text else text[:_MAX_PATH]
            for text in texts
        )
    return _SILENT.sub("", "\n".join(texts)[:_MAX_TEXT]).translate(_PLAIN)


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


# -- what a call did, as the reader of shell texts takes it


def steps_of(call: PastCall) -> tuple[EarlierStep, ...]:
    """Return what a call ran, wrote, moved and fetched, in its order."""
    take = _known_steps if len(call.arguments) <= _MOST_REMEMBERED else _steps
    return take(call.name, call.arguments)


def _steps(name: str, arguments: str) -> tuple[EarlierStep, ...]:
    value = value_of(arguments)
    surface = surface_of(ToolCall(0, 0, "", name, arguments, value, None))
    steps = [
        EarlierStep(
            f"cd {quoted(text.folder)}\n{text.text}" if text.folder else text.text,
            is_apart=bool(text.folder),
        )
        for text in surface.shell
    ]
    old = next((text for key in ("old_string", "old_str") if (text := str(value.get(key, "")))), "")
    edits = not _EDITS.isdisjoint(value)
    steps += [
        EarlierStep(use.content, use.path, adds=edits, old=old)
        for use in surface.paths
        if use.does == "write" and use.content
    ]
    return (*steps, *map(EarlierStep, as_commands(name, surface)))


_known_steps = lru_cache(maxsize=512)(_steps)


def as_commands(name: str, surface: Surface) -> list[str]:
    """Return what the tool `name` does with files and addresses as the commands that do so: moves,
    copies, downloads and uploads."""
    paths = {use.does: quoted(use.path) for use in surface.paths}
    url = quoted(surface.urls[0].url) if surface.urls else ""
    target = paths.get("write", "") if not any(use.content for use in surface.paths) else ""
    if url and not target and tool_words(name) & WORDS["gets"]:
        target = paths.get("read", "")
    if url and target:
        return [f"curl -o {target} {url}"]
    if url and "read" in paths:
        return [f"curl -T {paths['read']} {url}"]
    if target and "delete" in paths:
        return [f"mv {paths['delete']} {target}"]
    if target and "read" in paths:
        return [f"cp {paths['read']} {target}"]
    return []


_CDS = re.compile(
    r"(?m)(?:^|[;&|{]|\bdo\b|\bthen\b)[ \t]{0,40}"
    r"((?:cd|pushd|popd)\b(?:[ \t]{1,8}[^\s;&|(){}]+){0,4})"
    r"(?=[ \t]{0,8}(?:$|[;&|]))"
)


def folders_of(call: PastCall) -> list[str]:
    """Return the last commands of a call by which its shell went to other folders."""
    found = [
        change
        for step in steps_of(call)
        if not step.path and not step.is_apart
        for change in _CDS.findall(step.text[-_MAX_LOOKED_AT:])
    ]
    return found[-_MAX_CHANGES:]
