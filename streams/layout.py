"""The only place that names a Redis key, a channel or an entry field.

Every key and channel of a call carries a shard tag, `sluice:{07}:...`; no script touches two
shards. The shard is the last byte of the call id, so whoever knows a call id knows its shard, and
changing the number of shards moves no open call.

    call:ID      stream   START (0-1), then what the gateway appends, each id being `seq-0`; read by
    workers body:ID      string   the request body; read by workers and the audit writer, which
    deletes it after the call's end ctl:ID       hash     the lease: t owner token, n next output, h
    hash at n, s last recorded seq, e dispatch entry,
                          w how many releases with bytes there are at n, `N:COUNT`,
                          p policy, r revision, k takeovers without an output, kn the n of the last,
                          i the owner is in a step of it that may be the owner's end,
                          o since when it waits for a worker that has its revision
    facts:ID     hash     write-once values: j:BLOCK:STEP judgement, c:BLOCK commit, t recorded
    turns beat:ID:...  string   a judge job's heartbeat gw:GATEWAY   string   the gateway is alive
    and has read its replies up to this id reply:GATEWAY stream  what workers release, for one
    gateway process committed    string   every audit entry below this id is in Postgres; also
    published on a channel of that name (strict durability) audit-trimmed string  how many audit
    entries were trimmed because they were committed: what else is missing, somebody took
    sets:GATEWAY string   the policy sets that the gateway names in START, its own first; for
    `sluice doctor` database     string   the id of the database that this Redis' records go to: who
    has another one does not work with it gateways     hash     the last heartbeat of each gateway,
    for `doctor` dispatch     stream   calls to claim; group `policy` audit        stream   records;
    group `audit` ended        stream   ids of calls that ended (field `c` each), the newest 100,000
    or so: what Postgres must hold to their end.
                          A gateway adds calls that Redis lost under it, with their packed `closed`
                          entry (field `b`)
    ended-checked string  up to which of its entries audit writers have looked calls up, for the
    first and for the last time: gateways
                          forget those calls. Expires
    debug        stream   lines of debug logs, and what gateways refused; group `debug`. It keeps
    the newest, in bounded memory debug-lost   string   how many of these lines are known to be lost
    memory       hash     what Redis holds for each API key until it is free
    (`streams.key_memory_scripts`) debug-seen   hash     what the audit writers have of each process:
    `SHARD PROCESS` how many of its lines were sent until then,
                          `lost PROCESS` how many it did not send

Channels (a hint; the stream or key is the truth, for what is published is heard in every database
of a Redis: `SELECT` parts keys and not channels): `in:ID` carries the bytes of each entry of
`call:ID`; `fact:ID` carries the field of a new fact; `waiting` is the wake-up for a call that
begins to wait for its commit.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from protocol.dialects.table import check_name
from protocol.errors import StreamProtocolError
from protocol.records import CallFacts
from protocol.request import DialectName, Endpoint

T = TypeVar("T")
POLICY_GROUP = "policy"
AUDIT_GROUP = "audit"
DEBUG_GROUP = "debug"
JUDGE_QUEUE = "sluice:{00}:judge"
JUDGE_WAKE_UPS = "sluice:{00}:judge-bell"
"""List: a token for each question wakes one idle judge at once; short, expires, and may be lost
(judges also poll)."""
JUDGE_TURNS = "sluice:{00}:judge-turns"
"""Sorted set: the questions that nobody has taken yet, in the order in which judges take them: keys
of clients in turn. A hint, expires."""
JUDGE_SHARES = "sluice:{00}:judge-shares"
"""Hash: `now`, the turn of the question that was taken last, and `key:NAME`, the next turn of each
key that asked. Expires too."""
JUDGE_TURNS_S = 700
"""How long both are kept after the last ask: longer than any deadline."""
JUDGE_REJECTED = "sluice:{00}:judge-rejected"
"""Jobs of the judge queue that were not JSON: somebody else writes to it. Expires a week after the
last."""
CACHED_JUDGEMENT_S = 86_400


def cached_judgement_key(key: str, digest: str) -> str:
    """String: what a judge answered a key for CACHED_JUDGEMENT_S, in one of its 4,096 places: the
    next question with that place takes it."""
    return f"sluice:{{00}}:judged:{key}:{digest[:3]}"


START_ID = "0-1"
CLOSED = "closed"
"""In place of an owner's token: the call has its end."""
RECORDED = b"a"
"""The field of a reply entry that names the audit entry with its records (strict durability)."""
BLOB = b"b"
"""The field of call, reply and audit entries: a msgpack blob. Reply and audit entries have one for
each call of a release."""
WORKERS_KEY = "sluice:{00}:workers"
"""Hash: heartbeats of worker processes, `role:name` to the last one in ms on Redis' clock
(`streams.heartbeats`).

Policy workers also write `policies:KIND:NAME`, KIND being a hash of all their policy revisions:
those alike can take each other's calls; `set:SET:NAME`, the policy set under which they begin
calls; and `series:POLICY@REVISION:NAME` for each revision they have, for people.
"""
DATABASE_KEY = "sluice:{00}:database"
PRIMARY_KEY = "sluice:{00}:primary"
"""The number of the primary that this Redis was when an audit writer last counted
(`streams.identity`); behind it `old` where a later one is known."""
OLD_PRIMARY = b"OLD"
"""What a heartbeat is answered there."""

