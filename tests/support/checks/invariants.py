"""The invariants of one call, checked from outside: what its client got, what the record says, what
Redis still holds.

After a case is over, for each call a test made:

    left = settle(connection, redis)  # waits until everything is on record and nothing is pending
    seen = Seen("openai", streams=True, status=200, body=received, whole=True, call_id=...,
    elapsed_s=...) faults = call_faults(seen, read_call(connection, seen.call_id),
    upstream=sent_by_upstream, deadline_s=30) assert not faults + left

Each function returns sentences that begin with the invariant's name, an empty list when all is
well:

    I1  every byte the client got was released, with an equal hash: the payloads on record, in the
    order of their numbers, are what
        the client got; a client whose connection broke, or that was told of an error, got a
        beginning of them
    I2  numbers of releases do not overlap, those of chunks have no gap I3  every chunk that
    upstream sent up to the end is on record with a verdict, and so are the call, its request and
    its end I4  each tool call the client got is on record as allowed, with the same arguments, and
    as released; nothing of others went out I5  one terminal on the wire, in the client's dialect
    (or a true error status before the first byte), and one in the record I6  no key without TTL
    beyond the fixed set, nothing pending in a group, nothing left on the streams, no dead letter I7
    an end within the deadline I8  the end's sums are those of the rows: how many chunks came and
    releases went out, and the gateway's own hash over what it
        relayed, of which the client got a beginning; no call is marked as incomplete. Where nobody
        could say a sum, it is not compared

Conflicts (same key, other content) are counted by the audit writers: a test looks at
`AuditWriter.conflicts`, or for "audit conflict" in their logs. How often upstreams and judges were
asked, only the test that plays them knows.
"""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import psycopg

from protocol.records import to_text
from protocol.request import DialectName
from streams import layout
from tests.support.checks.order import (
    check_chat_frames,
    check_messages_frames,
    check_responses_frames,
)
from tests.support.json_values import Json
from workers.judge_queue import keys_of

Connection = psycopg.Connection[Any]
_ENDS: dict[str, tuple[bytes, ...]] = {
    "openai": (b"data: [DONE]",),
    "anthropic": (b"event: message_stop\n",),
    "responses": (b"event: response.completed\n", b"event: response.incomplete\n"),
}
_FAILED: dict[str, bytes] = {
    "openai": b'data: {"error"',
    "anthropic": b"event: error\n",
    "responses": b"event: response.failed\n",
}
_CHECKS = {
    "openai": check_chat_frames,
    "anthropic": check_messages_frames,
    "responses": check_responses_frames,
}
KEEPALIVES = (b": keepalive", b'event: ping\ndata: {"type": "ping"}')
_WAITING = re.compile(rb": waiting for [^\n]*\n?")
"""What a keepalive says."""
_ID = re.compile(r"[A-Za-z0-9_./~-][\w.:/@+=~-]{0,255}", re.ASCII)
_MADE_ID = re.compile("call_[0-9a-f]{24}")
"""What a client gets for an id that is none, which is on record as it came."""
_DECIDED = ("allow", "block", "replace", "withheld", "discarded")


@dataclass
class Seen:
    """What a client saw. `whole`: its connection ended as HTTP says, it did not break; `status` 0:
    no answer at all."""

    dialect: DialectName
    streams: bool
    status: int = 0
    body: bytes = b""
    whole: bool = True
    call_id: str = ""
    elapsed_s: float = 0.0

    @property
    def content(self) -> bytes:
        """The body without keepalives, which are in no record."""
        return _without_keepalives(self.body) if self.streams and self.status == 200 else self.body

    @property
    def frames(self) -> list[bytes]:
        """The frames of a stream without their empty lines; a last one that is cut stays."""
        return [f for f in self.content.split(b"\n\n") if f]

    @property
    def released(self) -> bytes:
        """The bytes that must be on record: those before the terminal, where that is an error
        frame."""
        if not _has_failed(self):
            return self.content
        frames = self.frames[:-1]
        if frames and frames[-1].startswith(b"event: error\n"):
            # of Responses: an error is said in two frames
            frames.pop()
        return b"".join(f + b"\n\n" for f in frames)


