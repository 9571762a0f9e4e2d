"""The page of a call through the product: what the demo's calls were asked, what was decided, and what the client got."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import httpx2 as httpx
import pytest

from tests.support.servers.asked import Pages, Shown, pages_of
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.waiting import wait_for

Made = TypeVar("Made")
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": "bash", "description": "Runs a command.", "input_schema": TOOL},
    {"name": "get_weather", "description": "The weather.", "input_schema": CITY},
]
RULES = [
    {"name": "no-deletes", "tool": "bash", "argument_matches": "rm -rf", "reason": "destructive"},
    {"name": "not-tokyo", "tool": "get_weather", "argument_matches": "Tokyo", "decision": "replace", "arguments": {"city": "Oslo"}},
]


def configuration() -> dict[str, Any]:
    """A series by rules, one with a judge, and one that changes text."""
    base = base_config()
    base["policies"] = {
        "rules": [{"use": "tool_rules", "deny": RULES}],
        "judged": [{"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}],
        "upper": [{"use": "uppercase"}],
    }
    for key in base["keys"]:
        key["policies"] = list(base["policies"])
    return base


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Iterator[Product]:
    with running(tmp_path_factory.mktemp("product"), redis_url, database_url, configuration()) as made:
        yield made


@pytest.fixture(scope="module")
def made(product: Product) -> dict[str, str]:
    """The calls of the demo, by name: their ids, once their ends are sealed."""
    ids = {
        "mixed": said(product, "list the files, then weather in Paris and Tokyo, then delete everything with rm -rf", "rules"),
        "judged": said(product, "delete everything with rm -rf", "judged"),
        "upper": said(product, "hello", "upper", stream=False),
        "plain": said(product, "think, then say long 40", "rules"),
        "failed": said(product, "fail in the middle", "rules"),
    }
    wait_for(lambda: all(product.audit(f"calls/{one}")["state"] != "ACTIVE" for one in ids.values()), timeout_s=20)
    return ids


def said(product: Product, text: str, policy: str, *, stream: bool = True) -> str:
    """Ask the demo in the Messages dialect; returns the call's id."""
    body = {"model": "demo", "max_tokens": 500, "stream": stream, "tools": TOOLS, "messages": [{"role": "user", "content": text}]}
    headers = {"x-api-key": KEY, "x-sluice-policy": policy, "x-sluice-session": "s-1", "anthropic-version": "2023-06-01"}
    answer = httpx.post(f"{product.url}/v1/messages", json=body, headers=headers, timeout=20)
    return str(answer.headers["x-sluice-call-id"])


def ask(product: Product, work: Callable[[Pages], Awaitable[Made]]) -> Made:
    """Ask the pages of the product's record."""

    async def run() -> Made:
        async with pages_of(product.database_url, configuration()) as pages:
            return await work(pages)

    return asyncio.run(run())


def page(product: Product, url: str) -> Shown:
    return ask(product, lambda pages: pages.page(url))


def test_each_outcome_is_told_in_words(product: Product, made: dict[str, str]) -> None:
    shown = page(product, f"/debug/calls/{made['mixed']}")
    rows = shown.values["rows"]
    assert [(row["name"] or row["kind"], row["word"], row["sentence"], row["rule"]) for row in rows] == [
        ("text", "allowed", "released, unchanged", ""),
        ("bash", "BLOCKED", "asked for, never released", "no-deletes"),
        ("get_weather", "allowed", "asked for, released unchanged", ""),
        ("get_weather", "REPLACED", "asked for, released with other arguments", "not-tokyo"),
    ]
    assert rows[1]["got"]["text"].startswith("[Sluice did not let the tool call 'bash' run")
    signs = ["".join(part["text"] for part in line["parts"]) for line in rows[3]["changes"]["lines"] if line["sign"] != " "]
    assert [sign.strip() for sign in signs] == ['"city": "Tokyo"', '"city": "Oslo"']
    assert "<del>Tokyo</del>" in shown.html and "<ins>Oslo</ins>" in shown.html and 'id="b1"' in shown.html
    assert shown.page.title == f"blocked bash · {made['mixed'][:8]}"


def test_a_judges_block_says_by_which_judge_and_why(product: Product, made: dict[str, str]) -> None:
    shown = page(product, f"/debug/calls/{made['judged']}")
    row = next(row for row in shown.values["rows"] if row["name"] == "bash")
    [step] = row["steps"]
    assert (row["word"], row["by"], step["model"], step["reached"]) == ("BLOCKED", "judge", "demo-judge", True)
    assert step["prompt"]["text"] and step["reply"]["text"] and "deletes" in step["explanation"]
    assert "demo-judge" in shown.html and "Was the judge right?" in shown.html


def test_changed_text_and_a_failed_answer_have_both_sides(product: Product, made: dict[str, str]) -> None:
    [upper] = page(product, f"/debug/calls/{made['upper']}").values["rows"]
    assert upper["got"]["text"] == upper["text"]["text"].upper()
    failed = page(product, f"/debug/calls/{made['failed']}").values
    assert "what came of it was released" in failed["rows"][0]["sentence"] and failed["failed"]
    assert failed["call"]["state"] == "FAILED"


def test_thinking_has_a_row_of_its_own_kind(product: Product, made: dict[str, str]) -> None:
    rows = page(product, f"/debug/calls/{made['plain']}").values["rows"]
    assert [row["kind"] for row in rows] == ["thinking", "text"]


def test_one_block_its_bytes_and_the_export(product: Product, made: dict[str, str]) -> None:
    base = f"/debug/calls/{made['mixed']}"
    assert page(product, f"{base}/blocks/1").values["row"]["word"] == "BLOCKED"
    assert ask(product, lambda pages: pages.file(f"{base}/blocks/1/raw?of=arguments")) == b'{"command": "rm -rf /"}'
    lines = ask(product, lambda pages: pages.file(f"{base}/export")).splitlines()
    assert json.loads(lines[-1]) == {"type": "export_end", "calls": 1, "lines": len(lines) - 1}
    body = json.loads(ask(product, lambda pages: pages.file(f"{base}/request/raw")))
    assert body["model"] == "demo"


def test_calls_of_a_session_are_linked(product: Product, made: dict[str, str]) -> None:
    call = page(product, f"/debug/calls/{made['judged']}").values["call"]
    assert (call["before"], call["next"], call["session"]) == (made["mixed"], made["upper"], "s-1")
