"""A Valkey and a PostgreSQL of a test's own, which it may kill, stop and start again at the same
place with the same data."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import psycopg
import redis

from db.connections import conninfo
from db.migrations.migrate import upgrade
from sluice.processes import Spec, spawn
from sluice.up import embedded
from tests.support.waiting import wait_for

_START_S = 30.0
Stores = tuple[Path, str, str]
"""A folder for a product, and the addresses of its Redis and its PostgreSQL."""


class Server:
    """One server process; `url` stays the same through restarts."""

    def __init__(self, spec: Spec, url: str, data: Path) -> None:
        self.spec, self.url, self.data = spec, url, data
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it and wait until it is ready; returns the seconds that took."""
        began = time.monotonic()
        self.begin()
        assert self.spec.is_ready is not None
        while not (self.spec.is_ready() and self._listens()):
            if self._ended() and time.monotonic() < began + _START_S:
                # a PostgreSQL whose postmaster was killed starts again only when the last of its
                # children has noticed
                self._process = spawn(self.spec)
            assert time.monotonic() < began + _START_S, (
                f"{self.spec.name} does not start: {self.spec.log.read_text()[-2000:]}"
            )
            time.sleep(0.02)
        return time.monotonic() - began

    def begin(self) -> None:
        """Start it, and wait for nothing."""
        self._process = spawn(self.spec)

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _listens(self) -> bool:
        place = urlsplit(self.url)
        try:
            socket.create_connection((place.hostname, place.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; one that ends it is waited for."""
        assert self._process is not None
        self._process.send_signal(number)
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            self._process.wait(30)
            # what it left behind would say that it is ready
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Stop it and its children: the kernel still takes what is sent, and nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        # PostgreSQL's backends are process groups of their own
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """End it, however it is."""
        if self._process is not None and self._process.poll() is None:
            self.thaw()
            self.kill(self.spec.stop_signal)

    def wipe(self) -> None:
        """Take its data away while it is down (Valkey: it starts empty)."""
        shutil.rmtree(self.data / "appendonlydir")


@contextmanager
def own_valkey(
    folder: Path, env: Mapping[str, str] = MappingProxyType({}), *, fsync: str = "everysec"
) -> Iterator[Server]:
    """Run a Valkey as the product wants it; `fsync` also holds after a restart."""
    spec, url = embedded.valkey(folder / "valkey", log=folder / "valkey.log")
    spec = replace(spec, argv=[*spec.argv, "--appendfsync", fsync], env={**spec.env, **env})
    server = Server(spec, url, folder / "valkey")
    try:
        yield server
    finally:
        server.close()


@contextmanager
def own_postgres(folder: Path, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """Run a migrated PostgreSQL."""
    spec, url = embedded.postgres(
        folder / "postgres", log=folder / "postgres.log", durable=False, tcp=True
    )
    server = Server(replace(spec, env={**spec.env, **env}), url, folder / "postgres")
    try:
        upgrade(url)
        yield server
    finally:
        server.close()


@contextmanager
def client(server: Server) -> "Iterator[redis.Redis[Any]]":  # type: ignore[type-arg]
    """A fresh client of a Valkey, not through any proxy."""
    with redis.Redis.from_url(server.url, socket_timeout=10) as made:
        yield made


def follow(replica: Server, primary: Server) -> None:
    """Make one Valkey a replica of another, and wait until it has all."""
    place = urlsplit(primary.url)
    assert place.password and place.port
    with client(replica) as store:
        raw: Any = store
        raw.config_set("masterauth", place.password)
        raw.replicaof("127.0.0.1", place.port)
        wait_for(
            lambda: raw.info("replication")["master_link_status"] == "up",
            what="a replica that is in step",
        )


def promote(replica: Server, primary: Server) -> None:
    """Make a replica a primary of its own, with the password of the one that it followed."""
    password = urlsplit(primary.url).password or ""
    with client(primary) as store, client(replica) as promoted:
        raw: Any = promoted
        store.wait(1, 5000)
        raw.replicaof("NO", "ONE")
        raw.config_set("requirepass", password)
    replica.url = replica.url.replace(urlsplit(replica.url).password or "", password)


@contextmanager
def database(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A fresh connection to a PostgreSQL, not through any proxy."""
    with psycopg.connect(conninfo(server.url), autocommit=True) as connection:
        yield connection