GATEWAYS_KEY = "sluice:{00}:gateways"
"""Hash: the last heartbeat of each gateway, `AT TEXT`: ms on Redis' clock, and what is wrong with
it or nothing. Expires."""
WARNING = "warning: "
CHECKED_MS = 3_600_000
"""How long it is kept how far ended calls are checked, should no writer write it any more."""
GATEWAY_KNOWN_MS = 600_000
"""How long it is remembered that a gateway was there."""
GATEWAYS_TTL_MS = 6 * GATEWAY_KNOWN_MS

_CALL_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").fullmatch

BUDGETED = "budgeted"
"""Among `Start.numbers`: budgets limit the call."""
EntryKind = Literal["chunks", "body", "status", "eof", "failed", "closed", "see"]


def new_call_id(shards: int = 1) -> str:
    """Mint a UUIDv7 whose last byte is the call's shard (0 .. shards-1), chosen by the random
    part."""
    random = os.urandom(10)
    at, drawn = time.time_ns() // 1_000_000, random.hex()
    return f"{at >> 16:08x}-{at & 0xFFFF:04x}-7{drawn[:3]}-{'89ab'[random[9] & 3]}{drawn[3:6]}-{drawn[6:16]}{random[8] % shards:02x}"


def began_ms(call_id: str) -> int:
    """When a call began, in ms, as its id says."""
    return int(call_id[:8] + call_id[9:13], 16)


def time_ms(clock: Sequence[bytes | int]) -> int:
    """The answer to TIME in ms: what was written by one process and is compared by another must be
    on one clock."""
    return int(clock[0]) * 1000 + int(clock[1]) // 1000


def is_call_id(text: str) -> bool:
    """Is this the id of a call, as `new_call_id` writes it?"""
    return _CALL_ID(text) is not None


def shard_of(call_id: str) -> int:
    """Return the shard of a call."""
    return int(call_id[-2:], 16)


@cache
def tag(shard: int) -> str:
    """Return the common prefix of a shard's keys."""
    return f"sluice:{{{shard:02d}}}:"


_TAGS = {f"{shard:02x}": tag(shard) for shard in range(256)}
"""The prefix by the end of a call's id: looked up a dozen times a call."""


def call_key(call_id: str) -> str:
    """The call's stream."""
    return f"{_TAGS[call_id[-2:]]}call:{call_id}"


def body_key(call_id: str) -> str:
    """The request body."""
    return f"{_TAGS[call_id[-2:]]}body:{call_id}"


