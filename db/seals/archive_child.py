"""Archives days in a process of its own, of the lowest priority: an audit writer has other work,
and stops at once.

`run` starts it and waits. It gets its arguments as a line of JSON on its stdin, so that no password
is in a list of processes, and ends when that closes, with whoever started it; what it leaves then
has a temporary name. It loads nothing from the working directory.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread

from db.seals.archive import archive_before
from db.state.postgres_errors import server_words
from protocol.errors import AuditUnavailable, InvalidRequest

PRIORITY = 19
"""Nice: the lowest."""
_HERE = str(Path(__file__).parents[2])
_ERRORS = {"unavailable": AuditUnavailable, "refused": InvalidRequest}


def run(
    database_url: str,
    days: tuple[date, date],
    to: Path,
    tables: Sequence[str],
    started: Callable[[Popen[bytes]], object],
) -> tuple[date, int] | None:
    """Archive the days from one to before another of which these tables hold rows. `started` gets
    the process, to end it.

    Returns the first of the days and the position of the newest seal that there was then; None
    where there are no rows. Raises InvalidRequest, also where the process ended by itself or was
    ended, so that what else is due goes on; AuditUnavailable.
    """
    asked = {
        "url": database_url,
        "days": [str(day) for day in days],
        "to": str(to),
        "tables": list(tables),
    }
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [_HERE, os.environ.get("PYTHONPATH")]))
    }
    # a session of its own: Ctrl-C in a terminal is for whoever started it
    command = [sys.executable, "-P", "-m", __name__]
    # unbuffered: what one that is gone did not take would be written again when its stdin is
    # closed, and break the pipe again
    with Popen(
        command, stdin=PIPE, stdout=PIPE, bufsize=0, start_new_session=True, env=environment
    ) as child:
        started(child)
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(asked).encode() + b"\n")
            report = json.loads(child.stdout.read() or b"{}")
            child.wait()
        except (BrokenPipeError, ValueError):
            report = {}
            child.wait()
        finally:
            child.kill()
    for name, kind in _ERRORS.items():
        if name in report:
            raise kind(report[name])
    if "days" not in report:
        raise InvalidRequest(
            f"the process that archives ended with code {child.returncode}: what it wrote to"
            " standard error says why"
        )
    return (
        (date.fromisoformat(report["days"][0]["day"]), int(report["days"][0]["seen"]))
        if report["days"]
        else None
    )


def main() -> None:
    """Do what stdin says."""
    os.nice(PRIORITY)
    asked = json.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_stdin, daemon=True).start()
    try:
        first, before = map(date.fromisoformat, asked["days"])
        days = archive_before(asked["url"], before, Path(asked["to"]), asked["tables"], first)
        report: dict[str, object] = {
            "days": [{"day": str(archived.day), "seen": archived.seen} for archived in days]
        }
    except (InvalidRequest, OSError) as error:
        report = {"refused": getattr(error, "message", str(error))}
    except AuditUnavailable as error:
        report = {"unavailable": server_words(error)}
    except Exception as error:  # noqa: BLE001 - reported by its type
        # other kinds of rows do not wait for this one. Not its message, in which rows may be
        place = traceback.extract_tb(error.__traceback__)[-1]
        report = {
            "refused": f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        }
    os.write(1, json.dumps(report).encode())


def _end_with_stdin() -> None:
    # not by sys.stdin: at the end of the program somebody would still hold its lock
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
