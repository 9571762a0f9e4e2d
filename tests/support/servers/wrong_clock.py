"""A wall clock that a test sets for the processes that it starts, whatever they are written in: a
library that the loader puts in front."""

import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long long *ahead;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WRONG_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    if (found != MAP_FAILED) ahead = found;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (!real_clock) real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real_clock(id, at);
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += *ahead;
    return failed;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class WrongClock:
    """The clock of the processes that are started with `env`; it may be set while they run."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(8))
        file.chmod(0o644)
        self._file = file
        self.env = {"LD_PRELOAD": str(library), "WRONG_CLOCK": str(file)}

    def set(self, days: float) -> None:
        """Let the clock be so many days ahead; below 0 it is behind."""
        with self._file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8) as shown:
            shown[:] = struct.pack("q", int(days * 86_400))


@contextmanager
def wrong_clocks(count: int) -> Iterator[list[WrongClock]]:
    """Lend so many clocks, which are right at first. Skips without a C compiler, which CI has."""
    compiler = shutil.which("cc")
    if compiler is None:
        assert os.environ.get("CI") != "true", "CI has a C compiler"
        pytest.skip("no C compiler")
    # PostgreSQL, which may run as another user, reads it
    folder = Path(tempfile.mkdtemp(prefix="sluice-clock-"))
    folder.chmod(0o755)
    try:
        library = folder / "clock.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-xc", "-", "-o", str(library), "-ldl"],
            input=_SOURCE.encode(),
            check=True,
        )
        library.chmod(0o755)
        yield [WrongClock(library, folder / f"clock{number}") for number in range(count)]
    finally:
        shutil.rmtree(folder)
