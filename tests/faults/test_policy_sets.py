"""Workers with another policy set than a gateway's: they take none of its calls, unless that is
asked for, and everybody says so."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from sluice.check import doctor
from sluice.settings import load_config
from streams import layout
from tests.support.checks.record import rows
from tests.support.json_values import Json
from tests.support.servers.product import KEY, ROOT, Product, base_config
from tests.support.waiting import wait_for

BODY = {"model": "demo", "messages": [{"role": "user", "content": "run rm -rf"}]}
CALLS = 16


def strict() -> Json:
    """A configuration in which no tool may be called."""
    config = base_config()
    config["policies"]["default"] = [{"use": "tool_rules", "deny": [{"tool": "*"}]}]
    # workers look for what others left each quarter of a lease: too late for a call that waits for
    # that
    config["limits"] |= {"claim_s": 3.0, "lease_s": 20.0}
    return config


def lax(product: Product) -> dict[str, str]:
    """The environment of workers whose file is laxer."""
    path = product.folder / "lax.yaml"
    path.write_text(
        yaml.safe_dump(
            strict() | {"policies": {**strict()["policies"], "default": [{"use": "noop"}]}}
        )
    )
    return {"SLUICE_CONFIG": str(path)}


def own_set(product: Product, worker: int) -> str:
    """The policy set that a policy worker shows."""
    store: Any = product.redis

    def shown() -> list[str]:
        fields = [field.decode().split(":", 2) for field in store.hgetall(layout.WORKERS_KEY)]
        return [
            field[1] for field in fields if field[0] == "set" and field[2].endswith(f"-{worker}")
        ]

    return wait_for(shown, what="its heartbeat")[0]


def ask(product: Product) -> httpx.Response:
    headers = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "default"}
    return httpx.post(f"{product.url}/v1/chat/completions", json=BODY, headers=headers, timeout=20)


def sets_said(product: Product, state: str) -> str:
    found = doctor.check_all(
        load_config(product.config_file), product.redis_url, product.database_url
    )
    return "; ".join(
        sentence for name, said, sentence in found if name == "policy sets" and said == state
    )


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with Product(tmp_path, redis_url, database_url, strict()) as made:
        yield made


@pytest.mark.slow
def test_a_worker_with_a_laxer_file_takes_no_call_and_doctor_and_log_say_so(
    product: Product,
) -> None:
    product.start("audit", "gateway")
    (laxer,) = product.start("policy", env=lax(product))
    wait_for(
        lambda: "no policy worker has the policy set" in sets_said(product, "failed"),
        what="the doctor says so",
    )
    (right,) = product.start("policy")
    mine = own_set(product, right.pid)
    answers = [ask(product) for _ in range(CALLS)]
    assert [a.status_code for a in answers] == [200] * CALLS, product.logs()
    assert not any(
        choice["message"].get("tool_calls") for a in answers for choice in a.json()["choices"]
    )
    wait_for(
        lambda: (
            len(rows(product.database_url, "SELECT 1 FROM calls WHERE policy_set = %s", mine))
            == CALLS
        ),
        what="on record",
    )
    assert own_set(product, laxer.pid) != mine
    assert f"{laxer.pid}: {own_set(product, laxer.pid)}" in sets_said(product, "warning")
    said = (
        "calls of another policy set are left to others; where no worker has that set they are"
        " refused after limits.claim_s"
    )
    wait_for(
        lambda: ask(product).status_code == 200 and said in laxer.tail(), what="it was handed one"
    )


@pytest.mark.slow
def test_where_no_worker_has_the_set_the_client_and_ready_hear_why(product: Product) -> None:
    product.start("audit", "gateway")
    (laxer,) = product.start("policy", env=lax(product))
    ready = wait_for(
        lambda: (found := httpx.get(f"{product.url}/ready")).status_code == 503 and found
    )
    wait_for(
        lambda: (
            "no policy worker has this gateway's policy set"
            in httpx.get(f"{product.url}/ready").json()["why"]
        ),
        what=str(ready),
    )
    answer = ask(product)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_worker"
    assert "no policy worker has this gateway's policy set" in answer.json()["error"]["message"]
    assert laxer.process.poll() is None


@pytest.mark.slow
def test_a_set_that_is_accepted_is_used_recorded_and_shown(product: Product) -> None:
    product.start("audit")
    (laxer,) = product.start("policy", env=lax(product))
    theirs = own_set(product, laxer.pid)
    product.config_file.write_text(yaml.safe_dump(strict() | {"accept_policy_sets": [theirs]}))
    product.start("gateway")
    answer = ask(product)
    assert answer.status_code == 200, product.logs()
    call_id = answer.headers["x-sluice-call-id"]
    asked = (
        "SELECT c.policy_set, e.kind, e.detail FROM calls c JOIN events e USING (call_id) WHERE"
        " call_id = %s"
    )
    [(used, kind, detail)] = wait_for(lambda: rows(product.database_url, asked, call_id))
    assert (used, kind) == (theirs, "policy_set")
    assert detail.startswith(f"began under {theirs}, the gateway's own being ")
    assert f"may begin under {theirs} too" in sets_said(product, "warning")
    assert not sets_said(product, "failed")


def test_a_gateway_that_cannot_read_a_policy_says_what_to_mount(product: Product) -> None:
    config = strict()
    config["policies"]["mine"] = [{"use": "guards:Guard"}]
    product.config_file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "sluice.cli", "gateway", "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "SLUICE_CONFIG": str(product.config_file),
        "SLUICE_REDIS_URL": product.redis_url,
        "SLUICE_DATABASE_URL": product.database_url,
    }
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert "'guards:Guard' cannot be read" in done.stderr
    assert "SLUICE_POLICY_PATH" in done.stderr
    assert json.dumps(done.stdout) == '""'


@pytest.mark.slow
def test_processes_with_fewer_shards_than_a_gateway_are_named(product: Product) -> None:
    product.start("audit", "policy")
    product.config_file.write_text(yaml.safe_dump(strict() | {"shards": 3}))
    product.start("gateway")
    wait_for(
        lambda: (
            "has `shards: 3`, and these processes have fewer: "
            in httpx.get(f"{product.url}/ready").text
        ),
        what="the warning",
    )
    config = load_config(product.config_file)
    found = wait_for(
        lambda: [
            sentence
            for name, state, sentence in doctor.check_all(
                config, product.redis_url, product.database_url
            )
            if (name, state) == ("gateways", "warning")
        ],
        what="the doctor's word of it",
    )
    assert (
        f"-{product.children[1].pid} (1)" in found[0]
        and "give all processes the same `shards`" in found[0]
    ), found
    assert "processes have fewer" in product.logs()
