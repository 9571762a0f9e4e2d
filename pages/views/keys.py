"""Keys: what each may do, and its use by day. No key text and no digest is shown here; keys are
made and revoked on the command line."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from shlex import quote
from typing import Any

from db.engine import reading
from db.keys import KeyStore, StoredKey
from db.read import keys as of_record
from db.read.counts import UsageGroup
from db.read.early_refusals import door_by_day, read_door
from db.read.json_rows import time as iso
from db.read.usage import last_days, usage
from pages import links
from pages.escape import spelled
from pages.page import Page, PageRequest, Route
from pages.views.call import check_query
from protocol.errors import NotFound
from settings.config import Key

DAYS, WEEK = 30, 7
_USED = (
    "calls",
    "failed",
    "tool_calls",
    "refused",
    "replaced",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cost_nanousd",
)


async def list_keys(asked: PageRequest) -> Page:
    """Every key, those of the configuration first, and names that the record knows and nobody has
    any more."""
    check_query(asked)
    engine = asked.services.reader.engine
    stored, used = await asyncio.gather(
        KeyStore(engine).list_keys(),
        usage(engine, last_days(WEEK, datetime.now(UTC)), (UsageGroup.KEY,)),
    )
    of_key = {item["key"]: {name: item[name] for name in _USED} for item in used["items"]}
    none = dict.fromkeys(_USED, 0)
    # sums are by name: they stand with the key that has the name now
    rows = _keys(asked, stored)
    seen: set[str] = set()
    for row in rows:
        row["used"] = of_key.get(row["name"], none) if row["name"] not in seen else none
        seen.add(row["name"])
    rows += [
        {**_unknown(name), "used": usage_row}
        for name, usage_row in of_key.items()
        if name not in seen and name
    ]
    values = {
        "keys": rows,
        "newest": used["newest"],
        "days": WEEK,
        "create": "sluice keys create --name NAME",
    }
    return Page(template="keys.html", title="Keys", values=values)


async def show_key(asked: PageRequest) -> Page:
    """One key by its name: what it may, its last call, and its use by day. Raises NotFound."""
    check_query(asked)
    name, engine = asked.params["name"], asked.services.reader.engine
    now = datetime.now(UTC)
    stored, used, last, door, refused, switches = await asyncio.gather(
        KeyStore(engine).list_keys(),
        usage(engine, last_days(DAYS, now), (UsageGroup.DAY,), {UsageGroup.KEY: name}),
        _last(asked, name),
        read_door(engine, now - timedelta(days=WEEK), now + timedelta(minutes=1), key=name),
        door_by_day(engine, last_days(DAYS, now).since, now + timedelta(minutes=1), key=name),
        asked.services.switches.active(),
    )
    rows = [row for row in _keys(asked, stored) if row["name"] == name]
    if not rows and last is None and not used["items"]:
        raise NotFound(f"no key is or was named {spelled(name)[:80]}")
    of_day = {item["day"]: item for item in used["items"]} | {
        day: None for day in refused if day not in {i["day"] for i in used["items"]}
    }
    days = [
        {
            "day": day,
            "next": _day_after(day),
            "door": refused.get(day, 0),
            **{entry: item[entry] if item else 0 for entry in _USED},
        }
        for day, item in sorted(of_day.items(), reverse=True)
    ]
    values = {
        "name": name,
        "keys": rows or [_unknown(name)],
        "days": days,
        "newest": used["newest"],
        "last": last and str(last[0]),
        "last_at": last and iso(last[1]),
        "revoke": f"sluice keys revoke {quote(name)}",
        "is_stored": any(row["source"] == "table" and row["revoked_at"] is None for row in rows),
        "calls": [[entry["day"], entry["calls"]] for entry in reversed(days)],
        "switches": [entry for entry in switches if entry["key"] == name],
        "door": door["items"],
        "door_days": WEEK,
        "total": {column: sum(entry[column] for entry in days) for column in (*_USED, "door")},
    }
    return Page(template="key.html", title=f"{spelled(name)[:60]} · key", values=values)


async def _last(asked: PageRequest, name: str) -> Any:
    async with reading(asked.services.reader.engine) as connection:
        return await of_record.last_call(connection, name)


def _keys(asked: PageRequest, stored: Iterable[StoredKey]) -> list[dict[str, Any]]:
    """A row for each key: those of the configuration, then those in use, then revoked ones, the
    newest first."""
    now_s = datetime.now(UTC).timestamp()
    rows = [
        _row(key, "configuration", None, None, is_expired=key.has_expired(now_s))
        for key in asked.services.settings.config.keys
    ]
    made = sorted(
        stored,
        key=lambda stored_key: (
            stored_key.revoked_at is not None,
            -stored_key.created_at.timestamp(),
        ),
    )
    return rows + [
        _row(
            stored_key.key,
            "table",
            stored_key.created_at,
            stored_key.revoked_at,
            is_expired=not stored_key.is_in_use,
        )
        for stored_key in made
    ]


def _day_after(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def _row(
    key: Key, source: str, made: datetime | None, revoked: datetime | None, *, is_expired: bool
) -> dict[str, Any]:
    return {
        "name": key.name,
        "id": key.id,
        "source": source,
        "roles": list(key.roles),
        "policies": list(key.policies),
        "server_tools": list(key.server_tools),
        "created_at": iso(made),
        "revoked_at": iso(revoked),
        "expires_at": iso(key.expires_at),
        "is_expired": is_expired,
    }


def _unknown(name: str) -> dict[str, Any]:
    """A name that the record knows and no key has."""
    return {
        "name": name,
        "id": "",
        "source": "record",
        "roles": [],
        "policies": [],
        "server_tools": [],
        "created_at": None,
        "revoked_at": None,
        "expires_at": None,
        "is_expired": False,
    }


ROUTES = (Route(links.KEYS, list_keys), Route(f"{links.KEYS}/{{name}}", show_key))
