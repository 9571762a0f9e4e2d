"""`sluice keys` as people run it: keys of the configuration beside those of the table, and what a
new key is told with."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2 as httpx
import pytest
import yaml

from db.state.health import expiring_keys
from settings.config import SETTINGS
from tests.support.checks.record import fresh_database, rows
from tests.support.clients.commands import run_command
from tests.support.json_values import Json
from tests.support.servers.product import KEY, ROOT, Product, base_config, digest, running
from tests.support.servers.product_commands import run
from tests.support.waiting import wait_for

FILE_KEY = {"name": "dev", "sha256": digest("sk-file"), "roles": ["client"], "policies": ["strict"]}
CONFIG: Json = {
    "policies": {"strict": [{"use": "noop"}], "default": [{"use": "noop"}]},
    "keys": [FILE_KEY],
}


class Place:
    """A database of its own, and a configuration file."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.file = url, folder, folder / "sluice.yaml"
        self.file.write_text(yaml.safe_dump(CONFIG))

    def keys(
        self, *arguments: str, knows: bool = True, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run `sluice keys`; `knows`: SLUICE_CONFIG names the file."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
            "SLUICE_DATABASE_URL": self.url,
            "SLUICE_DATA_DIR": str(self.folder / "none"),
            "PYTHONPATH": str(ROOT),
            **env,
        }
        if knows:
            environment["SLUICE_CONFIG"] = str(self.file)
        return run_command("keys", *arguments, env=environment, cwd=self.folder)


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Iterator[Place]:
    with fresh_database(database_url) as url:
        yield Place(url, tmp_path)


@pytest.mark.slow
def test_keys_of_the_configuration_are_listed_with_their_source(place: Place) -> None:
    assert place.keys("create", "--name", "ci", "--policy", "strict").returncode == 0
    items = json.loads(place.keys("list", "--json").stdout)["items"]
    assert [(one["name"], one["source"], one["policies"]) for one in items] == [
        ("dev", "file", ["strict"]),
        ("ci", "table", ["strict"]),
    ]
    heading, *lines = place.keys("list").stdout.splitlines()
    assert heading.split("\t")[:3] == ["name", "id", "source"]
    assert [line.split("\t")[:3:2] for line in lines] == [["dev", "file"], ["ci", "table"]]
    # whole times, for programs
    assert lines[1].split("\t")[6].endswith("Z")
    told = place.keys("list", knows=False)
    assert "dev" not in told.stdout and "--config or SLUICE_CONFIG" in told.stderr
    assert "dev\t" in place.keys("list", "--config", str(place.file), knows=False).stdout


@pytest.mark.slow
def test_the_name_of_a_key_of_the_configuration_is_neither_made_nor_revoked(place: Place) -> None:
    made = place.keys("create", "--name", "dev", "--policy", "strict")
    assert (made.returncode, made.stdout) == (2, "")
    assert (
        f"'dev' is the name of a key in {place.file}, which wins over one in the table: take"
        " another name" in made.stderr
    )
    gone = place.keys("revoke", "dev")
    assert (gone.returncode, gone.stdout) == (2, "")
    assert (
        "cannot be revoked in the table: take it out of that file and start the gateways again"
        in gone.stderr
    )
    assert place.keys("revoke", "nobody").returncode == 1


def test_a_key_in_the_table_with_a_name_of_the_configuration_can_go(place: Place) -> None:
    assert place.keys("create", "--name", "dev", knows=False).returncode == 0
    gone = place.keys("revoke", "dev")
    assert (gone.returncode, gone.stdout) == (0, "revoked dev\n")
    assert f"The one in {place.file} goes on working." in gone.stderr
    assert place.keys("revoke", "dev").returncode == 2


