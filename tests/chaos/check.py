"""The checker of the chaos run: everything that was seen, against everything that was recorded,
after all is over."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from db.read.queries import AuditReader
from streams.scripts import MAX_TAKEOVERS
from tests.chaos.breaking import Breaker
from tests.chaos.check_hostile import hostile_faults, line_faults
from tests.chaos.load import FORBIDDEN, WORDS, Done
from tests.chaos.upstream import Upstream
from tests.support.checks.invariants import (
    Connection,
    Recorded,
    Seen,
    call_faults,
    difference,
    read_call,
)
from tests.support.checks.pages import bytes_of, pages_of, written_of
from tests.support.clients.sdk import anthropic_answer, openai_answer, responses_answer
from tests.support.json_values import Json

DEADLINE_S = 60.0
MAY_FAIL = ("error", "broken", "leaves", "hostile")
"""Kinds that end with an error, or without an end, by themselves."""
ERRORS = {
    "error": ("rate_limit_error", "rate_limit_exceeded"),
    "broken": (
        "api_error",
        "overloaded",
        "overloaded_error",
        "server_error",
        "server_is_overloaded",
    ),
    "leaves": ("left",),
}
"""How these end where nothing else ends them."""
NEVER = ("policy_failed",)
"""Reasons for which no innocent call ends, whatever is broken: they are of what a call itself
says."""
LATE = ("audit_unavailable", "judge_deadline", "judge_unavailable")
"""Why a tool call is blocked that waited too long: a fault of the breaker must have been near."""
PAGES_AT_ONCE = 5
TAKEOVER_FAULTS = ("policy", "Valkey", "gateway")


def outcome(done: Done) -> str:
    """`served`, `left`, `broken off`, or the code of the error the client got."""
    seen = done.seen
    if done.left:
        return "left"
    if not seen.whole:
        return "broken off"
    if seen.status != 200:
        return _code(seen.body) or str(seen.status)
    last = seen.body.rstrip().rpartition(b"\n\n")[2]
    is_error = last.startswith((b"event: error", b'data: {"error"', b"event: response.failed"))
    return (_code(last.partition(b"data: ")[2]) or "error") if is_error else "served"


def _code(body: bytes) -> str:
    try:
        value = json.loads(body)
        error = value.get("response", value)["error"]
        return str(error.get("code") or error.get("type"))
    except (ValueError, LookupError, TypeError):
        return ""


def faults(
    all_done: Sequence[Done],
    upstream: Upstream,
    breaker: Breaker,
    connection: Connection,
    database_url: str,
    *,
    every: int,
) -> Iterator[str]:
    """What is wrong, a sentence each; the official SDKs read the answer of each `every`-th call."""
    with asyncio.Runner() as runner:
        reader = AuditReader.open(database_url)
        for first in range(0, len(all_done), PAGES_AT_ONCE):
            batch = all_done[first : first + PAGES_AT_ONCE]
            records = [
                read_call(connection, done.seen.call_id) if done.seen.call_id else Recorded()
                for done in batch
            ]
            pages = runner.run(
                _pages(
                    reader,
                    [
                        d.seen.call_id
                        for d, r in zip(batch, records, strict=True)
                        if r.says_what_was_relayed
                    ],
                )
            )
            for done, recorded in zip(batch, records, strict=True):
                found = list(
                    _of(done, recorded, upstream, breaker, with_sdk=done.number % every == 0)
                )
                if (page := pages.get(done.seen.call_id)) is not None:
                    found += page_faults(done.seen, page)
                for sentence in found:
                    what = f"{done.attack or done.kind}, {done.seen.dialect} to {done.model}"
                    yield (
                        f"call {done.number} ({what}, {done.seen.call_id}, {outcome(done)}):"
                        f" {sentence}"
                    )
        runner.run(reader.close())


async def _pages(reader: AuditReader, calls: list[str]) -> dict[str, bytes]:
    """What the audit API says was written to the clients of these calls."""
    pages = await asyncio.gather(*(pages_of(reader, call) for call in calls))
    return {call: bytes_of(written_of(read)) for call, read in zip(calls, pages, strict=True)}


def page_faults(seen: Seen, page: bytes) -> Iterator[str]:
    """What the audit API says was written to a client, by whom it could be said, is what the client
    got; of one that left, a part came."""
    if not (page == seen.body if seen.whole else page.startswith(seen.body)):
        yield (
            f"the client got {len(seen.body)} bytes, its page has {len(page)}:"
            f" {difference(seen.body, page)}"
        )


def _of(
    done: Done, recorded: Recorded, upstream: Upstream, breaker: Breaker, *, with_sdk: bool
) -> Iterator[str]:
    seen, said = done.seen, outcome(done)
    if upstream.asked[done.number] > 1:
        yield f"upstream was asked {upstream.asked[done.number]} times"
    yield from line_faults(seen)
    if done.attack:
        yield from hostile_faults(done, upstream.fields.get(done.number, set()))
    may_fail = breaker.may_be_seen(done.began, done.ended)
    if recorded.call is None and recorded.end is None:
        # of a hostile call that is refused, or never comes to its end, nothing may have begun
        if said == "served" or not (may_fail or done.attack):
            yield "nothing is on record"
        return
    hidden = [FORBIDDEN] if "rm -rf" in WORDS[done.kind] else []
    sent = None if done.model == "demo" else upstream.sent.get(done.number, b"")
    yield from call_faults(seen, recorded, upstream=sent, unapproved=hidden, deadline_s=DEADLINE_S)
    if done.attack:
        return
    yield from innocent_faults(done, recorded, breaker)
    if said == "served" and with_sdk and not _blocked_for_lack_of(recorded):
        yield from _sdk_faults(done)


def innocent_faults(done: Done, recorded: Recorded, breaker: Breaker) -> Iterator[str]:
    """An innocent call is ended, or a tool call of its blocked for lack of time, by what the
    breaker did alone."""
    said, takeovers = outcome(done), len(recorded.taken_over)
    broken = breaker.near(done.began, done.ended)
    if recorded.end is not None and recorded.end[1] in NEVER and takeovers <= MAX_TAKEOVERS:
        yield f"an innocent call was ended; the record says {recorded.end}, {recorded.events}"
    # by when that was: a call whose client is gone is taken over too
    for at in (at - time.time() + time.monotonic() for at in recorded.taken_over):
        if not any(name.startswith(TAKEOVER_FAULTS) for name in breaker.near(at, at)):
            when = (
                f"{at - done.began:.2f} s after its beginning, {at - done.ended:.2f} s after its"
                " client's end"
            )
            yield (
                f"taken over {when}, though nothing was broken that a worker may notice:"
                f" {breaker.near(at - 30, at + 5)}"
            )
    if _blocked_for_lack_of(recorded) and not broken:
        yield (
            "a tool call was blocked for lack of time though nothing was broken:"
            f" {[t['reason'] for t in recorded.tools]}"
        )
    if said == "served" and done.kind not in MAY_FAIL:
        return
    expected = said in ERRORS.get(done.kind, ()) or (
        done.kind == "broken" and said == "broken off" and not done.seen.streams
    )
    # a call taken over too often without progress ends by design, whatever its workers died of:
    # that the breaker killed them is above
    if (
        not expected
        and not breaker.may_be_seen(done.began, done.ended)
        and takeovers <= MAX_TAKEOVERS
    ):
        yield (
            "failed though nothing was broken that a client may notice; the record says"
            f" {recorded.end}"
        )


def _blocked_for_lack_of(recorded: Recorded) -> bool:
    """Was a tool call blocked because its commit, or its judgement, did not come in time? That is
    what must happen then."""
    return any(tool["reason"] in LATE for tool in recorded.tools)


def _sdk_faults(done: Done) -> Iterator[str]:
    """The official SDK of the client's dialect must get what the kind says."""
    seen = done.seen
    try:
        if seen.dialect == "openai":
            message: Any = openai_answer(seen.body, stream=seen.streams).choices[0].message
            text = message.content or ""
            calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        elif seen.dialect == "responses":
            response = responses_answer(seen.body, stream=seen.streams)
            text, calls = (
                response.output_text,
                [(i.name, i.arguments) for i in response.output if i.type == "function_call"],
            )
        else:
            answer = anthropic_answer(seen.body, stream=seen.streams)
            text = "".join(b.text for b in answer.content if b.type == "text")
            calls = [(b.name, json.dumps(b.input)) for b in answer.content if b.type == "tool_use"]
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is a fault
        yield f"the SDK cannot read the answer: {error!r}"
        return
    names = [name for name, _ in calls]
    wanted = {"allowed": ["bash"], "parallel": ["get_weather", "get_weather"]}.get(done.kind, [])
    if names != wanted:
        yield f"the SDK got the calls {names}"
    if done.kind == "text" and text != "".join(f"word{n} " for n in range(1, 26)):
        yield f"the SDK got the text {text!r}"


