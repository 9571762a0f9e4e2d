"""The end of an audit writer, and its patience with a Postgres that is away, which ends with it."""

import asyncio
import logging
import math
import time
from typing import Any

from db.state.postgres_errors import server_words
from protocol.errors import AuditUnavailable, StreamConnectionLost

log = logging.getLogger(__name__)
STOP_S = 2.0
"""How long a writer goes on with what is there after its stop signal."""
RETRY_S = 0.25


class WriterStop:
    """The end of a writer: asked for by a signal, begun once nothing is delivered to it any more,
    over when there is nothing left or its time has gone."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.has_begun = asyncio.Event()
        self._until = math.inf

    def begin(self) -> None:
        """Go on with what is there for so long, and take nothing new after that."""
        self._until = time.monotonic() + STOP_S
        self.has_begun.set()

    @property
    def has_time(self) -> bool:
        """May it go on?"""
        return time.monotonic() < self._until

    async def until_stored(self, store: Any, *args: Any) -> Any:
        """Call `store` until Postgres took it. Stopping gives up: the entries stay pending for
        another writer."""
        logged = ""
        while True:
            try:
                return await store(*args)
            except AuditUnavailable as error:
                if (words := server_words(error)) != logged:
                    log.warning(
                        "PostgreSQL takes no audit records: they stay in Redis",
                        extra={"error": words},
                    )
                logged = words
                if self.has_begun.is_set():
                    raise StreamConnectionLost("stopped while Postgres was away") from error
                await asyncio.sleep(RETRY_S)
