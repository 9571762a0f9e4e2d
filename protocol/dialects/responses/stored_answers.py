"""Responses that are kept: what `previous_response_id` and `item_reference` name, and what stands
in their place (docs/change/protocol.md, State).

The output of an earlier response stands there as its client saw it, with the notice where a call
was blocked. Its reasoning does not: it is sealed for one provider and model, so it comes back with
recorded turns (`protocol.dialects.responses.turn`), where it fits.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from protocol.bounds import MAX_LOOKUPS
from protocol.bytes.json_strict import dumps, loads_exact
from protocol.bytes.sse import parse_event
from protocol.dialects.responses.ids import call_of, call_of_item
from protocol.request import ChatRequest, OtherPart
from protocol.stored_answers import StoredAnswers, StoredRequest, WantedAnswers

_MARKS = (b"previous_response_id", b"item_reference", b"mcp_approval_response")
_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n")
_KEPT_STATUS = frozenset(("completed", "incomplete"))


class Keeper:
    """As `protocol.stored_answers.Keeper` says."""

    previous = "previous_response_id"

    def wanted(self, body: bytes) -> WantedAnswers | None:
        """Return what a client's body goes on with."""
        if not any(mark in body for mark in _MARKS):
            return None
        try:
            asked = self.asked(body)
        except ValueError:
            # the reader says what is wrong with it
            return None
        refers = tuple(dict.fromkeys(self.references(asked.items)))[: MAX_LOOKUPS + 1]
        questions = tuple(dict.fromkeys(self.questions(asked.items)))[: MAX_LOOKUPS + 1]
        return (
            WantedAnswers("responses", asked.previous, refers, questions)
            if asked.previous or refers or questions
            else None
        )

    def with_kept(self, body: bytes, stored: StoredAnswers) -> bytes:
        """Return the body with all of its conversation as its input."""
        data, items = loads_exact(body), dict(stored.items)
        # each once: 100,000 references in a small body could each be megabytes. The reader refuses
        # those that stay
        input_items = [
            items.pop(str(item.get("id")), item) if _refers(item) else item
            for item in _items(data.get("input"))
        ]
        return dumps({**data, "input": [*stored.before, *input_items]})

    def strange(self, body: bytes, stored: StoredAnswers) -> list[str]:
        """Return the ids of calls whose results are in the body, and that its client was not
        given."""
        known = set(stored.calls)
        results = (
            i
            for i in self.asked(body).items
            if isinstance(i, dict) and str(i.get("type")).endswith("_call_output")
        )
        ids = dict.fromkeys(str(item.get("call_id") or item.get("id")) for item in results)
        return [identity for identity in ids if identity not in known]

    def asked(self, body: bytes) -> StoredRequest:
        """Read a body on record."""
        data = loads_exact(body)
        if not isinstance(data, dict):
            raise ValueError("no object")
        previous = data.get("previous_response_id")
        return StoredRequest(
            previous if isinstance(previous, str) else "",
            _items(data.get("input")),
            data.get("store") is not False,
        )

    def references(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of the items to which these refer."""
        return [item["id"] for item in items if _refers(item) and isinstance(item.get("id"), str)]

    def questions(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of the approval requests that these items approve."""
        responses = (
            item
            for item in items
            if isinstance(item, dict) and item.get("type") == "mcp_approval_response"
        )
        ids = (item.get("approval_request_id") for item in responses if item.get("approve") is True)
        return [identity for identity in ids if isinstance(identity, str)]

    def undecided(self, request: ChatRequest, stored: StoredAnswers) -> str:
        """Return the id of an approved request of an approval that is not as this key was given it.

        A provider that keeps nothing runs what the input says, so each item of that id must be the
        one that was decided.
        """
        items = [
            part.body
            for turn in request.turns
            for part in turn.parts
            if isinstance(part, OtherPart)
        ]
        asked: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            if item["type"] == "mcp_approval_request":
                asked.setdefault(item["id"], []).append(_as_input(item))
        for identity in self.questions(items):
            recorded = stored.questions.get(identity)
            if (
                recorded is None
                or identity not in asked
                or any(question != _as_input(recorded) for question in asked[identity])
            ):
                return identity
        return ""

    def answer(self, released: bytes) -> dict[str, Any] | None:
        """Return the response object that ended an answer."""
        raw = released.strip()
        if not raw.startswith(b"{"):
            at = max(raw.rfind(end) for end in _ENDS)
            if at < 0 or (at and not raw.endswith(b"\n", 0, at)):
                return None
            raw = parse_event(raw[at:] + b"\n\n")[1]
        try:
            response = loads_exact(raw)
        except ValueError:
            return None
        response = response.get("response", response) if isinstance(response, dict) else None
        if (
            not isinstance(response, dict)
            or response.get("status") not in _KEPT_STATUS
            or not isinstance(response.get("output"), list)
        ):
            return None
        return response

    def output(self, answer: dict[str, Any]) -> list[Any]:
        """Return the items of a response that stand in the next input."""
        return [
            item
            for item in answer["output"]
            if not (isinstance(item, dict) and item.get("type") == "reasoning")
        ]

    def calls(self, items: Sequence[Any]) -> list[str]:
        """Return the ids of the tool calls among these items."""
        called = (i for i in items if isinstance(i, dict) and str(i.get("type")).endswith("_call"))
        return [str(item.get("call_id") or item.get("id")) for item in called]

    def listed(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the items as the API lists them, texts as parts."""
        return list(_listed(items))

    def call_of_answer(self, identity: str) -> str:
        """Return the call that a response is of."""
        return call_of(identity)

    def call_of_item(self, identity: str) -> str:
        """Return the call of whose response the item is."""
        return call_of_item(identity)


def _listed(items: Sequence[Any]) -> Iterator[dict[str, Any]]:
    for place, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        if "role" in item and item.get("type", "message") == "message":
            content = item.get("content")
            if isinstance(content, str):
                kind = "output_text" if item.get("role") == "assistant" else "input_text"
                more: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
                item = {**item, "content": [{"type": kind, "text": content, **more}]}
            item = {"status": "completed", **item, "type": "message"}
        if not isinstance(item.get("id"), str):
            made = hashlib.sha256(b"%d:" % place + dumps(item)).hexdigest()[:32]
            item = {"id": f"{'msg' if item['type'] == 'message' else 'item'}_{made}", **item}
        yield item


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}] if value else []
    return value if isinstance(value, list) else []


def _as_input(item: dict[str, Any]) -> dict[str, Any]:
    """An item as clients may send it back: some write out what is not there."""
    return {name: value for name, value in item.items() if value is not None}


def _refers(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference"
