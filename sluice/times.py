"""Times as people write them on a command line: `1h`, `yesterday`, `14:30`, `2026-01-31`.

Without a zone they are this machine's local time.
"""

import re
from datetime import UTC, datetime, time, timedelta

from protocol.errors import InvalidRequest

FORMS = "2d, 3h, 10m or 30s ago, today, yesterday, 14:30, 2026-01-31, 2026-01-31T14:30 or with a zone 2026-01-31T14:30:00Z"
_AGO = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_time(text: str, param: str) -> str:
    """Return the time that `text` means as ISO 8601 in UTC; an empty text as it is. Raises InvalidRequest with the parameter's name."""
    if not text:
        return text
    try:
        return _read(text.strip().lower()).astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest(f"must be a time: {FORMS}", param=param) from None


def _read(text: str) -> datetime:
    now = datetime.now().astimezone()
    if found := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[found[2]]: int(found[1])})
    if text in ("today", "yesterday"):
        # a day before midnight of a day with a change of the clock is no midnight
        day = now.date() - timedelta(days=text == "yesterday")
        return datetime.combine(day, time()).astimezone()
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
        return datetime.combine(now.date(), time.fromisoformat(text.zfill(len(text) + (text[1] == ":")))).astimezone()
    at = datetime.fromisoformat(text.upper())
    return at if at.tzinfo else at.astimezone()
