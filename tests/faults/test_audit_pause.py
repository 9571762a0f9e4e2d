"""Audit writers pause between batches; a call that waits for its commit ends the pause."""

from pathlib import Path

import pytest

import workers.audit.drain
from tests.support.servers.lanes import open_lane
from tests.support.upstreams.kinds import KINDS

FOR_EVER_S = 3600.0


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_a_call_that_waits_for_its_commit_ends_the_pause(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.audit.drain, "NAP_S", FOR_EVER_S)
    (kind,) = (kind for kind in KINDS if kind.name == "thinking and two tool calls")
    async with open_lane(tmp_path, database_url) as lane:
        for _ in range(3):
            # what is recorded of a call's beginning makes the writer pause: for ever, but for the
            # two tool calls
            seen = await lane.call(kind)
            assert seen.whole
            assert seen.body.count(b'"get_weather"') == 2, seen.body
