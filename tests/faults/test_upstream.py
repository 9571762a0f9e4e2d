"""Upstreams that stop in the middle, send much in little pieces, or answer in another form than was
asked for."""

import functools
import gzip
import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest

from policy.builtin.noop import Noop
from protocol.dialects.table import CLIENTS
from protocol.request import DialectName
from tests.support.checks.figures import Figure
from tests.support.clients.answering import Answer, Watch
from tests.support.clients.readers import PATHS, request
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, Role
from tests.support.servers.stores import Stores
from tests.support.upstreams.product import (
    MODEL,
    Place,
    call_of,
    config,
    new_session,
    recorded_bytes,
    replayed,
)
from tests.support.upstreams.recordings import own
from tests.support.upstreams.replay import Replay, Reply, stream
from tests.support.upstreams.turns import events

DIALECTS: list[DialectName] = ["openai", "anthropic"]
ROLES: list[Role] = ["gateway", "policy", "judge", "audit"]
TEXTS: dict[DialectName, str] = {"openai": "openai-text.sse", "anthropic": "anthropic-text.sse"}
crossed = pytest.mark.parametrize(
    ("client", "provider"), [(c, p) for c in CLIENTS for p in DIALECTS]
)


@pytest.fixture(scope="module")
def place(stores: Stores) -> Iterator[Place]:
    def made(server: Replay) -> Json:
        base = config(server)
        base["policies"]["judged"] = [{"use": "tool_judge", "model": "demo-judge"}]
        base["keys"] = [key | {"policies": [*base["policies"]]} for key in base["keys"]]
        return base

    with replayed(*stores, made) as running:
        yield running


@dataclass
class Got:
    """What a client got."""

    status: int
    body: bytes
    session: str
    seconds: float

    @property
    def frames(self) -> list[Any]:
        """The decoded payloads of a stream."""
        return [
            json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: {")
        ]

    def failed(self) -> bool:
        """Does the stream end with one error, or is there a status of an error?"""
        if self.status != 200:
            return self.status >= 400 and "error" in json.loads(self.body)
        if self.frames and self.frames[-1].get("type") == "response.failed":
            return True
        errors = [f for f in self.frames if "error" in f]
        return (
            len(errors) == 1
            and self.frames[-1] is not None
            and "error" in self.frames[-1]
            and b"[DONE]" not in self.body
        )


def ask(
    product: Product,
    client: DialectName,
    provider: DialectName,
    *,
    policy: str = "noop",
    streams: bool = True,
    **more: Any,
) -> Got:
    session, began = new_session(), time.monotonic()
    body = request("go", client, model=MODEL[provider], stream=streams) | more
    head = {
        "authorization": f"Bearer {KEY}",
        "x-sluice-policy": policy,
        "x-sluice-session": session,
    }
    answer = httpx.post(product.url + PATHS[client], json=body, headers=head, timeout=50)
    return Got(answer.status_code, answer.content, session, time.monotonic() - began)


# --- cut off ---

WORDS = ("alpha", "bravo", "zulus")


def three_calls(dialect: DialectName) -> bytes:
    """Three tool calls one after the other, arguments in pieces of four characters."""
    frames: list[Json] = []
    for index, word in enumerate(WORDS):
        text = json.dumps({"word": f"{word}-" * 5})
        pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
        if dialect == "openai":
            call = {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": "say", "arguments": ""},
            }
            deltas: list[Json] = [
                call,
                *({"index": index, "function": {"arguments": p}} for p in pieces),
            ]
            head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
            frames += [
                {
                    **head,
                    "choices": [{"index": 0, "delta": {"tool_calls": [d]}, "finish_reason": None}],
                }
                for d in deltas
            ]
        else:
            block = {"type": "tool_use", "id": f"toolu_{index}", "name": "say", "input": {}}
            frames.append({"type": "content_block_start", "index": index, "content_block": block})
            frames += [
                {
                    "type": "content_block_delta",
                    "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": p},
                }
                for p in pieces
            ]
            frames.append({"type": "content_block_stop", "index": index})
    start = b"" if dialect == "openai" else events(own("anthropic-text.sse"))[0]
    return start + b"".join(framed(f) for f in frames)


def framed(frame: Json) -> bytes:
    named = f"event: {frame['type']}\n" if "type" in frame else ""
    return f"{named}data: {json.dumps(frame)}\n\n".encode()


def has_error(client: DialectName, data: bytes) -> bool:
    """Is a client told of an error?"""
    return (b"event: response.failed\n" if client == "responses" else b'"error"') in data


