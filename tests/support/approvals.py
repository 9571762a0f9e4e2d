"""Calls that wait for people, and people who decide about them in the database, as the API would
have them do."""

import json
from typing import Any

import psycopg

from tests.support.json_values import Json
from tests.support.servers.product import Product
from tests.support.waiting import wait_for


def asking(**approval: Any) -> list[Json]:
    """A series in which people are asked about deletions."""
    rule = {"name": "deletes", "does": {"effects": ["delete"]}, "reason": "destructive"}
    return [{"use": "tool_rules", "ask": [rule], "approval": approval}]


def asked(product: Product, words: str, count: int = 1) -> list[str]:
    """The ids of the requests whose arguments have these words, the newest first, once there are so
    many."""
    found: list[str] = []

    def are_there() -> bool:
        with psycopg.connect(product.database_url) as connection:
            rows = connection.execute(
                "SELECT approval_id FROM approvals WHERE position(%s in arguments) > 0"
                " ORDER BY at DESC",
                (words.encode(),),
            ).fetchall()
        found[:] = [row[0] for row in rows]
        return len(found) >= count

    wait_for(are_there, timeout_s=20, what="the request on record")
    return found


def decide(
    product: Product,
    approval_id: str,
    vote: str = "approve",
    by: str = "carol",
    note: str = "",
    edited: Json | None = None,
) -> str:
    """Decide as somebody; returns what became of it."""
    changed = None if edited is None else json.dumps(edited).encode()
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute(
            "SELECT sluice_decide_approval(%s, %s, %s, %s, %s, %s)",
            (approval_id, f"id-of-{by}", by, vote, note, changed),
        ).fetchone()
    assert row is not None
    return str(row[0])


def used_by(product: Product, approval_id: str) -> str:
    """The call that used an approval, if one did."""
    with psycopg.connect(product.database_url) as connection:
        row = connection.execute(
            "SELECT coalesce(used_by_call::text, '') FROM approvals WHERE approval_id = %s",
            (approval_id,),
        ).fetchone()
    assert row is not None
    return str(row[0])