def body_prefix(shard: int) -> str:
    """What `body_key` of a shard's calls begins with."""
    return f"{tag(shard)}body:"


def ctl_key(call_id: str) -> str:
    """The lease and numbers of a call."""
    return f"{_TAGS[call_id[-2:]]}ctl:{call_id}"


def facts_key(call_id: str) -> str:
    """Judgements and commits, set once."""
    return f"{_TAGS[call_id[-2:]]}facts:{call_id}"


def chunk_channel(call_id: str) -> str:
    """Where the gateway publishes each entry of the call's stream."""
    return f"{_TAGS[call_id[-2:]]}in:{call_id}"


def facts_channel(call_id: str) -> str:
    """Where judges and audit writers publish which fact is new."""
    return f"{_TAGS[call_id[-2:]]}fact:{call_id}"


def judgement_field(block: int, step: int) -> str:
    """The fact that is the judgement for the `step`-th ask on `block`."""
    return f"j:{block}:{step}"


COMMITTED, USED, LATE = b"1", b"used", b"late"


def commit_field(block: int) -> str:
    """The fact that the tool call in `block` is `COMMITTED`, that another call had `USED` its
    approval by then, or that it is too `LATE`."""
    return f"c:{block}"


TURNS_FIELD = "t"
"""The fact that is what the record holds of turns in the request: a takeover sends what the first
owner sent."""

CALLS_FIELD = "s"
"""The fact that is what the session's calls on record are that the request does not have."""

ANSWERS_FIELD = "a"
"""The fact that is what the record holds of the answers that the request goes on with, likewise."""


def judge_job_id(call_id: str, block: int, step: int, attempt: int) -> str:
    """The arq job id of an ask: asking twice is one job."""
    return f"{call_id}:{block}:{step}:{attempt}"


def judge_beat_key(call_id: str, block: int, step: int) -> str:
    """Exists while a judge works on the ask."""
    return f"{_TAGS[call_id[-2:]]}beat:{call_id}:{block}:{step}"


def dispatch_key(shard: int) -> str:
    """The stream of calls to claim."""
    return f"{tag(shard)}dispatch"


@cache
def audit_key(shard: int) -> str:
    """The stream of records."""
    return f"{tag(shard)}audit"


def committed_key(shard: int) -> str:
    """The id below which every audit entry is committed."""
    return f"{tag(shard)}committed"


committed_channel = committed_key


def waiting_channel(shard: int) -> str:
    """Where a policy worker publishes that a call begins to wait for its commit: a wake-up for
    audit writers."""
    return f"{tag(shard)}waiting"


def trimmed_key(shard: int) -> str:
    """The number of audit entries that were trimmed after their commit."""
    return f"{tag(shard)}audit-trimmed"


def ended_key(shard: int) -> str:
    """The stream of calls that ended."""
    return f"{tag(shard)}ended"


def checked_key(shard: int) -> str:
    """How far audit writers have checked that the calls on `ended` are on record
    (`streams.ended_stream`)."""
    return f"{tag(shard)}ended-checked"


def debug_key(shard: int) -> str:
    """The stream of debug lines."""
    return f"{tag(shard)}debug"


def debug_lost_key() -> str:
    """How many debug lines did not come to Postgres."""
    return f"{tag(0)}debug-lost"


def debug_seen_key() -> str:
    """Hash: how far the debug lines of each process came."""
    return f"{tag(0)}debug-seen"


def counts_key(shard: int) -> str:
    """Hash: what was counted in calls that ended (`streams.metrics`), by name."""
    return f"{tag(shard)}counts"


def memory_key(shard: int) -> str:
    """Hash: what is charged to each API key (`streams.key_memory_scripts`)."""
    return f"{tag(shard)}memory"


def requests_key(subject: str) -> str:
    """Sorted set: the calls that an API key (its id) or a team (`team:` and its name) began in the
    last minute, by when; expires."""
    return f"{tag(0)}requests:{subject}"


