"""`sluice audit show`: one call as a conversation, then the decisions; the raw rows with an
option."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text

from db.columns import BY_NAME
from db.filters import parse_filters
from db.state.recent_failures import CAUSES
from protocol.errors import NotFound
from protocol.reasons import worded
from protocol.usage.prices import dollars
from sluice.audit import audit_columns
from sluice.audit.audit_options import AsJson
from sluice.audit.audit_run import find_call, print_json, quiet_pipe, run
from sluice.audit.transcript import Utterance, got, sent, short
from sluice.tables import Item, TableColumn, clock, day, is_terminal, printable, show, wrap

if TYPE_CHECKING:
    from db.read.queries import AuditReader

_PIPE = 100
"""Columns of a transcript that goes into a pipe."""
_WHO = 13
_CHUNK_COLUMNS = (
    TableColumn(heading="seq", value="seq"),
    TableColumn(heading="time", value=lambda item: clock(item["at"])),
    TableColumn(heading="verdict", value="verdict"),
    TableColumn(heading="block", value="block"),
    TableColumn(heading="raw", value="raw", least=12, stretches=True),
)
_PIECE_COLUMNS = (
    TableColumn(heading="number", value="number"),
    TableColumn(heading="time", value=lambda item: clock(item["at"])),
    TableColumn(heading="kind", value="kind"),
    TableColumn(heading="relayed", value="relayed"),
    TableColumn(heading="payload", value="payload", least=12, stretches=True),
)
_EVENT_COLUMNS = (
    TableColumn(heading="time", value=lambda item: clock(item["at"])),
    TableColumn(heading="kind", value="kind"),
    TableColumn(heading="number", value="number"),
    TableColumn(heading="detail", value="detail", least=12, stretches=True, wraps=True),
)
_FACT_COLUMNS = (
    TableColumn(heading="field", value="field"),
    TableColumn(heading="value", value="value", least=12, stretches=True, wraps=True),
)

_TABLES = {
    "scores": ("block", "step", "monitor", "policy", "value", "why", "error"),
    "decisions": (
        "block",
        "step",
        "unit",
        "attempt",
        "protocol",
        "action",
        "score",
        "threshold",
        "audit",
        "reason",
    ),
    "attempts": (
        "segment",
        "attempt",
        "kind",
        "upstream",
        "model",
        "first_seq",
        "end_seq",
        "chosen",
        "outcome",
        "status",
        "ms",
    ),
}
"""What a terminal shows of these rows; a pipe gets all."""


def show_call(
    call: Annotated[
        str,
        typer.Argument(
            help=(
                "The call id (response header x-sluice-call-id), or its first 8 characters or more."
            )
        ),
    ],
    full: Annotated[bool, typer.Option("--full", help="Also what is long, whole.")] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="The rows of the record instead: call, tool calls, blocks, judgements, events.",
        ),
    ] = False,
    chunks: Annotated[
        bool,
        typer.Option("--chunks", help="As --raw, and what upstream sent and what was released."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one call: what the client sent, what it got, and what was decided between."""

    async def read(reader: "AuditReader") -> dict[str, Any]:
        call_id = UUID(await find_call(reader, call))
        stored_call = await reader.call(call_id)
        if stored_call is None:
            raise NotFound(f"no call {call_id} in the record")
        if chunks or not (raw or as_json):
            stored_call["released"], stored_call["chunk_items"] = await _all_chunks(reader, call_id)
        return stored_call

    loaded_call = run(read, as_json)
    with quiet_pipe():
        if as_json:
            print_json(loaded_call)
        elif raw or chunks:
            _show_raw(loaded_call, chunks=chunks)
        else:
            show_words(loaded_call, full=full)


async def whole_call(reader: "AuditReader", call_id: UUID) -> Item:
    """Return a call with what upstream sent and the client got. Raises NotFound."""
    call = await reader.call(call_id)
    if call is None:
        raise NotFound(f"no call {call_id} in the record")
    call["released"], call["chunk_items"] = await _all_chunks(reader, call_id)
    return call


