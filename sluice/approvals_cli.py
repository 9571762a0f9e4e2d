"""`sluice approvals`: tool calls that wait for people, and the decisions about them, by a gateway's
API and with the key of an approver.

Exit codes: 0 done, 1 no such request, 2 wrong use or not allowed, 3 no gateway, or the record is
away.
"""

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

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
from sluice.tables import TableColumn, clock, note, printable, show
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
    TableColumn(heading="key", value="key", least=6),
)
_VALUES = (
    *("at", "approval_id", "state", "tool", "arguments", "rule", "why", "key", "session"),
    *("executor", "need", "expires_at", "decided_at", "decided_by", "used_by_call"),
)
Vote = Literal["approve", "deny"]
_ERRORS: dict[int, type[PipelineError]] = {404: NotFound, 409: Conflict}
Id = Annotated[str, typer.Argument(help="The request, as `list` names it.")]
Note = Annotated[str, typer.Option("--note", help="Why; the agent reads it when you deny.")]


@app.command("list")
def list_them(
    state: Annotated[
        str, typer.Option("--state", help=f"all, or one of {', '.join(APPROVAL_STATES)}.")
    ] = "open",
    as_json: AsJson = False,
) -> None:
    """List requests, the newest first; those that are open, where no state is given."""
    page = _ask(f"?{urlencode({'state': state})}", None, as_json)
    if as_json:
        print_json(page)
        return
    with quiet_pipe():
        show(page["items"], _COLUMNS, _VALUES, time="at", empty="none")
    if page["next_cursor"]:
        note("there are more: the page and the API have them")


@app.command("show")
def show_it(approval: Id, as_json: AsJson = False) -> None:
    """Show a request: its exact arguments, who asks, the judges' words, and what others decided."""
    _show(approval, None, as_json)


def _decides(vote: Vote, about: str) -> None:
    @app.command(vote, help=about)
    def decide(approval: Id, words: Note = "", as_json: AsJson = False) -> None:
        _show(approval, {"decision": vote, "note": words}, as_json)


_decides("approve", "Let the call through, once.")
_decides("deny", "Refuse the call.")


@app.command("edit")
def edit(
    approval: Id,
    file: Annotated[typer.FileText, typer.Option("--file", help="A JSON object; - for a pipe.")],
    words: Note = "",
    as_json: AsJson = False,
) -> None:
    """Approve the call with other arguments, which the policies check again."""
    try:
        text = file.read().strip()
    except UnicodeDecodeError:
        error = InvalidRequest(f"{file.name} is not UTF-8 text")
        raise typer.Exit(fail(error, as_json)) from None
    _show(approval, {"decision": "approve", "note": words, "arguments": text}, as_json)


def _ask(path: str, body: Mapping[str, str] | None, as_json: bool) -> Any:
    """Ask the gateway as an approver: with the address and the key of the environment, else those
    of the `sluice up` that runs here. Errors end the program with their exit code."""
    # with it come libraries that help does not need
    from sluice.agents.agent_key import ask, message, running

    url, key = os.environ.get("SLUICE_URL", "").rstrip("/"), os.environ.get("SLUICE_KEY", "")
    try:
        if not (url and key) and (up := running(load_settings())) is not None:
            url, key = url or up[1].url, key or read_private(up[0] / APPROVER_FILE)
        if not url or not key:
            raise SettingsError(
                "no `sluice up` runs here: name its data with SLUICE_DATA_DIR, or a gateway with"
                " SLUICE_URL and the key of an approver with SLUICE_KEY"
            )
        status, _, answer = ask(url, f"/audit/approvals{path}", key, body, is_patient=True)
        if status == 200:
            return answer
        kind = _ERRORS.get(status, AuditUnavailable if status >= 500 else InvalidRequest)
        raise kind(message(answer) or f"the gateway answered with status {status}")
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


def _show(approval: str, body: Mapping[str, str] | None, as_json: bool) -> None:
    """Show a request, or decide about it and show what became of it: a line for each value."""
    item = _ask(f"/{quote(approval, safe='', errors='surrogateescape')}", body, as_json)
    if as_json:
        print_json(item)
        return
    with quiet_pipe():
        for name, value in item.items():
            if value:
                words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                typer.echo(f"{name:>15}  {printable(words)}")
