"""`make fuzz`: every target for some seconds, guided by coverage where atheris is there, else by
our own damage alone.

    python -m tests.fuzz.run [--seconds 60] [--seed N] [--target NAME]... [--input FILE]

Prints what failed and where its input is kept; exit code 1. An input that is worth keeping goes to
tests/fuzz/found/TARGET.NAME.
"""

import argparse
import hashlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.support.upstreams.recordings import ROOT

CACHE = ROOT / ".cache" / "fuzz"
SLOW_S = 5.0


class Failure(Exception):
    """An input for which something does not hold."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"{len(data)} bytes")
        self.data = data


def mutated(name: str, seconds: float, seed: int) -> int:
    """Run a target on damaged seeds for some seconds; returns how many. Raises Failure."""
    from tests.fuzz.targets import TARGETS, damaged, found

    target, rng = TARGETS[name], random.Random(f"{seed} {name}")
    seeds = target.seeds()
    for data in [*seeds, *found(name)]:
        attempt(target.check, data)
    ends, count = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        attempt(target.check, damaged(target, seeds, rng))
        count += 1
    return count


def attempt(check: object, data: bytes) -> None:
    """Run one input. Raises Failure."""
    began = time.process_time()
    try:
        check(data)  # type: ignore[operator]
    except Exception as error:
        raise Failure(data) from error
    if time.process_time() - began > SLOW_S:
        raise Failure(data) from TimeoutError(f"more than {SLOW_S:g} s")


def keep(name: str, data: bytes) -> Path:
    """Write an input that failed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.{hashlib.sha256(data).hexdigest()[:10]}"
    path.write_bytes(data)
    return path


def guided(name: str, seconds: float, seed: int) -> int:
    """Run a target under atheris in a process of its own; returns its exit code."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.guided",
            name,
            corpus,
            f"-max_total_time={max(1, int(seconds))}",
        ]
        command += [
            f"-seed={seed % 2**31 or 1}",
            f"-artifact_prefix={CACHE}/{name}.",
            "-max_len=40000",
            "-timeout=20",
            "-print_final_stats=0",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    print(f"{name}: " + (next((x for x in reversed(lines) if x.startswith("Done")), "failed")))
    if done.returncode:
        print(done.stdout[-3000:] + "\n".join(lines[-40:]))
    return done.returncode


def main() -> int:
    """Run what the command line asks for."""
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--input", type=Path, help="one input, for one target")
    asked = parser.parse_args()
    names = asked.target or list(TARGETS)
    if asked.input:
        TARGETS[names[0]].check(asked.input.read_bytes())
        return 0
    each, failed = asked.seconds / len(names), 0
    with_atheris = importlib.util.find_spec("atheris") is not None
    print(
        f"seed {asked.seed}, {each:.1f} s each, "
        + ("guided by atheris" if with_atheris else "without atheris")
    )
    for name in names:
        if with_atheris:
            failed += guided(name, each, asked.seed) != 0
            continue
        try:
            print(f"{name}: {mutated(name, each, asked.seed)} inputs")
        except Failure as failure:
            failed += 1
            traceback.print_exception(failure.__cause__)
            print(f"{name}: failed, input kept in {keep(name, failure.data)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
