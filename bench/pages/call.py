"""The page of large calls: how long the server takes, how much HTML it makes, and how much memory
that takes.

`python -m bench.pages.call URL` fills an empty, migrated database with calls as large as they may
be, and asks for their pages; the largest is measured against its bounds. Without a URL it starts a
PostgreSQL of its own (`sluice[local]`).
"""

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from db.migrations.migrate import upgrade
from db.write.insert import AuditInserter
from protocol.records import (
    BlockRecord,
    ChunksRecord,
    EndRecord,
    JudgementRecord,
    Record,
    ReleaseRecord,
    ToolCallRecord,
    ToolReleaseRecord,
)
from tests.support.checks.record import call_id, call_record, now_ms
from tests.support.servers.asked import pages_of
from tests.support.servers.product import base_config
from tests.support.servers.stores_shared import postgres_server

P95_MS, HTML_BYTES, RSS_BYTES = 150.0, 100_000, 200 * 2**20
ROUNDS = 40


def frame(value: dict[str, Any]) -> bytes:
    """An event of a streamed answer."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def long_call(call: str, *, chunks: int = 10_000, tools: int = 200) -> Iterator[Record]:
    """A call of so many chunks and tool calls: text before each call, every tenth is blocked by a
    judge."""
    yield call_record(call, dialect="anthropic", upstream="demo", session="large")
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "usage": usage,
    }
    raw, verdicts, blocks = [frame({"type": "message_start", "message": start})], ["allow"], [-1]
    each = max(1, (chunks - 1 - tools * 7) // tools)
    for tool in range(tools):
        text, use = 2 * tool, 2 * tool + 1
        deltas = [{"type": "text_delta", "text": f"word {n} "} for n in range(each)]
        for index, begin, said, verdict in (
            (text, {"type": "text", "text": ""}, deltas, "allow"),
            (
                use,
                {"type": "tool_use", "id": f"toolu_{tool}", "name": "bash", "input": {}},
                _arguments(tool),
                "hold",
            ),
        ):
            frames = [
                frame({"type": "content_block_start", "index": index, "content_block": begin})
            ]
            frames += [
                frame({"type": "content_block_delta", "index": index, "delta": delta})
                for delta in said
            ]
            frames.append(frame({"type": "content_block_stop", "index": index}))
            raw += frames
            verdicts += [verdict] * len(frames)
            blocks += [index] * len(frames)
        yield BlockRecord(
            call_id=call,
            block=text,
            at=now_ms(),
            kind="text",
            verdict="allow",
            reason="",
            policy="",
        )
        yield from _decided(call, use, tool)
    yield ChunksRecord(call_id=call, seq=1, at=now_ms(), raw=raw, verdicts=verdicts, blocks=blocks)  # type: ignore[arg-type]
    for number, seq in enumerate(range(2, len(raw), 2)):
        payload = raw[seq]
        digest = sha256(payload).digest()
        yield ReleaseRecord(
            call_id=call,
            number=number,
            number_next=number + 1,
            at=now_ms(),
            seq=seq,
            payload=payload,
            sha256=digest,
        )
    yield EndRecord(
        call_id=call,
        at=now_ms() + 9_000,
        state="ENDED",
        reason="complete",
        status=200,
        relayed=len(raw),
    )


def _arguments(tool: int) -> list[dict[str, Any]]:
    text = json.dumps(
        {"command": f"grep -rn needle_{tool} /srv/app/module_{tool % 17} | head -{tool}"}
    )
    return [
        {"type": "input_json_delta", "partial_json": text[at : at + 20]}
        for at in range(0, len(text), 20)
    ]


def _decided(call: str, block: int, tool: int) -> Iterator[Record]:
    arguments = "".join(one["partial_json"] for one in _arguments(tool)).encode()
    is_blocked = tool % 10 == 0
    yield ToolCallRecord(
        call_id=call,
        block=block,
        index=tool,
        at=now_ms() + 20,
        tool_call_id=f"toolu_{tool}",
        name="bash",
        arguments=arguments,
        released_arguments=None if is_blocked else arguments,
        executor="client",
        form="native",
        verdict="block" if is_blocked else "allow",
        reason="judge" if is_blocked else "",
        policy="tool_judge",
    )
    yield ToolReleaseRecord(call_id=call, block=block, at=now_ms() + 25)
    yield JudgementRecord(
        call_id=call,
        block=block,
        step=0,
        at=now_ms() + 18,
        model="demo-judge",
        policy="tool_judge",
        probability=0.9 if is_blocked else 0.1,
        threshold=0.6,
        explanation="because",
        prompt=b"p" * 4_000,
        reply=b"{}" * 100,
        latency_ms=12,
        attempts=1,
    )


def large_arguments(call: str, size: int = 5 * 2**20) -> Iterator[Record]:
    """A call with one tool call of 5 MB, in one line."""
    arguments = json.dumps({"content": "x" * size}).encode()
    yield call_record(call, dialect="anthropic", upstream="demo", session="large")
    yield ToolCallRecord(
        call_id=call,
        block=0,
        index=0,
        at=now_ms(),
        tool_call_id="toolu",
        name="write",
        arguments=arguments,
        released_arguments=arguments,
        executor="client",
        form="native",
        verdict="allow",
        reason="",
        policy="",
    )
    pieces = [arguments[at : at + 2**16].decode() for at in range(0, len(arguments), 2**16)]
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "usage": usage,
    }
    tool = {"type": "tool_use", "id": "toolu", "name": "write", "input": {}}
    raw = [
        frame({"type": "message_start", "message": start}),
        frame({"type": "content_block_start", "index": 0, "content_block": tool}),
    ]
    raw += [
        frame(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
        )
        for piece in pieces
    ]
    raw.append(frame({"type": "content_block_stop", "index": 0}))
    yield ChunksRecord(
        call_id=call,
        seq=1,
        at=now_ms(),
        raw=raw,
        verdicts=["hold"] * len(raw),
        blocks=[-1] + [0] * (len(raw) - 1),
    )
    payload = b"".join(raw)
    yield ReleaseRecord(
        call_id=call,
        number=0,
        number_next=1,
        at=now_ms(),
        seq=len(raw),
        payload=payload,
        sha256=sha256(payload).digest(),
    )
    yield EndRecord(
        call_id=call, at=now_ms() + 9_000, state="ENDED", reason="complete", status=200, relayed=1
    )


def large_body(size: int = 16 * 2**20) -> bytes:
    """A request of 16 MB: many turns."""
    turns = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": "word " * 2_000}
        for n in range(size // 10_050)
    ]
    return json.dumps({"model": "demo", "max_tokens": 5, "messages": turns}).encode()


async def fill(url: str) -> dict[str, str]:
    """Put them on record; returns their ids."""
    calls = {
        name: call_id(now_ms() + n) for n, name in enumerate(("long", "tools", "arguments", "body"))
    }
    async with AuditInserter(url) as inserter:
        for name, records in (
            ("long", long_call(calls["long"])),
            ("tools", long_call(calls["tools"], chunks=20_000, tools=2_000)),
            ("arguments", large_arguments(calls["arguments"])),
        ):
            listed = list(records)
            for at in range(0, len(listed), 500):
                await inserter.insert(listed[at : at + 500], {calls[name]: b"{}"})
        body: list[Record] = [call_record(calls["body"], dialect="anthropic", upstream="demo")]
        await inserter.insert(body, {calls["body"]: large_body()})
    return calls


async def measure(url: str) -> dict[str, Any]:
    """Fill and ask; returns figures by page."""
    calls = await fill(url)
    found: dict[str, Any] = {}
    async with pages_of(url, base_config()) as pages:
        await pages.page(f"/debug/calls/{calls['long']}")
        before = _rss()
        for name, path, rounds in (
            ("story of 10,000 chunks and 200 tool calls", f"{calls['long']}", ROUNDS),
            ("its second page", f"{calls['long']}?page=2", 10),
            ("its wire", f"{calls['long']}/wire?seq=5000", 10),
            ("its diff", f"{calls['long']}/diff", 3),
            ("2,000 tool calls", f"{calls['tools']}", 10),
            ("5 MB of arguments", f"{calls['arguments']}", 10),
            ("their diff", f"{calls['arguments']}/diff?all=1", 3),
            ("a body of 16 MB", f"{calls['body']}/request", 3),
        ):
            times, size, cpu = [], 0, time.process_time()
            for _ in range(rounds):
                began = time.perf_counter()
                shown = await pages.page(f"/debug/calls/{path}")
                times.append(1000 * (time.perf_counter() - began))
                size = len(shown.html.encode())
            ranked = sorted(times)
            found[name] = {
                "p50_ms": statistics.median(times),
                "p95_ms": ranked[int(0.95 * (len(ranked) - 1))],
                "html": size,
            }
            found[name]["cpu_ms"] = 1000 * (time.process_time() - cpu) / rounds
        for name in ("long", "arguments", "body"):
            began, size = time.perf_counter(), 0
            answer, _ = await pages.answer(f"/debug/calls/{calls[name]}/text")
            async for piece in answer.pieces:  # type: ignore[union-attr]
                size += len(piece)
            found[f"text of {name}"] = {
                "p50_ms": 1000 * (time.perf_counter() - began),
                "p95_ms": 0.0,
                "html": size,
                "cpu_ms": 0.0,
            }
        found["memory"] = {"before": before, "most": _rss()}
    return found


def _rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """Print the figures; 1 where one is past its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?")
    url = parser.parse_args().url
    if url is not None:
        return report(asyncio.run(measure(url)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with postgres_server(Path(folder)) as own:
            upgrade(own)
            return report(asyncio.run(measure(own)))


def report(found: dict[str, Any]) -> int:
    """Print one line a page; returns the exit code."""
    memory = found.pop("memory")
    for name, one in found.items():
        print(
            f"{name:45} p50 {one['p50_ms']:8.1f} ms  p95 {one['p95_ms']:8.1f} ms  CPU"
            f" {one['cpu_ms']:7.1f} ms  {one['html']:>12,} bytes"
        )
    print(
        f"memory: {memory['before'] / 2**20:.0f} MB before, {memory['most'] / 2**20:.0f} MB at most"
    )
    bounded = found["story of 10,000 chunks and 200 tool calls"]
    return int(
        bounded["p95_ms"] > P95_MS or bounded["html"] > HTML_BYTES or memory["most"] > RSS_BYTES
    )


if __name__ == "__main__":
    sys.exit(main())
