"""`sluice audit`: the record from the command line, straight from the database, with the filters of
the API.

Lists are here, one call in `sluice.audit.show_cli`, the export in `sluice.audit.export_cli`. Tables
for people, tab-separated values for pipes, `--json` for programs."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.filters import ListName
from db.read.counts import DEFAULT_BY, USAGE_BY, Dimension, UsageGroup, parse_counts
from sluice.audit import audit_columns, debug_cli, export_cli, rebuild_cli, review_cli, show_cli
from sluice.audit.audit_options import AsJson, Chosen, Follow, Given, with_filters
from sluice.audit.audit_run import print_json, quiet_pipe, read_filters, read_times, run
from sluice.audit.follow import follow
from sluice.tables import is_terminal, note, printable, show
from sluice.times import local_zone

if TYPE_CHECKING:
    from db.read.queries import AuditReader

app = typer.Typer(help="Read the record of calls, tool calls and verdicts.", no_args_is_help=True)
app.command("show")(show_cli.show_call)
app.command("export")(export_cli.export)
app.command("review")(review_cli.review)
app.command("rebuild")(rebuild_cli.rebuild)
app.command("debug-logs")(debug_cli.debug_logs)

_DAYS = "7 days"


def _make_list(of: ListName) -> Callable[..., None]:
    def show_list(chosen: Chosen = (), as_json: AsJson = False) -> None:
        _list(of, [*chosen], as_json)

    def follow_list(chosen: Chosen = (), follows: Follow = False, as_json: AsJson = False) -> None:
        if follows:
            follow(of, [*chosen], audit_columns.LISTS[of], as_json)
        else:
            show_list(chosen, as_json)

    return with_filters(of)(show_list if of == "judge-blocks" else follow_list)


app.command("calls", help="List calls, the newest first.")(_make_list("calls"))
app.command("tool-calls", help="List tool calls with their verdicts, the newest first.")(
    _make_list("tool-calls")
)
app.command("judge-blocks", help="List what a judge blocked, the newest first.")(
    _make_list("judge-blocks")
)


@app.command("counts")
@with_filters("counts")
def counts(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=f"What to count by, commas between: {', '.join(Dimension)}.",
            autocompletion=lambda: list(Dimension),
        ),
    ] = ",".join(DEFAULT_BY),
    chosen: Chosen = (),
    as_json: AsJson = False,
) -> None:
    """Count tool calls by day, key, verdict and the like; of the last 7 days, or those before
    --until, where no --since is given.

    Days are those of this machine's time zone on a terminal, as all times, and those of UTC in a
    pipe and in JSON.
    """
    filters: Given = [*chosen, ("by", by)]
    zone = local_zone() if is_terminal() and not as_json else "UTC"

    async def read(reader: "AuditReader") -> dict[str, Any]:
        return await reader.counts(*parse_counts(read_times(filters)), zone=zone)

    answer = run(read, as_json)
    if as_json:
        print_json(answer)
        return
    listed = audit_columns.of_counts(answer["by"], zone)
    times = dict(chosen)
    before = f" before {printable(times['until'])}" if "until" in times else ""
    looked_at = (
        ""
        if "since" in times
        else f" in the {_DAYS}{before}"
        if before
        else f" in the last {_DAYS}"
    )
    with quiet_pipe():
        show(answer["items"], listed.columns, listed.values, empty=f"nothing matches{looked_at}")
    if answer["truncated"]:
        note(
            f"only the first {len(answer['items']):,} rows: narrow it with filters, or count by less"
        )


@app.command("usage")
@with_filters("usage")
def show_usage(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            help=f"What to sum by, commas between: {', '.join(UsageGroup)}.",
            autocompletion=lambda: list(UsageGroup),
        ),
    ] = ",".join(USAGE_BY),
    chosen: Chosen = (),
    as_json: AsJson = False,
) -> None:
    """Sum calls, tokens and costs by day (UTC), key, team, model and the like; of the last 7 days,
    or those before --until, where no --since is given."""
    filters: Given = [*chosen, ("by", by)]

    async def read(reader: "AuditReader") -> dict[str, Any]:
        # with all that only work needs
        from db.read.usage import parse_usage, usage

        return await usage(reader.engine, *parse_usage(read_times(filters), datetime.now(UTC)))

    answer = run(read, as_json)
    if as_json:
        print_json(answer)
        return
    listed = audit_columns.of_usage(answer["by"])
    with quiet_pipe():
        show(answer["items"], listed.columns, listed.values, empty="nothing matches")
    if answer["newest"] != "counted":
        note("the newest calls are left out: there are too many to sum at once")
    if any(item["unpriced"] for item in answer["items"]):
        note("calls that are unpriced are not in the costs: name prices in the configuration")


def _list(of: ListName, chosen: Given, as_json: bool) -> None:
    async def read(reader: "AuditReader") -> dict[str, Any]:
        page = await reader.page(of, read_filters(chosen, of))
        if not as_json:
            from db.keys import tell_apart

            await tell_apart(reader.engine, page["items"])
        return page

    page = run(read, as_json)
    if as_json:
        print_json(page)
        return
    listed = audit_columns.LISTS[of](page["items"])
    with quiet_pipe():
        show(page["items"], listed.columns, listed.values, time=listed.time)
    if page["next_cursor"]:
        note(f"there is more: --cursor {page['next_cursor']}")
