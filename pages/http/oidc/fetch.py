"""Asks the OpenID Connect provider: one request, one JSON object, within bounds. No redirect is
followed, and no address comes from a request of a client.

Must not know: what an answer means.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from protocol.errors import PipelineError

ANSWER_S = 4.0
"""How long the provider may take for one answer."""
MAX_ANSWER_BYTES = 2**18
_FORM = "application/x-www-form-urlencoded"


class ProviderAway(PipelineError):
    """The provider does not answer, or not as it must: nobody can log in there now."""

    code = "provider_away"
    http_status = 502


async def fetch(
    url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object at an address, whatever its status; `form` is sent with POST. Raises
    ProviderAway."""
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await _exchanged(url, headers, form or {})
            return msgspec.json.decode(answer, type=dict[str, Any])
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        # a time-out is an OSError too
        raise ProviderAway(f"the provider cannot be asked now ({type(error).__name__})") from error


async def _exchanged(url: str, headers: Mapping[str, str], form: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=ANSWER_S)

    def exchange() -> bytes:
        target = parts._replace(scheme="", netloc="").geturl() or "/"
        body, sent = urlencode(form), {"content-type": _FORM, **headers}
        connection.request("POST" if form else "GET", target, body or None, sent)
        with contextlib.closing(connection), connection.getresponse() as answer:
            return answer.read(MAX_ANSWER_BYTES)

    try:
        return await asyncio.to_thread(exchange)
    finally:
        # the thread may still wait for it
        with contextlib.suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)