def account_key(subject: str) -> str:
    """Hash: what a key, a team or a session used of its budgets (`streams.budget_scripts`);
    expires."""
    return f"{tag(0)}budget:a:{subject}"


def budget_lease_key(call_id: str) -> str:
    """String: of which accounts a call holds something; expires."""
    return f"{tag(0)}budget:l:{call_id}"


def budgets_cold_key() -> str:
    """Set: accounts that calls wait for."""
    return f"{tag(0)}budget:cold"


def budget_accounts_key() -> str:
    """Set: accounts that are compared with the record."""
    return f"{tag(0)}budget:accounts"


def budget_channel() -> str:
    """The wake-up for audit writers when an account is not there."""
    return f"{tag(0)}budget"


def unsealed_key() -> str:
    """The set of calls that an audit writer put off, as they take too long to be sealed: for the
    next, should that one die."""
    return f"{tag(0)}unsealed"


def run_id(of_server: str, database: int) -> str:
    """What tells one Redis, and one database in it, from another: it changes with each start of the
    server."""
    return f"{of_server}/{database}"


def old_primary(number: int | None) -> str:
    """The value of `PRIMARY_KEY` in an old primary."""
    return f"{number or 0} old"


def primary_number(value: bytes | None) -> int | None:
    """Read the number in `PRIMARY_KEY`; None where there is none."""
    number = (value or b"").partition(b" ")[0]
    return int(number) if number.isdigit() else None


def lasting_keys(shards: int) -> set[str]:
    """The keys that have no TTL; every other that has none is a leak."""
    of_shard = (dispatch_key, audit_key, trimmed_key, ended_key, counts_key, debug_key, memory_key)
    return {
        WORKERS_KEY,
        JUDGE_QUEUE,
        DATABASE_KEY,
        PRIMARY_KEY,
        unsealed_key(),
        debug_lost_key(),
        debug_seen_key(),
        budgets_cold_key(),
        budget_accounts_key(),
    } | {key(shard) for shard in range(shards) for key in of_shard}


@lru_cache(maxsize=1_000)
def gateway_key(shard: int, gateway: str) -> str:
    """Exists while the gateway lives; holds its last read reply id."""
    return f"{tag(shard)}gw:{gateway}"


def sets_key(gateway: str) -> str:
    """Which policy sets a gateway names, with blanks between them; expires after the gateway
    stopped."""
    return f"{tag(0)}sets:{gateway}"


@lru_cache(maxsize=1_000)
def reply_key(shard: int, gateway: str) -> str:
    """What the gateway relays."""
    return f"{tag(shard)}reply:{gateway}"


class GatewaySign(NamedTuple):
    """A gateway's last heartbeat: when (ms on Redis' clock), and what was wrong with it, in a
    sentence."""

    at: int
    trouble: str


def gateway_says(trouble: str, warnings: Sequence[str]) -> str:
    """Return what a gateway writes with its heartbeat: what keeps it from its work, or else all
    that should be looked at."""
    return trouble or (f"{WARNING}{'; '.join(warnings)}" if warnings else "")


def gateway_signs(shown: Mapping[bytes, bytes]) -> dict[str, GatewaySign]:
    """Read `GATEWAYS_KEY`, by name; what cannot be read is left out."""
    signs = {}
    for name, value in shown.items():
        at, _, trouble = value.decode(errors="replace").partition(" ")
        if at.isdecimal():
            signs[name.decode(errors="replace")] = GatewaySign(int(at), trouble)
    return signs


RETRIES = "retries"
"""Among a START's numbers: its gateway takes further attempts of one request (`Dispatch.attempt`).
Only said where a route may need one."""


