"""The page of a call through the product: what the demo's calls were asked, what was decided, and
what the client got."""

import json
from collections.abc import Awaitable, Callable, Iterator

import httpx2 as httpx
import pytest

from pages.render import short
from protocol.errors import InvalidRequest, NotFound
from tests.support.clients.agent import TOOLS
from tests.support.json_values import Json
from tests.support.servers.asked import Made, Pages, Shown
from tests.support.servers.asked import ask as ask_pages
from tests.support.servers.denied import RULES
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for


def configuration() -> Json:
    """A series by rules, one with a judge, and one that changes text."""
    base = base_config()
    base["policies"] = {
        "rules": [{"use": "tool_rules", "deny": RULES}],
        "judged": [{"use": "tool_judge", "model": "demo-judge", "threshold": 0.6}],
        "upper": [{"use": "uppercase"}],
        "scoped": [
            {
                "use": "tool_rules",
                "deny": [{"does": {"effects": ["delete"], "scope": ["root"]}}],
            }
        ],
    }
    for key in base["keys"]:
        key["policies"] = list(base["policies"])
    return base


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    with running(*stores, configuration()) as made:
        yield made


@pytest.fixture(scope="module")
def got() -> dict[str, bytes]:
    """What clients got, by call."""
    return {}


@pytest.fixture(scope="module")
def made(product: Product, got: dict[str, bytes]) -> dict[str, str]:
    """The calls of the demo, by name: their ids, once their ends are on record."""

    def said(text: str, policy: str, *, stream: bool = True) -> str:
        answer = ask_demo(product, text, policy, stream=stream)
        call = answer.headers["x-sluice-call-id"]
        got[call] = answer.content
        return call

    ids = {
        "mixed": said(
            "list the files, then weather in Paris and Tokyo, then delete everything with rm -rf",
            "rules",
        ),
        "judged": said("delete everything with rm -rf", "judged"),
        "upper": said("hello", "upper", stream=False),
        "scoped": said("delete everything with rm -rf", "scoped"),
        "plain": said("think, then say long 40", "rules"),
        "failed": said("fail in the middle", "rules"),
    }
    wait_for(
        lambda: all(product.audit(f"calls/{one}")["state"] != "ACTIVE" for one in ids.values()),
        timeout_s=20,
    )
    return ids


def ask_demo(product: Product, text: str, policy: str, *, stream: bool) -> httpx.Response:
    """Ask the demo in the Messages dialect."""
    body = {
        "model": "demo",
        "max_tokens": 500,
        "stream": stream,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": text}],
    }
    headers = {
        "x-api-key": KEY,
        "x-sluice-policy": policy,
        "x-sluice-session": "s-1",
        "x-sluice-project": "/srv/app, /",
        "anthropic-version": "2023-06-01",
    }
    return httpx.post(f"{product.url}/v1/messages", json=body, headers=headers, timeout=20)


def ask(product: Product, work: Callable[[Pages], Awaitable[Made]]) -> Made:
    return ask_pages(product.database_url, configuration(), work)


def page(product: Product, url: str) -> Shown:
    return ask(product, lambda pages: pages.page(url))


def test_the_project_is_on_record_where_a_policy_goes_by_it(
    product: Product, made: dict[str, str]
) -> None:
    events = {
        name: [
            event
            for event in product.audit(f"calls/{made[name]}")["events"]
            if event["kind"] == "project"
        ]
        for name in ("scoped", "mixed", "plain")
    }
    assert not events["mixed"] and not events["plain"]
    assert json.loads(events["scoped"][0]["detail"]) == {
        "source": "x-sluice-project",
        "roots": ["/srv/app"],
        "ignored": ["/: the root folder"],
    }
    shown = page(product, f"/debug/calls/{made['scoped']}")
    assert shown.values["call"]["project"]["roots"] == "/srv/app"


