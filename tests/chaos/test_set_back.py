"""Ten seconds of PostgreSQL are lost: what a failover to a replica that lagged leaves behind."""

from pathlib import Path

import pytest

from tests.support.checks.figures import Figure
from tests.support.checks.holes import damageable, set_back_under_load


@pytest.mark.long
@pytest.mark.case("D11")
@pytest.mark.timeout(180)
def test_d11_calls_of_ten_seconds_that_postgres_lost_are_named(
    tmp_path: Path, figure: Figure
) -> None:
    with damageable(tmp_path, ended_ttl_s=12.0) as place:
        figure(
            "calls named of those that lost something by ten seconds",
            set_back_under_load(place, seconds=10.0),
            "",
        )
