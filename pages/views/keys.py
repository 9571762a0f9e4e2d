"""Keys: who may what, and what each used by day. No text of a key and no digest is here; keys are made and revoked on the command line."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from shlex import quote
from typing import Any

from db.keys import KeyStore, StoredKey
from db.read import keys as of_record
from db.read.items import time as iso
from db.read.queries import reading
from db.read.usage import Group, last_days, usage
from db.write.switches import MAX_MINUTES, switch_on
from pages import links
from pages.escape import spelled
from pages.page import Asked, Page, Redirect, Route
from protocol.config import Key
from protocol.errors import InvalidRequest, NotFound

DAYS, WEEK = 30, 7
LOGGERS = ("transport", "endpoint", "policy", "callback", "judge")
"""Types of debug logs that can be switched on."""
_USED = ("calls", "failed", "tool_calls", "refused", "replaced", "input_tokens", "output_tokens", "cached_tokens")


async def list_keys(asked: Asked) -> Page:
    """Every key, those of the configuration first, and names that the record knows and nobody has any more."""
    engine = asked.services.reader.engine
    stored, used = await asyncio.gather(KeyStore(engine).list_keys(), usage(engine, last_days(WEEK, datetime.now(UTC)), (Group.KEY,)))
    of_key = {item["key"]: {name: item[name] for name in _USED} for item in used["items"]}
    none = dict.fromkeys(_USED, 0)
    # sums are by name: they stand with the key that has the name now
    rows = _keys(asked, stored)
    seen: set[str] = set()
    for row in rows:
        row["used"] = of_key.get(row["name"], none) if row["name"] not in seen else none
        seen.add(row["name"])
    rows += [{**_unknown(name), "used": found} for name, found in of_key.items() if name not in seen and name]
    values = {"keys": rows, "newest": used["newest"], "days": WEEK, "create": "sluice keys create --name NAME"}
    return Page(template="keys.html", title="Keys", values=values)


async def show_key(asked: Asked) -> Page:
    """One key by its name: what it may, its last call, and its use by day. Raises NotFound."""
    name, engine = asked.params["name"], asked.services.reader.engine
    stored, used, (last, switches) = await asyncio.gather(
        KeyStore(engine).list_keys(), usage(engine, last_days(DAYS, datetime.now(UTC)), (Group.DAY,), {Group.KEY: name}),
        _of_record(asked, name),
    )  # fmt: skip
    found = [row for row in _keys(asked, stored) if row["name"] == name]
    if not found and last is None and not used["items"]:
        raise NotFound(f"no key is or was named {spelled(name)[:80]}")
    days = [{"day": item["day"], "next": _day_after(item["day"]), **{column: item[column] for column in _USED}} for item in used["items"]]
    values = {
        "name": name, "keys": found or [_unknown(name)], "days": days, "newest": used["newest"], "last": last and str(last[0]),
        "last_at": last and iso(last[1]), "revoke": f"sluice keys revoke {quote(name)}", "is_stored": any(
            row["source"] == "table" and row["revoked_at"] is None for row in found
        ), "calls": [[one["day"], one["calls"]] for one in reversed(days)], "switches": switches, "loggers": LOGGERS,
        "max_minutes": MAX_MINUTES, "total": {column: sum(one[column] for one in days) for column in _USED},
    }  # fmt: skip
    return Page(template="key.html", title=f"{spelled(name)[:60]} · key", values=values)


async def _of_record(asked: Asked, name: str) -> tuple[Any, list[dict[str, Any]]]:
    async with reading(asked.services.reader.engine) as connection:
        return await of_record.last_call(connection, name), await of_record.switches(connection, name)


async def switch_debug(asked: Asked) -> Redirect:
    """Switch debug logs on for a key. Raises InvalidRequest, Conflict."""
    name = asked.params["name"]
    for field in asked.form:
        if field not in ("token", "minutes", "content", *LOGGERS):
            raise InvalidRequest("this form has no such field", param=field[:64])
    loggers = [one for one in LOGGERS if asked.form.get(one)]
    if not loggers:
        raise InvalidRequest("choose at least one type of debug logs", param="loggers")
    minutes = asked.form.get("minutes", "")
    if not minutes.isascii() or not minutes.isdecimal() or not 1 <= int(minutes[:4]) <= MAX_MINUTES:
        raise InvalidRequest(f"must be 1 to {MAX_MINUTES}", param="minutes")
    known = {row["name"] for row in _keys(asked, await KeyStore(asked.services.reader.engine).list_keys()) if row["revoked_at"] is None}
    if name not in known:
        raise NotFound("no key in use has this name")
    settings = asked.services.settings
    await switch_on(
        settings.database_url, name, loggers, content=bool(asked.form.get("content")), by=asked.who.key, minutes=int(minutes),
        answer_s=settings.config.limits.audit_read_s,
    )  # fmt: skip
    return Redirect(links.key(name))


def _keys(asked: Asked, stored: Iterable[StoredKey]) -> list[dict[str, Any]]:
    """A row for each key: those of the configuration, then those in use, then revoked ones, the newest first."""
    rows = [_row(key, "configuration", None, None) for key in asked.services.settings.config.keys]
    made = sorted(stored, key=lambda one: (one.revoked_at is not None, -one.created_at.timestamp()))
    return rows + [_row(one.key, "table", one.created_at, one.revoked_at) for one in made]


def _day_after(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


def _row(key: Key, source: str, made: datetime | None, revoked: datetime | None) -> dict[str, Any]:
    return {
        "name": key.name, "id": key.id, "source": source, "roles": list(key.roles), "policies": list(key.policies),
        "server_tools": list(key.server_tools), "created_at": iso(made), "revoked_at": iso(revoked),
    }  # fmt: skip


def _unknown(name: str) -> dict[str, Any]:
    """A name that the record knows and no key has."""
    return {
        "name": name, "id": "", "source": "record", "roles": [], "policies": [], "server_tools": [], "created_at": None, "revoked_at": None,
    }  # fmt: skip


_PATH = f"{links.KEYS}/{{name}}"
ROUTES = (
    Route(links.KEYS, list_keys),
    Route(_PATH, show_key),
    Route(f"{_PATH}/debug", switch_debug, method="POST", role="admin"),
)
