"""The views as SQLAlchemy tables, with their own metadata: migrations create the views, queries
read them, but for those of `JUDGED_LOGS`.

For a page, `rows_of` reads a view's rows by the same joins, and restricts every table to the page's
calls. PostgreSQL prunes partitions only by conditions on the table itself, and planning a view over
all partitions takes longer than reading the page.
"""

from typing import Any

from sqlalchemy import (
    ARRAY,
    Boolean,
    Column,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Subquery,
    Table,
    Text,
    Uuid,
    bindparam,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from db.text import from_column, to_column


class StoredText(TypeDecorator[str]):
    """Text in the escaped form of `db.text`, escaped on the way in and back on the way out."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape."""
        return None if value is None else to_column(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escape."""
        return None if value is None else from_column(value)


VIEWS = MetaData()
_TIME = DateTime(timezone=True)


def _view(name: str, columns: dict[Any, str]) -> Table:
    """A view with these columns, by their types."""
    return Table(
        name,
        VIEWS,
        *(Column(column, kind) for kind, names in columns.items() for column in names.split()),
    )


_OF_CALL = "policy_revision session key key_id model upstream"
_JUDGE = "judge_model judge_policy judge_explanation judge_error"
_TOOL_CALL: dict[Any, str] = {
    Uuid: "call_id",
    Integer: "block index choice judge_latency_ms judge_attempts",
    Boolean: "schema_valid",
    TSVECTOR: "search",
    StoredText: (
        f"tool_call_id name executor form verdict reason policy rule call_policy {_OF_CALL}"
        f" {_JUDGE}"
    ),
    LargeBinary: "arguments released_arguments judge_prompt judge_reply",
    Float: "judge_probability judge_threshold",
    _TIME: "created_at decided_at released_at ended_at",
}
_TOKENS = (
    "input_tokens output_tokens cache_read_tokens cache_write_tokens thinking_tokens"
    " cost_nanousd judge_nanousd"
)
CALL_LOG = _view(
    "call_log",
    {
        Uuid: "call_id",
        _TIME: "created_at claimed_at ended_at",
        Boolean: "stream incomplete is_estimated",
        StoredText: (
            f"dialect endpoint policy gateway state reason stop_reason policy_set {_OF_CALL}"
        ),
        Integer: f"status relayed tool_calls tool_calls_blocked {_TOKENS}",
    },
)
TOOL_CALL_LOG = _view("tool_call_log", _TOOL_CALL)
_JUDGED = _TOOL_CALL | {StoredText: f"kind {_TOOL_CALL[StoredText]}"}
JUDGED_LOGS = tuple(_view(name, _JUDGED) for name in ("judged_tool_call_log", "judged_block_log"))
"""What refused tool calls and other blocks show with the judgement of the policy that decided; the
database has no views of them."""
CHUNK_LOG = _view(
    "chunk_log",
    {Uuid: "call_id", Integer: "seq block", _TIME: "at", LargeBinary: "raw", StoredText: "verdict"},
)

_CALLS = """
SELECT c.call_id, sluice_call_at(c.call_id) AS created_at, c.at AS claimed_at, e.at AS ended_at,
    c.dialect, c.endpoint, c.key, c.key_id,
    c.session, c.model, c.upstream, c.policy, c.policy_revision, c.stream, c.gateway,
        coalesce(e.state, 'ACTIVE') AS state,
    e.reason, e.status, e.stop_reason, e.relayed, e.input_tokens, e.output_tokens,
        e.cache_read_tokens, e.cache_write_tokens,
    e.thinking_tokens, e.cost_nanousd, e.judge_nanousd, e.is_estimated, n.tool_calls, n.tool_calls_blocked, c.policy_set,
    EXISTS (SELECT FROM events v WHERE v.call_id = c.call_id AND v.kind = 'incomplete'
        AND v.call_id = ANY (:ids)) AS incomplete
FROM calls c
LEFT JOIN ends e ON e.call_id = c.call_id AND e.call_id = ANY (:ids)
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS tool_calls,
        (count(*) FILTER (WHERE coalesce(b.verdict, t.verdict) = 'block'))::integer AS
            tool_calls_blocked
    FROM tool_calls t LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block
        AND b.call_id = ANY (:ids)
    WHERE t.call_id = c.call_id AND t.call_id = ANY (:ids)
) n
WHERE c.call_id = ANY (:ids)
"""
_OF_CALL_AND_JUDGE = """
    c.policy AS call_policy, c.policy_revision, c.session, c.key, c.key_id, c.model, c.upstream, e.at AS ended_at, j.model AS judge_model,
    j.policy AS judge_policy, j.probability AS judge_probability, j.threshold AS judge_threshold, j.explanation AS judge_explanation,
    j.prompt AS judge_prompt, j.reply AS judge_reply, j.latency_ms AS judge_latency_ms, j.attempts AS judge_attempts, j.error AS judge_error
"""
_TOOL_CALLS = f"""
SELECT 'tool_call' AS kind, t.call_id, t.block, t.tool_call_id, t.index, t.choice, t.name,
    t.arguments,
    CASE WHEN b.call_id IS NULL THEN t.released_arguments
        END AS released_arguments, t.executor, t.form, t.schema_valid,
    coalesce(b.verdict, t.verdict) AS verdict, coalesce(b.reason, t.reason) AS reason,
        coalesce(b.policy, t.policy) AS policy,
    CASE WHEN b.call_id IS NULL THEN t.rule ELSE b.rule END AS rule, sluice_call_at(t.call_id) AS
        created_at, t.at AS decided_at,
    r.at AS released_at, t.search, {_OF_CALL_AND_JUDGE}
FROM tool_calls t
LEFT JOIN calls c ON c.call_id = t.call_id AND c.call_id = ANY (:ids)
LEFT JOIN ends e ON e.call_id = t.call_id AND e.call_id = ANY (:ids)
LEFT JOIN blocks b ON b.call_id = t.call_id AND b.block = t.block AND b.call_id = ANY (:ids)
LEFT JOIN tool_releases r ON r.call_id = t.call_id AND r.block = t.block AND r.call_id = ANY (:ids)
LEFT JOIN LATERAL (
    SELECT * FROM judgements g WHERE g.call_id = t.call_id AND g.block = t.block
        AND g.call_id = ANY (:ids) {{judged}}
    ORDER BY g.step DESC LIMIT 1
) j ON true
WHERE t.call_id = ANY (:ids)
"""
_BLOCKS = f"""
SELECT b.kind, b.call_id, b.block, NULL::text AS tool_call_id, NULL::integer AS index, NULL::integer
    AS choice, NULL::text AS name,
    NULL::bytea AS arguments, NULL::bytea AS released_arguments, NULL::text AS executor, NULL::text
        AS form, NULL::boolean AS schema_valid,
    b.verdict, b.reason, b.policy, b.rule, sluice_call_at(b.call_id) AS created_at, b.at AS
        decided_at, NULL::timestamptz AS released_at,
    to_tsvector('simple', b.reason) AS search, {_OF_CALL_AND_JUDGE}
FROM blocks b
LEFT JOIN calls c ON c.call_id = b.call_id AND c.call_id = ANY (:ids)
LEFT JOIN ends e ON e.call_id = b.call_id AND e.call_id = ANY (:ids)
LEFT JOIN LATERAL (
    SELECT * FROM judgements g WHERE g.call_id = b.call_id AND g.block = b.block
        AND g.policy = b.policy
        AND g.call_id = ANY (:ids)
    ORDER BY g.step DESC LIMIT 1
) j ON true
WHERE b.call_id = ANY (:ids)
"""
_CHUNKS = """
SELECT k.call_id, k.seq, k.at, k.raw, k.block,
    CASE WHEN k.verdict <> 'hold' THEN k.verdict
         ELSE coalesce(b.verdict, t.verdict, CASE WHEN e.call_id IS NULL THEN 'hold' ELSE 'withheld'
             END) END AS verdict
FROM chunks k
LEFT JOIN tool_calls t ON t.call_id = k.call_id AND t.block = k.block AND t.call_id = ANY (:ids)
LEFT JOIN blocks b ON b.call_id = k.call_id AND b.block = k.block AND b.call_id = ANY (:ids)
LEFT JOIN ends e ON e.call_id = k.call_id AND e.call_id = ANY (:ids)
WHERE k.call_id = ANY (:ids)
"""
_BODIES = {
    "call_log": _CALLS,
    "tool_call_log": _TOOL_CALLS.format(judged=""),
    "judged_tool_call_log": _TOOL_CALLS.format(
        judged="AND g.policy = coalesce(b.policy, t.policy)"
    ),
    "judged_block_log": _BLOCKS,
    "chunk_log": _CHUNKS,
}


def rows_of(view: Table) -> Subquery:
    """Return what a view shows of the calls in the parameter `ids_of(view)`; of a judged one also
    what no judgement decided."""
    body = _BODIES[view.name].replace(":ids", f":{ids_of(view)}")
    call_ids = bindparam(ids_of(view), type_=ARRAY(Uuid()))
    return (
        text(body)
        .bindparams(call_ids)
        .columns(**{column.name: column.type for column in view.c})
        .subquery(view.name)
    )


def ids_of(view: Table) -> str:
    """Return the name of the parameter that holds call ids."""
    return f"{view.name}_ids"
