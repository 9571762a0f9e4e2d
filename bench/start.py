"""How long `sluice up` takes to the first streamed byte, with a new data directory and with one
that was used, and what it holds.

`python -m bench.start --rounds 3`; `--tree FOLDER` measures another checkout in the same run, so
that both meet the same machine. Memory: RSS counts shared pages in every process, PSS once. Linux
only: it reads /proc.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ASKED = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def held(pids: list[int]) -> dict[str, float]:
    """CPU seconds and megabytes of some processes."""
    found = {"cpu_s": 0.0, "rss_mb": 0.0, "pss_mb": 0.0}
    for pid in pids:
        with contextlib.suppress(OSError):
            spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
            found["cpu_s"] += sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")
            for name, size in re.findall(
                r"(?m)^(Rss|Pss):\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text()
            ):
                found[f"{name.lower()}_mb"] += int(size) / 1024
    return found


def start(tree: Path, data_dir: Path) -> dict[str, float]:
    """Start, have one call streamed, measure, stop."""
    command = [
        sys.executable,
        "-m",
        "sluice.cli",
        "up",
        "--json",
        "--port",
        "0",
        "--data-dir",
        str(data_dir),
    ]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        ready_s = time.monotonic() - began
        headers = {"authorization": f"Bearer {ready['key']}", "content-type": "application/json"}
        asked = urllib.request.Request(
            f"{ready['url']}/v1/chat/completions", json.dumps(ASKED).encode(), headers
        )
        with urllib.request.urlopen(asked) as answer:
            answer.read(1)
            byte_s = time.monotonic() - began
            answer.read()
        found = {"ready_s": ready_s, "first_byte_s": byte_s, **held(list(family(process.pid)))}
        process.terminate()
    return found


def main() -> None:
    """Measure the trees in turn and print medians."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument(
        "--tree", type=Path, action="append", default=[], help="another checkout, also measured"
    )
    given = arguments.parse_args()
    trees = [tree.resolve() for tree in (Path(__file__).parent.parent, *given.tree)]
    found: dict[tuple[Path, str], list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for tree in trees:
            data_dir = Path(tempfile.mkdtemp(prefix="sluice-start-"))
            for state in ("cold", "warm", "warm"):
                found.setdefault((tree, state), []).append(start(tree, data_dir))
            shutil.rmtree(data_dir, ignore_errors=True)
    for (tree, state), starts in found.items():
        print(
            f"{tree.name:20} {state}  "
            + "  ".join(f"{name} {median(one[name] for one in starts):.2f}" for name in starts[0])
        )


if __name__ == "__main__":
    main()
