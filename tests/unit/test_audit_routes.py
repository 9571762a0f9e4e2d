"""Every route of the audit API asks for an auditor's key, also one that somebody adds and thinks of
nothing."""

from collections.abc import Iterable

import httpx2
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from db.read.queries import AuditReader
from pages.audit.api import AuditApi, _make_router
from settings.config import Key

KEYS = {
    b"aud": Key(name="a", sha256="0" * 64, roles=("auditor",)),
    b"cli": Key(name="c", sha256="1" * 64),
}
IDS = {
    "call_id": "01990000-0000-7000-8000-00000000abcd",
    "block": "1",
    "approval_id": "apr_1",
}
ROUTES = [
    (min(route.methods or ()), route.path.format(**IDS))
    for route in _make_router().routes
    if isinstance(route, APIRoute)
]


def authenticate(headers: Iterable[tuple[bytes, bytes]]) -> Key | None:
    return KEYS.get(dict(headers).get(b"x-api-key", b""))


async def page() -> str:
    return "here"


@pytest.fixture
def client() -> httpx2.AsyncClient:
    """The API with a route on the application and one on a router of its own; nothing listens where
    its record would be."""
    app = AuditApi(
        AuditReader.open("postgresql://nobody@127.0.0.1:1/none", answer_s=1),
        authenticate,
        within_s=1,
    ).app
    app.add_api_route("/debug/page", page)
    router = APIRouter(prefix="/debug")
    router.add_api_route("/other", page)
    app.include_router(router)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://audit")


@pytest.mark.parametrize(
    ("method", "path"), [*ROUTES, ("GET", "/debug/page"), ("GET", "/debug/other")]
)
async def test_no_route_answers_without_an_auditors_key(
    client: httpx2.AsyncClient, method: str, path: str
) -> None:
    for key, status in (("", 401), ("wrong", 401), ("cli", 403)):
        assert (
            await client.request(method, path, headers={"x-api-key": key})
        ).status_code == status
    if path.startswith("/debug/"):
        assert (await client.get(path, headers={"x-api-key": "aud"})).json() == "here"


async def test_a_review_that_cannot_be_kept_is_said(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/audit/reviews/{call_id}/{block}".format(**IDS),
        json={"label": "honest"},
        headers={"x-api-key": "aud"},
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (
        503,
        "audit_unavailable",
    ) and answer.headers["retry-after"]


def test_no_route_is_of_a_kind_that_has_no_dependencies() -> None:
    assert ROUTES and all(type(route) is APIRoute for route in _make_router().routes)
    audit = AuditApi(AuditReader.open("postgresql://nobody@127.0.0.1:1/none", answer_s=1))
    assert [type(route).__name__ for route in audit.app.routes] == ["_IncludedRouter"]
