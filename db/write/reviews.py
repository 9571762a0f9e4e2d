"""Writes an auditor's review of a queued decision into PostgreSQL.

The function `sluice_review` does all of it in one statement, so that a review is there or not, two
auditors do not overlook each other, and the login that asks may do nothing else. Must not know:
HTTP, Redis.
"""

from typing import Final, Literal, LiteralString, NamedTuple
from uuid import UUID

from db.text import to_column
from db.write.functions import stored
from protocol.errors import Conflict, InvalidRequest, NotFound

Label = Literal["honest", "attack", "unclear"]
LABELS: Final[tuple[Label, ...]] = ("honest", "attack", "unclear")
MAX_NOTE_CHARS = 2_000
"""Before it is escaped (`db.text`)."""
_REVIEW: LiteralString = "SELECT sluice_review(%s, %s, %s, %s, %s, %s, %s)"


class Auditor(NamedTuple):
    """Who reviews: an id that belongs to one auditor for ever, and a name."""

    id: str
    name: str


class Review(NamedTuple):
    """A review of the decision on a content block. `second`: also where another auditor was
    first."""

    call_id: UUID
    block: int
    label: Label
    note: str = ""
    second: bool = False


def check(label: object, note: object) -> tuple[Label, str]:
    """Return them, if they are right. Raises InvalidRequest."""
    known_label = next((candidate for candidate in LABELS if candidate == label), None)
    if known_label is None:
        raise InvalidRequest(f"must be one of {', '.join(LABELS)}", param="label")
    return known_label, read_note(note)


def read_note(note: object) -> str:
    """Return a note, if it is one. Raises InvalidRequest."""
    if not isinstance(note, str):
        raise InvalidRequest("must be text", param="note")
    if len(note) > MAX_NOTE_CHARS:
        raise InvalidRequest(f"longer than {MAX_NOTE_CHARS:,} characters", param="note")
    return note.strip()


async def add_review(
    database_url: str, auditor: Auditor, review: Review, *, answer_s: float = 15.0
) -> bool:
    """Store a review; it is durable when this returns. False: this auditor's same review is stored
    already, and nothing is added.

    Raises NotFound where the decision was not to be looked at, Conflict where another auditor was
    first and `second` is not set, AuditUnavailable.
    """
    values = (
        review.call_id,
        review.block,
        auditor.id,
        to_column(auditor.name),
        review.label,
        to_column(review.note),
        review.second,
    )
    ((row,),) = await stored(database_url, [(_REVIEW, values)], what="review", answer_s=answer_s)
    match row:
        case "added":
            return True
        case "same":
            return False
        case "other":
            raise Conflict(
                "another auditor has labelled this decision; say `second` to keep your label beside"
                " theirs",
                code="already_reviewed",
            )
        case "full":
            raise Conflict(
                "this decision has as many reviews as are kept of one", code="too_many_reviews"
            )
        case _:
            raise NotFound("no decision on this block is to be reviewed", code="not_audited")
