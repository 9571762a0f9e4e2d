"""The files of archived days: their names; packed and hashed while they are written, and on disk
before anybody counts on them; checked and read back. Must not know: seals, connections.
"""

import gzip
import json
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO

from db.canonical import Form

SEALS, NODES, CHECKPOINTS = "seals", "nodes", "checkpoints"
FILES = {SEALS: "seals.jsonl.gz", NODES: "nodes.gz", CHECKPOINTS: "checkpoints.jsonl.gz"}
"""What lies beside the rows of each table."""
NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.([1-9]\d{0,5}))?")
"""Of a folder: the day, and a number where it is not the first of that day."""
PIECE = 2**20
_LEVEL = 1
_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_FIELDS, _SIZE = struct.Struct("!h"), struct.Struct("!i")


class Damaged(ValueError):
    """A folder is not as it was written; the message says what."""


def folders_in(source: Path) -> list[Path]:
    """Return the folders of days in a directory, in the order in which they were written of each
    day. Raises OSError."""
    named = [
        (match, path)
        for path in source.iterdir()
        if path.is_dir() and (match := NAME.fullmatch(path.name))
    ]
    return [
        path for match, path in sorted(named, key=lambda pair: (pair[0][1], int(pair[0][2] or 1)))
    ]


def file_of(folder: Path, name: str) -> Path:
    """Return where the rows of a table lie, or one of `FILES`."""
    return folder / FILES.get(name, f"{name}.copy.gz")


class HashedFile:
    """A file that is written: its size and hash so far."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self._digest, self._size = raw, sha256(), 0

    def write(self, data: bytes) -> int:
        """Write on."""
        self._digest.update(data)
        self._size += len(data)
        return self._raw.write(data)

    def flush(self) -> None:
        """Hand on what waits."""
        self._raw.flush()

    @property
    def item(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}


class PackedFile:
    """A packed file that is written, and how many pieces it was given."""

    def __init__(self, hashed: HashedFile, packed: gzip.GzipFile) -> None:
        self._hashed, self._packed, self._waiting = hashed, packed, bytearray()
        self.pieces = 0

    def write(self, piece: bytes) -> None:
        """Add a piece; small ones are packed together."""
        self.pieces += 1
        self._waiting += piece
        if len(self._waiting) >= PIECE:
            self.flush()

    def flush(self) -> None:
        """Pack what waits."""
        self._packed.write(self._waiting)
        self._waiting.clear()

    @property
    def item(self) -> dict[str, Any]:
        """What the manifest says of it, when it is whole."""
        return self._hashed.item


@contextmanager
def packed_file(path: Path) -> Iterator[PackedFile]:
    """Write a file that is on disk at the end."""
    with path.open("xb") as raw:
        hashed = HashedFile(raw)
        with gzip.GzipFile("", "wb", _LEVEL, hashed, mtime=0) as packed:
            file = PackedFile(hashed, packed)
            yield file
            file.flush()
        raw.flush()
        settle(raw.fileno())


def write_lines(folder: Path, name: str, lines: Iterable[str]) -> dict[str, Any]:
    """Write a file of lines; returns what the manifest says of it."""
    with packed_file(file_of(folder, name)) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
    return file.item


def settle(file: int) -> None:
    """Flush the file to disk and, where the system can, drop it from the cache, so that
    verification reads from disk."""
    os.fsync(file)
    if sys.platform == "linux":
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_directory(folder: Path) -> None:
    """Make a folder and those above it, each on disk before what lies in it."""
    if not folder.is_dir():
        make_directory(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def check_file(path: Path, expected: dict[str, Any]) -> None:
    """Compare a file with what the manifest says of it. Raises Damaged."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
        size = file.tell()
    if (size, digest) != (expected["bytes"], expected["sha256"]):
        raise Damaged(f"{path.name} is not what was written")


class PackedRows:
    """The rows of a file in their order, one ahead, each as COPY BINARY has it."""

    def __init__(self, path: Path, form: Form) -> None:
        self.form, self._rows = form, _split(gzip.open(path, "rb"))  # noqa: SIM115 - closed at its end
        self.head = next(self._rows, None)
        self.count = 0

    def of(self, call_id: bytes) -> Iterator[bytes]:
        """The rows of this call, if they come next."""
        while self.head is not None and self.head[6:22] == call_id:
            yield self.head
            self.count += 1
            self.head = next(self._rows, None)


def _split(file: gzip.GzipFile) -> Iterator[bytes]:
    """The rows of a COPY BINARY stream, in pieces of the file: a read for each field takes three
    times as long."""
    with file:
        data, at = file.read(PIECE), len(_HEAD)
        if not data.startswith(_HEAD):
            # PostgreSQL would skip as many bytes as the head says: rows that were verified would
            # not be restored
            raise Damaged("a file of rows does not begin as COPY BINARY does")
        while True:
            end = _row_end(data, at)
            if end == 0:
                if data[at:] != _END or file.read(1):
                    raise Damaged("a file of rows does not stop where its rows do")
                return
            if end > 0:
                yield data[at:end]
                at = end
            elif piece := file.read(PIECE):
                data, at = data[at:] + piece, 0
            else:
                raise Damaged("a file ends in the middle of a row")


def _row_end(data: bytes, at: int) -> int:
    """Where the row ends that begins at `at`: 0 where the stream ends there, -1 where not all of it
    is here."""
    if len(data) < at + 2:
        return -1
    count = _FIELDS.unpack_from(data, at)[0]
    if count < 0:
        return 0
    at += 2
    for _ in range(count):
        if len(data) < at + 4:
            return -1
        size = _SIZE.unpack_from(data, at)[0]
        at += 4 + size if size > 0 else 4
    return at if at <= len(data) else -1


def read_seals(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the calls, each with its seals, in the order of their ids."""
    with gzip.open(file_of(folder, SEALS), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
