"""Records: values on their way to the audit log.

A worker packs the records of one call and tick as one msgpack array (`encode_records`); the audit
writer inserts them. Every record has a natural key, so inserting it twice is a no-op, and the same
key with other content is a conflict that is never silent. Times are Unix milliseconds. Text that
came from a model is kept as bytes: UTF-8 with surrogates passed through (`to_bytes`), because
PostgreSQL's text can hold neither U+0000 nor a lone surrogate.

Each field is a column of the record's table, declared here and nowhere else (`protocol.columns`,
`db.columns`). Must not know: Redis, SQL.
"""

import json
import operator
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

import msgspec

from protocol.columns import At, Column, Content, Name, Number, Tokens, Words
from protocol.errors import StreamProtocolError

VerdictName = Literal["allow", "block", "replace", "hold", "withheld", "discarded"]
"""`discarded`: of an attempt that was not chosen."""
PASSED: tuple[VerdictName, ...] = ("allow", "replace")
"""What these verdicts are about goes out; they stand in statements as they are here."""
UNCLAIMED = "unclaimed"
"""The reason of a call that no worker began: nothing of it but its end is on record. What is
missing of a call is judged by these two."""
WHY = "why"
"""The kind of event that says in a sentence why a tool call was decided as it was; its number is
the call's block."""
ASKED = "asked"
"""Likewise of a tool call that was blocked because nobody answered a rule that asks: its detail is
the mark with which an admin may allow such a call for good."""
STREAM_LOST = "stream_lost"
"""The reason of a call whose keys Redis has lost, or holds as something that cannot be read."""
MAX_USER_AGENT_CHARS = 200
_PIECE_BYTES = 64 * 1024


def to_bytes(text: str) -> bytes:
    """Return `text` as UTF-8 with lone surrogates passed through."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Return the text of `to_bytes`; bytes that are no UTF-8 at all come back as backslash
    escapes."""
    try:
        return _decoded(data, "surrogatepass")
    except UnicodeDecodeError:
        return _decoded(data, "backslashreplace")


def _decoded(data: bytes, errors: str) -> str:
    """Decode in pieces: what is no UTF-8 takes 0.1 us a byte, and no other thread runs within one
    piece."""
    parts, at = [], 0
    while len(data) - at > _PIECE_BYTES:
        end = at + _PIECE_BYTES
        # back to where a character may begin: none has more than three bytes like these behind its
        # first
        end = next((place for place in range(end, end - 4, -1) if data[place] & 0xC0 != 0x80), end)
        parts.append(data[at:end].decode("utf-8", errors))
        at = end
    return "".join([*parts, data[at:].decode("utf-8", errors)])


class _Record(
    msgspec.Struct, frozen=True, array_like=True, tag=True, kw_only=True, omit_defaults=False
):
    call_id: str


class CallFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway notes of a request for the record alone: one value from START to the row. Each
    field is a column of `calls`, shown with the call. What is new stands last and has a default,
    and a `since` of its own; what is empty at the end of START is not sent.
    """

    user_agent: Annotated[str, Column(is_content=True)] = ""
    """The header of that name, up to 200 characters; empty: none."""
    team: Annotated[str | None, Column(since=3, is_indexed=True)] = None
    """`Key.team`."""


class CallStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a policy worker knew of START beside the columns: with it and the body a call can be
    gone through again. In `calls.start` as JSON, because it is read as one, and what START says
    later then needs no column."""

    nonce: str
    betas: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()


class JudgementFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a judge notes of an answer for the record alone, likewise: one value from the judge to
    the row of `judgements`."""

    input_tokens: Annotated[int | None, Column("int8")] = None
    """What the judge's model counted of the last answer; None: it did not say, or no model was
    asked."""
    output_tokens: Annotated[int | None, Column("int8")] = None


class CallRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="call", kw_only=True, omit_defaults=False
):
    """A call was claimed. Key: call_id. The request body is read from Redis by the audit writer
    (`body` key of the layout).

    Inherits nothing: inherited fields are the last on the wire, and so must be those that came
    later. Processes of two versions meet.
    """

    table: ClassVar[str] = "calls"
    at: At
    dialect: str
    endpoint: str
    key: Name
    session: Annotated[str, Column(is_content=True, is_indexed=True)]
    model: Name
    upstream: str
    policy: Name
    policy_revision: str
    stream: bool
    gateway: str
    call_id: str
    key_id: Annotated[str, Column(is_indexed=True)]
    """`Key.id`."""
    policy_set: Annotated[str, Column(is_indexed=True)]
    """The set of policies of the worker that began the call."""
    body_sha256: Annotated[bytes | None, Column(is_content=True)]
    """Of the request body, as the gateway took it; None where none did, as in an evaluation."""
    facts: CallFacts
    start: Annotated[str, Column(is_content=True)]
    """`CallStart`."""


class ChunksRecord(_Record, frozen=True, tag="chunks"):
    """Chunks as they came, `raw[i]` having number `seq + i`. Key: (call_id, seq).

    `verdicts[i]` is what was known when the chunk was processed (`hold`: the verdict of its block
    decides); `blocks[i]` is the index of the content block the chunk belongs to, -1 for none.
    """

    table: ClassVar[str] = "chunks"
    seq: Number
    at: At
    raw: Annotated[list[bytes], Column(is_content=True)]
    verdicts: Annotated[list[VerdictName], Column(name="verdict")]
    blocks: Annotated[list[int], Column(name="block")]


class ReleaseRecord(_Record, frozen=True, tag="release"):
    """Bytes handed to the client. Key: (call_id, number). Covers session outputs up to
    `number_next` and upstream chunks up to `seq`."""

    table: ClassVar[str] = "releases"
    number: Number
    number_next: int
    at: At
    seq: int
    payload: Content
    sha256: Content
    """Of `payload`. The plain hash of a short payload gives it away as well as the payload."""


class BlockRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="block", kw_only=True, omit_defaults=False
):
    """The verdict on a content block that is not a tool call. Key: (call_id, block). Inherits
    nothing, as `CallRecord`."""

    table: ClassVar[str] = "blocks"
    block: Number
    at: At
    kind: str
    verdict: VerdictName
    reason: Annotated[str, Column(is_content=True, is_searched=True)]
    policy: Name
    call_id: str
    rule: Annotated[str | None, Column(is_content=True)] = None
    """Which rule of the policy decided; None: none. A policy of somebody's own may quote the
    model in it, as in a reason."""


class ToolCallRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="tool_call", kw_only=True, omit_defaults=False
):
    """A complete tool call with its verdict. Key: (call_id, block). `notify` asks the audit writer
    to announce the commit.

    `index` counts tool calls of the call from 0; `arguments` is the exact text upstream sent
    (`to_bytes`), `released_arguments` what the client gets (None: withheld); `policy` names the
    hook's policy that decided. Inherits nothing, as `CallRecord`.
    """

    table: ClassVar[str] = "tool_calls"
    block: Number
    index: int
    at: At
    tool_call_id: Name
    name: Annotated[str, Column(is_content=True, is_indexed=True)]
    """The model writes it, and a whole call can stand in it."""
    arguments: Content
    released_arguments: Annotated[bytes | None, Column(is_content=True)]
    executor: Literal["client", "provider", "mcp", "nested", "mcp_pending"]
    form: Literal["native", "legacy", "prompt"]
    verdict: VerdictName
    reason: Words
    policy: Name
    choice: Annotated[int, Column(before="at")] = 0
    schema_valid: bool | None = None
    notify: Annotated[bool, Column(is_stored=False)] = False
    call_id: str
    rule: Annotated[str | None, Column(is_content=True)] = None
    """Which rule of the policy decided, as of `BlockRecord`."""


class ToolReleaseRecord(_Record, frozen=True, tag="tool_release"):
    """A tool call went out, or the notice in its place: the call where its last verdict is allow or
    replace. Key: (call_id, block)."""

    table: ClassVar[str] = "tool_releases"
    block: Number
    at: At


class JudgementRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="judgement", kw_only=True, omit_defaults=False
):
    """A judge's answer, for allows too. Key: (call_id, block, step): `step` counts the asks on that
    block from 0.

    `error` names why there is no probability (`deadline`, `invalid`, `unavailable`, ...), else it
    is empty. Inherits nothing, as `CallRecord`.
    """

    table: ClassVar[str] = "judgements"
    block: Number
    step: Number
    at: At
    model: str
    policy: Name
    probability: float | None
    threshold: float
    explanation: Words
    prompt: Content
    reply: Content
    latency_ms: int
    attempts: int
    error: str = ""
    call_id: str
    facts: JudgementFacts = JudgementFacts()


class ScoreRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="score", kw_only=True, omit_defaults=False
):
    """What a monitor measured of a content block. Key: (call_id, block, step): `step` counts the
    scores of that block from 0.

    `value` is from 0 to 1, higher is worse; None: it abstained, or `error` names why there is none.
    `dims` is a JSON object of what it measured besides. Who asked a judge says how long that took
    and what it was counted; the judgement has the rest.
    """

    table: ClassVar[str] = "scores"
    call_id: str
    block: Number
    step: Number
    at: At
    monitor: Name
    policy: Name
    """The policy of the series whose monitor it is."""
    value: float | None
    dims: Words
    why: Words
    error: str
    latency_ms: int | None = None
    input_tokens: Tokens = None
    output_tokens: Tokens = None


class DecisionRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="decision", kw_only=True, omit_defaults=False
):
    """What a protocol made of scores. Key: (call_id, block, step): `step` counts the decisions on
    that block from 0.

    `unit` is what was decided about, a call or the rest of a turn, in its `attempt`. `score` is
    that of all monitors together, None where none gave one or none was needed; `threshold` the step
    that it reached.

    What chooses it for an audit can be computed again from the record (`protocol.sampling`):
    `audit_rate` and `audit_at` are the rule, `u` is what was drawn, `audit_budget` how many audits
    a day there are at most. All are None where the protocol asks for no audits.
    """

    table: ClassVar[str] = "decisions"
    call_id: str
    block: Number
    step: Number
    at: At
    unit: Literal["call", "turn"]
    attempt: int
    policy: Name
    protocol: str
    action: str
    score: float | None
    threshold: float | None
    reason: Words
    audit: Literal["", "sampled", "suspicion"] = ""
    """Why a person should look at it: by lot, or for its score; the second where both are so."""
    audit_rate: float | None = None
    audit_at: float | None = None
    audit_budget: int | None = None
    u: float | None = None


class AttemptRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="attempt", kw_only=True, omit_defaults=False
):
    """One upstream answer to a request of the call. Key: (call_id, segment, attempt). Only calls
    that were sent more than once have them.

    `kind` says what it was made for (`first`, `retry`, `defer`, `continue`), `first_seq` and
    `end_seq` which chunks are its own; `chosen`: it went out.
    """

    table: ClassVar[str] = "attempts"
    call_id: str
    segment: Number
    attempt: Number
    at: At
    kind: str
    upstream: str
    model: Name
    first_seq: int
    end_seq: int
    chosen: bool
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    outcome: Annotated[str | None, Column(since=2)] = None
    """What came of it: `ok`, or how it failed (`policy.session.routes.failures`)."""
    status: Annotated[int | None, Column(since=2)] = None
    """Of the upstream's answer; None where none came."""
    ms: Annotated[int | None, Column(since=2)] = None
    """From when it was to be sent to its end."""
    retry_after_ms: Annotated[int | None, Column(since=2)] = None
    """What the upstream asked to wait, up to a minute."""
    cost_nanousd: Annotated[int | None, Column("int8", since=2)] = None
    """What it cost."""


class EndRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="end", kw_only=True, omit_defaults=False
):
    """The call is over: exactly one per call. Key: call_id. Inherits nothing, as `CallRecord`.

    `state` is ENDED or FAILED, `reason` a stable word (complete, refused, client_gone,
    gateway_lost, an error code); `status` the HTTP status of the answer; `relayed` the last session
    output the gateway relayed.

    The sums say what the record of a whole call holds; None: whoever wrote the end did not know.
    """

    table: ClassVar[str] = "ends"
    at: At
    state: Literal["ENDED", "FAILED"]
    reason: str
    status: int
    stop_reason: str = ""
    relayed: int = 0
    input_tokens: Tokens = None
    output_tokens: Tokens = None
    cache_read_tokens: Tokens = None
    cache_write_tokens: Tokens = None
    thinking_tokens: Tokens = None
    call_id: str
    chunks: int | None = None
    """How many chunks came."""
    releases: int | None = None
    """How many releases with bytes went out to the gateway."""
    decisions: int | None = None
    """How many rows tell of content blocks and tool calls: of `blocks`, `tool_calls`,
    `tool_releases`, `judgements`, `scores`, `decisions` and `attempts`."""
    relayed_sha256: Annotated[bytes | None, Column(is_content=True)] = None
    """What the gateway itself says it relayed: SHA-256 over `ReleaseRecord.sha256` of each release
    up to `relayed`, in order."""
    charged_tokens: Annotated[int | None, Column("int8", since=3)] = None
    """What budgets count: tokens of all kinds, also those that judges took, also where they are
    estimated."""
    cost_nanousd: Annotated[int | None, Column("int8", since=3)] = None
    """What the answer cost, in billionths of a dollar; None: nobody knows what the model costs."""
    judge_nanousd: Annotated[int | None, Column("int8", since=3)] = None
    """What judges cost besides, likewise; None where no judge's price is known."""
    is_estimated: Annotated[bool | None, Column(since=3)] = None
    """Are these by an estimate of what came, as the upstream never counted it?"""
    settles: Annotated[bool, Column(is_stored=False)] = False
    """Does a budget wait for it?"""


