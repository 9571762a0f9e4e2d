"""Asks the OpenID Connect provider: one request, one JSON object, within bounds. No redirect is
followed, and no address comes from a request of a client.

Must not know: what an answer means.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import h11
import msgspec

from protocol.errors import PipelineError

ANSWER_S = 10.0
"""How long the provider may take for one answer."""
MAX_ANSWER_BYTES = 2**19
_PIECE_BYTES = 2**16


class ProviderAway(PipelineError):
    """The provider does not answer, or not as it must: nobody can log in there now."""

    code = "provider_away"
    http_status = 503


async def fetch(
    url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object at an address; `form` is sent with POST. Raises
    ProviderAway."""
    try:
        async with asyncio.timeout(ANSWER_S):
            status, body = await _exchange(url, headers, form)
        answer = msgspec.json.decode(body)
    except (OSError, EOFError, h11.ProtocolError, ValueError, RecursionError) as error:
        # a time-out is an OSError too
        raise ProviderAway(f"the provider cannot be asked now ({type(error).__name__})") from error
    if not isinstance(answer, dict):
        raise ProviderAway("the provider does not answer with a JSON object")
    return status, answer


async def _exchange(
    url: str, headers: Mapping[str, str], form: Mapping[str, str] | None
) -> tuple[int, bytes]:
    parts, body = urlsplit(url), b"" if form is None else urlencode(form).encode()
    is_secure = parts.scheme == "https"
    sent = {"host": parts.netloc, "accept": "application/json", "connection": "close", **headers}
    if form is not None:
        sent |= {
            "content-type": "application/x-www-form-urlencoded",
            "content-length": str(len(body)),
        }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="GET" if form is None else "POST", target=target, headers=[*sent.items()]
    )
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if is_secure else 80), ssl=is_secure or None
    )
    try:
        writer.write(connection.send(request) or b"")
        writer.write((connection.send(h11.Data(body)) or b"") if body else b"")
        connection.send(h11.EndOfMessage())
        return await _read(connection, reader)
    finally:
        # it has answered, and need not say goodbye
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[int, bytes]:
    status, body = 0, b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_ANSWER_BYTES:
                raise EOFError
        elif isinstance(event, h11.EndOfMessage):
            return status, body
        elif not isinstance(event, h11.InformationalResponse):
            raise EOFError
