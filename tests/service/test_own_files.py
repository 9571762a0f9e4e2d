"""What a start by root writes is closed to other users, and no other folder changes; a server is
ready when it answers."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sluice.errors import StartError
from sluice.up import embedded
from tests.support.servers.up import up
from tests.support.waiting import wait_for

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as somebody else")
OPENS = 'while IFS= read -r name; do if [ -r "$name" ]; then echo "$name"; fi; done'


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that anybody may pass through; the one of the test runner is closed."""
    made = Path(tempfile.mkdtemp(prefix="sluice-own-files-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def open_to_others(below: Path) -> list[str]:
    """What user `nobody` can read or list there, though told all names."""
    names = "\n".join(str(path) for path in (below, *below.rglob("*")))
    done = subprocess.run(
        ["sh", "-c", OPENS],
        input=names,
        user="nobody",
        group=65534,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0
    return done.stdout.splitlines()


@AS_ROOT
@pytest.mark.parametrize("mode", [0o755, 0o700])
@pytest.mark.slow
def test_what_root_starts_is_closed_to_others_and_changes_no_folder_above(
    folder: Path, tmp_path: Path, mode: int
) -> None:
    above = folder / "above"
    above.mkdir(mode=mode)
    data = above / "data"
    before = {path: path.stat().st_mode for path in data.parents}
    with up(data, tmp_path, "--json", "--port", "0") as launcher:
        assert launcher.ready()
        assert (data / "valkey" / "appendonlydir").exists()
        if mode == 0o755:
            assert open_to_others(data) == []
        assert {path: path.stat().st_mode for path in data.parents} == before
        # also where another start opened it
        assert [
            path for path in data.rglob("*") if path.is_file() and path.stat().st_mode & 0o077
        ] == []


@AS_ROOT
@pytest.mark.slow
def test_data_of_an_earlier_version_is_closed_too(folder: Path, tmp_path: Path) -> None:
    left = folder / "data" / "valkey" / "appendonlydir" / "appendonly.aof.1.base.aof.old"
    left.parent.mkdir(parents=True)
    left.write_text("withheld")
    with up(folder / "data", tmp_path, "--json", "--port", "0") as launcher:
        assert launcher.ready()
        assert open_to_others(folder / "data") == []


@AS_ROOT
def test_a_closed_folder_that_cannot_be_got_through_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "can_be_nobody", lambda: False)
    with pytest.raises(
        StartError,
        match=(
            r"^PostgreSQL does not run as root, and its own user cannot pass through /.*: run"
            r" this as"
        ),
    ):
        embedded.postgres(tmp_path / "closed" / "ours" / "postgres", log=tmp_path / "log")


def test_the_user_of_postgres_is_said_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    happened = list[str]()
    monkeypatch.setattr(embedded, "_is_user", lambda name: "useradd" in happened)
    monkeypatch.setattr("sluice.up.embedded.shutil.which", lambda name: "/sbin/useradd")
    monkeypatch.setattr(
        "sluice.up.embedded.subprocess.run", lambda argv, **_: happened.append(argv[0])
    )
    assert embedded._makes_user(happened.append)
    assert happened[0].startswith(
        "PostgreSQL does not run as root: making the system user sluice-postgres"
    ) and happened[1:] == ["useradd"]


@pytest.mark.slow
def test_after_a_crash_of_the_machine_a_server_is_ready_when_it_answers(tmp_path: Path) -> None:
    data, log = tmp_path / "ours" / "postgres", tmp_path / "log"
    spec, url = embedded.postgres(data, log=log)
    is_ready = spec.is_ready
    assert is_ready is not None
    with embedded.running(spec, tmp_path / "run") as pid:
        left = (data / "postmaster.pid").read_text()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_ready(), what="it is gone")
    assert "ready" in left
    # what it left says that it is ready, and its pid is a living process now
    for stale in (left, left.replace(str(pid), str(os.getpid()), 1)):
        (data / "postmaster.pid").write_text(stale)
        assert not is_ready()
        spec, url = embedded.postgres(data, log=log)
        (data / "postmaster.pid").write_text(left)
        with embedded.running(spec, tmp_path / "run"), psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
