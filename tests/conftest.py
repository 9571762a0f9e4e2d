"""Fixtures for every test: real servers once for each test process, so that pytest-xdist's workers do not meet."""

import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import settings

from db.migrate import upgrade
from tests.support.servers import postgres_server, valkey_server

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=False, max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "default")

SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.SystemRandom().randrange(2**32))


def pytest_configure(config: pytest.Config) -> None:
    """Give every worker of pytest-xdist the seed of the first process."""
    os.environ["SLUICE_TEST_SEED"] = str(SEED)


def pytest_report_header() -> str:
    """Say the seed, so that a run can be repeated."""
    return f"SLUICE_TEST_SEED={SEED}"


@pytest.fixture
def seed() -> int:
    """A seed for the test's own randomness; printed in the header of the run."""
    return SEED


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Valkey of this test process: AOF on, no eviction."""
    with valkey_server(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real, migrated PostgreSQL of this test process."""
    with postgres_server(tmp_path_factory.mktemp("postgres")) as url:
        upgrade(url)
        yield url
