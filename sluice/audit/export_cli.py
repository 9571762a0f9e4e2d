"""`sluice audit export`: calls with everything about them, as lines of JSON."""

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from sluice.audit.audit_options import AsJson, Chosen, with_filters
from sluice.audit.audit_run import print_json, read_filters, run
from sluice.progress import progress
from sluice.tables import is_terminal

if TYPE_CHECKING:
    from db.read.export import Progress as ExportProgress
    from db.read.queries import AuditReader


@with_filters("export")
def export(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; without it, standard output."),
    ] = None,
    chosen: Chosen = (),
    as_json: AsJson = False,
) -> None:
    """Write calls with everything about them as lines of JSON; the last line says export_end."""
    part = output.with_name(output.name + ".part") if output else None

    async def write(reader: "AuditReader") -> "ExportProgress":
        if part is None:
            return await _export(reader, chosen, sys.stdout.buffer)
        with part.open("wb") as file:
            return await _export(reader, chosen, file)

    try:
        done = run(write, as_json)
    except OSError as error:
        typer.echo(f"sluice: cannot write {output}: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    finally:
        if part is not None and sys.exception() is not None:
            part.unlink(missing_ok=True)
    if output is not None and part is not None:
        part.replace(output)
        if as_json:
            print_json({"path": str(output), "calls": done.calls, "lines": done.lines})
        else:
            typer.echo(
                f"{done.calls:,} call{'' if done.calls == 1 else 's'} in {done.lines + 1:,} lines:"
                f" {output}",
                err=True,
            )


async def _export(reader: "AuditReader", chosen: Chosen, file: BinaryIO) -> "ExportProgress":
    from db.read.export import Progress as ExportProgress
    from db.read.export import export_lines

    filters = await reader.named(read_filters(chosen, "export"))
    total = await reader.count_calls(filters) if is_terminal(sys.stderr) else 0
    done, shown = ExportProgress(), 0
    with progress("exporting calls", lambda: total) as step:
        async with aclosing(export_lines(reader.engine, filters, done)) as pieces:
            async for piece in pieces:
                file.write(piece)
                step(done.calls - shown)
                shown = done.calls
    file.flush()
    return done
