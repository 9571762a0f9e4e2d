"""What a gateway counts of a call and of a request upstream, for `/metrics`."""

import time
from collections.abc import Iterable, Iterator, Mapping

from gateway.call.calls import OpenCall
from protocol.errors import PipelineError
from streams.metrics import Now, ProcessFigures, Sample, Span, Total

MOST_NOTED = 500
_TIMERS = {
    "no_worker": "claim",
    "stream_timeout": "activity",
    "call_deadline": "call",
    "body_timeout": "body",
    "upstream_connect_timeout": "connect",
    "upstream_timeout": "silent",
}
"""Timers by the code of the error with which each ends a call or a request."""


def failed(figures: ProcessFigures, error: PipelineError) -> None:
    """Count the timer that this error comes from, if it comes from one."""
    if (timer := _TIMERS.get(error.error_code)) is not None:
        figures.add(Total.TIMEOUTS, timer)


def states(upstreams: Mapping[str, int]) -> Iterator[Sample]:
    """Yield whether each upstream is asked."""
    for name, state in upstreams.items():
        yield Now.UPSTREAM_STATE, (name,), state


class NotedCalls:
    """Calls that are over, noted as each ends and counted together: at a scrape, and when there are
    many."""

    def __init__(self, figures: ProcessFigures) -> None:
        self._figures = figures
        self._noted = list[tuple[str, int, float, float]]()
        """Upstream, chunks that came, seconds up to the first release (below 0: none) and whole."""
        figures.reads.append(self.count)

    def note(self, call: OpenCall) -> None:
        """Note a call, before its end is queued."""
        order = call.order
        if order.error is not None:
            failed(self._figures, order.error)
        now, begun = time.monotonic(), call.started
        self._noted.append((order.upstream, call.flow.chunks, order.head_at - begun, now - begun))
        if len(self._noted) >= MOST_NOTED:
            self.count()

    def count(self) -> Iterable[Sample]:
        """Count what is noted."""
        noted, self._noted = self._noted, []
        for name, chunks, first_s, whole_s in noted:
            upstream = name or "none"
            self._figures.add(Total.CHUNKS_RECEIVED, upstream, by=chunks)
            self._figures.observe(Span.CALL_SECONDS, whole_s, upstream)
            if first_s >= 0:
                self._figures.observe(Span.FIRST_RELEASE_SECONDS, first_s, upstream)
        return ()
