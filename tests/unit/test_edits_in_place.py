"""What policies change in a request without a new value: edits in place, and what is kept and
changed later."""

from typing import Any

import msgspec
import pytest

from policy.base import Block, Policy
from policy.session.effects import Respond
from policy.session.session import Session
from protocol.request import (
    ChatRequest,
    DialectName,
    TextPart,
    ToolResultPart,
    Turn,
)
from protocol.requests.copies import copied
from tests.support.checks.approving import SCHEMA
from tests.support.checks.kinds import of_kind
from tests.support.clients.answering import CONFIG
from tests.support.clients.changed import BODIES, FAMILIES, MODEL, every_way, sent_by, texts
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info


def session_of(
    client: DialectName,
    upstream: DialectName,
    *policies: Policy,
    body: Json | None = None,
    **info: Any,
) -> Session:
    call = call_info("c", client, nonce="nonce", max_arguments_bytes=100_000, server_tools=FAMILIES)
    session = Session(msgspec.structs.replace(call, **info), policies, CONFIG)
    session.begin(as_json({"model": MODEL[upstream], **(body or BODIES[client])}))
    if session.drain().lookup:
        session.turns([])
    return session


def in_place(request: ChatRequest) -> None:
    """What hooks can change without returning it, in one go."""
    request.extra.pop("metadata", None)
    request.extra.pop("safety_identifier", None)
    request.extra.pop("seed", None)
    for tool in request.tools:
        tool.schema.clear()
        tool.schema.update({"type": "object", "properties": {"new_argument": {"type": "string"}}})
    if request.response_format is not None:
        request.response_format.schema["properties"]["new_answer"] = {"type": "string"}
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, ToolResultPart):
                part.extra["content"][0]["text"] = "new result"


@every_way
@pytest.mark.parametrize("returns", ["None", "the request", "a copy"])
def test_edits_in_place_arrive(returns: str, client: DialectName, upstream: DialectName) -> None:
    class Edits(Policy):
        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            in_place(request)
            return (
                None
                if returns == "None"
                else request
                if returns == "the request"
                else msgspec.structs.replace(request)
            )

    sent = sent_by(client, upstream, Edits())
    assert not isinstance(sent, Respond), sent.body
    said = texts(sent)
    assert "new_argument" in said and "new_answer" in said and "new result" in said
    assert "old result" not in said and '"command"' not in said and "seed" not in sent
    if client == "anthropic":
        assert "alice" not in said


@every_way
def test_edits_of_the_context_change_nothing(client: DialectName, upstream: DialectName) -> None:
    class Edits(Policy):
        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            in_place(self.context.request)
            in_place(self.context.approved)
            return None

    assert sent_by(client, upstream, Edits()) == sent_by(client, upstream)


@every_way
def test_what_is_kept_and_changed_later_changes_nothing(
    client: DialectName, upstream: DialectName
) -> None:
    class Keeps(Policy):
        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            self.kept = msgspec.structs.replace(request, tools=request.tools[:1])
            return self.kept

    policy = Keeps()
    session = session_of(client, upstream, policy)
    assert session._exchange is not None
    approved = session._exchange.blocks._approved.request
    [kept] = of_kind(session._exchange.chain.policies, Keeps)
    kept.kept.tools[0].schema.clear()
    assert approved.tools[0].schema == SCHEMA


def test_what_has_no_extra_has_none_for_good() -> None:
    request = ChatRequest(dialect="openai", model="m", turns=(Turn("user", (TextPart("a"),)),))
    [turn] = request.turns
    [part] = turn.parts
    assert isinstance(part, TextPart)
    for extra in turn.extra, part.extra:
        with pytest.raises(TypeError, match="make another part"):
            extra["x"] = 1
        with pytest.raises(TypeError, match="make another part"):
            extra.update(x=1)
        with pytest.raises(TypeError, match="make another part"):
            extra.setdefault("x", 1)
    assert TextPart("a").extra == {} and (TextPart("a").extra | {"x": 1}) == {"x": 1}


def test_an_edit_in_place_of_a_part_with_fields_is_looked_at() -> None:
    class Edits(Policy):
        def on_request(self, request: ChatRequest) -> ChatRequest | Block | None:
            for turn in request.turns:
                for part in turn.parts:
                    if isinstance(part, ToolResultPart):
                        part.extra["x"] = {1}
            return None

    sent = sent_by("openai", "openai", Edits())
    assert isinstance(sent, Respond) and sent.status == 403


def test_copies_for_policies_share_what_cannot_change() -> None:
    request = ChatRequest(
        dialect="openai",
        model="m",
        turns=(
            Turn("user", (TextPart("a"),)),
            Turn("user", (TextPart("b", {"x": [1]}), TextPart("c"))),
        ),
        extra={"y": [2]},
    )
    copy = copied(request)
    assert (
        copy == request
        and copy.turns[0] is request.turns[0]
        and copy.turns[1].parts[1] is request.turns[1].parts[1]
    )
    copy.turns[1].parts[0].extra["x"].append(2)  # type: ignore[union-attr]
    copy.extra["y"].append(3)
    assert request.extra == {"y": [2]} and request.turns[1].parts[0] == TextPart("b", {"x": [1]})
