"""`sluice audit rebuild`: rebuild what is derived from the record and stored next to it. For the
owner of the tables.

Exit codes: 0 done, 2 wrong use, or not the owner, 3 the database is away.
"""

import sys
from typing import Annotated, Literal
from uuid import UUID

import typer

from db.filters import parse_filters
from db.write.histories import HistoryWriter
from protocol.errors import PipelineError
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import fail, print_json, read_times
from sluice.errors import StartError
from sluice.settings import database_url
from sluice.tables import note
from sluice.times import FORMS

_LOWEST, _HIGHEST = UUID(int=0), UUID(int=2**128 - 1)


def rebuild(
    what: Annotated[
        Literal["histories"],
        typer.Argument(
            help="histories: what requests repeat of each other, for the pages of sessions."
        ),
    ],
    since: Annotated[
        str, typer.Option("--since", help=f"Calls that began at this time or later: {FORMS}.")
    ] = "",
    until: Annotated[str, typer.Option("--until", help="Calls that began before this time.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make anew what is made of the record and lies beside it: after an update that makes it in
    another way, or where audit writers left some out. The record itself is only read."""
    done = 0
    try:
        filters = parse_filters(read_times([("since", since), ("until", until)]), of="calls")
        writer = HistoryWriter(database_url())
        try:
            for done in writer.rebuild(filters.low or _LOWEST, filters.high or _HIGHEST):
                if sys.stderr.isatty() and not as_json:
                    typer.echo(f"\r{done:,} calls", nl=False, err=True)
        finally:
            writer.close()
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None
    if as_json:
        print_json({"rebuilt": what, "calls": done})
    else:
        note(f"made the {what} of {done:,} call{'' if done == 1 else 's'}")
