"""Debug logs of a running product: lines of one call from all its processes, in order, as the API
and the command line tell them."""

import asyncio
import json
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from db.debug_switches import DebugSwitches
from db.engine import open_engine
from db.write.debug_logs import DebugLogWriter
from protocol.errors import AuditUnavailable
from tests.support.checks.record import fresh_database, rows
from tests.support.clients.commands import sluice
from tests.support.json_values import Json
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, running
from tests.support.waiting import wait_for

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[tuple[Product, str]]:
    """A product whose key `dev` is an admin's, and whose key `app` has two logs by the
    configuration; and its database."""
    config = base_config()
    config["keys"][0]["roles"].append("admin")
    config["debug"] = {"loggers": ["policy", "endpoint"], "keys": ["app"]}
    with (
        fresh_database(database_url) as url,
        running(tmp_path_factory.mktemp("debug"), redis_url, url, config) as started,
    ):
        started.start("pages")
        yield started, url


def ask(product: Product, key: str, words: str, **headers: str) -> str:
    body = {
        "model": "demo",
        "stream": True,
        "messages": [{"role": "user", "content": words}],
        "tools": [BASH],
    }
    given = {"authorization": f"Bearer {key}", **headers}
    answer = httpx.post(f"{product.url}/v1/chat/completions", json=body, headers=given, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-sluice-call-id"]


def lines(product: Product, call: str, kind: str, event: str, *, own: int = 1) -> list[Json]:
    """All lines of a call, once there are this many of a kind."""

    def found() -> list[Json]:
        items = product.audit("debug-logs", call_id=call, limit=1000)["items"]
        return (
            items
            if sum((line["type"], line["event"]) == (kind, event) for line in items) >= own
            else []
        )

    return wait_for(found, what=f"{kind} {event}")


@pytest.mark.slow
def test_a_call_is_told_of_by_all_its_processes_in_order(product: tuple[Product, str]) -> None:
    running, url = product
    call = ask(
        running,
        KEY,
        "delete everything with rm -rf /x",
        **{"x-sluice-debug": "policy,endpoint,transport,callback"},
    )
    items = lines(running, call, "endpoint", "end")[::-1]
    assert [line["at"] for line in items] == sorted(line["at"] for line in items)
    assert {line["process"].partition(" ")[0] for line in items} == {"gateway", "policy"}
    for process in {line["process"] for line in items}:
        assert [line["n"] for line in items if line["process"] == process] == list(
            range(1, sum(i["process"] == process for i in items) + 1)
        )
    order = [(line["type"], line["event"]) for line in items]
    wanted = [
        ("callback", "begun"),
        ("endpoint", "request"),
        ("transport", "release"),
        ("callback", "dispatch"),
        ("callback", "chunks"),
        ("transport", "append"),
        ("transport", "read"),
        ("endpoint", "chunks"),
        ("callback", "relayed"),
        ("callback", "head"),
    ]
    assert [order.index(one) for one in wanted] == sorted(order.index(one) for one in wanted)
    blocked = next(line for line in items if line["hook"] == "on_tool_call")
    assert (
        blocked["policy"] == "tool_rules"
        and blocked["detail"].startswith("block")
        and "rm -rf" in blocked["detail"]
    )
    assert blocked["key"] == "dev" and blocked["duration_us"] >= 0
    told = sluice("audit", "debug-logs", "--call", call, "--json", url=url)
    page = json.loads(told.stdout)
    assert page["lost"] == 0 and [row["parts_at"] for row in page["totals"]] == [None] * 6, page[
        "totals"
    ]
    assert all(row["upto"] for row in page["totals"])
    # some is lost: it is shown where it is missing
    rows(
        url,
        "DELETE FROM debug_logs WHERE call_id = %s AND process LIKE 'policy%%' AND n BETWEEN 3 AND"
        " 5 RETURNING 1",
        call,
    )
    assert "3 lines lost" in sluice("audit", "debug-logs", "--call", call, url=url).stdout


@pytest.mark.slow
def test_pages_of_lines_and_what_chooses_them(product: tuple[Product, str]) -> None:
    running, _ = product
    call = ask(running, KEY, "list the files", **{"x-sluice-debug": "policy,endpoint"})
    items = lines(running, call, "endpoint", "end")
    page = running.audit("debug-logs", call_id=call, limit=3)
    found = page["items"]
    while page["next_cursor"]:
        page = running.audit("debug-logs", call_id=call, limit=3, cursor=page["next_cursor"])
        found += page["items"]
    assert found == items
    for chosen in (
        {"type": "policy"},
        {"hook": "on_tool_call"},
        {"event": "chunks"},
        {"policy": "tool_judge"},
        {"q": "held"},
    ):
        some = running.audit("debug-logs", call_id=call, limit=1000, **chosen)["items"]
        name, value = next(iter(chosen.items()))
        assert some and all(
            value in line["detail"] if name == "q" else line[name] == value for line in some
        )
    assert (
        running.audit("debug-logs", key="nobody")["items"] == []
        and running.audit("debug-logs", key="dev", limit=1)["items"]
    )
    for name, value in (
        ("type", "sql"),
        ("cursor", "x"),
        ("cursor", "k6VjYWxscw"),
        ("order", "asc"),
        ("limit", "0"),
    ):
        answer = httpx.get(
            f"{running.url}/audit/debug-logs",
            params={name: value},
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name), answer.text


def test_the_configuration_chooses_keys_and_who_may_not_switch_is_told_on_record(
    product: tuple[Product, str],
) -> None:
    running, url = product
    call = ask(
        running, CLIENT_KEY, "delete everything with rm -rf /x", **{"x-sluice-debug": "transport"}
    )
    items = lines(running, call, "endpoint", "end")
    assert {line["type"] for line in items} == {"policy", "endpoint"}
    silent = ask(running, KEY, "hello")
    wait_for(lambda: running.audit(f"calls/{silent}")["ended_at"])
    assert "debug_refused" in [event["kind"] for event in running.audit(f"calls/{call}")["events"]]
    assert rows(url, "SELECT count(*) FROM debug_logs WHERE call_id = %s", silent) == [(0,)]


def test_what_is_refused_at_the_door_is_counted(product: tuple[Product, str]) -> None:
    running, _ = product
    for _ in range(5):
        assert (
            httpx.post(
                f"{running.url}/v1/chat/completions", json={}, headers={"x-api-key": "sk-wrong"}
            ).status_code
            == 401
        )
    head = {"authorization": f"Bearer {CLIENT_KEY}"}
    assert httpx.get(f"{running.url}/metrics", headers=head).status_code == 403
    # where a key that leaked is tried
    assert httpx.get(f"{running.url}/audit/calls", headers=head).status_code == 403
    assert (
        httpx.get(f"{running.url}/audit/calls", headers={"x-api-key": "sk-wrong"}).status_code
        == 401
    )
    counted = wait_for(
        lambda: [
            one
            for one in running.audit("door")["items"]
            if one["code"] == "wrong_role" and one["n"] == 2
        ],
        what="the door",
    )
    assert (counted[0]["key"], counted[0]["status"]) == ("app", 403)
    unknown = [
        one for one in running.audit("door")["items"] if one["key"] is None and one["status"] == 401
    ]
    assert sum(one["n"] for one in unknown) == 6
    assert running.audit("door", key="app")["items"] == counted
    assert running.audit("door", until="2020-01-01T00:00:00Z")["items"] == []


@pytest.mark.slow
async def test_an_admins_switch_reaches_calls_that_begin_from_then_on(
    product: tuple[Product, str],
) -> None:
    running, url = product
    engine = open_engine(url, read_only=False)
    await DebugSwitches(engine).add("dev", ["callback"], 5, content=True, by="kim")

    def has_lines() -> bool:
        call = ask(running, KEY, "hello")
        wait_for(
            lambda: any(one["ended_at"] for one in running.audit("calls", call_id=call)["items"])
        )
        return bool(running.audit("debug-logs", call_id=call, type="callback")["items"])

    await asyncio.to_thread(wait_for, has_lines, timeout_s=20.0, what="lines of a call")
    await DebugSwitches(engine).add("dev", [], 0, content=False, by="kim")
    await engine.dispose()


@pytest.mark.slow
async def test_a_writer_without_its_connection_says_that_it_cannot_write(url: str) -> None:
    """It closes when a statement fails, and others of the same look come after that."""
    writer = DebugLogWriter(url)
    assert await writer.open()
    await writer.close()
    with pytest.raises(AuditUnavailable):
        await writer.count_door("g", 1, [])
