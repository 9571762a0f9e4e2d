"""`sluice audit verify`, `checkpoint`, `public-key`, `redact` and `drop`: verify the audit log, and
remove content so that the removal shows.

Exit codes: 0 done, and for `verify` nothing was found; 1 the audit log was tampered with, or no
such call; 2 wrong use; 3 the database does not answer; 4 from `verify`: the audit log is as it was
written but not whole, because calls are incomplete (also where one row contradicts another) or
records are dead letters.
"""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol
from uuid import UUID

import typer

from db.dead_letters import say_letters
from db.filters import Filters, parse_filters
from db.missing_records import say_incomplete
from db.seals import checkpoints
from db.seals.redact import drop_before
from db.seals.redact import redact as redact_call
from db.seals.retention import KINDS, RetentionRun, RetentionStep
from db.seals.verify import Report, count_work, newest_checkpoint
from db.seals.verify import verify as verify_record
from db.seals.verify_rows import LOWEST
from protocol.errors import InvalidRequest, NotFound
from sluice.audit import archive_cli, retention_cli
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import parsed_file, print_json, read_times, run_here, whole_id
from sluice.audit.audit_run import run as run_reader
from sluice.audit.evidence_cli import make_evidence, verify_evidence
from sluice.errors import SettingsError
from sluice.progress import progress
from sluice.settings import database_url, load_settings, redis_time
from sluice.tables import clock, day, note, printable
from sluice.times import FORMS, read_time

if TYPE_CHECKING:
    from db.read.queries import AuditReader

app = typer.Typer(help="Verify, redact, drop.")

_TOOLS = 5
"""So many tools are named in a question."""

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the record.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")]
Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask. Without a terminal nothing is done without it."),
]


