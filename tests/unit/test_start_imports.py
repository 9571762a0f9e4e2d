"""What a process must not load at its start: each costs every start, of every process, tenths of a
second and megabytes."""

import subprocess
import sys
from pathlib import Path

import pytest

from sluice.up.forks import SHARED

ROOT = Path(__file__).resolve().parents[2]
DATABASE = {"sqlalchemy", "alembic"}
WEB = {"fastapi", "starlette"}
OTHERS = {"sqlglot", "rich", "fakeredis", "pytest", "openai", "anthropic"}
HEAVY = DATABASE | WEB | OTHERS


def loaded_by(code: str) -> set[str]:
    """The packages that are there after some Python code."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "gateway.main",
        "workers.policy.worker",
        "workers.judge.worker",
        "workers.audit.writer",
        "pages.main",
    ],
)
def test_a_role_loads_no_heavy_library(module: str) -> None:
    assert not loaded_by(f"import sluice.cli, {module}") & (HEAVY | {"jinja2"})


def test_a_gateway_does_not_load_an_http_client() -> None:
    assert "aiohttp" not in loaded_by("import sluice.cli, gateway.main")


@pytest.mark.slow
def test_what_the_fork_server_loads_for_all_is_not_heavy() -> None:
    loaded = loaded_by(
        f"from importlib import import_module\nfor name in {SHARED!r}: import_module(name)"
    )
    assert not loaded & HEAVY
    assert {"gateway", "workers", "policy", "uvloop"} <= loaded


def test_the_launcher_loads_neither_the_database_nor_what_roles_do() -> None:
    assert not loaded_by("import sluice.cli\nfrom sluice.up import up") & (
        HEAVY | {"psycopg", "aiohttp", "redis", "uvicorn", "gateway", "workers"}
    )


def test_policies_without_a_rule_about_sql_load_no_parser() -> None:
    code = (
        "from policy.loading import load; from settings.config import Config; "
        "[load(series, session_version='1') for series in Config().policies.values()]"
    )
    assert "sqlglot" not in loaded_by(code)


def test_help_of_one_command_does_not_load_the_database() -> None:
    code = (
        "import sys; sys.argv = ['sluice', 'up', '--help']\nfrom sluice.cli import main\ntry:"
        " main()\nexcept SystemExit: pass"
    )
    assert not loaded_by(code) & (DATABASE | WEB)


def test_help_of_an_evaluation_loads_no_policy_and_no_database() -> None:
    code = (
        "import contextlib, io, sys; sys.argv = ['sluice', 'eval', 'run', '--help']\nfrom"
        " sluice.cli import main\n"
        # the help has words of its own
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()"
    )
    assert not loaded_by(code) & (DATABASE | WEB | {"policy", "workers", "sqlglot"})
