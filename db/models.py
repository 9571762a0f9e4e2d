"""The tables. Append-only: a verdict, a release and an end are rows of their own, joined by the
views in `db.read.views`.

Every table of a call is partitioned by RANGE of `call_id`, a UUIDv7 and so ordered by time: the
partition key is part of each primary key, and a lookup by call reads one partition. Model output is
bytea (`protocol.records.to_bytes`), shorter text is escaped (`db.text`). The columns of a call's
tables are those that its records declare (`protocol.records`).
"""

from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    FromClause,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR
from sqlalchemy.orm import InstrumentedAttribute, Mapped, mapped_column
from sqlalchemy.orm.decl_api import DeclarativeAttributeIntercept

from db.approval_models import Base as Base
from db.columns import BY_NAME, VERSION
from protocol.records import PASSED
from settings.config import LISTS

PARTITIONED = {"postgresql_partition_by": "RANGE (call_id)"}
REFUSED = text(f"verdict NOT IN {PASSED}")
_TYPES: dict[str, Any] = {
    "text": Text,
    "bytea": LargeBinary,
    "int4": Integer,
    "int8": BigInteger,
    "bool": Boolean,
    "float8": Float,
    "tsvector": TSVECTOR,
    "timestamptz": DateTime(timezone=True),
}


class _Columns(DeclarativeAttributeIntercept):
    """For the type checker, which does not see columns that a record declares."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> InstrumentedAttribute[Any]: ...


def _table(
    name: str,
    *indexes: Index,
    by: str = "",
    stored_as: str = "",
    metadata: MetaData = Base.metadata,
) -> FromClause:
    """A table with the columns that its record declares (`db.columns`), indexed by each column of
    `by` and the call. `stored_as`: where its name is that of a view, which is in a `metadata` of
    its own: no migration makes it of a model."""
    columns: list[Column[Any]] = [Column("call_id", Uuid, primary_key=True)]
    for stored in BY_NAME[name].columns:
        is_key = stored.mark.is_key
        columns.append(
            Column(
                stored.name,
                _TYPES[stored.kind],
                primary_key=is_key,
                autoincrement=False,
                nullable=stored.is_nullable,
            )
        )
    listed = [Index(f"{name}_{column}_idx", column, "call_id") for column in by.split()]
    return Table(
        stored_as or name,
        metadata,
        *columns,
        *listed,
        *indexes,
        postgresql_partition_by="RANGE (call_id)",
    )


_VIEWS = MetaData()


class CallRow(Base, metaclass=_Columns):
    """A call that a worker claimed."""

    __table__ = _table(
        "calls",
        Index("calls_team_idx", "team", "call_id", postgresql_where=text("team IS NOT NULL")),
        by="session key key_id model policy",
    )


class RequestBody(Base, metaclass=_Columns):
    """The request as the client sent it."""

    __table__ = _table("request_bodies")


class ChunkRow(Base, metaclass=_Columns):
    """One upstream event as it came, with what was known of its verdict when it was processed.

    A view of rows and runs.
    """

    __table__ = _table("chunks", metadata=_VIEWS)


class ReleaseRow(Base, metaclass=_Columns):
    """Bytes handed to the client: session outputs `number` to `number_next` - 1, covering chunks up
    to `seq`. A view, likewise."""

    __table__ = _table("releases", metadata=_VIEWS)


_table("chunks", stored_as="chunk_rows")
_table("releases", stored_as="release_rows")


class ChunkRun(Base):
    """Chunks `seq` to `last` of a call (`db.write.runs`)."""

    __tablename__ = "chunk_runs"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last: Mapped[int]
    at: Mapped[datetime]
    verdict: Mapped[str]
    block: Mapped[int]
    ats: Mapped[bytes]
    ends: Mapped[bytes]
    head: Mapped[bytes]
    tail: Mapped[bytes]
    data: Mapped[bytes]


class ReleaseRun(Base):
    """Releases `number` to `last` of a call, likewise."""

    __tablename__ = "release_runs"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last: Mapped[int]
    number_next: Mapped[int]
    at: Mapped[datetime]
    seq: Mapped[int]
    ats: Mapped[bytes]
    seqs: Mapped[bytes]
    ends: Mapped[bytes]
    head: Mapped[bytes]
    tail: Mapped[bytes]
    data: Mapped[bytes]
    sha256: Mapped[bytes | None]


class BlockRow(Base, metaclass=_Columns):
    """The verdict on a content block that is not a tool call, or a later verdict on one that is."""

    __table__ = _table(
        "blocks",
        Index("blocks_refused_idx", "call_id", "block", postgresql_where=REFUSED),
        Index(
            "blocks_later_idx",
            "call_id",
            "block",
            postgresql_include=["verdict", "policy"],
            postgresql_where=text("kind NOT IN ('text', 'thinking')"),
        ),
        Index(
            "blocks_reason_idx",
            text("to_tsvector('simple', reason)"),
            postgresql_using="gin",
            postgresql_where=REFUSED,
        ),
        by="verdict",
    )


class ToolCallRow(Base, metaclass=_Columns):
    """A complete tool call with its verdict. `search` holds the words of name, arguments, reason
    and rule (`db.text.search_text`)."""

    __table__ = _table(
        "tool_calls",
        Index("tool_calls_search_idx", "search", postgresql_using="gin"),
        Index("tool_calls_refused_idx", "call_id", "block", postgresql_where=REFUSED),
        Index(
            "tool_calls_search_refused_idx",
            "search",
            postgresql_using="gin",
            postgresql_where=REFUSED,
        ),
        by="name tool_call_id verdict policy",
    )


class ToolRelease(Base, metaclass=_Columns):
    """A tool call, or the text in its place, was released."""

    __table__ = _table("tool_releases")


class JudgementRow(Base, metaclass=_Columns):
    """A judge's answer, for allows too; the highest `step` of a block is the last one asked."""

    __table__ = _table("judgements", by="policy")


