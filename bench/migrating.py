"""Migrations of a large record while writers write: how long each takes, and how long a commit had to wait for it at most."""

import asyncio
import os
import threading
import time
import uuid
from typing import Any

from db.migrations.migrate import downgrade, upgrade
from db.migrations.place import newest
from db.write.insert import AuditInserter
from protocol.records import BlockRecord, CallRecord, ChunksRecord, EndRecord, JudgementRecord, Record, ToolCallRecord

QUIET_S = 5.0


def call_of_now() -> list[Record]:
    """Records of every table that has an index of its own, for a call that begins now."""
    at, tail = int(time.time() * 1000), os.urandom(10)
    call = str(uuid.UUID(bytes=at.to_bytes(6, "big") + bytes([0x70 | tail[0] & 15, tail[1], 0x80 | tail[2] & 63]) + tail[3:]))
    return [
        CallRecord(
            call_id=call, at=at, dialect="openai", endpoint="chat", key="bench", session="bench", model="bench", upstream="up",
            policy="default", policy_revision="r", stream=True, gateway="g",
        ),
        ChunksRecord(call_id=call, seq=1, at=at, raw=[b"data: {}"] * 20, verdicts=["allow"] * 20, blocks=[0] * 20),
        BlockRecord(call_id=call, block=0, at=at, kind="text", verdict="allow", reason="", policy=""),
        ToolCallRecord(
            call_id=call, block=1, index=0, at=at, tool_call_id=f"call_{call}", name="bash", arguments=b'{"command": "ls"}',
            released_arguments=None, executor="client", form="native", verdict="block", reason="a rule", policy="tool_judge",
        ),
        JudgementRecord(
            call_id=call, block=1, step=0, at=at, model="judge", policy="tool_judge", probability=0.9, threshold=0.6, explanation="",
            prompt=b"", reply=b"", latency_ms=1, attempts=1,
        ),
        EndRecord(call_id=call, at=at, state="ENDED", reason="complete", status=200),
    ]  # fmt: skip


class Writer(threading.Thread):
    """Commits a call after the other, and knows how long the slowest commit took since it was last asked."""

    def __init__(self, url: str) -> None:
        super().__init__(name="writer", daemon=True)
        self._url, self._ended = url, threading.Event()
        self._took: list[float] = []
        self._began = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write until ended."""
        try:
            asyncio.run(self._write())
        except BaseException as error:
            self.error = error
            raise

    async def _write(self) -> None:
        async with AuditInserter(self._url) as inserter:
            while not self._ended.is_set():
                began = time.monotonic()
                assert not await inserter.insert(call_of_now(), {})
                self._took.append(time.monotonic() - began)

    def take(self) -> dict[str, Any]:
        """Return commits and their milliseconds since the last time."""
        if self.error is not None:
            raise self.error
        took, self._took = self._took, []
        found = sorted(took)
        return {"commits": len(found), "p50_ms": found[len(found) // 2] * 1000, "longest_ms": found[-1] * 1000} if found else {"commits": 0}

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join(60)


def migrate(url: str) -> list[dict[str, Any]]:
    """Take the database to the newest revision, down to the first and up again, step by step."""
    revisions = [f"{number:04}" for number in range(1, int(newest()) + 1)]
    steps = [("up", revisions[-1])]
    steps += [("down", revision) for revision in revisions[-2::-1]] + [("up", revision) for revision in revisions[1:]]
    writers = [Writer(url), Writer(url)]
    for writer in writers:
        writer.start()
    found = []
    try:
        time.sleep(QUIET_S)
        found.append({"step": "quiet", "s": QUIET_S, **_all(writers)})
        for way, revision in steps:
            began = time.monotonic()
            (downgrade if way == "down" else upgrade)(url, revision)
            found.append({"step": f"{way} to {revision}", "s": time.monotonic() - began, **_all(writers)})
    finally:
        for writer in writers:
            writer.end()
    return found


def _all(writers: list[Writer]) -> dict[str, Any]:
    # a commit that waits now belongs to the step that just ended
    time.sleep(0.5)
    taken = [writer.take() for writer in writers]
    return {
        "commits": sum(one["commits"] for one in taken),
        "p50_ms": max(one.get("p50_ms", 0.0) for one in taken),
        "longest_ms": max(one.get("longest_ms", 0.0) for one in taken),
    }
