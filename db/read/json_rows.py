"""Rows as the JSON objects that users see (docs/use/api.md#fields). Must not know: SQL,
connections."""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from db.columns import BY_NAME
from db.text import from_column
from protocol.records import PASSED, to_text

JsonObject = dict[str, Any]
_PIECE_CHARS = 64 * 1024


def dump_json(value: object) -> bytes:
    """Return JSON in ASCII: U+0000 and lone surrogates come as backslash-u escapes, which every
    parser takes."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def dump_pieces(item: JsonObject) -> Iterator[bytes]:
    """Yield an object as `dump_json` has it, its long texts in pieces: no other thread runs while
    one is written."""
    sign = b"{"
    for name, value in item.items():
        yield sign + dump_json(name) + b":"
        sign = b","
        if not isinstance(value, str):
            yield dump_json(value)
            continue
        yield b'"'
        for at in range(0, len(value), _PIECE_CHARS):
            yield dump_json(value[at : at + _PIECE_CHARS])[1:-1]
        yield b'"'
    yield b"}" if item else b"{}"


def time(at: datetime | None) -> str | None:
    """Return a time in UTC with milliseconds."""
    return (
        None
        if at is None
        else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


_CALL = (
    "session key key_id dialect endpoint model upstream policy policy_revision policy_set stream"
    " gateway state reason status stop_reason relayed"
).split()
_TOKENS = (
    "input_tokens output_tokens cache_read_tokens cache_write_tokens thinking_tokens"
    " cost_nanousd judge_nanousd is_estimated"
).split()


def _same(row: Any, names: Sequence[str]) -> JsonObject:
    """What a row holds under these names, in their order."""
    return {name: getattr(row, name) for name in names}


def _times(row: Any, *names: str) -> JsonObject:
    return {name: time(getattr(row, name)) for name in names}


def call_item(row: Any) -> JsonObject:
    """A row of `call_log`."""
    return {
        "call_id": str(row.call_id),
        **_same(row, _CALL),
        "usage": _same(row, _TOKENS),
        "tool_calls": row.tool_calls,
        "tool_calls_blocked": row.tool_calls_blocked,
        "incomplete": row.incomplete,
        **_times(row, "created_at", "claimed_at", "ended_at"),
    }


def release_times(verdict: str, at: datetime | None) -> JsonObject:
    """When a tool call went out, and when the notice in its place did: the record has one row for
    either."""
    goes_out = verdict in PASSED
    return {
        "released_at": time(at) if goes_out else None,
        "notice_at": None if goes_out else time(at),
    }


def tool_call_item(row: Any) -> JsonObject:
    """A row of `tool_call_log`."""
    return {
        "call_id": str(row.call_id),
        **_same(row, ("block", "tool_call_id", "index", "choice", "name")),
        "arguments": text_or_none(row.arguments),
        "released_arguments": text_or_none(row.released_arguments),
        **_same(row, ("executor", "form", "verdict", "reason", "policy")),
        "rule": row.rule or None,
        "policy_revision": row.policy_revision,
        "judge": _judge(row),
        **_same(row, ("session", "key", "key_id", "model", "upstream")),
        **_times(row, "created_at", "decided_at"),
        **release_times(row.verdict, row.released_at),
    }


def judge_block_item(row: Any) -> JsonObject:
    """A row of `JUDGED_LOGS`: a tool call's fields, and what was judged and against which
    threshold."""
    item = {"kind": row.kind, **tool_call_item(row)}
    item["judge"] = {
        **(item["judge"] or {}),
        "threshold": number(row.judge_threshold),
        "error": row.judge_error,
    }
    return item


def chunk_item(row: Any, released: Sequence[JsonObject] | None = None) -> JsonObject:
    """A row of `chunk_log`, with what was written to the client while it was the newest chunk,
    where that is given."""
    item = {
        "call_id": str(row.call_id),
        "seq": row.seq,
        "at": time(row.at),
        **payload("raw", row.raw),
        **_same(row, ("verdict", "block")),
    }
    return item if released is None else {**item, "released": released}


def release_item(row: Any) -> JsonObject:
    """A row of `releases`."""
    return {
        **_same(row, ("number", "number_next", "seq")),
        "at": time(row.at),
        **payload("payload", row.payload),
        "sha256": bytes(row.sha256).hex(),
    }


def block_item(row: Any) -> JsonObject:
    """A row of `blocks`."""
    return {
        **_same(row, ("block", "kind", "verdict")),
        "reason": from_column(row.reason),
        "policy": row.policy,
        "rule": from_column(row.rule) if row.rule else None,
        "decided_at": time(row.at),
    }


def judgement_item(row: Any) -> JsonObject:
    """A row of `judgements`."""
    return {
        "block": row.block,
        "step": row.step,
        "at": time(row.at),
        "model": from_column(row.model),
        "policy": row.policy,
        "probability": number(row.probability),
        "threshold": number(row.threshold),
        "explanation": from_column(row.explanation),
        "prompt": to_text(row.prompt),
        "reply": to_text(row.reply),
        **_same(row, ("latency_ms", "attempts", "error")),
        **facts(row, "judgements"),
    }


def score_item(row: Any) -> JsonObject:
    """A row of `scores`."""
    return {
        **_same(row, ("block", "step")),
        "at": time(row.at),
        "monitor": from_column(row.monitor),
        "policy": from_column(row.policy),
        "value": number(row.value),
        "dims": _object(from_column(row.dims)),
        "why": from_column(row.why),
        "error": row.error,
        **_same(row, ("latency_ms", "input_tokens", "output_tokens")),
    }


def decision_item(row: Any) -> JsonObject:
    """A row of `decisions`."""
    return {
        **_same(row, ("block", "step")),
        "at": time(row.at),
        **_same(row, ("unit", "attempt")),
        "policy": from_column(row.policy),
        **_same(row, ("protocol", "action")),
        **{name: number(getattr(row, name)) for name in ("score", "threshold")},
        "reason": from_column(row.reason),
        "audit": row.audit or None,
        **{name: number(getattr(row, name)) for name in ("audit_rate", "audit_at", "u")},
        "audit_budget": row.audit_budget,
    }


def attempt_item(row: Any) -> JsonObject:
    """A row of `attempts`."""
    return {
        **_same(row, ("segment", "attempt")),
        "at": time(row.at),
        "kind": row.kind,
        "upstream": row.upstream,
        "model": from_column(row.model),
        **_same(row, ("first_seq", "end_seq", "chosen", "input_tokens", "output_tokens")),
        **_same(row, ("outcome", "status", "ms", "retry_after_ms", "cost_nanousd")),
    }


def only_attempt(row: Any, chunks: int) -> list[JsonObject]:
    """The attempt of a call without rows of `attempts`, made of its row of `call_log`: it went
    well, or nobody waited for its end. None where nothing came of an upstream."""
    if not (row.upstream and chunks):
        return []
    took = row.ended_at - row.created_at if row.ended_at is not None else None
    return [
        {
            "segment": 0,
            "attempt": 0,
            "at": time(row.ended_at),
            "kind": "first",
            **_same(row, ("upstream", "model")),
            "first_seq": 1,
            "end_seq": chunks,
            "chosen": True,
            **_same(row, ("input_tokens", "output_tokens", "cost_nanousd")),
            "outcome": "ok" if row.reason == "complete" else None,
            "status": 200,
            "ms": None if took is None else round(took.total_seconds() * 1000),
            "retry_after_ms": None,
        }
    ]


def event_item(row: Any) -> JsonObject:
    """A row of `events`."""
    return {
        "kind": from_column(row.kind),
        "number": row.number,
        "at": time(row.at),
        "detail": from_column(row.detail),
    }


def facts(row: Any, table: str) -> JsonObject:
    """What a row of a table holds of the record's `facts`; null where there is no row."""
    values = {column.name: getattr(row, column.name, None) for column in BY_NAME[table].facts}
    return {
        name: from_column(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def payload(name: str, data: bytes) -> JsonObject:
    """Return `name` as text, and `name`_base64 with the exact bytes when they are no UTF-8 (else
    None)."""
    try:
        data.decode()
        exact = None
    except UnicodeDecodeError:
        exact = base64.b64encode(data).decode()
    return {name: to_text(data), f"{name}_base64": exact}


def number(value: float | None) -> float | None:
    """Return a finite number or None: JSON has no NaN."""
    return None if value is None or not math.isfinite(value) else value


def text_or_none(data: bytes | None) -> str | None:
    """Return the text of stored bytes."""
    return None if data is None else to_text(data)


def _object(text: str) -> JsonObject | None:
    """The object that JSON text holds; a redacted one, or none, is null."""
    try:
        decoded = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, dict) else None


def _judge(row: Any) -> JsonObject | None:
    if row.judge_model is None:
        return None
    return {
        "model": row.judge_model,
        "probability": number(row.judge_probability),
        "explanation": row.judge_explanation,
        "prompt": text_or_none(row.judge_prompt),
        "reply": text_or_none(row.judge_reply),
        "latency_ms": row.judge_latency_ms,
        "attempts": row.judge_attempts,
    }