class End(Base, metaclass=_Columns):
    """The one terminal record of a call."""

    __table__ = _table("ends")


class Event(Base, metaclass=_Columns):
    """Something worth knowing about a call: takeover, fenced, withheld, fault, incomplete."""

    __table__ = _table(
        "events",
        Index("events_incomplete_idx", "call_id", postgresql_where=text("kind = 'incomplete'")),
    )


class ScoreRow(Base, metaclass=_Columns):
    """What a monitor measured of a content block."""

    __table__ = _table("scores")


class DecisionRow(Base, metaclass=_Columns):
    """What a protocol made of the scores of a content block."""

    __table__ = _table("decisions")


class Attempt(Base, metaclass=_Columns):
    """One of several upstream answers to a request of a call."""

    __table__ = _table("attempts")


class SealRows(Base):
    """What a seal keeps for as long as the call's rows are there: the salt of their content and a
    mark of each row (`db.canonical`)."""

    __tablename__ = "seal_rows"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    part: Mapped[int] = mapped_column(primary_key=True)
    salt: Mapped[bytes | None]
    marks: Mapped[bytes]


class Redaction(Base):
    """What is left of a redacted row's content: its salted hashes."""

    __tablename__ = "redactions"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    table_name: Mapped[str] = mapped_column(primary_key=True)
    row_key: Mapped[bytes] = mapped_column(primary_key=True)
    hashes: Mapped[bytes]


class RedactedCall(Base):
    """A call whose content was deleted: audit writers ask for it before they write more of the
    call. It outlives the call's rows."""

    __tablename__ = "redacted_calls"

    call_id: Mapped[UUID] = mapped_column(primary_key=True)


class Seal(Base):
    """A leaf of the tree: a call's rows as they were at that moment, counted by table and hashed.
    Parts after 0 have rows added.

    `form` is the version of the form (`db.canonical`), `made_for` the one that the tables had then:
    the column's default, which nobody names. Part -1 says that the rows of all calls before
    `call_id` were dropped, and why; `counts` then is the number of calls. Part -2 says that of one
    table, whose place in `db.canonical.FORMS`, from 1 on, stands in the last two bytes of
    `call_id`.
    """

    __tablename__ = "seals"
    __table_args__ = (
        Index("seals_call_id_idx", "call_id", "part", unique=True),
        Index("seals_beside_idx", "call_id", postgresql_where=text("form < made_for")),
        Index("seals_gone_idx", "call_id", postgresql_where=text("part < 0")),
    )

    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    call_id: Mapped[UUID]
    part: Mapped[int]
    at: Mapped[datetime]
    counts: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
    sha256: Mapped[bytes]
    note: Mapped[str]
    form: Mapped[int] = mapped_column(server_default=text("0"))
    made_for: Mapped[int] = mapped_column(server_default=text(str(VERSION)))


