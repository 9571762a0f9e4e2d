"""What every process shows at its own /metrics: sums that agree with the record to the chunk,
labels that no client can make more of, and a listener that nobody can use against its process."""

import json
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psycopg
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from scripts.dashboard import BOARD, lines
from streams import metrics_port
from streams.metrics import Count, Gauge, Now, Span, Total
from tests.support.servers.ports import free_port
from tests.support.servers.product import KEY, ROOT, Product, Role, base_config
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

PROMETHEUS = ROOT / "deploy" / "prometheus"
FAULTS = {
    "sluice_timeouts_total",
    "sluice_takeovers_total",
    "sluice_fenced_total",
    "sluice_chunks_undecided_total",
    "sluice_refused_total",
    "sluice_upstream_failures_total",
    "sluice_upstream_state",
    "sluice_upstream_attempts_total",
    "sluice_cost_nanousd_total",
}
"""What nobody counts while all is well, or the demo model answers."""
ROLES: tuple[Role, ...] = ("audit", "judge", "gateway", "policy", "pages")
BASH = {"type": "object", "properties": {"command": {"type": "string"}}}
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Metered(Product):
    """A product of which each process shows its figures on a port."""

    def target(self, role: Role) -> tuple[str, int]:
        """Where a role's listener is, as Prometheus finds it."""
        (entry,) = json.loads((self.folder / f"{role}.json").read_text())
        assert entry["labels"] == {"role": role, "process": role}
        host, _, port = entry["targets"][0].rpartition(":")
        return host, int(port)

    def scrape(self, role: Role) -> Series:
        """All series of a role's process."""
        host, port = self.target(role)
        text = httpx.get(f"http://{host}:{port}/metrics", timeout=20).text
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Metered]:
    config = base_config()
    config["policies"]["refuse"] = [{"use": "tool_rules", "deny": [{"tool": "*"}]}]
    config["keys"][0]["policies"].append("refuse")
    folder, redis_url, database_url = stores
    with Metered(folder, redis_url, database_url, config) as made:
        for role in ROLES:
            env = {
                "SLUICE_METRICS_PORT": "0",
                "SLUICE_METRICS_TARGET": str(folder / f"{role}.json"),
            }
            made.environments[role] = env
        made.start(*ROLES)
        yield made


def ask(
    product: Product,
    text: str,
    *,
    key: str = KEY,
    model: str = "demo",
    tool: str = "bash",
    **headers: str,
) -> httpx.Response:
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": text}],
        "tools": [{"type": "function", "function": {"name": tool, "parameters": BASH}}],
    }
    return httpx.post(
        f"{product.url}/v1/chat/completions",
        json=body,
        headers={"authorization": f"Bearer {key}", **headers},
        timeout=30,
    )


def total(series: Series, name: str, **labels: str) -> float:
    """The sum over all series of a metric that have these labels."""
    return sum(
        value
        for (found, pairs), value in series.items()
        if found == name and labels.items() <= set(pairs)
    )


def ended(product: Metered) -> float:
    return total(product.scrape("policy"), "sluice_calls_ended_total")


def test_every_chunk_is_accounted_for_as_on_record(product: Metered) -> None:
    for policy in ("default", "noop", "refuse"):
        for text in ("hello", "delete everything with rm -rf", "list the files"):
            ask(product, text, **{"x-sluice-policy": policy})
    wait_for(lambda: ended(product) == 9, timeout_s=20, what="all ends are counted")
    gateway, policy_worker = product.scrape("gateway"), product.scrape("policy")
    assert total(policy_worker, "sluice_calls_started_total") == 9
    assert total(gateway, "sluice_call_seconds_count") == 9
    received = total(gateway, "sluice_chunks_received_total")
    words = Counter[str]()
    with psycopg.connect(product.database_url) as database:

        def stored() -> list[tuple[str, int]]:
            with database.transaction():
                return database.execute(
                    "SELECT CASE WHEN c.verdict <> 'hold' THEN c.verdict"
                    " ELSE coalesce(t.verdict, b.verdict, 'hold') END, count(*) FROM chunks c"
                    " LEFT JOIN tool_calls t USING (call_id, block)"
                    " LEFT JOIN blocks b USING (call_id, block) GROUP BY 1"
                ).fetchall()

        wait_for(lambda: sum(n for _, n in stored()) == received, timeout_s=20, what="the record")
        for verdict, number in stored():
            words["forwarded" if verdict in ("allow", "replace") else verdict] += number
    shown = {
        "forwarded": total(policy_worker, "sluice_chunks_forwarded_total"),
        "block": total(policy_worker, "sluice_chunks_withheld_total", verdict="block"),
        "withheld": total(policy_worker, "sluice_chunks_withheld_total", verdict="withheld"),
        "hold": total(policy_worker, "sluice_chunks_undecided_total"),
    }
    assert {word: number for word, number in shown.items() if number} == words
    assert words["forwarded"] and words["block"]
    assert received == sum(shown.values())


