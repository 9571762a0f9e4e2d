"""Clients that leave, in both modes, that read too slowly or not at all, and official clients that
get a block."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import psycopg
import pytest

from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.checks.invariants import Recorded, read_call
from tests.support.clients.readers import PATHS, request, resident_bytes
from tests.support.clients.sdk_calls import tool
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY, Product, running
from tests.support.servers.stores import Stores
from tests.support.upstreams import product as upstreams
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.waiting import wait_for

STALL_S = 2.0
UNSENT = 256 * 1024
KERNEL = 4 * 2**20
"""What Linux holds of one socket's unread bytes at most (tcp_wmem)."""
DIALECTS: list[DialectName] = ["openai", "anthropic"]


def chunk(delta: Json, finish: str | None = None) -> bytes:
    value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: %s\n\n" % as_json(
        value | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    )


HELLO = chunk({"role": "assistant", "content": "hi"})


@pytest.fixture(scope="module")
def product(stores: Stores, replay: Replay) -> Iterator[Product]:
    config = upstreams.config(replay)
    config["limits"] |= {"client_stall_s": STALL_S, "unsent_bytes": UNSENT, "keepalive_s": 1.0}
    with running(*stores, config) as made:
        yield made


def ended(product: Product, call_id: str) -> Recorded:
    def end() -> Recorded | None:
        with psycopg.connect(product.database_url) as connection:
            recorded = read_call(connection, call_id)
        return recorded if recorded.end else None

    return wait_for(end, timeout_s=30, what="the end on record")


def head(body: Json, dialect: DialectName = "openai") -> bytes:
    data = as_json(body)
    lines = [
        f"POST {PATHS[dialect]} HTTP/1.1",
        "host: x",
        f"authorization: Bearer {KEY}",
        "x-sluice-policy: noop",
    ]
    return "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode() + data


def latest(product: Product) -> str:
    """The id of the newest call on record."""
    found: str = wait_for(lambda: product.audit("calls", limit=1)["items"], what="a call")[0][
        "call_id"
    ]
    return found


def appended(product: Product) -> int:
    """How many calls' streams hold the first chunk."""
    store: Any = product.redis
    streams = [store.xrange(key) for key in store.scan_iter("*:call:*")]
    return sum(
        any(HELLO in value for _, fields in entries for value in fields.values())
        for entries in streams
    )


@pytest.mark.slow
@pytest.mark.case("C1", "C3")
@pytest.mark.parametrize("streams", [True, False], ids=["C1", "C3"])
def test_c1_c3_a_client_that_leaves_ends_its_upstream_within_a_second(
    product: Product, replay: Replay, streams: bool, figure: Figure
) -> None:
    replay.answer(stream(HELLO, ending="hang"))
    before = appended(product)
    with socket.create_connection(("127.0.0.1", product.port), timeout=10) as client:
        client.sendall(head(request("go", model="gpt-x", stream=streams)))
        wait_for(lambda: replay.asked, what="upstream is asked")
        # a client that leaves sooner leaves no chunk behind
        wait_for(lambda: appended(product) > before, what="upstream's first chunk is in Redis")
        if streams:
            wait_for(lambda: b"hi" in client.recv(65536), what="the first word")
    left_at = time.monotonic()
    wait_for(lambda: replay.left == 1, what="upstream is left")
    took = time.monotonic() - left_at
    figure(
        "from a client that leaves to the end of its upstream request"
        f" ({'streamed' if streams else 'whole'})",
        took,
        "s",
    )
    assert took < 1.0
    recorded = wait_for(
        lambda: next(
            (r for r in [ended(product, latest(product))] if r.end[1] == "client_gone"), None
        ),
        what="the end",
    )
    # the record says how far it got: what came, and what of it was relayed
    assert [c[1] for c in recorded.chunks] == [HELLO] and (recorded.end[3] > 0) is streams


