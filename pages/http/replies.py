"""Answers of the pages in Starlette's words, and how a form is read. Everything a client sends has
a bound.

Must not know: the record, logins.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qsl

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pages.page import Download, close_pieces, joined
from protocol.bounds import FORM_S, MAX_RELAYED_FORM_BYTES
from protocol.errors import InvalidRequest, TooLarge, TooSlow

MAX_FIELDS = 64


def html(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a page."""
    return Response(body, status, headers, "text/html")


def see_other(to: str) -> Response:
    """Answer: go there, with GET. The address stays as it is, where Starlette would quote it."""
    response = Response(status_code=303)
    response.raw_headers.append((b"location", to.encode()))
    return response


class PieceResponse(StreamingResponse):
    """An answer in pieces: each waits until the client took the one before. Their source is closed
    with it, also where the client goes before the first."""

    def __init__(
        self, pieces: AsyncIterator[bytes], source: AsyncIterator[bytes], headers: Mapping[str, str]
    ) -> None:
        super().__init__(pieces, headers=headers)
        self._pieces, self._source = pieces, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, as long as somebody takes it."""
        try:
            if scope["method"] == "HEAD":
                await send(
                    {
                        "type": "http.response.start",
                        "status": self.status_code,
                        "headers": self.raw_headers,
                    }
                )
                await send({"type": "http.response.body", "body": b""})
            else:
                await super().__call__(scope, receive, send)
        finally:
            await close_pieces(self._pieces)
            await close_pieces(self._source)


async def first_and_others(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return these pieces once the first is made: an error in it still has its status."""
    first = await anext(source, b"")
    return joined(first, source)


def download_headers(download: Download) -> dict[str, str]:
    """Return the headers of a download."""
    headers = {"x-accel-buffering": "no", "content-type": download.media_type}
    if download.filename:
        name = "".join(
            sign
            for sign in download.filename
            if sign.isascii() and (sign.isalnum() or sign in "._-")
        )
        headers["content-disposition"] = f'attachment; filename="{name}"'
    return headers


async def read_form(receive: Receive) -> dict[str, str]:
    """Return the fields of a form. Raises TooLarge, TooSlow, and InvalidRequest for a field that is
    there twice."""
    body = b""
    try:
        async with asyncio.timeout(FORM_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise InvalidRequest("the form did not come whole")
                body += message.get("body", b"")
                if len(body) > MAX_RELAYED_FORM_BYTES:
                    raise TooLarge(f"a form has at most {MAX_RELAYED_FORM_BYTES:,} bytes")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise TooSlow("the form did not arrive in time", retry_after_s=1) from None
    try:
        fields = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_FIELDS,
            errors="replace",
        )
    except ValueError:
        raise InvalidRequest(f"a form is ASCII with at most {MAX_FIELDS} fields") from None
    form: dict[str, str] = {}
    for name, value in fields:
        if name in form or "\x00" in name + value:
            raise InvalidRequest(
                "given twice" if name in form else "holds the character U+0000",
                param=name.replace("\x00", "")[:64],
            )
        form[name] = value
    return form
