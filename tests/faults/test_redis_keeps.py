"""A restart of Redis keeps what its append-only file holds under the shipped rights; where it would
not, no process starts."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from sluice.check import doctor
from sluice.check.rights import OPS, USERS
from sluice.errors import NotFit
from streams import layout, lua
from tests.support.servers.least import BINARIES, guarded_spec, url_of, users_file
from tests.support.servers.stores import Server

CALLS = 20


@contextmanager
def server_of(folder: Path, kind: str, users: str) -> Iterator[Server]:
    spec, url = guarded_spec(folder, kind, users=users)
    server = Server(spec, url, folder)
    try:
        yield server
    finally:
        server.close()


def fill(admin: Any) -> None:
    """What a gateway and a worker write: scripts, in a transaction and alone."""
    sha = admin.script_load(lua.SOURCES["start"])
    for number in range(CALLS):
        call = f"{number:08x}-0000-7000-8000-000000000000"
        keys = (
            layout.dispatch_key(0),
            layout.audit_key(0),
            layout.memory_key(0),
            layout.call_key(call),
            layout.body_key(call),
        )
        with admin.pipeline(transaction=True) as pipe:
            pipe.set(layout.body_key(call), "{}", px=600_000)
            pipe.evalsha(
                sha,
                len(keys),
                *keys,
                100,
                100,
                60_000,
                600_000,
                600_000,
                "1",
                "start",
                "",
                call,
                "key",
            )
            pipe.xadd(layout.audit_key(0), {layout.BLOB: b"records"})
            pipe.execute()


def kept(admin: Any) -> tuple[int, int, int]:
    return (
        admin.xlen(layout.dispatch_key(0)),
        admin.xlen(layout.audit_key(0)),
        len(admin.keys("sluice:{00}:call:*")),
    )


@pytest.mark.case("R1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", BINARIES)
def test_r1_a_restart_loses_nothing_under_the_shipped_rights(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    with (
        server_of(tmp_path, kind, users_file()) as server,
        redis.Redis.from_url(server.url) as admin,
    ):
        fill(admin)
        assert kept(admin) == (CALLS, CALLS, CALLS)
        server.kill(number)
        server.start()
        assert kept(admin) == (CALLS, CALLS, CALLS)
        for user in (*USERS.values(), OPS):
            assert doctor.check_redis(url_of(user, server.url)) == []


@pytest.mark.parametrize("kind", BINARIES)
def test_a_redis_that_would_drop_its_file_is_refused_and_only_such_a_one(
    tmp_path: Path, kind: str
) -> None:
    """Under `user default off` alone Redis 7.0 loads no transaction: all that scripts wrote is
    gone, though it was stopped in order."""
    users, changed = re.subn(
        r"(?m)^user default .*$", "user default off resetkeys resetchannels -@all", users_file()
    )
    assert changed == 1
    with server_of(tmp_path, kind, users) as server, redis.Redis.from_url(server.url) as admin:
        fill(admin)
        refused = []
        for user in (*USERS.values(), OPS):
            try:
                doctor.check_redis(url_of(user, server.url))
            except NotFit as error:
                refused.append(str(error))
        server.kill(signal.SIGTERM)
        server.start()
        loses = kept(admin) != (CALLS, CALLS, CALLS)
        assert len(refused) == (len(USERS) + 1 if loses else 0)
        assert all(
            "loses its backlog at a restart" in one and "redis-users" in one for one in refused
        )
        admin.execute_command("ACL", "SETUSER", USERS["gateway"], "-acl|dryrun")
        if loses:
            # a role without that right may not ask
            with pytest.raises(
                NotFit, match="may lose its backlog at a restart, and this user may not ask"
            ):
                doctor.check_redis(url_of(USERS["gateway"], server.url))
