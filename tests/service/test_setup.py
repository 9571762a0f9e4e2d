"""`scripts/setup` and `make up` in a folder of any name."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAYS = "import sys\n\n\ndef main() -> None:\n    print(*sys.argv[1:])\n\n\nif __name__ == '__main__':\n    main()\n"


@pytest.mark.timeout(120)
def test_a_clone_in_a_folder_with_a_space_is_set_up_and_starts(tmp_path: Path) -> None:
    # the real ones, with nothing to install and a command line that says what it was given
    clone = tmp_path / "my $HOME ü's clone"
    for name in ("Makefile", "scripts/setup"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "requirements-local.txt").write_text("# nothing\n")
    (clone / "sluice").mkdir()
    (clone / "sluice" / "__init__.py").touch()
    (clone / "sluice" / "cli.py").write_text(SAYS)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "sluice").mkdir(parents=True)

    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "ARGS")}

    def run(*command: str, cwd: Path) -> str:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    assert run("make", "up", "ARGS=--port 1", cwd=clone) == "up --port 1"
    # also from a folder that has something of the same name
    assert run(str(clone / ".venv" / "bin" / "sluice"), "doctor", "a b", cwd=elsewhere) == "doctor a b"
    assert run("make", "up", cwd=clone) == "up"