def report(
    all_done: Sequence[Done],
    breaker: Breaker,
    connection: Connection,
    *,
    seed: int,
    seconds: float,
    refused: int,
) -> Json:
    """The figures of a run."""

    def count(query: str) -> int:
        row = connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    stalls = sorted(d.longest_s for d in all_done if outcome(d) == "served" and not d.attack)
    attacks = [
        (max(d.longest_s for d in all_done if d.attack == name), name)
        for name in {d.attack for d in all_done} - {""}
    ]
    counted = [d for d in all_done if not d.is_extra]
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "calls": len(counted),
        "calls_by_kind": dict(sorted(Counter(d.kind for d in counted).items())),
        "attacks": dict(sorted(Counter(d.attack for d in counted if d.attack).items())),
        "calls_of_bursts_besides": len(all_done) - len(counted),
        "attacks_ended": dict(Counter(outcome(d) for d in all_done if d.attack).most_common()),
        "outcomes": dict(Counter(outcome(d) for d in counted).most_common()),
        "outcomes_of_innocents": dict(
            Counter(outcome(d) for d in counted if not d.attack).most_common()
        ),
        "connections_refused": refused,
        "faults": sum(breaker.counts.values()),
        "faults_by_kind": dict(sorted(breaker.counts.items())),
        "takeovers": count("SELECT count(*) FROM events WHERE kind = 'takeover'"),
        "fenced_publishes": count("SELECT count(*) FROM events WHERE kind = 'fenced'"),
        "ends_that_say_what_was_relayed": count(
            "SELECT count(*) FROM ends WHERE relayed_sha256 IS NOT NULL"
        ),
        "chunks_on_record": count("SELECT count(*) FROM chunk_log"),
        "tool_calls_on_record": count("SELECT count(*) FROM tool_calls"),
        "tool_calls_blocked_because_the_record_was_away": count(
            "SELECT count(*) FROM tool_call_log WHERE reason = 'audit_unavailable'"
        ),
        "longest_stall_s": round(stalls[-1], 2) if stalls else 0.0,
        "longest_stalls_of_attacks_s": {
            name: round(longest, 2) for longest, name in sorted(attacks, reverse=True)[:5]
        },
        "stall_p99_s": round(stalls[int(len(stalls) * 0.99)], 2) if stalls else 0.0,
    }