@app.command("verify")
def verify(
    call: Annotated[
        str,
        typer.Option(
            "--call",
            "--call-id",
            help=(
                "Only the rows of this call (8 characters of its id or more); the whole tree all"
                " the same."
            ),
        ),
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            help=f"Only rows of calls from this time on: {FORMS}. Without a zone it is local time.",
        ),
    ] = "",
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="A checkpoint kept elsewhere; may be repeated."),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", help="PEM file; the newest checkpoint must be signed by it."),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence", help="Only this file of `sluice audit evidence`, without a database."
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive",
            help="Only the days in this directory of `sluice audit archive`, without a database.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that the record is as it was written: every row, seal and checkpoint. Exit 1 and the
    first damage when it is not.

    Exit 4 when it is, but calls are incomplete, or some records are dead letters, in no table of
    their call.
    """
    if archive is not None:
        if call or since or evidence:
            raise typer.BadParameter(
                "--archive is of all its days: it goes with --public-key and --against alone"
            )
        archive_cli.verify_archive(archive, public_key, against or (), as_json)
        return
    if evidence is not None:
        verify_evidence(evidence, public_key, against or (), as_json)
        return

    def work() -> Report:
        chosen = parse_filters(read_times([("call_id", named), ("since", since)]), of="verify")
        call_id, low = chosen.call_id, chosen.low or LOWEST
        checkpoint_files = [
            parsed_file("against", path, checkpoints.parse) for path in against or ()
        ]
        key = (
            parsed_file("public_key", public_key, checkpoints.load_public_key)
            if public_key
            else None
        )
        url = database_url()
        with progress("verifying", lambda: count_work(url, call_id=call_id, low=low)) as step:
            return verify_record(
                url,
                call_id=call_id,
                low=low,
                against=checkpoint_files,
                key=key,
                progress=step,
            )

    named = whole_id(call, as_json) if call else ""
    report = run_here(work, as_json)
    if as_json:
        print_json(report.item())
    else:
        _tell(report)
    raise typer.Exit(
        1 if not report.ok else 4 if report.dead_letters or report.incomplete_calls else 0
    )


app.command("evidence")(make_evidence)
app.command("archive")(archive_cli.archive)
app.command("restore")(archive_cli.restore_day)
app.command("retention")(retention_cli.retention)


@app.command("checkpoint")
def checkpoint(as_json: AsJson = False) -> None:
    """Print the newest checkpoint. Kept where the database's administrators cannot write, it shows
    what they change."""

    def work() -> str:
        newest = newest_checkpoint(database_url())
        if newest is None:
            raise NotFound(
                "there is no checkpoint yet: an audit writer makes one within `limits.checkpoint_s`"
                " of the first ended call"
            )
        return newest

    text = run_here(work, as_json)
    if as_json:
        parsed = checkpoints.parse(text)
        print_json(
            {
                "checkpoint": text,
                "origin": parsed.origin,
                "size": parsed.size,
                "root": parsed.root.hex(),
                "at": parsed.at,
            }
        )
    else:
        typer.echo(text, nl=False)


@app.command("public-key")
def public_key() -> None:
    """Print the public key of SLUICE_SEAL_KEY (PEM), for `verify --public-key`."""

    def work() -> str:
        key = load_settings().seal_key
        if not key:
            raise SettingsError(
                "SLUICE_SEAL_KEY is not set, so checkpoints are not signed: see docs/run/audit.md"
            )
        try:
            return checkpoints.public_pem(checkpoints.load_private_key(key))
        except ValueError as error:
            raise SettingsError(f"SLUICE_SEAL_KEY: {error}") from None

    typer.echo(run_here(work, as_json=False), nl=False)


@app.command("redact")
def redact(
    call: Annotated[str, typer.Argument(help="The call id, or its first 8 characters or more.")],
    reason: Reason,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite", help="Write the day's files anew; meanwhile nobody writes to it."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete the content of a call: bodies, chunks, arguments, prompts, reasons. Verdicts, times
    and hashes stay."""
    call_id = UUID(whole_id(call, as_json))

    def work(*, dry_run: bool) -> int:
        return redact_call(
            database_url(), call_id, _given(reason), rewrite=rewrite, dry_run=dry_run
        )

    def what(rows: int) -> str:
        return (
            f"delete the content of {_many(rows, 'row')} of call"
            f" {call_id}{run_reader(lambda reader: _whose(reader, call_id), as_json)}"
        )

    rows = _ask_and_do(work, what, dry_run, yes, as_json, always=rewrite)
    if as_json:
        print_json({"call_id": str(call_id), "rows": rows, "dry_run": dry_run})
    elif not rows:
        note(
            f"nothing to do: all content of call {call_id} is deleted"
            f" already{'; its files are written anew' if rewrite else ''}"
        )
    else:
        note(f"{'would redact' if dry_run else 'redacted'} {_many(rows, 'row')} of call {call_id}")
    for sentence in run_here(
        lambda: archive_cli.tell_copies(call_id, is_more=dry_run and rows > 0), as_json
    ):
        note(sentence)