class EventRecord(_Record, frozen=True, tag="event"):
    """Something worth knowing about a call: takeover, fenced, withheld, fault, ... Key: (call_id,
    kind, number)."""

    table: ClassVar[str] = "events"
    kind: Annotated[str, Column(is_key=True, is_indexed=True)]
    number: Annotated[int, Column("int8", is_key=True)]
    at: At
    detail: Words


class ApprovalRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="approval", kw_only=True, omit_defaults=False
):
    """A tool call waits for people. Key: (call_id, block). Its fields are the parameters of the
    function that stores it (`sluice_ask_people`), in order; times are seconds.

    `binding` is the SHA-256 of all that a decision is bound to, `binding_without_policy` of all but
    the policies' revision. `approvers`: names, a line each.
    """

    table: ClassVar[str] = "approvals"
    approval_id: str
    call_id: str
    block: Number
    expires_s: int
    use_within_s: int
    deny_for_s: int
    binding: bytes
    binding_without_policy: bytes
    key: str
    key_id: str
    session: str
    policy: str
    revision: str
    tool: str
    server: str
    executor: str
    arguments: bytes
    rule: str
    why: str
    need: int
    approvers: str


class ApprovalUseRecord(
    msgspec.Struct, frozen=True, array_like=True, tag="use", kw_only=True, omit_defaults=False
):
    """A tool call is released by an approval, which no other call can use then. Key: (call_id,
    block)."""

    table: ClassVar[str] = "approvals"
    approval_id: str
    call_id: str
    block: Number


