"""Calls of a running product, and the sums that their ends say."""

from typing import Any

import psycopg

from protocol.request import DialectName
from tests.support.checks.recount import sum_differences
from tests.support.json_values import Json
from tests.support.servers.product import base_config
from tests.support.waiting import wait_for

NAMES: tuple[DialectName, ...] = ("openai", "anthropic")


def config() -> Json:
    return base_config() | {"limits": {"lease_s": 1.0, "keepalive_s": 0.2, "judge_s": 30.0}}


def ended(record: "psycopg.Connection[Any]", call_id: str) -> tuple[str, str]:
    """State and reason, once they are on record."""
    query = b"SELECT state, reason FROM ends WHERE call_id = %s"
    found = wait_for(
        lambda: record.execute(query, (call_id,)).fetchone(), timeout_s=20, what="the end on record"
    )
    return found[0], found[1]


def events(record: "psycopg.Connection[Any]", call_id: str) -> list[tuple[str, int, str]]:
    query = b"SELECT kind, number, detail FROM events WHERE call_id = %s ORDER BY kind, number"
    return list(record.execute(query, (call_id,)).fetchall())


def no_differences(record: "psycopg.Connection[Any]", call_id: str) -> None:
    ended(record, call_id)
    wait_for(lambda: not sum_differences(record, call_id), what="the rows")
    assert not sum_differences(record, call_id, all_known=True)
