"""Subscriptions of a worker: entries of its calls' streams, and for some calls the write-once
values that they wait for."""

import asyncio
from typing import Any

from streams import layout
from streams.connection import Connection
from workers.policy.call.owned import OwnedCall


class Subscriptions:
    """The channels of one worker's calls; `entries` and `facts` map each to its call."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.entries: dict[bytes, OwnedCall | None] = {}
        self.facts: dict[bytes, OwnedCall | None] = {}
        """What is subscribed to, before its call is adopted with None. Most calls never wait for a
        fact."""
        self._early = set[bytes]()
        """Where something came before the call was adopted."""

    def begin(self, call_ids: list[str], facts: bool) -> "asyncio.Future[Any]":
        """Hear of calls from when the future is done; of their `facts` only where they may wait for
        some already."""
        for call_id in call_ids if facts else ():
            self._hear_facts(layout.facts_channel(call_id), None)
        *others, last = map(layout.chunk_channel, call_ids)
        for channel in (*others, last):
            self.entries.setdefault(channel.encode(), None)
        for channel in others:
            self._connection.send_quiet("SUBSCRIBE", channel)
        return self._connection.call("SUBSCRIBE", last)

    def adopt(self, call: OwnedCall) -> bool:
        """What comes on the channels of this call is `call`'s. Returns whether something of its
        stream came before, unheard."""
        entries, facts = (
            layout.chunk_channel(call.id).encode(),
            layout.facts_channel(call.id).encode(),
        )
        self.entries[entries] = call
        if facts in self.facts:
            self.facts[facts] = call
        came = entries in self._early
        self._early.discard(entries)
        return came

    def miss(self, channel: bytes) -> None:
        """Something came on a channel that is nobody's yet."""
        if channel in self.entries:
            self._early.add(channel)

    def hear_facts(self, call: OwnedCall) -> None:
        """Hear of this call's facts. Written at once, before whatever asks for one, so that none
        comes unheard."""
        if self._hear_facts(layout.facts_channel(call.id), call):
            self._connection.flush()

    def _hear_facts(self, channel: str, call: OwnedCall | None) -> bool:
        if channel.encode() in self.facts:
            return False
        self.facts[channel.encode()] = call
        self._connection.send_quiet("SUBSCRIBE", channel)
        return True

    def end(self, call_id: str) -> None:
        """Hear of a call no more."""
        channel = layout.chunk_channel(call_id)
        self.entries.pop(channel.encode(), None)
        self._early.discard(channel.encode())
        self._connection.send_quiet("UNSUBSCRIBE", channel)
        if (facts := layout.facts_channel(call_id)).encode() in self.facts:
            del self.facts[facts.encode()]
            self._connection.send_quiet("UNSUBSCRIBE", facts)

    def renew(self) -> None:
        """Subscribe again, on a new connection; what is adopted later may have missed something
        before it."""
        self._early |= {channel for channel, call in self.entries.items() if call is None}
        for channel in (*self.entries, *self.facts):
            self._connection.send_quiet("SUBSCRIBE", channel)
