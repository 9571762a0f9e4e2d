"""The scripted model behind the running product: files played to both dialects' clients, decided
about, and their mistakes told."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest

from protocol.bounds import SCRIPT_BODY_BYTES
from tests.support.clients.sdk_calls import anthropic_client, openai_client
from tests.support.servers.product import KEY, Product, base_config

LOOK, HARM = {"command": "ls -la"}, {"command": "rm -rf /"}
OPENAI_TOOL: Any = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object"}},
}
TURNS = [
    {"text": "I look first.", "calls": [{"name": "bash", "arguments": LOOK}]},
    {
        "thinking": "Hm.",
        "text": "Now.",
        "calls": [{"name": "bash", "arguments": json.dumps(HARM).replace("r", "\\u0072", 1)}],
        "split": "byte",
    },
    {"text": "Done.", "usage": {"input_tokens": 70, "output_tokens": 30}},
]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, Path]]:
    folder = tmp_path_factory.mktemp("scripted")
    scripts = folder / "scripts"
    scripts.mkdir()
    (scripts / "agent.jsonl").write_text("\n".join(map(json.dumps, TURNS)))
    (scripts / "bad.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    config = base_config() | {
        "models": [
            {"match": "script-*", "upstream": "script"},
            {"match": "agent", "upstream": "script-anthropic", "names": ["agent"]},
        ],
    }
    with Product(folder, redis_url, database_url, config) as product:
        product.start("audit", "judge", "policy")
        product.start("gateway", env={"SLUICE_SCRIPTS_DIR": str(scripts)})
        yield product, scripts


@pytest.mark.slow
@pytest.mark.parametrize("model", ["script-agent", "agent"])
def test_an_agent_is_played_turn_by_turn_and_decided_about(
    served: tuple[Product, Path], model: str
) -> None:
    messages: list[Any] = [{"role": "user", "content": "look, then clean up"}]
    tokens = list[int]()
    with openai_client(served[0].url) as client:
        for turn, expected in enumerate(([LOOK], [], [])):
            answer = client.chat.completions.create(
                model=model, messages=messages, tools=[OPENAI_TOOL]
            )
            said = answer.choices[0].message
            assert [
                json.loads(c.function.arguments)
                for c in said.tool_calls or ()
                if c.type == "function"
            ] == expected
            assert ("[Sluice blocked the tool call 'bash'" in (said.content or "")) is (turn == 1)
            tokens = (
                [answer.usage.prompt_tokens, answer.usage.completion_tokens] if answer.usage else []
            )
            messages += [said.model_dump(exclude_none=True), {"role": "user", "content": "go on"}]
            if said.tool_calls:
                messages[-1:] = [
                    {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "nothing"}
                ]
    assert messages[-2]["content"] == "Done." and tokens == [70, 30]


@pytest.mark.parametrize(
    ("model", "status", "said"),
    [
        ("script-none", 404, "there is no script none.jsonl"),
        ("script-../agent", 404, "names no script"),
        ("script-bad", 500, "bad.jsonl line 2: Object contains unknown field `txt`"),
    ],
)
def test_what_cannot_be_played_is_an_error_of_the_dialect(
    served: tuple[Product, Path], model: str, status: int, said: str
) -> None:
    with openai_client(served[0].url) as client, anthropic_client(served[0].url) as other:
        with pytest.raises(openai.APIStatusError) as refused:
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": "x"}])
        with pytest.raises(anthropic.APIStatusError) as also:
            other.messages.create(
                model=model, max_tokens=9, messages=[{"role": "user", "content": "x"}]
            )
    # an upstream's 500 is a 502 in chat/completions
    assert (
        refused.value.status_code == (502 if status == 500 else status)
        and also.value.status_code == status
    )
    assert said in str(refused.value) and said in str(also.value)


@pytest.mark.slow
def test_it_is_listed_where_it_is_named(served: tuple[Product, Path]) -> None:
    with openai_client(served[0].url) as client:
        assert [model.id for model in client.models.list()] == ["agent"]


@pytest.mark.slow
def test_a_body_past_the_bound_is_refused(served: tuple[Product, Path]) -> None:
    for size, status in ((SCRIPT_BODY_BYTES - 1_000, 200), (SCRIPT_BODY_BYTES, 413)):
        body = {"model": "script-agent", "messages": [{"role": "user", "content": "x" * size}]}
        answer = httpx.post(
            f"{served[0].url}/v1/chat/completions",
            json=body,
            headers={"authorization": f"Bearer {KEY}"},
            timeout=30,
        )
        assert answer.status_code == status, answer.text[:300]
