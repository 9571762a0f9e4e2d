"""Fixtures for every test: real servers once for each test process, so that pytest-xdist's workers
do not meet."""

import contextlib
import gc
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from db.migrations.migrate import upgrade
from tests.support.checks.record import fresh_database, now_ms
from tests.support.servers.stores import Server, Stores, own_postgres, own_valkey
from tests.support.servers.stores_shared import postgres_server, valkey_server
from tests.support.upstreams.replay import Replay, replaying

pytest_plugins = ["tests.support.checks.ending", "tests.support.checks.figures"]

SHARE = "SLUICE_TEST_SHARE"
"""Which share of a run is tried, from 0 to 1; all of it where it is not set."""
settings.register_profile("whole", deadline=None, print_blob=True, derandomize=False)
settings.register_profile("share", settings.get_profile("whole"), max_examples=25)
settings.load_profile("whole" if float(os.environ.get(SHARE) or 1) == 1 else "share")

SEED = int(os.environ.get("SLUICE_TEST_SEED") or random.SystemRandom().randrange(2**32))
FEW = 4
"""A test of so many cases runs all of them."""
_MEMORY, _RUN_BYTES = "/dev/shm", 8 * 2**30
TEMP_ROOT = "PYTEST_DEBUG_TEMPROOT"


def _in_memory() -> str | None:
    """A folder in memory that has room for all databases of a run, if there is one. Without a
    journal, ext4 looks at each file that was deleted in the last minute before it makes another,
    which was half of the CPU that the tests of the record took.
    """
    with contextlib.suppress(OSError):
        for left in Path(_MEMORY).glob("sl-*-*"):
            # of a run that was killed: it would keep its memory until the machine starts again
            if not Path("/proc", left.name.split("-")[1]).exists():
                shutil.rmtree(left, ignore_errors=True)
        if shutil.disk_usage(_MEMORY).free >= _RUN_BYTES:
            return _MEMORY
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Give every worker of pytest-xdist the seed of the first process, and this run a temporary
    folder of its own.

    Each start of pytest closes the folder that all runs of a user share, and PostgreSQL, which runs
    as another user when we are root, could not reach its data any more.
    """
    os.environ["SLUICE_TEST_SEED"] = str(SEED)
    if TEMP_ROOT not in os.environ:
        own = tempfile.mkdtemp(prefix=f"sl-{os.getpid()}-", dir=_in_memory())
        os.environ[TEMP_ROOT] = own
        # no test speaks TLS, but every client loads the machine's certificates, which takes 30 ms
        # of CPU each time
        os.environ["SSL_CERT_DIR"] = str(Path(own, "certificates"))
        os.environ.pop("SSL_CERT_FILE", None)
        config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For `-n auto` one process more than there are cores: a third of the time of most tests with
    servers is waiting."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but a seeded share: of the slow tests, and of the cases of each test that has
    many."""
    share = float(os.environ.get(SHARE) or 1)
    if share == 1:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    left_out = set(random.Random(SEED).sample(slow, len(slow) - round(share * len(slow))))
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item not in left_out:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for test, of_test in cases.items():
        wanted = max(FEW, round(share * len(of_test)))
        if len(of_test) > wanted:
            drawn = random.Random(f"{SEED} {test}").sample(of_test, len(of_test) - wanted)
            left_out.update(drawn)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test has a time of its own."""
    now_ms.cache_clear()


def pytest_report_header() -> str:
    """Say the seed, so that a run can be repeated."""
    return f"SLUICE_TEST_SEED={SEED}"


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say in CI at once why a test failed: a run that is cut off has no summary."""
    if report.failed and os.environ.get("CI") and "PYTEST_XDIST_WORKER" not in os.environ:
        print(
            f"\n{report.nodeid} ({report.when}, {report.duration:.1f} s)\n{report.longreprtext}",
            flush=True,
        )


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short path: the path of a socket has at most 107 characters, and `tmp_path`
    names the user, the run and the test."""
    with tempfile.TemporaryDirectory(prefix="sl-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What a module leaves open is found at its end."""
    yield
    gc.collect()


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


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str) -> Stores:
    """Where the product of a module lies: each may have one."""
    return tmp_path_factory.mktemp("product"), redis_url, database_url


@pytest.fixture
def url(database_url: str) -> Iterator[str]:
    """A migrated database of the test's own, with nothing in it."""
    with fresh_database(database_url) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    """An upstream that answers what it is told to."""
    with replaying() as server:
        yield server


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    """A Valkey of the test's own, to be broken."""
    with own_valkey(tmp_path) as server:
        yield server


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Server]:
    """A PostgreSQL of the test's own, to be broken."""
    with own_postgres(tmp_path) as server:
        yield server
