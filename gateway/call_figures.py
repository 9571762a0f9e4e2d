"""What a gateway counts of a call and of a request upstream, for `/metrics`."""

import time
from collections.abc import Iterator, Mapping

from gateway.call.calls import OpenCall
from protocol.errors import PipelineError
from streams.metrics import Figures, Now, Sample, Span, Total

_TIMERS = {
    "no_worker": "claim",
    "stream_timeout": "activity",
    "call_deadline": "call",
    "body_timeout": "body",
    "upstream_connect_timeout": "connect",
    "upstream_timeout": "silent",
}
"""Timers by the code of the error with which each ends a call or a request."""


def failed(figures: Figures, error: PipelineError) -> None:
    """Count the timer that this error comes from, if it comes from one."""
    if (timer := _TIMERS.get(error.error_code)) is not None:
        figures.add(Total.TIMEOUTS, timer)


def states(upstreams: Mapping[str, int]) -> Iterator[Sample]:
    """Yield whether each upstream is asked."""
    for name, state in upstreams.items():
        yield Now.UPSTREAM_STATE, (name,), state


def ended(figures: Figures, call: OpenCall) -> None:
    """Count a call that is over, before its end is queued."""
    order, upstream = call.order, call.order.upstream or "none"
    if order.error is not None:
        failed(figures, order.error)
    figures.add(Total.CHUNKS_RECEIVED, upstream, by=call.appender.chunks)
    figures.observe(Span.CALL_SECONDS, time.monotonic() - call.started, upstream)
    if order.head_sent:
        figures.observe(Span.FIRST_RELEASE_SECONDS, order.head_at - call.started, upstream)