def _without_keepalives(body: bytes) -> bytes:
    *frames, rest = body.split(b"\n\n")
    if any(keepalive.startswith(rest) for keepalive in KEEPALIVES):
        rest = b""
    return b"".join(f + b"\n\n" for f in frames if not is_keepalive(f)) + rest


def is_keepalive(frame: bytes) -> bool:
    """Is it nothing but a keepalive, whatever that says?"""
    return _WAITING.sub(b"", frame) in (b"", *KEEPALIVES)


@dataclass
class Recorded:
    """A call's rows."""

    call: Any = None
    body: bytes | None = None
    end: Any = None
    chunks: list[tuple[int, bytes, str]] = field(default_factory=list)
    releases: list[tuple[int, int, bytes, bytes]] = field(default_factory=list)
    tools: list[Json] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    taken_over: list[float] = field(default_factory=list)
    """When it was, each time, by the clock of the worker that took it (Unix seconds)."""
    sums: tuple[int | None, int | None, bytes | None] = None, None, None
    """What the end says: how many chunks, how many releases, and the hash over the hashes of the
    releases that were relayed."""

    @property
    def says_what_was_relayed(self) -> bool:
        """Did a gateway say it, in the call's end or beside it?"""
        return self.sums[2] is not None or any(kind == "relayed" for kind, _ in self.events)

    @property
    def payload(self) -> bytes:
        """What the record says the client got."""
        return b"".join(payload for _, _, payload, _ in self.releases)


def read_call(connection: Connection, call_id: str) -> Recorded:
    """Read a call's rows."""

    def rows(query: str) -> list[Any]:
        return connection.execute(query.encode(), (call_id,)).fetchall()

    made = Recorded()
    made.call = next(
        iter(rows("SELECT policy, policy_revision, stream FROM calls WHERE call_id = %s")), None
    )
    made.body = next(
        (bytes(b) for (b,) in rows("SELECT body FROM request_bodies WHERE call_id = %s")), None
    )
    for *end, chunks, releases, relayed in rows(
        "SELECT state, reason, status, relayed, chunks, releases, relayed_sha256 FROM ends WHERE"
        " call_id = %s"
    ):
        made.end, made.sums = tuple(end), (chunks, releases, relayed)
    made.chunks = [
        (s, bytes(r), v)
        for s, r, v in rows(
            "SELECT seq, raw, verdict FROM chunk_log WHERE call_id = %s ORDER BY seq"
        )
    ]
    made.releases = [
        (n, m, bytes(p), bytes(h))
        for n, m, p, h in rows(
            "SELECT number, number_next, payload, sha256 FROM releases WHERE call_id = %s ORDER BY"
            " number"
        )
    ]
    names = ("id", "name", "arguments", "released", "verdict", "reason", "released_at", "executor")
    columns = (
        "tool_call_id, name, arguments, released_arguments, verdict, reason, released_at, executor"
    )
    made.tools = [
        dict(zip(names, row, strict=True))
        for row in rows(f"SELECT {columns} FROM tool_call_log WHERE call_id = %s ORDER BY block")
    ]
    events = rows(
        "SELECT kind, detail, extract(epoch FROM at)::float8 FROM events WHERE call_id = %s ORDER"
        " BY kind, number"
    )
    made.events = [(kind, detail) for kind, detail, _ in events]
    made.taken_over = [at for kind, _, at in events if kind == "takeover"]
    return made


def call_faults(
    seen: Seen,
    recorded: Recorded,
    *,
    upstream: bytes | None = None,
    unapproved: Sequence[bytes] = (),
    deadline_s: float | None = None,
) -> list[str]:
    """Check all of one call but I6. `upstream`: all that it was sent; `unapproved`: bytes that must
    not come through."""
    found = _released_faults(seen, recorded)
    found += _chunk_faults(recorded, upstream)
    found += _tool_faults(seen, recorded)
    found += [f"I4: the client got {marker!r}" for marker in unapproved if marker in seen.body]
    found += _wire_faults(seen)
    found += sum_faults(seen, recorded)
    if recorded.end is None:
        found.append("I5: no terminal record")
    if deadline_s is not None and seen.elapsed_s > deadline_s:
        found.append(f"I7: ended after {seen.elapsed_s:.2f} s, not within {deadline_s:g} s")
    return found


