"""A product with two configured upstreams, one of each dialect, both played by one replay server;
and its record."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from protocol.request import DialectName
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, base_config, running
from tests.support.upstreams.replay import Replay, replaying
from tests.support.waiting import wait_for

Place = tuple[Product, Replay]
"""A product and the upstream that answers it."""

PROVIDER_KEYS: dict[DialectName, str] = {
    "openai": "sk-provider-of-openai-4711",
    "anthropic": "sk-provider-of-anthropic-4712",
}
MODEL: dict[DialectName, str] = {"openai": "gpt-x", "anthropic": "claude-x"}
_ENV: dict[DialectName, str] = {
    "openai": "TEST_OPENAI_PROVIDER_KEY",
    "anthropic": "TEST_ANTHROPIC_PROVIDER_KEY",
}


def config(replay: Replay) -> Json:
    """The configuration of a first start, and two upstreams at the replay server: `gpt-*` in one
    dialect, `claude-*` in the other."""
    made = base_config()
    made["upstreams"] = {
        "openai": {
            "dialect": "openai",
            "base_url": replay.url + "/v1",
            "api_key_env": _ENV["openai"],
            "headers": {"x-team": "seven"},
            "breaker": False,
        },
        "anthropic": {
            "dialect": "anthropic",
            "base_url": replay.url,
            "api_key_env": _ENV["anthropic"],
            "breaker": False,
        },
    }
    made["demo"] = True
    made["models"] = [
        {"match": "gpt-*", "upstream": "openai"},
        {"match": "claude-*", "upstream": "anthropic"},
    ]
    return made


@contextmanager
def replayed(
    folder: Path,
    redis_url: str,
    database_url: str,
    make: Callable[[Replay], Json] = config,
) -> Iterator[tuple[Product, Replay]]:
    """Run a product whose upstreams are a replay server; `make` gives its configuration."""
    before = {name: os.environ.get(name) for name in _ENV.values()}
    os.environ.update({_ENV[d]: PROVIDER_KEYS[d] for d in _ENV})
    try:
        with replaying() as replay:
            with running(folder, redis_url, database_url, make(replay)) as product:
                yield product, replay
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def new_session() -> str:
    """A name for `x-sluice-session`, by which a test finds its call in the record."""
    return f"test-{secrets.token_hex(8)}"


def call_of(product: Product, session: str) -> Json:
    """The call of a session, when its end is on record."""

    def ended() -> Json | None:
        items = product.audit("calls", session=session)["items"]
        return items[0] if items and items[0]["ended_at"] else None

    return wait_for(ended, timeout_s=15, what="the call's end on record")


def recorded_chunks(product: Product, call_id: str) -> list[bytes]:
    """What came from upstream in a call, event by event, from PostgreSQL."""
    with psycopg.connect(product.database_url) as connection:
        rows = connection.execute(
            "SELECT raw FROM chunks WHERE call_id = %s ORDER BY seq", (call_id,)
        ).fetchall()
    return [bytes(row[0]) for row in rows]


def recorded_bytes(product: Product, call_id: str) -> bytes:
    """What came from upstream in a call, from PostgreSQL."""
    return b"".join(recorded_chunks(product, call_id))


def assert_no_keys_in_logs(product: Product) -> None:
    """No key, the clients' or the providers', is in any log of the product."""
    for log in product.folder.glob("*.log"):
        text = log.read_text(errors="replace")
        assert not [k for k in (KEY, *PROVIDER_KEYS.values(), "sk-sluice") if k in text], log.name
