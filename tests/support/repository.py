"""The files of this repository."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not {".venv", ".cache"} & {*path.parts}
        ]
    return [
        path
        for name in listed.stdout.decode().split("\0")
        if name and (path := ROOT / name).is_file()
    ]
