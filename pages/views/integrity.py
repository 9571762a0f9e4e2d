"""How far sealing is, the newest checkpoint, what was dropped or should have been, and the result
of a verification of the last minutes."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from db.filters import first_id
from db.read.json_rows import time as iso
from db.seals.stalled_retention import standing
from db.seals.state import state
from pages import links
from pages.page import Page, PageRequest, Route
from pages.views.call import check_query
from pages.views.evidence import verify
from protocol.errors import AuditUnavailable, InvalidRequest

_MINUTES = (5, 60)
"""What may be verified from the page."""


async def show(asked: PageRequest) -> Page:
    """The state, and with `verify=MINUTES` also what a verification of so many minutes says."""
    check_query(asked, "verify")
    asked_for = asked.one("verify")
    if asked_for and asked_for not in map(str, _MINUTES):
        raise InvalidRequest(f"must be one of {', '.join(map(str, _MINUTES))}", param="verify")
    limits = asked.services.settings.config.limits
    url, retained_days = asked.services.reader.url, asked.services.settings.config.retention.days
    figures = await asyncio.to_thread(state, url, within_s=limits.audit_read_s)
    now = datetime.now(UTC)
    values = {
        **figures,
        "sealed_at": iso(figures["sealed_at"]),
        "oldest": iso(figures["oldest"]),
        "lag_ms": (
            round((now - figures["oldest"]).total_seconds() * 1000) if figures["oldest"] else None
        ),
        "gone": [
            {**row, "before": iso(row["before"]), "at": iso(row["at"])} for row in figures["gone"]
        ],
        "standing": await _standing(url, retained_days, limits.audit_read_s),
        "is_signed": bool(figures["checkpoint"]) and not figures["checkpoint"].endswith("\n\n"),
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


async def _verified(asked: PageRequest, now: datetime, minutes: int) -> dict[str, Any]:
    report = await verify(asked, low=first_id(now - timedelta(minutes=minutes)))
    if isinstance(report, str):
        return {"ok": None, "sentence": report, "findings": []}
    summary = (
        f"{report.calls:,} sealed calls with {report.rows:,} rows, {report.unsealed:,} not"
        " sealed yet"
    )
    sentence = (
        f"It fits: {summary}."
        if report.ok
        else f"It does not fit: {report.damages:,} found in {summary}."
    )
    return {
        "ok": report.ok,
        "sentence": sentence,
        "findings": [str(finding) for finding in report.findings],
    }


ROUTES = (Route(links.INTEGRITY, show),)