def test_processes_show_the_catalogue_and_nothing_else(product: Metered) -> None:
    known = {line.name: line for line in lines(Total, Count, Span, Now, Gauge)}
    shown = set[str]()
    for role in ROLES:
        for name, pairs in product.scrape(role):
            family = re.sub("_(bucket|count|sum)$", "", name) if name not in known else name
            labels = {label for label, _ in pairs} - {"le"}
            if name.startswith("sluice_"):
                assert labels == set(known[family].labels), name
                shown.add(family)
    assert set(known) - shown <= FAULTS, "in the catalogue, and no process shows it"


def test_no_client_can_make_more_series(product: Metered) -> None:
    ask(product, "list the files", **{"x-sluice-policy": "default"})
    httpx.post(f"{product.url}/v1/messages", headers={"x-api-key": "sk-no"}, timeout=30)
    ask(product, "hello", model="no-such")
    before = {role: set(product.scrape(role)) for role in ROLES}
    was = ended(product)
    for n in range(60):
        with_session = {"x-sluice-session": f"session-{n}", "x-sluice-policy": "default"}
        ask(product, "list the files", tool=f"bash_{n}", **with_session)
        ask(product, "hello", model=f"model-{n}")
        ask(product, "hello", key=f"sk-{n}")
        httpx.get(f"{product.url}/{n}", timeout=30)
    wait_for(lambda: ended(product) >= was + 120, timeout_s=30, what="all ends are counted")
    more = {role: set(product.scrape(role)) - before[role] for role in ROLES}
    # the path of nowhere is new, once
    assert {name for new in more.values() for name, _ in new} <= {"sluice_refused_total"}
    assert sum(map(len, more.values())) <= 2


def test_nobody_can_use_the_listener_against_its_process(product: Metered) -> None:
    address = product.target("gateway")
    slow = [socket.create_connection(address) for _ in range(metrics_port.MOST_CONNECTIONS)]
    try:
        with socket.create_connection(address) as refused:
            refused.settimeout(10)
            assert refused.recv(1) == b"", "more are not waited for"
        assert ask(product, "hello").status_code == 200
        # those that say nothing are let go
        slow[0].settimeout(20)
        assert slow[0].recv(1) == b""
    finally:
        for client in slow:
            client.close()
    wait_for(lambda: _status(address, b"GET /health") == 200, timeout_s=10, what="a free place")
    assert _status(address, b"POST /metrics") == 405
    assert _status(address, b"GET /" + b"a" * 2 * metrics_port.MOST_BYTES) is None
    assert _status(address, b"GET /audit/calls") == 404


def _status(address: tuple[str, int], line: bytes) -> int | None:
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(line + b" HTTP/1.1\r\n\r\n")
        try:
            answer = client.recv(64)
        except ConnectionError:
            return None
    return int(answer.split()[1]) if answer else None


def test_prometheus_takes_each_query_of_panels_and_alerts(product: Metered, tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("NO PROMETHEUS: queries of the dashboard were not tried; scripts/servers")
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
    board = json.loads(BOARD.read_text())
    queries = [rule["expr"] for rule in rules] + [
        target["expr"] for panel in board["panels"] for target in panel.get("targets", ())
    ]
    known = {line.name for line in lines(Total, Count, Span, Now, Gauge)}
    for query in queries:
        names = set(re.findall(r"sluice_\w+", query))
        assert {re.sub("_bucket$", "", name) for name in names} <= known, query
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["rule_files"] = [str(PROMETHEUS / "alerts.yml")]
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    (found,) = config["scrape_configs"][0]["file_sd_configs"]
    found["files"] = [str(product.folder / f"{role}.json") for role in ROLES]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    process = subprocess.Popen(
        [
            program,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:

        def result(query: str) -> list[Any] | None:
            try:
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}, timeout=10
                )
            except httpx.TransportError:
                return None
            if answer.status_code == 503:
                return None
            assert answer.status_code == 200, (query, answer.text)
            return list(answer.json()["data"]["result"])

        wait_for(lambda: len(result("up == 1") or ()) == len(ROLES), timeout_s=30, what="scrapes")
        quiet = {rule["expr"] for rule in rules}
        for query in queries:
            if query not in quiet and not any(name in query for name in FAULTS):
                wait_for(lambda asked=query: result(asked), timeout_s=20, what=query)  # type: ignore[misc]
            else:
                result(query)
    finally:
        process.terminate()
        process.wait(20)
