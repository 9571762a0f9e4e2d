"""The checks before a process starts: each fault is one sentence with an exit code, and a fit
machine starts every role."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
import redis

from db.migrations.place import newest
from db.state.recent_failures import failed_judges
from db.write.insert import AuditInserter
from settings.config import Config, Key
from sluice.check import doctor
from sluice.errors import NotFit, SettingsError, Unavailable
from tests.support.checks.record import call_id, call_record, fresh_database, judgement_record, rows
from tests.support.clients.commands import own_environment, run_command
from tests.support.servers.pooler import pooled
from tests.support.servers.ports import free_port
from tests.support.servers.stores_shared import valkey_server

ROOT = Path(__file__).parents[2]
NOWHERE = "127.0.0.1:1"
KEYED = Config(keys=(Key(name="dev", sha256=sha256(b"text").hexdigest()),))


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey whose configuration tests may spoil."""
    with valkey_server(tmp_path_factory.mktemp("doctor")) as url:
        yield url


@pytest.fixture(scope="module")
def empty_database(database_url: str) -> Iterator[str]:
    """A database without tables."""
    with fresh_database(database_url, migrated=False) as url:
        yield url


@pytest.mark.case("R8")
@pytest.mark.parametrize(
    ("setting", "wrong", "right", "sentence"),
    [
        ("appendonly", "no", "yes", "keeps no append-only file"),
        ("maxmemory-policy", "allkeys-lru", "noeviction", "evicts keys (allkeys-lru)"),
    ],
)
def test_redis_that_could_lose_entries_is_not_fit(
    own_redis: str, setting: str, wrong: str, right: str, sentence: str
) -> None:
    with redis.Redis.from_url(own_redis) as client:
        client.config_set(setting, wrong)
        try:
            with pytest.raises(NotFit) as raised:
                doctor.check_redis(own_redis)
        finally:
            client.config_set(setting, right)
    assert sentence in str(raised.value)
    assert f"set `{setting} {right}`" in str(raised.value)


def test_redis_that_hides_its_settings_is_warned_about(own_redis: str) -> None:
    with redis.Redis.from_url(own_redis) as client:
        client.acl_setuser(
            "narrow", enabled=True, passwords=["+word"], commands=["+ping", "+client"]
        )
        place = own_redis.rpartition("@")[2]
        assert "INFO" in doctor.check_redis(f"redis://narrow:word@{place}")[0]
        client.acl_deluser("narrow")


def test_redis_that_is_away_or_refuses_is_named_without_its_password(own_redis: str) -> None:
    place = own_redis.rpartition("@")[2].partition("/")[0]
    for url, where in (
        (f"redis://:secret@{NOWHERE}", NOWHERE),
        (f"redis://:secret@{place}", place),
    ):
        with pytest.raises(Unavailable, match=where) as raised:
            doctor.check_redis(url)
        assert "secret" not in str(raised.value)


def test_database_that_is_away_is_named_without_its_password() -> None:
    with pytest.raises(Unavailable, match=NOWHERE) as raised:
        doctor.check_database(f"postgresql://sluice:secret@{NOWHERE}/sluice")
    assert "secret" not in str(raised.value)


def test_unmigrated_database_is_not_fit_until_it_is_migrated(database_url: str) -> None:
    with fresh_database(database_url, migrated=False) as url:
        with pytest.raises(NotFit, match="run `sluice migrate`"):
            doctor.check_database(url)
        doctor.migrate_database(url)
        assert doctor.check_database(url) == []


@pytest.mark.slow
def test_a_database_of_a_newer_version_is_named_with_both_versions(database_url: str) -> None:
    with fresh_database(database_url) as url:
        rows(url, "UPDATE alembic_version SET version_num = 'r9999'")
        [warning] = doctor.check_database(url)
        code, said = sluice("migrate", SLUICE_DATABASE_URL=url)
        assert code == 4
        assert (
            f"stands at migration r9999, made by a newer Sluice; this one knows {newest()}" in said
            and "r9999" in warning
        )


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["0001", "0030"])
def test_a_database_from_before_the_first_release_is_refused_with_what_to_do(
    redis_url: str, database_url: str, revision: str
) -> None:
    """By whatever starts or changes it alike; nothing of it is changed."""
    with fresh_database(database_url, migrated=False) as url:
        # what such a database had of the tables does not count
        rows(url, f"CREATE TABLE alembic_version AS SELECT '{revision}' AS version_num")
        for ask in (doctor.check_database, doctor.migrate_database):
            with pytest.raises(
                NotFit,
                match=(
                    r"made by a Sluice before 0\.2\.0.*`make up DATA_DIR=FOLDER`.*`sluice audit"
                    r" export`"
                ),
            ):
                ask(url)
        assert doctor.check_database_live(url) == [] and doctor.check_retention(Config(), url) == []
        for command in (("migrate",), ("gateway",), ("worker", "audit"), ("pages",)):
            code, said = sluice(*command, SLUICE_DATABASE_URL=url, SLUICE_REDIS_URL=redis_url)
            assert (
                code == 4
                and said.startswith("sluice: the database at ")
                and "made by a Sluice before 0.2.0" in said
            ), (command, said)
        done = run_command(
            "doctor",
            env=own_environment() | {"SLUICE_DATABASE_URL": url, "SLUICE_REDIS_URL": redis_url},
        )
        assert (
            done.returncode == 1
            and (done.stdout + done.stderr).count("made by a Sluice before 0.2.0") == 1
        )
        assert rows(url, "SELECT version_num FROM alembic_version") == [(revision,)]


