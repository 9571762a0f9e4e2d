"""Histories of any order, of clients of each dialect, go to each provider in a form that it takes.

Nobody but the client decides how a history ends: where its last turn is the assistant's, some
providers refuse it, and say so themselves.
"""

import itertools
import json
import random
from typing import Any

import pytest

from protocol.dialects.table import DIALECTS
from protocol.request import DialectName
from settings.config import Config
from tests.agents.conftest import MODELS
from tests.conftest import SEED
from tests.support.clients.answering import Answer
from tests.support.json_values import Json
from tests.support.vendors.checking import need
from tests.support.vendors.server import VENDORS
from tests.support.vendors.story import Refused

HISTORIES = 60
PATHS = {
    "gemini": f"/v1beta/models/{MODELS['gemini']}:streamGenerateContent",
    "converse": f"/model/{MODELS['converse']}/converse-stream",
}
UPSTREAMS = [name for name in VENDORS if name in DIALECTS]
CONFIG = Config.model_validate(
    {
        "upstreams": {
            name: {"dialect": name, "base_url": "http://127.0.0.1:1/v1", "api_key_env": "X"}
            for name in UPSTREAMS
        },
        "models": [{"match": MODELS[name], "upstream": name} for name in UPSTREAMS],
    }
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


def steps(draw: random.Random) -> list[tuple[str, Any]]:
    """A history: turns of text, calls and their results in any order, with other turns between
    them. It begins and ends with the user's."""
    made: list[tuple[str, Any]] = [("user", "go")]
    for number in range(draw.randint(1, 6)):
        match draw.choice(("user", "assistant", "system", "thought", "calls", "calls")):
            case "calls":
                ids = [f"call_{number}{letter}" for letter in "abc"[: draw.randint(1, 3)]]
                made.append(("calls", ids))
                for identity in draw.sample(ids, len(ids)):
                    if draw.random() < 0.2:
                        made.append((draw.choice(("user", "system")), "between"))
                    made.append(("result", (identity, draw.choice(("out", "")))))
            case kind:
                made.append((kind, draw.choice(("text", "more"))))
    return [*made, ("user", "go on")]


def chat(kind: str, value: Any) -> Json | None:
    """A turn of a Chat Completions client."""
    match kind:
        case "calls":
            function = {"name": "bash", "arguments": "{}"}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": i, "type": "function", "function": function} for i in value],
            }
        case "result":
            return {"role": "tool", "tool_call_id": value[0], "content": value[1]}
        case "thought":
            return None
    return {"role": kind, "content": value}


def messages(kind: str, value: Any) -> Json | None:
    """A turn of a Messages client."""
    match kind:
        case "calls":
            return {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": i, "name": "bash", "input": {}} for i in value
                ],
            }
        case "result":
            return {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": value[0], "content": value[1]}],
            }
        case "thought":
            return {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": value, "signature": ""}],
            }
    return {"role": kind, "content": value}


def items(kind: str, value: Any) -> list[Json]:
    """Items of a Responses client."""
    match kind:
        case "calls":
            return [
                {"type": "function_call", "call_id": i, "name": "bash", "arguments": "{}"}
                for i in value
            ]
        case "result":
            return [{"type": "function_call_output", "call_id": value[0], "output": value[1]}]
        case "thought":
            return [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}]
        case "assistant":
            return [
                {
                    "type": "message",
                    "role": kind,
                    "content": [{"type": "output_text", "text": value}],
                }
            ]
    return [{"type": "message", "role": kind, "content": value}]


def asked(client: DialectName, history: list[tuple[str, Any]]) -> Json:
    """The request of a client with this history."""
    tool = {"name": "bash", "description": "runs a command"}
    match client:
        case "openai":
            turns = [turn for step in history if (turn := chat(*step))]
            return {
                "messages": turns,
                "tools": [{"type": "function", "function": {**tool, "parameters": SCHEMA}}],
            }
        case "responses":
            found = [item for step in history for item in items(*step)]
            return {"input": found, "tools": [{"type": "function", **tool, "parameters": SCHEMA}]}
    # a Messages client has its results in one turn
    turns = []
    for step in history:
        turn = messages(*step)
        if (
            turn
            and turns
            and step[0] == "result"
            and turns[-1]["role"] == "user"
            and isinstance(turns[-1]["content"], list)
        ):
            turns[-1]["content"] += turn["content"]
        elif turn:
            turns.append(turn)
    return {"messages": turns, "tools": [{**tool, "input_schema": SCHEMA}]}


def says_something(turns: list[Json]) -> None:
    """What templates of many models want beside what OpenAI wants: answers that say something, and
    roles that alternate."""
    need(
        all(
            turn.get("content") or turn.get("tool_calls")
            for turn in turns
            if turn["role"] == "assistant"
        ),
        "an empty answer",
    )
    pairs = [(a["role"], b["role"]) for a, b in itertools.pairwise(turns)]
    need(
        not {("user", "user"), ("assistant", "assistant")}.intersection(pairs),
        f"roles do not alternate: {pairs}",
    )


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("client", ["openai", "anthropic", "responses"])
def test_any_history_goes_on_in_a_form_that_the_provider_takes(
    client: DialectName, upstream: DialectName
) -> None:
    if client == upstream:
        pytest.skip("the client's own bytes go on")
    for number in range(HISTORIES):
        history = steps(random.Random(f"{SEED} {number}"))
        answer = Answer(
            upstream, client, config=CONFIG, model=MODELS[upstream], **asked(client, history)
        )
        assert not answer.refused, (history, answer.refused)
        [sent] = answer.dispatched
        try:
            VENDORS[upstream].read(sent, PATHS.get(upstream, ""))
            if upstream == "openai":
                says_something(sent["messages"])
        except Refused as refused:
            pytest.fail(f"{refused.message}\n{history}\n{json.dumps(sent)}")
