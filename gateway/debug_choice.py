"""Which calls have debug lines: decided once for each, when it begins, by the configuration, by an
admin's switch for a key, or by a header of an admin's own request.
"""

import random
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from protocol.debug import (
    BITS,
    HEADER,
    LONGEST_MIN,
    MOST_SWITCHES,
    REFUSED,
    Debug,
    mask_of,
    read_header,
)
from settings.config import Key


class Switch(NamedTuple):
    """Debug logs that an admin switched on for one key, until when (Unix seconds)."""

    key: str
    mask: int
    until: float


class Switches:
    """What is on. `is_on` says whether any call at all may have lines without its header."""

    def __init__(self, settings: Debug) -> None:
        self._settings, self._switched = settings, dict[str, list[Switch]]()
        self._mask = mask_of(settings.loggers, settings.content)
        self._keys = frozenset(settings.keys)
        self.is_on = bool(self._mask)

    def set(self, switches: Iterable[Switch]) -> None:
        """Take the switches there are now."""
        by_key: dict[str, list[Switch]] = {}
        for switch in sorted(switches, key=lambda switch: -switch.until)[:MOST_SWITCHES]:
            by_key.setdefault(switch.key, []).append(switch)
        self._switched = by_key
        self.is_on = bool(self._mask or by_key)

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the switches as the database has them (`db.state.polling`); what this version does
        not know of them is left out."""
        now = time.time()
        self.set(
            Switch(
                row["key"],
                mask_of(
                    (logger for logger in row["loggers"] if logger in BITS),
                    "preview" if row["content"] else "none",
                ),
                now + left,
            )
            for row in rows
            if (left := min(row["left_s"], LONGEST_MIN * 60)) > 0
        )

    def mask(self, key: Key, named: Mapping[bytes, bytes]) -> int:
        """Return the mask for a call of this key with these headers. Raises InvalidRequest for a
        header that names no debug log."""
        mask = self._mask
        settings = self._settings
        if mask and (
            (self._keys and key.name not in self._keys)
            or (settings.sample < 1 and random.random() >= settings.sample)
        ):
            mask = 0
        now = time.time()
        for switch in self._switched.get(key.name, ()):
            if now < switch.until:
                mask |= switch.mask
        if (asked := named.get(HEADER)) is not None:
            mask |= (
                mask_of(read_header(asked), settings.content) if "admin" in key.roles else REFUSED
            )
        return mask
