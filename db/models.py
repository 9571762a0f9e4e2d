"""The tables. Append-only: a verdict, a release and an end are rows of their own, joined by the views in `db.read.views`.

Every table of a call is partitioned by RANGE of `call_id`, a UUIDv7 and so ordered by time: the partition key is
part of each primary key, and a lookup by call reads one partition. Model output is bytea (`protocol.records.to_bytes`),
shorter text is escaped (`db.text`). Column names are the fields of `protocol.records`.
"""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, Index, LargeBinary, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY, TSVECTOR
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PARTITIONED = {"postgresql_partition_by": "RANGE (call_id)"}
REFUSED = text("verdict NOT IN ('allow', 'replace')")


class Base(DeclarativeBase):
    """The metadata that migrations are compared with."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {str: Text, bytes: LargeBinary, datetime: DateTime(timezone=True)}


class Call(Base):
    """A call that a worker claimed."""

    __tablename__ = "calls"
    __table_args__ = (
        Index("calls_session_idx", "session", "call_id"),
        Index("calls_key_idx", "key", "call_id"),
        Index("calls_key_id_idx", "key_id", "call_id"),
        Index("calls_model_idx", "model", "call_id"),
        Index("calls_policy_idx", "policy", "call_id"),
        PARTITIONED,
    )

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    dialect: Mapped[str]
    endpoint: Mapped[str]
    key: Mapped[str]
    session: Mapped[str]
    model: Mapped[str]
    upstream: Mapped[str]
    policy: Mapped[str]
    policy_revision: Mapped[str]
    stream: Mapped[bool]
    gateway: Mapped[str]
    key_id: Mapped[str] = mapped_column(server_default="")
    policy_set: Mapped[str] = mapped_column(server_default="")
    body_sha256: Mapped[bytes | None]


class RequestBody(Base):
    """The request as the client sent it."""

    __tablename__ = "request_bodies"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    body: Mapped[bytes]


class Chunk(Base):
    """One upstream event as it came, with what was known of its verdict when it was processed."""

    __tablename__ = "chunks"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    raw: Mapped[bytes]
    verdict: Mapped[str]
    block: Mapped[int]


class Release(Base):
    """Bytes handed to the client: session outputs `number` to `number_next` - 1, covering chunks up to `seq`."""

    __tablename__ = "releases"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    number_next: Mapped[int]
    at: Mapped[datetime]
    seq: Mapped[int]
    payload: Mapped[bytes]
    sha256: Mapped[bytes]


class Block(Base):
    """The verdict on a content block that is not a tool call, or the later word on one that is."""

    __tablename__ = "blocks"
    __table_args__ = (
        Index("blocks_verdict_idx", "verdict", "call_id"),
        Index("blocks_refused_idx", "call_id", "block", postgresql_where=REFUSED),
        Index(
            "blocks_later_idx", "call_id", "block", postgresql_include=["verdict", "policy"],
            postgresql_where=text("kind NOT IN ('text', 'thinking')"),
        ),
        Index("blocks_reason_idx", text("to_tsvector('simple', reason)"), postgresql_using="gin", postgresql_where=REFUSED),
        PARTITIONED,
    )  # fmt: skip

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    kind: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str]
    policy: Mapped[str]
    rule: Mapped[str | None]


class ToolCall(Base):
    """A complete tool call with its verdict. `search` holds the words of name, arguments and reason (`db.text.search_text`)."""

    __tablename__ = "tool_calls"
    __table_args__ = (
        Index("tool_calls_name_idx", "name", "call_id"),
        Index("tool_calls_search_idx", "search", postgresql_using="gin"),
        Index("tool_calls_tool_call_id_idx", "tool_call_id", "call_id"),
        Index("tool_calls_verdict_idx", "verdict", "call_id"),
        Index("tool_calls_policy_idx", "policy", "call_id"),
        Index("tool_calls_refused_idx", "call_id", "block", postgresql_where=REFUSED),
        Index("tool_calls_search_refused_idx", "search", postgresql_using="gin", postgresql_where=REFUSED),
        PARTITIONED,
    )

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    index: Mapped[int]
    choice: Mapped[int]
    at: Mapped[datetime]
    tool_call_id: Mapped[str]
    name: Mapped[str]
    arguments: Mapped[bytes]
    released_arguments: Mapped[bytes | None]
    executor: Mapped[str]
    form: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str]
    policy: Mapped[str]
    schema_valid: Mapped[bool | None]
    search: Mapped[str] = mapped_column(TSVECTOR)
    rule: Mapped[str | None]


class ToolRelease(Base):
    """A tool call, or the text in its place, was released."""

    __tablename__ = "tool_releases"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]


class Judgement(Base):
    """A judge's answer, for allows too; the highest `step` of a block is the last one asked."""

    __tablename__ = "judgements"
    __table_args__ = (Index("judgements_policy_idx", "policy", "call_id"), PARTITIONED)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    model: Mapped[str]
    policy: Mapped[str]
    probability: Mapped[float | None]
    threshold: Mapped[float]
    explanation: Mapped[str]
    prompt: Mapped[bytes]
    reply: Mapped[bytes]
    latency_ms: Mapped[int]
    attempts: Mapped[int]
    error: Mapped[str]


