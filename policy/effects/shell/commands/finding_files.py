"""The search of find: what it chooses among files, and what it does with them itself. The links of
ln, by which files are found under other names."""

import re

from policy.effects.paths import PathTarget
from policy.effects.paths import place as place_of
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args
from policy.effects.shell.commands.findings import Findings

_TEST = re.compile(r"-[a-zA-Z]|[(!,]")
"""How what `find` looks for begins."""
_MAX_NAMES = 16


def find(command: Command, args: Args, findings: Findings) -> None:
    """`find ROOTS... EXPRESSION`: reads the roots, and deletes or writes by some of its actions.
    What it runs stands in the list by itself."""
    words = command.words[1:]
    roots: list[Word] = []
    position = 0
    while position < len(words) and words[position].known in ("-H", "-L", "-P", "-E", "-X", "-s"):
        position += 1
    while position < len(words) and not _TEST.match(words[position].known or "-a"):
        roots.append(words[position])
        position += 1
    expression = words[position:]
    texts = [word.known for word in expression]
    roots = roots or [Word(".")]
    for root in roots:
        for place in findings.places(root):
            findings.reads.append(place)
            if place.scope != "credentials" or _keys_among(
                place, [word.known for word in expression]
            ):
                # it prints names alone, if it does not hunt for keys; who opens what it finds is
                # another command
                findings.add("read", place.scope, place.path, wide=True)
    findings.is_dry = True
    if "-delete" in texts:
        _find_deletes(roots, texts, findings)
    for name, word in zip(texts, expression[1:], strict=False):
        if name in ("-fprint", "-fprintf", "-fprint0", "-fls"):
            findings.write(word)
        elif name == "-files0-from":
            findings.read(word)


_TESTS = frozenset(
    "-mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -newermt -size -user -uid -group"
    " -gid -nouser -nogroup -perm -links -used".split()
)
"""Tests that choose some files of a folder."""


_NARROWING = tuple(
    "-name -iname -path -ipath -wholename -regex -iregex -empty -samefile -inum -lname".split()
)
"""Tests that leave little of a tree."""


def narrows(texts: list[str]) -> bool:
    """Does a `find` choose files by more than their kind and age?"""
    for name, value in zip(texts, [*texts[1:], ""], strict=False):
        if name == "-empty" or (name in _NARROWING and value.strip("*./") != ""):
            return True
    return False


def chosen(root: PathTarget, texts: list[str]) -> PathTarget:
    """Return what a `find` chooses below a root: a few files by their name, some by their age or
    size, or all."""
    named = narrows(texts)
    secret = root.secret
    if (keys := _keys_among(root, texts)) is not None:
        if keys.scope == "credentials":
            return keys
        secret = True
    some = named or any(text in _TESTS for text in texts)
    if root.path.startswith(".") and root.scope in ("home", "project"):
        inside = root.path.startswith("./")
        return PathTarget(
            root.path, "project" if some or inside else "home", not named, secret, root.whole
        )
    # below a home or a data folder, what is chosen by name is a few files; of the system none
    # should go
    wide = not (
        named
        and root.scope in ("home", "unknown", "temp")
        and not (root.whole and root.path in ("/", "/home", "~"))
    )
    return PathTarget(root.path, root.scope, wide, secret, root.whole)


def _keys_among(root: PathTarget, texts: list[str]) -> PathTarget | None:
    """The files that hold keys or settings of a project, if a `find` looks for those by their
    name."""
    for name, value in zip(texts, [*texts[1:], ""], strict=False):
        if name in _NARROWING and value and not value.startswith("-"):
            location = place_of(f"{root.path.rstrip('/*')}/{value.lstrip('*/')}")
            if location.secret:
                return PathTarget(location.path, location.scope, True, True)
    return None


def _find_deletes(roots: list[Word], texts: list[str], findings: Findings) -> None:
    for root in roots:
        for place in findings.places(root):
            some = chosen(place, texts)
            findings.add("delete", some.scope, some.path, wide=some.wide)


def link(command: Command, args: Args, findings: Findings) -> None:
    """`ln TARGET... LINK`: note under which paths the targets can be reached from now on."""
    names = list(args.operands[:_MAX_NAMES])
    if any(word.text is None for word in names):
        # what may be any path would be all of them
        return
    folder = args.first("-t|--target-directory")
    path = ""
    if folder is None and len(names) > 1:
        last = names.pop()
        is_folder = len(names) > 1 or last.known.endswith("/") or last.known in (".", "..")
        folder, path = (last, "") if is_folder else (None, last.known)
    for target in names:
        base = target.known.rstrip("/").rpartition("/")[2]
        name = path or f"{'.' if folder is None else folder.known}/{base}"
        if args.has("-s|--symbolic") and not target.known.startswith(("/", "~")):
            # it leads on from the folder in which it lies
            target = Word(f"{name.rpartition('/')[0] or '.'}/{target.known}")
        findings.linked.append((findings.place(Word(name)).path, findings.place(target)))
