"""In which order an audit writer makes the accounts of budgets, and when it lowers one."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from settings.config import Config
from settings.runtime import Runtime
from streams import layout
from streams.connection import Connection
from workers.audit import accounts
from workers.audit.accounts import Accounts

COLD = layout.budgets_cold_key()


class Redis:
    """The sets of accounts, and one account: 100 tokens used this month and today."""

    def __init__(self) -> None:
        self.sets: dict[str, set[bytes]] = {COLD: set(), layout.budget_accounts_key(): set()}
        self.spoilt = False
        month = time.strftime("%Y-%m-01", time.gmtime())
        start = int(time.mktime(time.strptime(month, "%Y-%m-%d"))) - time.timezone
        self.month = f"M{start * 1000}t"

    async def call(self, name: str, key: Any, member: bytes = b"") -> Any:
        match name:
            case "SMEMBERS":
                return set(self.sets[key])
            case "SREM":
                is_there = member in self.sets[key]
                self.sets[key].discard(member)
                return is_there
            case "DEL":
                self.spoilt = False
        return 1

    async def script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        if name == "budget_look":
            junk = [b"lc", b"junk"] if self.spoilt else []
            return [b"gen", b"g", self.month.encode(), b"100", *junk]
        return 1


def writer(redis: Redis, **retention: Any) -> Accounts:
    config = Config.model_validate({"retention": retention})
    settings = cast("Runtime", SimpleNamespace(database_url="", config=config))
    return Accounts(settings, cast("Connection", redis))


async def test_a_clients_many_sessions_keep_no_key_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    redis, made = Redis(), list[str]()
    made_by = writer(redis)
    names = [layout.account_key(f"sk{n}") for n in range(20)]
    other = layout.account_key("kother")

    async def correct(_: Accounts, account: str) -> dict[str, int]:
        made.append(account)
        if len(made) in (3, 23):
            # a call of another key comes meanwhile
            redis.sets[COLD].add(other.encode())
            made_by.woken.set()
        return {}

    monkeypatch.setattr(Accounts, "correct", correct)
    monkeypatch.setattr(accounts, "EVERY_S", 0.0)
    redis.sets[COLD] = {name.encode() for name in names}
    redis.sets[layout.budget_accounts_key()] = {name.encode() for name in names}
    task = asyncio.create_task(made_by.run())
    async with asyncio.timeout(10):
        while len(made) < 42:
            await asyncio.sleep(0)
    task.cancel()
    assert made[3] == made[23] == other
    assert sorted(made[:42]) == sorted(2 * [*names, other])


@pytest.mark.parametrize(("days", "lowered"), [(None, True), (40, True), (1, False)])
async def test_a_spoilt_account_goes_and_what_retention_took_from_the_record_stays_used(
    monkeypatch: pytest.MonkeyPatch, days: int | None, lowered: bool
) -> None:
    async def used(_: str, since: int, until: int, but: Collection[str]) -> tuple[int, int]:
        return 0, 0

    @contextlib.asynccontextmanager
    async def moment(_: str) -> AsyncIterator[Any]:
        yield used

    class Late(datetime):
        """The 20th of the month."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz).replace(day=20)

    monkeypatch.setattr(accounts, "moment", moment)
    monkeypatch.setattr(accounts, "datetime", Late)
    redis = Redis()
    redis.sets[COLD] = {layout.account_key("k1").encode()}
    redis.spoilt = True
    task = asyncio.create_task(writer(redis).run())
    while redis.spoilt or redis.sets[COLD]:
        await asyncio.sleep(0)
    task.cancel()
    by = await writer(redis, everything=days).correct(layout.account_key("k1"))
    assert by == ({redis.month: -100} if lowered else {})