@pytest.mark.slow
def test_each_outcome_is_told_in_words(product: Product, made: dict[str, str]) -> None:
    shown = page(product, f"/debug/calls/{made['mixed']}")
    rows = shown.values["rows"]
    assert [
        (row["name"] or row["kind"], row["word"], row["sentence"], row["rule"]) for row in rows
    ] == [
        ("text", "allowed", "released, unchanged", ""),
        ("bash", "BLOCKED", "asked for, never released", "no-deletes"),
        ("get_weather", "allowed", "asked for, released unchanged", ""),
        ("get_weather", "REPLACED", "asked for, released with other arguments", "not-tokyo"),
    ]
    assert rows[1]["got"]["text"].startswith("[Sluice blocked the tool call 'bash'")
    signs = [
        "".join(part["text"] for part in line["parts"])
        for line in rows[3]["changes"]["lines"]
        if line["sign"] != " "
    ]
    assert [sign.strip() for sign in signs] == ['"city": "Tokyo"', '"city": "Oslo"']
    assert (
        "<del>Tokyo</del>" in shown.html
        and "<ins>Oslo</ins>" in shown.html
        and 'id="b1"' in shown.html
    )
    assert shown.page.title == f"blocked bash · {short(made['mixed'])}"


def test_a_judges_block_says_by_which_judge_and_why(product: Product, made: dict[str, str]) -> None:
    shown = page(product, f"/debug/calls/{made['judged']}")
    row = next(row for row in shown.values["rows"] if row["name"] == "bash")
    [step] = row["steps"]
    assert (row["word"], row["by"], step["model"], step["reached"]) == (
        "BLOCKED",
        "judge",
        "demo-judge",
        True,
    )
    assert step["prompt"]["text"] and step["reply"]["text"] and "deletes" in step["explanation"]
    assert "demo-judge" in shown.html and "Was that right?" in shown.html


def test_changed_text_and_a_failed_answer_have_both_sides(
    product: Product, made: dict[str, str]
) -> None:
    [upper] = page(product, f"/debug/calls/{made['upper']}").values["rows"]
    assert upper["got"]["text"] == upper["text"]["text"].upper()
    failed = page(product, f"/debug/calls/{made['failed']}").values
    assert "what came of it was released" in failed["rows"][0]["sentence"] and failed["failed"]
    assert failed["call"]["state"] == "FAILED"


def test_one_block_its_bytes_and_the_export(product: Product, made: dict[str, str]) -> None:
    base = f"/debug/calls/{made['mixed']}"
    assert page(product, f"{base}/blocks/1").values["row"]["word"] == "BLOCKED"
    assert (
        ask(product, lambda pages: pages.file(f"{base}/blocks/1/raw?of=arguments"))
        == b'{"command": "rm -rf /"}'
    )
    lines = ask(product, lambda pages: pages.file(f"{base}/export")).splitlines()
    assert json.loads(lines[-1]) == {"type": "export_end", "calls": 1, "lines": len(lines) - 1}
    body = json.loads(ask(product, lambda pages: pages.file(f"{base}/request/raw")))
    assert body["model"] == "demo"


def test_calls_of_a_session_are_linked(product: Product, made: dict[str, str]) -> None:
    call = page(product, f"/debug/calls/{made['judged']}").values["call"]
    assert (call["before"], call["next"], call["session"]) == (made["mixed"], made["upper"], "s-1")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("00000000-0000-7000-8000-000000000000", NotFound),
        ("nonsense", InvalidRequest),
        ("{mixed}?page=x", InvalidRequest),
        ("{mixed}?nobody=1", InvalidRequest),
        ("{mixed}/diff?view=x", InvalidRequest),
        ("{mixed}/wire?seq=-1", InvalidRequest),
        ("{mixed}/wire?view=3d", InvalidRequest),
        ("{mixed}/blocks/99", NotFound),
        ("{mixed}/blocks/1/raw?of=everything", InvalidRequest),
        ("{mixed}/blocks/1/raw?of=prompt", NotFound),
        ("{mixed}/chunks/9999/raw", NotFound),
        ("{mixed}/request/files/zz", InvalidRequest),
        ("{mixed}/request/files/" + "0" * 64, NotFound),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_refused(
    product: Product, made: dict[str, str], path: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(product, lambda pages: pages.answer(f"/debug/calls/{path.format(**made)}"))