@pytest.mark.slow
def test_every_setting_of_a_key_has_an_option(place: Place) -> None:
    given = (
        "--role",
        "client",
        "--role",
        "auditor",
        "--policy",
        "strict",
        "--server-tool",
        "mcp",
        "--calls",
        "7",
        "--requests-minute",
        "50",
        "--tokens-minute",
        "2",
        "--tokens-day",
        "3",
        "--tokens-month",
        "4",
        "--usd-day",
        "0.5",
        "--usd-month",
        "6",
        "--session-tokens",
        "7",
        "--session-usd",
        "8",
        "--team",
        "red",
        "--keepalive-s",
        "5",
        "--hold-s",
        "0",
        "--project",
        "/srv/app, /srv/lib",
        "--compress",
        "gzip",
    )
    settings = {
        "roles": ["client", "auditor"],
        "policies": ["strict"],
        "server_tools": ["mcp"],
        "calls": 7,
        "requests_minute": 50,
        "tokens_minute": 2,
        "tokens_day": 3,
        "tokens_month": 4,
        "usd_day": "0.5",
        "usd_month": "6",
        "session_tokens": 7,
        "session_usd": "8",
        "team": "red",
        "keepalive_s": 5,
        "hold_s": 0,
        "project": "/srv/app, /srv/lib",
        "compress": "gzip",
    }
    assert settings.keys() == SETTINGS.keys()
    made = json.loads(place.keys("create", "--name", "ci", *given, "--json").stdout)
    [_, listed] = json.loads(place.keys("list", "--json").stdout)["items"]
    assert (
        {name: made[name] for name in settings}
        == {name: listed[name] for name in settings}
        == settings
    )
    change = ("--usd-day", "0.75", "--unset", "tokens-day", "--unset", "policy")
    changed = json.loads(place.keys("set", "ci", *change, "--json").stdout)
    want = settings | {"usd_day": "0.75", "tokens_day": None, "policies": ["default"]}
    assert {name: changed[name] for name in settings} == want
    [_, listed] = json.loads(place.keys("list", "--json").stdout)["items"]
    assert {name: listed[name] for name in settings} == want
    for money in ("0", "nan", "-1", "1e40"):
        wrong = place.keys("set", "ci", "--usd-day", money)
        assert wrong.returncode == 2 and "usd_day is US dollars, as in 2.50" in wrong.stderr
    assert place.keys("set", "nobody", "--calls", "7").returncode == 1
    # the second is more than the table's column takes
    for calls in ("0", "2147483648"):
        wrong = place.keys("create", "--name", "other", "--policy", "strict", "--calls", calls)
        assert (wrong.returncode, wrong.stdout) == (
            2,
            "",
        ) and "a number of open calls is 1 to 2147483647" in wrong.stderr


@pytest.mark.slow
def test_a_policy_that_the_configuration_has_not_is_refused(place: Place) -> None:
    made = place.keys("create", "--name", "typo", "--policy", "defualt")
    assert made.returncode == 2
    said = (
        f"--policy: there is no policy 'defualt' in {place.file}; did you mean 'default'? (there"
        " are 'default', 'strict')"
    )
    assert said in made.stderr
    assert json.loads(place.keys("list", "--json").stdout)["items"][1:] == []
    # not known: not refused, and said
    unknown = place.keys("create", "--name", "typo", "--policy", "defualt", knows=False)
    assert unknown.returncode == 0 and "Not checked" in unknown.stderr


@pytest.mark.slow
def test_a_spoilt_configuration_keeps_nobody_from_revoking(place: Place) -> None:
    place.keys("create", "--name", "ci")
    place.file.write_text("policies: [")
    listed = place.keys("list")
    assert "ci\t" in listed.stdout and "not known here: " in listed.stderr
    assert place.keys("revoke", "ci").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--name", "a b"),
            (
                "--name: a key's name is 1 to 64 letters, digits, `.`, `_` and `-`, and begins with"
                " a letter or a digit"
            ),
        ),
        (
            ("--name", "x", "--role", "root"),
            "--role: a role is one of client, auditor, admin, monitor, approver",
        ),
    ],
)
def test_wrong_options_are_told_in_plain_words(
    place: Place, arguments: tuple[str, ...], said: str
) -> None:
    made = place.keys("create", *arguments)
    assert made.returncode == 2 and made.stderr.strip().endswith(said)


@pytest.mark.slow
def test_a_new_key_says_how_to_use_it_and_keeps_its_text_on_standard_output(place: Place) -> None:
    made = place.keys(
        "create",
        "--name",
        "x",
        "--role",
        "client",
        "--role",
        "auditor",
        "--role",
        "monitor",
        SLUICE_PORT="8099",
    )
    key = made.stdout.strip()
    assert key.startswith("sk-sluice-") and key not in made.stderr and "$SLUICE_KEY" in made.stderr
    assert (
        "/v1 for OpenAI's clients (Chat Completions and Responses), http://127.0.0.1:8099 for"
        " Anthropic's" in made.stderr
    )
    for what in ("/chat/completions", "/audit/calls", "/metrics", "x-api-key: KEY"):
        assert what in made.stderr
    assert (
        "curl"
        not in place.keys("create", "--name", "y", "--role", "auditor").stderr.partition("Record")[
            0
        ]
    )
    told = json.loads(place.keys("create", "--name", "z", "--json", SLUICE_PORT="8099").stdout)
    at = "http://127.0.0.1:8099"
    assert told["base_urls"] == {"openai": f"{at}/v1", "anthropic": at, "responses": f"{at}/v1"}


@pytest.fixture
def product(tmp_path: Path, redis_url: str, database_url: str) -> Iterator[Product]:
    with (
        fresh_database(database_url) as url,
        running(tmp_path, redis_url, url, base_config()) as made,
    ):
        made.start("pages")
        yield made


