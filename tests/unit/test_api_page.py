"""docs/use/api.md says what the code says: paths, filters, headers and errors. Answers of a running
product: tests/e2e/test_api_page.py."""

import ast
import importlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from db import filters
from db.read.counts import DEFAULT_BY, USAGE_BY, Dimension, UsageGroup
from db.seals.findings import Damage, SealFinding
from gateway import index_page
from pages.audit.api import served
from protocol import bounds, errors, unknown_paths
from protocol.dialects.table import CLIENTS, client_paths
from protocol.error_codes import STATUSES
from protocol.errors import PipelineError
from protocol.events import UpstreamFailed
from protocol.records import VerdictName
from tests.support.checks.markdown import DOCS, names, section, tables

PAGE = (DOCS / "use" / "api.md").read_text(encoding="utf-8")
ROOT = DOCS.parent
CLASSES = {
    n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, PipelineError)
}
NOT_TOLD = {
    "upstream_timeout",
    "upstream_unreachable",
    "upstream_protocol_error",
    "local_protocol_error",
    "judge_unavailable",
}
"""Codes that no client gets: those of upstreams become what the table of their errors says, the
others a block or a fault of ours."""


def paths() -> set[str]:
    [table] = tables(PAGE, "Paths")
    return {names(row[0])[0] for row in table[1:]}


def test_every_path_that_is_served_is_there_and_no_other() -> None:
    state = {f"{method} {path}" for method, path, _ in index_page.SERVED}
    assert paths() == {*unknown_paths.SERVED, *served(), *state, "GET /"}
    assert {f"POST {path}" for path in client_paths()} <= paths()


def test_every_filter_of_every_list_is_there() -> None:
    [(_, *rows)] = tables(PAGE, "Filters")
    taken: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for asked in row[2].split(", "):
            taken[asked] |= set(names(row[0]))
    taken["counts"].remove("by")
    taken["usage"].remove("by")
    assert set(taken) == {asked for one in filters.FILTERS for asked in one.of.split()}
    for asked, found in taken.items():
        assert found == {one.name for one in filters.FILTERS if asked in one.of.split()}, asked
    takes = {row[0]: row[1] for row in rows}
    assert names(takes["`verdict`"]) == list(get_args(VerdictName))
    assert names(takes["`state`"]) == [*filters.CallState, *filters.Queued]
    assert names(takes["`by`"]) == [*Dimension, ",".join(DEFAULT_BY)]
    assert names(takes["`by` of usage"]) == [*UsageGroup, ",".join(USAGE_BY)]
    assert f"1 to {filters.MAX_LIMIT:,}; {filters.DEFAULT_LIMIT} " in takes["`limit`"]
    assert f"its first {filters.LEAST_PREFIX} characters" in takes["`call_id`"]


def test_bounds_of_headers_are_those_kept() -> None:
    [table] = tables(PAGE, "Requests")
    said = {names(row[0])[0]: row[1] for row in table[1:]}
    assert f"past {bounds.MAX_SESSION_CHARS} characters" in said["x-sluice-session"]
    assert f"up to {bounds.MAX_TIMEOUT_S:g}" in said["x-sluice-timeout-s"]


def sources() -> Iterator[Path]:
    for folder in ("gateway", "pages/audit", "policy", "workers", "protocol", "streams", "db"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_every_header_of_our_own_is_there_and_no_other() -> None:
    ours = re.compile(r"\bx-(?:sluice|should)-[a-z-]*[a-z]\b")
    found = {name for path in sources() for name in ours.findall(path.read_text(encoding="utf-8"))}
    assert found == set(ours.findall(PAGE))


def test_every_error_of_ours_has_a_row_with_its_status_and_its_types() -> None:
    rows = {names(row[1])[0]: row for row in tables(PAGE, "Errors")[0][1:]}
    leaves = {c.code for c in CLASSES.values() if not c.__subclasses__()}
    assert set(rows) == leaves - NOT_TOLD
    for cls in (c for c in CLASSES.values() if c.code in rows):
        status, code, _, *types, _, _ = rows[cls.code]
        told = {
            name: json.loads(dialect.error_body(cls("x")))["error"]
            for name, dialect in CLIENTS.items()
        }
        assert [int(status), *names("".join(types))] == [
            cls.http_status,
            told["openai"]["type"],
            told["anthropic"]["type"],
        ], code
        assert told["responses"]["type"] == told["openai"]["type"]
        assert told["openai"]["code"] == cls.code


def more_exact(path: Path) -> Iterator[tuple[str, str]]:
    """The codes with which a module makes errors, each with that of its class."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in CLASSES:
                for code in (k.value for k in keywords if k.arg == "code"):
                    match code:
                        case ast.Constant(value=str(said)):
                            yield CLASSES[name].code, said
                        case ast.Name(id=constant):
                            yield (
                                CLASSES[name].code,
                                getattr(
                                    importlib.import_module(
                                        ".".join(path.relative_to(ROOT).with_suffix("").parts)
                                    ),
                                    constant,
                                ),
                            )


@pytest.mark.slow
def test_every_more_exact_code_is_in_the_row_of_its_error() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        for code, said in more_exact(path):
            found[code].add(said)
    rows = {names(row[1])[0]: set(names(row[2])) for row in tables(PAGE, "Errors")[0][1:]}
    assert rows == {code: found[code] for code in rows}
    assert set(found) - set(rows) <= NOT_TOLD


@pytest.mark.parametrize("kind", STATUSES)
def test_an_upstreams_error_becomes_what_the_page_says(kind: str) -> None:
    [row] = [row for row in tables(PAGE, "Errors")[1][1:] if names(row[0]) == [kind]]
    told = {}
    for name, dialect in CLIENTS.items():
        status, _, body = dialect.failed_response(UpstreamFailed(kind, "m", 500))
        error = json.loads(body)["error"]
        told[name] = [status, error["type"], *([error["code"]] if error.get("code") else [])]
    for name, cell in zip(("openai", "anthropic"), row[1:], strict=True):
        first = cell.partition(";")[0]
        assert [int(first[:3]), *names(first)] == told[name]
    status, *rest = told["openai"]
    assert told["responses"] == [400 if status in (403, 404) else status, *rest]


def test_all_of_a_damage_is_there() -> None:
    assert set(SealFinding(Damage.ALTERED, "x").item()) <= set(names(section(PAGE, "Verify")))