class Start(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The first entry of a call's stream: all that a session needs besides the body. Times are Unix
    ms.

    A new field stands last and has a default: processes of two versions know the others by their
    places.
    """

    call_id: str
    at: int
    gateway: str
    dialect: DialectName
    endpoint: Endpoint
    key: str
    policies: tuple[str, ...]
    policy: str
    session: str
    nonce: str
    deadline: int
    betas: tuple[str, ...] = ()
    """The names in the client's anthropic-beta header."""
    server_tools: tuple[str, ...] = ()
    """Families of server tools that the key may use."""
    key_id: str
    """`Key.id`."""
    policy_sets: tuple[str, ...]
    """Under which sets of policies the call may begin: first the gateway's own. Empty: any, where
    the gateway was started without one."""
    body_sha256: bytes
    """Of the request body. After what the claim script reads: Lua cannot unpack bytes."""
    facts: CallFacts = CallFacts()
    """For the record."""
    numbers: dict[str, int] = {}
    """The key's own numbers (`Key.for_workers`)."""
    source: str = ""
    """The header that named the session (`protocol.conversations.sessions`); empty: none did."""
    agent: str = ""
    """Which agent of the session asks; empty: its first."""
    parent: str = ""
    """Who started that agent, or that session."""
    debug: int = 0
    """Which debug logs the call has, and how much of content they show: a mask
    (`protocol.debug`)."""
    project: tuple[str, ...] = ()
    """What the key's setting and the header `x-sluice-project` name as the project; none where neither
    does."""
    allowed: tuple[str, ...] = ()
    """Marks of calls that an admin allowed for the key for good (`gateway.call.allowed_calls`)."""

    def __post_init__(self) -> None:
        check_name(self.dialect)

    @property
    def payer(self) -> str:
        """To whom the memory of the call is charged."""
        return self.key_id


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What the gateway appends: `seq` is the number of the first of `chunks` (of the entry itself
    where there are none).

    chunks: SSE events as they came; body: a whole answer; status: an error answer, `number` the
    status, `text` its retry-after; eof: upstream is done; failed: `text` is an error code, also of
    the event that is recorded, and the one of `chunks` says what it is recorded with; body, eof:
    `text` is the code of such an event, or empty; closed: `text` the reason, `number` the last
    relayed output, a packed `Relayed` in `chunks`, nothing follows; see: only published, the entry
    itself is too large, read the stream.
    """

    seq: int
    at: int
    kind: EntryKind
    chunks: list[bytes] = []
    number: int = 0
    text: str = ""

    @property
    def next_seq(self) -> int:
        """The number of what comes after this entry."""
        return self.seq + (len(self.chunks) or 1)

    @property
    def detail(self) -> str:
        """What the event that `text` names is recorded with."""
        return (
            self.chunks[0].decode(errors="replace") if self.kind == "failed" and self.chunks else ""
        )


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway relayed of a call, packed as the one chunk of its `closed` entry."""

    releases: int
    """Replies with bytes."""
    sha256: bytes
    """Over `Reply.sha256` of each of them, in order."""
    keepalives: list[tuple[int, int]] = []
    """Before which session output keepalives were written, and how many."""
    own: bytes = b""
    """What the gateway wrote at the end that no reply's `data` held: its own error, or the last
    reply's `late`."""
    late: int = -1
    """The number of the release in whose place `own` was written; below 0: `own` came after what
    was relayed."""
    words: dict[int, list[str]] = {}
    """What each of the `keepalives` at an output says, where one of them says something."""


class Dispatch(msgspec.Struct, frozen=True, array_like=True):
    """Send the request upstream: the client's body as received where `body` is None. `upstream`
    names a configured provider."""

    upstream: str
    dialect: DialectName
    endpoint: Endpoint
    """As `Dialect.asked` names it: with the model where the upstream's path holds that."""
    body: bytes | None = None
    betas: tuple[str, ...] = ()
    """Names for the anthropic-beta header, joined with the upstream's configured ones."""
    sha256: bytes = b""
    """Of `body`; empty where there is none."""
    attempt: int = 0
    """Counts the attempts at one answer, from 0."""
    wait_ms: int = 0
    """To wait before it is sent."""
    reserve: tuple[int, int, int] | None = None
    """Of a budgeted call: how many tokens its answer may have, and the highest prices of an input
    and an output token (`protocol.usage.prices`), below 0 where nobody knows them."""

    def __post_init__(self) -> None:
        check_name(self.dialect)


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a worker releases: session outputs `number` .. `next - 1` of a call.

    `status` and `headers` come with the first reply that has content. `late` replaces `data` where
    headers are already out (an error becomes a frame). `end` is the reason with which the answer is
    complete, or empty. `processed` is the last seq the worker has taken in.
    """

    call_id: str
    number: int
    next: int
    status: int = 0
    headers: dict[str, str] = {}
    data: bytes = b""
    late: bytes = b""
    end: str = ""
    dispatch: Dispatch | None = None
    processed: int = 0
    keepalive: bool = False
    failed: str = ""
    """The owner gave the call up for this reason: the gateway ends it with an error of the client's
    dialect."""
    sha256: bytes = b""
    """Of `data`, as the record has it; empty where there is none, and of keepalives."""
    late_sha256: bytes = b""
    """Of `late`."""


_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What the decoder raises: also UnicodeDecodeError, and where bytes nest too deep."""
_encoder = msgspec.msgpack.Encoder()
_entry = msgspec.msgpack.Decoder(Entry)
_start = msgspec.msgpack.Decoder(Start)
_reply = msgspec.msgpack.Decoder(Reply)
_relayed = msgspec.msgpack.Decoder(Relayed)


def pack(value: Any) -> bytes:
    """Pack an entry or a reply."""
    return _encoder.encode(value)


def pack_start(start: Start) -> bytes:
    """Pack a START."""
    return _encoder.encode(start)


def unpack_entry(blob: bytes) -> Entry:
    """Raises StreamProtocolError."""
    return _unpack(_entry, blob)


def unpack_start(blob: bytes) -> Start:
    """Raises StreamProtocolError."""
    return _unpack(_start, blob)


def unpack_reply(blob: bytes) -> Reply:
    """Raises StreamProtocolError."""
    return _unpack(_reply, blob)


def unpack_relayed(blob: bytes) -> Relayed:
    """Raises StreamProtocolError."""
    return _unpack(_relayed, blob)


def unpack_dispatch(fields: Sequence[bytes]) -> tuple[str, int]:
    """Return the call of an entry on the dispatch stream, and until when it may be claimed (Unix
    ms). Raises StreamProtocolError."""
    values = dict(zip(fields[::2], fields[1::2], strict=False))
    try:
        call_id, due = values[b"c"].decode(), int(values[b"d"])
    except (KeyError, ValueError) as error:
        raise StreamProtocolError("an entry of the dispatch stream cannot be read") from error
    if not is_call_id(call_id):
        raise StreamProtocolError("an entry of the dispatch stream names no call")
    return call_id, due


def blobs(fields: Sequence[bytes]) -> list[bytes]:
    """Return what a reply or audit entry holds, one blob for each call of its release."""
    return [
        value for name, value in zip(fields[::2], fields[1::2], strict=False) if name != RECORDED
    ]


def call_of_reply(blob: bytes) -> str:
    """Return whose reply it is where only that can be read of it, else nothing."""
    try:
        fields = msgspec.msgpack.decode(blob)
    except _UNREADABLE:
        return ""
    return fields[0] if isinstance(fields, list) and fields and isinstance(fields[0], str) else ""


def is_other(data: bytes, digest: bytes) -> bool:
    """Are these bytes not those of the hash that came with them?"""
    return sha256(data).digest() != digest


def _unpack(decoder: "msgspec.msgpack.Decoder[T]", blob: bytes) -> T:
    try:
        return decoder.decode(blob)
    except _UNREADABLE as error:
        raise StreamProtocolError("an entry cannot be read") from error
