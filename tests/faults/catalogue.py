"""Every fault case: what is done to the product, and what must come of it. Tests name them with
`@pytest.mark.case`.

Priority 0 cases each have a test, or a reason why there is nothing to try
(tests/faults/test_catalogue.py checks it). After each case the invariants hold: (1) every client
byte was approved with an equal hash, (2) order without gap or repeat, (3) the record holds all that
came, was decided and went out, (4) no byte of an unapproved tool call, (5) one terminal on the wire
and in the record, (6) no key without TTL, no pending entry, no dead letter, (7) an end within the
deadline.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """One case. `not_here`: why there is nothing to try, or empty."""

    priority: int
    fault: str
    outcome: str
    not_here: str = ""


AREAS = {
    "W": "Policy worker",
    "G": "Gateway",
    "R": "Redis",
    "D": "Postgres",
    "U": "Upstream",
    "C": "Client",
    "J": "Judge",
    "A": "Record and access",
    "S": "Everything at once",
}

CASES: dict[str, Case] = {
    "W1": Case(
        0,
        "kill -9 of the owner in the middle of a stream",
        "another takes over within a lease and a second; the stream is whole",
    ),
    "W2": Case(
        0,
        "the owner is stopped past its lease, then goes on",
        "all it publishes is refused; one coherent stream; a `fenced` event",
    ),
    "W3": Case(
        0,
        "crash after the verdict is stored, before it is published",
        "the verdict is reused, the judge asked once, released once",
    ),
    "W4": Case(
        0, "crash after the release, before its answer", "the repeat is a DUP; no second frame"
    ),
    "W5": Case(
        0,
        "the n-th Redis command of a call fails, for every n and in three ways",
        "the invariants, for every n",
    ),
    "W6": Case(
        0,
        "the n-th SQL statement of a call fails, for every n and in three ways",
        "the invariants, for every n",
    ),
    "W7": Case(
        1,
        "SIGTERM to half of the workers under load",
        "handed over in under a second, no failed call, exit code 0",
    ),
    "W8": Case(
        1,
        "policy code raises, blocks, never returns, returns garbage",
        "that call is blocked or ends; other calls stall a lease at most",
    ),
    "W9": Case(
        1,
        "kill -9 of a judge in the middle of a judgement",
        "an answer within the deadline or a block; a late one changes nothing",
    ),
    "W10": Case(1, "a pickle on the judge queue", "never unpickled; rejected and counted"),
    "W11": Case(
        1,
        "workers of two versions or policy revisions",
        "a call stays with workers that know its revision; with none it fails closed",
    ),
    "W12": Case(
        1, "one dispatch entry delivered to two workers at once", "one owner; the other leaves it"
    ),
    "W13": Case(
        1, "the owner's event loop stalls past its lease", "fenced afterwards; nothing twice"
    ),
    "G1": Case(
        0,
        "kill -9 of a gateway with open streams",
        "upstreams close; calls end `gateway_lost` on record within 30 s",
    ),
    "G2": Case(
        0,
        "SIGTERM to a gateway with open streams",
        "not ready at once, drains, the rest get an error frame, exit code 0",
    ),
    "G3": Case(
        1, "rolling restart of gateways under load", "no request fails but those past the grace"
    ),
    "G4": Case(
        1,
        "kill -9 of the pages, a hundred times, within pages and between",
        "open streams notice nothing; no half page looks whole",
    ),
    "R1": Case(
        0,
        "kill -9 of Redis, restart with its AOF",
        "calls finish or end with an error; what was acknowledged is on record; no process"
        " restarts",
    ),
    "R2": Case(0, "Redis restarts empty", "open calls fail closed; new calls work"),
    "R3": Case(
        0, "Redis silent for 5 s in both directions", "no hang, nothing twice after it heals"
    ),
    "R4": Case(0, "only Redis' answers are lost", "every publish is repeatable: DUP"),
    "R5": Case(
        0,
        "Redis out of memory",
        "new calls get 503 with Retry-After, open ones drain, it recovers alone",
    ),
    "R6": Case(1, "Redis paused for 5 s", "no storm of takeovers, nothing twice"),
    "R7": Case(
        1,
        "a replica that misses the last writes is promoted",
        "its calls fail closed; nothing twice",
    ),
    "R8": Case(1, "Redis with eviction on or AOF off", "refused at start; doctor says what to do"),
    "R9": Case(1, "Redis' connection limit is reached", "503 or waiting; no deadlock"),
    "R10": Case(1, "Redis cannot write its AOF", "fails closed, recovers when it can"),
    "R11": Case(
        0,
        "Redis loses its last second",
        "the calls end with an error; what lacks something on record is named, and nothing else",
    ),
    "D1": Case(
        0,
        "Postgres away under traffic",
        "clients do not notice; the record catches up; nothing lost, nothing twice",
    ),
    "D2": Case(
        0,
        "Postgres away when a tool call waits for its commit",
        "held to its deadline, then blocked `audit_unavailable`; text flows",
    ),
    "D3": Case(0, "Postgres away past the backlog cap", "new calls are refused; nothing dropped"),
    "D4": Case(
        1, "kill -9 of Postgres between commit and answer", "the repeated insert changes nothing"
    ),
    "D5": Case(0, "poison rows among good ones", "kept as bytes; the others land"),
    "D6": Case(1, "Postgres' disk is full", "backlog, a warning, catch-up"),
    "D7": Case(1, "long outage and killed idle connections", "connections come back by themselves"),
    "D8": Case(
        1, "migrations up, down, up, and under traffic", "no lock over a second on hot tables"
    ),
    "D9": Case(
        1, "midnight; a partition is missing", "no insert fails: default partition and a warning"
    ),
    "D10": Case(
        1,
        "Postgres is slow: every insert waits",
        "text goes on as before, open calls past `backlog` too; new ones get 503 there",
    ),
    "D11": Case(
        0,
        "Postgres is set back by ten seconds",
        "every call that lacks something is named, also by verify and doctor; no other",
    ),
    "D12": Case(
        0,
        "Postgres silent, in recovery or gone while pages are read",
        "503 in time, each says why; open streams notice nothing",
    ),
    "U1": Case(
        0,
        "an error status before the first byte",
        "the client's dialect, with Retry-After; never retried by us",
    ),
    "U2": Case(
        0,
        "hangs before headers, hangs in the stream, drips",
        "first-byte, idle and total time-outs; a terminal frame",
    ),
    "U3": Case(
        0, "closes in the middle of tool arguments", "no part of the call is released; an error"
    ),
    "U4": Case(
        0,
        "malformed SSE of every kind",
        "parsed as the reference does, or a clean error; caps hold",
    ),
    "U5": Case(
        0,
        "garbage JSON, wrong types, unknown events and fields",
        "withheld and recorded; the stream ends properly",
    ),
    "U6": Case(
        0, "interleaved parallel calls, missing and repeated ids", "each call's arguments are exact"
    ),
    "U7": Case(
        0,
        "content in logprobs, reasoning, refusals, citations, choices, errors, ids",
        "inspected or withheld, none raw",
    ),
    "U8": Case(0, "10,000 deltas of one character", "linear time, flat memory, exact order"),
    "U9": Case(
        0,
        "5 MB of tool arguments, in one delta and in 50,000",
        "bounded memory, linear; judged or blocked",
    ),
    "U10": Case(
        1,
        "JSON for a stream and the reverse, gzip bomb, redirects",
        "handled or refused; redirects are not followed",
    ),
    "U11": Case(
        1,
        "data after the end, two finish reasons, no end",
        "dropped and recorded; a proper terminal",
    ),
    "C1": Case(
        0,
        "disconnects in a stream",
        "upstream cancelled within a second; the record says how far it got",
    ),
    "C2": Case(
        0,
        "reads 1 KB/s, or never",
        "memory bounded; closed after the stall time; others unaffected",
    ),
    "C3": Case(0, "disconnects while it waits for a whole answer", "upstream cancelled"),
    "C4": Case(
        0,
        "50 MB body, no length, deep JSON, repeated keys, compressed bomb",
        "413 or 400 before all of it is held",
    ),
    "C5": Case(
        0,
        "addresses, headers and keys for the upstream in the body",
        "refused or ignored; our key goes nowhere else",
    ),
    "C6": Case(0, "no key, wrong, revoked; another's call", "401, 403, 404 that say no more"),
    "C7": Case(
        1, "two lengths, bad Host, odd paths on a raw socket", "no way around authentication"
    ),
    "C8": Case(
        0,
        "an official SDK gets a blocked answer",
        "one upstream request, no retry, the SDK parses it",
    ),
    "C9": Case(1, "quotas per key over gateways", "exact", "there are no quotas per key yet"),
    "C10": Case(
        1, "no workers, many calls", "503 fast; expired calls are skipped when workers come back"
    ),
    "C11": Case(1, "a slow judge on one call", "others' p95 unchanged"),
    "C12": Case(1, "a worker's clock is wrong", "leases and order hold: they are on Redis' clock"),
    "C13": Case(
        1,
        "the worker pool holds all the calls it may",
        "those go on as before; others get 503, past `queue` at once",
    ),
    "J1": Case(0, "time-out, 429, 500", "block"),
    "J2": Case(
        0, "empty, prose, fenced, cut, contradictory, extra keys, huge", "block `judge_invalid`"
    ),
    "J3": Case(
        0, "60 and more injections in arguments and text", "rules hold whatever the judge believes"
    ),
    "J4": Case(0, "a block verdict under kills and redeliveries", "never becomes an allow"),
    "J5": Case(
        0, "repeated keys, NaN, huge numbers, depth, trailing bytes", "block `ambiguous_json`"
    ),
    "J6": Case(
        0, "a forbidden phrase split over deltas at every place", "none of it before the match"
    ),
    "J7": Case(
        1,
        "a tool's name changes, is split, or comes after its arguments",
        "decided on the final name",
    ),
    "J8": Case(1, "a policy changes arguments", "valid against the tool's schema, or blocked"),
    "J9": Case(1, "a catastrophic regular expression", "linear time, or refused at load"),
    "J10": Case(
        1, "invisible and bidirectional characters", "rules see through them; shown escaped"
    ),
    "A1": Case(
        0,
        "rows changed, deleted, reordered, inserted, cut, swapped; a backup restored",
        "verify exits 1 with class and place",
    ),
    "A2": Case(0, "redaction, then verify and export", "passes; the plain text is nowhere"),
    "A3": Case(0, "the writer's role tries UPDATE, DELETE, TRUNCATE", "refused"),
    "A4": Case(0, "a role tries streams that are not its own, from Lua too", "refused"),
    "A5": Case(0, "scripts in every stored field, every page opened", "none runs"),
    "A6": Case(
        1, "a million rows: export, filters, altered cursors", "constant memory, stable cursors"
    ),
    "A7": Case(0, "secrets planted everywhere", "in no log, metric, error or unrelated column"),
    "A8": Case(1, "addresses in requests", "only those of the configuration are asked"),
    "A9": Case(0, "no key with the role auditor", "/audit and /metrics are closed"),
    "A10": Case(1, "old partitions are dropped", "verify passes from a checkpoint"),
    "A11": Case(
        0,
        "audit entries are taken out of Redis by hand",
        "each call that lacks something is named, also by verify and doctor",
    ),
    "S1": Case(0, "a random mix of all of it on real processes", "the invariants"),
    "S2": Case(1, "half an hour of steady load", "memory, keys and descriptors stay flat"),
}
