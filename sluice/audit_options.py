"""The options of the commands on the record, each defined once."""

from typing import Annotated, Any, get_args

import typer

from db.filters import State as CallState
from protocol.records import VerdictName
from sluice.times import FORMS

SessionName = Annotated[str, typer.Option("--session", help="Session of the call.", show_default=False)]
Model = Annotated[str, typer.Option("--model", help="Model asked for.", show_default=False)]
KeyName = Annotated[str, typer.Option("--key", help="Name of the API key.", show_default=False)]
KeyId = Annotated[
    str,
    typer.Option("--key-id", help="Id of the API key, or its beginning, as `sluice keys list` shows it.", show_default=False),
]
Name = Annotated[str, typer.Option("--name", help="Name of the tool.", show_default=False)]
Verdict = Annotated[
    str,
    typer.Option(
        "--verdict", help="allow, block, replace, hold or withheld.", show_default=False, autocompletion=lambda: list(get_args(VerdictName))
    ),
]
Policy = Annotated[str, typer.Option("--policy", help="Policy that decided, or of the call.", show_default=False)]
State = Annotated[str, typer.Option("--state", help="ACTIVE, ENDED or FAILED.", show_default=False, autocompletion=lambda: list(CallState))]
Since = Annotated[
    str,
    typer.Option("--since", help=f"Calls that began at this time or later: {FORMS}. Without a zone it is local time.", show_default=False),
]
Until = Annotated[str, typer.Option("--until", help="Calls that began before this time, written as for --since.", show_default=False)]
Words = Annotated[str, typer.Option("--q", help="Words in the tool's name, its arguments or the reason.", show_default=False)]
CallId = Annotated[
    str, typer.Option("--call-id", "--call", help="One call: its id, or the first 8 characters of it or more.", show_default=False)
]
Limit = Annotated[str, typer.Option("--limit", metavar="NUMBER", help="Items on a page, 1 to 1000.")]
Cursor = Annotated[str, typer.Option("--cursor", help="Where the last page ended.", show_default=False)]
Order = Annotated[
    str, typer.Option("--order", help="By time of the call: asc is the oldest first, or desc.", autocompletion=lambda: ["asc", "desc"])
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with what is new, the newest last, until Ctrl-C; a call when it has ended.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]

_FILTERS = (
    "call_id", "session", "model", "key", "key_id", "name", "verdict", "policy", "state", "since", "until", "q", "limit", "cursor",
    "order", "by",
)  # fmt: skip


def given(arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the filters among a command's arguments that were given."""
    return [(name, str(arguments[name])) for name in _FILTERS if arguments.get(name)]
