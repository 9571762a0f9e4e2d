"""What code and pages point to is there: pages, their sections, files, names within files."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from db.migrations.place import revisions
from tests.support.repository import ROOT, tracked

DOCS = ROOT / "docs"
BASES = (ROOT, DOCS, *(DOCS / name for name in ("use", "run", "change", "data")))
SECTIONS = r"\d+(?:\.\d+)?(?:(?:, | to | and )\d+(?:\.\d+)?)*"
TO_PAGE = re.compile(
    rf"""(?<![\w/.*-])((?:[\w.-]+/)*[\w.-]*\w\.md)(?:\#([\w-]+)|,? (?:section )?({SECTIONS})\b|, "([^"\n]+)")?"""
)
TO_TABLE = re.compile(r"\b[Tt]able \d+\.\d+\b")
"""A table without its page leads nowhere."""
TO_FILE = re.compile(
    r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|json|yaml|sql|in|mjs))?)(?::([A-Za-z_][\w.]*))?`"
)
"""In backticks: a folder, a file, or `path.py:Class.method`."""
ANCHOR = re.compile(r"[^a-z0-9_ -]")
NOT_HERE = {"v1/", "audit/", "debug/", "LICENSES/"}
"""Paths that are no files: of the HTTP API, or made when something runs."""


@cache
def headings(page: Path) -> tuple[str, ...]:
    return tuple(re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def anchors(page: Path) -> set[str]:
    return {ANCHOR.sub("", heading.lower()).replace(" ", "-") for heading in headings(page)}


def broken_pages(text: str, home: Path) -> list[str]:
    """The pointers to pages in `text`, a file of the folder `home`, that lead nowhere."""
    broken = []
    for found in TO_PAGE.finditer(text):
        name, anchor, sections, title = found.groups()
        page = next((p for base in (*BASES, home) if (p := base / name).is_file()), None)
        numbers = (
            {heading.split(" ")[0].rstrip(".") for heading in headings(page)} if page else set()
        )
        leads = (
            page is not None
            and (not anchor or anchor in anchors(page))
            and (not sections or set(re.findall(r"[\d.]+", sections)) <= numbers)
            and (not title or title in headings(page))
        )
        if not leads:
            broken.append(found.group())
    return broken + TO_TABLE.findall(text)


@cache
def names(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes, constants, and `Class.member`."""
    return frozenset(_defined(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def _defined(body: list[ast.stmt], within: str) -> list[str]:
    found = []
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.append(within + node.name)
            case ast.ClassDef():
                found += [within + node.name, *_defined(node.body, f"{within}{node.name}.")]
            case ast.Assign():
                found += [
                    within + target.id for target in node.targets if isinstance(target, ast.Name)
                ]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.append(within + name)
            case _:
                pass
    return found


def broken_files(text: str) -> list[str]:
    """The files, folders and names within files that a page names in backticks and that are not
    there."""
    broken = []
    for path, name in TO_FILE.findall(text):
        place = ROOT / path
        if path.split("/")[0] + "/" in NOT_HERE:
            continue
        if not place.exists() or (name and name not in names(place)):
            broken.append(f"{path}:{name}" if name else path)
    return broken


def texts() -> list[Path]:
    kinds = {".py", ".yaml", ".yml", ".in", ".toml", ".sql", ".mako", ".mjs", ""}
    return [
        p
        for p in tracked()
        if p.suffix in kinds and p.name != "test_pointers.py" and "fixtures" not in p.parts
    ]


def test_what_code_says_of_pages_is_there() -> None:
    found = {
        str(p.relative_to(ROOT)): b
        for p in texts()
        if (b := broken_pages(p.read_bytes().decode("utf-8", "replace"), p.parent))
    }
    assert found == {}


PAGES = [p for p in tracked() if p.suffix == ".md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert broken_pages(text, page.parent) + broken_files(text) == []


def test_a_pointer_that_leads_nowhere_is_found() -> None:
    said = (
        "see docs/change/protocol.md 1.99, docs/nowhere.md, docs/use/tools.md#nothing, docs/run/performance.md,"
        ' "No such heading" and table 1.7'
    )
    assert len(broken_pages(said, ROOT)) == 5
    said = (
        "docs/change/protocol.md 1.1, 1.2; docs/change/protocol.md 1.3 to 1.7; docs/use/tools.md#beta-headers;"
        ' docs/run/performance.md, "The gate"'
    )
    assert broken_pages(said, ROOT) == []


def test_a_name_that_is_gone_is_found() -> None:
    assert broken_files("`protocol/none.py` and `protocol/bytes/sse.py:Nobody`") == [
        "protocol/none.py",
        "protocol/bytes/sse.py:Nobody",
    ]
    assert (
        broken_files(
            "`protocol/bytes/sse.py`, `protocol/`, `protocol/events.py:StopReason.REFUSAL`"
        )
        == []
    )


def test_every_migration_is_named_where_operators_look() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [one for one in revisions() if f"`{one}`" not in changes] == []
