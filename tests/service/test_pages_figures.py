"""The overview, policies and keys through a gateway: what they show agrees with the record, and who
may switch debug logs on."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2 as httpx
import pytest

from db.write.insert import AuditInserter
from protocol.records import BlockRecord, EndRecord, Record
from tests.support.checks.record import (
    call_id,
    call_record,
    fresh_database,
    judgement_record,
    now_ms,
    rows,
    tool_call_record,
)
from tests.support.servers.asked import ask
from tests.support.servers.product import KEY, Product, base_config, digest
from tests.support.waiting import wait_for

ADMIN = "sk-sluice-admin"
DAY_MS = 86_400_000
NAMES = ("gpt-x", "m<b>\u202e")


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Product]:
    """A gateway, its pages and workers over a record of twelve calls."""
    config = base_config()
    config["keys"].append({"name": "boss", "sha256": digest(ADMIN), "roles": ["admin"]})
    with (
        fresh_database(database_url) as url,
        Product(tmp_path_factory.mktemp("pages"), redis_url, url, config) as made,
    ):
        asyncio.run(_fill(url))
        made.start("gateway", "pages", "policy")
        yield made


async def _fill(url: str) -> None:
    records = [one for n in range(12) for one in _call(n)]
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, {})


def _call(n: int) -> list[Record]:
    """Every third is of yesterday, every fourth failed; each has two tool calls, of which one is
    refused or replaced."""
    at = now_ms() - (DAY_MS if n % 3 == 0 else 0) - n
    call = call_id(at)
    verdict: Any = ("block", "replace", "withheld")[n % 3]
    return [
        call_record(
            call,
            at=at,
            key="dev" if n % 2 else "k/ü",
            model=NAMES[n % 2],
            policy="default" if n % 4 else "p<i>",
        ),
        tool_call_record(call, at=at, verdict="allow", block=1),
        tool_call_record(
            call,
            at=at,
            verdict=verdict,
            block=2,
            reason="why <script>" if n % 2 else "",
            policy="rules",
            rule="no-such-tool",
        ),
        BlockRecord(
            call_id=call,
            block=0,
            at=at,
            kind="text",
            verdict="block" if n == 5 else "allow",
            reason="fault",
            policy="p",
        ),
        judgement_record(call, at=at, block=2, probability=0.05 * n, latency_ms=100 + n),
        EndRecord(
            call_id=call,
            at=at,
            state="FAILED" if n % 4 == 0 else "ENDED",
            reason="x",
            status=200,
            input_tokens=n,
            output_tokens=2,
        ),
    ]


def log_in(product: Product, key: str) -> httpx.Client:
    made = httpx.Client(
        base_url=product.url, timeout=20, headers={"origin": product.url, "accept": "text/html"}
    )
    assert made.post("/debug/login", data={"key": key}).status_code == 303
    return made


@pytest.fixture(scope="module")
def reader(product: Product) -> Iterator[httpx.Client]:
    with closing(log_in(product, ADMIN)) as made:
        yield made


def made_of(product: Product, reader: httpx.Client, path: str) -> Any:
    """What a page is made of, which is there for this reader too."""
    answer = reader.get(path)
    assert answer.status_code == 200, answer.text
    page = ask(
        product.database_url,
        product.config,
        lambda pages: pages.page(path),
        product.redis_url,
    )
    return json.loads(json.dumps(page.values, default=str))


def one(url: str, query: str, *values: object) -> tuple[Any, ...]:
    [row] = rows(url, query, *values)
    return tuple(row)


@pytest.mark.slow
def test_the_overview_shows_what_was_refused_last_and_a_row_says_so(
    product: Product, reader: httpx.Client
) -> None:
    before = one(product.database_url, "SELECT count(*) FROM reads")[0]
    page = made_of(product, reader, "/debug")
    refused = rows(
        product.database_url,
        "SELECT call_id::text, block FROM tool_calls WHERE verdict NOT IN ('allow', 'replace')",
    )
    refused += rows(
        product.database_url,
        "SELECT call_id::text, block FROM blocks WHERE verdict NOT IN ('allow', 'replace')",
    )
    newest = sorted((tuple(row) for row in refused), reverse=True)[:10]
    assert [(item["call_id"], item["block"]) for item in page["not_released"]] == newest
    [(shown,)] = rows(product.database_url, "SELECT rows FROM reads ORDER BY at DESC LIMIT 1")
    assert (one(product.database_url, "SELECT count(*) FROM reads")[0], shown) == (
        before + 1,
        len(newest),
    )
    html = reader.get("/debug").text
    assert [one["type"] for one in page["logs"]][:2] == ["transport", "endpoint"]
    assert "why &lt;script&gt;" in html and "why <script>" not in html
    wait_for(
        lambda: "1 policy" in str(made_of(product, reader, "/debug")["figures"]["workers"]),
        timeout_s=15,
        what="the worker is seen",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/debug",
        "/debug/keys",
        "/debug/keys/dev",
        "/debug/policies",
        "/debug/policies/default",
        "/debug/sessions/a/b",
    ],
)
def test_a_parameter_that_nobody_knows_is_named(reader: httpx.Client, path: str) -> None:
    answer = reader.get(path, params={"sinse": "-1h"}, headers={"accept": "application/json"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "sinse")


def test_figures_go_on_in_a_stream_of_events(reader: httpx.Client) -> None:
    with reader.stream("GET", "/debug/events") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        for said in (json.loads(next(lines)[6:]), json.loads(next(lines)[6:])):
            assert set(said) == {"figures", "open"}
            for text, age, limit in said["figures"].values():
                assert text and (age is None or 0 <= age < 60) and limit > 5
        assert said["figures"]["open_calls"][0] == "0" and said["figures"]["blocked"][1] is not None


@pytest.mark.slow
def test_sums_of_policies_agree_with_the_record(product: Product, reader: httpx.Client) -> None:
    page = made_of(product, reader, "/debug/policies")
    found = {item["policy"]: item for item in page["rows"] if item["revision"] == "r1"}
    assert set(found) == {"default", "p<i>"} and page["newest"] == "counted"
    asked = """
        SELECT count(DISTINCT c.call_id), count(*), count(*) FILTER (WHERE t.verdict = 'block'),
            count(*) FILTER (WHERE t.verdict = 'replace') FROM calls c JOIN tool_calls t USING (call_id) WHERE c.policy = %s
    """
    for name, item in found.items():
        week = item["periods"][1]
        sums = week["calls"], week["tool_calls"], week["refused"], week["replaced"]
        assert sums == one(product.database_url, asked, name)
        of_judges = (
            "SELECT count(*), count(*) FILTER (WHERE probability >= threshold) FROM judgements JOIN"
            " calls c USING (call_id) "
        )
        assert (week["judge_n"], week["judge_over"]) == one(
            product.database_url, of_judges + "WHERE c.policy = %s", name
        )
        assert item["held"] == 0, "no worker has this revision"
    held = [item for item in page["rows"] if item["held"]]
    wait_for(
        lambda: [
            item
            for item in made_of(product, reader, "/debug/policies")["rows"]
            if item["held"] == 1
        ],
        what="a revision that is held",
    )
    assert all(item["policy"] in base_config()["policies"] for item in held)
    assert reader.get("/debug/policies").text.count("p&lt;i&gt;")


def test_a_policy_has_its_reasons_and_histogram(product: Product, reader: httpx.Client) -> None:
    page = made_of(product, reader, "/debug/policies/default")
    [histogram] = page["histograms"]
    assert (
        histogram["threshold"] == 0.6
        and sum(n for _, n in histogram["bins"]) == histogram["total"] == 9
    )
    assert not page["reasons_more"]
    kept_back = (
        "SELECT count(*) FROM tool_calls t JOIN calls c USING (call_id) WHERE c.policy = 'default'"
        " AND verdict IN ('block', 'withheld')"
    )
    assert (
        sum(item["n"] for item in page["reasons"]) == one(product.database_url, kept_back)[0] + 1
    ), "and one text"
    decided = (
        "SELECT count(*) FROM tool_calls t JOIN calls c USING (call_id) WHERE c.policy = 'default'"
        " AND rule = 'no-such-tool'"
    )
    rules = {(rule["part"], rule["rule"]): rule for rule in page["rules"]}
    assert rules["rules", "no-such-tool"]["n"] == one(product.database_url, decided)[0] > 0
    assert (
        rules["tool_rules", "deny[0]"]["n"] == 0
        and "rm -rf" in rules["tool_rules", "deny[0]"]["says"]
    )
    assert "--policy default --try-call" in page["try_call"]
    blocked = (
        "SELECT count(*) FROM tool_calls t JOIN calls c USING (call_id) WHERE c.policy = 'default'"
        " AND verdict = 'block'"
    )
    assert len(page["blocks"]) == one(product.database_url, blocked)[0]
    assert reader.get("/debug/policies/default").status_code == 200
    assert reader.get("/debug/policies/p%3Ci%3E").status_code == 200
    for unknown in ("nobody", "%3Cb%3E", "a%00b"):
        answer = reader.get(f"/debug/policies/{unknown}")
        assert answer.status_code in (400, 404) and "<b>" not in answer.text.partition("<main")[2]


def test_use_of_keys_agrees_with_the_record(product: Product, reader: httpx.Client) -> None:
    keys = {item["name"]: item for item in made_of(product, reader, "/debug/keys")["keys"]}
    asked = (
        "SELECT count(*), count(*) FILTER (WHERE e.state = 'FAILED'), sum(e.input_tokens) FROM"
        " calls c JOIN ends e USING (call_id)"
    )
    for name in ("dev", "k/ü"):
        used = keys[name]["used"]
        assert (used["calls"], used["failed"], used["input_tokens"]) == one(
            product.database_url, f"{asked} WHERE c.key = %s", name
        )
    assert keys["k/ü"]["source"] == "record" and keys["boss"]["roles"] == ["admin"]
    text = reader.get("/debug/keys").text
    assert digest(ADMIN) not in text and digest(KEY) not in text and ADMIN not in text
    page = made_of(product, reader, "/debug/keys/k%2F%C3%BC")
    by_day = (
        "SELECT (at AT TIME ZONE 'UTC')::date::text, count(*) FROM calls WHERE key = 'k/ü' GROUP BY"
        " 1 ORDER BY 1 DESC"
    )
    assert [[item["day"], item["calls"]] for item in page["days"]] == [
        list(row) for row in rows(product.database_url, by_day)
    ]
    [(last,)] = rows(product.database_url, "SELECT max(call_id::text) FROM calls WHERE key = 'k/ü'")
    assert page["last"] == last
    assert reader.get("/debug/keys/nobody").status_code == 404
    assert "sluice keys create --name NAME" in text


@pytest.mark.slow
def test_debug_logs_that_are_on_for_a_key_stand_on_its_page(
    product: Product, reader: httpx.Client
) -> None:
    [token] = set(
        re.findall(r'name="token" value="([^"]+)"', reader.get("/debug/logs?key=boss").text)
    )
    form = {"token": token, "key": "boss", "minutes": "10", "policy": "1"}
    action = re.findall(r'action="(/debug/logs[^"]*)"', reader.get("/debug/logs").text)
    assert reader.post(action[-1], data=form).status_code == 303
    [found] = made_of(product, reader, "/debug/keys/boss")["switches"]
    assert (found["key"], list(found["loggers"]), found["by"]) == ("boss", ["policy"], "boss")
    assert "switched on by" in reader.get("/debug/keys/boss").text
