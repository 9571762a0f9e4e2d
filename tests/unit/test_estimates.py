"""Estimates of input tokens for upstreams that do not count."""

import base64
from typing import Any

import pytest

from protocol.request import DialectName
from protocol.usage.estimates import estimate_tokens
from tests.support.json_values import Json
from tests.support.request_codecs import read_request

TURN = 4


def estimate(content: Any, dialect: DialectName = "anthropic", **changes: Any) -> int:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]} | changes
    return estimate_tokens(read_request(dialect, body)) - TURN


def png(width: int, height: int) -> str:
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
        + width.to_bytes(4, "big")
        + height.to_bytes(4, "big")
    ).decode()


def image(data: str) -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def document(source: Json) -> Json:
    return {"type": "document", "source": source}


GIF = base64.b64encode(
    b"GIF89a" + (75).to_bytes(2, "little") + (100).to_bytes(2, "little")
).decode()


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (image(png(750, 100)), 101),
        (image(png(9000, 9000)), 1500),
        (image(GIF), 11),
        (image("iVBORw0K"), 1500),
        (image("R0lGODlh"), 1500),
        (image("x"), 1500),
        (image(base64.b64encode(b"\xff\xd8\xff").decode()), 1500),
        ({"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}, 1500),
        (document({"type": "text", "media_type": "text/plain", "data": "x" * 350}), 100),
        (document({"type": "text", "data": "x" * 350}), 100),
        (
            document({"type": "base64", "media_type": "application/pdf", "data": "A" * 400_000}),
            12_000,
        ),
        (document({"type": "base64", "media_type": "application/pdf", "data": "JVBE"}), 1500),
        (document({"type": "url", "url": "https://x.example/a.pdf"}), 1500),
        (document({"type": "odd", "media_type": 7, "data": 7}), 1500),
        ({"type": "tool_result", "tool_use_id": "t", "content": [image(png(750, 100))]}, 103),
        ({"type": "thinking", "thinking": "x" * 9000, "signature": "s"}, 0),
    ],
)
def test_what_is_no_text_counts_by_its_size(block: Json, expected: int) -> None:
    assert estimate([block]) == expected


def test_parts_of_chat_completions_count_alike() -> None:
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png(750, 100)}"}}
    assert estimate([url], "openai") == 101
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64," + "A" * 400_000}}
    assert estimate([file], "openai") == 12_000
    assert estimate([{"type": "file", "file": {"file_id": "f"}}], "openai") == 1500


def test_tools_count_by_their_definitions() -> None:
    function = {"name": "f", "description": "d" * 350, "input_schema": {"type": "object"}}
    assert 350 + 100 < estimate("", tools=[function]) < 350 + 115
    assert estimate("", tools=[{"type": "web_search_20250305", "name": "web_search"}]) == 350 + 600
    assert 350 + 80 < estimate("", tools=[{"type": "bash_20250124", "name": "bash"}]) < 350 + 300
    answer = {"format": {"type": "json_schema", "schema": {"description": "x" * 350}}}
    assert 100 < estimate("", output_config=answer) < 110


def test_sealed_results_cost_what_is_shown_of_them() -> None:
    found = {"title": "t" * 350, "encrypted_content": "y" * 9000, "page_age": None}
    block = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]}
    assert 100 < estimate([block]) < 110
