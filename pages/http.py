"""Answers of the pages and how they are sent; how a form is read. Everything a client sends or does
not take has a bound.

Must not know: the record, logins.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self
from urllib.parse import parse_qsl
from uuid import UUID

from db.read.items import dump_json
from db.read.items import time as time_text
from pages.page import Download, Page, joined
from pages.request_checks import Site
from protocol.bounds import FORM_S, MAX_RELAYED_FORM_BYTES
from protocol.errors import InvalidRequest, TooLarge, TooSlow

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MAX_FIELDS = 64
_HTML = b"text/html; charset=utf-8"


@dataclass(slots=True)
class PageReply:
    """An answer: whole, or in pieces."""

    status: int = 200
    body: bytes = b""
    media_type: bytes = _HTML
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: AsyncIterator[bytes] | None = None
    is_asset: bool = False

    @classmethod
    def redirect(cls, to: str, *headers: tuple[bytes, bytes]) -> Self:
        """Go there, with GET."""
        return cls(303, media_type=b"", headers=[(b"location", to.encode()), *headers])

    @classmethod
    async def of_pieces(cls, download: Download) -> Self:
        """Return the answer of a download. Its first piece is made before the answer begins, so
        that an error there has its status."""
        first = await anext(download.pieces, b"")
        headers = [(b"x-accel-buffering", b"no")]
        if download.filename:
            name = "".join(
                sign
                for sign in download.filename
                if sign.isascii() and (sign.isalnum() or sign in "._-")
            )
            headers.append((b"content-disposition", f'attachment; filename="{name}"'.encode()))
        return cls(
            media_type=download.media_type.encode(),
            headers=headers,
            pieces=joined(first, download.pieces),
        )


async def send_reply(
    reply: PageReply, site: Site, receive: Receive, send: Send, *, has_body: bool, stall_s: float
) -> None:
    """Send it, each piece when the client has taken the one before. Raises TimeoutError where a
    client takes nothing for `stall_s`."""
    headers = [*site.headers(is_asset=reply.is_asset), *reply.headers]
    if reply.media_type:
        headers.append((b"content-type", reply.media_type))
    if reply.pieces is None:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    try:
        await _send(
            send,
            {"type": "http.response.start", "status": reply.status, "headers": headers},
            stall_s,
        )
        if reply.pieces is None or not has_body:
            await _send(
                send,
                {"type": "http.response.body", "body": reply.body if has_body else b""},
                stall_s,
            )
        else:
            await _send_pieces(reply.pieces, receive, send, stall_s)
    finally:
        close = getattr(reply.pieces, "aclose", None)
        if close is not None:
            await close()


async def _send_pieces(
    pieces: AsyncIterator[bytes], receive: Receive, send: Send, stall_s: float
) -> None:
    async def all_of_it() -> None:
        async for piece in pieces:
            if piece:
                await _send(
                    send, {"type": "http.response.body", "body": piece, "more_body": True}, stall_s
                )
        await _send(send, {"type": "http.response.body", "body": b""}, stall_s)

    # who went away is not noticed by writing: a stream of events may have nothing to say for long
    sending, gone = (
        asyncio.create_task(all_of_it(), name="pieces"),
        asyncio.create_task(_until_gone(receive), name="reader"),
    )
    try:
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, gone):
            task.cancel()
        await asyncio.wait({sending, gone})
    if not sending.cancelled():
        sending.result()


async def _send(send: Send, message: MutableMapping[str, Any], stall_s: float) -> None:
    async with asyncio.timeout(stall_s):
        await send(message)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


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


def to_json(page: Page) -> bytes:
    """Return what a page was made of."""
    return dump_json(_json_value(dict(page.values)))


def _json_value(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [_json_value(item) for item in value]
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case datetime():
            return time_text(value)
        case None | str() | int() | float():
            return value
        case UUID():
            return str(value)
        case _:
            raise TypeError(f"{type(value).__name__} is no value of a page")
