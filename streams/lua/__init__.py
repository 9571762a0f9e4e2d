"""The Lua scripts, one file each: every step of several commands that must be one step.

A file begins with the keys and the arguments that its script takes; `streams.scripts`,
`streams.judge_scripts` and `streams.key_memory_scripts` have a function for each. `-- include:
NAMES` stands for files of `shared/`, a word in capitals for a number of the product. Time is Redis'
own."""

import re
from hashlib import sha1
from pathlib import Path

from protocol.bounds import MAX_ENDED_CALLS

MAX_PASSED_ON = 16
"""How often a call of another policy set goes to the next worker at once; then it waits for one
that looks for what was left."""
CALL_BYTES = 4096
"""What a call without a body takes: its stream, its lease, its records until they are stored."""

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r"^-- include: (.*)\n", re.MULTILINE)
_NUMBERS = {
    "MAX_PASSED_ON": MAX_PASSED_ON,
    "MAX_ENDED_CALLS": MAX_ENDED_CALLS,
    "CALL_BYTES": CALL_BYTES,
}


def _read(path: Path) -> str:
    source = _INCLUDE.sub(_included, path.read_text(encoding="utf-8"))
    for name, number in _NUMBERS.items():
        source = source.replace(name, str(number))
    return source


def _included(line: re.Match[str]) -> str:
    return "".join(_read(_FOLDER / "shared" / f"{name}.lua") for name in line[1].split())


SOURCES = {path.stem: _read(path) for path in sorted(_FOLDER.glob("*.lua"))}
"""The scripts by name."""
SHA = {
    name: sha1(source.encode(), usedforsecurity=False).hexdigest()
    for name, source in SOURCES.items()
}
"""The names under which Redis knows them."""
