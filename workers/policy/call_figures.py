"""What a policy worker counts of its calls, for `/metrics`: once each, when Redis has taken the end.

A call that was taken over was replayed, so who ends it knows all of it; who lost it counts nothing.
A chunk that was held goes by the last word on its block, as in the record.
"""

from collections import Counter

from protocol.events import BlockKind
from protocol.records import PASSED, CallRecord, EndRecord
from settings.config import Config
from streams.metrics import ProcessFigures, Total
from workers.policy.call.owned import OwnedCall

_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "thinking": "thinking_tokens",
}
_KINDS = frozenset(BlockKind)
NONE = "none"


class CallFigures:
    """Counts the calls of one worker."""

    def __init__(self, config: Config, figures: ProcessFigures) -> None:
        self._config, self.figures = config, figures

    def _route(self, begun: CallRecord | None) -> str:
        route = self._config.route_of(begun.model) if begun is not None else None
        return NONE if route is None else route.match or route.names[0]

    def began(self, record: CallRecord | None) -> None:
        """Count a call that nobody had before."""
        self.figures.add(Total.CALLS_STARTED, self._route(record))

    def ended(self, call: OwnedCall, end: EndRecord) -> None:
        """Count a call with its end."""
        call.decided.begin(None)
        add, route = self.figures.add, self._route(call.decided.call)
        add(Total.CALLS_ENDED, route, end.state, end.reason)
        for kind, field in _TOKENS.items():
            if tokens := getattr(end, field):
                add(Total.TOKENS, route, kind, by=tokens)
        for of, cost in (("calls", end.cost_nanousd), ("judges", end.judge_nanousd)):
            if cost:
                add(Total.COST_NANOUSD, route, of, by=cost)
        last = call.decided.last
        for kind, policy, verdict in last.values():
            add(Total.VERDICTS, policy or NONE, kind if kind in _KINDS else "other", verdict)
        chunks = Counter[tuple[str, str]]()
        for (verdict, block), number in call.queue.marks.items():
            decided = last.get(block)
            word: str = decided.verdict if verdict == "hold" and decided is not None else verdict
            policy = decided.policy if decided is not None else ""
            chunks[policy or NONE, word] += number
        for (policy, word), number in chunks.items():
            if word in PASSED:
                add(Total.CHUNKS_FORWARDED, policy, by=number)
            elif word == "hold":
                add(Total.CHUNKS_UNDECIDED, by=number)
            else:
                add(Total.CHUNKS_WITHHELD, policy, word, by=number)