def _released_faults(seen: Seen, recorded: Recorded) -> list[str]:
    found = [
        f"I1: release {n} has another hash"
        for n, _, payload, digest in recorded.releases
        if sha256(payload).digest() != digest
    ]
    end = -1
    for number, following, _, _ in recorded.releases:
        if number < end or following < number:
            found.append(f"I2: release {number} overlaps the one before")
        end = following
    payload = recorded.payload
    if seen.content == payload:
        return found
    if seen.status != 200 and not payload.startswith(seen.body):
        # before the first byte the gateway may answer by itself, in its own words
        return (
            found
            if _is_error_body(seen)
            else [*found, "I1: an error answer that is neither on record nor the gateway's own"]
        )
    if not payload.startswith(seen.released):
        found.append(
            f"I1: the client got what is not on record: {difference(seen.released, payload)}"
        )
    elif seen.whole and not _has_failed(seen) and seen.released != payload:
        found.append(
            f"I1: a whole answer is {len(seen.released)} bytes, the record has {len(payload)}"
        )
    return found


def difference(got: bytes, recorded: bytes) -> str:
    """Where two that should be the same first are not."""
    at = next(
        (n for n, (a, b) in enumerate(zip(got, recorded, strict=False)) if a != b),
        min(len(got), len(recorded)),
    )
    return f"at byte {at}: {got[at : at + 80]!r}, on record {recorded[at : at + 80]!r}"


def _chunk_faults(recorded: Recorded, upstream: bytes | None) -> list[str]:
    found = [
        f"I3: chunk {s} has no verdict"
        for s, _, verdict in recorded.chunks
        if verdict not in _DECIDED
    ]
    expected = 1
    for seq, _, _ in recorded.chunks:
        # the end of an answer has a number too: with a continued turn one is left out
        if seq not in (expected, expected + 1) or (seq > expected == 1):
            found.append(f"I2: chunk {seq} follows {expected - 1}")
        expected = seq + 1
    complete = recorded.end is not None and recorded.end[1] == "complete"
    if recorded.call is None and recorded.end is not None and recorded.end[1] != "unclaimed":
        found.append("I3: an end without its call")
    if recorded.call is not None and recorded.body is None:
        found.append("I3: the request body is not on record")
    came = b"".join(raw for _, raw, _ in recorded.chunks)
    if upstream is not None and not (
        came == upstream or (not complete and upstream.startswith(came))
    ):
        found.append(
            f"I3: of {len(upstream)} bytes from upstream {len(came)} are on record:"
            f" {difference(came, upstream)}"
        )
    return found


def sum_faults(seen: Seen, recorded: Recorded) -> list[str]:
    """Check I8 of one call."""
    found = [
        f"I8: marked as incomplete: {detail}"
        for kind, detail in recorded.events
        if kind == "incomplete"
    ]
    chunks, releases, relayed = recorded.sums
    for sum_, rows, what in (
        (chunks, recorded.chunks, "chunks came"),
        (releases, recorded.releases, "releases went out"),
    ):
        if sum_ is not None and sum_ > len(rows):
            found.append(f"I8: {sum_} {what}, {len(rows)} are on record")
    if relayed is None or recorded.end is None:
        return found
    written = [release for release in recorded.releases if release[1] <= recorded.end[3]]
    if sha256(b"".join(digest for *_, digest in written)).digest() != relayed:
        found.append(
            f"I8: the gateway relayed something else than the {len(written)} releases up to"
            f" {recorded.end[3]}"
        )
    if seen.status == 200 and not b"".join(payload for _, _, payload, _ in written).startswith(
        seen.released
    ):
        found.append("I8: the client got what its gateway has not relayed")
    return found


