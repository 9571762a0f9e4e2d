"""`sluice audit`: the record from the command line, straight from the database, with the filters of the API.

Tables for people, `--json` for programs. Exit codes: 0 done, 1 no such call, 2 wrong use or filter, 3 the database is away.
Text from models is shown with its control characters escaped: a tool call must not drive the reader's terminal.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from uuid import UUID

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from db.export import Progress as ExportProgress
from db.export import export_lines
from db.filters import CHUNK_FILTERS, EXPORT_FILTERS, ListName, parse_filters
from db.keys import tell_apart
from db.queries import AuditReader
from protocol.errors import AuditUnavailable, NotFound, PipelineError
from sluice.errors import StartError
from sluice.settings import database_url

app = typer.Typer(help="Read the record of calls, tool calls and verdicts.", no_args_is_help=True)

T = TypeVar("T")

SessionName = Annotated[str, typer.Option("--session", help="Session of the call.")]
Model = Annotated[str, typer.Option("--model", help="Model asked for.")]
KeyName = Annotated[str, typer.Option("--key", help="Name of the API key.")]
KeyId = Annotated[str, typer.Option("--key-id", help="Id of the API key, as `sluice keys list` shows it: a name may get another holder.")]
Name = Annotated[str, typer.Option("--name", help="Name of the tool.")]
Verdict = Annotated[str, typer.Option("--verdict", help="allow, block, replace, hold or withheld.")]
Policy = Annotated[str, typer.Option("--policy", help="Policy that decided, or of the call.")]
Since = Annotated[str, typer.Option("--since", help="Calls from this time on (2026-01-31 or 2026-01-31T12:00:00Z).")]
Until = Annotated[str, typer.Option("--until", help="Calls before this time.")]
Words = Annotated[str, typer.Option("--q", help="Words in the tool's name, its arguments or the reason.")]
CallId = Annotated[str, typer.Option("--call-id", help="One call.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Items on a page.")]
Cursor = Annotated[str, typer.Option("--cursor", help="Where the last page ended.")]
Order = Annotated[Literal["asc", "desc"], typer.Option("--order", help="By time of the call.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]

# what matters most first: a narrow terminal shows as many as it has room for
CALL_COLUMNS = (
    ("call", "call_id"), ("state", "state"), ("model", "model"), ("reason", "reason"), ("created", "created_at"),
    ("tool calls", "tool_calls"), ("blocked", "tool_calls_blocked"), ("policy", "policy"), ("key", "key"), ("session", "session"),
)  # fmt: skip
TOOL_COLUMNS = (
    ("call", "call_id"), ("tool", "name"), ("verdict", "verdict"), ("arguments", "arguments"), ("reason", "reason"),
    ("policy", "policy"), ("decided", "decided_at"), ("released", "released_at"),
)  # fmt: skip
JUDGE_COLUMNS = (
    ("call", "call_id"), ("tool", "name"), ("arguments", "arguments"), ("probability", "judge.probability"), ("judge", "judge.model"),
    ("threshold", "judge.threshold"), ("decided", "decided_at"), ("reason", "reason"), ("kind", "kind"),
)  # fmt: skip
CHUNK_COLUMNS = (("seq", "seq"), ("verdict", "verdict"), ("raw", "raw"), ("block", "block"), ("at", "at"))
RELEASED_COLUMNS = (("number", "number"), ("kind", "kind"), ("payload", "payload"), ("relayed", "relayed"), ("at", "at"))
_CELL = 160
_FOLDED = 16
"""Arguments, raw chunks and other long text may be folded to this width."""
_WIDE = 1000
"""Columns of a pipe, which has room for all."""


@app.command("calls")
def calls(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "",
    policy: Policy = "", since: Since = "", until: Until = "", q: Words = "", limit: Limit = 50, cursor: Cursor = "",
    order: Order = "desc", as_json: AsJson = False,
) -> None:  # fmt: skip
    """List calls."""
    given = _given(call_id, session, model, key, key_id, name, verdict, policy, since, until, q, limit, cursor, order)
    _show_list("calls", given, CALL_COLUMNS, as_json)


@app.command("tool-calls")
def tool_calls(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "",
    policy: Policy = "", since: Since = "", until: Until = "", q: Words = "", limit: Limit = 50, cursor: Cursor = "",
    order: Order = "desc", as_json: AsJson = False,
) -> None:  # fmt: skip
    """List tool calls with their verdicts."""
    given = _given(call_id, session, model, key, key_id, name, verdict, policy, since, until, q, limit, cursor, order)
    _show_list("tool-calls", given, TOOL_COLUMNS, as_json)


@app.command("judge-blocks")
def judge_blocks(
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "",
    policy: Policy = "", since: Since = "", until: Until = "", q: Words = "", limit: Limit = 50, cursor: Cursor = "",
    order: Order = "desc", as_json: AsJson = False,
) -> None:  # fmt: skip
    """List what a judge blocked."""
    given = _given(call_id, session, model, key, key_id, name, verdict, policy, since, until, q, limit, cursor, order)
    _show_list("judge-blocks", given, JUDGE_COLUMNS, as_json)


@app.command("show")
def show(
    call: Annotated[str, typer.Argument(help="The call id, as in the response header x-sluice-call-id.")],
    chunks: Annotated[bool, typer.Option("--chunks", help="Also what upstream sent and what was released.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one call: its tool calls, verdicts, judgements and events."""

    async def read(reader: AuditReader) -> dict[str, Any]:
        try:
            call_id = UUID(call)
        except ValueError:
            raise NotFound(f"{printable(call)} is not a call id") from None
        found = await reader.call(call_id)
        if found is None:
            raise NotFound(f"no call {call_id} in the record")
        if chunks:
            found["released"], found["chunk_items"] = await _all_chunks(reader, call_id)
        return found

    found = _run(read, as_json)
    if as_json:
        print_json(found)
        return
    console = _console()
    facts = Table("field", "value", title=f"call {found['call_id']}")
    for name, value in found.items():
        if not isinstance(value, list):
            facts.add_row(name, _cell(value))
    console.print(facts)
    _print_table(console, "tool calls", found["tool_calls"], _tool_columns(found["tool_calls"]))
    for title in ("blocks", "judgements", "events"):
        if found[title]:
            _print_table(console, title, found[title], tuple((name, name) for name in found[title][0]))
    if chunks:
        if found["released"]:
            # all that the client of a refused request got
            _print_table(console, "released before the first chunk", found["released"], RELEASED_COLUMNS)
        _print_table(console, "chunks", found["chunk_items"], CHUNK_COLUMNS)


