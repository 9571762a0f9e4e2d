"""Calls as large as they may be: each page is bounded, and says of what it leaves out how much
there is, with a link to the whole."""

import asyncio
from collections.abc import Iterator

import pytest

from bench.pages import call as large
from tests.support.checks.record import fresh_database
from tests.support.servers.asked import pages_of
from tests.support.servers.product import base_config

BYTES = 100_000
PAGES = {
    "{long}": (BYTES, "Blocks 1 to 40 of 400", "?page=2"),
    "{long}?page=2": (BYTES, "Blocks 41 to 80 of 400", "?page=3"),
    "{long}/wire?seq=5000": (2 * BYTES, "Chunks 4,801 to 5,000 of 9,991", "/wire?seq=5001"),
    "{long}/diff": (BYTES, "Page 1 of 10, 400 blocks", "/diff?page=2"),
    "{tools}": (BYTES, "Blocks 1 to 40 of 4,000", "?page=2"),
    "{arguments}": (
        BYTES,
        "The first 4.1 kB and the last 4.1 kB of 5.2 MB",
        "/blocks/0/raw?of=arguments",
    ),
    "{body}/request": (BYTES, "Raw body, 16.7 MB", "/request/raw"),
}
"""Pages with the bytes that each may have, what it says of the rest, and where that is. 200 chunks
of the wire have their own bound."""


@pytest.fixture(scope="module")
def record(database_url: str) -> Iterator[tuple[str, dict[str, str]]]:
    with fresh_database(database_url) as url:
        yield url, asyncio.run(large.fill(url))


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_page_of_a_large_call_is_small_and_says_what_it_leaves_out(
    record: tuple[str, dict[str, str]],
) -> None:
    url, calls = record

    async def all_pages() -> dict[str, str]:
        async with pages_of(url, base_config()) as pages:
            return {
                path: (await pages.page(f"/debug/calls/{path.format(**calls)}")).html
                for path in PAGES
            }

    shown = asyncio.run(all_pages())
    for path, (most, said, link) in PAGES.items():
        html = shown[path]
        assert len(html.encode()) <= most, (path, len(html.encode()))
        assert said in html and link in html.replace("&amp;", "&"), path
