"""`sluice audit retention`: deletes what is older than `retention` in the configuration, or only
shows what that would be.

An audit writer does the same once a day, one table and day per minute.
"""

import sys
from typing import Annotated, Any

import typer

from db.seals.retention import RetentionRun, RetentionStep
from protocol.errors import InvalidRequest
from sluice.audit.archive_cli import take_turn
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import print_json, run_here
from sluice.settings import database_url, load_config, load_settings, redis_time
from sluice.tables import TableColumn, note, show


def retention(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", "-y", help="Do not ask. Without a terminal nothing is done without it."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take away rows that are older than `retention` of the configuration says, table by table and
    day by day.

    What a seal covers leaves its digest, and the record still verifies. Audit writers do the same
    once a day.
    """
    items = run_here(lambda: _work(dry_run, yes), as_json)
    if as_json:
        print_json({"dry_run": dry_run, "items": items})
        return
    columns = (
        TableColumn(heading="table", value="table"),
        TableColumn(heading="calls before", value="until"),
        TableColumn(heading="MB", value="mb"),
        TableColumn(heading="taken", value="taken"),
    )
    shown = [
        item
        | {
            "mb": f"{item['size_bytes'] / 1e6:,.1f}",
            "taken": "" if item["taken"] is None else item["taken"],
        }
        for item in items
    ]
    show(shown, columns, ("table", "until", "size_bytes", "taken"), empty="nothing is old enough")
    if dry_run and items:
        note("nothing was done")


def _work(dry_run: bool, yes: bool) -> list[dict[str, Any]]:
    retention_settings = load_config(load_settings().config).retention
    if not retention_settings.days:
        raise InvalidRequest("the configuration has no `retention`: everything is kept for ever")
    with RetentionRun(
        database_url(), retention_settings.days, retention_settings.archive, redis_time=redis_time
    ) as work:
        steps = work.due()
        if dry_run or not steps:
            return [_item(step, None) for step in steps]
        if not yes:
            _ask(steps)
        take_turn(work)
        # asked anew after each: a step may leave another day of the same rows to be archived first
        done: list[RetentionStep] = []
        items = []
        while steps and steps[0] not in done:
            done.append(steps[0])
            items.append(_item(steps[0], work.take(steps[0])))
            steps = work.due()
        return items


def _ask(steps: list[RetentionStep]) -> None:
    names = ", ".join(dict.fromkeys(step.kind.name for step in steps))
    what = f"take away the rows of {len(steps):,} days and tables ({names}), for good"
    if not sys.stdin.isatty():
        raise InvalidRequest(f"this would {what}: add --yes to do it, or --dry-run to only look")
    note(f"This will {what}.")
    if not typer.confirm("Go on?", err=True):
        typer.echo("nothing was done", err=True)
        raise typer.Exit(1)


def _item(step: RetentionStep, taken: int | None) -> dict[str, Any]:
    return {
        "table": step.kind.name,
        "until": str(step.until),
        "size_bytes": step.size_bytes,
        "taken": taken,
    }
