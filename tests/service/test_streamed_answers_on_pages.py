"""A streamed answer is shown like one that came whole: what is shown depends on its content, not on
its pieces."""

import asyncio
import json
from typing import Any

import pytest

from pages.call.story import BUDGET_OF_FEW
from protocol.records import BlockRecord, EndRecord, Record
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    call_record,
    chunks_record,
    now_ms,
    release_record,
    tool_call_record,
)
from tests.support.json_values import Json
from tests.support.servers.asked import ask
from tests.support.servers.product import base_config

NOTICE = "[Sluice: the tool call 'bash' was blocked]"


def delta(**said: Any) -> bytes:
    """A chunk of a streamed answer of chat/completions."""
    choice = {"index": 0, "delta": said, "finish_reason": None}
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


def streamed(call: str, words: list[str]) -> list[Record]:
    """A text in as many chunks as it has words, each released by itself; then a tool call that was
    blocked, and the notice."""
    texts = [delta(role="assistant", content=""), *(delta(content=word) for word in words)]
    begun = {
        "index": 0,
        "id": "t",
        "type": "function",
        "function": {"name": "bash", "arguments": '{"command": "ls"}'},
    }
    releases: list[Record] = [
        release_record(call, raw, number=n + 1, seq=n + 1) for n, raw in enumerate(texts)
    ]
    releases.append(
        release_record(call, delta(content=NOTICE), number=len(texts) + 1, seq=len(texts) + 1)
    )
    return [
        call_record(call),
        chunks_record(call, texts),
        chunks_record(
            call, [delta(tool_calls=[begun])], seq=len(texts) + 1, verdict="hold", block=1
        ),
        *releases,
        BlockRecord(
            call_id=call, block=0, at=now_ms(), kind="text", verdict="allow", reason="", policy=""
        ),
        tool_call_record(call),
        EndRecord(
            call_id=call,
            at=now_ms(),
            state="ENDED",
            reason="complete",
            status=200,
            relayed=len(texts) + 2,
        ),
    ]


def rows_of(url: str, path: str) -> tuple[list[Json], str]:
    shown = ask(url, base_config(), lambda pages: pages.page(path))
    return shown.values.get("rows") or [shown.values["row"]], shown.html


def test_an_answer_of_thousands_of_chunks_is_on_its_page_whole_with_what_the_client_got(
    url: str,
) -> None:
    call, words = call_id(), [f"word{n} " for n in range(3_000)]
    asyncio.run(insert(url, *streamed(call, words)))
    [text, tool], html = rows_of(url, f"/debug/calls/{call}")
    assert (
        text["text"]["text"] == "".join(words)
        and not text["text"]["cut"]
        and text["characters"] == len("".join(words))
    )
    assert text["chunks"] == 3_001 and text["sentence"] == "released, unchanged"
    assert tool["got"]["text"] == NOTICE
    assert "word2999" in html and "The first" not in html


def test_past_what_a_page_holds_it_says_how_much_there_is_in_characters(url: str) -> None:
    call, words = call_id(), ["x" * 39 + " "] * 2_000
    asyncio.run(insert(url, *streamed(call, words)))
    [text, _], html = rows_of(url, f"/debug/calls/{call}")
    assert text["text"]["first"] == BUDGET_OF_FEW // 2 and text["text"]["length"] == 80_000
    assert "The first 32,000 characters of 80,000" in html
    [alone], html = rows_of(url, f"/debug/calls/{call}/blocks/0")
    assert alone["text"]["first"] == BUDGET_OF_FEW
    # it leads to all of it, and not to itself
    assert f'href="/debug/calls/{call}/text"' in html and ">More</a>" not in html


def test_of_a_call_past_what_is_decoded_each_block_has_its_share_of_bytes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, words = call_id(), [f"word{n} " for n in range(900)]
    for module in ("db.read.call.story", "pages.views.call_sides"):
        monkeypatch.setattr(f"{module}.MOST_BYTES", 100_000)
    asyncio.run(insert(url, *streamed(call, words)))
    [text, _], html = rows_of(url, f"/debug/calls/{call}")
    # 100,000 bytes are some 650 of these chunks
    assert (
        500 < len(text["text"]["text"].split()) < 900
        and text["text"]["cut"]
        and text["text"]["length"] is None
    )
    assert "all as plain text" in html
