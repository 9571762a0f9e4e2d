"""People decide where people are: a call waits, programs are notified, and a page, a command or the
API lets it go on."""

import contextlib
import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.checks.logins import log_in
from tests.support.checks.record import rows
from tests.support.clients.agent import TOOLS
from tests.support.servers.product import KEY, ROOT, Product, base_config, digest
from tests.support.servers.receiver import Receiver, receiver
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

APPROVER = "sk-sluice-approver"
SECRET = "a-secret-of-hooks"


@pytest.fixture(scope="module")
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture(scope="module")
def product(stores: Stores, hook: Receiver) -> Iterator[Product]:
    config = base_config()
    asking = {"name": "deletes", "does": {"effects": ["delete"]}, "reason": "destructive"}
    config["policies"] = {
        "default": [{"use": "tool_rules", "ask": [asking], "approval": {"hold_s": 150}}]
    }
    for key in config["keys"]:
        key["policies"] = ["default"]
    config["keys"].append({"name": "ann", "sha256": digest(APPROVER), "roles": ["approver"]})
    target = {"name": "ops", "url": f"{hook.url}/in", "secret_env": "SLUICE_TEST_HOOK_SECRET"}
    config["approvals"] = {"public_url": "https://sluice.example", "notify": [target]}
    with Product(*stores, config) as made:
        made.environments["audit"] = {"SLUICE_TEST_HOOK_SECRET": SECRET}
        made.start("audit", "judge", "gateway", "policy", "pages")
        yield made


@pytest.fixture
def apart() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def deleted(product: Product, folder: str) -> list[Any]:
    """Have the model delete a folder; returns the inputs of the tool calls that come."""
    body = {
        "model": "demo",
        "max_tokens": 500,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": f"delete everything with rm -rf {folder}"}],
    }
    headers = {"x-api-key": KEY, "x-sluice-session": "s1"}
    answer = httpx.post(f"{product.url}/v1/messages", json=body, headers=headers, timeout=180)
    return [block["input"] for block in answer.json()["content"] if block["type"] == "tool_use"]


def approvals(product: Product, path: str = "", **sent: Any) -> httpx.Response:
    """Ask the API as the approver; with `sent` decide."""
    url, headers = f"{product.url}/audit/approvals{path}", {"x-api-key": APPROVER}
    method = "POST" if sent else "GET"
    # the first may find a process that begins, on a machine with other work
    return httpx.request(method, url, json=sent or None, headers=headers, timeout=30)


def asked(product: Product, folder: str) -> str:
    """The id of the open request about a folder, once it is there."""

    def find() -> list[str]:
        items = approvals(product, "?state=open").json()["items"]
        return [item["approval_id"] for item in items if folder in item["arguments"]]

    return str(wait_for(find, what="the request")[0])