def _tool_faults(seen: Seen, recorded: Recorded) -> list[str]:
    found = []
    approved = {
        t["id"]: t
        for t in recorded.tools
        if t["verdict"] in ("allow", "replace") and t["executor"] == "client"
    }
    for identity, name, arguments, whole in calls_of(seen):
        row = approved.get(identity)
        if row is None and _MADE_ID.fullmatch(identity):
            row = next(
                (
                    t
                    for key, t in approved.items()
                    if not _ID.fullmatch(key or "") and t["name"] == name
                ),
                None,
            )
        if row is None or row["name"] != name:
            found.append(
                f"I4: the client got a call of {name!r} that is on record as"
                f" {[t['verdict'] for t in recorded.tools]}"
            )
        elif not _same(arguments, to_text(bytes(row["released"] or b"")), whole=whole):
            found.append(f"I4: other arguments than on record: {arguments[:80]!r}")
        elif row["released_at"] is None:
            found.append(f"I3: the release of {name!r} is not on record")
    # one that was found in text has no id
    withheld = [
        t
        for t in recorded.tools
        if t["id"] and t["id"] not in approved and t["executor"] == "client"
    ]
    found += [
        f"I4: the client got the id of a call that was not approved: {t['id']}"
        for t in withheld
        if t["id"].encode() in seen.body
    ]
    return found


def _same(arguments: str, released: str, *, whole: bool) -> bool:
    if not whole:
        return released.startswith(arguments)
    if arguments == released:
        return True
    try:
        return bool(json.loads(arguments or "{}") == json.loads(released or "{}"))
    except ValueError:
        return False


def calls_of(seen: Seen) -> list[tuple[str, str, str, bool]]:
    """Id, name, arguments of each call the client has, and whether all of it came."""
    if seen.status != 200:
        return []
    if not seen.streams:
        return [(*c, True) for c in _whole_calls(seen)] if seen.whole and seen.body else []
    calls: dict[tuple[int, int], list[str]] = {}
    done = seen.whole and not _has_failed(seen)
    for frame in _values(seen):
        _TAKE[seen.dialect](calls, frame)
    return [(c[0], c[1], c[2], done) for c in calls.values()]


def _take_block(calls: dict[tuple[int, int], list[str]], frame: Json) -> None:
    if frame.get("type") == "content_block_start" and frame["content_block"]["type"] == "tool_use":
        calls[0, frame["index"]] = [
            frame["content_block"]["id"],
            frame["content_block"]["name"],
            "",
        ]
    elif frame.get("type") == "content_block_delta" and (0, frame["index"]) in calls:
        calls[0, frame["index"]][2] += frame["delta"].get("partial_json", "")


def _take_chunk(calls: dict[tuple[int, int], list[str]], frame: Json) -> None:
    for choice in frame.get("choices", ()):
        for part in choice["delta"].get("tool_calls") or ():
            place = choice["index"], part["index"]
            said = part.get("function") or part.get("custom") or {}
            if place not in calls:
                calls[place] = [part.get("id", ""), said.get("name", ""), ""]
            calls[place][2] += said.get("arguments") or said.get("input") or ""


def _take_item(calls: dict[tuple[int, int], list[str]], frame: Json) -> None:
    kind, place = frame.get("type"), (0, frame.get("output_index", 0))
    if kind == "response.output_item.added" and frame["item"]["type"] == "function_call":
        calls[place] = [frame["item"]["call_id"], frame["item"]["name"], frame["item"]["arguments"]]
    elif kind == "response.function_call_arguments.delta":
        calls[place][2] += frame["delta"]


_TAKE = {"openai": _take_chunk, "anthropic": _take_block, "responses": _take_item}


def _whole_calls(seen: Seen) -> list[tuple[str, str, str]]:
    answer = json.loads(seen.body)
    if seen.dialect == "anthropic":
        return [
            (b["id"], b["name"], json.dumps(b["input"]))
            for b in answer.get("content", ())
            if b["type"] == "tool_use"
        ]
    if seen.dialect == "responses":
        return [
            (i["call_id"], i["name"], i["arguments"])
            for i in answer.get("output", ())
            if i["type"] == "function_call"
        ]
    calls = [
        c for choice in answer.get("choices", ()) for c in choice["message"].get("tool_calls") or ()
    ]
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def frames_of(seen: Seen) -> list[Json]:
    """The JSON of a stream's frames, or of a whole answer; what is cut is left out."""
    if seen.streams:
        return _values(seen)
    try:
        return [json.loads(seen.body)]
    except ValueError:
        return []


