"""Secrets and addresses on their way through all processes: the provider gets names for them, the
client gets them back, in every client dialect."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import psycopg
import pytest

from tests.support.clients.sdk_calls import Mode, ask, tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product
from tests.support.servers.stores import Stores
from tests.support.upstreams.paused_turn import reply
from tests.support.upstreams.product import Place, call_of, config, new_session
from tests.support.upstreams.replay import Reply, replaying
from tests.support.waiting import wait_for

MAIL = "ada@analytical-engine.org"
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
PLACEHOLDER = re.compile(r"SLUICE_EMAIL_[0-9a-f]{16}")
SERIES = [
    {
        "use": "redact",
        "request": {"email": "mask_restore", "secret": "mask"},
        "restore_tools": ["crm_mail"],
    },
    {"use": "tool_rules", "deny": [{"name": "abroad", "tool": "*", "argument_matches": "@evil"}]},
]


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    folder, redis_url, database_url = stores
    key_file = folder / "redact.key"
    key_file.write_text("0123456789abcdef" * 4)
    with pytest.MonkeyPatch.context() as patch, replaying() as replay:
        patch.setenv("TEST_OPENAI_PROVIDER_KEY", "sk-a")
        patch.setenv("TEST_ANTHROPIC_PROVIDER_KEY", "sk-b")
        made = config(replay)
        made["policies"]["default"] = SERIES
        with Product(folder, redis_url, database_url, made) as product:
            product.environments["policy"] = {"SLUICE_REDACT_KEY_FILE": str(key_file)}
            product.start("audit", "gateway", "policy")
            yield product, replay


def answering(*, streamed: bool, name: str = "crm_mail") -> Reply:
    """What a model says that reads the placeholder in the request: in text, in a call, and with a
    token of its own."""

    def made(asked: bytes) -> bytes:
        address = PLACEHOLDER.search(asked.decode())
        assert address is not None
        content: list[Json] = [
            {"type": "text", "text": f"I mail {address[0]} with {TOKEN}, now."},
            {"type": "tool_use", "id": "toolu_1", "name": name, "input": {"to": [address[0]]}},
        ]
        return reply(content, "tool_use", (10, 5), streamed=streamed).body

    kind = "text/event-stream" if streamed else "application/json"
    return Reply(content_type=kind, make=made, cutting="bytes" if streamed else "whole")


@pytest.mark.parametrize("mode", ["whole", "iterate"])
@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_the_provider_gets_names_and_the_client_its_values(
    place: Place, client: str, mode: Mode
) -> None:
    product, replay = place
    session = new_session()
    replay.answer(answering(streamed=mode != "whole"))
    got = ask(
        product.url,
        client,
        mode,
        f"Write to {MAIL}; my key is {TOKEN}.",
        model="claude-x",
        tools=[tool(client, "crm_mail", to="array")],
        headers={"x-sluice-session": session},
    )
    [asked] = replay.asked
    assert MAIL.encode() not in asked.raw and TOKEN.encode() not in asked.raw
    assert b"my key is REDACTED_SECRET." in asked.raw
    assert got.text == f"I mail {MAIL} with REDACTED_SECRET, now."
    assert got.plain_calls == [("crm_mail", {"to": [MAIL]})]
    call = call_of(product, session)
    assert (call["state"], call["reason"]) == ("ENDED", "complete")
    notes = noted(product, call["call_id"])
    assert any("turns[0]: mask_restore email email" in note for note in notes)
    assert any("text: mask secret github-pat" in note for note in notes)
    assert not any(MAIL in note or TOKEN in note for note in notes)
    if client == "anthropic":
        again_has_the_same_beginning(place, mode, got.message)


def again_has_the_same_beginning(place: Place, mode: Mode, turn: Json) -> None:
    """The next request, with what the client got: the provider's prompt cache must find the
    first."""
    product, replay = place
    first = replay.asked[0].raw
    replay.answer(reply([{"type": "text", "text": "done"}], "end_turn", (1, 1), streamed=False))
    ask(
        product.url,
        "anthropic",
        "whole",
        [
            {"role": "user", "content": f"Write to {MAIL}; my key is {TOKEN}."},
            turn,
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"sent to {MAIL}"}
                ],
            },
        ],
        model="claude-x",
        tools=[tool("anthropic", "crm_mail", to="array")],
    )
    [asked] = replay.asked
    assert MAIL.encode() not in asked.raw
    messages = [as_json(json.loads(raw)["messages"])[:-1] for raw in (first, asked.raw)]
    assert messages[1].startswith(messages[0])


def noted(product: Product, call_id: str) -> list[str]:
    """What is on record about masking."""

    def rows() -> list[str]:
        with psycopg.connect(product.database_url) as connection:
            query = "SELECT detail FROM events WHERE call_id = %s AND kind = 'redacted'"
            return [row[0] for row in connection.execute(query, (call_id,))]

    return wait_for(rows, what="findings on record")


@pytest.mark.parametrize("streamed", [False, True])
def test_another_tool_gets_no_value(place: Place, streamed: bool) -> None:
    product, replay = place
    replay.answer(answering(streamed=streamed, name="bash"))
    got = ask(
        product.url,
        "anthropic",
        "iterate" if streamed else "whole",
        f"Write to {MAIL}.",
        model="claude-x",
        tools=[tool("anthropic", "bash", to="array")],
    )
    assert got.calls == [] and "placeholder" in got.text
    assert "[Sluice blocked the tool call 'bash'" in got.text


@pytest.mark.parametrize("whole", [True, False])
def test_responses_are_masked_and_restored(place: Place, whole: bool) -> None:
    product, replay = place
    replay.answer(answering(streamed=not whole))
    request: Any = {
        "model": "claude-x",
        "input": f"Write to {MAIL}; my key is {TOKEN}.",
        "tools": [tool("responses", "crm_mail", to="array")],
    }
    with openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY, max_retries=0) as client:
        if whole:
            answer = client.responses.create(**request)
        else:
            with client.responses.stream(**request) as events:
                for _ in events:
                    pass
                answer = events.get_final_response()
    assert MAIL.encode() not in replay.asked[0].raw and TOKEN.encode() not in replay.asked[0].raw
    assert answer.output_text == f"I mail {MAIL} with REDACTED_SECRET, now."
    [call] = [item for item in answer.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"to": [MAIL]}
