"""Makes accounts of budgets of the record, when a call waits for one, and compares all that there
are with it every few minutes.

An account is right if it has what the record has, and what calls hold that the record does not have
yet. The record is read as of a moment before the account, and a call's hold stays for 10 s after it
came into the record: so each call counts once, whatever happens meanwhile, and what differs is
added to the account as it is by then.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from db.accounts import moment
from db.state.postgres_errors import server_words
from protocol.errors import AuditUnavailable, StreamConnectionLost
from settings.runtime import Runtime
from streams import budget_scripts, layout
from streams.connection import NOT_AN_ANSWER, Connection, RedisError

log = logging.getLogger(__name__)
EVERY_S, RETRY_S = 300.0, 1.0
MOST_S = 5.0
"""How long after the moment of the record the account may be looked at."""
_LENGTHS_MS = {"d": 86_400_000}


class Accounts:
    """The accounts, as one audit writer keeps them."""

    def __init__(self, settings: Runtime, redis: Connection) -> None:
        self._url, self._redis = settings.database_url, redis
        self._kept_days = settings.config.retention.everything
        self.woken = asyncio.Event()
        """A call waits for an account."""

    async def run(self) -> None:
        """Work until cancelled."""
        due = time.monotonic() + EVERY_S
        while True:
            try:
                await self._fill()
                if time.monotonic() >= due:
                    await self._compare()
                    due = time.monotonic() + EVERY_S
            except (AuditUnavailable, StreamConnectionLost, RedisError) as error:
                log.warning("budgets cannot be compared", extra={"error": server_words(error)})
                await asyncio.sleep(RETRY_S)
                continue
            try:
                async with asyncio.timeout(max(due - time.monotonic(), 0)):
                    await self.woken.wait()
            except TimeoutError:
                continue
            self.woken.clear()

    async def _fill(self) -> None:
        """Make the accounts that calls wait for."""
        cold = layout.budgets_cold_key()
        while accounts := await self._redis.call("SMEMBERS", cold):
            for account in _ordered(accounts):
                self.woken.clear()
                # else another writer makes it
                if await self._redis.call("SREM", cold, account):
                    await self._correct(account)
                    await self._redis.call("SREM", cold, account)
                if self.woken.is_set():
                    break

    async def _compare(self) -> None:
        name = layout.budget_accounts_key()
        for account in _ordered(await self._redis.call("SMEMBERS", name)):
            if not await self._redis.call("EXISTS", account):
                await self._redis.call("SREM", name, account)
                continue
            await self._correct(account)
            if self.woken.is_set():
                await self._fill()

    async def _correct(self, account: bytes) -> None:
        """Bring an account to what the record says; one that nobody can read is made anew."""
        try:
            await self.correct(account.decode())
        except (RedisError, *NOT_AN_ANSWER) as error:
            if isinstance(error, RedisError) and not error.is_spoilt_key:
                raise
            log.error("an account of a budget is spoilt", extra={"error": server_words(error)})
            await self._redis.call("DEL", account)

    async def correct(self, account: str) -> dict[str, int]:
        """Bring an account to what the record says; returns by how much, by field. Raises
        AuditUnavailable, StreamConnectionLost, RedisError."""
        subject = account.removeprefix(layout.account_key(""))
        now = datetime.now(UTC)
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        day_ms, month_ms = (
            int(at.timestamp()) * 1000
            for at in (now.replace(hour=0, minute=0, second=0, microsecond=0), month)
        )
        async with moment(self._url) as used:
            read = time.monotonic()
            held = await budget_scripts.look(
                self._redis, account, past_ms=month_ms - 31 * _LENGTHS_MS["d"]
            )
            if time.monotonic() - read > MOST_S:
                return {}
            windows = {"s0"} if subject[0] == "s" else {f"d{day_ms}", f"M{month_ms}"}
            windows |= {field[:-1] for field in held.used if field[0] in "dM"}
            by: dict[str, int] = {}
            for window in windows:
                since = int(window[1:])
                tokens, nano = await used(subject, since, _end_ms(window), held.leases)
                for its_tokens, its_nano, its in held.leases.values():
                    if window in its:
                        tokens, nano = tokens + its_tokens, nano + its_nano
                # of a window that began before, the record may not have all any more
                is_whole = self._kept_days is None or (
                    since > now.timestamp() * 1000 - self._kept_days * _LENGTHS_MS["d"]
                )
                for field, right in ((f"{window}t", tokens), (f"{window}u", nano)):
                    more = right - held.used.get(field, 0)
                    if more > 0 or (more and is_whole):
                        by[field] = more
        if by or not held.gen:
            await budget_scripts.correct(self._redis, account, held, secrets.token_hex(8), by)
        if by and held.gen:
            log.warning("a budget differed from the record", extra={"count": len(by)})
        return by


def _ordered(accounts: Iterable[bytes]) -> list[bytes]:
    """Return accounts as they are made: those of sessions last, as a client can name as many as it
    likes; drawn, so that several writers begin with others."""
    drawn = list(accounts)
    random.shuffle(drawn)
    sessions = layout.account_key("s").encode()
    return sorted(drawn, key=lambda account: account.startswith(sessions))


def _end_ms(window: str) -> int:
    """Return when a window ends; 0: never."""
    start = int(window[1:])
    if window[0] == "M":
        # any day of the next month is 31 or 32 days later at most
        later = datetime.fromtimestamp(start / 1000 + 32 * 86_400, UTC)
        return int(later.replace(day=1, hour=0, minute=0, second=0).timestamp()) * 1000
    return start + _LENGTHS_MS["d"] if window[0] == "d" else 0