@pytest.mark.slow
def test_a_new_key_works_as_its_lines_say_and_a_name_made_anew_is_told_apart(
    product: Product,
) -> None:
    def ids() -> set[str]:
        return {one["key_id"] for one in product.audit("calls", key="bob")["items"]}

    def is_on_record(wanted: int) -> bool:
        return len(ids()) == wanted

    for number, more in enumerate(((), ("--reuse",)), start=1):
        made = run(
            product,
            "keys",
            "create",
            "--name",
            "bob",
            "--role",
            "client",
            "--role",
            "auditor",
            *more,
        )
        lines = [
            line.partition(":")[2].strip() for line in made.stderr.splitlines() if " curl " in line
        ]
        assert len(lines) == 2
        for line in lines:
            env = os.environ | {"SLUICE_KEY": made.stdout.strip()}
            said = subprocess.run(
                ["sh", "-c", line], env=env, capture_output=True, text=True, timeout=30, check=False
            ).stdout
            assert "error" not in json.loads(said), (line, said)
        wait_for(partial(is_on_record, number), what="the call on record")
        assert run(product, "keys", "revoke", "bob").returncode == 0
    first, second = ids()
    # on a page of one holder's calls, too
    shown = run(product, "audit", "calls", "--key-id", first).stdout
    assert f"bob ({first})" in shown and second not in shown


@pytest.mark.slow
def test_a_key_without_a_namesake_is_shown_by_its_name(product: Product) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    assert (
        httpx.post(
            f"{product.url}/v1/chat/completions", json=body, headers={"x-api-key": KEY}, timeout=30
        ).status_code
        == 200
    )
    wait_for(lambda: product.audit("calls")["items"], what="the call on record")
    shown = run(product, "audit", "calls").stdout
    assert "dev" in shown and "dev (" not in shown


@pytest.mark.slow
def test_a_key_expires_at_every_door_and_its_holder_and_operator_are_told(product: Product) -> None:
    made = run(
        product,
        "keys",
        "create",
        "--name",
        "short",
        "--role",
        "client",
        "--role",
        "auditor",
        "--expires",
        "6d 12h",
    )
    assert made.returncode == 0 and "Expires:   20" in made.stderr, made.stderr
    key, doors = made.stdout.strip(), ("/v1/models", "/audit/calls", "/v1/responses/resp_1")

    def asked() -> list[httpx.Response]:
        body = {
            "model": "demo",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "hello"}],
        }
        paths = "/v1/chat/completions", "/v1/messages"
        return [
            httpx.post(product.url + path, json=body, headers={"x-api-key": key}, timeout=30)
            for path in paths
        ] + [
            httpx.get(product.url + path, headers={"x-api-key": key}, timeout=30) for path in doors
        ]

    def state() -> tuple[str, list[str]]:
        listed = json.loads(run(product, "keys", "list", "--json").stdout)["items"]
        return next(one["state"] for one in listed if one["name"] == "short"), [
            one for _, one in expiring_keys(product.database_url)
        ]

    assert [answer.status_code for answer in asked()] == [200, 200, 200, 200, 404]
    found, [warning] = state()
    assert (
        found == "in use"
        and warning.startswith("the key 'short' expires on 20")
        and "in 6 days: make another" in warning
    )
    rows(
        product.database_url,
        "UPDATE api_keys SET expires_at = now() - interval '1 minute' WHERE name = 'short'"
        " RETURNING name",
    )
    wait_for(
        lambda: [answer.status_code for answer in asked()] == [401] * 5, what="every process knows"
    )
    for answer in asked():
        assert answer.json()["error"]["message"].startswith(
            "Incorrect API key provided: it expired on 20"
        ), answer.text
    assert asked()[1].json()["error"]["type"] == "authentication_error"
    found, [warning] = state()
    assert (
        found == "expired"
        and warning.startswith("the key 'short' expired on 20")
        and "its clients get 401" in warning
    )
    assert run(product, "keys", "revoke", "short").returncode == 0 and state() == ("revoked", [])


@pytest.mark.parametrize(
    ("expires", "says"),
    [
        ("30d", ""),
        ("2w", ""),
        ("2199-01-31", "more than 100 years away"),
        ("2099-01-31T14:30:00Z", ""),
        ("0s", "is over"),
        ("2020-01-01", "PostgreSQL's clock says 20"),
        ("999999w", "more than 100 years"),
        ("soon", "must be a span or a time: 30d,"),
        ("yesterday", "must be a span or a time"),
        ("30d ago", "must be a span or a time"),
        ("30", "must be a span or a time"),
    ],
)
def test_when_a_key_expires_is_a_span_or_a_day(place: Place, expires: str, says: str) -> None:
    made = place.keys("create", "--name", "x", "--policy", "strict", "--expires", expires, "--json")
    told = json.loads(made.stdout)
    if says:
        assert (
            made.returncode == 2
            and told["error"]["message"].startswith("--expires: ")
            and says in told["error"]["message"]
        )
    else:
        assert made.returncode == 0 and told["expires_at"].endswith("Z")
