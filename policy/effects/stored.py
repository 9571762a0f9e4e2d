"""Finds what a written file will run later: scripts, lines of start-up files, package hooks, build
steps; and what it will fetch.

A file is not a command, but some files are read by programs that run their content, often with more
rights and unattended: a shell's start-up file at the next login, `postinstall` at the next
installation, a workflow step with the secrets of the repository.

Only the text that is written is examined, which may be part of a file.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from policy.effects.argument_values import quoted
from policy.effects.effect import Effect, Scope
from policy.effects.network import LISTED, host_scope
from policy.effects.paths import PathTarget, place
from policy.word_tables import patterns, rows_of, sections

MAX_CHARS = 65_536
"""Of a file that are looked at."""
_MAX_SCRIPTS = 64
_MAX_SOURCES = 500
"""Addresses in one line that are looked at."""
_DATA = sections("stored.txt")
_IS = patterns(_DATA["patterns"])
_COMMANDS = [
    (re.compile(path.strip()), re.compile(command.strip()))
    for path, _, command in (row.partition("=>") for row in rows_of(_DATA["commands"]))
]
"""Paths of files, and how the commands stand in them."""


class StoredTexts(msgspec.Struct, frozen=True):
    """What a file will run when it is used, as texts for a shell, and what it will fetch."""

    scripts: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    is_inside: bool = False
    """Its scripts run in an image that is built: what they delete and change is the image's own."""
    is_whole: bool = True
    """All that it will run is among `scripts`; False: it is too long, or has more of them than are
    read."""

    def keeps(self, effect: Effect) -> bool:
        """Does an effect of its scripts reach out of where they run?"""
        return not self.is_inside or effect.kind in ("execute", "secret", "network")


def stored_in(path: str, scope: Scope, content: str) -> StoredTexts:
    """Return what a file at `path` with this content will do later. Linear."""
    looked_at = content[:MAX_CHARS]
    scripts = [text for text in dict.fromkeys(_scripts(path, scope, looked_at)) if text.strip()]
    is_whole = len(scripts) <= _MAX_SCRIPTS and (len(content) <= MAX_CHARS or not scripts)
    return StoredTexts(
        tuple(scripts[:_MAX_SCRIPTS]),
        (
            *_sources(path, looked_at),
            *(handed_over(looked_at, path) if _IS["structured"].search(path) else ()),
        ),
        _IS["inside"].search(path) is not None,
        is_whole,
    )


def _scripts(path: str, scope: Scope, content: str) -> Iterator[str]:
    kinds = {kind for kind in _KINDS if _IS[kind].search(path)}
    for of_path, command in _COMMANDS:
        if of_path.search(path):
            yield from _found(command, content)
    if (
        "script" in kinds
        or _IS["shebang"].match(content)
        or (scope == "startup" and "startup" in kinds)
    ):
        # where the script lies is known
        is_plain = _IS["plain_path"].match(path)
        yield _IS["own_name"].sub(path, content) if is_plain else content
    elif "package" in kinds:
        for block in islice(_IS["scripts"].finditer(content), 1):
            yield from _found(_IS["script_of_package"], block[1])
    elif "workflow" in kinds or ("yaml" in kinds and _IS["playbook"].match(content)):
        yield from _steps(content)
    elif "make" in kinds:
        is_just = path.lower().endswith("justfile")
        yield from _recipes(content, _IS["just_line" if is_just else "make_line"])
    elif "python" in kinds:
        yield f"python3 -c {quoted(content)}"
    elif "tasks" in kinds:
        for command, arguments in _IS["with_arguments"].findall(content):
            yield " ".join([command, *map(quoted, _found(_IS["text"], arguments))])


_KINDS = ("script", "startup", "package", "workflow", "yaml", "make", "python", "tasks")


def _found(pattern: re.Pattern[str], content: str) -> Iterator[str]:
    for match in pattern.finditer(content):
        text = match[match.lastindex or 0]
        yield re.sub(r"\\(.)", r"\1", text) if match.lastgroup == "quoted" else text


def _steps(content: str) -> Iterator[str]:
    """The commands of a workflow: behind `run:`, or the lines below it that are indented
    further."""
    lines = content.split("\n")
    number = 0
    while number < len(lines):
        match = _IS["run_line"].match(lines[number])
        number += 1
        if match is None:
            continue
        command = match[2].strip()
        if command and command[0] not in "|>":
            yield _filled(command.strip("\"'") if command[0] in "\"'" else command)
            continue
        block = []
        while number < len(lines) and (
            not lines[number].strip()
            or len(lines[number]) - len(lines[number].lstrip()) > len(match[1])
        ):
            # a list of commands has one behind each dash
            block.append(re.sub(r"^[ \t]*-[ \t]+", "", lines[number]).lstrip())
            number += 1
        # what the system puts in before a shell reads it
        yield _filled("\n".join(block).rstrip())


