"""What `sluice doctor` and /ready say of stores that may lose what they took, or take nothing: made
for real, on servers of their own."""

import dataclasses
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
import redis

from db.migrations.migrate import upgrade
from db.state.server import settings
from settings.config import Config
from sluice.check import doctor, live, live_database
from sluice.check.store_check import WITHIN_S
from sluice.errors import NotFit, Unavailable
from sluice.settings import load_config
from sluice.up import embedded
from streams.health import Found, clock_faults
from tests.support.checks.record import fresh_database
from tests.support.servers.product import Product, base_config
from tests.support.servers.stores import Server, client, database
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A PostgreSQL as the product runs it: with nothing on its command line that a setting could
    not change."""
    folder = tmp_path_factory.mktemp("postgres")
    spec, url = embedded.postgres(folder / "postgres", log=folder / "postgres.log", tcp=True)
    server = Server(spec, url, folder / "postgres")
    upgrade(url)
    yield server
    server.close()


@contextmanager
def setting(server: Server, name: str, value: str) -> Iterator[None]:
    """Change a setting of the whole server without a restart, and take it back."""
    with database(server) as admin:
        admin.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        admin.execute("SELECT pg_reload_conf()")
        wait_for(lambda: shown(server, name) == value, what=f"{name} = {value}")
        try:
            yield
        finally:
            admin.execute("SET synchronous_commit = local")
            admin.execute(f"ALTER SYSTEM RESET {name}".encode())
            admin.execute("SELECT pg_reload_conf()")
    wait_for(lambda: shown(server, name) != value, what=f"{name} as before")


def shown(server: Server, name: str) -> str:
    return settings(server.url, [name])[name]


def said(url: str, name: str) -> list[tuple[str, str]]:
    """What the doctor says of one check."""
    return [
        (state, sentence)
        for check, state, sentence in doctor.check_database_live(url)
        if check == name
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "state", "sentence"),
    [
        ("fsync", "failed", "PostgreSQL has fsync off, so a crash of its machine"),
        ("full_page_writes", "failed", "set `full_page_writes = on`"),
        ("synchronous_commit", "warning", "set `synchronous_commit = on`"),
    ],
)
def test_settings_that_lose_commits_are_named(
    postgres: Server, name: str, state: str, sentence: str
) -> None:
    assert said(postgres.url, "database durability") == [("ok", "")]
    with setting(postgres, name, "off"):
        [(found, words)] = said(postgres.url, "database durability")
        assert found == state and sentence in words
    assert said(postgres.url, "database durability") == [("ok", "")]


@contextmanager
def standby(primary: Server, folder: Path) -> Iterator[Server]:
    """A streaming replica of `primary`."""
    data, log, spec = folder / "standby", folder / "standby.log", primary.spec
    program, port = Path(spec.argv[0]).with_name("pg_basebackup"), embedded.free_port()
    data.mkdir(mode=0o700)
    folder.chmod(0o711)
    if spec.user is not None and spec.group is not None:
        embedded._give(data, spec.user, spec.group)
    command = [
        str(program),
        "-d",
        primary.url,
        "-D",
        str(data),
        "-R",
        "-X",
        "stream",
        "-c",
        "fast",
        "--no-sync",
    ]
    done = subprocess.run(
        command,
        user=spec.user,
        group=spec.group,
        extra_groups=[] if spec.user else None,
        cwd=data,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    place = urlsplit(primary.url)
    changed = {str(primary.data): str(data), f"port={place.port}": f"port={port}"}
    argv = [changed.get(word, word) for word in spec.argv]

    def is_ready() -> bool:
        try:
            return (data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready"
        except (OSError, IndexError):
            return False

    made = dataclasses.replace(spec, argv=argv, log=log, cwd=data, is_ready=is_ready)
    server = Server(made, primary.url.replace(f":{place.port}/", f":{port}/"), data)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.slow
def test_standbys_that_would_lack_commits_are_named_and_so_is_a_standby_itself(
    postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check = "database standbys"
    assert said(postgres.url, check) == [("ok", "")]
    with standby(postgres, tmp_path_factory.mktemp("standby")) as follower:
        wait_for(lambda: said(postgres.url, check) != [("ok", "")], what="the standby follows")
        [(state, sentence)] = said(postgres.url, check)
        assert (
            state == "warning"
            and "1 standbys and none is synchronous" in sentence
            and "set `synchronous_standby_names`" in sentence
        )
        [(state, sentence)] = said(follower.url, check)
        assert (
            state == "failed"
            and "is a standby, which takes no writes" in sentence
            and str(urlsplit(follower.url).port) in sentence
        )
        with setting(postgres, "synchronous_standby_names", "*"):
            wait_for(lambda: said(postgres.url, check) == [("ok", "")], what="it is synchronous")
            follower.close()
            wait_for(lambda: said(postgres.url, check) != [("ok", "")], what="it is gone")
            [(state, sentence)] = said(postgres.url, check)
            assert state == "failed" and "none of them is connected" in sentence
    assert said(postgres.url, check) == [("ok", "")]


def test_a_database_that_takes_no_writes_is_named(postgres: Server) -> None:
    with setting(postgres, "default_transaction_read_only", "on"):
        [(state, sentence)] = said(postgres.url, "database standbys")
        assert state == "failed" and "takes no writes (default_transaction_read_only)" in sentence


def test_a_database_that_waits_for_its_clients_to_shut_down_is_named(postgres: Server) -> None:
    with database(postgres):
        os.kill(postgres.pid, signal.SIGTERM)

        def refused() -> str:
            try:
                doctor.check_database(postgres.url)
            except Unavailable as error:
                return str(error)
            return ""

        said = wait_for(refused, what="it takes no new connections")
        assert (
            "was told to shut down and waits for its clients: end it with `pg_ctl stop -m fast`"
            in said
        )
    postgres.kill(signal.SIGINT)
    postgres.start()
    assert doctor.check_database(postgres.url) == []


def test_clocks_are_apart_by_what_the_way_there_does_not_explain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert clock_faults("Redis", 3.0, 1.0) == clock_faults("Redis", -3.0, 1.0) == []
    [(state, sentence)] = clock_faults("Redis", -3.1, 1.0)
    assert state == "failed" and "3.1 s behind" in sentence

    class Slow:
        """A Redis with the right time, whose answer is on its way for seven seconds, all of them
        back."""

        def time(self) -> tuple[int, int]:
            now = clock["time"]
            clock.update(time=now + 7, monotonic=clock["monotonic"] + 7)
            return int(now), 0

    clock = {"time": 1_800_000_000.0, "monotonic": 5.0}
    monkeypatch.setattr("streams.health.time.time", lambda: clock["time"])
    monkeypatch.setattr("streams.health.time.monotonic", lambda: clock["monotonic"])
    slow: Any = Slow()
    assert live.LiveHealth(Config(), slow).clock() == []
    clock["time"] += 60
    ahead: Any = Slow()
    ahead.time = lambda: (int(clock["time"]) - 60, 0)
    assert live.LiveHealth(Config(), ahead).clock()[0][0] == "failed"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    """A Valkey that gets an error from the kernel, not a signal, where its file may not grow."""
    spec, url = embedded.valkey(tmp_path / "valkey", log=tmp_path / "valkey.log")
    argv = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh", *spec.argv]
    server = Server(dataclasses.replace(spec, argv=argv), url, tmp_path / "valkey")
    yield server
    server.close()


def fault(url: str) -> str:
    """What keeps a process from starting on this Redis; empty: nothing."""
    try:
        doctor.check_redis(url)
    except NotFit as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_redis_that_cannot_write_its_file_is_named_by_doctor_and_ready(
    tmp_path: Path, valkey: Server, database_url: str
) -> None:
    with (
        fresh_database(database_url) as url,
        Product(tmp_path, valkey.url, url, base_config()) as product,
        client(valkey) as store,
    ):
        product.start("audit", "judge", "gateway", "policy")

        def ready() -> tuple[int, str]:
            answer = httpx.get(f"{product.url}/ready", timeout=10)
            return answer.status_code, answer.json()["why"]

        wait_for(lambda: ready()[0] == 200, what="ready")
        # as on a full disk: nothing more goes into the file
        resource.prlimit(valkey.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        wait_for(
            lambda: "cannot write its append-only file and refuses writes" in fault(valkey.url),
            what="doctor before a start",
        )
        wait_for(
            lambda: (
                ready()
                == (
                    503,
                    f"Redis {fault(valkey.url).partition(' ')[2].partition(' ')[2].partition(' ')[2]}",
                )
            ),
            what="/ready",
        )
        # for longer than heartbeats last, which cannot be written either
        wait_for(
            lambda: not live.LiveHealth(load_config(product.config_file), store)._present(),
            timeout_s=20,
            what="no heartbeat",
        )
        assert ready()[1].startswith("Redis cannot write its append-only file")
        found = doctor.check_all(load_config(product.config_file), valkey.url, url)
        sentences = [sentence for _, state, sentence in found if state == "failed"]
        assert any("make room on its disk" in sentence for sentence in sentences)
        assert not any(
            "does not answer" in sentence or "worker is running" in sentence
            for sentence in sentences
        ), sentences
        resource.prlimit(
            valkey.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        wait_for(
            lambda: ready()[0] == 200 and not fault(valkey.url),
            timeout_s=20,
            what="all is well again",
        )


def test_a_redis_that_refuses_writes_for_another_reason_is_named(valkey: Server) -> None:
    with client(valkey) as store:
        assert fault(valkey.url) == "" and doctor.check_redis(valkey.url) == []
        (valkey.data / "dump.rdb").mkdir()
        (valkey.data / "dump.rdb" / "x").touch()
        store.set("probe", "x", ex=60)
        store.config_set("save", "3600 1")
        store.bgsave()
        wait_for(lambda: "MISCONF" in fault(valkey.url), what="a snapshot that failed")
        store.config_set("save", "")
        assert (
            fault(valkey.url) == ""
            and "could not write its last snapshot" in doctor.check_redis(valkey.url)[0]
        )
        store.config_set("min-replicas-to-write", 1)
        assert "no replica that keeps up and refuses writes" in fault(valkey.url)
        store.config_set("min-replicas-to-write", 0)
        store.replicaof("127.0.0.1", 1)
        assert "is a replica, which refuses writes" in fault(valkey.url)


@pytest.mark.slow
def test_a_store_that_goes_away_between_two_looks_is_no_ok(
    postgres: Server, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes(url: str) -> Found:
        raise ConnectionError("terminating connection")

    monkeypatch.setitem(live_database.CHECKS, "database clock", goes)
    with redis.Redis.from_url(redis_url) as store:
        store.flushall()
    found = doctor.check_all(Config(), redis_url, postgres.url)
    assert ("database", "failed") in [
        (name, state) for name, state, sentence in found if "terminating connection" in sentence
    ]


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["postgres", "valkey"])
def test_a_store_that_hangs_holds_the_doctor_up_once(
    frozen: str, postgres: Server, valkey: Server
) -> None:
    server, lines = {"postgres": postgres, "valkey": valkey}[frozen], list[str]()
    server.freeze()
    try:
        began = time.monotonic()
        found = doctor.check_all(Config(), valkey.url, postgres.url, progress=lines.append)
        took_s = time.monotonic() - began
    finally:
        server.thaw()
    name = {"postgres": "database", "valkey": "redis"}[frozen]
    assert {(check, state) for check, state, _ in found} >= {(name, "failed")}
    assert any(
        f"no answer within {WITHIN_S:g} s" in sentence
        for check, _, sentence in found
        if check == name
    ), found
    other = {"postgres": "redis", "valkey": "database"}[frozen]
    assert any(check == other and state != "failed" for check, state, _ in found), (
        "the other store is looked at"
    )
    title = {"postgres": "PostgreSQL", "valkey": "Redis"}[frozen]
    assert (
        lines[:2] == ["asking Redis and PostgreSQL ...", f"{title} has not answered yet ..."]
        and len(lines) >= 3
    ), lines
    # the other store is looked at meanwhile
    assert took_s < WITHIN_S + 2.0
