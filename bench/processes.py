"""What processes took so far: CPU, wake-ups and system calls. Linux only: it reads /proc."""

import contextlib
from collections import Counter
from pathlib import Path

Counts = Counter[str]


def counts(pid: int) -> Counts:
    """CPU seconds, wake-ups and system calls that read or write, of all threads of a process."""
    found: Counts = Counter()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent = (task / "schedstat").read_text().split()
            found["cpu_us"] += int(spent[0]) // 1000
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary"):
                    found["wakes"] += int(line.split()[1])
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(": ")
            found[name] += int(value)
    return found


def children(pid: int) -> list[int]:
    """A process and what it started."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            found += [int(c) for c in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return found


def total(pids: list[int]) -> Counts:
    """Counts of several processes together."""
    return sum((counts(pid) for pid in pids), Counter())
