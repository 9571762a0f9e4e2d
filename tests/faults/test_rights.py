"""Least privilege: each role with the Redis user and the database login that are shipped, trying
what it must not do."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import psycopg
import pytest
import redis

from db.connections import conninfo
from db.migrations.migrate import upgrade
from db.migrations.rights import LOGINS
from db.write.insert import AuditInserter
from sluice.check.rights import FORBIDDEN, OPS, USERS, Command
from streams import layout
from tests.support.checks.record import call_id, fresh_database, rows, whole_call
from tests.support.servers.least import (
    BINARIES,
    DATABASE,
    REDIS,
    guarded_server,
    login_url,
    url_of,
    users_file,
)
from tests.support.servers.product import KEY, Product, Role, base_config
from tests.support.waiting import wait_for

REFUSED = re.compile(
    r"no permissions|NOPERM|can't (run|access|publish)|ACL failure|not allowed (from script|inside"
    r" a transaction)",
    re.IGNORECASE,
)
CALL = "00000000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module", params=BINARIES)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server with the shipped users; its administrator's URL. Each kind of server that is
    installed."""
    with guarded_server(tmp_path_factory.mktemp("guarded"), request.param) as url:
        yield url


def fill(admin: redis.Redis) -> None:
    """One call in the middle of its life, as keys."""
    admin.flushall()
    for key, group in (
        (layout.dispatch_key(0), layout.POLICY_GROUP),
        (layout.audit_key(0), layout.AUDIT_GROUP),
    ):
        admin.xgroup_create(key, group, "0", mkstream=True)
        for n in (1, 2):
            admin.xadd(key, {"b": "x"}, id=f"{n}-1")
        admin.xreadgroup(group, "owner", {key: ">"}, count=1)
    admin.xadd(layout.call_key(CALL), {"b": "start"}, id="0-1")
    admin.xadd(layout.reply_key(0, "doctor"), {"b": "reply"}, id="1-1")
    admin.set(layout.body_key(CALL), "{}")
    admin.set(layout.gateway_key(0, "doctor"), "0-0")
    admin.hset(layout.ctl_key(CALL), "t", "token")
    admin.hset(layout.facts_key(CALL), "j:0:0", "block")
    admin.set("arq:job:x", "{}")


def contents(admin: redis.Redis) -> dict[bytes, Any]:
    """Everything in the server: nothing that is refused may change it."""
    return {key: (admin.dump(key), admin.ttl(key)) for key in admin.scan_iter("*")}


def assert_refused(said: object, command: Command, how: str) -> None:
    assert isinstance(said, redis.ResponseError) and REFUSED.search(str(said)), (
        f"{how} {command}: {said}"
    )


def attempt(client: redis.Redis, *command: Any) -> object:
    """What the server says, an error being an answer."""
    try:
        return client.execute_command(*command)  # type: ignore[no-untyped-call]
    except redis.ResponseError as error:
        return error


@pytest.mark.case("A4")
@pytest.mark.parametrize("role", FORBIDDEN)
def test_a4_no_role_can_do_what_is_not_its_own_directly_or_in_a_transaction_or_from_lua(
    guarded: str, role: str
) -> None:
    lua = "return redis.call(unpack(ARGV))"
    with (
        redis.Redis.from_url(guarded) as admin,
        redis.Redis.from_url(url_of(USERS.get(role, OPS), guarded)) as client,
    ):
        fill(admin)
        before = contents(admin)
        sha = admin.script_load(lua)
        for command in FORBIDDEN[role]:
            assert_refused(attempt(client, *command), command, "directly")
            for keys in ((), (layout.facts_key(CALL),)):
                # declared keys that a role may use in scripts give it no right to others, nor
                # commands
                assert_refused(
                    attempt(client, "EVALSHA", sha, len(keys), *keys, *command), command, "from Lua"
                )
            if role in ("gateway", "policy", "judge"):
                attempt(client, "MULTI")
                assert_refused(attempt(client, *command), command, "in a transaction")
                assert isinstance(attempt(client, "EXEC"), redis.ResponseError)
        assert contents(admin) == before


@pytest.mark.case("A4")
@pytest.mark.parametrize("role", USERS)
def test_a4_a_script_that_declares_a_foreign_key_still_cannot_use_it(
    guarded: str, role: str
) -> None:
    foreign = {
        "gateway": ("reply:g", "ctl:c", "facts:c", "audit"),
        "policy": ("call:c", "in:c", "gw:g"),
        "judge": ("reply:g", "audit"),
    }
    with (
        redis.Redis.from_url(guarded) as admin,
        redis.Redis.from_url(url_of(USERS[role], guarded)) as client,
    ):
        fill(admin)
        for key in (f"sluice:{{00}}:{name}" for name in foreign.get(role, ("reply:g", "dispatch"))):
            for command in (
                "'XADD', KEYS[1], '*', 'b', 'x'",
                "'DEL', KEYS[1]",
                "'PUBLISH', KEYS[1], 'x'",
            ):
                sha = admin.script_load(f"return redis.call({command})")
                assert_refused(attempt(client, "EVALSHA", sha, 1, key), (key, command), "declared")
            assert not admin.exists(key) or key.endswith(("audit", "dispatch"))


