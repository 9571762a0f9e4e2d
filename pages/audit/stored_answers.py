"""Stored answers for the clients that received them: the answer again, and the input that it was
made for, for keys with the role `client`.

They get what was released to them, never more of the record; another key's answer is treated as one
that never existed. Must not know: SQL.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response

from db.keyring import refusal
from db.read.call.answers import AnswerReader
from protocol.audit_errors import SAFE, error_headers
from protocol.bounds import LOOKUPS_AT_ONCE, MAX_CHAINED
from protocol.bytes.json_strict import dumps
from protocol.dialects.base import ClientDialect
from protocol.dialects.table import CLIENTS, kept_of
from protocol.errors import AuditUnavailable, Forbidden, InvalidRequest, NotFound, PipelineError
from protocol.stored_answers import refusal as cannot_go_on
from protocol.unknown_paths import unknown_path, wrong_method
from settings.config import Key
from settings.runtime import Runtime
from streams.round_robin import RoundRobin

INPUT = "input_items"
_PAGE, _LONGEST_PAGE = 20, 100
_MAX_PARAMETERS = 32
_AT_ONCE, _OF_ONE = 8, 2
"""Questions at work at once, and of one key: each holds a conversation in memory."""


class StoredAnswersApi:
    """An ASGI application. `find` returns the key that the raw headers carry."""

    def __init__(
        self,
        settings: Runtime,
        find: Callable[[Iterable[tuple[bytes, bytes]]], Awaitable[Key | None]],
    ) -> None:
        self._find, self._most = find, settings.config.limits.body_bytes
        lookups = RoundRobin(LOOKUPS_AT_ONCE)
        self._readers = {
            name: AnswerReader.open(
                settings.database_url, name, max_bytes=self._most, turn=lookups.place
            )
            for name, client in CLIENTS.items()
            if client.kept_path
        }
        self._places = RoundRobin(_AT_ONCE, most=_OF_ONE)

    async def close(self) -> None:
        """Close all connections."""
        for reader in self._readers.values():
            await reader.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        dialect = kept_of(scope["path"])
        assert dialect is not None
        try:
            body = await self._serve(dialect, scope)
            status, headers = 200, SAFE
        except PipelineError as error:
            body, status = dialect.error_body(error), error.http_status
            headers = error_headers(status)
        await Response(body, status, headers, "application/json")(scope, receive, send)

    async def _serve(self, dialect: ClientDialect, scope: Any) -> bytes:
        key = await self._find(scope["headers"])
        if key is None:
            raise refusal(scope["headers"])
        if "client" not in key.roles:
            raise Forbidden("this key does not have the role 'client'", code="wrong_role")
        async with self._places.place(key.id):
            return await self._answer(dialect, scope, key)

    async def _answer(self, dialect: ClientDialect, scope: Any, key: Key) -> bytes:
        identity, _, suffix = scope["path"].removeprefix(dialect.kept_path).partition("/")
        if suffix not in ("", INPUT):
            raise unknown_path(scope["method"], scope["path"], scope["headers"])
        if scope["method"] != "GET":
            raise wrong_method(scope["method"], scope["path"], "GET")
        asked = _parameters(scope["query_string"])
        reader = self._readers[dialect.name]
        response = await reader.find_by_id(key.id, identity)
        if response is None:
            raise NotFound("this key has no response with this id", code="response_not_found")
        if not suffix:
            if asked.get("stream", "false") != "false" or "starting_after" in asked:
                raise InvalidRequest(
                    "a kept response is not streamed again: ask for it without stream",
                    param="stream",
                )
            return await asyncio.to_thread(dumps, response.answer)
        chain = await reader.input_of(key.id, response)
        if chain.missing == "away":
            raise AuditUnavailable(
                "kept answers cannot be read now; try again in 5 seconds", retry_after_s=5
            )
        if (
            gone := cannot_go_on(chain, most_answers=MAX_CHAINED, most_bytes=self._most)
        ) is not None:
            # what it went on with is not there any more
            raise NotFound(gone.message, code=gone.error_code)
        return await asyncio.to_thread(_page, dialect, chain.before, asked)


def _parameters(query: bytes) -> Mapping[str, str]:
    try:
        return dict(
            parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        )
    except ValueError:
        raise InvalidRequest(
            f"the query is not ASCII, or has more than {_MAX_PARAMETERS} parameters"
        ) from None


def _page(dialect: ClientDialect, items: list[Any], asked: Mapping[str, str]) -> bytes:
    """A page of the input, the newest first unless `order` is asc."""
    keeper = dialect.keeper()
    assert keeper is not None
    listed = keeper.listed(items)
    order, after, size = (
        asked.get("order", "desc"),
        asked.get("after"),
        asked.get("limit", str(_PAGE)),
    )
    if order not in ("asc", "desc"):
        raise InvalidRequest("must be asc or desc", param="order")
    if not (
        size.isascii() and size.isdigit() and len(size) < 4 and 1 <= int(size) <= _LONGEST_PAGE
    ):
        raise InvalidRequest(f"must be a whole number from 1 to {_LONGEST_PAGE}", param="limit")
    if order == "desc":
        listed.reverse()
    if after is not None:
        at = next((place for place, item in enumerate(listed) if item["id"] == after), None)
        if at is None:
            raise InvalidRequest("the input has no item with this id", param="after")
        listed = listed[at + 1 :]
    page = listed[: int(size)]
    ends = (
        {"first_id": page[0]["id"], "last_id": page[-1]["id"]}
        if page
        else {"first_id": None, "last_id": None}
    )
    return dumps({"object": "list", "data": page, **ends, "has_more": len(listed) > len(page)})
