"""`sluice audit review`: the decisions that a person should review; one decision with its call; its
label; the check of the sample.

Exit codes: 0 done, 1 no such call or decision, or what the check found wrong, 2 wrong use, 3 the
database is away.
"""

import asyncio
import getpass
import sys
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from db.filters import Filters, filters_of
from db.write.reviews import LABELS, Auditor, Review, add_review, check
from protocol.errors import Conflict, InvalidRequest, NotFound, PipelineError
from sluice.audit import audit_columns
from sluice.audit.audit_options import AsJson, Chosen, Given, with_filters
from sluice.audit.audit_run import fail, find_call, print_json, quiet_pipe, read_filters, run
from sluice.audit.show_cli import show_words, whole_call
from sluice.errors import StartError
from sluice.settings import database_url
from sluice.tables import Item, clock, day, is_terminal, note, printable, show

if TYPE_CHECKING:
    from db.read.queries import AuditReader

_BRIEF = 300


@with_filters("reviews")
def review(
    call: Annotated[
        str,
        typer.Argument(
            help="The call id, or its first 8 characters or more; without it decisions are listed."
        ),
    ] = "",
    block: Annotated[
        int | None,
        typer.Option(
            "--block", help="Which decision of the call, where several are to be looked at."
        ),
    ] = None,
    label: Annotated[
        str,
        typer.Option("--label", help=f"{', '.join(LABELS)}.", autocompletion=lambda: list(LABELS)),
    ] = "",
    words: Annotated[str, typer.Option("--note", help="Why; kept with the label.")] = "",
    second: Annotated[
        bool, typer.Option("--second", help="Keep the label also where another auditor was first.")
    ] = False,
    auditor: Annotated[
        str, typer.Option("--auditor", help="Who says it; your user's name where it is not given.")
    ] = "",
    checks: Annotated[
        bool,
        typer.Option(
            "--check", help="Draw the sample again from the record, and say what is not as it was."
        ),
    ] = False,
    chosen: Chosen = (),
    as_json: AsJson = False,
) -> None:
    """List the decisions that wait for somebody to look at them; with CALL show one, and ask for
    its label on a terminal.

    --label says the label at once. Each review is kept; of one auditor the newest counts.
    """
    try:
        _refuse_what_does_not_go_together(call, label, words, checks=checks, chosen=chosen)
        if checks:
            _check(chosen, as_json)
        elif not call:
            _list(chosen, as_json)
        elif label:
            _label(
                call, block, check(label, words), second=second, auditor=auditor, as_json=as_json
            )
        else:
            _show(call, block, second=second, auditor=auditor, as_json=as_json)
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


def _refuse_what_does_not_go_together(
    call: str, label: str, words: str, *, checks: bool, chosen: Chosen
) -> None:
    if label and not call:
        raise InvalidRequest(
            "say which call the label is of: sluice audit review CALL --label ...", param="label"
        )
    if words and not label:
        raise InvalidRequest("goes with --label", param="note")
    if checks and (call or label):
        raise InvalidRequest(
            "is of all calls, or of those of --since, --until and --call", param="check"
        )
    usual = {filter_.name: filter_.default for filter_ in filters_of("reviews")}
    if call and (changed := [name for name, value in chosen if value != usual[name]]):
        raise InvalidRequest("filters are for the list, not for one call", param=changed[0])


def _list(chosen: Chosen, as_json: bool) -> None:
    asked = (
        list(chosen)
        if any(name == "state" for name, _ in chosen)
        else [*chosen, ("state", "waiting")]
    )

    async def read(reader: "AuditReader") -> dict[str, Any]:
        return await reader.reviews(read_filters(asked, "reviews"))

    page = run(read, as_json)
    if as_json:
        print_json(page)
        return
    listed = audit_columns.of_reviews(page["items"])
    empty = "none" if asked == list(chosen) else "nothing waits for a review"
    with quiet_pipe():
        show(page["items"], listed.columns, listed.values, time=listed.time, empty=empty)
    counts = page["counts"]
    note(
        f"{counts['waiting']:,} waiting, {counts['reviewed']:,} reviewed, {counts['over_budget']:,}"
        " over the budget"
    )
    if page["next_cursor"]:
        note(f"there is more: --cursor {page['next_cursor']}")


def _decisions(call: str, block: int | None, as_json: bool) -> tuple[UUID, list[Item], Item]:
    """The call, those of its decisions that are to be looked at, and the call as a whole."""

    async def read(reader: "AuditReader") -> tuple[UUID, list[Item], Item]:
        call_id = UUID(await find_call(reader, call))
        page = await reader.reviews(Filters(call_id=call_id, order="asc", limit=1_000))
        items = [item for item in page["items"] if block in (None, item["block"])]
        if not items:
            where = "" if block is None else f" on block {block}"
            raise NotFound(
                f"no decision{where} of call {call_id} is to be looked at", code="not_audited"
            )
        return call_id, items, await whole_call(reader, call_id)

    return run(read, as_json)


