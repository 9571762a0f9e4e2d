"""The data directory of `sluice up`: made closed to other users, tried, and locked. Must not know:
what runs in it.
"""

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sluice.errors import Busy, SettingsError, StartError
from sluice.settings import LOCK_FILE
from sluice.up import embedded

_OURS = {LOCK_FILE, "key", "logs", "run", "valkey", "postgres"}
"""Names of which one at least is in a data directory that was used, or prepared."""
PROBE_BYTES = 2**20
"""Written once to see whether the disk has room: what a start writes before the servers write
theirs."""


def make_data_dir(path: Path) -> Path:
    """Make the data directory, closed to other users (as root: to be passed through only); return
    its full path. Raises StartError."""
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        path.mkdir(parents=True, exist_ok=True)
        full = path.resolve(strict=True)
        _check_own(full)
        full.chmod(mode)
        (full / "logs").mkdir(mode=0o700, exist_ok=True)
        (full / "run").mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=full) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        raise _unwritable(path, error) from None
    return full


def _check_own(folder: Path) -> None:
    """Raise SettingsError for a folder with somebody's files: it would be closed to other users,
    and filled with ours."""
    there = {path.name for path in folder.iterdir()} - {"lost+found"}
    if there and not there & _OURS:
        raise SettingsError(
            f"{folder} holds other files and no data of Sluice: choose a folder of its own with"
            " --data-dir or SLUICE_DATA_DIR"
        )


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Make one sentence of the errors of a full disk, ours or a server's."""
    try:
        yield
    except StartError as error:
        if not embedded.lacks_room(str(error), path):
            raise
        raise StartError(
            f"the disk of the data directory {path} is full (a new one takes about 50 MB): make"
            " room there, or choose another with --data-dir or SLUICE_DATA_DIR. What failed:"
            f" {error}"
        ) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> StartError:
    what = (
        "make room there, or choose"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        else "choose"
    )
    reason = (error.strerror or type(error).__name__).lower()
    return StartError(
        f"the data directory {path} cannot be written ({reason}): {what} another with --data-dir or"
        " SLUICE_DATA_DIR"
    )


@contextlib.contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Keep a second launcher out of the data directory. Raises Busy."""
    with open(os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(
                f"another `sluice up`{_holder(file)} runs on {data_dir}: stop it, or choose another"
                " --data-dir"
            ) from None
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _holder(file: IO[str]) -> str:
    pid = file.read(20).strip()
    return f" (pid {pid})" if pid.isdigit() else ""