@pytest.mark.case("A4")
def test_a4_users_without_a_password_are_off_and_no_password_is_in_the_file(guarded: str) -> None:
    place = guarded.rpartition("@")[2]
    for user in ("default", *REDIS):
        with (
            redis.Redis.from_url(f"redis://{user}:wrong@{place}") as client,
            pytest.raises(redis.AuthenticationError),
        ):
            client.ping()
    with (
        redis.Redis.from_url(f"redis://{place}") as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()
    assert not [password for password in REDIS.values() if password in users_file()]


@pytest.fixture
def logins(database_url: str) -> Iterator[str]:
    """A database with the logins of the roles; its owner's URL."""
    with fresh_database(database_url) as url:
        upgrade(url, passwords=DATABASE)
        yield url


WRITES = {
    "UPDATE chunk_rows SET verdict = 'allow'",
    "DELETE FROM ends",
    "TRUNCATE calls",
    "DROP TABLE events",
    "ALTER TABLE release_runs DISABLE TRIGGER ALL",
    "INSERT INTO api_keys (sha256, name, roles, policies) VALUES ('x', 'mine', '{auditor}', '{}')",
    "UPDATE api_keys SET roles = '{auditor}'",
    "CREATE TABLE public.mine (a int)",
    "CREATE ROLE mine SUPERUSER",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "SET ROLE sluice",
    "COPY chunks TO PROGRAM 'true'",
    "UPDATE alembic_version SET version_num = '0001'",
}
"""What nobody but the owner may do."""


@pytest.mark.case("A3")
@pytest.mark.parametrize("role", LOGINS)
def test_a3_no_login_of_a_role_changes_or_deletes_the_record(logins: str, role: str) -> None:
    call = call_id()

    async def store(url: str) -> None:
        async with AuditInserter(url) as inserter:
            await inserter.insert(whole_call(call), {})

    asyncio.run(store(login_url(logins, "audit")))
    found = (
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND"
        " a.attname = 'call_id' WHERE c.relkind = %s AND c.relispartition = %s"
    )
    tables, parts = (
        [name for (name,) in rows(logins, found, *kind)] for kind in (("p", False), ("r", True))
    )
    assert len(tables) >= 10 and len(parts) >= 20
    tries = WRITES | {f"DELETE FROM {name}" for name in (*tables, *parts, "dead_letters")}
    tries |= {
        "DELETE FROM reads",
        "UPDATE reads SET key = ''",
        "TRUNCATE reads",
        "DELETE FROM labels",
        "UPDATE labels SET note = ''",
    }
    tries |= {"DELETE FROM page_sessions", "UPDATE page_sessions SET key_sha256 = ''"}
    if role != "audit":
        tries |= {"SELECT sluice_ensure_reads('2032-01-01', 1)"}
    if role != "pages":
        tries |= {
            "INSERT INTO debug_switches (key, loggers, content, by, until) VALUES ('dev',"
            " '{policy}', true, '', now() + interval '1 h')"
        }
        tries |= {
            "SELECT * FROM page_sessions",
            "INSERT INTO labels VALUES (gen_random_uuid(), 1, now(), '', '', 'right', '')",
        }
    if role not in ("pages", "gateway"):
        tries |= {
            "INSERT INTO reads VALUES (now(), gen_random_uuid(), '', '', '', '', '', '{}', 0)"
        }
    tries |= {f"TRUNCATE {name}" for name in (*tables, *parts, "dead_letters")}
    tries |= {
        f"UPDATE {name} SET {'key = key' if 'reads' in name else 'call_id = call_id'}"
        for name in (*tables, *parts)
    }
    if LOGINS[role] == "sluice_reader":
        tries |= {
            "INSERT INTO tool_releases VALUES (gen_random_uuid(), 1, now())",
            "SELECT sluice_ensure_partitions('2032-01-01', 1)",
        }
    counts = (
        "SELECT (SELECT count(*) FROM calls), (SELECT count(*) FROM chunks), (SELECT count(*) FROM"
        " ends)"
    )
    before = rows(logins, counts)
    with psycopg.connect(conninfo(login_url(logins, role)), autocommit=True) as connection:
        connection.execute("SELECT * FROM call_log")
        for statement in sorted(tries):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
    assert rows(logins, counts) == before and before[0][0] >= 1


@pytest.mark.case("A3")
def test_a3_migrating_again_keeps_logins_and_changes_their_password(logins: str) -> None:
    upgrade(logins, passwords={"gateway": "another"})
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(conninfo(login_url(logins, "gateway")))
    upgrade(logins, passwords=DATABASE)
    psycopg.connect(conninfo(login_url(logins, "gateway"))).close()


@contextmanager
def least(
    folder: Path, admin_url: str, database_url: str, *, policy: int = 1, **config: Any
) -> Iterator[Product]:
    """The whole product, each process with its role's user and login."""
    whole = base_config() | config
    whole["keys"][0]["requests_minute"] = 1_000
    whole["limits"] |= {"ended_ttl_s": 2.0}  # the chores that go by it run too
    with Product(folder, admin_url, database_url, whole) as product:
        for role, user in USERS.items():
            product.redis_urls[role] = url_of(user, admin_url)  # type: ignore[index]
            product.database_urls[role] = login_url(database_url, role) if role in LOGINS else ""  # type: ignore[index]
        roles: list[Role] = ["audit", "judge", "gateway", "pages", *(["policy"] * policy)]  # type: ignore[list-item]
        product.start(*roles)
        yield product


@pytest.mark.case("A4")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("durability", ["default", "strict"])
@pytest.mark.slow
def test_a4_the_product_needs_nothing_that_its_roles_may_not_do(
    guarded: str, logins: str, tmp_path: Path, durability: str
) -> None:
    judge = {"use": "text_judge", "model": "demo-judge", "rule": 'Never say "weather".'}
    policies = base_config()["policies"] | {"upper": [judge | {"on": ["answer", "request"]}]}
    with (
        redis.Redis.from_url(guarded) as admin,
        least(
            tmp_path, guarded, logins, policy=2, durability=durability, policies=policies
        ) as product,
    ):
        admin.acl_log_reset()
        with openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY, max_retries=0) as one:
            bash: Any = {
                "type": "function",
                "function": {"name": "bash", "parameters": {"type": "object"}},
            }
            asked: Any = [{"role": "user", "content": "delete everything with rm -rf"}]
            blocked = (
                one.chat.completions.create(model="demo", messages=asked, tools=[bash])
                .choices[0]
                .message
            )
            assert not blocked.tool_calls and "Sluice blocked" in (blocked.content or "")
            # the second answer of the judge is one that was kept
            for _ in range(2):
                asked = [{"role": "user", "content": "what is the weather"}]
                answer = one.chat.completions.create(
                    model="demo", messages=asked, extra_headers={"x-sluice-policy": "upper"}
                )
                assert "did not send your message" in (answer.choices[0].message.content or "")
            assert list(admin.scan_iter("sluice:*:judged:*"))
        with anthropic.Anthropic(base_url=product.url, api_key=KEY, max_retries=0) as other:
            weather: Any = {
                "name": "get_weather",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            }
            asked = [{"role": "user", "content": "what is the weather in Paris"}]
            with other.messages.stream(
                model="demo", max_tokens=100, messages=asked, tools=[weather]
            ) as stream:
                assert stream.get_final_message().stop_reason == "tool_use", product.logs()
        texts = [Words(product) for _ in range(4)]
        for text in texts:
            wait_for(lambda text=text: text.got, what="the stream begins")  # type: ignore[misc]
        # claims, takeovers and hand-overs
        first, second = product.of("policy")
        product.start("policy")
        first.kill()
        wait_for(lambda: first.process.poll() is not None)
        second.kill(15)
        for text in texts:
            text.join(30)
            assert text.got == "".join(f"word{n} " for n in range(1, Words.COUNT + 1)), (
                product.logs()
            )
        wait_for(
            lambda: len([c for c in product.audit("calls")["items"] if c["ended_at"]]) == 8,
            what="eight calls on record",
        )
        tools = {t["name"]: t["verdict"] for t in product.audit("tool-calls")["items"]}
        assert (tools["bash"], tools["get_weather"]) == ("block", "allow")
        assert httpx.get(f"{product.url}/ready").status_code == 200
        assert (
            httpx.get(
                f"{product.url}/metrics", headers={"authorization": f"Bearer {KEY}"}
            ).status_code
            == 200
        )
        with httpx.Client(
            base_url=product.url, headers={"origin": product.url}, timeout=20
        ) as reader:
            assert reader.post("/debug/login", data={"key": KEY}).status_code == 303
            assert reader.get("/debug/tool-calls").status_code == 200, product.logs()
        for role in ("gateway", "judge", "policy", "pages"):
            for child in product.of(role):
                child.kill(15)
                assert child.wait() == 0, child.tail()
        # what a client library says of itself is refused, and it does not mind
        denied = [d for d in admin.acl_log() if d["object"] != "client|setinfo"]
        assert not denied, denied


class Words(threading.Thread):
    """A client that reads one slow stream."""

    COUNT = 80

    def __init__(self, product: Product) -> None:
        super().__init__(daemon=True)
        self.product, self.got = product, ""
        self.start()

    def run(self) -> None:
        asked: Any = [{"role": "user", "content": f"long {self.COUNT} slowly, with a gap 30 ms"}]
        with openai.OpenAI(base_url=f"{self.product.url}/v1", api_key=KEY, max_retries=0) as client:
            for chunk in client.chat.completions.create(model="demo", stream=True, messages=asked):
                self.got += (chunk.choices[0].delta.content or "") if chunk.choices else ""
