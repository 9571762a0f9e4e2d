"""`sluice approvals`: tool calls that wait for people, and the decisions about them, by a gateway's
API and with the key of an approver.

Exit codes: 0 done, 1 no such request, 2 wrong use or not allowed, 3 no gateway, or the record is
away.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import click
import typer

from db.filters import APPROVAL_STATES
from protocol.errors import (
    AuditUnavailable,
    Conflict,
    InvalidRequest,
    NotFound,
    PipelineError,
)
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import fail, print_json, quiet_pipe
from sluice.errors import SettingsError, StartError
from sluice.private_files import read_private
from sluice.settings import load_settings
from sluice.tables import Item, TableColumn, clock, minute, note, printable, show
from sluice.up.own_key import APPROVER_FILE

app = typer.Typer(
    help="List tool calls that wait for people, and decide about them.", no_args_is_help=True
)
_COLUMNS = (
    TableColumn(heading="asked", value=lambda item: clock(item["at"])),
    TableColumn(heading="id", value="approval_id"),
    TableColumn(heading="state", value="state"),
    TableColumn(heading="tool", value="tool", least=8, leaves=0),
    TableColumn(heading="arguments", value="arguments", least=12, stretches=True),
    TableColumn(heading="why", value="why", least=8),
    TableColumn(heading="key", value="key", least=6),
    TableColumn(heading="session", value="session", least=6, is_extra=True),
    TableColumn(heading="expires", value=lambda item: clock(item["expires_at"])),
)
_VALUES = (
    *("at", "approval_id", "state", "tool", "arguments", "rule", "why", "key", "session"),
    *("executor", "need", "expires_at", "decided_at", "decided_by", "used_by_call"),
)
_FACTS = (
    *("state", "tool", "server", "executor", "key", "session", "policy", "rule", "why", "need"),
    *("approvers", "approved_by", "decided_by", "note", "used_by_call"),
)
Id = Annotated[str, typer.Argument(help="The request, as `list` names it.")]
Note = Annotated[str, typer.Option("--note", help="Why; the agent reads it when you deny.")]


@app.command("list")
def list_them(
    state: Annotated[
        str,
        typer.Option(
            "--state",
            help=f"all, or one of {', '.join(APPROVAL_STATES)}.",
            autocompletion=lambda: [*APPROVAL_STATES, "all"],
        ),
    ] = "open",
    cursor: Annotated[str, typer.Option("--cursor", help="Where the last page ended.")] = "",
    as_json: AsJson = False,
) -> None:
    """List requests, the newest first; those that are open, where no state is given."""
    chosen = {"state": state} if state != "all" else {}
    query = urlencode(chosen | ({"cursor": cursor} if cursor else {}))
    page = _ask(f"?{query}" if query else "", None, as_json)
    if as_json:
        print_json(page)
        return
    with quiet_pipe():
        empty = "nothing waits for approval" if state == "open" else "none"
        show(page["items"], _COLUMNS, _VALUES, time="at", empty=empty)
    if page["next_cursor"]:
        note(f"there is more: --cursor {page['next_cursor']}")


@app.command("show")
def show_it(approval: Id, as_json: AsJson = False) -> None:
    """Show a request: its exact arguments, who asks, what judges said, and what others decided."""
    _tell(_one(approval, None, as_json), as_json)


@app.command("approve")
def approve(approval: Id, words: Note = "", as_json: AsJson = False) -> None:
    """Let the call through, once."""
    _tell(_one(approval, {"decision": "approve", "note": words}, as_json), as_json)


@app.command("deny")
def deny(approval: Id, words: Note = "", as_json: AsJson = False) -> None:
    """Refuse the call."""
    _tell(_one(approval, {"decision": "deny", "note": words}, as_json), as_json)


@app.command("edit")
def edit(
    approval: Id,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="A JSON object; without it an editor opens the arguments."),
    ] = None,
    words: Note = "",
    as_json: AsJson = False,
) -> None:
    """Approve the call with other arguments, which the policies check again."""
    try:
        if file is not None:
            arguments = file.read_text(encoding="utf-8")
        else:
            before: str = _one(approval, None, as_json)["arguments"]
            changed = str(click.edit(before, extension=".json") or "")
            if changed.strip() in ("", before.strip()):
                note("nothing was changed, so nothing was decided")
                raise typer.Exit(2)
            arguments = changed
    except (OSError, UnicodeDecodeError) as error:
        problem = InvalidRequest(f"{file} cannot be read: {error}", param="file")
        raise typer.Exit(fail(problem, as_json)) from None
    said = {"decision": "approve", "note": words, "arguments": arguments.strip()}
    _tell(_one(approval, said, as_json), as_json)


def _one(approval: str, body: Mapping[str, str] | None, as_json: bool) -> Item:
    item: Item = _ask(f"/{quote(approval, safe='')}", body, as_json)
    return item


def _ask(path: str, body: Mapping[str, str] | None, as_json: bool) -> Any:
    """Ask the gateway; errors end the program with their exit code."""
    # with it come libraries that help does not need
    from sluice.agents.agent_key import ask, message

    try:
        url, key = _place()
        status, _, answer = ask(url, f"/audit/approvals{path}", key, body)
        if status == 200 and isinstance(answer, dict):
            return answer
        raise _refusal(status, message(answer) or f"the gateway answered with status {status}")
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


def _refusal(status: int, words: str) -> PipelineError:
    match status:
        case 404:
            return NotFound(words)
        case 409:
            return Conflict(words)
        case _ if status >= 500:
            return AuditUnavailable(words)
        case _:
            return InvalidRequest(words)


def _place() -> tuple[str, str]:
    """The address of a gateway and the key of an approver: of the environment, else of the `sluice
    up` that runs here. Raises SettingsError."""
    from sluice.agents.agent_key import running

    url, key = os.environ.get("SLUICE_URL", "").rstrip("/"), os.environ.get("SLUICE_KEY", "")
    up = running(load_settings()) if not (url and key) else None
    if up is not None:
        url, key = url or up[1].url, key or read_private(up[0] / APPROVER_FILE)
    if not url or not key:
        raise SettingsError(
            "no `sluice up` runs here: name its data with SLUICE_DATA_DIR, or a gateway with"
            " SLUICE_URL and the key of an approver with SLUICE_KEY"
        )
    return url, key


def _tell(item: Item, as_json: bool) -> None:
    """Show a request, in lines."""
    if as_json:
        print_json(item)
        return
    with quiet_pipe():
        typer.echo(f"{item['approval_id']}  asked {minute(item['at'])}", nl=False)
        typer.echo(f", expires {minute(item['expires_at'])}" if item["left_s"] else "")
        for name in _FACTS:
            value = item[name]
            if value not in (None, "", []):
                words = ", ".join(value) if isinstance(value, list) else str(value)
                typer.echo(f"{name.replace('_', ' '):>13}  {printable(words)}")
        typer.echo(f"    arguments  {printable(item['arguments'])}")
        if item["edited"] is not None:
            typer.echo(f"released with  {printable(item['edited'])}")
        for judged in item["judgements"]:
            said = f"{judged['model']} {judged['probability']}: {judged['explanation']}"
            typer.echo(f"        judge  {printable(said)}")
        for vote in item["votes"]:
            said = f"{vote['vote']} by {vote['voter']} {vote['note']}".rstrip()
            typer.echo(f"     decision  {printable(said)}")
        typer.echo(f"         call  {item['call_id']}")
        if sys.stdout.isatty() and item["state"] == "open":
            note(f"decide: sluice approvals approve|deny|edit {item['approval_id']}")
