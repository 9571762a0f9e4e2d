"""Answers that clients may fetch again and continue: which ones a request names, and what the
record has of them.

Nothing is kept at a provider: what precedes a request's own input is built from the record, so a
request always shows all that the model reads. Must not know: SQL, which dialect keeps answers.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from protocol.bytes.json_strict import dumps, loads_exact
from protocol.errors import AuditUnavailable, InvalidRequest, PipelineError, key_memory
from protocol.request import ChatRequest, DialectName

Missing = Literal["", "previous", "item", "answers", "bytes", "memory", "away"]
"""Why there is nothing to go on with: no such answer, no such item, too many answers, too many
bytes, no memory left for its key, or an unreadable record."""


class WantedAnswers(msgspec.Struct, frozen=True):
    """What a request goes on with: the answer `previous`, empty for none, and single `items` of
    answers, by their ids. `questions` are those of a provider, whether it may run a call, that the
    client says yes to."""

    dialect: DialectName
    previous: str
    items: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()


class StoredAnswers(msgspec.Struct, frozen=True):
    """What the record has of that. `before` are the items in front of the request's own input, in
    their order."""

    missing: Missing = ""
    item: str = ""
    """The id that nothing was found for."""
    before: list[Any] = []
    items: dict[str, Any] = {}
    calls: list[str] = []
    """The ids of the tool calls that the client was given in all of it."""
    answers: int = 0
    questions: dict[str, Any] = {}
    """The questions as this key was given them, by their ids: of all that the conversation says yes
    to."""


class StoredRequest(msgspec.Struct, frozen=True):
    """A request on record: the answer that it goes on with, its own items, and whether its answer
    may be asked for again."""

    previous: str
    items: list[Any]
    is_kept: bool


class StoredAnswerRules(Protocol):
    """What a dialect knows of its kept answers. All of it is pure, and its time depends on the size
    of the input."""

    previous: str
    """The field of a request that names the answer it goes on with."""

    def wanted(self, body: bytes) -> WantedAnswers | None:
        """Return what a client's body goes on with; None where it holds its whole conversation, or
        is none."""

    def with_kept(self, body: bytes, stored: StoredAnswers) -> bytes:
        """Return the body with all that the model is to read in its own input. Raises ValueError
        for a body without `wanted`."""

    def strange(self, body: bytes, stored: StoredAnswers) -> list[str]:
        """Return which results in the body's own input are of no tool call that its client was
        given: the calls' ids."""

    def asked(self, body: bytes) -> StoredRequest:
        """Read a body on record. Raises ValueError."""

    def references(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of answers' items to which these refer."""

    def questions(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of the questions, whether a provider may run a call, that these items say
        yes to."""

    def undecided(self, request: ChatRequest, stored: StoredAnswers) -> str:
        """Return the id of a question that a request says yes to, and that its key was not given,
        or not as it stands there."""

    def answer(self, released: bytes) -> dict[str, Any] | None:
        """Return the complete answer in the last bytes that a client was sent; None where these are
        not an answer's end."""

    def output(self, answer: dict[str, Any]) -> list[Any]:
        """Return what of an answer stands in the input of a request that goes on with it."""

    def calls(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of the client's tool calls among an answer's items."""

    def listed(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the items of an input as a client is shown them: each with an id, the same each
        time."""

    def call_of_answer(self, identity: str) -> str:
        """Return the call whose answer has this id; empty where it is no id of ours."""

    def call_of_item(self, identity: str) -> str:
        """Return the call whose answer has the item with this id, likewise."""


def pack(stored: StoredAnswers) -> bytes:
    """Pack as a fact of a call, numbers exactly as they are."""
    return dumps(msgspec.structs.asdict(stored))


def unpack(data: bytes) -> StoredAnswers:
    """Unpack `pack`; what cannot be read says that the record was not read."""
    try:
        return StoredAnswers(**loads_exact(data))
    except (ValueError, TypeError):
        return StoredAnswers("away")


def refusal(stored: StoredAnswers, *, most_answers: int, most_bytes: int) -> PipelineError | None:
    """Return why a request cannot go on with this. It does not reveal whose an answer is, or
    was."""
    name = "previous_response_id"
    match stored.missing:
        case "":
            return None
        case "previous":
            return InvalidRequest(
                "there is no response with this id that can be continued",
                code="previous_response_not_found",
                param=name,
            )
        case "item":
            message = (
                f"the input refers to an item {stored.item[:80]!r} that is not on record: send the"
                " item itself"
            )
            return InvalidRequest(message, code="item_not_found", param="input")
        case "answers":
            return InvalidRequest(
                f"this conversation has more than {most_answers} responses: send its items instead",
                param=name,
            )
        case "bytes":
            return InvalidRequest(
                f"this conversation has more than {most_bytes} bytes: send a part of its items"
                " instead",
                param=name,
            )
        case "memory":
            return key_memory()
        case _:
            return AuditUnavailable("earlier responses cannot be read now; try again in 5 seconds")
