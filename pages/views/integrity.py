"""How far sealing is, the newest checkpoint, what was dropped or should have been, and the result
of a verification of the last minutes."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from db.filters import first_id
from db.read.items import time as iso
from db.seals.standing import standing
from db.seals.state import state
from pages import links
from pages.page import Asked, Page, Route
from pages.views.call import check_query
from pages.views.evidence import verify
from protocol.errors import AuditUnavailable, InvalidRequest

_MINUTES = (5, 60)
"""What may be verified from the page."""


async def show(asked: Asked) -> Page:
    """The state, and with `verify=MINUTES` also what a verification of so many minutes says."""
    check_query(asked, "verify")
    asked_for = asked.one("verify")
    if asked_for and asked_for not in map(str, _MINUTES):
        raise InvalidRequest(f"must be one of {', '.join(map(str, _MINUTES))}", param="verify")
    limits = asked.services.settings.config.limits
    url, kept = asked.services.reader.url, asked.services.settings.config.retention.days
    found = await asyncio.to_thread(state, url, within_s=limits.audit_read_s)
    now = datetime.now(UTC)
    values = {
        **found,
        "sealed_at": iso(found["sealed_at"]),
        "oldest": iso(found["oldest"]),
        "lag_ms": (
            round((now - found["oldest"]).total_seconds() * 1000) if found["oldest"] else None
        ),
        "gone": [
            {**one, "before": iso(one["before"]), "at": iso(one["at"])} for one in found["gone"]
        ],
        "standing": await _standing(url, kept, limits.audit_read_s),
        "is_signed": bool(found["checkpoint"]) and not found["checkpoint"].endswith("\n\n"),
        "checkpoint_s": limits.checkpoint_s,
        "verified": await _verified(asked, now, int(asked_for)) if asked_for else None,
        "minutes": [
            [minutes, links.with_query(links.INTEGRITY, {"verify": minutes})]
            for minutes in _MINUTES
        ],
        "at": iso(now),
    }
    return Page(template="integrity.html", title="Integrity", values=values)


async def _standing(url: str, days: Mapping[str, int], within_s: float) -> list[str]:
    try:
        return await asyncio.to_thread(standing, url, days, within_s=within_s)
    except AuditUnavailable as error:
        return [f"whether retention stands still could not be read in time: {error.message}"]


async def _verified(asked: Asked, now: datetime, minutes: int) -> dict[str, Any]:
    report = await verify(asked, low=first_id(now - timedelta(minutes=minutes)))
    if isinstance(report, str):
        return {"ok": None, "sentence": report, "findings": []}
    told = (
        f"{report.calls:,} sealed calls with {report.rows:,} rows, {report.unsealed:,} not"
        " sealed yet"
    )
    sentence = (
        f"It fits: {told}."
        if report.ok
        else f"It does not fit: {report.damages:,} found in {told}."
    )
    return {
        "ok": report.ok,
        "sentence": sentence,
        "findings": [str(one) for one in report.findings],
    }


ROUTES = (Route(links.INTEGRITY, show),)