@pytest.mark.slow
def test_gateway_needs_a_key_in_file_or_database(database_url: str) -> None:
    with fresh_database(database_url) as url:
        with pytest.raises(SettingsError, match="sluice keys create"):
            doctor.check_keys(Config(), url)
        assert doctor.check_keys(KEYED, url) == []
        assert sluice("keys", "create", "--name", "dev", SLUICE_DATABASE_URL=url)[0] == 0
        assert doctor.check_keys(Config(), url) == []


def sluice(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command; return its exit code and the last line of what it said."""
    done = run_command(*arguments, env=own_environment() | environment)
    return done.returncode, (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize(
    "role", [("gateway",), ("worker", "audit"), ("worker", "policy"), ("worker", "judge")]
)
def test_process_says_in_one_sentence_why_it_does_not_start(
    role: tuple[str, ...], empty_database: str, redis_url: str
) -> None:
    code, said = sluice(*role)
    assert (code, said[:37]) == (2, "sluice: SLUICE_REDIS_URL is not set: ")
    code, said = sluice(
        *role, SLUICE_REDIS_URL=f"redis://{NOWHERE}", SLUICE_DATABASE_URL=empty_database
    )
    assert code == 3
    assert said.startswith(f"sluice: Redis at {NOWHERE} does not answer")
    if role[-1] in ("gateway", "audit"):
        code, said = sluice(*role, SLUICE_REDIS_URL=redis_url, SLUICE_DATABASE_URL=empty_database)
        assert code == 4
        assert said.endswith("is not set up: run `sluice migrate`")


def test_launcher_passes_on_why_a_process_cannot_start(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sluice.cli",
            "worker",
            "policy",
            "--config",
            str(tmp_path / "none.yaml"),
            "--ready-fd",
            str(writing),
        ],
        cwd=ROOT,
        pass_fds=(writing,),
        stderr=subprocess.DEVNULL,
    ):
        os.close(writing)
        with open(reading) as said:
            assert said.read().startswith("2 the configuration file ")


async def test_judges_that_did_not_answer_are_named(database_url: str) -> None:
    with fresh_database(database_url) as url:
        calls = [call_id() for _ in range(3)]
        errors = "unavailable", "unavailable", "deadline"
        async with AuditInserter(url) as inserter:
            for call, error in zip(calls, errors, strict=True):
                unjudged = judgement_record(
                    call, model="absent", probability=None, explanation="", error=error
                )
                assert not await inserter.insert(
                    [call_record(call), unjudged, judgement_record(call, step=1)], {}
                )
        [(state, said)] = await asyncio.to_thread(failed_judges, url)
        assert state == "warning" and said.startswith(
            "the judge 'absent' gave no answer to 3 questions of the last hour, so those calls"
        )
        assert "it could not be asked (2)" in said and "it did not answer in time (1)" in said


@pytest.mark.parametrize("name", ["PGOPTIONS", "PGTZ", "PGDATESTYLE", "PGGEQO"])
@pytest.mark.slow
def test_variables_of_the_database_library_do_not_reach_our_connections(
    name: str, redis_url: str, database_url: str
) -> None:
    # the server refuses a connection that asks for what there is not
    wrong = {
        name: (
            "-c search_path=nowhere -c statement_timeout=wrong"
            if name == "PGOPTIONS"
            else "wrong/where"
        )
    }
    said = sluice(
        "doctor",
        "--before-start",
        "--json",
        SLUICE_REDIS_URL=redis_url,
        SLUICE_DATABASE_URL=database_url,
    )
    assert (
        sluice(
            "doctor",
            "--before-start",
            "--json",
            SLUICE_REDIS_URL=redis_url,
            SLUICE_DATABASE_URL=database_url,
            **wrong,
        )
        == said
    )
    assert sluice("migrate", SLUICE_DATABASE_URL=database_url, **wrong)[0] == 0


@pytest.mark.slow
def test_port_in_use_is_one_sentence(database_url: str, redis_url: str) -> None:
    with fresh_database(database_url) as url, socket.socket() as other:
        assert sluice("keys", "create", "--name", "dev", SLUICE_DATABASE_URL=url)[0] == 0
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        code, said = sluice(
            "gateway", "--port", str(port), SLUICE_REDIS_URL=redis_url, SLUICE_DATABASE_URL=url
        )
        assert code == 5
        assert said.startswith(f"sluice: port {port} is in use")


@pytest.mark.slow
def test_a_pooler_that_refuses_or_drops_what_sluice_names_is_named(url: str) -> None:
    with (
        pooled(url, refuses=True) as refusing,
        pytest.raises(Unavailable, match=r"a pooler \(PgBouncer\) stands before it"),
    ):
        doctor.check_database(refusing)
    assert doctor.check_database(url) == []
    with pooled(url, refuses=False) as dropping, psycopg.connect(url, autocommit=True) as admin:
        [warning] = doctor.check_database(dropping)
        assert "timeouts of statements do not hold" in warning
        admin.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        try:
            with pytest.raises(NotFit, match="synchronous_commit is off"):
                doctor.check_database(dropping)
        finally:
            admin.execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")
