"""Stops asking an upstream that fails, for a while, and then tries it with one request at a time.

Pure: time is passed in, in seconds of a clock that never goes back. What each outcome means is in
`OUTCOMES`. A key whose own requests fail stops that key; all keys are stopped by what no request
can cause (no connection), or by failures that are as many without those of the worst key.
"""

import zlib
from collections import deque
from collections.abc import Mapping
from typing import Literal

Outcome = Literal["ok", "failed", "unreached", "neutral"]
OUTCOMES: Mapping[str, Outcome] = {
    **dict.fromkeys(
        (
            "upstream_dns",
            "upstream_refused",
            "upstream_tls",
            "upstream_connect_timeout",
            "upstream_unreachable",
            "proxy_dns",
            "proxy_refused",
            "proxy_connect_timeout",
            "proxy_unreachable",
            "proxy_denied",
        ),
        "unreached",
    ),
    **dict.fromkeys(
        ("upstream_closed", "upstream_cut", "upstream_timeout", "upstream_protocol_error"), "failed"
    ),
    **dict.fromkeys(("408", "500", "502", "503", "504", "529"), "failed"),
    "200": "ok",
}
"""By code of a failure or status of an answer. All else, such as 429 or 400, says nothing of
whether the upstream is well."""
WINDOW_S, PARTS = 30.0, 10
LEAST, SHARE, IN_A_ROW = 10, 0.5, 5
"""An upstream is left alone when half of at least so many requests failed, of those of the window
since the first failure in it; or when so many in a row did not reach it."""
FIRST_S, LONGEST_S, JITTER = 5.0, 60.0, 0.2
"""How long it is left alone: doubled each time, up to the longest."""
PROBE_S = 10.0
"""A probe that has no outcome by then lets another one go."""
GOOD = 2
"""So many probes in a row must succeed."""
MOST_NAMES = MOST_KEYS = 200
"""Upstreams, and keys of each, that are remembered, the newest."""