@pytest.mark.slow
@pytest.mark.case("C2")
def test_c2_a_client_that_never_reads_is_cut_off_and_held_within_bounds(
    product: Product, replay: Replay, figure: Figure
) -> None:
    text = chunk({"content": "x" * 4000})
    replay.answer(stream(HELLO + text * 5000, cutting="events"))
    pid = product.of("gateway")[0].pid
    before, most, redis_most = resident_bytes(pid), 0, 0
    store: Any = product.redis
    redis_before = store.info("memory")["used_memory"]
    clients = []
    for _ in range(4):
        client = socket.socket()
        # small buffers: what the kernel takes is not what Sluice holds
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        client.connect(("127.0.0.1", product.port))
        client.sendall(head(request("go", model="gpt-x")))
        clients.append(client)
    began = time.monotonic()
    try:
        wait_for(lambda: len(replay.asked) == 4, what="all are asked")

        def none_open() -> bool:
            nonlocal most, redis_most
            most = max(most, resident_bytes(pid) - before)
            redis_most = max(redis_most, store.info("memory")["used_memory"] - redis_before)
            return bool(store.xlen("sluice:{00}:dispatch") == 0)

        wait_for(none_open, timeout_s=40, what="they are cut off")
    finally:
        for client in clients:
            client.close()
    took = time.monotonic() - began
    # 20 MB each from upstream. Held of each: what its socket's buffer in the kernel took and the
    # unsent bytes up to the mark, as they came and as they went out, and one copy on its way
    each = KERNEL + 2 * UNSENT
    bound = 4 * 3 * each
    # Redis: each byte on the call's stream, on the reply stream, and twice in the record until that
    # is committed, packed
    redis_bound = 4 * 5 * each
    figure("4 clients that never read 20 MB: growth of the gateway", most / 2**20, "MiB")
    figure("4 clients that never read 20 MB: growth of Redis", redis_most / 2**20, "MiB")
    figure("time until they are cut off (client_stall_s 2)", took, "s")
    assert most < bound and redis_most < redis_bound
    assert ended(product, latest(product)).end[1] == "client_gone"


@pytest.mark.slow
@pytest.mark.case("C2")
def test_c2_a_client_that_reads_slowly_gets_all_of_it(product: Product, replay: Replay) -> None:
    body = HELLO + chunk({"content": "y" * 3000}) * 200 + chunk({}, "stop") + b"data: [DONE]\n\n"
    replay.answer(stream(body, cutting="events"))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        client.settimeout(10)
        client.connect(("127.0.0.1", product.port))
        client.sendall(head(request("go", model="gpt-x")))
        received, until = b"", time.monotonic() + 2 * STALL_S
        # a few KB at a time for longer than the stall time, then the rest
        while time.monotonic() < until:
            received += client.recv(4096)
            time.sleep(0.1)
        while b"[DONE]" not in received:
            data = client.recv(65536)
            assert data, "cut off though it read"
            received += data
    assert received.count(b"y" * 3000) >= 150 and received.count(b"[DONE]") == 1


@pytest.mark.case("C8")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("streams", [True, False])
def test_c8_an_official_client_takes_a_block_as_an_answer(
    product: Product, replay: Replay, dialect: DialectName, streams: bool
) -> None:
    call = [
        chunk(
            {
                "role": "assistant",
                "tool_calls": [
                    {"index": 0, "id": "t1", "type": "function", "function": {"name": "bash"}}
                ],
            }
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"command": "rm -rf /"}'}}]}),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    whole = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "bash", "arguments": '{"command": "rm -rf /"}'},
                        }
                    ],
                },
            }
        ],
    }
    replay.answer(stream(b"".join(call)) if streams else Reply(as_json(whole)))
    prompt: Any = [{"role": "user", "content": "go"}]
    if dialect == "openai":
        tools: Any = [tool("openai", "bash", command="string")]
        with openai.OpenAI(base_url=f"{product.url}/v1", api_key=KEY) as client:
            if streams:
                with client.chat.completions.stream(
                    model="gpt-x", messages=prompt, tools=tools
                ) as events:
                    completion = events.get_final_completion()
            else:
                completion = client.chat.completions.create(
                    model="gpt-x", messages=prompt, tools=tools
                )  # type: ignore[assignment]
        choice = completion.choices[0]
        assert (
            choice.finish_reason == "stop"
            and not choice.message.tool_calls
            and choice.message.content
        )
    else:
        with anthropic.Anthropic(base_url=product.url, api_key=KEY) as other:
            asked: Any = {
                "model": "gpt-x",
                "max_tokens": 100,
                "messages": prompt,
                "tools": [tool("anthropic", "bash", command="string")],
            }
            if streams:
                with other.messages.stream(**asked) as stream_events:
                    message = stream_events.get_final_message()
            else:
                message = other.messages.create(**asked)
        assert message.stop_reason == "end_turn" and [b.type for b in message.content] == ["text"]
    # a client that took it for an error would have asked three times
    assert len(replay.asked) == 1