@app.command("drop")
def drop(
    before: Annotated[
        str,
        typer.Option(
            "--before",
            help=(
                "Calls that began before this day (in UTC) go: 2026-01-31, or a time as for --since"
                " (90d)."
            ),
        ),
    ],
    reason: Reason,
    damaged: Annotated[
        bool,
        typer.Option(
            "--damaged", help="Also calls with other rows than their seals count; verify says so."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop the rows of old calls. Their seals stay, so that what is left still verifies; each must
    be under a checkpoint.

    With `retention.archive` in the configuration their days are archived first.
    """

    until = run_here(lambda: _day(before), as_json)

    def work(*, dry_run: bool) -> int:
        why, folder = _given(reason), archive_cli.archive_folder()
        if dry_run or not folder or until.year < 1970:
            return drop_before(
                database_url(), until, why, redis_time=redis_time, dry_run=dry_run, damaged=damaged
            )
        with RetentionRun(database_url(), {}, folder, redis_time=redis_time) as retention:
            archive_cli.take_turn(retention)
            return retention.take(RetentionStep(KINDS[-1], until, 0), why)

    calls = _ask_and_do(
        work,
        lambda calls: f"drop the rows of {_many(calls, 'call')} that began before {until} (UTC)",
        dry_run,
        yes,
        as_json,
    )
    if as_json:
        print_json({"before": str(until), "calls": calls, "dry_run": dry_run})
    elif not calls:
        note(f"nothing to do: no call on record began before {until} (UTC)")
    else:
        note(
            f"{'would drop' if dry_run else 'dropped'} {_many(calls, 'call')} before {until} (UTC)"
        )


class _Work(Protocol):
    """What deletes; dry, it says how much that would be."""

    def __call__(self, *, dry_run: bool) -> int: ...


def _ask_and_do(
    work: _Work,
    what: Callable[[int], str],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    *,
    always: bool = False,
) -> int:
    """Do it, after a question unless --yes was given. Returns how much it was. `always`: also where
    there is nothing to delete."""

    def ask_first() -> int:
        if dry_run or yes:
            return work(dry_run=dry_run)
        # before the question, so that what cannot be done is not asked about
        planned = work(dry_run=True)
        if not (planned or always):
            return 0
        if not sys.stdin.isatty():
            raise InvalidRequest(
                f"this would {what(planned)}, for good: add --yes to do it, or --dry-run to only look"
            )
        try:
            note(f"This will {what(planned)}, for good.")
            goes_on = typer.confirm("Go on?", err=True)
        except typer.Abort:
            # Ctrl-C, behind which the line has not ended
            typer.echo(err=True)
            goes_on = False
        if not goes_on:
            typer.echo("nothing was done", err=True)
            raise typer.Exit(1)
        return work(dry_run=False)

    return run_here(ask_first, as_json)


async def _whose(reader: "AuditReader", call_id: UUID) -> str:
    """Describe a call as a person knows it: when, whose key, which tools; empty if only its end is
    stored."""
    filters = Filters(call_id=call_id, limit=_TOOLS + 1)
    calls = (await reader.calls(filters))["items"]
    tools = [printable(item["name"] or "") for item in (await reader.tool_calls(filters))["items"]]
    named = ", ".join(filter(None, tools[:_TOOLS])) + (" and more" if len(tools) > _TOOLS else "")
    facts = [
        f"of {day(item['created_at'])} {clock(item['created_at'])} with the key"
        f" {printable(str(item['key']))}"
        for item in calls
    ]
    return "".join(
        f" ({fact})" for fact in [", ".join(facts + ([f"tools: {named}"] if named else []))] if fact
    )


def _day(before: str) -> date:
    """The day in UTC that a text means: itself, or that of a time."""
    try:
        chosen_day = date.fromisoformat(before)
    except ValueError:
        chosen_day = datetime.fromisoformat(read_time(before or "?", "before")).date()
    if chosen_day > datetime.now(UTC).date():
        raise InvalidRequest("is in the future", param="before")
    return chosen_day


def _many(number: int, of: str) -> str:
    return f"{number:,} {of}" + ("" if number == 1 else "s")


def _tell(report: Report) -> None:
    for finding in report.findings:
        typer.echo(printable(str(finding)))
    if report.damages > len(report.findings):
        typer.echo(f"and {report.damages - len(report.findings)} more")
    facts = [
        _many(report.calls, "call"),
        _many(report.rows, "row"),
        _many(report.size, "seal"),
        _many(report.checkpoints, "checkpoint"),
    ]
    facts += [f"{report.signed:,} signed"] if report.signed else []
    facts += [
        f"{_many(count, 'call')} {what}"
        for count, what in (
            (report.redacted, "redacted"),
            (report.extended, "sealed again for rows that came after their first seal"),
            (report.dropped, "dropped"),
            (report.damaged, "dropped with other rows of a table than sealed"),
            (report.shed, f"shed in part ({', '.join(sorted(report.shed_tables))})"),
            (report.unsealed, "not sealed yet"),
        )
        if count
    ]
    for call_id, detail in report.holes:
        typer.echo(printable(f"incomplete: call {call_id}: {detail}"))
    if report.incomplete_calls:
        typer.echo(
            say_incomplete(
                len(report.incomplete_calls), list(map(str, sorted(report.incomplete_calls)))
            )
        )
    if report.dead_letters:
        typer.echo(printable(say_letters(report.dead_letters, report.dead_calls)))
    is_less = report.incomplete_calls or report.dead_letters or report.damaged
    verdict = "NOT OK" if not report.ok else "as written, but not whole" if is_less else "ok"
    typer.echo(f"{verdict}: {', '.join(facts)}")


def _given(reason: str) -> str:
    if not reason.strip():
        raise InvalidRequest("must say why", param="reason")
    return reason.strip()
