"""API keys in PostgreSQL: only their SHA-256 is kept, and a revoked key stays as a row, so that the
record can name it."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Self

from pydantic import ValidationError
from sqlalchemy import Double, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from db.engine import open_engine, reading
from db.models import ApiKey
from protocol.errors import InvalidRequest, NotFound
from protocol.server_tools.added import check_families
from settings.config import LISTS, RIGHT_NAME, SETTINGS, Key

PREFIX = "sk-sluice-"
LONGEST = timedelta(days=100 * 365)
"""How far away the end of a key may be."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as listed."""

    key: Key
    created_at: datetime
    revoked_at: datetime | None
    left_s: float | None
    """Until it expires, by the clock of PostgreSQL; negative afterwards, None where it does not."""

    @property
    def is_in_use(self) -> bool:
        """Neither revoked nor expired?"""
        return self.revoked_at is None and (self.left_s is None or self.left_s > 0)


def new_key_text() -> str:
    """Return the text of a new key: the prefix and 32 random bytes. Shown once, never stored."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(text: str) -> str:
    """Return the hex SHA-256 of a key's text."""
    return sha256(text.encode()).hexdigest()


class KeyStore:
    """The stored keys. Every method raises AuditUnavailable when PostgreSQL is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, database_url: str) -> Self:
        """Return a store with an engine of its own; nothing connects yet."""
        return cls(open_engine(database_url, read_only=False, pool_size=1))

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def create(
        self,
        name: str,
        *,
        reuse: bool = False,
        expires: datetime | timedelta | None = None,
        **settings: object,
    ) -> str:
        """Store a new key and return its text. Raises InvalidRequest on a bad name or setting
        (`settings.config.SETTINGS`; what is not given has its default), or a name in use.

        It `expires` at a time, or so long after now by the clock of PostgreSQL: that of the machine
        which asks decides nothing. A name that a revoked key had is refused too, unless `reuse`
        says that both may be taken for one where only names are shown.
        """
        text = new_key_text()
        key = _checked({"name": name, "sha256": digest(text), **settings})
        row = {"name": name, **_columns(key), "sha256": bytes.fromhex(key.sha256)}
        async with reading(self._engine) as connection:
            if expires is not None:
                row["expires_at"] = await _end(connection, expires)
            had = exists().where(ApiKey.name == key.name, ApiKey.revoked_at.is_not(None))
            if not reuse and await connection.scalar(select(had)):
                message = (
                    f"a revoked key was named {name!r}, and the record shows its calls under that"
                    " name; choose another, or pass --reuse"
                )
                raise InvalidRequest(message, param="name")
            try:
                await connection.execute(insert(ApiKey).values(row))
                await connection.commit()
            except IntegrityError:
                raise InvalidRequest(
                    f"a key named {name!r} exists; revoke it first", param="name"
                ) from None
        return text

    async def change(self, name: str, settings: Mapping[str, object]) -> Key:
        """Give the key of that name these settings, None for the default of one; the others stay.
        Raises InvalidRequest on a bad setting, NotFound when there is none in use."""
        in_use = (ApiKey.name == name) & ApiKey.revoked_at.is_(None)
        async with reading(self._engine) as connection:
            rows = select(ApiKey.__table__).where(in_use).with_for_update()
            row = (await connection.execute(rows)).one_or_none()
            if row is None:
                raise NotFound(f"no key named {name!r} is in use")
            had = {**_key(row).model_dump(include={"name", "sha256", *SETTINGS}), **settings}
            key = _checked({field: value for field, value in had.items() if value is not None})
            await connection.execute(update(ApiKey).where(in_use).values(_columns(key)))
            await connection.commit()
        return key

    async def revoke(self, name: str) -> None:
        """Revoke the key of that name. Raises NotFound when there is none in use."""
        statement = (
            update(ApiKey)
            .where(ApiKey.name == name, ApiKey.revoked_at.is_(None))
            .values(revoked_at=func.now())
        )
        async with reading(self._engine) as connection:
            revoked = (await connection.execute(statement)).rowcount
            await connection.commit()
        if not revoked:
            raise NotFound(f"no key named {name!r} is in use")

    async def list_keys(self) -> list[StoredKey]:
        """Return all keys, revoked ones too, oldest first."""
        left_s = func.extract("epoch", ApiKey.expires_at - func.now()).cast(Double).label("left_s")
        columns = select(*ApiKey.__table__.columns, left_s).order_by(
            ApiKey.created_at, ApiKey.sha256
        )
        async with reading(self._engine) as connection:
            return [
                StoredKey(_key(row), row.created_at, row.revoked_at, row.left_s)
                for row in await connection.execute(columns)
            ]

    async def load(self) -> list[Key]:
        """Return the keys in use."""
        return [stored.key for stored in await self.list_keys() if stored.is_in_use]


async def _end(connection: AsyncConnection, expires: datetime | timedelta) -> datetime:
    """Return when a key is to expire. Raises InvalidRequest for a time that is over, or too far
    away."""
    now: datetime = (await connection.execute(select(func.now()))).scalar_one()
    try:
        at = now + expires if isinstance(expires, timedelta) else expires
    except OverflowError:
        at = now + 2 * LONGEST
    if not now < at <= now + LONGEST:
        message = (
            f"is over, or more than {LONGEST.days // 365} years away: PostgreSQL's clock says"
            f" {now.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        )
        raise InvalidRequest(message, param="expires")
    return at


async def tell_apart(engine: AsyncEngine, items: Iterable[dict[str, Any]]) -> None:
    """Add the key's id to `key` of each item (of a list of calls or tool calls) whose key name is
    ambiguous: another key has the name or had it, revoked or on the same page. Raises
    AuditUnavailable."""
    ids: dict[str, set[str]] = {}
    listed = list(items)
    for item in listed:
        ids.setdefault(item["key"], set()).add(item["key_id"])
    statement = (
        select(ApiKey.name)
        .where(ApiKey.name.in_(ids))
        .group_by(ApiKey.name)
        .having(func.count() > 1)
    )
    async with reading(engine) as connection:
        shared = set(await connection.scalars(statement)) | {
            name for name, each in ids.items() if len(each) > 1
        }
    for item in listed:
        if item["key"] in shared and item["key_id"]:
            item["key"] = f"{item['key']} ({item['key_id']})"


def _key(row: Any) -> Key:
    # as it is stored: one that this version does not take is shown, so that it can be revoked;
    # gateways take it for none
    stored: dict[str, Any] = {
        name: row.settings[name] for name in SETTINGS.keys() - LISTS if name in row.settings
    }
    stored |= {name: tuple(getattr(row, name)) for name in LISTS}
    return Key.model_construct(
        name=row.name, sha256=row.sha256.hex(), expires_at=row.expires_at, **stored
    )


def _checked(values: Mapping[str, object]) -> Key:
    """Return a key. Raises InvalidRequest on a bad name or setting."""
    try:
        key = Key.model_validate(values)
    except ValidationError as error:
        field = str(error.errors(include_url=False, include_input=False)[0]["loc"][0])
        param, right = (
            (SETTINGS[field].param, SETTINGS[field].right)
            if field in SETTINGS
            else ("name", f"a key's name {RIGHT_NAME}")
        )
        raise InvalidRequest(right, param=param) from None
    try:
        check_families(key.server_tools)
    except ValueError as error:
        raise InvalidRequest(str(error), param="server_tool") from None
    return key


def _columns(key: Key) -> dict[str, Any]:
    """The columns of a key's settings."""
    others = key.model_dump(include=SETTINGS.keys() - LISTS, exclude_none=True)
    return {**key.model_dump(include={*LISTS}), "settings": others}
