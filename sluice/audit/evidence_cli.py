"""`sluice audit evidence`, and `sluice audit verify --evidence`: one tool call or block, proven
without a database.

Exit codes of verify: 0 it fits, 1 it does not, 2 wrong use.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from db.read.json_rows import JsonObject
from db.seals import checkpoints
from db.seals.evidence import make
from db.seals.proof import DoesNotFit, Proven, check, to_time
from protocol.errors import InvalidRequest
from sluice.audit.audit_run import parsed_file, print_json, run_here, whole_id
from sluice.settings import database_url
from sluice.tables import note, printable

_SHOWN = 2_000
"""Characters of a value that are printed."""


def make_evidence(
    call: Annotated[str, typer.Argument(help="The call id, or its first 8 characters or more.")],
    block: Annotated[
        int, typer.Argument(help="The number of the content block: `sluice audit show CALL`.")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", help="For this checkpoint, kept elsewhere, in place of the newest."
        ),
    ] = None,
) -> None:
    """Print evidence of one tool call or block: a file that `verify --evidence` verifies without a
    database.

    It holds the salt of the call: who has the file can try out guesses at short contents of other
    rows, whose hashes are in it.
    """
    call_id = UUID(whole_id(call, as_json=False))

    def work() -> bytes:
        parsed = parsed_file("checkpoint", checkpoint, checkpoints.parse) if checkpoint else None
        return make(database_url(), call_id, block, size=parsed.size if parsed else None).dump()

    typer.echo(run_here(work, as_json=False, is_noted=True), nl=False)
    note(
        "the file holds the salt of the call: who has it can try out guesses at short contents of"
        " other rows, whose hashes are in it"
    )


def verify_evidence(
    path: Path, public_key: Path | None, against: Sequence[Path], as_json: bool
) -> None:
    """Say whether a file of `make_evidence` holds. Exit 1 where it does not."""

    def work() -> Proven:
        if public_key is None and not against:
            raise InvalidRequest(
                "without --public-key or --against nothing vouches for the checkpoint in the file:"
                " give one, or both"
            )
        key = (
            parsed_file("public_key", public_key, checkpoints.load_public_key)
            if public_key
            else None
        )
        for file in against:
            parsed_file("against", file, checkpoints.parse)
        checkpoint_texts = [file.read_text(encoding="utf-8") for file in against]
        try:
            return check(path.read_bytes(), key=key, against=checkpoint_texts)
        except OSError as error:
            raise InvalidRequest(
                f"{path} cannot be read: {error.strerror}", param="evidence"
            ) from None

    try:
        proven = run_here(work, as_json)
    except DoesNotFit as error:
        if as_json:
            print_json({"ok": False, "detail": str(error)})
        else:
            typer.echo(printable(f"NOT OK: {error}"))
        raise typer.Exit(1) from None
    if as_json:
        print_json(to_json(proven))
    else:
        _tell(proven)


def to_json(proven: Proven) -> JsonObject:
    """Return what a verified file says, as JSON."""
    evidence, checkpoint = proven.evidence, checkpoints.parse(proven.evidence.checkpoint)
    return {
        "ok": True,
        "call_id": str(evidence.call_id),
        "block": evidence.block,
        "signed": proven.is_signed,
        "kept": proven.is_kept,
        "position": evidence.position,
        "sealed_at": to_time(evidence.at),
        "sha256": evidence.sha256.hex(),
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
        "checkpoint_at": checkpoint.at,
        "record": checkpoint.origin,
        "shown": {
            table.name: [len(table.rows), table.count] for table in evidence.tables if table.count
        },
        "rows": {table.name: evidence.rows(table.name) for table in evidence.tables if table.rows},
    }


def _tell(proven: Proven) -> None:
    item = to_json(proven)
    for table, rows in item["rows"].items():
        for row in rows:
            typer.echo(f"{table}:")
            for name, value in row.items():
                text = value if isinstance(value, str) else "none" if value is None else str(value)
                more = f" ... {len(text):,} characters in all" if len(text) > _SHOWN else ""
                typer.echo(f"  {name}: {printable(text[:_SHOWN])}{more}")
    shown = ", ".join(
        f"{table} {some:,} of {count:,}" for table, (some, count) in item["shown"].items()
    )
    typer.echo(
        f"rows of the call that are shown: {shown}; the file does not show that those left out are"
        " of other blocks"
    )
    vouched = [
        *(["signed by the key"] if proven.is_signed else []),
        *(["the same as the one kept elsewhere"] if proven.is_kept else []),
    ]
    typer.echo(
        f"ok: block {item['block']} of call {item['call_id']} is on record"
        f" {printable(item['record'])} as above, sealed {item['sealed_at']} at position"
        f" {item['position']:,}, under the checkpoint over {item['size']:,} seals of"
        f" {item['checkpoint_at']}, {' and '.join(vouched)}"
    )
