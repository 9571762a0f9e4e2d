"""`sluice audit archive` and `restore`: days of the record as folders, before their rows go and after."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from db.seals.archive import Damaged, archive_day, check_folder, restore
from db.seals.retention import days_before
from protocol.errors import InvalidRequest
from sluice.audit_options import AsJson
from sluice.audit_run import print_json, run_here
from sluice.settings import database_url
from sluice.tables import note, printable

T = TypeVar("T")


def archive(
    before: Annotated[date, typer.Option("--before", parser=date.fromisoformat, help="Calls that began before this day (UTC).")],
    to: Annotated[Path, typer.Option("--to", help="A directory; each day becomes a folder in it.")],
    as_json: AsJson = False,
) -> None:
    """Write the days before a day to folders, each verified before and after. One that is there stays."""

    def work() -> dict[str, int | None]:
        if before > datetime.now(UTC).date():
            raise InvalidRequest("is in the future", param="before")
        return {str(day): archive_day(database_url(), day, to) for day in days_before(database_url(), before)}

    made = run_here(lambda: _or_refuse(work), as_json)
    if as_json:
        print_json({"days": made})
        return
    for day, rows in made.items():
        note(f"{day}: {'is there already' if rows is None else f'{rows:,} rows'}")
    if not made:
        note(f"nothing to do: no call on record began before {before}")


def restore_day(
    source: Annotated[Path, typer.Argument(help="The directory of `archive --to`.")],
    day: Annotated[date, typer.Option("--day", parser=date.fromisoformat, help="Which day (UTC): 2026-01-31.")],
) -> None:
    """Put the rows of an archived day into tables of the schema sluice_restored. The record itself stays as it is."""
    rows = run_here(lambda: _or_refuse(lambda: restore(database_url(), source / str(day))), as_json=False)
    note(f"{rows:,} rows of {day} are in the schema sluice_restored")


def verify_archive(source: Path, as_json: bool) -> None:
    """Verify all folders of a directory without a database. Exit 1 where one is damaged."""
    found: dict[str, int] = {}
    try:
        for folder in sorted(one for one in source.iterdir() if one.is_dir() and not one.name.startswith(".")):
            found[folder.name] = check_folder(folder)
    except (Damaged, OSError) as error:
        print_json({"ok": False, "detail": str(error)}) if as_json else typer.echo(printable(f"NOT OK: {error}"))
        raise typer.Exit(1) from None
    if as_json:
        print_json({"ok": True, "days": found})
    else:
        typer.echo(f"ok: {len(found):,} days, {sum(found.values()):,} rows")


def _or_refuse(work: Callable[[], T]) -> T:
    try:
        return work()
    except (Damaged, OSError) as error:
        raise InvalidRequest(str(error)) from None
