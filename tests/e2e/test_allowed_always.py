"""`Allow always here`, on a call's page: what a rule asked about passes from then on, for that key
in that project, until an admin takes it back."""

import contextlib
import re
from collections.abc import Iterator

import httpx2 as httpx
import pytest

from tests.support.checks.logins import log_in
from tests.support.clients.agent import TOOLS
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, digest, running
from tests.support.servers.stores import Stores
from tests.support.waiting import wait_for

ADMIN = "sk-sluice-admin"
HERE = "/srv/app"


@pytest.fixture(scope="module")
def product(stores: Stores) -> Iterator[Product]:
    config = base_config()
    asking = {"name": "deletes", "does": {"effects": ["delete"]}, "reason": "destructive"}
    config["policies"] = {"default": [{"use": "tool_rules", "ask": [asking]}]}
    for key in config["keys"]:
        key["policies"] = ["default"]
    config["keys"].append({"name": "boss", "sha256": digest(ADMIN), "roles": ["admin"]})
    with running(*stores, config) as made:
        made.start("pages")
        yield made


def deleted(product: Product, folder: str = "build", project: str = HERE, key: str = KEY) -> str:
    """Have the model delete a folder; returns the call's id, with `+` before it if that passed."""
    body = {
        "model": "demo",
        "max_tokens": 500,
        "tools": TOOLS,
        "messages": [{"role": "user", "content": f"delete everything with rm -rf {folder}"}],
    }
    headers = {"x-api-key": key, "x-sluice-project": project}
    answer = httpx.post(f"{product.url}/v1/messages", json=body, headers=headers, timeout=20)
    passed = any(block["type"] == "tool_use" for block in answer.json()["content"])
    return "+" * passed + answer.headers["x-sluice-call-id"]


def say(browser: httpx.Client, call_id: str, label: str) -> httpx.Response:
    """Label the decision on the call's tool call, as the form of its page does."""
    page = browser.get(f"/debug/calls/{call_id}").text
    token = re.search(r'name="token" value="([0-9a-f]{64})"', page)
    block = re.search(r'name="block" value="(\d+)"', page[page.index("destructive") :])
    assert token is not None and block is not None
    form = {"token": token[1], "call_id": call_id, "block": block[1], "label": label}
    return browser.post("/debug/labels", data=form)


def on_record(product: Product, call_id: str) -> None:
    wait_for(
        lambda: [
            call
            for call in product.audit("calls", call_id=call_id)["items"]
            if call["state"] != "ACTIVE"
        ],
        what="the call on record",
    )


def test_a_call_that_was_asked_about_passes_until_that_is_taken_back(product: Product) -> None:
    asked = deleted(product, "./build")
    assert not asked.startswith("+")
    on_record(product, asked)
    with (
        contextlib.closing(log_in(product, ADMIN)) as boss,
        contextlib.closing(log_in(product, KEY)) as reader,
    ):
        assert "Allow always here" in boss.get(f"/debug/calls/{asked}").text
        assert "Allow always here" not in reader.get(f"/debug/calls/{asked}").text
        refused = say(reader, asked, "always")
        assert refused.status_code == 403 and "role admin" in refused.text

        assert say(boss, asked, "always").status_code == 303
        passed = wait_for(
            lambda: deleted(product, "./build").partition("+")[2],
            timeout_s=20,
            what="the gateway heard of it",
        )
        # another command, another project, none, and another key
        assert not deleted(product, "./dist").startswith("+")
        assert not deleted(product, "./build", project="/srv/other").startswith("+")
        assert not deleted(product, "./build", project="").startswith("+")
        assert not deleted(product, "./build", key=CLIENT_KEY).startswith("+")
        on_record(product, passed)
        [tool] = product.audit("tool-calls", call_id=passed)["items"]
        assert (tool["verdict"], tool["reason"], tool["rule"]) == (
            "allow",
            "allowed_always",
            "deletes",
        )
        listed = boss.get("/debug/tool-calls?label=always").text
        assert asked in listed and "boss" in listed

        assert say(boss, asked, "wrong").status_code == 303
        wait_for(
            lambda: not deleted(product, "./build").startswith("+"),
            timeout_s=20,
            what="the gateway heard that it was taken back",
        )


def test_what_no_rule_asked_about_cannot_be_allowed_for_good(product: Product) -> None:
    nowhere = deleted(product, "./build", project="")
    on_record(product, nowhere)
    with contextlib.closing(log_in(product, ADMIN)) as boss:
        assert "Allow always here" not in boss.get(f"/debug/calls/{nowhere}").text
        refused = say(boss, nowhere, "always")
        assert refused.status_code == 400 and "a project that was named" in refused.text
