"""Each wrong condition made for real, under a running product: what `sluice doctor` and /ready say
of it, and that it passes."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
import redis

from db.connections import conninfo
from db.migrations.migrate import upgrade
from db.migrations.place import newest
from sluice.check import doctor
from sluice.check.rights import OPS, USERS
from sluice.settings import load_config
from streams import health, layout
from streams.gateways import gateway_faults
from tests.support.checks.record import fresh_database, rows
from tests.support.clients.commands import run_command
from tests.support.servers.least import DATABASE, guarded_server, login_url, url_of
from tests.support.servers.ports import free_port
from tests.support.servers.product import CLIENT_KEY, KEY, ROOT, Product, Role, base_config
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)


class Patient:
    """A running product, and what is said of it."""

    def __init__(
        self, product: Product, admin: redis.Redis, redis_url: str, database_url: str
    ) -> None:
        self.product, self.redis_url, self.database_url = product, redis_url, database_url
        self.admin: Any = admin
        self.http = httpx.Client(base_url=product.url, timeout=30)
        self.config = load_config(product.config_file)

    def faults(self, state: str = "failed") -> dict[str, str]:
        """What the doctor finds wrong, by check."""
        found = doctor.check_all(self.config, url_of(OPS, self.redis_url), self.database_url)
        # the servers of tests need not outlive their machine, and tests/faults/test_audit_whole.py
        # looks at what is said of that
        return {
            name: sentence
            for name, said, sentence in found
            if said == state and name != "database durability"
        }

    def ready(self) -> tuple[int, str]:
        """The status of /ready and its sentence."""
        answer = self.http.get("/ready")
        return answer.status_code, answer.json()["why"]

    def says(self, sentence: str) -> Callable[[], bool]:
        """A condition: not ready, and that is why."""
        return lambda: self.ready()[0] == 503 and sentence in self.ready()[1]

    def run(self, *command: str, redis_url: str, path: str = "") -> tuple[int, str]:
        """Run a command of the product; its exit code and what it said."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
            "SLUICE_REDIS_URL": redis_url,
            "SLUICE_DATABASE_URL": self.database_url,
            "SLUICE_CONFIG": str(self.product.config_file),
            "PYTHONPATH": f"{path}:{ROOT}",
        }
        done = run_command(*command, env=environment)
        return done.returncode, done.stdout + done.stderr

    def ask(self, content: str = "hello", **more: Any) -> httpx.Response:
        """Make a call."""
        body = {"model": "demo", "messages": [{"role": "user", "content": content}], **more}
        headers = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
        return self.http.post("/v1/chat/completions", json=body, headers=headers)


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator[Patient]:
    """A healthy product on its own Redis and database, each role with its own rights."""
    folder, config = tmp_path_factory.mktemp("doctor"), base_config()
    config["limits"] |= {"backlog": 60}
    with (
        fresh_database(database_url) as database,
        guarded_server(folder / "redis") as url,
        redis.Redis.from_url(url) as admin,
    ):
        upgrade(database, passwords=DATABASE)
        with Product(folder, url, database, config) as product:
            for role, user in USERS.items():
                product.redis_urls[role] = url_of(user, url)  # type: ignore[index]
            product.database_urls["audit"] = login_url(database, "audit")
            product.start("audit", "judge", "gateway", "policy")
            made = Patient(product, admin, url, database)
            with made.http:
                yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look twice within a moment: what is wrong here stays wrong."""
    monkeypatch.setattr(health, "WATCH_S", 0.3)


@pytest.fixture
def healthy(patient: Patient) -> Iterator[Patient]:
    """The product before and after a fault: nothing is wrong with it."""
    wait_for(lambda: patient.ready()[0] == 200, timeout_s=60, what="ready before")
    yield patient
    wait_for(lambda: patient.ready()[0] == 200, timeout_s=60, what="ready afterwards")
    wait_for(lambda: not patient.faults(), timeout_s=60, what="nothing wrong afterwards")


@pytest.mark.slow
def test_nothing_is_wrong_with_a_healthy_product(healthy: Patient) -> None:
    assert healthy.ask().status_code == 200
    wait_for(
        lambda: healthy.faults() == healthy.faults("warning") == {}, what="no fault, no warning"
    )
    # each with its own rights: the gateway shows its policy set, and which database Redis belongs
    # to is known
    said = healthy.faults("ok")
    assert said["policy set"].endswith(f": {said['policy sets']}")
    assert healthy.admin.get(layout.DATABASE_KEY)


@pytest.mark.slow
def test_a_gateway_that_cannot_hear_its_calls_is_named_and_heals(healthy: Patient) -> None:
    [name] = healthy.admin.hkeys(layout.GATEWAYS_KEY)
    key = layout.reply_key(0, name.decode())
    healthy.admin.set(key, "no stream", ex=600)
    wait_for(
        healthy.says("this gateway cannot read them (WRONGTYPE"), timeout_s=20, what="not ready"
    )
    wait_for(lambda: "gateways" in healthy.faults(), what="the doctor says it too")
    assert name.decode() in healthy.faults()["gateways"] and key in healthy.faults()["gateways"]
    healthy.admin.delete(key)
    wait_for(lambda: healthy.ask().status_code == 200, timeout_s=20, what="calls are served")


@pytest.mark.slow
def test_a_gateway_that_is_silent_is_told_of(healthy: Patient) -> None:
    at = layout.time_ms(healthy.admin.time())
    healthy.admin.hset(layout.GATEWAYS_KEY, "gone-gateway", f"{at - 60_000} ")
    assert (
        "no heartbeat from the gateway gone-gateway for 60 s"
        in healthy.faults("warning")["gateways"]
    )
    healthy.admin.hset(layout.GATEWAYS_KEY, "gone-gateway", f"{at - 2 * layout.GATEWAY_KNOWN_MS} ")
    assert "gateways" not in healthy.faults("warning")
    healthy.admin.hdel(layout.GATEWAYS_KEY, "gone-gateway")


def test_gateways_are_counted() -> None:
    assert gateway_faults({}, 0) == [
        (
            "warning",
            (
                "no gateway of this version is running, so clients have nowhere to connect: start"
                " `sluice gateway`"
            ),
        )
    ]
    assert gateway_faults({b"a": b"1000 "}, 2000) == [("ok", "1 gateway is live")]
    assert gateway_faults({b"a": b"1000 ", b"b": b"1500 "}, 2000) == [("ok", "2 gateways are live")]
    assert gateway_faults({b"a": b"1000 ", b"b": b"1500 it hears nothing"}, 2000) == [
        ("failed", "the gateway b: it hears nothing")
    ]


@contextmanager
def setting(admin: Any, name: str, value: str) -> Iterator[None]:
    """Redis with another setting."""
    before = admin.config_get(name)[name]
    admin.config_set(name, value)
    try:
        yield
    finally:
        admin.config_set(name, before)


COMMANDS: dict[str, list[str]] = {"gateway": ["gateway"]} | {
    role: ["worker", role] for role in ("policy", "judge", "audit")
}


@pytest.mark.slow
@pytest.mark.case("R8")
@pytest.mark.parametrize(
    ("name", "value", "sentence", "roles"),
    [
        ("appendonly", "no", "set `appendonly yes`", ("gateway", "audit")),
        (
            "maxmemory-policy",
            "allkeys-lru",
            "set `maxmemory-policy noeviction`",
            ("policy", "judge"),
        ),
    ],
)
def test_r8_an_unfit_redis_is_named_takes_readiness_and_lets_nothing_start(
    healthy: Patient, name: str, value: str, sentence: str, roles: tuple[str, ...]
) -> None:
    with setting(healthy.admin, name, value):
        assert sentence in healthy.faults()["redis"]
        wait_for(healthy.says(sentence), timeout_s=30, what=f"/ready says {sentence}")
        for role in roles:
            code, said = healthy.run(
                *COMMANDS[role], redis_url=url_of(USERS[role], healthy.redis_url)
            )
            assert code == 4 and sentence in said, said


@pytest.mark.slow
def test_an_old_redis_is_named_and_takes_readiness(healthy: Patient) -> None:
    # no such server is at hand: one that says so of itself, byte for byte the same otherwise
    with telling(healthy.redis_url, b"redis_version:7", b"redis_version:6") as url:
        found = doctor.check_all(healthy.config, url_of(OPS, url), healthy.database_url)
        assert any(
            state == "failed" and "needs Redis 7.0 or Valkey 8" in sentence
            for _, state, sentence in found
        ), found
        port, usual = free_port(), healthy.product.redis_urls["gateway"]
        healthy.product.redis_urls["gateway"] = url_of(USERS["gateway"], url)
        (gateway,) = healthy.product.start("gateway", port=port)
        healthy.product.redis_urls["gateway"] = usual
        answer = httpx.get(f"http://127.0.0.1:{port}/ready", timeout=10)
        assert answer.status_code == 503 and "needs Redis 7.0" in answer.json()["why"]
        gateway.kill()
        gateway.wait()


@contextmanager
def telling(redis_url: str, truth: bytes, lie: bytes) -> Iterator[str]:
    """A Redis that says `lie` where the real one says `truth`, of the same length."""
    place = redis_url.rpartition("@")[2].partition("/")[0].split(":")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pump(source: socket.socket, target: socket.socket, change: bool) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 20):
                    target.sendall(data.replace(truth, lie) if change else data)
            for one in (source, target):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        def forward(near: socket.socket) -> None:
            with near, socket.create_connection((place[0], int(place[1]))) as far:
                asks = threading.Thread(target=pump, args=(near, far, False))
                asks.start()
                pump(far, near, True)
                asks.join()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=forward, args=(server.accept()[0],)).start()

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"{redis_url.rpartition('@')[0]}@127.0.0.1:{server.getsockname()[1]}/0"
        server.shutdown(socket.SHUT_RDWR)
        serving.join()


@pytest.mark.slow
def test_a_redis_without_a_memory_bound_is_warned_about(healthy: Patient) -> None:
    with setting(healthy.admin, "maxmemory", "0"):
        assert "set one" in healthy.faults("warning")["redis"]
        assert healthy.ready()[0] == 200


@pytest.mark.slow
def test_a_full_redis_is_named_and_takes_readiness(healthy: Patient) -> None:
    used = healthy.admin.info("memory")["used_memory"]
    with setting(healthy.admin, "maxmemory", str(int(used * 1.2))):
        assert "of its memory" in healthy.faults()["memory"]
        wait_for(healthy.says("nearly full"), timeout_s=30, what="/ready says so")


@pytest.mark.slow
@pytest.mark.parametrize("shift_s", [3600])
def test_clocks_that_differ_are_named(healthy: Patient, tmp_path: Path, shift_s: int) -> None:
    # the doctor's own process with a clock that is off
    (tmp_path / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {shift_s}\n"
    )
    code, said = healthy.run(
        "doctor", "--json", redis_url=url_of(OPS, healthy.redis_url), path=str(tmp_path)
    )
    found = {
        check["name"]: check["message"]
        for check in json.loads(said)["checks"]
        if check["state"] == "failed"
    }
    # the servers of tests need not outlive their machine
    found.pop("database durability", None)
    assert code == 1 and set(found) == {"clock", "database clock"}, said
    assert all(
        ("behind" if shift_s > 0 else "ahead of") in sentence and "NTP" in sentence
        for sentence in found.values()
    )


@pytest.mark.slow
def test_a_schema_behind_is_named_and_takes_readiness_until_it_is_migrated(
    healthy: Patient,
) -> None:
    stands = "UPDATE alembic_version SET version_num = %s"
    rows(healthy.database_url, stands, "r0000")
    try:
        assert "run `sluice migrate`" in healthy.faults()["database"]
        wait_for(healthy.says("run `sluice migrate`"), timeout_s=60, what="/ready says so")
    finally:
        rows(healthy.database_url, stands, newest())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ("policy", "no policy worker is running"),
        ("audit", "no audit writer is running"),
        ("judge", ""),
    ],
)
def test_a_role_without_a_process_is_named_and_takes_readiness_where_it_must(
    healthy: Patient, role: Role, sentence: str
) -> None:
    (child,) = healthy.product.of(role)
    child.kill(signal.SIGTERM)
    assert child.wait() == 0
    try:
        assert f"start `sluice worker {role}`" in healthy.faults()["workers"]
        if sentence:
            assert healthy.says(sentence)(), healthy.ready()
        else:
            assert healthy.ready()[0] == 200
    finally:
        healthy.product.start(role)


@pytest.mark.slow
def test_calls_of_a_worker_that_is_gone_are_named_until_another_takes_them(
    healthy: Patient,
) -> None:
    (child,) = healthy.product.of("policy")
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
    body = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": "long 400 slowly, with a gap 50 ms"}],
    }
    with httpx.stream(
        "POST", f"{healthy.product.url}/v1/chat/completions", json=body, headers=headers, timeout=60
    ) as answer:
        parts = (
            answer.iter_raw()
        )  # held: the response closes with its iterator, and the call would end with it
        next(parts)
        child.kill()
        try:
            wait_for(
                lambda: "takes them over" in healthy.faults().get("pending entries", ""),
                timeout_s=60,
                what="entries without an owner",
            )
            assert healthy.says("no policy worker is running")()
        finally:
            healthy.product.start("policy")
        wait_for(lambda: "pending entries" not in healthy.faults(), timeout_s=60, what="taken over")


@pytest.mark.slow
def test_a_backlog_that_grows_is_named_and_past_its_bound_takes_readiness(
    healthy: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BEHIND_S", 1.0)
    with psycopg.connect(conninfo(healthy.database_url)) as holder:
        # Postgres takes no record, as if somebody altered a table
        holder.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
        assert healthy.ask().status_code == 200
        wait_for(
            lambda: "do not become fewer" in healthy.faults().get("backlog", ""),
            timeout_s=60,
            what="a backlog that grows",
        )
        assert healthy.ready()[0] == 200
        answers = [healthy.ask().status_code]
        while answers[-1] == 200 and len(answers) < 100:
            answers.append(healthy.ask().status_code)
        assert answers[-1] == 503, answers
        assert "new calls are refused" in healthy.faults()["backlog"]
        assert healthy.says("too many audit records wait for Postgres")()


@pytest.mark.slow
def test_a_record_that_was_cut_by_who_may_append_to_it_is_named(healthy: Patient) -> None:
    key = layout.audit_key(0)
    with (
        psycopg.connect(conninfo(healthy.database_url)) as holder,
        redis.Redis.from_url(url_of(USERS["policy"], healthy.redis_url)) as rogue,
    ):
        holder.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
        for _ in range(20):
            assert healthy.ask().status_code == 200
        wait_for(lambda: healthy.admin.xlen(key) > 12, what="records wait")
        rogue.xadd(key, {"b": b"\x90"}, maxlen=1, approximate=False)
        assert "removed from Redis before they were in Postgres" in healthy.faults()["record"]
        (writer,) = healthy.product.of("audit")
        wait_for(
            lambda: "somebody else removed audit entries" in writer.log.read_text(),
            what="the audit writer says so",
        )
    healthy.admin.delete(layout.trimmed_key(0))


@pytest.mark.slow
def test_a_key_without_ttl_is_named(healthy: Patient) -> None:
    leaked = layout.body_key("00000000-0000-7000-8000-000000000000")
    healthy.admin.set(leaked, "x")
    healthy.admin.set("others:key", "is not ours")
    assert leaked in healthy.faults()["keys with a TTL"]
    assert f"1: {leaked}" in healthy.faults()["keys with a TTL"]
    healthy.admin.delete(leaked, "others:key")


@pytest.mark.parametrize(
    "right", ["+@all ~* &*", "(+xadd ~sluice:*)", "(+config|get)", "(+publish &*)"]
)
def test_redis_rights_too_wide_are_named(healthy: Patient, right: str) -> None:
    healthy.admin.execute_command(
        "ACL", "SETUSER", "sluice_policy", *([right] if right.startswith("(") else right.split())
    )
    try:
        assert "the Redis user sluice_policy may" in healthy.faults()["redis rights"]
    finally:
        healthy.admin.execute_command("ACL", "LOAD")


def test_a_redis_user_shared_by_all_roles_is_warned_about(patient: Patient, redis_url: str) -> None:
    found = doctor.check_all(patient.config, redis_url, patient.database_url)
    assert [
        s
        for n, state, s in found
        if (n, state) == ("redis rights", "warning") and "deploy/redis/redis-users" in s
    ], found


@pytest.mark.parametrize(
    ("wide", "back", "sentence"),
    [
        (
            "GRANT UPDATE ON chunk_rows TO sluice_audit",
            "REVOKE UPDATE ON chunk_rows FROM sluice_audit",
            "sluice_audit may change or delete rows of chunk_rows",
        ),
        (
            "GRANT INSERT ON ends TO sluice_gateway",
            "REVOKE INSERT ON ends FROM sluice_gateway",
            "sluice_gateway may insert, change or delete",
        ),
        (
            "GRANT sluice TO sluice_audit",
            "REVOKE sluice FROM sluice_audit",
            "sluice_audit may change or delete rows of",
        ),
        (
            "ALTER ROLE sluice_policy SUPERUSER",
            "ALTER ROLE sluice_policy NOSUPERUSER",
            "sluice_policy is a superuser",
        ),
    ],
)
@pytest.mark.slow
def test_database_rights_too_wide_are_named(
    healthy: Patient, wide: str, back: str, sentence: str
) -> None:
    with psycopg.connect(conninfo(healthy.database_url), autocommit=True) as owner:
        owner.execute(wide.encode())
        try:
            assert sentence in healthy.faults()["database rights"]
        finally:
            owner.execute(back.encode())


@pytest.mark.case("A9")
@pytest.mark.slow
def test_a9_without_an_auditors_key_record_and_figures_are_closed(
    redis_url: str, database_url: str, tmp_path: Path
) -> None:
    config = base_config()
    config["keys"] = [key for key in config["keys"] if key["name"] == "app"]
    with (
        fresh_database(database_url) as url,
        Product(tmp_path, redis_url, url, config) as product,
        httpx.Client(timeout=10) as http,
    ):
        product.start("gateway", "pages")
        paths = [
            "calls",
            "calls/x",
            "calls/x/chunks",
            "tool-calls",
            "judge-blocks",
            "export",
            "verify",
            "",
            "../audit/calls",
            "calls/",
        ]
        closed = {f"/audit/{path}" for path in paths} | {
            "/metrics",
            "/debug",
            "/debug/conversation-logs",
            "/docs",
            "/openapi.json",
            "/redoc",
        }
        for path in closed:
            for headers in (
                {},
                {"authorization": f"Bearer {CLIENT_KEY}"},
                {"x-api-key": KEY},
                {"authorization": "Basic x"},
            ):
                answer = http.get(f"{product.url}{path}", headers=headers)
                # of pages, only the way to the login
                right = (303,) if path.startswith("/debug") else (401, 403, 404)
                assert answer.status_code in right, (path, headers, answer.status_code)
                assert (
                    path not in ("/metrics", "/audit/calls", "/audit/export")
                    or answer.status_code != 404
                )
        config["keys"] = []
        product.config_file.write_text(json.dumps(config))
        environment = os.environ | {
            "SLUICE_REDIS_URL": redis_url,
            "SLUICE_DATABASE_URL": url,
            "SLUICE_CONFIG": str(product.config_file),
        }
        command = [sys.executable, "-m", "sluice.cli", "gateway", "--port", "0"]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 2 and "there are no API keys" in done.stderr