class StoredCheckpoint(Base):
    """The tree at one size: the text to be kept elsewhere (`db.seals.checkpoints`), and what is
    needed to go on from there."""

    __tablename__ = "checkpoints"

    size: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    text: Mapped[str]
    peaks: Mapped[bytes]
    sha256: Mapped[bytes]


class RetainedDigest(Base):
    """What is left of a call's rows in one table after they went: their number and digest, by the
    place of the table (`db.seals.shed`)."""

    __tablename__ = "kept_digests"

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rows: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[bytes]


class TreeTile(Base):
    """Inner nodes of the tree of seals (`db.seals.tiles`): 256 of a level, and the root over them.
    Made of the seals, and may be again."""

    __tablename__ = "tree_tiles"

    level: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    index: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    hashes: Mapped[bytes]
    root: Mapped[bytes]


class AuditRow(Base):
    """A decision that a person is to look at: made of the sealed rows of its call by
    `sluice_queue_audits`, in the step that seals them.

    `day` (UTC), `policy` and `key_id` name the budget that it is of. Nobody writes here but
    functions of the database.
    """

    __tablename__ = "audits"
    __table_args__ = (
        Index("audits_state_idx", "state", "call_id", "block"),
        Index(
            "audits_budget_idx",
            "policy",
            "key_id",
            "day",
            postgresql_where=text("state <> 'over_budget'"),
        ),
    )

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step: Mapped[int]
    at: Mapped[datetime]
    day: Mapped[date]
    policy: Mapped[str]
    key: Mapped[str]
    key_id: Mapped[str]
    why: Mapped[str]
    score: Mapped[float | None]
    u: Mapped[float]
    budget: Mapped[int | None]
    state: Mapped[str]


class AuditReview(Base):
    """An auditor's review of such a decision. Append-only: the newest of each auditor counts. Only
    `sluice_review` writes here."""

    __tablename__ = "audit_reviews"

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    auditor_id: Mapped[str]
    auditor: Mapped[str]
    label: Mapped[str]
    note: Mapped[str]


_later_sum = partial(mapped_column, BigInteger, server_default="0")


class UsageHour(Base):
    """Sums of the calls that began in an hour, by key, model, policy and revision. Only
    `sluice_roll_up` writes here."""

    __tablename__ = "usage_hours"
    __table_args__ = (
        Index("usage_hours_key_idx", "key", "hour"),
        Index("usage_hours_policy_idx", "policy", "hour"),
    )

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    key: Mapped[str]
    model: Mapped[str]
    policy: Mapped[str]
    revision: Mapped[str]
    calls: Mapped[int] = mapped_column(BigInteger)
    failed: Mapped[int] = mapped_column(BigInteger)
    tool_calls: Mapped[int] = mapped_column(BigInteger)
    refused: Mapped[int] = mapped_column(BigInteger)
    replaced: Mapped[int] = mapped_column(BigInteger)
    blocks_refused: Mapped[int] = mapped_column(BigInteger)
    blocks_replaced: Mapped[int] = mapped_column(BigInteger)
    faults: Mapped[int] = mapped_column(BigInteger)
    input_tokens: Mapped[int] = mapped_column(BigInteger)
    output_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    judge_n: Mapped[int] = mapped_column(BigInteger)
    judge_failed: Mapped[int] = mapped_column(BigInteger)
    judge_late: Mapped[int] = mapped_column(BigInteger)
    judge_over: Mapped[int] = mapped_column(BigInteger)
    judge_ms_sum: Mapped[int] = mapped_column(BigInteger)
    team: Mapped[str] = mapped_column(server_default="")
    cost_nanousd: Mapped[int] = _later_sum()
    judge_nanousd: Mapped[int] = _later_sum()
    unpriced: Mapped[int] = _later_sum()
    estimated: Mapped[int] = _later_sum()


class JudgeHour(Base):
    """How often judges' answers of an hour fell into a class of latency or, with a threshold, of
    probability. Likewise."""

    __tablename__ = "judge_hours"
    __table_args__ = (Index("judge_hours_policy_idx", "policy", "hour"),)

    hour: Mapped[datetime] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    policy: Mapped[str]
    revision: Mapped[str]
    figure: Mapped[str]
    threshold: Mapped[float | None]
    class_: Mapped[int] = mapped_column("class")
    n: Mapped[int] = mapped_column(BigInteger)


class PageSession(Base):
    """A login to the pages. Neither the text of the cookie nor the key is stored."""

    __tablename__ = "page_sessions"

    token_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    key_sha256: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    until: Mapped[datetime]
    agent: Mapped[str]
    person: Mapped[str] = mapped_column(server_default="")
    issuer: Mapped[str] = mapped_column(server_default="")
    sid: Mapped[str] = mapped_column(server_default="")
    roles: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{}")


