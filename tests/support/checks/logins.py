"""Browsers of the pages, logged in or not, and what tests of logins change behind them."""

import httpx2 as httpx
import psycopg

from db.keys import KeyStore
from tests.support.servers.product import Product


def browser(product: Product) -> httpx.Client:
    """A browser that follows nothing by itself."""
    return httpx.Client(
        base_url=product.url, timeout=20, headers={"origin": product.url, "accept": "text/html"}
    )


def log_in(product: Product, key: str, next_: str = "") -> httpx.Client:
    """A browser that is logged in."""
    made = browser(product)
    answer = made.post("/debug/login", data={"key": key, "next": next_})
    assert answer.status_code == 303, answer.text
    return made


def rename(product: Product, name: str, to: str) -> None:
    """Give a table another name."""
    with psycopg.connect(product.database_url, autocommit=True) as owner:
        owner.execute(f"ALTER TABLE {name} RENAME TO {to}".encode())


async def make_key(product: Product, name: str) -> str:
    """Make a key that may read."""
    store = KeyStore.open(product.database_url)
    try:
        return await store.create(name, roles=("auditor",))
    finally:
        await store.close()