def run(product: Product, *words: str, key: str = APPROVER) -> subprocess.CompletedProcess[str]:
    """Run `sluice approvals`."""
    env = {**os.environ, "SLUICE_URL": product.url, "SLUICE_KEY": key, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sluice.cli", "approvals", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)


def notices(hook: Receiver, approval_id: str) -> list[str]:
    """The states that the program heard of, of one request, each signed."""
    states = []
    for post in list(hook.posted):
        signed = f"{post.headers['x-sluice-timestamp']}.".encode() + post.body
        made = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert post.headers["x-sluice-signature"] == f"v1={made}"
        body = json.loads(post.body)
        if body["approval_id"] == approval_id:
            assert body["url"] == f"https://sluice.example/debug/approvals/{approval_id}"
            states.append(body["state"])
    return states


def test_a_page_lets_a_call_go_on_and_programs_hear_of_it(
    product: Product, hook: Receiver, apart: ThreadPoolExecutor
) -> None:
    waiting: Future[list[Any]] = apart.submit(deleted, product, "./page")
    approval = asked(product, "./page")
    wait_for(lambda: notices(hook, approval) == ["open"], what="the notice")
    with contextlib.closing(log_in(product, APPROVER)) as browser:
        page = browser.get(f"/debug/approvals/{approval}").text
        assert (
            "It <bdi>would delete all of ./page" in page
            and "delete everything with rm -rf ./page" in page
        )
        assert browser.get(f"/debug/approvals/{approval}?decision=approve").status_code == 400
        assert not waiting.done()
        token = re.search(r'name="token" value="([0-9a-f]{64})"', page)
        assert token is not None
        form = {"token": token[1], "decision": "approve", "note": "ok"}
        assert browser.post(f"/debug/approvals/{approval}", data=form).status_code == 303
        assert waiting.result(60) == [{"command": "rm -rf ./page"}]
    wait_for(lambda: notices(hook, approval) == ["open", "approved"], what="the second notice")
    used = wait_for(
        lambda: approvals(product, f"/{approval}").json()["used_by_call"], what="its use"
    )
    assert len(used) == 36


def test_commands_list_show_and_decide(product: Product, apart: ThreadPoolExecutor) -> None:
    waiting: Future[list[Any]] = apart.submit(deleted, product, "./edited")
    approval = asked(product, "./edited")
    assert approval in run(product, "list").stdout
    shown = run(product, "show", approval)
    assert "rm -rf ./edited" in shown.stdout and shown.returncode == 0
    assert json.loads(run(product, "list", "--json").stdout)["items"][0]["state"] == "open"
    file = product.folder / "arguments.json"
    file.write_text('{"command": "ls ./edited"')
    wrong = run(product, "edit", approval, "--file", str(file))
    assert wrong.returncode == 2 and "one JSON object" in wrong.stderr and not waiting.done()
    file.write_bytes(b'{"command": "\xff"}')
    wrong = run(product, "edit", approval, "--file", str(file))
    assert wrong.returncode == 2 and "is not UTF-8 text" in wrong.stderr
    assert run(product, "show", "\udcff").returncode == 1
    file.write_text('{"command": "ls ./edited"}\n')
    edited = run(product, "edit", approval, "--file", str(file), "--note", "look first")
    assert edited.returncode == 0 and "ls ./edited" in edited.stdout
    assert waiting.result(60) == [{"command": "ls ./edited"}]

    waiting = apart.submit(deleted, product, "./denied")
    approval = asked(product, "./denied")
    assert run(product, "approve", approval, key=KEY).returncode == 2, "no approver"
    assert run(product, "deny", approval, "--note", "not now").returncode == 0
    assert waiting.result(60) == []
    late = run(product, "approve", approval)
    assert late.returncode == 2 and "a decision stays" in late.stderr
    assert run(product, "show", "apr_none").returncode == 1
    assert run(product, "list", "--state", "old").returncode == 2
    assert "apr_" in run(product, "list", "--state", "denied").stdout
    assert "./denied" not in run(product, "list").stdout


def test_the_api_takes_large_arguments_through_the_gateway_and_no_other_method(
    product: Product, apart: ThreadPoolExecutor
) -> None:
    waiting: Future[list[Any]] = apart.submit(deleted, product, "./large")
    approval = asked(product, "./large")
    headers = {"x-api-key": APPROVER}
    url = f"{product.url}/audit/approvals/{approval}"
    for method in ("PUT", "DELETE"):
        assert httpx.request(method, url, headers=headers).status_code == 405
    other = approvals(product, f"/{approval}", decision="approve", arguments="x" * 300_000)
    assert other.status_code == 413
    command = {"command": "ls " + "\u20ac" * 20_000}
    done = approvals(product, f"/{approval}", decision="approve", arguments=json.dumps(command))
    assert done.status_code == 400, "escaped it has over 64 KiB"
    text = json.dumps(command, ensure_ascii=False)
    done = approvals(product, f"/{approval}", decision="approve", arguments=text)
    assert (done.status_code, done.json()["state"]) == (200, "approved")
    assert waiting.result(60) == [command]


def test_a_writer_that_is_killed_while_it_notifies_loses_nothing(
    product: Product, hook: Receiver, apart: ThreadPoolExecutor
) -> None:
    hook.may_answer.clear()
    try:
        waiting: Future[list[Any]] = apart.submit(deleted, product, "./killed")
        approval = asked(product, "./killed")
        wait_for(lambda: notices(hook, approval) == ["open"], what="the notice")
        [writer] = product.of("audit")
        writer.kill()
        writer.wait()
    finally:
        hook.may_answer.set()
    due = "UPDATE approval_notices SET due = now() WHERE approval_id = %s AND about = 'asked'"
    rows(product.database_url, due, approval)
    product.start("audit")
    wait_for(lambda: notices(hook, approval) == ["open", "open"], what="the notice once more")
    assert approvals(product, f"/{approval}", decision="approve").status_code == 200
    assert waiting.result(30) == [{"command": "rm -rf ./killed"}]
    wait_for(lambda: notices(hook, approval)[2:] == ["approved"], what="the last notice")