@app.command("export")
def export(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; without it, standard output.")] = None,
    call_id: CallId = "", session: SessionName = "", model: Model = "", key: KeyName = "", key_id: KeyId = "",
    name: Name = "", verdict: Verdict = "",
    policy: Policy = "", since: Since = "", until: Until = "", q: Words = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write calls with everything about them as lines of JSON; the last line says export_end."""
    given = _given(call_id, session, model, key, key_id, name, verdict, policy, since, until, q)
    part = output.with_name(output.name + ".part") if output else None

    async def write(reader: AuditReader) -> ExportProgress:
        if part is None:
            return await _export(reader, given, sys.stdout.buffer)
        with part.open("wb") as file:
            return await _export(reader, given, file)

    try:
        done = _run(write, as_json)
    except OSError as error:
        typer.echo(f"cannot write {output}: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    finally:
        if part is not None and sys.exception() is not None:
            part.unlink(missing_ok=True)
    if output is not None and part is not None:
        part.replace(output)
        if as_json:
            print_json({"path": str(output), "calls": done.calls, "lines": done.lines})
        else:
            typer.echo(f"{done.calls} calls in {done.lines + 1} lines: {output}", err=True)


def printable(text: str) -> str:
    """Return `text` with line ends, control characters, escapes and invisible characters spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _given(
    call_id: str, session: str, model: str, key: str, key_id: str, name: str, verdict: str, policy: str, since: str, until: str, q: str,
    limit: int | str = "", cursor: str = "", order: str = "",
) -> list[tuple[str, str]]:  # fmt: skip
    values = {
        "call_id": call_id, "session": session, "model": model, "key": key, "key_id": key_id, "name": name,
        "verdict": verdict, "policy": policy,
        "since": since, "until": until, "q": q, "limit": str(limit), "cursor": cursor, "order": order,
    }  # fmt: skip
    return [(name, value) for name, value in values.items() if value]


def _show_list(of: ListName, given: list[tuple[str, str]], columns: Sequence[tuple[str, str]], as_json: bool) -> None:
    async def read(reader: AuditReader) -> dict[str, Any]:
        filters = parse_filters(given, of=of)
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

    page = _run(read, as_json)
    if as_json:
        print_json(page)
        return
    shown = _tool_columns(page["items"]) if of == "tool-calls" else columns
    _print_table(_console(), of, page["items"], shown)
    if page["next_cursor"]:
        typer.echo(f"more: --cursor {page['next_cursor']}", err=True)


async def _all_chunks(reader: AuditReader, call_id: UUID) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What was released before the first chunk, and the chunks."""
    released: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        given = [("limit", "1000"), ("cursor", cursor)]
        page = await reader.chunks(call_id, parse_filters(given, of="chunks", allowed=CHUNK_FILTERS))
        released += page["released"] if page else []
        items += page["items"] if page else []
        if page is None or not page["next_cursor"]:
            return released, items
        cursor = page["next_cursor"]


async def _export(reader: AuditReader, given: list[tuple[str, str]], file: BinaryIO) -> ExportProgress:
    filters = parse_filters(given, of="calls", allowed=EXPORT_FILTERS)
    console = Console(stderr=True)
    total = await reader.count_calls(filters) if console.is_terminal else None
    done = ExportProgress()
    columns = (TextColumn("exporting calls"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("export", total=total)
        async with aclosing(export_lines(reader.engine, filters, done)) as pieces:
            async for piece in pieces:
                file.write(piece)
                bar.update(task, completed=done.calls)
    file.flush()
    return done


def _run(read: Callable[[AuditReader], Awaitable[T]], as_json: bool) -> T:
    """Run with a reader; errors end the program with their exit code."""

    async def with_reader() -> T:
        reader = AuditReader.open(database_url(), pool_size=1)
        try:
            return await read(reader)
        finally:
            await reader.close()

    try:
        return asyncio.run(with_reader())
    except BrokenPipeError:
        # The reader of the pipe has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


def fail(error: PipelineError | StartError, as_json: bool) -> int:
    """Say what went wrong and return the exit code for it."""
    if isinstance(error, StartError):
        error_code, param, message = "settings", None, str(error)
    else:
        error_code, param, message = error.error_code, error.param, error.message
    message = f"--{param.replace('_', '-')}: {message}" if param else message
    if as_json:
        print_json({"error": {"message": message, "code": error_code, "param": param}})
    else:
        typer.echo(message, err=True)
    match error:
        case StartError():
            return error.exit_code
        case NotFound():
            return 1
        case AuditUnavailable():
            return 3
        case _:
            return 2


def print_json(value: object) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value, ensure_ascii=True))


def _tool_columns(items: Sequence[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """The columns for these tool calls: who runs them is told where that is not the client for all."""
    if all(item["executor"] == "client" for item in items):
        return TOOL_COLUMNS
    return (*TOOL_COLUMNS[:2], ("run by", "executor"), *TOOL_COLUMNS[2:])


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _print_table(console: Console, title: str, items: Sequence[dict[str, Any]], columns: Sequence[tuple[str, str]]) -> None:
    """Print the columns that there is room for, the first ones first, and say which others there are."""
    table, left_out, room = Table(title=title, box=box.SIMPLE_HEAD), list[str](), console.width - 2
    shown: list[list[Text]] = []
    for heading, path in columns:
        cells = [_cell(_at(item, path)) for item in items]
        is_whole = path.endswith(("_id", "_at"))
        widest = max((cell.cell_len for cell in cells), default=0)
        width = 2 + max(len(heading), widest if is_whole else min(widest, _FOLDED))
        if width > room and shown:
            left_out.append(heading)
            continue
        room -= width
        table.add_column(heading, overflow="fold", no_wrap=is_whole)
        shown.append(cells)
    for row in zip(*shown, strict=True):
        table.add_row(*row)
    console.print(table)
    if left_out and items:
        typer.echo(f"no room here for: {', '.join(left_out)} (a wider terminal, or --json)", err=True)


def _at(item: dict[str, Any], path: str) -> object:
    value: object = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _cell(value: object) -> Text:
    if value is None:
        return Text("")
    text = value if isinstance(value, str) else json.dumps(value)
    short = text if len(text) <= _CELL else text[:_CELL] + f"... ({len(text)} characters)"
    return Text(printable(short))
