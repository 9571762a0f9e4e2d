"""Where a process shows its own figures to Prometheus: GET /metrics and /health, without a key, so
nothing but numbers and configured names. Must not know: what is counted.

Off unless `metrics_port` is set. A request is at most 8 KiB and takes at most 5 s, and there are 16
at once, so nobody who reaches the port can keep the process from its calls.
"""

import asyncio
import contextlib
import json
import logging
import platform
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

from protocol.requests.addresses import bracketed
from settings.defaults import VERSION
from settings.runtime import Runtime
from streams.metrics import BUCKETS, Labels, Measure, Now, ProcessFigures, Sample, metric

log = logging.getLogger(__name__)
MOST_BYTES = 8 * 1024
MOST_CONNECTIONS = 16
ANSWER_S = 5.0
LAG_EVERY_S, LAGS = 1.0, 15
HEAD = (
    b"HTTP/1.1 %b\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n"
)


class Exposition:
    """The figures of one process as prometheus-client reads them. It is loaded here: a process
    without a port does without."""

    def __init__(self, figures: ProcessFigures, role: str) -> None:
        import prometheus_client

        self._figures, self._lags = figures, deque([0.0], LAGS)
        self.role = role
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.registry.register(self)

    def text(self) -> bytes:
        """Return what a scrape gets."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    async def watch_loop(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._lags.append(max(0.0, loop.time() - due))

    def _own(self) -> Iterable[Sample]:
        return (
            (Now.BUILD_INFO, (VERSION, platform.python_version(), self.role), 1),
            (Now.LOOP_LAG_SECONDS, (), max(self._lags)),
        )

    def collect(self) -> Iterable[Any]:
        """All families, as the registry asks for them."""
        from prometheus_client import core

        figures = self._figures
        gauges = defaultdict[Now, list[tuple[Labels, float]]](list)
        # first: some count what was only noted
        for read in (self._own, *figures.reads):
            for now, labels, number in read():
                gauges[now].append((labels, number))
        for total, counts in figures.totals.items():
            yield _family(core.CounterMetricFamily, total, counts.items())
        for span, spans in figures.spans.items():
            family = _family(core.HistogramMetricFamily, span, ())
            for labels, buckets in spans.items():
                upto = zip((*map(str, BUCKETS), "+Inf"), accumulate(buckets[:-1]), strict=True)
                family.add_metric(labels, list(upto), buckets[-1])
            yield family
        for now, lines in gauges.items():
            yield _family(core.GaugeMetricFamily, now, lines)


def _family(make: Any, measure: Measure, lines: Iterable[tuple[Labels, float]]) -> Any:
    text, *labels = measure.value
    family = make(metric(measure), text, labels=labels)
    for values, number in lines:
        family.add_metric(values, number)
    return family


@contextlib.asynccontextmanager
async def listening(
    settings: Runtime,
    exposition: Callable[[], Exposition],
    refresh: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Serve this process's figures meanwhile, if a port is set. `refresh` is awaited before each
    scrape. A port that cannot be had is logged: nobody's calls wait for it."""
    if settings.metrics_port is None:
        yield
        return
    shown, host, port = exposition(), settings.metrics_host, settings.metrics_port

    async def text() -> bytes:
        if refresh is not None:
            await refresh()
        return shown.text()

    try:
        server = await asyncio.start_server(_Port(text).serve, host, port, limit=MOST_BYTES)
        host, port = server.sockets[0].getsockname()[:2]
        if settings.metrics_target:
            _write_target(Path(settings.metrics_target), shown.role, f"{bracketed(host)}:{port}")
    except OSError as error:
        log.error(
            "no metrics: correct SLUICE_METRICS_HOST, SLUICE_METRICS_PORT, SLUICE_METRICS_TARGET",
            extra={"host": host, "port": port, "error": error.strerror or str(error)},
        )
        yield
        return
    watching = asyncio.create_task(shown.watch_loop(), name="loop lag")
    log.info("metrics", extra={"host": host, "port": port})
    try:
        yield
    finally:
        watching.cancel()
        server.close()


def _write_target(path: Path, role: str, address: str) -> None:
    target = [{"targets": [address], "labels": {"role": role, "process": path.stem}}]
    part = path.with_suffix(".part")
    part.write_text(json.dumps(target))
    # whole or not at all: Prometheus reads it when it likes
    part.replace(path)


class _Port:
    def __init__(self, text: Callable[[], Awaitable[bytes]]) -> None:
        self._text, self._open = text, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        # `drain` waits until all is sent
        writer.transport.set_write_buffer_limits(0)
        try:
            if self._open <= MOST_CONNECTIONS:
                async with asyncio.timeout(ANSWER_S):
                    await self._answer(reader, writer)
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # too slow, too long, gone, or no request
        except Exception:
            log.exception("metrics cannot be shown")
        finally:
            self._open -= 1
            # nobody waits for a slow reader: what is not taken by now is dropped
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, *_ = head.split(b" ", 2)
        status, body = b"404 Not Found", b"GET /metrics or /health\n"
        if method != b"GET":
            status = b"405 Method Not Allowed"
        elif path == b"/health":
            status, body = b"200 OK", b"ok\n"
        elif path == b"/metrics":
            status, body = b"200 OK", await self._text()
        writer.write(HEAD % (status, len(body)) + body)
        await writer.drain()
