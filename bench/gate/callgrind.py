"""Instructions of the policy worker's paths, counted exactly (callgrind, x86-64).

`python -m bench.gate.callgrind` under `valgrind --tool=callgrind --instr-atstart=no` counts;
`counting` and `counted` do that. A count is the same in every run, however busy the machine is,
which CPU time is not.
"""

import ctypes
import gc
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.gate import dialects, paths

PATH, DIALECT = "a worker's path, instructions: ", "beside chat/completions, instructions: "
_OF = " / of: "


class NotCounted(Exception):
    """Valgrind is there but does not run this Python."""


_CODE = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
"""A client request, as valgrind.h has it for x86-64: the four rotations do nothing on a processor,
and valgrind reads them as a call to itself with the address in rax. It is the one way to begin and
end counting exactly; counting the imports too would take 20 s."""
_ZERO, _DUMP_AT, _START, _STOP = (0x43540000 + n for n in (1, 3, 4, 5))


class _Callgrind:
    """Client requests to the callgrind that this process runs in."""

    def __init__(self) -> None:
        self._page = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._page.write(_CODE)
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64 * 6))
        self._call = kind(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))

    def request(self, code: int, text: bytes = b"") -> None:
        held = ctypes.create_string_buffer(text)
        self._call(ctypes.pointer((ctypes.c_uint64 * 6)(code, ctypes.addressof(held), 0, 0, 0, 0)))

    def count(self, name: str, run: Callable[[], object], *, of: str = "") -> None:
        """Write what `run` takes into a file of its own, under `name`; `of` is the name of what it
        is a multiple of."""
        run()  # what Python learns about code that it runs for the first time is not counted
        self.request(_START)
        self.request(_ZERO)
        run()
        self.request(_DUMP_AT, (f"{name}{_OF}{of}" if of else name).encode())
        self.request(_STOP)


def why_not_counted() -> str:
    """Why instructions cannot be counted here; empty where they can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    return (
        "" if platform.machine() in ("x86_64", "AMD64") else f"not written for {platform.machine()}"
    )


def counting(folder: Path) -> "subprocess.Popen[str]":
    """Begin to count instructions, in a process of its own."""
    valgrind = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        f"--callgrind-out-file={folder}/out",
    ]
    return subprocess.Popen(
        [*valgrind, sys.executable, "-m", "bench.gate.callgrind"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )


def counted(process: "subprocess.Popen[str]", folder: Path) -> Mapping[str, float]:
    """The multiples that `main` counts, from what `counting` began, by the names of the gate's
    figures. Raises NotCounted."""
    said, _ = process.communicate()
    totals, of = dict[str, int](), dict[str, str]()
    for path in sorted(folder.glob("out.*"), key=lambda path: int(path.suffix[1:])):
        text = path.read_text()
        name = re.search(rf"^desc: Trigger: Client Request: (.*?)(?:{_OF}(.*))?$", text, re.M)
        total = re.search(r"^totals: (\d+)", text, re.M)
        if name and total:
            totals[name[1]] = int(total[1])
            if name[2]:
                of[name[1]] = name[2]
    if process.returncode or not of:
        raise NotCounted(f"valgrind could not: {said.strip()[-800:]}")
    return {name: totals[name] / totals[reference] for name, reference in of.items()}


def main() -> None:
    """Count, under callgrind: the paths as multiples of their references, and each dialect's text
    as a multiple of chat/completions'."""
    gc.disable()
    valgrind = _Callgrind()
    for name, found in paths.cases(16).items():
        ours, theirs = paths.runs(found)
        valgrind.count(f"{PATH}{name}", ours, of=name)
        valgrind.count(name, theirs)
    for name, case in dialects.cases().items():
        reference = dialects.reference(name)
        valgrind.count(
            f"{DIALECT}{name}", case, of="" if name == reference else DIALECT + reference
        )


if __name__ == "__main__":
    main()
