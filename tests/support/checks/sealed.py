"""A record with seals and checkpoints, as an audit writer leaves it, and what its verification
says."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from psycopg import sql
from typer.testing import CliRunner

from db.canonical import FORMS
from db.connections import conninfo
from db.engine import engine_url
from db.seals.retention import RetentionRun
from db.seals.seal import Sealer
from protocol.records import AttemptRecord, CallFacts, DecisionRecord, Record, ScoreRecord
from sluice.audit import seal_cli
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    chunks_record,
    fresh_database,
    judgement_record,
    let_views_change,
    now_ms,
    release_record,
    tool_call_record,
    whole_call,
)
from tests.support.json_values import Json

DAY_MS = 86_400_000


@dataclass(slots=True)
class Log:
    """A filled database; its calls in the order of their ids, and its checkpoints."""

    url: str
    calls: list[UUID] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)


def many_rows(call: str, chance: random.Random, *, secret: str = "") -> list[Record]:
    """A call with two tool calls, several releases and chunks; no two of its payloads alike."""
    words = [f"{secret}{chance.randbytes(6).hex()}".encode() for _ in range(12)]
    second = tool_call_record(
        call,
        block=2,
        index=1,
        name=f"tool{secret}",
        arguments=words[0],
        released_arguments=words[1],
        reason=secret,
        rule=secret or None,
    )
    return [
        *whole_call(
            call,
            session=f"s{secret}",
            facts=CallFacts(f"agent{secret}") if secret else CallFacts(),
            start=secret,
        ),
        chunks_record(call, [b"data: " + word + b"\n\n" for word in words[2:8]], seq=4),
        release_record(call, words[8], number=2, seq=5),
        release_record(call, words[9], number=3, seq=6),
        second,
        judgement_record(
            call, block=2, prompt=words[10], reply=words[11], explanation=secret, probability=None
        ),
        *control_rows(call, secret),
    ]


def control_rows(call: str, secret: str = "") -> list[Record]:
    """What monitors and protocols leave of a call: two scores, a decision, and two attempts."""
    dims = secret and json.dumps({secret: 1.0})
    score = ScoreRecord(
        call_id=call,
        block=2,
        step=0,
        at=now_ms(),
        monitor="shell",
        policy="control",
        value=0.9,
        dims=dims,
        why=secret,
        error="",
    )
    attempt = AttemptRecord(
        call_id=call,
        segment=0,
        attempt=0,
        at=now_ms(),
        kind="first",
        upstream="u",
        model="m",
        first_seq=1,
        end_seq=9,
        chosen=False,
    )
    return [
        score,
        msgspec.structs.replace(
            score,
            step=1,
            monitor="model",
            value=None,
            error="deadline",
            latency_ms=7,
            input_tokens=300,
        ),
        DecisionRecord(
            call_id=call,
            block=2,
            step=0,
            at=now_ms(),
            unit="call",
            attempt=0,
            policy="control",
            protocol="threshold",
            action="block",
            score=0.9,
            threshold=0.6,
            reason=secret,
            audit="sampled",
            audit_rate=0.5,
            u=0.25,
        ),
        attempt,
        msgspec.structs.replace(
            attempt, attempt=1, kind="defer", first_seq=10, end_seq=12, chosen=True
        ),
    ]


def fill(
    url: str,
    chance: random.Random,
    *,
    calls: int = 12,
    checkpoints: int = 3,
    days_ago: int = 0,
    key: Ed25519PrivateKey | None = None,
) -> Log:
    """Insert, seal and write checkpoints. Calls are a millisecond apart, so that their order is
    known."""
    let_views_change(url)
    log = Log(url)
    at = now_ms() - days_ago * DAY_MS
    with Sealer(url, key=key) as sealer:
        for _ in range(checkpoints):
            for _ in range(calls // checkpoints):
                call = call_id(at := at + 1)
                asyncio.run(
                    insert(url, *many_rows(call, chance), bodies={call: chance.randbytes(20)})
                )
                log.calls.append(UUID(call))
            assert sealer.seal(log.calls) == calls // checkpoints
            text = sealer.checkpoint()
            assert text is not None
            log.checkpoints.append(text)
    return log


TABLES = (*(form.table for form in FORMS), "seal_rows", "redactions", "seals", "checkpoints")


def keep(url: str, *besides: str) -> None:
    """Set aside what is in the tables, to put it back after each damage: faster than a database for
    each."""
    let_views_change(url)
    with psycopg.connect(conninfo(url)) as connection:
        connection.execute("CREATE SCHEMA kept")
        for table in (*TABLES, *besides):
            connection.execute(f"CREATE TABLE kept.{table} AS TABLE {table}".encode())


def put_back(url: str, *besides: str) -> None:
    """Bring the tables to what `keep` set aside."""
    with psycopg.connect(conninfo(url)) as connection:
        for table in (*TABLES, *besides):
            connection.execute(f"DELETE FROM {table}".encode())
            connection.execute(f"INSERT INTO {table} SELECT * FROM kept.{table}".encode())


@contextmanager
def copy_of(url: str) -> Iterator[str]:
    """Lend the URL of a copy of a database: what a backup restored elsewhere is."""
    with fresh_database(url, migrated=False) as copy:
        names = [sql.Identifier(engine_url(each).database or "") for each in (copy, url)]
        other = (
            engine_url(url)
            .set(drivername="postgresql", database="template1")
            .render_as_string(hide_password=False)
        )
        with psycopg.connect(conninfo(other), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {}").format(names[0]))
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
        yield copy


def run(url: str, *arguments: str) -> Any:
    """Run one of the commands, by a Redis of which only the clock is asked
    (tests/chaos/test_clocks.py asks a real one)."""
    given = {"SLUICE_DATABASE_URL": url, "SLUICE_REDIS_URL": "redis://localhost", "COLUMNS": "200"}
    with patch("streams.clock.read_time", lambda _: time.time()):
        return CliRunner().invoke(seal_cli.app, list(arguments), env=given)


def verified(url: str, *arguments: str) -> tuple[int, Json]:
    """Verify; returns the exit code and what was said."""
    told = run(url, "verify", "--json", *arguments)
    return told.exit_code, json.loads(told.stdout)


def take(url: str, archive: str = "", /, **days: int) -> list[tuple[str, date, int]]:
    """Take away what is older than so many days."""
    with RetentionRun(url, days, archive, redis_time=time.time) as retention:
        return [(step.kind.name, step.until, retention.take(step)) for step in retention.due()]
