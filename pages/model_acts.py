"""What the model said in a call and what became of it, and whether a turn that comes back with the
next call is what was released. Must not know: SQL, HTML.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.read.sessions import RecordedCalls, SessionCall
from pages.call.sides import Listener, read_client
from pages.sent_turns import ShownTurn
from protocol.records import to_text


@dataclass(slots=True)
class ModelAct:
    """Text or a request of the model, and what became of it. `verdict` is empty where it has none
    of its own."""

    kind: str
    text: str
    size: int
    """Characters of the whole; bytes where only its beginning was read (`is_begun`)."""
    name: str = ""
    verdict: str = ""
    reason: str = ""
    policy: str = ""
    block: int = -1
    released: str | None = None
    """The arguments that went out, where they differ."""
    is_begun: bool = False
    is_released_begun: bool = False
    """A page shows only the beginning of `released`."""


def without_echo(
    turns: list[ShownTurn], parent: SessionCall | None, content: RecordedCalls
) -> list[ShownTurn]:
    """Without the model's turn that comes back, where it is what was released; what is not, is
    marked."""
    back = next((at for at, turn in enumerate(turns) if turn.role != "assistant"), len(turns))
    if not back or parent is None:
        return turns
    got = _released(parent, content)
    if got is None:
        return turns
    is_whole = parent.item["state"] == "ENDED"
    if parent.call_id in content.cut:
        if _may_be(turns[:back], got, is_whole=is_whole):
            # how it goes on nobody knows here: it is shown, and neither the model's nor another's
            return turns
    elif _same(turns[:back], got, is_whole=is_whole):
        return turns[back:]
    for turn in turns[:back]:
        turn.is_foreign = True
    return turns


def _released(call: SessionCall, content: RecordedCalls) -> Listener | None:
    payloads = content.releases.get(call.call_id)
    return (
        read_client(payloads, call.item["dialect"], streams=call.item["stream"])
        if payloads
        else None
    )


def _same(turns: Sequence[ShownTurn], got: Listener, *, is_whole: bool) -> bool:
    """Is what comes back what went out? Clients cut blanks at the ends of texts, leave thinking
    out, and part or join texts; of an answer that broke off they keep what they had by then."""
    texts, asked = _back(turns)
    sent, calls = _went(got)
    if not is_whole:
        return _begins(sent, texts) and calls[: len(asked)] == asked
    return not texts.isdisjoint(sent) and asked == calls


def _may_be(turns: Sequence[ShownTurn], got: Listener, *, is_whole: bool) -> bool:
    """Does what comes back begin as what went out, of which only the beginning was read?"""
    texts, asked = _back(turns)
    sent, calls = _went(got)
    if got.blocks and got.blocks[max(got.blocks)].is_call:
        # its arguments may go on
        calls = calls[:-1]
    if is_whole:
        return _begins(texts, sent) and asked[: len(calls)] == calls
    least = min(len(asked), len(calls))
    return (_begins(texts, sent) or _begins(sent, texts)) and asked[:least] == calls[:least]


def _back(turns: Sequence[ShownTurn]) -> tuple[set[str], list[tuple[str, str]]]:
    """The text and the tool calls of the model's turn as the client sent it."""
    parts = [part for turn in turns for part in turn.parts]
    texts = _joined([part.text for part in parts if part.kind in ("text", "injected")])
    return texts, [(part.name, _arguments(part.text)) for part in parts if part.kind == "tool_use"]


def _went(got: Listener) -> tuple[set[str], list[tuple[str, str]]]:
    """The same of what went out."""
    blocks = [got.blocks[number] for number in sorted(got.blocks)]
    texts = _joined([block.text for block in blocks if block.kind == "text"])
    return texts, [(block.name, _arguments(block.text)) for block in blocks if block.is_call]


def _joined(texts: Sequence[str]) -> set[str]:
    """The whole text: as it is within its ends, and of a client that cut the ends of each part."""
    return {"".join(texts).strip(), "".join(text.strip() for text in texts)}


def _begins(texts: set[str], beginnings: set[str]) -> bool:
    return any(text.startswith(beginning) for text in texts for beginning in beginnings)


def _arguments(text: str) -> str:
    """The same text for the same JSON: 1 is not true, and each of two equal keys counts."""
    try:
        return json.dumps(json.loads(text or "{}", object_pairs_hook=_pairs, parse_float=_number))
    except (ValueError, RecursionError):
        return text


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in the order of its keys, which clients change; with a list of the pairs where a
    key stands twice."""
    by_name = dict(sorted(pairs, key=lambda pair: pair[0]))
    return by_name if len(by_name) == len(pairs) else {"": [list(pair) for pair in pairs]}


def _number(text: str) -> int | float:
    """1.0 is 1, as clients may write it."""
    value = float(text)
    return int(value) if value.is_integer() else value


def acts(call: SessionCall, content: RecordedCalls) -> list[ModelAct]:
    """The model's output in a call, as released; what was blocked or replaced stands in its
    place."""
    ledger = {row["tool_call_id"]: row for row in content.tool_calls.get(call.call_id, ())}
    result: list[ModelAct] = []
    got = _released(call, content)
    for block in [got.blocks[number] for number in sorted(got.blocks)] if got else []:
        if block.is_call:
            result.append(_act_of_call(ledger.pop(block.id, None), block.name, block.text))
        elif block.text or block.sealed:
            result.append(ModelAct(str(block.kind), block.text, len(block.text)))
    result += [_act_of_call(row, row["name"], "") for row in ledger.values()]
    for row in content.blocks.get(call.call_id, ()):
        result.append(
            ModelAct(
                row["kind"], "", 0, "", row["verdict"], row["reason"], row["policy"], row["block"]
            )
        )
    if got is not None and got.failed:
        result.append(ModelAct("error", got.failed, len(got.failed)))
    return result


def _act_of_call(known: Mapping[str, Any] | None, name: str, sent: str) -> ModelAct:
    if known is None:
        return ModelAct("tool_use", sent, len(sent), name)
    asked, size = to_text(known["arguments"]), known["size"]
    is_begun = size > len(known["arguments"])
    out = None if known["released"] is None else to_text(known["released"])
    return ModelAct(
        "tool_use",
        asked,
        size if is_begun else len(asked),
        known["name"],
        known["verdict"],
        known["reason"],
        known["policy"],
        known["block"],
        out if out is not None and (is_begun or out != asked) else None,
        is_begun,
    )
