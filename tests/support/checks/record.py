"""Records for tests of the database: ids, one call whole, and a database of one's own."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cache
from hashlib import sha256
from typing import Any

import psycopg
from psycopg import sql

from db.agreed_time import TELL, clocks
from db.connections import conninfo
from db.engine import engine_url
from db.migrations.migrate import upgrade
from db.migrations.removal import RUNS
from protocol.records import (
    AttemptRecord,
    BlockRecord,
    CallFacts,
    CallRecord,
    ChunksRecord,
    DecisionRecord,
    EndRecord,
    EventRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ScoreRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from protocol.sampling import draw
from tests.support.json_values import Json


@cache
def now_ms() -> int:
    """The time of this test, in milliseconds: taken when it is first used, and the same until the
    next test begins."""
    return int(time.time() * 1000)


def day_of(call: str | uuid.UUID) -> date:
    """The day in which a call began, by its id."""
    return datetime.fromtimestamp(
        int.from_bytes(uuid.UUID(str(call)).bytes[:6], "big") / 1000, UTC
    ).date()


def call_id(at: int | None = None) -> str:
    """A UUIDv7 of that millisecond, or of now."""
    at = now_ms() if at is None else at
    tail = os.urandom(10)
    return str(
        uuid.UUID(
            bytes=at.to_bytes(6, "big")
            + bytes([0x70 | tail[0] & 15, tail[1], 0x80 | tail[2] & 63])
            + tail[3:]
        )
    )


def call_record(call: str, **changes: Any) -> CallRecord:
    """The record of a claimed call."""
    values = {
        "at": now_ms(),
        "dialect": "openai",
        "endpoint": "chat",
        "key": "dev",
        "session": "s-1",
        "model": "gpt-x",
        "upstream": "openai",
        "policy": "default",
        "policy_revision": "r1",
        "stream": True,
        "gateway": "g1",
        "key_id": changes.get("key", "dev"),
        "policy_set": "",
        "body_sha256": None,
        "facts": CallFacts(),
        "start": "",
    }
    return CallRecord(call_id=call, **{**values, **changes})


def tool_call_record(call: str, **changes: Any) -> ToolCallRecord:
    """The record of a blocked tool call in block 1."""
    values = {
        "block": 1,
        "index": 0,
        "at": now_ms(),
        "tool_call_id": "toolu_1",
        "name": "bash",
        "arguments": b'{"command": "rm -rf /tmp/build"}',
        "released_arguments": None,
        "executor": "client",
        "form": "native",
        "verdict": "block",
        "reason": "dangerous command",
        "policy": "tool_judge",
    }
    return ToolCallRecord(call_id=call, **{**values, **changes})


def judgement_record(call: str, **changes: Any) -> JudgementRecord:
    """The record of a judgement on block 1."""
    values = {
        "block": 1,
        "step": 0,
        "at": now_ms(),
        "model": "demo-judge",
        "policy": "tool_judge",
        "probability": 0.9,
        "threshold": 0.6,
        "explanation": "deletes files",
        "prompt": b"is it harmful?",
        "reply": b'{"probability": 0.9}',
        "latency_ms": 12,
        "attempts": 1,
    }
    return JudgementRecord(call_id=call, **{**values, **changes})


def control_records(call: str, **changes: Any) -> list[Record]:
    """A score, a decision by it that somebody is to look at (`changes`), and the attempt that went
    out."""
    values: Json = {
        "block": 1,
        "step": 0,
        "at": now_ms(),
        "unit": "call",
        "attempt": 0,
        "policy": "control",
        "protocol": "threshold",
        "action": "block",
        "score": 0.97,
        "threshold": 0.95,
        "reason": "score",
        "audit": "suspicion",
        "audit_rate": 0.01,
        "audit_at": 0.5,
        "audit_budget": 50,
        "u": draw(f"nonce-{call}", "r1", 1),
    } | changes
    return [
        ScoreRecord(
            call_id=call,
            block=1,
            step=0,
            at=now_ms(),
            monitor="shell",
            policy="control",
            value=0.97,
            dims='{"delete": 0.97}',
            why="deletes a tree",
            error="",
        ),
        DecisionRecord(call_id=call, **values),
        AttemptRecord(
            call_id=call,
            segment=0,
            attempt=0,
            at=now_ms(),
            kind="first",
            upstream="openai",
            model="gpt-x",
            first_seq=1,
            end_seq=3,
            chosen=True,
        ),
    ]


def chunks_record(
    call: str, raw: list[bytes], *, seq: int = 1, verdict: Any = "allow", block: int = 0
) -> ChunksRecord:
    """The record of chunks with one verdict and block."""
    return ChunksRecord(
        call_id=call,
        seq=seq,
        at=now_ms(),
        raw=raw,
        verdicts=[verdict] * len(raw),
        blocks=[block] * len(raw),
    )


def release_record(call: str, payload: bytes, *, number: int = 1, seq: int = 1) -> ReleaseRecord:
    """The record of one release."""
    digest = sha256(payload).digest()
    return ReleaseRecord(
        call_id=call,
        number=number,
        number_next=number + 1,
        at=now_ms(),
        seq=seq,
        payload=payload,
        sha256=digest,
    )


def whole_call(call: str, **changes: Any) -> list[Record]:
    """Every kind of record of one call: text allowed, one tool call blocked by a judge."""
    return [
        call_record(call, **changes),
        chunks_record(call, [b'data: {"a":1}\n\n', b'data: {"a":2}\n\n']),
        chunks_record(call, [b"data: tool\n\n"], seq=3, verdict="hold", block=1),
        release_record(call, b"out", number=1, seq=2),
        BlockRecord(
            call_id=call, block=0, at=now_ms(), kind="text", verdict="allow", reason="", policy=""
        ),
        tool_call_record(call),
        judgement_record(call),
        ToolReleaseRecord(call_id=call, block=1, at=now_ms() + 5),
        EndRecord(
            call_id=call,
            at=now_ms() + 10,
            state="ENDED",
            reason="complete",
            status=200,
            stop_reason="stop",
            input_tokens=3,
        ),
        EventRecord(call_id=call, kind="takeover", number=1, at=now_ms(), detail="w2"),
    ]


def _url_of(server_url: str, name: str) -> str:
    return (
        engine_url(server_url)
        .set(drivername="postgresql", database=name)
        .render_as_string(hide_password=False)
    )


@cache
def _migrated_template(server_url: str) -> str:
    """Migrate once for each server: copying the result takes a tenth of the time."""
    name = f"sluice_template_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(conninfo(server_url), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    upgrade(_url_of(server_url, name))
    return name


@contextmanager
def fresh_database(server_url: str, *, migrated: bool = True) -> Iterator[str]:
    """Make a database on the server of `server_url`, lend its URL, and drop it."""
    name = f"sluice_test_{uuid.uuid4().hex[:12]}"
    template = _migrated_template(server_url) if migrated else "template1"
    with psycopg.connect(conninfo(server_url), autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    url = _url_of(server_url, name)
    try:
        yield url
    finally:
        with psycopg.connect(conninfo(server_url), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def rows(url: str, query: str, *values: object) -> list[Any]:
    """Run one statement and return its rows, in a session that knows three clocks that agree."""
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        connection.execute(TELL.encode(), (clocks(time.time()),))
        cursor = connection.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


_CHANGE = """
CREATE OR REPLACE FUNCTION change_{view}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM {runs} r WHERE r.call_id = OLD.call_id) THEN
        CREATE TEMPORARY TABLE opened ON COMMIT DROP AS SELECT * FROM {view} t
            WHERE t.call_id = OLD.call_id;
        DELETE FROM {runs} r WHERE r.call_id = OLD.call_id;
        INSERT INTO {rows} SELECT * FROM opened ON CONFLICT DO NOTHING;
        DROP TABLE opened;
    END IF;
    DELETE FROM {rows} t WHERE t.call_id = OLD.call_id AND t.{key} = OLD.{key};
    IF TG_OP = 'UPDATE' THEN
        INSERT INTO {rows} SELECT NEW.*;
        RETURN NEW;
    END IF;
    RETURN OLD;
END
$$;
CREATE OR REPLACE TRIGGER {view}_change INSTEAD OF UPDATE OR DELETE ON {view} FOR EACH ROW
    EXECUTE FUNCTION change_{view}();
"""


def let_views_change(url: str) -> None:
    """Let a test change and delete chunks and releases one by one, though they lie in runs."""
    for view, (plain, runs, key) in RUNS.items():
        rows(url, _CHANGE.format(view=view, rows=plain, runs=runs, key=key))
