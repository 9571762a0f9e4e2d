"""Finds the files that a patch changes: unified diffs, and the format of `apply_patch` tools."""

import re
from collections.abc import Iterator
from typing import Literal

_BEGIN = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)|\*\*\* Move to: (.+)")
_NEW = re.compile(r"\+\+\+ (?:[ab]/)?([^\t\r\n]+)")
_OLD = re.compile(r"--- (?:[ab]/)?([^\t\r\n]+)")
_NOWHERE = "/dev/null"

File = tuple[str, Literal["write", "delete"], str]
"""A path, what is done there, and the lines that are added."""


def files_of(patch: str) -> Iterator[File]:
    """Yield the files that a patch changes; nothing where the text is no patch. Linear."""
    path, does, lines, old = "", "", [], ""
    for line in patch.split("\n"):
        begins = _BEGIN.match(line)
        new = _NEW.match(line) if old else None
        if begins is None and new is None:
            old_one = _OLD.match(line)
            old = old_one[1].strip() if old_one else ""
            if line.startswith("+") and path:
                lines.append(line[1:])
            continue
        if path:
            yield path, "delete" if does == "delete" else "write", "\n".join(lines)
        if new is not None:
            target = new[1].strip()
            path, does = (old, "delete") if target == _NOWHERE else (target, "write")
        elif begins is not None:
            path, does = (begins[2] or begins[3]).strip(), (begins[1] or "update").lower()
        lines, old = [], ""
    if path:
        yield path, "delete" if does == "delete" else "write", "\n".join(lines)
