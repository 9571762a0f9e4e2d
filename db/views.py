"""The views as SQLAlchemy tables, in a metadata of their own: migrations make them, queries read them."""

from typing import Any

from sqlalchemy import Boolean, Column, DateTime, Float, Integer, LargeBinary, MetaData, Table, Text, Uuid
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


def _view(name: str, /, **columns: Any) -> Table:
    return Table(name, VIEWS, *(Column(column, kind) for column, kind in columns.items()))


_OF_CALL: dict[str, Any] = dict.fromkeys(("policy_revision", "session", "key", "model", "upstream"), StoredText)
_TOOL_CALL: dict[str, Any] = {
    "call_id": Uuid,
    "block": Integer,
    "tool_call_id": StoredText,
    "index": Integer,
    "choice": Integer,
    "name": StoredText,
    "arguments": LargeBinary,
    "released_arguments": LargeBinary,
    "executor": StoredText,
    "form": StoredText,
    "schema_valid": Boolean,
    "verdict": StoredText,
    "reason": StoredText,
    "policy": StoredText,
    "call_policy": StoredText,
    **_OF_CALL,
    "created_at": _TIME,
    "decided_at": _TIME,
    "released_at": _TIME,
    "ended_at": _TIME,
    "search": TSVECTOR,
    "judge_model": StoredText,
    "judge_policy": StoredText,
    "judge_probability": Float,
    "judge_threshold": Float,
    "judge_explanation": StoredText,
    "judge_prompt": LargeBinary,
    "judge_reply": LargeBinary,
    "judge_latency_ms": Integer,
    "judge_attempts": Integer,
    "judge_error": StoredText,
}

CALL_LOG = _view(
    "call_log",
    call_id=Uuid,
    created_at=_TIME,
    claimed_at=_TIME,
    ended_at=_TIME,
    dialect=StoredText,
    endpoint=StoredText,
    policy=StoredText,
    stream=Boolean,
    gateway=StoredText,
    state=StoredText,
    reason=StoredText,
    status=Integer,
    stop_reason=StoredText,
    relayed=Integer,
    input_tokens=Integer,
    output_tokens=Integer,
    cache_read_tokens=Integer,
    cache_write_tokens=Integer,
    thinking_tokens=Integer,
    tool_calls=Integer,
    tool_calls_blocked=Integer,
    **_OF_CALL,
)
TOOL_CALL_LOG = _view("tool_call_log", **_TOOL_CALL)
JUDGED_LOGS = tuple(_view(name, kind=StoredText, **_TOOL_CALL) for name in ("judged_tool_call_log", "judged_block_log"))
"""The two halves of the view `judge_block_log`. Each can be read in the order of its keys; their union cannot, it is sorted whole."""
CHUNK_LOG = _view("chunk_log", call_id=Uuid, seq=Integer, at=_TIME, raw=LargeBinary, block=Integer, verdict=StoredText)
