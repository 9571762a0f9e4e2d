"""Pages that show what vouches for the record: evidence of a tool call, a call's place in the tree,
and how far sealing is."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from db.seals.proof import check
from db.seals.redact import redact
from pages import links
from protocol.errors import InvalidRequest, NotFound
from tests.support.checks.reading import insert
from tests.support.checks.record import (
    call_id,
    fresh_database,
    now_ms,
    rows,
    tool_call_record,
    whole_call,
)
from tests.support.checks.sealed import Log, fill
from tests.support.servers.asked import pages_of

KEY = Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def log(database_url: str) -> Iterator[Log]:
    """Four sealed calls under two signed checkpoints, one that is not sealed, one redacted."""
    with fresh_database(database_url) as url:
        log = fill(url, random.Random(5), calls=4, checkpoints=2, key=KEY)
        fresh = call_id(now_ms() + 99)
        hostile = tool_call_record(
            fresh,
            block=4,
            name="<img src=x>",
            arguments=b"<script>alert(1)</script>",
            reason="\u202ereason",
        )
        asyncio.run(insert(url, *whole_call(fresh), hostile, bodies={fresh: b"{}"}))
        log.calls.append(UUID(fresh))
        assert redact(url, log.calls[0], "asked for")
        yield log


@pytest.mark.slow
async def test_evidence_shows_both_sides_with_their_hashes_the_seal_the_checkpoint_and_who_looked(
    log: Log,
) -> None:
    [(arguments, released)] = rows(
        log.url,
        "SELECT arguments, released_arguments FROM tool_calls WHERE call_id = %s AND block = 2",
        log.calls[1],
    )
    async with pages_of(log.url, {}) as pages:
        shown = await pages.page(links.evidence(log.calls[1], 2))
        for text in (
            sha256(arguments).hexdigest(),
            sha256(released).hexdigest(),
            "Verified now",
            "try out guesses",
            "0123456789abcdef",
        ):
            assert text in shown.html
        assert shown.values["verified"]["ok"] is True
        assert shown.values["proof"]["checkpoint"] == log.checkpoints[1]
        assert log.checkpoints[1].splitlines()[2] in shown.html
        data = await pages.file(shown.values["file"])
        assert check(data, key=KEY.public_key(), against=[log.checkpoints[1]]).evidence.block == 2
        earlier = await pages.page(links.evidence(log.calls[1], 2, size=2))
        assert earlier.values["proof"]["checkpoint"] == log.checkpoints[0]
        plain = await pages.page(links.evidence(log.calls[1], 0))
        assert plain.values["sides"] == [] and plain.values["proof"] is not None


async def test_where_there_is_no_evidence_the_page_says_why_and_the_file_is_refused(
    log: Log,
) -> None:
    async with pages_of(log.url, {}) as pages:
        for call, block, why in (
            (log.calls[4], 4, "has no seal yet"),
            (log.calls[0], 2, "was deleted on"),
        ):
            shown = await pages.page(links.evidence(call, block))
            assert shown.values["proof"] is None and why in shown.html
            with pytest.raises(InvalidRequest, match=why):
                await pages.file(shown.values["file"])
        hostile = await pages.page(links.evidence(log.calls[4], 4))
        assert (
            "<img" not in hostile.html
            and "<script>" not in hostile.html
            and "\u202e" not in hostile.html
        )
        for url, error in (
            (links.evidence(log.calls[1], 77), NotFound),
            (links.evidence(UUID(int=9), 1), NotFound),
            (links.evidence(log.calls[1], 2, size="x"), InvalidRequest),
            (links.evidence(log.calls[1], 2, what=1), InvalidRequest),
            (f"{links.call(log.calls[1])}/blocks/x/evidence", InvalidRequest),
        ):
            with pytest.raises(error):
                await pages.page(url)


@pytest.mark.slow
async def test_the_proof_tab_says_where_a_call_stands_and_whether_it_still_fits(log: Log) -> None:
    async with pages_of(log.url, {}) as pages:
        shown = await pages.page(links.tab(log.calls[2], "proof"))
        assert (
            shown.values["verified"]["ok"],
            [seal["position"] for seal in shown.values["seals"]],
        ) == (True, [2])
        assert links.evidence(log.calls[2], 2) in shown.html
        again = await pages.page(links.tab(log.calls[0], "proof"))
        assert len(again.values["seals"]) == 2
        assert (await pages.page(links.tab(log.calls[4], "proof"))).values["verified"]["ok"] is None
        with changed(log.url, log.calls[3]):
            damaged = await pages.page(links.tab(log.calls[3], "proof"))
            assert damaged.values["verified"]["ok"] is False and "altered" in damaged.html
            refused = await pages.page(links.evidence(log.calls[3], 2))
            assert refused.values["proof"] is None and "does not fit its seal" in refused.html
        with pytest.raises(NotFound):
            await pages.page(links.tab(UUID(int=9), "proof"))


@contextmanager
def changed(url: str, call: UUID) -> Iterator[None]:
    """Let a verdict be another for as long as this lasts."""
    change = "UPDATE tool_calls SET verdict = %s WHERE call_id = %s AND block = 2"
    rows(url, change, "allow", call)
    yield
    rows(url, change, "block", call)


@pytest.mark.slow
async def test_integrity_says_how_far_sealing_is(log: Log) -> None:
    async with pages_of(log.url, {}) as pages:
        shown = await pages.page(links.INTEGRITY)
        assert (
            shown.values["seals"],
            shown.values["size"],
            shown.values["unchecked"],
            shown.values["waiting"],
        ) == (5, 4, 1, 1)
        assert shown.values["is_signed"] and "Ended calls without a seal" in shown.html
        checked = await pages.page(f"{links.INTEGRITY}?verify=60")
        assert checked.values["verified"]["ok"] is True
        with pytest.raises(InvalidRequest):
            await pages.page(f"{links.INTEGRITY}?verify=999")
    with fresh_database(log.url) as empty:
        async with pages_of(empty, {}) as pages:
            shown = await pages.page(links.INTEGRITY)
            assert shown.html.count("none yet") == 2
