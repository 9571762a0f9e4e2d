"""The product as users run it: real processes of every role on the test process's own Valkey and
PostgreSQL.

A `Product` starts roles one by one, so that a test can kill and replace them. One product at a time
on one Valkey: it empties the streams when it starts.
"""

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx2 as httpx
import redis
import yaml

from sluice.processes import Process, heed_hangup
from sluice.up.embedded import is_socket_path
from tests.support.json_values import Json
from tests.support.servers import forked as forked_servers
from tests.support.servers.ports import free_port

Role = Literal["gateway", "policy", "judge", "audit", "pages"]
KEY = "sk-sluice-test-key"
CLIENT_KEY = "sk-sluice-client-only"
READY_S = 20.0
ROOT = Path(__file__).resolve().parents[3]
_COMMANDS: dict[Role, list[str]] = {
    "gateway": ["gateway"],
    "policy": ["worker", "policy"],
    "judge": ["worker", "judge", "--concurrency", "4"],
    "audit": ["worker", "audit"],
    "pages": ["pages"],
}


def digest(key: str) -> str:
    """The form in which the configuration holds a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def base_config() -> Json:
    """Two keys (all roles; client only) and the policies of a first start."""
    return {
        "policies": {
            "default": [
                {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": "rm -rf"}]},
                {"use": "tool_judge", "model": "demo-judge", "threshold": 0.6},
            ],
            "noop": [{"use": "noop"}],
            "upper": [{"use": "uppercase"}],
        },
        "limits": {"lease_s": 1.0},
        "keys": [
            {
                "name": "dev",
                "sha256": digest(KEY),
                "roles": ["client", "auditor"],
                "policies": ["default", "noop", "upper"],
            },
            {
                "name": "app",
                "sha256": digest(CLIENT_KEY),
                "roles": ["client"],
                "policies": ["default"],
            },
        ],
    }


class Child:
    """One process."""

    def __init__(self, role: Role, env: dict[str, str], log: Path, *, by: list[str] | None) -> None:
        """`by`: what the command line stands behind; None where a fork does."""
        self.role, self.log = role, log
        reading, writing = os.pipe()
        forked = (
            forked_servers.start(_COMMANDS[role], env, log, ready_fd=writing)
            if by is None
            else None
        )
        self.process: Process = forked or _run(
            [*(by or []), sys.executable, "-m", "sluice.cli", *_COMMANDS[role]], env, log, writing
        )
        os.close(writing)
        self._ready = reading

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_ready(self) -> None:
        """Wait until it says that it is ready. Raises AssertionError with the end of its log."""
        # not select(), which knows no descriptor over 1,023
        waiting = select.poll()
        waiting.register(self._ready, select.POLLIN)
        found = waiting.poll(READY_S * 1000)
        said = os.read(self._ready, 16) if found else b""
        os.close(self._ready)
        assert said == b"ready\n", f"{self.role} is not ready:\n{self.tail()}"

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 35.0) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(timeout_s)


def _run(command: list[str], env: dict[str, str], log: Path, ready_fd: int) -> Process:
    with log.open("ab") as out:
        return subprocess.Popen(
            [*command, "--ready-fd", str(ready_fd)],
            env=env,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            pass_fds=(ready_fd,),
            start_new_session=True,
            preexec_fn=heed_hangup,
        )


class Product:
    """Processes of one product; `children` are in the order of their start."""

    def __init__(self, folder: Path, redis_url: str, database_url: str, config: Json) -> None:
        self.folder, self.redis_url, self.database_url = folder, redis_url, database_url
        pages = folder / "pages.sock"
        # as `up` chooses
        self.pages_url = (
            f"unix:{pages}" if is_socket_path(pages) else f"http://127.0.0.1:{free_port()}"
        )
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.children: list[Child] = []
        self.redis_urls: dict[Role, str] = {}
        """Where a role finds Redis, where that is not `redis_url`: through a proxy."""
        self.database_urls: dict[Role, str] = {}
        self.environments: dict[Role, Mapping[str, str]] = {}
        """What stands in the environment of a role besides."""
        self.config_file = folder / "sluice.yaml"
        self.config = config
        self.config_file.write_text(yaml.safe_dump(config))
        self.redis = redis.Redis.from_url(redis_url)

    def __enter__(self) -> Self:
        self.redis.flushall()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self,
        *roles: Role,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        limit: str = "",
    ) -> list[Child]:
        """Start one process a role, with `env` beside its own environment, and wait until all are
        ready. `limit`: arguments of `ulimit`."""
        limited = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh"] if limit else []
        # what else is in an environment may be for the interpreter or the loader
        is_forked = not limited and all(name.startswith("SLUICE_") for name in env or {})
        started = []
        for role in roles:
            environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
                "SLUICE_CONFIG": str(self.config_file),
                "SLUICE_REDIS_URL": self.redis_urls.get(role, self.redis_url),
                "SLUICE_DATABASE_URL": self.database_urls.get(role, self.database_url),
                "SLUICE_HOST": "127.0.0.1",
                "SLUICE_PORT": str(port or self.port),
                "SLUICE_PAGES_URL": self.pages_url,
                "PYTHONPATH": str(ROOT),
                **self.environments.get(role, {}),
                **(env or {}),
            }
            log = self.folder / f"{role}-{len(self.children)}.log"
            child = Child(role, environment, log, by=None if is_forked else limited)
            self.children.append(child)
            started.append(child)
        for child in started:
            child.wait_ready()
        return started

    def of(self, role: Role) -> list[Child]:
        """The living processes of a role."""
        return [c for c in self.children if c.role == role and c.process.poll() is None]

    def stop(self) -> None:
        """End everything."""
        living = [c for c in self.children if c.process.poll() is None]
        for child in living:
            child.kill(signal.SIGCONT)
            child.kill(signal.SIGTERM if child.role == "audit" else signal.SIGKILL)
        for child in living:
            child.wait(15)
        self.redis.close()

    def answer_audit(self) -> None:
        """Start the process that answers for the record, if there is none: few tests ask."""
        if not self.of("pages"):
            self.start("pages")

    def audit(self, path: str, **filters: Any) -> Any:
        """Ask the audit API."""
        self.answer_audit()
        answer = httpx.get(
            f"{self.url}/audit/{path}",
            params=filters,
            headers={"authorization": f"Bearer {KEY}"},
            # the first may find a process that begins, on a machine with other work
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def logs(self) -> str:
        """The ends of all logs, for a failing test's message."""
        return "\n".join(f"--- {c.role} {c.pid}\n{c.tail()}" for c in self.children)


@contextmanager
def running(
    folder: Path,
    redis_url: str,
    database_url: str,
    config: Json | None = None,
    *,
    policy: int = 1,
) -> Iterator[Product]:
    """Run a whole product: one gateway, audit writer and judge, and `policy` policy workers."""
    with Product(folder, redis_url, database_url, config or base_config()) as product:
        roles: list[Role] = ["audit", "judge", "gateway", *(["policy"] * policy)]  # type: ignore[list-item]
        product.start(*roles)
        yield product


def parse_sse(body: bytes) -> list[Json]:
    """The JSON payloads of a stream."""
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