@pytest.mark.case("U3")
@crossed
def test_u3_a_cut_in_the_arguments_releases_no_part_of_the_call(
    client: DialectName, provider: DialectName
) -> None:
    pieces = events(three_calls(provider))
    for count in range(2, len(pieces)):
        came = b"".join(pieces[:count])
        answer = Answer(provider, client, policies=[Noop()]).feed(came)
        said = answer.data
        # a call is whole when its block has ended, in chat/completions when the answer has: its
        # calls may be interleaved
        whole = came.count(b"event: content_block_stop")
        for word in WORDS[:whole]:
            # Responses says it in a delta, at the end of the arguments and of the item, and in the
            # last event
            assert said.count(f"{word}-".encode()) == 5 * (4 if client == "responses" else 1), (
                count,
                said,
            )
        assert not [
            w for w in WORDS[whole:] if w[:3].encode() in said or w[-3:].encode() in said
        ], (count, said)
        assert (
            has_error(client, said)
            and b"[DONE]" not in said
            and b"message_stop" not in said
            and b"response.completed" not in said
        )


NAMED: list[tuple[list[dict[str, str]], list[str]]] = [
    ([{"arguments": "{}"}, {"name": "bash", "arguments": ""}], ["bash"]),
    ([{"name": "bash", "arguments": "{"}, {"name": "bash", "arguments": "}"}], ["bash"]),
    # two names, or one in two parts: nobody knows which of them a client would take
    ([{"name": "read", "arguments": "{"}, {"name": "bash", "arguments": "}"}], []),
    ([{"name": "ba", "arguments": ""}, {"name": "sh", "arguments": "{}"}], []),
]


@pytest.mark.case("J7")
@pytest.mark.parametrize(("fragments", "names"), NAMED)
@pytest.mark.parametrize("client", CLIENTS)
def test_j7_a_call_is_decided_by_its_one_name(
    client: DialectName, fragments: list[dict[str, str]], names: list[str]
) -> None:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    calls = [{"index": 0, "id": "call_1", "type": "function", "function": f} for f in fragments]
    rows = [
        {**head, "choices": [{"index": 0, "delta": {"tool_calls": [c]}, "finish_reason": None}]}
        for c in calls
    ]
    rows.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    watch = Watch()
    answer = Answer("openai", client, policies=[watch]).feed(
        b"".join(framed(r) for r in rows) + b"data: [DONE]\n\n"
    )
    assert [name for name, _, _ in watch.calls] == names
    assert (b'"bash"' in answer.data, has_error(client, answer.data)) == (bool(names), not names)
    assert b'"read"' not in answer.data and b'"ba"' not in answer.data


# --- much in little pieces ---


def text_of(dialect: DialectName, letters: str) -> bytes:
    """A whole stream with one delta a letter."""
    if dialect == "openai":
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
        rows = [
            {**head, "choices": [{"index": 0, "delta": {"content": c}, "finish_reason": None}]}
            for c in letters
        ]
        rows.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        return b"".join(framed(r) for r in rows) + b"data: [DONE]\n\n"
    frames: list[Json] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    ]
    frames += [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": c}}
        for c in letters
    ]
    return anthropic_stream(frames, "end_turn")


def anthropic_stream(frames: list[Json], stop: str) -> bytes:
    frames = [
        *frames,
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    return events(own("anthropic-text.sse"))[0] + b"".join(framed(f) for f in frames)


def arguments_of(dialect: DialectName, arguments: str, deltas: int) -> bytes:
    """A whole stream with one tool call whose arguments come in `deltas` pieces."""
    size = -(-len(arguments) // deltas)
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    if dialect == "anthropic":
        block = {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {}}
        frames: list[Json] = [{"type": "content_block_start", "index": 0, "content_block": block}]
        frames += [
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": p},
            }
            for p in pieces
        ]
        return anthropic_stream(frames, "tool_use")
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    calls: list[Json] = [
        {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "write", "arguments": ""},
        }
    ]
    calls += [{"index": 0, "function": {"arguments": p}} for p in pieces]
    rows = [
        {**head, "choices": [{"index": 0, "delta": {"tool_calls": [c]}, "finish_reason": None}]}
        for c in calls
    ]
    rows.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(framed(r) for r in rows) + b"data: [DONE]\n\n"


