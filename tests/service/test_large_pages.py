"""Pages of calls as large as they may be: bounded, and whatever is cut says how much it is and
leads to all of it."""

import json
import time

import pytest

from bench.pages.call import HTML_BYTES, fill, large_body
from tests.support.servers.asked import pages_of
from tests.support.servers.product import base_config


@pytest.mark.slow
async def test_calls_as_large_as_they_may_be_are_cut_in_words_and_whole_behind_links(
    url: str,
) -> None:
    calls = await fill(url)
    async with pages_of(url, base_config()) as pages:
        for name, said in (
            ("long", "Blocks 1 to 40 of 400"),
            ("tools", "Blocks 1 to 40 of 4,000"),
            ("arguments", "of 5.2 MB"),
        ):
            began = time.perf_counter()
            shown = await pages.page(f"/debug/calls/{calls[name]}")
            print(
                f"{name}: {len(shown.html):,} characters in"
                f" {1000 * (time.perf_counter() - began):.0f} ms"
            )
            assert said in shown.html and len(shown.html.encode()) <= HTML_BYTES, name
        last = await pages.page(f"/debug/calls/{calls['tools']}?block=3999")
        assert "needle_1999" in last.html and "Blocks 3,961 to 4,000 of 4,000" in last.html
        arguments = f"/debug/calls/{calls['arguments']}/blocks/0"
        assert f'href="{arguments}/raw?of=arguments"' in (await pages.page(arguments)).html
        assert json.loads(await pages.file(f"{arguments}/raw?of=arguments")) == {
            "content": "x" * 5 * 2**20
        }
        request = await pages.page(f"/debug/calls/{calls['body']}/request")
        told, turns = request.values["request"], len(json.loads(large_body())["messages"])
        left = turns - len(told["open"]) - len(told["folded"])
        assert (
            left > 1_000
            and told["not_listed"] == left
            and f"{left:,} older turns are not listed here" in request.html
        )
        assert len(request.html.encode()) <= 4 * HTML_BYTES
        assert await pages.file(f"/debug/calls/{calls['body']}/request/raw") == large_body()