class End(Base):
    """The one terminal record of a call."""

    __tablename__ = "ends"
    __table_args__ = (PARTITIONED,)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    state: Mapped[str]
    reason: Mapped[str]
    status: Mapped[int]
    stop_reason: Mapped[str]
    relayed: Mapped[int]
    input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    output_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cache_read_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cache_write_tokens: Mapped[int | None] = mapped_column(BigInteger)
    thinking_tokens: Mapped[int | None] = mapped_column(BigInteger)
    chunks: Mapped[int | None]
    releases: Mapped[int | None]
    decisions: Mapped[int | None]
    relayed_sha256: Mapped[bytes | None]


class Event(Base):
    """Something worth knowing about a call: takeover, fenced, withheld, fault, incomplete."""

    __tablename__ = "events"
    __table_args__ = (Index("events_incomplete_idx", "call_id", postgresql_where=text("kind = 'incomplete'")), PARTITIONED)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    at: Mapped[datetime]
    detail: Mapped[str]


class SealRows(Base):
    """What a seal keeps for as long as the call's rows are there: the salt of their content and a mark of each row (`db.canonical`)."""

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


class Seal(Base):
    """A leaf of the tree: a call's rows as they were at that moment, counted by table and hashed. Parts after 0 have rows added.

    `form` is the version of the form (`db.canonical`), `made_for` the one that the tables had then: the column's default, which nobody
    names. Part -1 says that the rows of all calls before `call_id` were dropped, and why; `counts` then is the number of calls.
    """

    __tablename__ = "seals"
    __table_args__ = (
        Index("seals_call_id_idx", "call_id", "part", unique=True),
        Index("seals_beside_idx", "call_id", postgresql_where=text("form = 0 OR form < made_for")),
    )

    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    call_id: Mapped[UUID]
    part: Mapped[int]
    at: Mapped[datetime]
    counts: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
    sha256: Mapped[bytes]
    note: Mapped[str]
    form: Mapped[int] = mapped_column(server_default=text("0"))
    made_for: Mapped[int | None] = mapped_column(server_default=text("4"))


class StoredCheckpoint(Base):
    """The tree at one size: the text to be kept elsewhere (`db.seals.checkpoints`), and what is needed to go on from there."""

    __tablename__ = "checkpoints"

    size: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    text: Mapped[str]
    peaks: Mapped[bytes]
    sha256: Mapped[bytes]


class DeadLetter(Base):
    """A record that PostgreSQL refused, as its msgpack bytes, set aside so that the others could land."""

    __tablename__ = "dead_letters"
    __table_args__ = (Index("dead_letters_call_id_idx", text('"left"(call_id, 36)')),)

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    call_id: Mapped[str]
    kind: Mapped[str]
    raw: Mapped[bytes]
    reason: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Identity(Base):
    """Which database this is: one row, made with the table. Redis holds the id of the database that its records go to."""

    __tablename__ = "identity"

    is_only: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    id: Mapped[UUID] = mapped_column(server_default=text("gen_random_uuid()"))


class ApiKey(Base):
    """An API key by the SHA-256 of its text; the text itself is nowhere."""

    __tablename__ = "api_keys"
    __table_args__ = (Index("api_keys_name_idx", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),)

    sha256: Mapped[bytes] = mapped_column(primary_key=True)
    name: Mapped[str]
    roles: Mapped[list[str]] = mapped_column(ARRAY(Text))
    policies: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    revoked_at: Mapped[datetime | None]
    server_tools: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))


CALL_TABLES = tuple(name for name, table in Base.metadata.tables.items() if "call_id" in table.primary_key.columns)
"""The partitioned tables."""
