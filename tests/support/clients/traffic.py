"""Clients that make one call after another while a test breaks something, and what they saw, for
the invariants."""

import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import httpx2 as httpx

from protocol.request import DialectName
from tests.support.checks.invariants import Connection, Seen, call_faults, read_call, settle
from tests.support.json_values import Json
from tests.support.servers.product import KEY
from tests.support.waiting import wait_for

Kind = Literal["text", "allowed", "blocked", "whole"]
KINDS: tuple[Kind, ...] = ("text", "allowed", "blocked", "whole")
_BASH = {"type": "object", "properties": {"command": {"type": "string"}}}
_WORDS: dict[Kind, str] = {
    "text": "long 40 slowly, with a gap 20 ms",
    "allowed": "please list the files",
    "blocked": "please delete everything with rm -rf /tmp/build",
    "whole": "hello there",
}


class Finished(NamedTuple):
    """One call: its kind, what the client saw, and when it began and ended (monotonic)."""

    kind: Kind
    seen: Seen
    began: float
    ended: float
    longest_s: float


def request(
    dialect: DialectName, kind: Kind, words: str = "", model: str = "demo"
) -> tuple[str, Json]:
    """Path and body of a call of the demo model."""
    body: Json = {"model": model, "stream": kind != "whole", "max_tokens": 100}
    body["messages"] = [{"role": "user", "content": words or _WORDS[kind]}]
    if kind in ("allowed", "blocked"):
        function = {"name": "bash", "parameters": _BASH}
        body["tools"] = (
            [{"type": "function", "function": function}]
            if dialect == "openai"
            else [{"name": "bash", "input_schema": _BASH}]
        )
    return ("/v1/messages" if dialect == "anthropic" else "/v1/chat/completions"), body


def call(
    url: str,
    dialect: DialectName,
    kind: Kind,
    *,
    words: str = "",
    timeout_s: float = 90.0,
    on_data: Any = None,
) -> Finished:
    """Make one call and return what came; a connection that broke is `whole` False."""
    path, body = request(dialect, kind, words)
    seen, began, longest = Seen(dialect, body["stream"]), time.monotonic(), 0.0
    head = {"authorization": f"Bearer {KEY}"}
    try:
        with httpx.stream("POST", url + path, json=body, headers=head, timeout=timeout_s) as answer:
            seen.status, seen.call_id, last = (
                answer.status_code,
                answer.headers.get("x-sluice-call-id", ""),
                time.monotonic(),
            )
            longest = last - began
            for data in answer.iter_raw():
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                seen.body += data
                if on_data is not None:
                    on_data(seen)
    except httpx.HTTPError:
        seen.whole = False
    seen.elapsed_s = time.monotonic() - began
    return Finished(kind, seen, began, time.monotonic(), longest)


class Traffic:
    """`clients` threads, each making calls of the kinds in turn in both dialects, until `stop`."""

    def __init__(
        self, url: str, clients: int, *, kinds: Sequence[Kind] = KINDS, pause_s: float = 0.0
    ) -> None:
        self.url, self.kinds, self.pause_s = url, tuple(kinds), pause_s
        self.finished: list[Finished] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        dialects: tuple[DialectName, ...] = ("openai", "anthropic")
        for n in itertools.count(number):
            if self._stopping.is_set():
                return
            done = call(
                self.url, dialects[n // len(self.kinds) % 2], self.kinds[n % len(self.kinds)]
            )
            self.finished.append(done)
            # a refusal comes back at once
            self._stopping.wait(max(self.pause_s, 0.0 if done.seen.status == 200 else 0.1))

    def stop(self) -> list[Finished]:
        """Let the calls under way end; returns all that ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a call hangs"
        return self.finished

    def served(self, since: float = 0.0) -> list[Finished]:
        """The calls that began after `since` and were answered with 200 and no error."""
        return [f for f in list(self.finished) if f.began >= since and is_served(f.seen)]

    def under_way(self, calls: int = 8) -> None:
        """Wait until more calls than that were served."""
        wait_for(lambda: len(self.served()) > calls, timeout_s=20, what="traffic")

    def goes_on(self, since: float = 0.0, *, within_s: float = 30) -> float:
        """Wait until calls of every kind that began after `since` were served, or after now;
        returns the seconds until the first was."""
        since = since or time.monotonic()
        wait_for(
            lambda: {f.kind for f in self.served(since)} == set(self.kinds),
            timeout_s=within_s,
            what="calls of every kind are served again",
        )
        return min(f.ended for f in self.served(since)) - since


def is_served(seen: Seen) -> bool:
    """Did the client get a whole answer without an error?"""
    return (
        seen.status == 200
        and seen.whole
        and b'"error"' not in seen.body
        and b"event: error" not in seen.body
    )


def faults(
    finished: Sequence[Finished],
    connection: Connection,
    redis: Any,
    *,
    deadline_s: float,
    settle_s: float = 20.0,
    lost: Callable[[Finished], bool] = lambda one: False,
) -> list[str]:
    """All invariants over all calls, each sentence with the kind of its call. Calls that were never
    claimed have no record.

    `lost` says of which calls a Redis that lost its data may have lost what was not in PostgreSQL
    yet.
    """
    found = settle(connection, redis, timeout_s=settle_s)
    for one in finished:
        if not one.seen.call_id:
            continue
        recorded = read_call(connection, one.seen.call_id)
        if recorded.call is None and recorded.end is None and (one.seen.status == 503 or lost(one)):
            continue
        said = call_faults(one.seen, recorded, deadline_s=deadline_s)
        if lost(one) and one.seen.content.startswith(recorded.payload):
            # what is missing is named
            named = any(s.startswith(_NAMED) for s in said)
            said = [
                s for s in said if not s.startswith(_LOST) and not (named and _MISSING.match(s))
            ]
        found += [
            f"{one.kind} {one.seen.dialect} {one.seen.call_id} {one.seen.status}: {s}" for s in said
        ]
    return found


_LOST = (
    "I2: chunk",
    "I1: the client got what",
    "I1: a whole answer is",
    "I3: the release of",
    "I3: the request body",
    "I3: an end without",
)
_NAMED = "I8: marked as incomplete"
_MISSING = re.compile(f"{_NAMED}|I8: [0-9]+ (chunks came|releases went out), ")