def show_words(call: Item, *, full: bool) -> None:
    """Show a call with its chunks as a conversation."""
    pieces = [
        *call["released"],
        *(piece for chunk in call["chunk_items"] for piece in chunk["released"]),
    ]
    out = _Out(full=full)
    out.title(f"call {call['call_id']}")
    at = call["created_at"]
    facts = [
        f"{day(at)} {clock(at)}",
        *(f"{name} {call[name]}" for name in ("key", "model", "policy", "session") if call[name]),
    ]
    out.line("  ".join([*facts, f"{call['state']} {call['reason'] or ''}".rstrip()]))
    names = [column.name for column in BY_NAME["calls"].facts]
    noted = [f"{name.replace('_', ' ')} {call[name]}" for name in names if call.get(name)]
    if noted:
        out.line("  ".join(noted))
    used = call["usage"]
    if costs := [
        f"{name} {dollars(used[field])}"
        for name, field in (("cost", "cost_nanousd"), ("judges", "judge_nanousd"))
        if used.get(field) is not None
    ]:
        out.line("  ".join([*costs, *(["(estimated)"] if used["is_estimated"] else [])]))
    if call["incomplete"]:
        out.line("the record of this call is incomplete: see the events (--raw)")
    for event in call["events"]:
        if event["kind"] == "incomplete":
            out.line(f"incomplete: {event['detail']}")
        if event["kind"] == "redacted":
            out.line(f"redacted {day(event['at'])} {clock(event['at'])} by {event['detail']}")
    events = [event for event in call["events"] if event["kind"] != "redacted"]
    if call["state"] == "FAILED" and events:
        out.title("what went wrong")
        out.show_messages([Utterance("", _event(item)) for item in events])
    out.title("what the client sent")
    out.show_messages(sent(call))
    out.title("what the client got")
    out.show_messages(got(call, pieces))
    others = [
        item
        for item in call["blocks"]
        if item["verdict"] != "allow" and item["kind"] in ("text", "thinking")
    ]
    if call["tool_calls"] or call["judgements"] or call["decisions"] or others:
        out.title("what was decided")
        for item in call["tool_calls"]:
            # apart and in one line: of what is long the end is not shown, and what the model wrote
            # must not look like a verdict
            called = (
                f"{item['name']} {item['arguments']}"
                if item["name"] or item["arguments"]
                else "(redacted)"
            )
            out.show_messages(
                [Utterance("tool call", printable(called)), Utterance(" ", _decided(item))]
            )
        # of replaced text the record has the verdict, not which policy of the series it was
        series = {"policy": f"the series {call['policy']}"} if call["policy"] else {}
        out.show_messages(
            [
                Utterance(item["kind"], _decided(item if item["policy"] else item | series))
                for item in others
            ]
        )
        out.show_messages([Utterance("judge", _judged(item)) for item in call["judgements"]])
        out.show_messages(
            [
                Utterance("score", f"block {item['block']}: {_scored(item)}")
                for item in call["scores"]
            ]
        )
        out.show_messages(
            [
                Utterance("protocol", f"block {item['block']}: {_chosen(item)}")
                for item in call["decisions"]
            ]
        )
        tried = call["attempts"]
        if len(tried) > 1 or any(not item["chosen"] for item in tried):
            out.show_messages([Utterance("attempt", _attempted(item)) for item in tried])


def _event(item: Item) -> str:
    words = f"{CAUSES[item['kind']]} ({item['kind']})" if item["kind"] in CAUSES else item["kind"]
    return f"{words}: {item['detail']}" if item["detail"] else words


def _decided(item: Item) -> str:
    # a tool call's arguments are never sent before their end
    if item["reason"] == "unfinished" and "kind" in item:
        return "cut: its end never came; what came before it was sent"
    words = [
        f"by {item['policy']}" if item["policy"] else "",
        str(item.get("rule") or worded(item["reason"] or "")),
    ]
    decided = [item["verdict"], ", ".join(filter(None, words)), item.get("why") or ""]
    return ": ".join(filter(None, decided))


def _scored(item: Item) -> str:
    value = "no score" if item["value"] is None else f"{item['value']:.2f}"
    return ": ".join(filter(None, [f"{item['monitor']} {value}", item["error"] or item["why"]]))


def _chosen(item: Item) -> str:
    why = f" ({worded(item['reason'])})" if item["reason"] else ""
    numbers = " of ".join(
        f"{item[name]:.2f}" for name in ("score", "threshold") if item[name] is not None
    )
    looked_at = f"a person is to look at it: {item['audit']}" if item["audit"] else ""
    return ", ".join(
        filter(None, [f"{item['protocol']}: {item['action']}{why}", numbers, looked_at])
    )


def _attempted(item: Item) -> str:
    became = "went out" if item["chosen"] else "was discarded"
    if item["outcome"] is not None:
        status = f" with status {item['status']}" if item["status"] else ""
        became += f": {item['outcome']}{status} after {item['ms']:,} ms"
    chunks = f"chunks {item['first_seq']} to {item['end_seq']}"
    return (
        f"{item['attempt']} ({item['kind']}) by {item['model']} at {item['upstream']}, {chunks},"
        f" {became}"
    )


