"""Times as people write them on a command line: `1h`, `2 days ago`, `yesterday`, `14:30`,
`2026-01-31`.

Without a zone they are this machine's local time.
"""

import os
import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from protocol.errors import InvalidRequest

FORMS = (
    "1w, 2d, 3h, 10m or 30s ago, now, today, yesterday, 14:30, 2026-01-31, 2026-01-31T14:30 or with"
    " a zone 2026-01-31T14:30:00Z"
)
_PART = r"([0-9]{1,6}) ?(s|m|h|d|w|(?:sec|second|min|minute|hour|day|week)s?)"
_AGO = re.compile(rf"(?:{_PART} ?)+?(?: ago)?")
_SPAN = re.compile(rf"(?:{_PART} ?)+")
ENDS = (
    "30d, 12h or 2w from now, 2027-01-31 (when that day begins), 2027-01-31T14:30 or with a zone"
    " 2027-01-31T14:30:00Z"
)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_time(text: str, param: str) -> str:
    """Return the time that `text` means as ISO 8601 in UTC; an empty text as it is. Raises
    InvalidRequest with the parameter's name."""
    if not text:
        return text
    try:
        return _read(text.strip().lower()).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"must be a time: {FORMS}", param=param) from None


def read_expiry(text: str, param: str) -> datetime | timedelta:
    """Return when something is to end that `text` says, or after how long. Raises InvalidRequest
    with the parameter's name."""
    words = text.strip().lower()
    try:
        if _SPAN.fullmatch(words):
            return _span(words)
        if not words[:4].isdigit():
            raise ValueError
        return _read(words)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"must be a span or a time: {ENDS}", param=param) from None


def local_zone() -> str:
    """Return the name of this machine's time zone, UTC where it has none that the tz database
    knows."""
    place = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    name = os.environ["TZ"].removeprefix(":") if "TZ" in os.environ else place
    try:
        return ZoneInfo(name).key
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return "UTC"


def _span(text: str) -> timedelta:
    return sum(
        (timedelta(**{_UNITS[unit[0]]: int(number)}) for number, unit in re.findall(_PART, text)),
        timedelta(),
    )


def _read(text: str) -> datetime:
    now = datetime.now().astimezone()
    if text == "now":
        return now
    if _AGO.fullmatch(text):
        return now - _span(text)
    if text in ("today", "yesterday"):
        # a day before midnight of a day with a change of the clock is no midnight
        day = now.date() - timedelta(days=text == "yesterday")
        return datetime.combine(day, time()).astimezone()
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
        return datetime.combine(
            now.date(), time.fromisoformat(text.zfill(len(text) + (text[1] == ":")))
        ).astimezone()
    at = datetime.fromisoformat(text.upper())
    return at if at.tzinfo else at.astimezone()
