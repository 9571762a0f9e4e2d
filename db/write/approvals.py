"""Stores what an approver decides about a tool call that waits for people.

The function `sluice_decide_approval` checks who may decide and counts votes, all in one statement:
two approvers at the same moment get one outcome. Must not know: HTTP, Redis.
"""

from typing import Any, LiteralString, NamedTuple

from db.text import to_column
from db.write.functions import stored
from db.write.reviews import Auditor, read_note
from protocol.bounds import MAX_HELD_BYTES
from protocol.bytes.json_strict import AmbiguousJson, loads_call
from protocol.errors import Conflict, Forbidden, InvalidRequest, NotFound
from protocol.records import to_bytes

VOTES = ("approve", "deny")
NO_APPROVAL = "there is no such request for approval"
_DECIDE: LiteralString = "SELECT sluice_decide_approval(%s, %s, %s, %s, %s, %s)"
_VOTED: LiteralString = (
    "SELECT EXISTS (SELECT FROM approval_votes WHERE approval_id = %s AND voter_id = %s)"
)


class ApproverDecision(NamedTuple):
    """What an approver says, and why. `arguments`: those that the call is to have instead."""

    vote: str
    note: str = ""
    arguments: str | None = None


def read_decision(vote: object, note: object, arguments: object) -> ApproverDecision:
    """Return a decision, if it is right. Raises InvalidRequest."""
    if not isinstance(vote, str) or vote not in VOTES:
        raise InvalidRequest(f"must be {' or '.join(VOTES)}", param="decision")
    words = read_note(note)
    if arguments is None:
        return ApproverDecision(vote, words)
    if vote == "deny":
        raise InvalidRequest("go with approve alone", param="arguments")
    if not isinstance(arguments, str):
        raise InvalidRequest("must be the text of a JSON object", param="arguments")
    if len(to_bytes(arguments)) > MAX_HELD_BYTES:
        raise InvalidRequest(f"longer than {MAX_HELD_BYTES:,} bytes", param="arguments")
    try:
        loads_call(arguments)
    except AmbiguousJson as error:
        raise InvalidRequest(
            f"must be one JSON object that every program reads alike: {error}", param="arguments"
        ) from None
    return ApproverDecision(vote, words, arguments)


async def decide(
    database_url: str,
    approver: Auditor,
    approval_id: str,
    decision: ApproverDecision,
    *,
    answer_s: float = 15.0,
) -> None:
    """Store a decision; it is durable when this returns. The same once more changes nothing.

    Raises NotFound, also for a request that is for others; Forbidden for the key whose call waits;
    Conflict where it was decided or ended before; AuditUnavailable.
    """
    edited = None if decision.arguments is None else to_bytes(decision.arguments)
    note, approval_id = to_column(decision.note), to_column(approval_id)
    values = (approval_id, approver.id, to_column(approver.name), decision.vote, note, edited)
    rows: list[Any] = await stored(
        database_url,
        [(_DECIDE, values), (_VOTED, (approval_id, approver.id))],
        what="decision",
        answer_s=answer_s,
    )
    (word,), (has_voted,) = rows
    match word:
        case "unknown" | "not_named":
            raise NotFound(NO_APPROVAL)
        case "own":
            raise Forbidden(
                "the key whose call waits may not decide about it: take another key with the role"
                " approver",
                code="own_call",
            )
        case "other":
            raise Conflict(
                "you decided otherwise before, and a decision stays", code="already_decided"
            )
        case _ if not has_voted:
            raise Conflict(f"{_LATE[word]} before, so nothing was changed", code="already_decided")


_LATE = {
    "approved": "others approved it",
    "denied": "others denied it",
    "superseded": "it ended as the policy changed",
    "expired": "it expired",
}