Record = (
    CallRecord
    | ChunksRecord
    | ReleaseRecord
    | BlockRecord
    | ToolCallRecord
    | ToolReleaseRecord
    | JudgementRecord
    | EndRecord
    | EventRecord
    | ScoreRecord
    | DecisionRecord
    | AttemptRecord
    | ApprovalRecord
    | ApprovalUseRecord
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])
_call_id = operator.attrgetter("call_id")
_SURROGATES, _LARGE_INT = 1, 2
"""Codes of what msgpack itself cannot hold: text with lone surrogates (`to_bytes`), and integers
past 64 bits (hexadecimal)."""
_TEXTS: dict[object, list[int]] = {
    kind.__struct_config__.tag: [
        place
        for place, name in enumerate(kind.__struct_fields__, 1)
        if get_type_hints(kind)[name] is str
    ]
    for kind in get_args(Record)
}
"""By tag: where in a packed record there is text."""


def encode_records(records: list[Record]) -> bytes:
    """Pack the records of one call and tick. Never raises on what a session can hold, whatever an
    upstream or a policy made of it."""
    try:
        return _encoder.encode(records)
    except (ValueError, OverflowError, TypeError, RecursionError):
        return _encoder.encode([_packable(record) for record in records])


def decode_records(blob: bytes) -> list[Record]:
    """Unpack `encode_records`. Raises StreamProtocolError on anything else."""
    records, unreadable = read_records(blob)
    if unreadable:
        raise StreamProtocolError("no records")
    return records


def call_ids(records: Sequence[Record]) -> set[str]:
    """The calls that these records are of."""
    return set(map(_call_id, records))


def read_records(blob: bytes) -> tuple[list[Record], list[bytes]]:
    """Unpack `encode_records`; also returns each item that is no record, packed, so that the others
    can land.

    A field that should be text and is something else (a policy's `Block(5)`) becomes its JSON.
    Raises StreamProtocolError on what holds no records at all.
    """
    try:
        return _decoder.decode(blob), []
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        items = msgspec.msgpack.decode(blob, type=list[Any], ext_hook=_unpacked)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StreamProtocolError("no records") from error
    records: list[Record] = []
    unreadable: list[bytes] = []
    for item in items:
        try:
            records.append(_record(item))
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError):
            unreadable.append(_encoder.encode(_packable_value(item)))
    return records, unreadable


def _packable(record: Record) -> list[object]:
    return [
        record.__struct_config__.tag,
        *(_packable_value(getattr(record, name)) for name in record.__struct_fields__),
    ]


def _packable_value(value: object) -> object:
    """What msgpack can hold of any value, losslessly where it is text, bytes, a number or a list of
    those."""
    match value:
        case str() if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return msgspec.msgpack.Ext(_SURROGATES, to_bytes(value))
            return value
        case int() if not -(2**63) <= value < 2**64:
            return msgspec.msgpack.Ext(_LARGE_INT, b"%x" % value)
        case list() | tuple():
            return list(map(_packable_value, value))
        case CallFacts() | JudgementFacts():
            return list(map(_packable_value, msgspec.structs.astuple(value)))
        case None | str() | int() | float() | bytes():
            return value
        case _:
            # nothing that the engine makes; a policy's own object is kept as it shows itself
            return _packable_value(repr(value))


def _unpacked(code: int, data: memoryview) -> object:
    match code:
        case 1:
            return to_text(bytes(data))
        case 2:
            return int(bytes(data), 16)
        case _:
            raise ValueError("unknown extension")


def _record(item: list[object]) -> Record:
    """Raises msgspec.ValidationError, TypeError, LookupError on what is none."""
    mended = list(item)
    for place in _TEXTS[item[0]]:
        if place < len(mended) and not isinstance(value := mended[place], str):
            mended[place] = (
                to_text(value)
                if isinstance(value, bytes)
                else json.dumps(value, ensure_ascii=False, default=repr)
            )
    record: Record = msgspec.convert(mended, Record)
    return record
