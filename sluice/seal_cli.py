"""`sluice audit verify`, `checkpoint`, `public-key`, `redact` and `drop`: is the record as it was written, and taking content out of it so
that it shows.

Exit codes: 0 done, and for `verify` nothing was found; 1 the record was tampered with, or no such call; 2 wrong use; 3 the database
is away; 4 from `verify`: the record is as it was written, but not whole, because calls are incomplete or records are dead letters.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, TypeVar
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from db import checkpoints
from db.filters import VERIFY_FILTERS, parse_filters
from db.holes import say_incomplete
from db.letters import say_letters
from db.redact import drop_before
from db.redact import redact as redact_call
from db.verify import Report, count_work, newest_checkpoint
from db.verify import verify as verify_record
from db.verify_rows import LOWEST
from protocol.errors import InvalidRequest, NotFound, PipelineError
from sluice.audit_cli import fail, print_json, printable
from sluice.errors import SettingsError, StartError
from sluice.settings import database_url, load_settings

app = typer.Typer(help="Verify, redact, drop.")

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the record.")]


@app.command("verify")
def verify(
    call: Annotated[str, typer.Option("--call", "--call-id", help="Only the rows of this call; the whole tree all the same.")] = "",
    since: Annotated[str, typer.Option("--since", help="Only rows of calls from this time on (2026-01-31 or 2026-01-31T12:00:00Z).")] = "",
    against: Annotated[list[Path] | None, typer.Option("--against", help="A checkpoint kept elsewhere; may be repeated.")] = None,
    public_key: Annotated[Path | None, typer.Option("--public-key", help="PEM file; the newest checkpoint must be signed by it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that the record is as it was written: every row, seal and checkpoint. Exit 1 and the first damage when it is not.

    Exit 4 when it is, but calls are incomplete, or some records are dead letters, in no table of their call.
    """

    def work() -> Report:
        chosen = parse_filters([("call_id", call), ("since", since)], of="calls", allowed=VERIFY_FILTERS)
        call_id, low = chosen.call_id, chosen.low or LOWEST
        kept = [_parsed("against", path, checkpoints.parse) for path in against or ()]
        key = _parsed("public_key", public_key, checkpoints.load_public_key) if public_key else None
        url = database_url()
        console = Console(stderr=True)
        if not console.is_terminal:
            return verify_record(url, call_id=call_id, low=low, against=kept, key=key)
        columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("verify", total=count_work(url, call_id=call_id, low=low))
            return verify_record(url, call_id=call_id, low=low, against=kept, key=key, progress=lambda n: bar.advance(task, n))

    report = _run(work, as_json)
    if as_json:
        print_json(report.item())
    else:
        _tell(report)
    raise typer.Exit(1 if not report.ok else 4 if report.dead_letters or report.incomplete_calls else 0)


@app.command("checkpoint")
def checkpoint(as_json: AsJson = False) -> None:
    """Print the newest checkpoint. Kept where the database's administrators cannot write, it shows what they change."""

    def work() -> str:
        found = newest_checkpoint(database_url())
        if found is None:
            raise NotFound("there is no checkpoint yet: an audit writer makes one within `limits.checkpoint_s` of the first ended call")
        return found

    text = _run(work, as_json)
    if as_json:
        told = checkpoints.parse(text)
        print_json({"checkpoint": text, "origin": told.origin, "size": told.size, "root": told.root.hex(), "at": told.at})
    else:
        typer.echo(text, nl=False)


@app.command("public-key")
def public_key() -> None:
    """Print the public key of SLUICE_SEAL_KEY (PEM), for `verify --public-key`."""

    def work() -> str:
        key = load_settings().seal_key
        if not key:
            raise SettingsError("SLUICE_SEAL_KEY is not set, so checkpoints are not signed: see docs/audit.md")
        try:
            return checkpoints.public_pem(checkpoints.load_private_key(key))
        except ValueError as error:
            raise SettingsError(f"SLUICE_SEAL_KEY: {error}") from None

    typer.echo(_run(work, as_json=False), nl=False)


@app.command("redact")
def redact(
    call: Annotated[str, typer.Argument(help="The call id.")],
    reason: Reason,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Write the day's files anew; meanwhile nobody writes to it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what was said in a call: bodies, chunks, arguments, prompts, reasons. Verdicts, times and hashes stay."""

    def work() -> int:
        return redact_call(database_url(), _call_id(call), _given(reason), rewrite=rewrite)

    rows = _run(work, as_json)
    if as_json:
        print_json({"call_id": call, "rows": rows})
    else:
        typer.echo(f"redacted {rows} rows of call {printable(call)}", err=True)


@app.command("drop")
def drop(
    before: Annotated[str, typer.Option("--before", help="Day in UTC; calls that began before it go (2026-01-31).")],
    reason: Reason,
    as_json: AsJson = False,
) -> None:
    """Drop the rows of old calls. Their seals stay, so that what is left still verifies; each must be under a checkpoint."""

    def work() -> int:
        try:
            day = date.fromisoformat(before)
        except ValueError:
            raise InvalidRequest("must be a day like 2026-01-31", param="before") from None
        if day > datetime.now(UTC).date():
            raise InvalidRequest("is in the future", param="before")
        return drop_before(database_url(), day, _given(reason))

    calls = _run(work, as_json)
    if as_json:
        print_json({"before": before, "calls": calls})
    else:
        typer.echo(f"dropped {calls} calls before {before}", err=True)


def _tell(report: Report) -> None:
    for finding in report.findings:
        typer.echo(printable(str(finding)))
    if report.damages > len(report.findings):
        typer.echo(f"and {report.damages - len(report.findings)} more")
    told = [f"{report.calls:,} calls", f"{report.rows:,} rows", f"{report.size:,} seals", f"{report.checkpoints:,} checkpoints"]
    told += [
        f"{count:,} {what}"
        for count, what in (
            (report.signed, "signed"), (report.redacted, "calls redacted"), (report.extended, "calls with rows after their first seal"),
            (report.dropped, "calls dropped"), (report.unsealed, "calls not sealed yet"),
        )
        if count
    ]  # fmt: skip
    for call_id, detail in report.holes:
        typer.echo(printable(f"incomplete: call {call_id}: {detail}"))
    if report.incomplete_calls:
        typer.echo(say_incomplete(len(report.incomplete_calls), list(map(str, sorted(report.incomplete_calls)))))
    if report.dead_letters:
        typer.echo(printable(say_letters(report.dead_letters, report.dead_calls)))
    verdict = "NOT OK" if not report.ok else "as written, but not whole" if report.incomplete_calls or report.dead_letters else "ok"
    typer.echo(f"{verdict}: {', '.join(told)}")


def _given(reason: str) -> str:
    if not reason.strip():
        raise InvalidRequest("must say why", param="reason")
    return reason.strip()


def _call_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidRequest(f"{printable(text)} is not a call id", param="call") from None


def _parsed(param: str, path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not text", param=param) from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", param=param) from None
    except ValueError as error:
        raise InvalidRequest(f"{path}: {error}", param=param) from None


def _run(work: Callable[[], T], as_json: bool) -> T:
    """Run; errors end the program with their exit code."""
    try:
        return work()
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None
