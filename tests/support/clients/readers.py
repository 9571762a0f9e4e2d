"""Clients on threads of their own: each makes one call, notes what came and when, and is then held
against the invariants."""

import re
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg

from protocol.request import DialectName
from streams import layout
from tests.support.checks.invariants import Recorded, Seen, call_faults, read_call, redis_faults
from tests.support.clients.sdk_calls import tool as offered
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, parse_sse
from tests.support.waiting import wait_for

SETTLE_S = 30.0
PATHS: dict[DialectName, str] = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
}


def words(count: int, gap_ms: int = 20) -> str:
    """The prompt for which the demo model says `count` numbered words."""
    return f"long {count} slowly, with a gap {gap_ms} ms"


def request(
    prompt: str,
    dialect: DialectName = "openai",
    *,
    model: str = "demo",
    stream: bool = True,
    tool: bool = False,
) -> Json:
    """A request body; with `tool` the model has a shell."""
    most, said = (
        ("max_output_tokens", "input") if dialect == "responses" else ("max_tokens", "messages")
    )
    body: Json = {
        "model": model,
        most: 4096,
        said: [{"role": "user", "content": prompt}],
        "stream": stream,
    }
    return body | ({"tools": [offered(dialect, "bash", command="string")]} if tool else {})


class Reader(threading.Thread):
    """One call. Beginning again is a client's right before its first byte: it goes round `urls` on
    a refusal that says when to retry."""

    def __init__(
        self,
        urls: str | Sequence[str],
        body: Json,
        *,
        dialect: DialectName = "openai",
        policy: str = "noop",
        tries: int = 1,
        timeout_s: float = 60.0,
        key: str = KEY,
    ) -> None:
        super().__init__(daemon=True)
        self._key = key
        self.urls, self.body, self.dialect, self.policy = (
            [urls] if isinstance(urls, str) else list(urls),
            body,
            dialect,
            policy,
        )
        self.tries, self.timeout_s = tries, timeout_s
        self.status, self.received, self.call_id, self.whole, self.failure = 0, b"", "", False, ""
        self.headers: Any = {}
        self.retries = 0
        self.longest_s = self.elapsed_s = 0.0
        self.came: list[float] = []
        """When data came (monotonic)."""
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        for attempt in range(self.tries):
            try:
                self._ask(self.urls[attempt % len(self.urls)])
            except httpx.TransportError as error:
                self.failure = repr(error)
                if self.received:
                    break
            if self.status == 200 or (self.status and "retry-after" not in self.headers):
                break
            if attempt + 1 < self.tries:
                self.retries += 1
                time.sleep(0.05)
        self.elapsed_s = time.monotonic() - began

    def _ask(self, url: str) -> None:
        headers = {"authorization": f"Bearer {self._key}", "x-sluice-policy": self.policy}
        self.status, self.received, self.whole, self.failure, last = (
            0,
            b"",
            False,
            "",
            time.monotonic(),
        )
        with httpx.stream(
            "POST",
            url + PATHS[self.dialect],
            json=self.body,
            headers=headers,
            timeout=self.timeout_s,
        ) as answer:
            self.status, self.headers = answer.status_code, answer.headers
            self.call_id = answer.headers.get("x-sluice-call-id", "")
            for data in answer.iter_raw():
                now = time.monotonic()
                self.longest_s, last = max(self.longest_s, now - last), now
                self.came.append(now)
                self.received += data
            self.longest_s = max(self.longest_s, time.monotonic() - last)
            self.whole = True

    @property
    def frames(self) -> list[Json]:
        """The JSON of the frames that came."""
        return parse_sse(self.received)

    @property
    def text(self) -> str:
        """The text that came, of a stream."""
        return streamed_text(self.dialect, self.received)

    @property
    def seen(self) -> Seen:
        """What the invariants are told of it."""
        return Seen(
            self.dialect,
            bool(self.body["stream"]),
            self.status,
            self.received,
            self.whole,
            self.call_id,
            self.elapsed_s,
        )

    def has_all(self, count: int) -> bool:
        """Did all words come, once and in order, and an end?"""
        return self.text == "".join(f"word{n} " for n in range(1, count + 1)) and self.whole


def streamed_text(dialect: DialectName, received: bytes) -> str:
    """Return the text of a stream."""
    frames = parse_sse(received)
    if dialect == "anthropic":
        return "".join(
            f["delta"].get("text", "") for f in frames if f.get("type") == "content_block_delta"
        )
    if dialect == "responses":
        return "".join(f["delta"] for f in frames if f.get("type") == "response.output_text.delta")
    return "".join(
        f["choices"][0]["delta"].get("content") or "" for f in frames if f.get("choices")
    )


def joined(readers: Iterable[Reader], timeout_s: float = 60.0) -> None:
    """Wait until all are done."""
    until = time.monotonic() + timeout_s
    for reader in readers:
        reader.join(max(0.0, until - time.monotonic()))
        assert not reader.is_alive(), f"no end of call {reader.call_id} within {timeout_s} s"


def under_way(readers: Iterable[Reader], frames: int = 5) -> None:
    """Wait until each has got some frames."""
    wait_for(
        lambda: all(r.received.count(b"\n\n") > frames for r in readers),
        timeout_s=20,
        what="streams under way",
    )


def hold_invariants(
    product: Product, readers: Iterable[Reader], *, deadline_s: float = 60.0
) -> dict[str, Recorded]:
    """Wait until the record and Redis are at rest, then check every call; returns the records by
    call id."""
    records: dict[str, Recorded] = {}

    def faults() -> list[str]:
        found = redis_faults(product.redis)
        for reader in readers:
            if reader.call_id:
                recorded = records[reader.call_id] = read_call(connection, reader.call_id)
                found += [
                    f"{reader.call_id}: {f}"
                    for f in call_faults(reader.seen, recorded, deadline_s=deadline_s)
                ]
            elif reader.status not in (0, 429, 503):
                found.append(f"an answer {reader.status} without a call: {reader.received[:200]!r}")
        return found

    with psycopg.connect(product.database_url, autocommit=True) as connection:
        until = time.monotonic() + SETTLE_S
        while (found := faults()) and time.monotonic() < until:
            time.sleep(0.05)
    assert not found, "\n".join([*found, product.logs()])
    return records


def owners(product: Product) -> dict[str, list[str]]:
    """Call ids by the policy worker that has them."""
    store: Any = product.redis
    found: dict[str, list[str]] = {}
    calls = {entry: fields[b"c"].decode() for entry, fields in store.xrange(layout.dispatch_key(0))}
    for item in store.xpending_range(layout.dispatch_key(0), "policy", "-", "+", 1000):
        if item["message_id"] in calls:
            found.setdefault(item["consumer"].decode(), []).append(calls[item["message_id"]])
    return found


def owned_by(product: Product, pid: int) -> list[str]:
    """Call ids that the policy worker with this process id has."""
    return [
        call
        for name, calls in owners(product).items()
        if name.endswith(f"-{pid}")
        for call in calls
    ]


def kinds(recorded: Recorded) -> set[str]:
    """The kinds of events on a call's record."""
    return {kind for kind, _ in recorded.events}


def resident_bytes(pid: int) -> int:
    """What a process holds in memory now; one that is over holds nothing."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0
