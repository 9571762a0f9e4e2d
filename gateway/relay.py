"""Moves released bytes to clients and approved requests upstream. Every answer of a gateway is
written here: what workers released, in the order of its numbers, or an error in the caller's
dialect.
"""

import asyncio

from gateway.asgi import Send
from gateway.call.calls import OpenCall
from gateway.http_limits import Write
from gateway.upstream import Upstreams
from protocol.bytes.compressed import CODINGS
from protocol.dialects.base import ClientDialect
from protocol.errors import PipelineError, UnsupportedEncoding

_JSON = b"application/json"
_NO_SNIFF = (b"x-content-type-options", b"nosniff")


class ClientGone(PipelineError):
    """There is nobody left to answer; `code` is the reason in the record."""

    code = "client_gone"


class Relay:
    """Moves one call's released bytes to its client and its approved requests to the upstream."""

    def __init__(
        self, call: OpenCall, upstreams: Upstreams, send: Send, write: Write | None = None
    ) -> None:
        self._call, self._upstreams, self._send, self._write = call, upstreams, send, write
        self._upstream: asyncio.Task[None] | None = None
        self.complete = False

    async def run(self) -> None:
        """Relay until the answer is complete or has failed; `complete` says which."""
        call = self._call
        while True:
            await self._wait()
            if call.order.error is not None:
                await self._fail(call.order.error)
                return
            if (dispatch := call.order.take_dispatch()) is not None:
                # a continued turn: the session has had all of the answer before it, so at most the
                # clean-up of that request is still running. Another attempt may come before the end
                # of the one that failed
                await self.stop_upstream()
                self._upstreams.replace(call)
                self._upstream = asyncio.get_running_loop().create_task(
                    self._upstreams.send(call, dispatch), name="upstream"
                )
            end = call.order.end
            if call.outgoing.size or end:
                data = call.take_out() if call.outgoing.size else b""
                await self._put(data, last=bool(end))
            if end:
                self.complete = True
                return

    async def _wait(self) -> None:
        call = self._call
        # direct writes are safe only while this task writes nothing itself
        if call.order.head_sent:
            call.outgoing.write = self._write
        try:
            await call.wait()
        finally:
            call.outgoing.write = None

    async def _put(self, data: bytes, *, last: bool) -> None:
        call = self._call
        if not call.order.head_sent:
            call.begin_answer()
            head = [
                (b"x-sluice-call-id", call.id.encode()),
                _NO_SNIFF,
                (b"cache-control", b"no-cache, no-transform"),
                (b"x-accel-buffering", b"no"),
            ]
            head += [
                (k.encode(), v.encode("latin-1", "replace"))
                for k, v in {**call.order.upstream_headers, **call.order.headers}.items()
            ]
            if last:
                head.append((b"content-length", str(len(data)).encode()))
            await self._send(
                {"type": "http.response.start", "status": call.order.status or 200, "headers": head}
            )
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def _fail(self, error: PipelineError) -> None:
        call = self._call
        if isinstance(error, ClientGone):
            return
        if not call.order.head_sent:
            call.begin_answer()
            call.outgoing.write_error(call.dialect.error_body(error))
            await respond_error(self._send, call.dialect, error, call_id=call.id)
            return
        if call.order.headers.get("content-type", "").startswith("text/event-stream"):
            frame = call.dialect.error_frame("api_error", error.message, error.error_code)
            call.outgoing.write_error(frame)
            await self._send({"type": "http.response.body", "body": frame, "more_body": False})

    async def stop_upstream(self) -> None:
        """Cancel the request that is under way, if one is, and wait for its end."""
        if self._upstream is not None and not self._upstream.done():
            self._upstream.cancel()
            await asyncio.wait({self._upstream})


async def respond(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = _JSON,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    """Write a whole answer."""
    head = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
        _NO_SNIFF,
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def respond_error(
    send: Send, dialect: ClientDialect, error: PipelineError, *, call_id: str = ""
) -> None:
    """Answer with one of our errors in a dialect."""
    headers = [*error.headers]
    if call_id:
        headers.append((b"x-sluice-call-id", call_id.encode()))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    status = error.http_status
    if isinstance(error, UnsupportedEncoding):
        # RFC 9110, 15.5.16: what would be accepted
        headers.append((b"accept-encoding", ", ".join(CODINGS).encode()))
    # these go out unchanged; the dialect maps all others
    client_status = status if status in (404, 405, 415) else dialect.statuses.get(status, status)
    await respond(send, client_status, dialect.error_body(error), headers=tuple(headers))
