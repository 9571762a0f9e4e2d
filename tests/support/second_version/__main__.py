"""Takes steps as the second version: each line of the input names one with its arguments, each of
the output has its result."""

import importlib
import json
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tests.support.second_version import LINES, MIGRATION


def become() -> None:
    """Make the modules of the second version; whoever imports them later gets those."""
    for name, changes in LINES.items():
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None and name not in sys.modules
        source = Path(spec.origin).read_text(encoding="utf-8")
        for found, put in changes:
            assert source.count(found) == 1, (name, found)
            source = source.replace(found, put.replace("{}", found))
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = spec.origin
        exec(compile(source, spec.origin, "exec"), module.__dict__)  # noqa: S102 - our own source
        folder, _, own = name.rpartition(".")
        setattr(importlib.import_module(folder), own, module)


def main() -> None:
    """Become the second version, and take the steps."""
    become()
    from db.migrations import place

    with tempfile.TemporaryDirectory() as folder:
        scripts = shutil.copytree(place.SCRIPTS, Path(folder) / "scripts")
        (scripts / "versions" / "r0099_second.py").write_text(MIGRATION)
        place.SCRIPTS = scripts
        steps = importlib.import_module("tests.support.second_version.steps")
        for line in sys.stdin:
            step, *arguments = json.loads(line)
            print(json.dumps(getattr(steps, step)(*arguments)), flush=True)


main()
