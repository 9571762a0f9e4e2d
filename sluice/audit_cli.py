"""`sluice audit`: the record from the command line, straight from the database, with the filters of the API.

Lists are here, one call in `sluice.show_cli`, the export in `sluice.export_cli`. Tables for people, tab-separated values for pipes,
`--json` for programs.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from db.filters import ListName
from db.keys import tell_apart
from db.read.counts import Dimension, parse_counts
from db.read.queries import AuditReader
from sluice import audit_columns, export_cli, show_cli
from sluice.audit_columns import Listed
from sluice.audit_options import (
    AsJson,
    CallId,
    Cursor,
    Follow,
    KeyId,
    KeyName,
    Limit,
    Model,
    Name,
    Order,
    Policy,
    SessionName,
    Since,
    State,
    Until,
    Verdict,
    Words,
    given,
)
from sluice.audit_run import print_json, quiet_pipe, read_filters, read_times, run
from sluice.follow import follow
from sluice.tables import Item, is_terminal, note, printable, show
from sluice.times import local_zone

app = typer.Typer(help="Read the record of calls, tool calls and verdicts.", no_args_is_help=True)
app.command("show")(show_cli.show_call)
app.command("export")(export_cli.export)

_LISTS: dict[ListName, Callable[[Sequence[Item]], Listed]] = {
    "calls": audit_columns.of_calls, "tool-calls": audit_columns.of_tool_calls, "judge-blocks": audit_columns.of_judge_blocks,
}  # fmt: skip
_DAYS = "7 days"


@app.command("calls")
def calls(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "", policy: Policy = "", state: State = "",
    since: Since = "", until: Until = "", q: Words = "", limit: Limit = "50", cursor: Cursor = "", order: Order = "desc",
    follows: Follow = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List calls, the newest first."""
    _list("calls", given(locals()), as_json, follows=follows)


@app.command("tool-calls")
def tool_calls(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "", policy: Policy = "",
    since: Since = "", until: Until = "", q: Words = "", limit: Limit = "50", cursor: Cursor = "", order: Order = "desc",
    follows: Follow = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """List tool calls with their verdicts, the newest first."""
    _list("tool-calls", given(locals()), as_json, follows=follows)


@app.command("judge-blocks")
def judge_blocks(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "", policy: Policy = "",
    since: Since = "", until: Until = "", q: Words = "", limit: Limit = "50", cursor: Cursor = "", order: Order = "desc",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """List what a judge blocked, the newest first."""
    _list("judge-blocks", given(locals()), as_json)


@app.command("counts")
def counts(
    by: Annotated[
        str,
        typer.Option("--by", help=f"What to count by, commas between: {', '.join(Dimension)}.", autocompletion=lambda: list(Dimension)),
    ] = "day,key,verdict",
    session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "", policy: Policy = "",
    since: Since = "", until: Until = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Count tool calls by day, key, verdict and the like; of the last 7 days, or those before --until, where no --since is given.

    Days are those of this machine's time zone on a terminal, as all times, and those of UTC in a pipe and in JSON.
    """
    chosen = given(locals())
    zone = local_zone() if is_terminal() and not as_json else "UTC"

    async def read(reader: AuditReader) -> dict[str, Any]:
        return await reader.counts(*parse_counts(read_times(chosen)), zone=zone)

    told = run(read, as_json)
    if as_json:
        print_json(told)
        return
    listed = audit_columns.of_counts(told["by"], zone)
    looked_at = "" if since else f" in the {_DAYS} before {printable(until)}" if until else f" in the last {_DAYS}"
    with quiet_pipe():
        show(told["items"], listed.columns, listed.values, empty=f"nothing matches{looked_at}")
    if told["truncated"]:
        note(f"only the first {len(told['items']):,} rows: narrow it with filters, or count by less")


def _list(of: ListName, chosen: list[tuple[str, str]], as_json: bool, *, follows: bool = False) -> None:
    async def read(reader: AuditReader) -> dict[str, Any]:
        filters = read_filters(chosen, of)
        match of:
            case "calls":
                page = await reader.calls(filters)
            case "tool-calls":
                page = await reader.tool_calls(filters)
            case _:
                page = await reader.judge_blocks(filters)
        if not as_json:
            await tell_apart(reader.engine, page["items"])
        return page

    if follows:
        follow(of, chosen, _LISTS[of], as_json)
        return
    page = run(read, as_json)
    if as_json:
        print_json(page)
        return
    listed = _LISTS[of](page["items"])
    with quiet_pipe():
        show(page["items"], listed.columns, listed.values, time=listed.time)
    if page["next_cursor"]:
        note(f"there is more: --cursor {page['next_cursor']}")
