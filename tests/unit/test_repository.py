"""Rules of this repository that no linter knows."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from settings.defaults import VERSION
from tests.support.repository import ROOT, tracked

INDEX = re.compile(
    # in pieces, so that this file names none either
    r"(--(extra-)?index-url|--find-links|--trusted-host|index_url|https?://[^\s\"']*/simple\b|files\.python"
    r"hosted|pypi\."
    r"org)"
)


def test_no_file_names_a_package_index() -> None:
    named = {}
    for path in tracked():
        if path.name in {"test_repository.py", "lock"}:
            continue
        found = INDEX.search(path.read_bytes().decode("utf-8", "replace"))
        if found:
            named[str(path.relative_to(ROOT))] = found.group()
    assert named == {}


def test_every_locked_package_has_hashes() -> None:
    for name in ("requirements.txt", "requirements-local.txt", "requirements-dev.txt"):
        text = (ROOT / name).read_text()
        packages = re.findall(r"^([A-Za-z0-9._-]+)==", text, re.M)
        assert packages
        assert len(packages) == len(re.findall(r"==[^\n]*\\\n    --hash=sha256:", text)), name


def test_dev_lock_holds_what_the_runtime_locks() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[A-Za-z0-9._-]+==[^ ]+", (ROOT / name).read_text(), re.M))

    assert (
        pins("requirements.txt") <= pins("requirements-local.txt") <= pins("requirements-dev.txt")
    )


def test_locks_are_installed_as_they_are() -> None:
    # pip before 23.3 takes the newest `redis` where another package asks for `redis[hiredis]`, and
    # then has no hash for it
    for path in tracked():
        if path.suffix in {"", ".py"} and path.parts[-2] != "unit":
            for line in path.read_bytes().decode("utf-8", "replace").splitlines():
                assert (
                    "install" not in line or "--require-hashes" not in line or "--no-deps" in line
                ), path


def test_folders_of_tests_are_packages_and_alembic_is_none() -> None:
    for folder in (ROOT / "tests").iterdir():
        if folder.is_dir() and any(folder.glob("*.py")):
            assert (folder / "__init__.py").exists(), folder
    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}.isdisjoint(
        {
            "db",
            "demo",
            "gateway",
            "pages",
            "policy",
            "protocol",
            "providers",
            "settings",
            "sluice",
            "streams",
            "workers",
            "alembic",
        }
    )


def test_the_version_is_told_as_the_package_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_the_license_is_apache_2_in_its_official_words() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE"]
    # of https://www.apache.org/licenses/LICENSE-2.0.txt
    assert (
        sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
        == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )
    assert "COPY LICENSE ." in (ROOT / "Dockerfile").read_text()


def test_every_file_of_the_product_is_in_the_package(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = tmp_path / "source"
    source.mkdir()
    for name in (
        "setup.py",
        "README.md",
        *setup["tool"]["importlinter"]["root_packages"],
        "alembic",
    ):
        (source / name).symlink_to(ROOT / name)
    # the setuptools that some Pythons bring is older than names of licenses there
    project = re.sub(r"^license.*\n", "", (ROOT / "pyproject.toml").read_text(), flags=re.M)
    (source / "pyproject.toml").write_text(project)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "setup.py",
        "-q",
        "egg_info",
        "-e",
        str(tmp_path),
        "build_py",
        "-d",
        str(tmp_path / "lib"),
    ]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    found = {
        path.relative_to(tmp_path / "lib").as_posix()
        for path in (tmp_path / "lib").rglob("*")
        if path.is_file()
    }
    roots = {*setup["tool"]["importlinter"]["root_packages"], "alembic"}
    files = [
        path.relative_to(ROOT).as_posix()
        for path in tracked()
        if path.relative_to(ROOT).parts[0] in roots
    ]
    assert found == {re.sub("^alembic/", "db/scripts/", name) for name in files}


CLOCKS = {
    "now",
    "now_ms",
    "time",
    "time_ns",
    "monotonic",
    "utcnow",
    "today",
    "call_id",
    "new_call_id",
}


def at_import(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that run when a module is imported: not those in its functions, but in their
    defaults and decorators."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        parts: list[ast.AST] = [node.args, *getattr(node, "decorator_list", [])]
    else:
        parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        yield node
    for part in parts:
        yield from at_import(part)


@pytest.mark.slow
def test_no_test_takes_its_time_before_it_begins() -> None:
    # a suite takes minutes, and the product looks back for fewer
    taken = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {"bench", "tests"}
        for call in at_import(ast.parse(path.read_text()))
        if (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        in CLOCKS
    ]
    assert taken == []