def cpu_s(product: Product) -> float:
    """The processor time that gateway and policy worker have used."""
    ticks = 0
    for child in (*product.of("gateway"), *product.of("policy")):
        fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def peaks_mb(product: Product, *, reset: bool = False) -> dict[str, float]:
    """The most memory that each process had since the last reset."""
    peaks: dict[str, float] = {}
    for role in ROLES:
        (child,) = product.of(role)
        if reset:
            Path(f"/proc/{child.pid}/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
        assert found is not None
        peaks[role] = int(found[1]) / 1024
    return peaks


def said_of(client: DialectName, got: Got) -> str:
    """The text of an answer."""
    if client == "openai":
        return "".join(
            f["choices"][0]["delta"].get("content") or "" for f in got.frames if f["choices"]
        )
    return "".join(
        f["delta"].get("text", "") for f in got.frames if f["type"] == "content_block_delta"
    )


def releases_of(product: Product, call_id: str) -> int:
    """How many releases of a call are on record."""
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM releases WHERE call_id = %s", (call_id,)
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
@pytest.mark.case("U8")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_u8_ten_thousand_deltas_of_one_letter(
    place: Place, dialect: DialectName, figure: Figure
) -> None:
    product, upstream = place
    letters = "".join(chr(97 + (n * 7 + n // 26) % 26) for n in range(10_000))
    used: dict[int, float] = {}
    for count in (500, 2_500, 10_000):  # the first warms up
        upstream.answer(stream(text_of(dialect, letters[:count])))
        before, start = peaks_mb(product, reset=True), cpu_s(product)
        got = ask(product, dialect, dialect)
        used[count] = cpu_s(product) - start
        grown = {role: peak - before[role] for role, peak in peaks_mb(product).items()}
        assert said_of(dialect, got) == letters[:count]
        call = call_of(product, got.session)
        assert call["reason"] == "complete"
        assert releases_of(product, call["call_id"]) < count / 4
        assert max(grown.values()) < 60, grown
    # linear is 4
    assert used[10_000] < 8 * max(used[2_500], 0.1), used
    figure(f"CPU of gateway and worker ({dialect})", used[10_000], "s")


@pytest.mark.slow
@pytest.mark.case("U9")
@pytest.mark.parametrize(
    ("policy", "verdict", "reason"), [("default", "block", "too_large"), ("noop", "allow", "")]
)
@pytest.mark.parametrize("deltas", [1, 50_000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_u9_five_megabytes_of_arguments(
    place: Place,
    dialect: DialectName,
    deltas: int,
    policy: str,
    verdict: str,
    reason: str,
    figure: Figure,
) -> None:
    product, upstream = place
    arguments = json.dumps({"text": "abcdefghi " * 500_000})
    upstream.answer(stream(arguments_of(dialect, arguments, deltas)))
    before, start = peaks_mb(product, reset=True), cpu_s(product)
    got = ask(product, dialect, dialect, policy=policy)
    call = call_of(product, got.session)
    used = cpu_s(product) - start
    grown = {role: peak - before[role] for role, peak in peaks_mb(product).items()}
    (tool_call,) = product.audit("tool-calls", call_id=call["call_id"])["items"]
    assert (tool_call["verdict"], tool_call["reason"] or "") == (verdict, reason)
    assert tool_call["arguments"] == arguments
    released = b"abcdefghi abcdefghi " in got.body
    assert released == (verdict == "allow")
    assert len(got.body) < (2 * len(arguments) if released else 10_000)
    # 5 MB are held: 13 to 61 MB in a policy worker. An audit writer has chunk, release and both
    # arguments as entry, records, columns and in libpq's buffer: 33 MB where they come in several
    # batches, 104 where they come in one
    assert grown["policy"] < 80 and max(grown.values()) < 130, grown
    if dialect == "openai":
        figure(
            f"in {deltas} deltas ({verdict}): most growth of a process", max(grown.values()), "MB"
        )
        figure(f"in {deltas} deltas ({verdict}): CPU of gateway and worker", used, "s")


# --- another form ---


@functools.cache
def bomb_of(ratio: int) -> bytes:
    """What opens past the ratio at once, or below it and past `output_bytes`."""
    unlike = (random.Random(number).randbytes(300) for number in range(700))
    plain = b" " * 2**20 if ratio == 1000 else b"".join(each + b" " * 60_000 for each in unlike)
    bomb = gzip.compress(plain, 6)
    assert ratio / 1.2 < len(plain) / len(bomb) < ratio * 1.2
    return bomb


@pytest.mark.case("U10")
@crossed
def test_u10_json_for_a_stream_and_a_stream_for_json(
    place: Place, client: DialectName, provider: DialectName
) -> None:
    product, upstream = place
    for streams, reply in (
        (True, Reply(b'{"id":"x","choices":[]}')),
        (False, stream(own(TEXTS[provider]))),
    ):
        upstream.answer(reply)
        got = ask(product, client, provider, streams=streams)
        call = call_of(product, got.session)
        whole = got.status == 200 and not got.failed()
        assert call["state"] == ("ENDED" if whole else "FAILED"), got.body
        assert recorded_bytes(product, call["call_id"]) == reply.body
        assert len(upstream.asked) == 1


@pytest.mark.case("U10")
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("ratio", [1000, 160])
def test_u10_a_gzip_bomb_is_opened_to_its_bound(
    place: Place, dialect: DialectName, content_type: str, ratio: int
) -> None:
    product, upstream = place
    bomb = bomb_of(ratio)
    upstream.answer(Reply(bomb, content_type=content_type, headers={"content-encoding": "gzip"}))
    before = peaks_mb(product, reset=True)
    got = ask(product, dialect, dialect, streams=content_type != "application/json")
    assert got.failed(), got.body
    assert call_of(product, got.session)["state"] == "FAILED"
    assert upstream.asked[0].headers["accept-encoding"] == "identity"
    grown = {role: peak - before[role] for role, peak in peaks_mb(product).items()}
    assert max(grown.values()) < 50, grown
