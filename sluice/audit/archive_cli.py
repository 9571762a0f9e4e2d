"""`sluice audit archive` and `restore`: days of the record as folders, before their rows go and
after. And `verify --archive`.

Exit codes of verify: 0 every folder fits, 1 one does not, 2 wrong use.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import UUID

import typer

from db.seals import checkpoints
from db.seals.archive import archive_before
from db.seals.archived_files import Damaged
from db.seals.folder import Verdict, check_archive
from db.seals.proof import time_of_call
from db.seals.restore import copies_of, restore
from db.seals.retention import RetentionRun
from protocol.errors import InvalidRequest
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import parsed_file, print_json, run_here
from sluice.settings import database_url, load_config, load_settings, redis_time
from sluice.tables import note, printable

T = TypeVar("T")


def archive(
    before: Annotated[
        date,
        typer.Option(
            "--before", parser=date.fromisoformat, help="Calls that began before this day (UTC)."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="A directory; each day becomes a folder in it.")],
    as_json: AsJson = False,
) -> None:
    """Write the days before a day to folders, each verified when it is written. One that is there
    and whole stays."""

    def work() -> dict[str, int | None]:
        if before > datetime.now(UTC).date():
            raise InvalidRequest("is in the future", param="before")
        with RetentionRun(database_url(), {}, redis_time=redis_time) as turn:
            take_turn(turn)
            return {
                archived.name: archived.rows
                for archived in archive_before(database_url(), before, to)
            }

    made = run_here(lambda: _or_refuse(work), as_json, is_noted=True)
    if as_json:
        print_json({"days": made})
        return
    for name, rows in made.items():
        note(f"{name}: {'is there already' if rows is None else f'{rows:,} rows'}")
    if not made:
        note(f"nothing to do: no call on record began before {before}")


def restore_day(
    source: Annotated[Path, typer.Argument(help="The directory of `archive --to`.")],
    day: Annotated[
        date, typer.Option("--day", parser=date.fromisoformat, help="Which day (UTC): 2026-01-31.")
    ],
) -> None:
    """Put the rows of an archived day into tables of the schema sluice_restored. The record itself
    stays as it is."""
    rows = run_here(
        lambda: _or_refuse(lambda: restore(database_url(), source, day)),
        as_json=False,
        is_noted=True,
    )
    note(f"{rows:,} rows of {day} are in the schema sluice_restored")


def verify_archive(
    source: Path, public_key: Path | None, against: Sequence[Path], as_json: bool
) -> None:
    """Verify all folders of a directory without a database. Exit 1 where one does not fit."""

    def work() -> list[Verdict]:
        key = (
            parsed_file("public_key", public_key, checkpoints.load_public_key)
            if public_key
            else None
        )
        for path in against:
            parsed_file("against", path, checkpoints.parse)
        checked = check_archive(
            source, key=key, against=[path.read_text(encoding="utf-8") for path in against]
        )
        if not checked:
            raise InvalidRequest(f"{source} holds no archived day", param="archive")
        return checked

    verdicts = run_here(lambda: _or_refuse(work), as_json)
    bad = [verdict for verdict in verdicts if verdict.problem]
    days = {
        verdict.name: verdict.checked.rows
        for verdict in verdicts
        if verdict.checked is not None and not verdict.problem
    }
    record = next(
        (verdict.checked.record for verdict in verdicts if verdict.checked is not None), ""
    )
    if as_json:
        print_json(
            {
                "ok": not bad,
                "detail": f"{bad[0].name}: {bad[0].problem}" if bad else None,
                "days": days,
                "items": list(map(_item, verdicts)),
            }
        )
    else:
        _tell(bad, days, len(verdicts), record, public_key is not None, bool(against))
    if bad:
        raise typer.Exit(1)


def _item(verdict: Verdict) -> dict[str, object]:
    checked = verdict.checked
    return {
        "folder": verdict.name,
        "ok": not verdict.problem,
        "detail": verdict.problem or None,
        "day": str(checked.day) if checked else None,
        "record": checked.record if checked else None,
        "calls": checked.calls if checked else None,
        "rows": checked.rows if checked else None,
        "size": verdict.size or None,
        "signed": verdict.is_signed,
        "kept": verdict.is_kept,
    }


def _tell(
    bad: Sequence[Verdict],
    days: dict[str, int],
    count: int,
    record: str,
    has_key: bool,
    has_kept: bool,
) -> None:
    for verdict in bad:
        typer.echo(printable(f"{verdict.name}: {verdict.problem}"))
    total = (
        f"{count:,} days, {sum(days.values()):,}"
        f" rows{f' of record {printable(record)}' if record else ''}"
    )
    if bad:
        typer.echo(f"NOT OK: {len(bad):,} of {total}")
        return
    vouched = [
        *(["signed by the key"] if has_key else []),
        *(["under a checkpoint kept elsewhere"] if has_kept else []),
    ]
    typer.echo(
        f"ok: {total},"
        f" {' and '.join(vouched) or 'each against itself: without --public-key or --against nothing vouches for it'}"
    )
    note(
        "not shown by folders: that no call is missing, no newest part of a call's seal with its"
        " late rows, and no day"
    )


def archive_folder() -> str:
    """Return the directory that the configuration names for archived days; empty: none. Raises
    SettingsError."""
    return load_config(load_settings().config).retention.archive


def tell_copies(call_id: UUID, *, is_more: bool) -> list[str]:
    """Return a sentence for each folder that holds content of a redacted call, if the configuration
    names a directory. `is_more`: as `copies_of` has it. Raises SettingsError, AuditUnavailable."""
    folder = archive_folder()
    if not folder:
        return []
    try:
        copies = copies_of(database_url(), Path(folder), call_id, is_more=is_more)
    except OSError:
        day = f"{time_of_call(call_id):%Y-%m-%d}"
        return [
            f"{folder} cannot be read here: a folder of {day} in it holds its content still"
            " (docs/run/audit.md, Archive, says what to do)"
        ]
    messages = []
    for copy in copies:
        if not copy.is_readable:
            messages.append(f"{copy.path} cannot be read: it may hold its content still")
        elif copy.more:
            messages.append(
                f"{copy.path} holds its content still, and rows of all calls of that day that the"
                f" database has no more ({', '.join(copy.more)}): keep it. `sluice audit restore`"
                " leaves the content of this call out"
            )
        else:
            messages.append(
                f"{copy.path} holds its content still: archive that day again when a checkpoint is"
                " over the redaction, which makes a folder beside it, then delete this one"
            )
    return messages


def take_turn(retention: RetentionRun) -> None:
    """Be the one that writes days and takes rows away. Raises InvalidRequest where somebody else
    is."""
    if not retention.takes_turn():
        raise InvalidRequest("an audit writer is at it now: let it, or try again later")


def _or_refuse(work: Callable[[], T]) -> T:
    try:
        return work()
    except (Damaged, OSError) as error:
        raise InvalidRequest(str(error)) from None
