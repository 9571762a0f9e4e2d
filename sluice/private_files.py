"""Small files that only their owner may read: keys, passwords, addresses. Written whole or not at
all, even if the machine crashes."""

import os
from pathlib import Path


def write_private(path: Path, text: str, *, lasting: bool = False) -> None:
    """Put `text` into the file, which is the old or the new one at any time. `lasting`: it is on
    disk when this returns. Raises OSError.

    What is written anew at each start need not last: waiting for the disk takes up to tens of
    milliseconds.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with open(
        os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
        file.flush()
        if lasting:
            os.fsync(file.fileno())
    part.replace(path)
    if lasting:
        sync_folder(path.parent)


def read_private(path: Path) -> str:
    """Return the one line of the file; empty where there is none, or where a crash of the machine
    left nothing or zeros of it.

    Raises OSError when it is there and cannot be read.
    """
    try:
        text = path.read_bytes().strip()
    except FileNotFoundError:
        return ""
    return (
        text.decode("ascii")
        if text.isascii() and text.decode("ascii").isprintable() and b" " not in text
        else ""
    )


def sync_folder(path: Path) -> None:
    """Bring what was made, renamed and removed in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
