"""API keys of a gateway: a key that is not known is looked up before it is refused, and wrong ones
do not load the database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta, timezone
from hashlib import sha256

import pytest

from db import keyring
from db.keyring import KeyRing, refusal
from protocol.bounds import MAX_LOOKED_UP_KEYS, MAX_UNKNOWN_KEYS
from protocol.errors import AuditUnavailable, Unauthenticated
from settings.config import Key
from tests.support.waiting import wait_until


def key(name: str, text: str) -> Key:
    return Key(name=name, sha256=sha256(text.encode()).hexdigest())


def sent(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + text.encode())]


class Table:
    """The keys in Postgres, and what is asked of it."""

    def __init__(self) -> None:
        self.keys = list[Key]()
        self.loads = 0
        self.asked = list[int]()
        self.is_away = False

    async def load(self) -> Sequence[Key]:
        """All of them."""
        self.loads += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise AuditUnavailable("away")
        return list(self.keys)

    async def look_up(self, digests: Sequence[str]) -> Sequence[Key]:
        """Those of them."""
        self.asked.append(len(digests))
        await asyncio.sleep(0)
        if self.is_away:
            raise AuditUnavailable("away")
        return [one for one in self.keys if one.sha256 in digests]


@asynccontextmanager
async def ring(table: Table, *file: Key) -> AsyncIterator[KeyRing]:
    made = KeyRing(file, table.load, table.look_up)
    task = asyncio.create_task(made.refresh())
    await wait_until(lambda: table.loads)
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_new_key_works_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 3600.0)
    table = Table()
    async with ring(table) as keys:
        table.keys.append(key("new", "sk-new"))
        assert keys.authenticate(sent("sk-new")) is None
        found = await asyncio.gather(*(keys.find(sent("sk-new")) for _ in range(20)))
        assert {one.name for one in found if one is not None} == {"new"} and None not in found
        assert (table.asked, table.loads) == ([1], 1)
        # known from now on
        assert keys.authenticate(sent("sk-new")) == table.keys[0]


async def test_a_key_of_the_file_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 3600.0)
    table = Table()
    async with ring(table, key("dev", "sk-file")) as keys:
        table.keys.append(key("dev", "sk-table"))
        assert await keys.find(sent("sk-table")) is None
        assert (await keys.find(sent("sk-file"))) == key("dev", "sk-file")


async def test_a_revoked_key_that_was_looked_up_is_refused_after_the_next_refresh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 0.05)
    monkeypatch.setattr(keyring, "LOOKUP_S", 0.01)
    table = Table()
    async with ring(table) as keys:
        table.keys.append(key("new", "sk-new"))
        assert await keys.find(sent("sk-new")) is not None
        table.keys.clear()
        await wait_until(lambda: keys.authenticate(sent("sk-new")) is None)


async def test_wrong_keys_do_not_load_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 3600.0)
    table = Table()
    async with ring(table) as keys:
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await asyncio.gather(
            *(keys.find(sent(f"wrong-{n}")) for n in range(20 * MAX_LOOKED_UP_KEYS))
        )
        assert set(found) == {None}
        # those past the bound were refused at once
        assert table.asked == [MAX_LOOKED_UP_KEYS]
        # the same ones again: not asked for
        assert await keys.find(sent("wrong-0")) is None and table.asked == [MAX_LOOKED_UP_KEYS]
        for n in range(5):
            await keys.find(sent(f"other-{n}"))
        assert len(table.asked) == 6 and loop.time() - began >= 5 * keyring.LOOKUP_S
        monkeypatch.setattr(keyring, "LOOKUP_S", 0.0)
        for n in range(0, MAX_UNKNOWN_KEYS + 100, 50):
            await asyncio.gather(*(keys.find(sent(f"more-{n + one}")) for one in range(50)))
        assert len(keys._unknown) == MAX_UNKNOWN_KEYS


async def test_while_the_database_is_away_nobody_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 0.05)
    monkeypatch.setattr(keyring, "LOOKUP_S", 0.01)
    table = Table()
    async with ring(table, key("dev", "sk-file")) as keys:
        table.is_away = True
        await wait_until(lambda: keys._is_failing)
        asked = len(table.asked)
        assert await keys.find(sent("sk-new")) is None and len(table.asked) == asked
        assert (await keys.find(sent("sk-file"))) is not None
        table.is_away, table.keys = False, [key("new", "sk-new")]
        await wait_until(lambda: keys.authenticate(sent("sk-new")))


async def test_a_look_up_that_fails_refuses_the_key_and_is_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "REFRESH_S", 0.2)
    monkeypatch.setattr(keyring, "LOOKUP_S", 0.01)
    table = Table()
    async with ring(table) as keys:
        table.is_away, table.keys = True, [key("new", "sk-new")]
        assert await keys.find(sent("sk-new")) is None
        table.is_away = False
        await wait_until(lambda: keys.authenticate(sent("sk-new")))


async def test_a_key_is_refused_from_its_end_on_whether_or_not_the_database_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table()
    end = datetime(2026, 12, 29, 12, tzinfo=timezone(timedelta(hours=1)))
    table.keys = [key("short", "sk-short").model_copy(update={"expires_at": end})]
    async with ring(table, key("dev", "sk-file").model_copy(update={"expires_at": end})) as keys:
        for text in ("sk-short", "sk-file"):
            monkeypatch.setattr("db.keyring.time.time", lambda: end.timestamp() - 0.001)
            assert await keys.find(sent(text)) is not None
            table.is_away = True
            monkeypatch.setattr("db.keyring.time.time", end.timestamp)
            with pytest.raises(
                Unauthenticated,
                match="Incorrect API key provided: it expired on 2026-12-29 11:00:00Z",
            ):
                await keys.find(sent(text))
            table.is_away = False
        assert await keys.find(sent("sk-other")) is None


def test_no_key_is_told_from_a_wrong_one() -> None:
    none, wrong = refusal([(b"accept", b"*/*")]), refusal(sent("sk-x"))
    assert none.message.startswith("no API key was sent") and wrong.message.startswith(
        "Incorrect API key provided"
    )
    assert {none.error_code, wrong.error_code} == {
        "invalid_api_key"
    } and "sk-x" not in wrong.message
    assert refusal([(b"authorization", b"Basic eDp5")]).message == none.message