class Breaker:
    """One upstream, for all keys or for one."""

    def __init__(self, name: str, *, is_shared: bool = False) -> None:
        self._name, self._is_shared = name, is_shared
        self._parts: deque[tuple[int, dict[str, list[int]]]] = deque()
        """Number of the part; by key, requests and failed ones."""
        self._had_turn = dict[str, float]()
        """Until when keys that had a probe leave the next one to others."""
        self._unreached = self._openings = self._good = 0
        self._until = self._probe_until = self.opened_at = 0.0
        self.is_open = False
        self.is_calm = True
        """It is not open, and nothing failed lately: until something does, successes are not
        counted."""

    def rest_s(self, key: str, now: float) -> float:
        """How long no request of this key may go, 0 where one may."""
        if not self.is_open:
            return 0.0
        return max(max(self._until, self._probe_until, self._had_turn.get(key, 0.0)) - now, 0.0)

    def begin(self, key: str, now: float, *, has_others: bool) -> None:
        """A request goes, which `rest_s` allowed. `has_others`: other keys ask too, and are let go
        first where this probe does not succeed: one key could else fail or cancel every probe."""
        if self.is_open:
            self._probe_until = now + PROBE_S
            if has_others:
                self._had_turn = {k: until for k, until in self._had_turn.items() if until > now}
                self._had_turn[key] = now + 2 * PROBE_S

    def take(self, outcome: Outcome, key: str, begun: float, now: float) -> None:
        """A request that was begun at `begun` came to this."""
        if self.is_open:
            if begun >= self.opened_at and now >= self._until:
                self._take_probe(outcome, key, now)
            return
        if outcome == "neutral":
            return
        part, bad = int(now * PARTS / WINDOW_S), outcome != "ok"
        while self._parts and self._parts[0][0] <= part - PARTS:
            self._parts.popleft()
        self.is_calm = not self._parts and not bad
        if self.is_calm:
            self._unreached = 0
            return
        if not self._parts or self._parts[-1][0] != part:
            self._parts.append((part, {}))
        counts = self._parts[-1][1].setdefault(key, [0, 0])
        counts[0] += 1
        counts[1] += bad
        self._unreached = self._unreached + 1 if outcome == "unreached" else 0
        if self._unreached >= IN_A_ROW or (bad and self._is_bad()):
            self._open(now)

    def _is_bad(self) -> bool:
        by_key = dict[str, list[int]]()
        for _, keys in self._parts:
            for key, (asked, failed) in keys.items():
                counts = by_key.setdefault(key, [0, 0])
                counts[0] += asked
                counts[1] += failed
        every = list(by_key.values())
        worst = max(every, key=lambda counts: counts[1])
        every.remove(worst)
        return _are_bad([worst, *every], LEAST) and (
            not self._is_shared or _are_bad(every, LEAST // 2)
        )

    def _take_probe(self, outcome: Outcome, key: str, now: float) -> None:
        self._probe_until = 0.0
        if outcome in ("failed", "unreached"):
            self._open(now)
            if key in self._had_turn:
                self._had_turn[key] = self._until + PROBE_S
        elif outcome == "ok":
            self._had_turn.pop(key, None)
            self._good += 1
            if self._good >= GOOD:
                self.is_open, self.is_calm, self._openings = False, True, 0
                self._had_turn.clear()

    def _open(self, now: float) -> None:
        self.is_open, self.is_calm = True, False
        self.opened_at, self._good, self._unreached = now, 0, 0
        self._parts.clear()
        long_s = min(FIRST_S * 2**self._openings, LONGEST_S)
        self._openings = min(self._openings + 1, 10)
        # two processes must not probe in step, and a test must know when: drawn from the name
        drawn = zlib.crc32(f"{self._name} {self._openings}".encode()) / 2**32
        self._until = now + long_s * (1 + JITTER * (2 * drawn - 1))
        self._probe_until = 0.0

    def state(self, now: float) -> int:
        """Return 0 where requests go, 1 where one may try, 2 where none may."""
        return 0 if not self.is_open else 2 if now < self._until else 1


def _are_bad(every: list[list[int]], least: int) -> bool:
    asked, failed = (sum(counts[at] for counts in every) for at in (0, 1))
    return asked >= least and failed >= asked * SHARE


Pair = tuple[Breaker, Breaker]
"""Those of an upstream for all keys and for one."""


class Permit:
    """A request that may go. What it comes to is said with `done`, where it says something of the
    upstream more than once: an answer that began well may be cut."""

    __slots__ = ("_key", "_pair", "begun")

    def __init__(self, pair: Pair | None, key: str, now: float) -> None:
        self._pair, self._key, self.begun = pair, key, now

    def is_calm(self) -> bool:
        """Need a success not be said?"""
        pair = self._pair
        return pair is None or (pair[0].is_calm and pair[1].is_calm)

    def done(self, outcome: str, now: float) -> None:
        """`outcome`: a code of a failure or a status, as in `OUTCOMES`."""
        if self._pair is None:
            return
        shared, own = self._pair
        meaning = OUTCOMES.get(outcome, "neutral")
        shared.take(meaning, self._key, self.begun, now)
        own.take(meaning, self._key, self.begun, now)


class Breakers:
    """Those of all upstreams of one process. `process`: its name, so that it draws times of its
    own."""

    def __init__(self, process: str = "") -> None:
        self._process = process
        self._shared = dict[str, Breaker]()
        self._pairs = dict[str, dict[str, Pair]]()
        """By upstream and key."""

    def ask(self, name: str, key: str, now: float) -> Permit | float:
        """May this key's request go to an upstream? Else, in how many seconds one may try."""
        keys = self._pairs.get(name)
        pair = keys.get(key) if keys is not None else None
        if pair is None:
            pair = self._add(name, key)
        shared, own = pair
        if not (shared.is_calm and own.is_calm):
            if (rest_s := max(shared.rest_s(key, now), own.rest_s(key, now))) > 0:
                return rest_s
            shared.begin(key, now, has_others=len(self._pairs[name]) > 1)
            own.begin(key, now, has_others=False)
        return Permit(pair, key, now)

    def _add(self, name: str, key: str) -> Pair:
        keys = self._pairs.setdefault(name, {})
        if len(keys) >= MOST_KEYS:
            del keys[next(iter(keys))]
        if name not in self._shared:
            if len(self._shared) >= MOST_NAMES:
                oldest = next(iter(self._shared))
                del self._shared[oldest], self._pairs[oldest]
            self._shared[name] = Breaker(f"{self._process} {name}", is_shared=True)
        keys[key] = self._shared[name], Breaker(f"{self._process} {name} {key}")
        return keys[key]

    def states(self, now: float) -> dict[str, int]:
        """Return the state of each upstream that was asked, as `Breaker.state`: for all keys, so
        that of the key for which it is best."""
        return {
            name: max(
                shared.state(now), min(own.state(now) for _, own in self._pairs[name].values())
            )
            for name, shared in self._shared.items()
        }
