"""Bounds what each key may use of one gateway at once, so that no key can starve others: open
calls, body bytes, turns to begin.

Two rules. Shares: a key may use as much as is still free. One key alone gets at most half, so the
next key always finds room (the dynamic threshold of Choudhury and Hahne, 1998, for buffers shared
by queues). Round robin: a bounded number of calls begin at once, at most half of them for one key,
and waiting calls are served key by key. A key begins calls with large bodies one at a time: each of
them takes about a second of all processes together, and several at once would be silence for other
keys. Measured in docs/change/decisions.md.
"""

import asyncio
import time
from typing import Literal

from protocol.bounds import BEGINNING_BYTES, BEGINNING_CALLS
from protocol.errors import Overloaded, RateLimited
from settings.config import Key
from settings.limits import Limits
from streams.round_robin import RoundRobin

OTHERS_S = 60.0
"""So long after its last call a key counts as one that others must leave room for."""
Refusal = Literal["full", "share"]
"""Nothing is left for anybody; this key has its share."""


class Shares:
    """An amount of something, and each key's share of it."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self._of = dict[str, int]()

    def take(self, key: str, amount: int = 1) -> Refusal | None:
        """Take `amount` for `key`, or say why not."""
        held, free = self._of.get(key, 0), self.total - self.used
        if amount > free:
            return "full"
        if held + amount > free:
            return "share"
        self._of[key] = held + amount
        self.used += amount
        return None

    def give_back(self, key: str, amount: int = 1) -> None:
        """Give back what was taken."""
        left = self._of[key] - amount
        self.used -= amount
        if left:
            self._of[key] = left
        else:
            del self._of[key]

    def of(self, key: str) -> int:
        """What `key` has."""
        return self._of.get(key, 0)


class AdmittedCall:
    """What one call has of its gateway, until `close`."""

    __slots__ = ("_admission", "_body_bytes", "_turns", "key")

    def __init__(self, admission: "Admission", key: str) -> None:
        self._admission, self.key = admission, key
        self._body_bytes = 0
        self._turns: list[RoundRobin] = []

    def take_body(self, size: int) -> None:
        """Make room for more of the request body. Raises RateLimited, Overloaded."""
        uploads = self._admission.uploads
        if refused := uploads.take(self.key, size):
            share = (
                f"{uploads.of(self.key)} of the {uploads.total} bytes that this gateway has for"
                " unfinished request bodies"
            )
            if refused == "share":
                raise RateLimited(
                    f"this key has used its share, {share}; try again in 1 second",
                    code="key_uploads",
                    retry_after_s=1,
                )
            raise Overloaded(
                "this gateway is at its limit for unfinished request bodies; try again in 1 second",
                retry_after_s=1,
            )
        self._body_bytes += size

    async def begin(self) -> None:
        """Wait for this key's turn to begin a call. Raises Overloaded when none comes."""
        admission = self._admission
        wanted = [admission.beginnings]
        if self._body_bytes > BEGINNING_BYTES:
            wanted.insert(0, admission.large)
        try:
            async with asyncio.timeout(admission.claim_s):
                for turns in wanted:
                    await turns.enter(self.key)
                    self._turns.append(turns)
        except TimeoutError:
            raise Overloaded(
                "no policy worker took the call; try again in 1 second",
                code="no_worker",
                retry_after_s=1,
            ) from None

    def begun(self) -> None:
        """The request is approved or refused: its body is no longer kept, and another call may
        begin."""
        if self._body_bytes:
            self._admission.uploads.give_back(self.key, self._body_bytes)
            self._body_bytes = 0
        while self._turns:
            self._turns.pop().leave(self.key)

    def close(self) -> None:
        """The call is over."""
        self.begun()
        self._admission.calls.give_back(self.key)


class Admission:
    """Places of one gateway."""

    def __init__(self, limits: Limits, *, most_calls: int | None = None) -> None:
        self._key_calls, self._open_calls, self.claim_s = (
            limits.key_calls,
            limits.open_calls,
            limits.claim_s,
        )
        most = limits.open_calls if most_calls is None else min(limits.open_calls, most_calls)
        self.calls, self.uploads = Shares(most), Shares(limits.upload_bytes)
        self.beginnings, self.large = (
            RoundRobin(BEGINNING_CALLS),
            RoundRobin(BEGINNING_CALLS, most=1),
        )
        self._came = dict[str, float]()
        """When each key last asked for a place, on the monotonic clock."""

    def take(self, key: Key) -> AdmittedCall:
        """Return a place for one more call of `key`. Raises RateLimited where it has all that it
        may, Overloaded where none is left, or only for want of file descriptors."""
        most, open_calls, now = (
            key.calls or self._key_calls,
            self.calls.of(key.name),
            time.monotonic(),
        )
        self._came[key.name] = now
        # the general bound is for the sake of others: a key that has the gateway to itself has its
        # share of all places
        if open_calls >= most and (key.calls or self._has_others(key.name, now)):
            raise RateLimited(
                f"this key has {open_calls} open calls here, its limit; try again in 1 second",
                code="key_calls",
                retry_after_s=1,
            )
        if refused := self.calls.take(key.name):
            if open_calls < self._open_calls - self.calls.used:
                # with as many places as the configuration gives it would have one
                few = (
                    f"this gateway has file descriptors for only {self.calls.total} open calls; try"
                    " again in 1 second"
                )
                raise Overloaded(few, code="gateway_descriptors", retry_after_s=1)
            if refused == "share":
                message = (
                    f"this key has {open_calls} open calls here, its share of {self.calls.total}; try"
                    " again in 1 second"
                )
                raise RateLimited(message, code="key_calls", retry_after_s=1)
            raise Overloaded(
                "this gateway is at its limit for open calls; try again in 1 second",
                retry_after_s=1,
            )
        return AdmittedCall(self, key.name)

    def _has_others(self, name: str, now: float) -> bool:
        """Did another key use this gateway just now?"""
        return any(other != name and now - came < OTHERS_S for other, came in self._came.items())
