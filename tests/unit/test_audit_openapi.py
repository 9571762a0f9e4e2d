"""The OpenAPI document of the audit API: it has every route, parameter and error, and is one that
programs can read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import OpenAPI
from fastapi.routing import APIRoute

from db.filters import filters_of, parse_filters
from db.read.counts import parse_counts
from pages.audit.api import _document, _make_router, _offers
from tests.support.json_values import Json

ROOT = Path(__file__).parents[2]
DOCUMENT: Json = json.loads(_document())
OPERATIONS = {
    (method.upper(), path): found
    for path, methods in DOCUMENT["paths"].items()
    for method, found in methods.items()
}


def references(value: Any) -> Iterator[str]:
    """Every `$ref` in a value."""
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name == "$ref")
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from references(inner)


def codes(operation: Json) -> set[tuple[int, str]]:
    """Status and code of the errors of an operation."""
    return {
        (int(status), code)
        for status, answer in operation["responses"].items()
        if status.isdigit() and int(status) >= 400
        for code in answer["content"]["application/json"]["schema"]["properties"]["error"][
            "properties"
        ]["code"]["enum"]
    }


def test_it_has_every_route_and_no_other() -> None:
    routes = {
        (method, route.path)
        for route in _make_router().routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes == OPERATIONS.keys() and ("GET", "/audit/openapi.json") in routes


@pytest.mark.parametrize("offer", _offers(), ids=lambda offer: offer.path)
def test_it_has_every_parameter(offer: Any) -> None:
    operation = OPERATIONS[offer.method, f"/audit{offer.path}"]
    listed = [(one["in"], one["name"]) for one in operation["parameters"]]
    assert len(set(listed)) == len(listed)
    assert {name for place, name in listed if place == "path"} == set(
        re.findall(r"\{(\w+)\}", offer.path)
    )
    queries = {name for place, name in listed if place == "query"}
    filters = {one.name for one in filters_of(offer.asked)} if offer.asked else set()
    assert queries == filters | ({"by"} if offer.asked in ("counts", "usage") else set())
    for one in operation["parameters"]:
        for value in (
            *one["schema"].get("enum", ()),
            *([one["schema"]["default"]] if "default" in one["schema"] else []),
        ):
            # what it says may be sent is taken
            given = [(one["name"], str(value))]
            assert (
                parse_counts(given)
                if one["name"] == "by" and offer.asked == "counts"
                else one["name"] == "by" or parse_filters(given, of=offer.asked)
            )


def test_its_errors_are_those_of_the_page_and_of_the_code() -> None:
    page = (ROOT / "docs" / "use" / "api.md").read_text().partition("\n## Errors\n")[2]
    documented = {
        (int(status), code)
        for status, words in re.findall(r"^\| (\d{3}) \|([^|]*\|[^|]*)\|", page, re.M)
        for code in re.findall(r"`(\w+)`", words)
    }
    named = set().union(*map(codes, OPERATIONS.values()))
    assert named <= documented, named - documented
    files = [
        *ROOT.glob("pages/audit/*.py"),
        *ROOT.glob("db/read/*.py"),
        ROOT / "db/filters.py",
        ROOT / "db/write/reviews.py",
    ]
    raised = {code for file in files for code in re.findall(r'code="(\w+)"', file.read_text())}
    elsewhere = {
        "no_evidence",
        "response_not_found",
        "previous_response_not_found",
        "item_not_found",
    }
    assert raised - elsewhere <= {code for _, code in named}, "of kept answers and evidence alone"


def test_programs_can_read_it() -> None:
    assert (
        DOCUMENT["openapi"].startswith("3.1.")
        and OpenAPI.model_validate(DOCUMENT).info.title == "Sluice audit API"
    )
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"\w+", one) for one in ids)
    for reference in references(DOCUMENT):
        found: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        assert found["type"] == "object"
    for (method, _), operation in OPERATIONS.items():
        assert {"200", "401", "403", "503", "default"} <= operation[
            "responses"
        ].keys() and "422" not in operation["responses"]
        assert all(answer["description"] for answer in operation["responses"].values())
        assert ("requestBody" in operation) == (method == "POST")
    assert DOCUMENT["security"] == [
        {name: []} for name in DOCUMENT["components"]["securitySchemes"]
    ]