def _values(seen: Seen) -> list[Json]:
    """The frames that are JSON; one that is cut is not."""
    found = []
    for frame in seen.frames:
        data = frame.partition(b"data: ")[2]
        try:
            value = json.loads(data)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _wire_faults(seen: Seen) -> list[str]:
    if not seen.whole or (not seen.status and not seen.body):
        # broken off: nobody can have put a terminal after it, but none may be followed by anything
        # either
        return [] if _terminals(seen) <= 1 else ["I5: several terminals on the wire"]
    if seen.status != 200:
        return (
            []
            if _is_error_body(seen)
            else [f"I5: status {seen.status} without an error of the dialect"]
        )
    if not seen.streams:
        try:
            json.loads(seen.body)
        except ValueError:
            return ["I5: the body is not whole"]
        return []
    if _terminals(seen) != 1:
        return [f"I5: {_terminals(seen)} terminals on the wire"]
    try:
        if frames := seen.frames:
            body = b"".join(f + b"\n\n" for f in frames)
            only_error = _has_failed(seen) and not seen.released
            if not only_error:
                _CHECKS[seen.dialect](body)
    except (AssertionError, LookupError, ValueError) as error:
        return [f"I5: the stream is out of order: {type(error).__name__} {str(error)[:200]}"]
    return []


def _terminals(seen: Seen) -> int:
    if not seen.streams or seen.status != 200:
        return 0
    return sum(f.startswith((*_ENDS[seen.dialect], _FAILED[seen.dialect])) for f in seen.frames)


def _has_failed(seen: Seen) -> bool:
    """Was the client told of an error after the first byte?"""
    return bool(seen.streams and seen.frames and seen.frames[-1].startswith(_FAILED[seen.dialect]))


def _is_error_body(seen: Seen) -> bool:
    try:
        value = json.loads(seen.body)
    except ValueError:
        return False
    if not isinstance(value, dict) or not isinstance(value.get("error"), dict):
        return False
    return seen.status >= 400 and (value.get("type") == "error") is (seen.dialect == "anthropic")


def record_faults(connection: Connection) -> list[str]:
    """Check what is no single call's: no dead letter, and no call on record without its end
    (I5)."""
    found = [
        f"I6: dead letter {kind}: {reason}"
        for kind, reason in connection.execute("SELECT kind, reason FROM dead_letters").fetchall()
    ]
    open_calls = (
        "SELECT c.call_id FROM calls c LEFT JOIN ends e USING (call_id) WHERE e.call_id IS NULL"
        " LIMIT 20"
    )
    return found + [
        f"I5: call {call} has no terminal record"
        for (call,) in connection.execute(open_calls).fetchall()
    ]


def settle(
    connection: Connection, client: Any, *, shards: int = 1, timeout_s: float = 15.0
) -> list[str]:
    """Wait until `record_faults` and `redis_faults` find nothing; returns what they still find
    after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (
        found := record_faults(connection) + redis_faults(client, shards)
    ) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def redis_faults(client: Any, shards: int = 1) -> list[str]:
    """Check I6 on a `redis.Redis` once all calls are over: the streams are empty, nothing is
    pending, every other key will expire."""
    found = []
    fixed = {key.encode() for key in layout.lasting_keys(shards)}
    for shard in range(shards):
        for key, group in (
            (layout.dispatch_key(shard), layout.POLICY_GROUP),
            (layout.audit_key(shard), layout.AUDIT_GROUP),
        ):
            fixed.add(key.encode())
            if not client.exists(key):
                continue
            if left := client.xlen(key):
                found.append(f"I6: {left} entries on {key}")
            if pending := sum(
                g["pending"] for g in client.xinfo_groups(key) if g["name"] == group.encode()
            ):
                found.append(f"I6: {pending} pending on {key}")
    if waiting := client.zrange(layout.JUDGE_QUEUE, 0, -1):
        left_ms = {key: client.pttl(key) for key in keys_of(waiting[0].decode())}
        found.append(f"I6: {len(waiting)} questions on the judge queue; of the first {left_ms}")
    for key in client.scan_iter(count=1000):
        if key not in fixed and client.ttl(key) == -1:
            found.append(f"I6: no TTL on {key.decode(errors='replace')}")
    return found
