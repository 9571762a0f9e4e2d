"""Provider-run calls of an answer and their results: which belong together, and what a result waits
for.

Theory. With policies that read results, an approved call goes out when its result is approved too.
A denied call ends the turn, and what stands behind it is cut off: so a result counts only once no
call before it can be denied any more. Else what comes out would depend on which verdict came first.
"""

from collections.abc import Iterator
from typing import NamedTuple

from policy.base import Block
from policy.session.answer import toolcalls
from policy.session.answer.slots import CallSlot
from policy.session.answer.toolcalls import ProviderCall
from protocol.errors import RemoteProtocolError
from protocol.request import ChatRequest


class ResultDecision(NamedTuple):
    """The decision about a result: the block, if any, and who made it; `waits` are calls before it
    that may still withhold it."""

    block: Block | None
    who: str
    waits: set[int]


class Pairs:
    """The calls by id, and what is known of their results."""

    def __init__(self) -> None:
        self._calls: dict[str, CallSlot] = {}
        self._results: dict[str, ResultDecision] = {}
        self._deciding: set[int] = set()
        """Calls that are not the client's to run and may yet be denied."""
        self._history: dict[str, ProviderCall] = {}
        self._late: set[str] = set()

    def look_at(self, sent: ChatRequest) -> None:
        """Take the calls in a request whose results may come now."""
        self._history |= toolcalls.provider_calls(sent)

    def begin(self, call: CallSlot) -> None:
        """Take a call. Raises RemoteProtocolError where its id was used."""
        if call.id in self._calls or call.id in self._late:
            raise RemoteProtocolError(
                "upstream used the id of a tool call twice, or gave a result before its call"
            )
        self._calls[call.id] = call

    def may_cut(self, slot: CallSlot) -> None:
        """Take a call or late result that may be denied."""
        self._deciding.add(slot.key)

    def call_of(self, identity: object) -> CallSlot | None:
        """The call in this answer that a result names."""
        return self._calls.get(identity) if isinstance(identity, str) else None

    def earlier(self, identity: str) -> ProviderCall | None:
        """The call in an earlier answer that a result names, which no call in this one may be from
        now on."""
        self._late.add(identity)
        return self._history.get(identity)

    def add(self, call: CallSlot, block: Block | None, who: str) -> None:
        """Take the decision about the result of `call`."""
        self._results[call.id] = ResultDecision(block, who, self._deciding - {call.key})

    def result(self, call: CallSlot) -> ResultDecision | None:
        """The decision about its result, if it came."""
        return self._results.get(call.id)

    def allowed(self, slot: CallSlot) -> Iterator[CallSlot]:
        """Take that a call cannot be denied any more; gives the calls that waited for it with their
        result."""
        self._deciding.discard(slot.key)
        for identity, result in self._results.items():
            if slot.key in result.waits:
                result.waits.discard(slot.key)
                if self._calls[identity].waits:
                    yield self._calls[identity]

    def cut(self, slot: CallSlot) -> None:
        """Forget the results behind a call."""
        self._results = {i: r for i, r in self._results.items() if slot.key not in r.waits}

    def without_result(self) -> list[CallSlot]:
        """The approved calls whose result did not come."""
        return [s for s in self._calls.values() if s.waits and s.id not in self._results]
