"""What `sluice up` says where it cannot start: one sentence, before anything runs."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.processes import ON_LINUX
from sluice.up import embedded
from tests.support.checks.record import rows
from tests.support.servers.up import ENVIRONMENT, ROOT, START_S, up


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory for all tests here, because making a PostgreSQL takes a second or two."""
    return tmp_path_factory.mktemp("up") / "data"


def refused(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command that ends at once; return its exit code and what it said."""
    command = [sys.executable, "-m", "sluice.cli", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_a_key_file_that_was_cut_off_stops_the_start_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-sluice-abc")
    code, said = refused("up", "--data-dir", str(tmp_path), "--port", "0")
    assert (
        code == 2
        and said.startswith(f"sluice: the key file {tmp_path / 'key'} is cut off: ")
        and "delete the file" in said
    )
    assert not (tmp_path / "postgres").exists(), "nothing was started"


def test_a_start_on_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    command = [
        "prlimit",
        "--fsize=4096",
        sys.executable,
        "-m",
        "sluice.cli",
        "up",
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        "0",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"sluice: the data directory {tmp_path / 'data'} cannot be written (file too large): make"
        " room there"
    )
    assert done.stderr.count("\n") == 1


def can_mount() -> bool:
    return (
        ON_LINUX
        and subprocess.run(
            ["unshare", "--mount", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.mark.skipif(not can_mount(), reason="a small disk needs the right to mount one")
def test_a_disk_that_is_too_small_for_a_database_is_said_with_its_cause(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    started = shlex.join(
        [sys.executable, "-m", "sluice.cli", "up", "--data-dir", str(small / "data"), "--port", "0"]
    )
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f"mount -t tmpfs -o size=20m tmpfs {shlex.quote(str(small))} && exec {started}",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(
        f"sluice: the disk of the data directory {small / 'data'} is full (a new one takes about 50"
        " MB): make room there"
    )
    assert (
        "What failed: PostgreSQL could not make its data directory: could not " in last
        and "No space left on device" in last
    )


def test_a_data_directory_of_another_postgres_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data" / "postgres").mkdir(parents=True)
    (tmp_path / "data" / "postgres" / "PG_VERSION").write_text("14\n")
    code, said = refused("up", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert code == 4
    assert said.startswith(
        f"sluice: {tmp_path / 'data' / 'postgres'} was made by PostgreSQL 14, and this Sluice"
        " brings PostgreSQL "
    )
    assert (
        "choose another --data-dir or SLUICE_DATA_DIR. To keep the record, start the Sluice that"
        " made it once more" in said
    )


@pytest.mark.slow
def test_a_data_directory_from_before_the_first_release_is_said_with_what_to_do(
    tmp_path: Path, socket_folder: Path
) -> None:
    data = socket_folder / "data"
    data.mkdir()
    spec, url = embedded.postgres(data / "postgres", log=tmp_path / "log")
    with embedded.running(spec, tmp_path / "run"):
        rows(url, "CREATE TABLE alembic_version AS SELECT '0030' AS version_num")
    (data / "postgres.migrated").write_text("0" * 64)
    code, said = refused("up", "--data-dir", str(data), "--port", "0")
    assert code == 4
    assert said.startswith(
        f"sluice: the database at {data / 'postgres'} was made by a Sluice before 0.2.0, the first"
        " release, and cannot be"
    )
    assert (
        "(`make up DATA_DIR=FOLDER` with another folder" in said
        and "with the version that made it (`sluice audit export`)" in said
    )


@pytest.mark.slow
def test_data_directory_in_use_is_one_sentence(data_dir: Path, tmp_path: Path) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        launcher.ready()
        code, said = refused("up", "--data-dir", str(data_dir), "--port", "0")
        assert code == 5
        assert said.startswith(
            f"sluice: another `sluice up` (pid {launcher.process.pid}) runs on {data_dir}: "
        )


def test_every_mistake_of_a_configuration_is_said_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text("policies:\n  default: [{use: tool_rules, denny: []}]\nlimit: {}\n")
    command = [
        sys.executable,
        "-m",
        "sluice.cli",
        "up",
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--config",
        str(file),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            f"sluice: {file}: 2 mistakes",
            "  line 2: policies.default.0.denny: is not known; did you mean 'deny'?",
            "  line 3: limit: is not known; did you mean 'limits'?",
        ],
    )
    assert not (tmp_path / "data").exists()


def test_policy_that_cannot_be_loaded_stops_the_start_before_the_databases(tmp_path: Path) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "policies:\n  default:\n    - use: tool_judge\n      model: demo-judge\n      treshold:"
        " 0.5\n"
    )
    code, said = refused(
        "up", "--data-dir", str(tmp_path / "data"), "--port", "0", "--config", str(file)
    )
    assert (code, said) == (
        2,
        (
            f"sluice: {file} line 5: policies.default.0.treshold: is not known; did you mean"
            " 'threshold'?"
        ),
    )
    assert (
        not (tmp_path / "data" / "postgres").exists()
        and not (tmp_path / "data" / "valkey").exists()
    )


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "import os; os._exit(0)",
            "the policies were not loaded: the process that imports them ended",
        ),
        (
            "raise SystemExit(0)",
            "sluice.yaml line 1: policies.default.0: its module calls for the end of the process",
        ),
        ("raise RuntimeError('not now')", "mine.py line 1: RuntimeError: not now"),
    ],
)
def test_what_a_policy_of_ones_own_does_when_it_is_imported_happens_to_the_launcher_in_one_sentence(
    tmp_path: Path, module: str, said: str
) -> None:
    (tmp_path / "mine.py").write_text(module)
    (tmp_path / "sluice.yaml").write_text("policies: {default: [{use: 'mine:Mine'}]}\n")
    code, sentence = refused(
        "up",
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        "0",
        "--config",
        str(tmp_path / "sluice.yaml"),
    )
    assert code in (1, 2) and said in sentence
    assert not (tmp_path / "data" / "postgres").exists()
