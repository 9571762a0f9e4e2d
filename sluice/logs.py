"""Logs: one JSON object a line, fixed text plus fields. Text of prompts, keys or errors never gets
in. A foreign library's line is logged with its unformatted text alone, an exception with its type
and the place that raised it."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Literal, TextIO

Level = Literal["debug", "info", "warning", "error"]

OURS = (
    *("db", "demo", "gateway", "pages", "policy", "protocol", "providers", "settings", "sluice"),
    *("streams", "workers"),
)
"""Loggers that get the level asked for; everything else is heard from WARNING on."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_FIELD = 2_000


class JsonLines(logging.Formatter):
    """One line for a record: `at`, `level`, `logger`, `message`, the process's name, then the
    fields given as `extra`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": str(record.msg)[:_MAX_FIELD],
        }
        if record.name.partition(".")[0] in OURS:
            line |= {
                name: _plain(value)
                for name, value in vars(record).items()
                if name not in _STANDARD and name not in line
            }
        if record.exc_info and record.exc_info[0] is not None:
            line["error_type"] = record.exc_info[0].__name__
            line["raised_at"] = [
                f"{f.filename}:{f.lineno} {f.name}"
                for f in traceback.extract_tb(record.exc_info[2])[-8:]
            ]
        return json.dumps(line, ensure_ascii=True)


def set_up(process: str, level: str, *, stream: TextIO | None = None) -> None:
    """Write all logs of this process as JSON lines to `stream` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    logging.captureWarnings(True)


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_MAX_FIELD]