class Read(Base):
    """A read of the record's content: who, when and what. Written before the content is sent."""

    __tablename__ = "reads"
    __table_args__ = (
        Index("reads_call_ids_idx", "call_ids", postgresql_using="gin"),
        {"postgresql_partition_by": "RANGE (at)"},
    )

    at: Mapped[datetime] = mapped_column(primary_key=True, server_default=func.now())
    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=text("gen_random_uuid()"))
    key: Mapped[str]
    key_id: Mapped[str]
    session: Mapped[str]
    path: Mapped[str]
    filters: Mapped[str]
    call_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid))
    rows: Mapped[int]


class Label(Base):
    """A reader's label of a decision: right, wrong or unsure. Append-only: the newest of a block
    counts."""

    __tablename__ = "labels"

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(primary_key=True, server_default=func.now())
    key: Mapped[str]
    key_id: Mapped[str]
    label: Mapped[str]
    note: Mapped[str]


class DebugSwitch(Base):
    """Debug logs that an admin switched on for a key, until when."""

    __tablename__ = "debug_switches"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=text("gen_random_uuid()"))
    key: Mapped[str]
    loggers: Mapped[list[str]] = mapped_column(ARRAY(Text))
    content: Mapped[bool]
    by: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    until: Mapped[datetime]


class DebugLog(Base):
    """A line of a debug log: what a process did with a call. Lines may be lost, no seal covers
    them, and they go after some days."""

    __tablename__ = "debug_logs"
    __table_args__ = (Index("debug_logs_type_idx", "type", "call_id"), PARTITIONED)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    process: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    type: Mapped[str]
    event: Mapped[str]
    seq: Mapped[int | None]
    number: Mapped[int | None]
    block: Mapped[int | None]
    policy: Mapped[str | None]
    hook: Mapped[str | None]
    duration_us: Mapped[int | None]
    size: Mapped[int | None] = mapped_column("bytes")
    detail: Mapped[bytes]


class DoorCountRow(Base):
    """How many requests a gateway had refused with this key and error code since it started, at the
    end of a minute."""

    __tablename__ = "door_counts"
    __table_args__ = (Index("door_counts_minute_idx", "minute"),)

    gateway: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(primary_key=True)
    minute: Mapped[datetime] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger)


class DeadLetter(Base):
    """A record that PostgreSQL refused, as its msgpack bytes, set aside so that the others could
    land."""

    __tablename__ = "dead_letters"
    __table_args__ = (Index("dead_letters_call_id_idx", text('"left"(call_id, 36)')),)

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    call_id: Mapped[str]
    kind: Mapped[str]
    raw: Mapped[bytes]
    reason: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class IdentityRow(Base):
    """Which database this is: one row, made with the table. Redis holds the id of the database that
    its records go to, and the number of the primary that it is (`db.migrations.primaries`)."""

    __tablename__ = "identity"

    is_only: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    id: Mapped[UUID] = mapped_column(server_default=text("gen_random_uuid()"))
    redis_number: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    redis_run_id: Mapped[str] = mapped_column(server_default=text("''"))
    redis_seen_at: Mapped[datetime] = mapped_column(server_default=text("'-infinity'"))


class ApiKey(Base, metaclass=_Columns):
    """An API key by the SHA-256 of its text; the text itself is not stored. A list is an array,
    numbers are in `settings`."""

    __table__ = Table(
        "api_keys",
        Base.metadata,
        Column("sha256", LargeBinary, primary_key=True),
        Column("name", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        Column("revoked_at", DateTime(timezone=True)),
        Column("expires_at", DateTime(timezone=True)),
        *(Column(name, ARRAY(Text), nullable=False) for name in LISTS),
        Column("settings", JSONB, nullable=False, server_default=text("'{}'")),
        Index(
            "api_keys_name_idx", "name", unique=True, postgresql_where=text("revoked_at IS NULL")
        ),
    )


class HistoryRow(Base):
    """What the request of a call repeats of those before it (`protocol.conversations.histories`).
    Made of the request body, and can be made again."""

    __tablename__ = "histories"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    session: Mapped[str]
    turns: Mapped[int]
    marks: Mapped[bytes]
    offsets: Mapped[bytes]
    preview: Mapped[str]
    is_side: Mapped[bool]