def _filled(text: str) -> str:
    """The text with something in the place of what a workflow puts in: all secrets at once are the
    whole environment."""

    def value(match: re.Match[str]) -> str:
        name = re.fullmatch(r"[ \t]*secrets\.(\w{1,80})[ \t]*", match[1])
        variable = (
            f"${name[1]}"
            if name
            else "$(env)"
            if re.search(r"toJSON\(\s*secrets\s*\)", match[1], re.IGNORECASE)
            else ""
        )
        if not variable:
            return "$WORKFLOW_VALUE"
        # it is put in before a shell reads the line, so single quotes keep nothing from it
        is_quoted = text.count("'", text.rfind("\n", 0, match.start()) + 1, match.start()) % 2
        return f"'\"{variable}\"'" if is_quoted else variable

    return _IS["put_in"].sub(value, text)


def _recipes(content: str, line: re.Pattern[str]) -> Iterator[str]:
    """The lines of recipes, with the values of variables that stand in the file. What another file
    says is a plain name."""
    values = {name: value.strip() for name, value in _IS["make_value"].findall(content)}

    def filled(match: re.Match[str], depth: int = 0) -> str:
        if match[0] == "$$":
            return "$"
        name = match[2] or ""
        if match[1]:
            return f"$({name})"
        if name in values and depth < 4:
            return _IS["make_name"].sub(lambda inner: filled(inner, depth + 1), values[name])
        return f"${name}" if _IS["of_environment"].match(name) else "make-value"

    return (_IS["make_name"].sub(filled, text) for text in _found(line, content))


def _sources(path: str, content: str) -> Iterator[Effect]:
    """Code that a list of packages fetches from a place that is none of the usual ones; tasks that
    an editor starts by itself."""
    if _IS["tasks"].search(path) and _IS["starts_itself"].search(content):
        yield Effect.of("persistence", "startup", path, by="editor")
    if not _IS["manifests"].search(path):
        return
    about = _IS["about"] if path.endswith("package.json") else None
    for line in content.split("\n"):
        # asked once a line, and not for each of its addresses
        fetches = _IS["source"].search(line) is not None and _IS["fetches"].search(line) is not None
        for match in islice(_IS["source"].finditer(line), _MAX_SOURCES) if fetches else ():
            if (
                about is not None
                and _IS["archive"].search(match[0]) is None
                and about.search(line, max(0, match.start() - 200), match.start())
            ):
                continue
            if (scope := host_scope(match[0].removeprefix("git+"), LISTED)) not in (
                "listed",
                "loopback",
            ):
                yield Effect.of("execute", scope, match[0], by=path.rpartition("/")[2])


# -- what a description of containers hands over of the machine that runs them

_MAX_HANDED = 50


def handed_over(content: str, path: str = "", *, is_applied: bool = False) -> Iterator[Effect]:
    """Yield what a description of containers hands over, or a part of one that is written into the
    file `path`. `is_applied`: it takes effect now. Linear in the content, which is bounded."""
    if _IS["may_hand_over"].search(content) is None or (
        _IS["describes_containers"].search(content) is None
        and _IS["container_files"].search(path) is None
    ):
        return
    for flag in islice(_IS["host_flags"].finditer(content), _MAX_HANDED):
        yield Effect.of("privilege", "root", " ".join(flag[0].split())[:80], by="manifest")
    yield from mounted(content)
    if is_applied and _IS["binds"].search(content) and _IS["binds_all"].search(content):
        yield Effect.of("privilege", "service", "cluster-admin", by="manifest")


def mounted(
    content: str,
    place_of: Callable[[str], PathTarget] = place,
    *,
    by: str = "manifest",
    is_applied: bool = False,
) -> Iterator[Effect]:
    """Yield what containers reach of the machine by the folders that they are handed. `is_applied`:
    an engine's socket counts even where it is for reading."""
    for mount in islice(_IS["mounts"].finditer(content), _MAX_HANDED):
        where = place_of(mount[1] or mount[3] or mount[5])
        is_read_only = bool(mount[4] or mount[6])
        if _IS["engine"].search(where.path) and (is_applied or not is_read_only):
            yield Effect.of("privilege", "root", where.path, by=by)
        elif where.scope == "root" or (_IS["holes"].match(where.path) and not is_read_only):
            yield Effect.of("privilege", where.scope, where.path, wide=True, by=by)
        elif where.scope == "credentials" or _IS["holds_keys"].match(where.path):
            yield Effect.of("read", "credentials", where.path, by=by)
