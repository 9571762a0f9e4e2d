"""Large or hostile input of one call beside the streams of others, whose workers go on: what they
notice is less than two seconds."""

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx2 as httpx
import pytest

from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.clients.innocents import innocents, slow_upstream
from tests.support.clients.readers import PATHS
from tests.support.json_values import Json, as_json
from tests.support.servers.product import Product, base_config, digest, running
from tests.support.upstreams.replay import Replay, Reply

ATTACKER = "sk-sluice-attacker"
SILENCE_S = 2.0
AGAIN = 3
"""How often each attack is made: where it ends a worker, the next one finds that."""
HANGS = "hangs-at-request", "hangs-at-call"
POLICY = '''
from policy.base import Policy


class Hangs(Policy):
    """Never comes back from a request, or from a tool call whose arguments are large."""

    def __init__(self, at: str) -> None:
        self.at = at

    def on_request(self, request):
        while self.at == "request":
            pass
        return super().on_request(request)

    def on_tool_call(self, call):
        while self.at == "call" and len(call.arguments) > 100_000:
            pass
        return super().on_tool_call(call)
'''


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str, replay: Replay
) -> Iterator[Product]:
    folder = tmp_path_factory.mktemp("product")
    (folder / "hangs.py").write_text(POLICY)
    with slow_upstream() as slow:
        config = slow.into(base_config())
        config["upstreams"]["replay"] = {"dialect": "openai", "base_url": replay.url + "/v1"}
        config["models"].append({"match": "gpt-*", "upstream": "replay"})
        for name in HANGS:
            config["policies"][name] = [{"use": "hangs:Hangs", "at": name.rpartition("-")[2]}]
        config["keys"].append(
            {
                "name": "attacker",
                "sha256": digest(ATTACKER),
                "roles": ["client"],
                "policies": list(config["policies"]),
            }
        )
        # two seconds of CPU may be ten on a busy machine
        config["limits"] |= {"lease_s": 5.0, "claim_s": 30.0}
        with running(folder, redis_url, database_url, config, policy=2) as made:
            yield made


def ask(
    product: Product, body: Json, *, dialect: DialectName = "openai", policy: str = "noop"
) -> httpx.Response:
    headers = {"authorization": f"Bearer {ATTACKER}", "x-sluice-policy": policy}
    return httpx.post(product.url + PATHS[dialect], json=body, headers=headers, timeout=60)


async def beside_innocents(
    product: Product,
    figure: Figure,
    name: str,
    attack: Callable[[], httpx.Response],
    *,
    silence_s: float = SILENCE_S,
) -> list[str]:
    """Attack a few times; nobody else may notice, and no worker end. Returns the codes of the
    errors that the attacker got."""
    before = [child.pid for child in product.of("policy")]
    async with innocents(product, n=4) as watch:
        answers = [await asyncio.to_thread(attack) for _ in range(AGAIN)]
    figure(f"{name}: longest silence of other calls", watch.longest_silence_s, "s")
    figure(f"{name}: until its call ended", max(a.elapsed.total_seconds() for a in answers), "s")
    assert watch.longest_silence_s < silence_s and not watch.ended, product.logs()
    assert [child.pid for child in product.of("policy")] == before, product.logs()
    # the last frame of a stream, or all there is; the dialect anthropic has no place for a code
    errors = [json.loads(a.text.rpartition("data: ")[2]).get("error", {}) for a in answers]
    return [error.get("code") or error.get("type", "") for error in errors]


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.slow
async def test_a_body_of_very_many_messages_costs_nobody_else(
    product: Product, figure: Figure
) -> None:
    body = {"model": "slow", "max_tokens": 10, "messages": user("a") * 400_000}
    codes = await beside_innocents(
        product, figure, "14 MB of small messages", lambda: ask(product, body, dialect="anthropic")
    )
    assert all(codes), "it was not taken"


@pytest.mark.slow
async def test_a_schema_that_expands_without_end_costs_nobody_else(
    product: Product, figure: Figure, replay: Replay
) -> None:
    defs: Json = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/a0", "$defs": defs | {"a40": {"type": "object"}}}
    tool = {"type": "function", "function": {"name": "bash", "parameters": schema}}
    body = {"model": "gpt-x", "messages": user("list the files"), "tools": [tool]}
    replay.answer(
        Reply(
            answer(
                calls=[
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "bash", "arguments": "{}"},
                    }
                ]
            )
        )
    )
    assert all(
        await beside_innocents(
            product, figure, "a schema of 2^40 steps", lambda: ask(product, body)
        )
    )


def answer(text: str = "", calls: list[Json] | None = None) -> bytes:
    message: Json = {"role": "assistant", "content": text} | (
        {"tool_calls": calls} if calls else {}
    )
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return as_json(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    )


@pytest.mark.slow
async def test_an_answer_of_very_many_calls_in_text_costs_nobody_else(
    product: Product, figure: Figure, replay: Replay
) -> None:
    replay.answer(Reply(answer('{"name":"bash","arguments":{"a":1}}' * 12_000)))
    body = {
        "model": "gpt-x",
        "messages": user("go"),
        "tools": [{"type": "function", "function": {"name": "bash"}}],
    }
    await beside_innocents(
        product, figure, "12,000 calls in one text", lambda: ask(product, body, policy="default")
    )


@pytest.mark.parametrize(("size", "silence_s"), [(10, 3 * SILENCE_S), (200_000, SILENCE_S)])
@pytest.mark.slow
async def test_a_policy_that_hangs_in_a_request_costs_its_call_alone(
    product: Product, figure: Figure, size: int, silence_s: float
) -> None:
    """A large one beside the loop; a small one on it, a second of CPU long, and for want of a
    heartbeat on another worker's too."""
    body = {"model": "gpt-x", "messages": user("x" * size)}
    codes = await beside_innocents(
        product,
        figure,
        f"a hook hangs in a request of {size} bytes",
        lambda: ask(product, body, policy=HANGS[0]),
        silence_s=silence_s,
    )
    assert codes == ["policy_failed"] * AGAIN


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.slow
async def test_a_policy_that_hangs_in_a_large_tool_call_costs_its_call_alone(
    product: Product, figure: Figure, replay: Replay, whole: bool
) -> None:
    """Whether it came at once or in small pieces, each of them harmless."""
    arguments = json.dumps({"command": "x" * 200_000})
    if whole:
        made = Reply(
            answer(
                calls=[
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "bash", "arguments": arguments},
                    }
                ]
            )
        )
    else:
        pieces = [arguments[n : n + 1000] for n in range(0, len(arguments), 1000)]
        deltas = [{"index": 0, "id": "c1", "function": {"name": "bash", "arguments": ""}}]
        deltas += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
        choices: list[Json] = [{"index": 0, "delta": {"tool_calls": [delta]}} for delta in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
        frames = [
            b"data: " + as_json({"id": "c", "model": "m", "choices": [choice]}) + b"\n\n"
            for choice in choices
        ]
        made = Reply(b"".join([*frames, b"data: [DONE]\n\n"]), content_type="text/event-stream")
    replay.answer(made)
    body = {
        "model": "gpt-x",
        "messages": user("go"),
        "stream": not whole,
        "tools": [{"type": "function", "function": {"name": "bash"}}],
    }

    name = f"a hook hangs in 200 kB of arguments {'at once' if whole else 'in pieces'}"
    codes = await beside_innocents(
        product, figure, name, lambda: ask(product, body, policy=HANGS[1])
    )
    assert codes == ["policy_failed"] * AGAIN