def _judged(item: Item) -> str:
    explanation = item["explanation"] or (
        "" if item["error"] is None else f"no answer: {item['error']}"
    )
    how_sure = f" {audit_columns.judged(item)}" if item["probability"] is not None else ""
    used = [
        f"{item[name]:,} tokens {way}"
        for name, way in (("input_tokens", "in"), ("output_tokens", "out"))
        if item.get(name) is not None
    ]
    counted = f" ({', '.join(used)})" if used else ""
    return (
        f"{item['model']}{how_sure}{counted}{': ' if explanation else ''}{printable(explanation)}"
    )


class _Out:
    """Text on a terminal or in a pipe: the speaker on the left, the words to the right, wrapped
    between words."""

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self._console = Console(highlight=False)
        self._width = (self._console.width if is_terminal() else _PIPE) - _WHO
        self._begun = False

    def title(self, text: str) -> None:
        """Begin a part."""
        if self._begun:
            self._print("")
        self._print(text, style="bold")
        self._begun = True

    def line(self, text: str) -> None:
        """Say a line about the call."""
        for piece in wrap(printable(text), self._width + _WHO):
            self._print(piece)

    def show_messages(self, all_said: Sequence[Utterance]) -> None:
        """Print messages, each with its speaker."""
        for who, text in all_said:
            lines = [
                piece
                for line in (text if self._full else short(text)).split("\n")
                for piece in wrap(printable(line), max(self._width, 20))
            ]
            for n, piece in enumerate(lines):
                self._print(
                    f"{(who if not n else ''):{_WHO - 2}}  {piece}".rstrip() if who else piece
                )

    def _print(self, text: str, *, style: str = "") -> None:
        if is_terminal():
            self._console.print(
                Text(text, style=style), no_wrap=True, overflow="ignore", crop=False
            )
        else:
            typer.echo(text)


def _show_raw(call: Item, *, chunks: bool) -> None:
    _facts(
        f"call {call['call_id']}",
        {name: value for name, value in call.items() if not isinstance(value, list)},
    )
    listed = audit_columns.of_tool_calls(call["tool_calls"])
    _titled("tool calls")
    show(call["tool_calls"], listed.columns, listed.values, time=listed.time, empty="none")
    if call["blocks"]:
        _titled("blocks")
        names = ("block", "kind", "verdict", "policy", "reason")
        show(
            call["blocks"],
            [TableColumn(heading=name, value=name, wraps=name == "reason") for name in names],
            (*names, "decided_at"),
        )
    for judgement in call["judgements"]:
        _facts(f"judgement of block {judgement['block']}, step {judgement['step']}", judgement)
    for name, columns in _TABLES.items():
        if call[name]:
            _titled(name)
            show(
                call[name],
                [
                    TableColumn(heading=heading, value=heading, wraps=heading in ("why", "reason"))
                    for heading in columns
                ],
                tuple(call[name][0]),
            )
    if call["events"]:
        _titled("events")
        show(call["events"], _EVENT_COLUMNS, ("at", "kind", "number", "detail"))
    if not chunks:
        return
    if call["released"]:
        # all that the client of a refused request got
        _titled("released before the first chunk")
        show(call["released"], _PIECE_COLUMNS, ("number", "kind", "relayed", "at", "payload"))
    _titled("chunks")
    show(
        call["chunk_items"], _CHUNK_COLUMNS, ("seq", "at", "verdict", "block", "raw"), empty="none"
    )


def _facts(title: str, item: Item) -> None:
    _titled(title)
    show(
        [{"field": name, "value": value} for name, value in item.items()],
        _FACT_COLUMNS,
        ("field", "value"),
    )


def _titled(title: str) -> None:
    if is_terminal():
        Console(highlight=False).print(Text(f"\n{title}", style="bold"))
    else:
        typer.echo(f"\n# {title}")


async def _all_chunks(reader: "AuditReader", call_id: UUID) -> tuple[list[Item], list[Item]]:
    """What was released before the first chunk, and the chunks."""
    released: list[Item] = []
    items: list[Item] = []
    cursor = ""
    while True:
        filters = [("limit", "1000"), ("cursor", cursor)]
        page = await reader.chunks(call_id, parse_filters(filters, of="chunks"))
        released += page["released"] if page else []
        items += page["items"] if page else []
        if page is None or not page["next_cursor"]:
            return released, items
        cursor = page["next_cursor"]