def _label(
    call: str,
    block: int | None,
    label: tuple[Any, str],
    *,
    second: bool,
    auditor: str,
    as_json: bool,
) -> None:
    call_id, items, _ = _decisions(call, block, as_json)
    if len(items) > 1:
        blocks = ", ".join(str(item["block"]) for item in items)
        raise InvalidRequest(
            f"several decisions of this call are to be looked at: name one of the blocks {blocks}",
            param="block",
        )
    is_new = _add(Review(call_id, items[0]["block"], *label, second=second), auditor)
    if as_json:
        print_json(
            {
                "call_id": str(call_id),
                "block": items[0]["block"],
                "label": label[0],
                "added": is_new,
            }
        )
    else:
        typer.echo(f"labelled {label[0]}" if is_new else f"it was labelled {label[0]} already")


def _add(review: Review, auditor: str) -> bool:
    name = auditor.strip() or getpass.getuser()
    return asyncio.run(add_review(database_url(), Auditor(f"cli:{name}", name), review))


def _show(call: str, block: int | None, *, second: bool, auditor: str, as_json: bool) -> None:
    call_id, items, shown_call = _decisions(call, block, as_json)
    if as_json:
        print_json({"decisions": items, "call": shown_call})
        return
    asks = _may_ask()
    with quiet_pipe():
        show_words(shown_call, full=False)
        for item in items:
            _tell(item, hides=asks)
    for item in items if asks else ():
        _ask(Review(call_id, item["block"], "unclear", second=second), auditor)


def _may_ask() -> bool:
    return is_terminal() and sys.stdin.isatty()


def _tell(item: Item, *, hides: bool) -> None:
    """Show why it needs review. Labels of others are hidden from the next reviewer, who must judge
    independently."""
    score = "" if item["score"] is None else f" with the score {item['score']:.2f}"
    typer.echo(f"\nto be looked at: block {item['block']}, {item['why']}{score}; {item['state']}")
    if item["name"] is not None or item["arguments"] is not None:
        # which of the tool calls above it is: of what is long its beginning is enough
        typer.echo(printable(f"  {item['name']} {item['arguments']}")[:_BRIEF])
    for earlier in item["reviews"]:
        what = (
            "(its label is shown once you gave yours)"
            if hides
            else f"{earlier['label']} {earlier['note']}".rstrip()
        )
        typer.echo(
            printable(f"  {day(earlier['at'])} {clock(earlier['at'])} {earlier['auditor']}: {what}")
        )


def _ask(review: Review, auditor: str) -> None:
    """Ask for a label until there is one, or nothing."""
    try:
        while answer := _prompt(f"block {review.block}: {', '.join(LABELS)} (Enter: none)"):
            # its beginning is enough: they begin with different letters
            whole = next(
                (candidate for candidate in LABELS if candidate.startswith(answer.lower())), answer
            )
            try:
                label, _ = check(whole, "")
                label, words = check(whole, _prompt("why (Enter: nothing)"))
            except InvalidRequest as error:
                note(error.message)
                continue
            _keep(review._replace(label=label, note=words), auditor)
            return
    except typer.Abort:
        # Ctrl-C, behind which the line has not ended
        typer.echo(err=True)
        raise typer.Exit(1) from None


def _prompt(text: str) -> str:
    return str(typer.prompt(text, default="", show_default=False, err=True)).strip()


def _keep(review: Review, auditor: str) -> None:
    try:
        is_new = _add(review, auditor)
    except Conflict as error:
        if error.error_code != "already_reviewed":
            raise
        note("another auditor has labelled it")
        if not typer.confirm("Keep your label beside theirs?", err=True):
            return
        is_new = _add(review._replace(second=True), auditor)
    note(f"labelled {review.label}" if is_new else f"you labelled it {review.label} before")


def _check(chosen: Given | Chosen, as_json: bool) -> None:
    within = [(name, value) for name, value in chosen if name in ("since", "until", "call_id")]

    async def read(reader: "AuditReader") -> dict[str, Any]:
        return await reader.draws(read_filters(within, "reviews"))

    answer = run(read, as_json)
    if as_json:
        print_json(answer)
    else:
        for item in answer["items"]:
            typer.echo(f"call {item['call_id']}, block {item['block']}: {item['what']}")
        if answer["wrong"] > len(answer["items"]):
            typer.echo(f"and {answer['wrong'] - len(answer['items']):,} more")
        without = f", {answer['unknown']:,} without a nonce on record" if answer["unknown"] else ""
        decisions = (
            "1 decision" if answer["decisions"] == 1 else f"{answer['decisions']:,} decisions"
        )
        numbers = (
            f"{decisions}, {answer['sampled']:,} sampled, {answer['suspicion']:,} for"
            f" suspicion{without}"
        )
        typer.echo(f"{'ok' if answer['ok'] else 'NOT OK'}: {numbers}")
    raise typer.Exit(0 if answer["ok"] else 1)
